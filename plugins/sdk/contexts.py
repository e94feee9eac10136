"""Contexts of all adapters: their devices, what belongs to them, and the program's deleters."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from typing import Any, Final

from .adapter import Adapter
from .conversions import failure

# void (void *data), of urContextSetExtendedDeleter
_Deleter: Final = ctypes.CFUNCTYPE(None, ctypes.c_void_p)

_INFO: Final = {
    "UR_CONTEXT_INFO_NUM_DEVICES": lambda context: len(context.devices),
    "UR_CONTEXT_INFO_DEVICES": lambda context: context.devices,
    "UR_CONTEXT_INFO_REFERENCE_COUNT": lambda context: context.references,
    "UR_CONTEXT_INFO_USM_MEMCPY2D_SUPPORT": True,
    # urEnqueueUSMFill2D exists. But libsycl gives it pitch and width in elements. Without support
    # libsycl fills by a kernel.
    "UR_CONTEXT_INFO_USM_FILL2D_SUPPORT": False,
}


class ContextObject:
    """What a context of an adapter is, besides an `Object`.

    Attributes:
        devices: its devices, in the order of the program.
        deleters: functions of the program that are called at the end, with their data.
    """

    devices: tuple[Any, ...]
    deleters: list[tuple[int, int]]

    def is_same(self, other: Any) -> bool:
        """Return whether another context has the same native handle."""
        return False

    def shares(self, other: Any) -> bool:
        """Return whether commands can use events and memory of another context."""
        return self.is_same(other)

    def check_device(self, device: Any) -> None:
        """Check that a device is in the context, or a part of one that is.

        Raises:
            URError: INVALID_DEVICE if it is not.
        """
        part = device
        while part is not None:
            if part in self.devices:
                return
            part = getattr(part, "parent", None)
        raise failure("INVALID_DEVICE", "the device is not one of the context")

    def check_same(self, what: str, *things: Any) -> None:
        """Check that objects belong to the context, because drivers do not.

        Two contexts of one native handle are the same.

        Args:
            what: what the error calls them.
            things: objects with a `context`.

        Raises:
            URError: INVALID_CONTEXT if one does not.
        """
        self._check(self.is_same, what, things)

    def check_shared(self, what: str, *things: Any) -> None:
        """Check events and memory that a command uses. See `shares` and `check_same`."""
        self._check(self.shares, what, things)

    def _check(self, suits: Callable[[Any], bool], what: str, things: Sequence[Any]) -> None:
        for thing in things:
            if thing.context is not self and not suits(thing.context):
                raise failure("INVALID_CONTEXT", f"{what} is of another context")

    def call_deleters(self) -> None:
        """Call the program's functions, the last first. The context still exists."""
        for function, data in reversed(self.deleters):
            _Deleter(function)(data)


def declare_contexts(adapter: Adapter, create: Callable[[list[Any]], Any]) -> None:
    """Declare how contexts are made, and the queries about them.

    Args:
        create: makes a context of devices of one platform.
    """

    def create_context(phDevices: list[Any]) -> Any:
        if any(device.platform is not phDevices[0].platform for device in phDevices):
            raise failure("INVALID_DEVICE", "the devices of a context belong to one platform")
        return create(phDevices)

    adapter.declare(
        urContextCreate=create_context,
        urContextSetExtendedDeleter=lambda hContext, pfnDeleter, pUserData: (
            hContext.deleters.append((pfnDeleter, pUserData))
        ),
    )
    adapter.info("urContextGetInfo", _INFO)
