"""Contexts. What belongs to a context and not to a queue is kept here: its devices, and what frees come through (usm.py)."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from functools import cached_property
from typing import Any, Final

from ...icd.abi import OPENCL
from ..sdk._native import ffi
from .core import CLObject, adapter, create, failure, handles, query, retain_unless_owned
from .devices import URDevice, device_of
from .platforms import URPlatform, driver_of

_Deleter: Final = ctypes.CFUNCTYPE(None, ctypes.c_void_p)


@adapter.kind
class URContext(CLObject):
    """A cl_context, with the devices in the order in which they were given."""

    type = "ur_context_handle_t"
    release, retain_function = "clReleaseContext", "clRetainContext"

    def __init__(self, cl: int, devices: Sequence[URDevice], owned: bool = True) -> None:
        super().__init__(cl, devices[0].table, owned)
        self.devices = tuple(devices)
        self.deleters: list[tuple[int, int]] = []
        self.usm: tuple[Any] | None = None  # what usm.strategy_of has found
        self.samplers: dict[tuple[int, ...], int] = {}  # the cl_sampler of each description

    @cached_property
    def cookie(self) -> Any:
        """What C knows it by."""
        return ffi.new_handle(self)

    @property
    def platform(self) -> URPlatform:
        """The platform of its devices."""
        return self.devices[0].platform

    def check_device(self, device: URDevice) -> None:
        """Raise URError (INVALID_DEVICE) unless the device, or one that it is a part of, is in the context."""
        part: URDevice | None = device
        while part is not None:
            if part in self.devices:
                return
            part = part.parent
        raise failure("INVALID_DEVICE", "the device is not one of the context")

    def check_same(self, what: str, *things: Any) -> None:
        """Raise URError (INVALID_CONTEXT) for a thing of another cl_context: drivers take another's object for theirs.

        Contexts made of one native handle are the same.
        """
        for thing in things:
            if thing.context is not self and thing.context.cl != self.cl:
                raise failure("INVALID_CONTEXT", f"{what} is of another context")

    def close(self) -> None:
        for function, data in reversed(
            self.deleters
        ):  # urContextSetExtendedDeleter: before the context itself goes
            _Deleter(function)(data)
        for sampler in self.samplers.values():
            self.table.clReleaseSampler(sampler)
        super().close()


@adapter.entry
def urContextCreate(phDevices: list[URDevice]) -> URContext:
    if not phDevices:
        raise failure("INVALID_SIZE", "a context has at least one device")
    platform = phDevices[0].platform
    if any(device.platform is not platform for device in phDevices):
        raise failure("INVALID_DEVICE", "the devices of a context belong to one platform")
    properties = (ctypes.c_ssize_t * 3)(OPENCL["CL_CONTEXT_PLATFORM"], platform.cl, 0)
    return URContext(
        create(
            platform.table,
            "clCreateContext",
            properties,
            len(phDevices),
            handles(phDevices),
            None,
            None,
        ),
        phDevices,
    )


adapter.info(
    "urContextGetInfo",
    {
        "UR_CONTEXT_INFO_NUM_DEVICES": lambda context: len(context.devices),
        "UR_CONTEXT_INFO_DEVICES": lambda context: context.devices,
        "UR_CONTEXT_INFO_REFERENCE_COUNT": lambda context: context.references,
        "UR_CONTEXT_INFO_USM_MEMCPY2D_SUPPORT": True,
        # false, though there is urEnqueueUSMFill2D: libsycl gives it pitch and width in elements,
        # and fills by a kernel where there is no support
        "UR_CONTEXT_INFO_USM_FILL2D_SUPPORT": False,
    },
)


@adapter.entry
def urContextGetNativeHandle(hContext: URContext) -> int:
    return hContext.cl


@adapter.entry
def urContextCreateWithNativeHandle(
    hNativeContext: int, phDevices: list[URDevice], pProperties: Any
) -> URContext:
    if not hNativeContext:
        raise failure("INVALID_NULL_HANDLE")
    owned = bool(pProperties and pProperties.isNativeHandleOwned)
    devices = _devices_of(hNativeContext)
    if any(device not in devices for device in phDevices):
        raise failure("INVALID_DEVICE", "the devices are not those of the native context")
    devices = phDevices or devices
    retain_unless_owned(URContext, hNativeContext, devices[0].table, owned)
    return URContext(hNativeContext, devices)


def check_native(native: int, context: URContext, routine: str, name: str) -> None:
    """Raise URError unless a native handle is one of the context's driver, and of the context, which `name` asks for."""
    if not native:
        raise failure("INVALID_NULL_HANDLE")
    table = driver_of(native).table
    if (
        int.from_bytes(query(table, routine, native, OPENCL[name], detail=f"({name})"), "little")
        != context.cl
    ):
        raise failure("INVALID_CONTEXT", "the native handle is of another context")


def _devices_of(native: int) -> list[URDevice]:
    """The devices of a cl_context."""
    data = query(driver_of(native).table, "clGetContextInfo", native, OPENCL["CL_CONTEXT_DEVICES"])
    return [device_of(int.from_bytes(data[at : at + 8], "little")) for at in range(0, len(data), 8)]


@adapter.entry
def urContextSetExtendedDeleter(hContext: URContext, pfnDeleter: int, pUserData: int) -> None:
    hContext.deleters.append((pfnDeleter, pUserData))
