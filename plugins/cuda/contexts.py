"""Contexts: a set of devices. Each device has its primary context, and so its allocations."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import Any, Final
from weakref import WeakSet

from ..sdk.queries import CONTEXT_INFO
from .core import Object, adapter, failure
from .devices import CuDevice, list_all_devices

_Deleter: Final = ctypes.CFUNCTYPE(None, ctypes.c_void_p)


@adapter.kind
class CuContext(Object):
    """A context.

    Args:
        devices: its devices, in the order of the program.

    Attributes:
        deleters: functions of the program that are called at the end, with their data.
        queues: its queues that are alive.
    """

    type = "ur_context_handle_t"

    def __init__(self, devices: Sequence[CuDevice]) -> None:
        self.devices = tuple(devices)
        self.deleters: list[tuple[int, int]] = []
        self.queues: WeakSet[Any] = WeakSet()

    @property
    def device(self) -> CuDevice:
        """Return the device that makes what belongs to no device, such as host memory."""
        return self.devices[0]

    def check_device(self, device: CuDevice) -> None:
        """Raise URError (INVALID_DEVICE) for a device of another context."""
        if device not in self.devices:
            raise failure("INVALID_DEVICE", "the device is not one of the context")

    def check_same(self, what: str, *things: Any) -> None:
        """Check that objects belong to this context.

        Args:
            what: what the error calls them.
            things: objects with a `context`.

        Raises:
            URError: INVALID_CONTEXT if one does not.
        """
        for thing in things:
            if thing.context is not self:
                raise failure("INVALID_CONTEXT", f"{what} is of another context")

    def drain(self) -> None:
        """Wait for everything on its devices. Raises DriverError."""
        for device in self.devices:
            device.drain()

    def close(self) -> None:
        for function, data in reversed(self.deleters):
            _Deleter(function)(data)


@adapter.entry
def urContextCreate(phDevices: list[CuDevice]) -> CuContext:
    made = CuContext(phDevices)
    for device in phDevices:
        device.call("CtxGetCurrent", ctypes.byref(ctypes.c_void_p()))  # it exists from now on
    return made


adapter.info("urContextGetInfo", CONTEXT_INFO)


@adapter.entry
def urContextGetNativeHandle(hContext: CuContext) -> int:
    return hContext.device.context


@adapter.entry
def urContextCreateWithNativeHandle(
    hNativeContext: int, phDevices: list[CuDevice], pProperties: Any
) -> CuContext:
    """Make a context of a device's primary context. Other contexts of CUDA are refused."""
    if not hNativeContext:
        raise failure("INVALID_NULL_HANDLE")
    device = next((one for one in list_all_devices() if one.context == hNativeContext), None)
    if device is None:
        raise failure("INVALID_VALUE", "the native context is not a device's primary context")
    if phDevices and device not in phDevices:
        raise failure("INVALID_DEVICE", "the devices are not those of the native context")
    return CuContext(phDevices or [device])


@adapter.entry
def urContextSetExtendedDeleter(hContext: CuContext, pfnDeleter: int, pUserData: int) -> None:
    hContext.deleters.append((pfnDeleter, pUserData))
