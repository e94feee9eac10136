"""Contexts of CUDA and HIP: a set of devices. Each device has its primary context, and so its
allocations.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import Any, Final
from weakref import WeakSet

from ...loader.base.forks import make_lock
from ..sdk.contexts import ContextObject, declare_contexts
from ..sdk.usm import AllocationList
from .core import Object, adapter, failure
from .devices import CuDevice, list_all_devices


@adapter.kind
class CuContext(ContextObject, Object):
    """A context.

    Args:
        devices: its devices, in the order of the program.

    Attributes:
        allocations: its USM, and memory of the program that was imported.
    """

    type = "ur_context_handle_t"

    def __init__(self, devices: Sequence[CuDevice]) -> None:
        self.devices = tuple(devices)
        self.deleters: list[tuple[int, int]] = []
        self.queues: WeakSet[Any] = WeakSet()
        self.allocations = AllocationList()
        with _lock:
            _all.add(self)

    @property
    def device(self) -> CuDevice:
        """Return the device that makes what belongs to no device, such as host memory."""
        return self.devices[0]

    def shares(self, other: CuContext) -> bool:
        return set(other.devices) == set(self.devices)

    def drain(self) -> None:
        """Wait for everything on its devices. Raises DriverError."""
        for device in self.devices:
            device.drain()

    def get_native(self) -> int:
        return self.device.context

    def close(self) -> None:
        self.call_deleters()


_all: Final[WeakSet[CuContext]] = WeakSet()
_lock = make_lock()


def list_contexts() -> list[CuContext]:
    """Return all contexts that are alive."""
    with _lock:
        return list(_all)


def _create(devices: list[CuDevice]) -> CuContext:
    made = CuContext(devices)
    for device in devices:
        device.call("CtxGetCurrent", ctypes.byref(ctypes.c_void_p()))  # it exists from now on
    return made


declare_contexts(adapter, _create)


@adapter.entry
def urContextCreateWithNativeHandle(
    hNativeContext: int, phDevices: list[CuDevice], pProperties: Any
) -> CuContext:
    """Make a context of a device's primary context. Other contexts of CUDA are refused."""
    device = next((one for one in list_all_devices() if one.context == hNativeContext), None)
    if device is None:
        raise failure("INVALID_VALUE", "the native context is not a device's primary context")
    if phDevices and device not in phDevices:
        raise failure("INVALID_DEVICE", "the devices are not those of the native context")
    return CuContext(phDevices or [device])
