"""Contexts of the OpenCL adapter, and what belongs to a context and not to a queue."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from functools import cached_property
from typing import Any

from ...icd.abi import OPENCL
from ..sdk._native import ffi, lib
from ..sdk.answers import make_answers
from ..sdk.contexts import ContextObject, declare_contexts
from .core import (
    CLObject,
    adapter,
    create,
    failure,
    get_address,
    make_handle_array,
    query,
    query_number,
    retain_unless_owned,
)
from .devices import URDevice, get_device
from .platforms import URPlatform, get_driver


@adapter.kind
class URContext(ContextObject, CLObject):
    """A cl_context.

    Args:
        devices: its devices, in the order of the program.
        owned: whether it has a reference to `cl`, which it releases at the end.
        struct: what C knows of it, if C has made it.

    Attributes:
        usm: what `usm.strategies.find_strategy` has found, None before it is asked.
    """

    type = "ur_context_handle_t"
    release, retain_function = "clReleaseContext", "clRetainContext"

    def __init__(
        self, cl: int, devices: Sequence[URDevice], owned: bool = True, struct: Any = None
    ) -> None:
        super().__init__(cl, devices[0].table, owned)
        self.devices = tuple(devices)
        self.deleters: list[tuple[int, int]] = []
        self.usm: tuple[Any] | None = None
        self.usm_devices: Any = None  # what C knows of its devices' memory
        self.samplers: dict[tuple[int, ...], int] = {}  # the cl_sampler of each description
        self.answers = make_answers()
        self.struct = struct or ffi.new("fl_context *", {"cl": cl, "driver": self.platform.struct})

    def describe_to_c(self) -> tuple[int, int, int, int]:
        return self.cl, get_address(self.struct), 0, get_address(self.answers)

    def handle_ends(self) -> None:
        """Take over the memory that C has allocated, because it keeps the context."""
        from .usm.registry import list_allocations

        list_allocations(self)

    @cached_property
    def cookie(self) -> Any:
        """Return what C knows it by."""
        return ffi.new_handle(self)

    @property
    def platform(self) -> URPlatform:
        """Return the platform of its devices."""
        return self.devices[0].platform

    def is_same(self, other: URContext) -> bool:
        return other.cl == self.cl

    def close(self) -> None:
        self.call_deleters()
        for sampler in self.samplers.values():
            self.table.clReleaseSampler(sampler)
        super().close()


def _adopt_context(words: Any) -> URContext:
    """Return the object of a context that C has made."""
    registry = adapter.objects
    struct = ffi.gc(ffi.cast("fl_context *", words[1]), lib.fl_free_context)
    known = registry.list_owned(URDevice.type)
    devices = [known[struct.handles[index]] for index in range(struct.handle_count)]
    made = URContext(words[0], devices, struct=struct)
    made.answers = ffi.gc(ffi.cast("fl_answers *", words[3]), lib.fl_free_answers)
    return made


adapter.adopters[URContext.type] = _adopt_context


def create_context(devices: list[URDevice]) -> URContext:
    """Create a context of devices of one platform. Raises OpenCLError."""
    platform = devices[0].platform
    properties = (ctypes.c_ssize_t * 3)(OPENCL["CL_CONTEXT_PLATFORM"], platform.cl, 0)
    arguments = properties, len(devices), make_handle_array(devices), None, None
    return URContext(create(platform.table, "clCreateContext", *arguments), devices)


declare_contexts(adapter, create_context)


@adapter.entry
def urContextCreateWithNativeHandle(
    hNativeContext: int, phDevices: list[URDevice], pProperties: Any
) -> URContext:
    devices = _list_devices(hNativeContext)
    if any(device not in devices for device in phDevices):
        raise failure("INVALID_DEVICE", "the devices are not those of the native context")
    devices = phDevices or devices
    retain_unless_owned(URContext, hNativeContext, devices[0].table, pProperties)
    return URContext(hNativeContext, devices)


def check_native(native: int, context: URContext, routine: str, name: str) -> None:
    """Check that a native handle belongs to a context.

    Args:
        routine: the query of its type, such as "clGetKernelInfo".
        name: the property that is the context, such as "CL_KERNEL_CONTEXT".

    Raises:
        URError: INVALID_VALUE for a handle of no driver, INVALID_CONTEXT for another context.
    """
    if query_number(get_driver(native).table, routine, native, name) != context.cl:
        raise failure("INVALID_CONTEXT", "the native handle is of another context")


def _list_devices(native: int) -> list[URDevice]:
    """Return the devices of a cl_context."""
    data = query(get_driver(native).table, "clGetContextInfo", native, OPENCL["CL_CONTEXT_DEVICES"])
    return [
        get_device(int.from_bytes(data[at : at + 8], "little")) for at in range(0, len(data), 8)
    ]
