"""Contexts: the devices that share memory objects, events and programs."""

from __future__ import annotations

import weakref
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from .errors import invalid
from .handles import Object, array
from .platform import Device, devices

if TYPE_CHECKING:
    from .queue import Queue


class Context(Object):
    """A context of one or several devices of a platform. `Context()` is one of the first device that the environment selects."""

    _release, _native = "urContextRelease", "urContextGetNativeHandle"

    def __init__(self, of: Device | Iterable[Device] | None = None, *, handle: int = 0) -> None:
        chosen: Sequence[Device] = (devices()[0],) if of is None else (of,) if isinstance(of, Device) else tuple(of)
        if not chosen:
            raise invalid("a context needs a device", routine="Context", remedy="Context(device)")
        if any(device.platform is not chosen[0].platform for device in chosen):
            raise invalid("the devices are of several platforms", routine="Context", remedy="make a context for each platform")
        self.devices = tuple(chosen)
        self.platform = chosen[0].platform
        adapter = self.platform.adapter
        made = handle or adapter.made("urContextCreate", len(chosen), array(device.handle for device in chosen), None)
        super().__init__(adapter, made)
        self.queues: weakref.WeakSet[Queue] = weakref.WeakSet()
        self._transfers = 0

    def transfers(self) -> int:
        """The handle of an in-order queue of its own, by which buffers are brought from and to the host."""
        if not self._transfers:
            self._transfers = self.adapter.made("urQueueCreate", self.handle, self.devices[0].handle, None)
        return self._transfers

    def __del__(self) -> None:
        if getattr(self, "_transfers", 0) and self.adapter.open:
            self.adapter.ur.urQueueRelease(self._transfers)
        super().__del__()

    def __contains__(self, device: object) -> bool:
        """Whether a device is one of its own."""
        return device in self.devices

    def __repr__(self) -> str:
        return f"<Context of {', '.join(device.name for device in self.devices)}>"
