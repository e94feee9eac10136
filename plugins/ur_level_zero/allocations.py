"""Adapter on Level Zero: the allocations of USM of a context: made by Level Zero, found by any
address in them.
"""

from __future__ import annotations

import ctypes
from functools import partial
from typing import Final

from ..sdk.usm import (
    AllocationObject,
    MemoryRequest,
    add_known,
    find_bytes,
    find_known,
    make_release,
    remove_known,
)
from .contexts import LZContext
from .core import call, check, create, failure, make_struct
from .devices import LZDevice
from .unfinished_queues import drain_queues

_new: Final = tuple.__new__  # the NamedTuple's takes three times as long


def allocate(request: MemoryRequest) -> AllocationObject:
    """Allocate memory of the driver. The context does not know it yet. Raises LevelZeroError."""
    context, size, align = request.context, request.size, request.align
    host = ctypes.byref(make_struct("host_mem_alloc_desc"))
    mine = ctypes.byref(make_struct("device_mem_alloc_desc"))
    handle = request.device.ze if request.device is not None else None
    routine, given = {
        "host": ("zeMemAllocHost", (host, size, align)),
        "device": ("zeMemAllocDevice", (mine, size, align, handle)),
        "shared": ("zeMemAllocShared", (mine, host, size, align, handle)),
    }[request.kind]
    return AllocationObject(create(context.table, routine, context.ze, *given), request)


def free(allocation: AllocationObject) -> None:
    """Give memory back to the driver. Raises LevelZeroError."""
    context = allocation.context
    call(context.table, "zeMemFree", context.ze, allocation.base)


#: Gives memory that was removed to its pool, or else to the driver. It raises LevelZeroError.
release_memory: Final = make_release(free)


#: Functions of Intel's GPU driver, which no specification has: they import and release host memory.
_IMPORT, _RELEASE = "zexDriverImportExternalPointer", "zexDriverReleaseImportedPointer"
# ze_result_t (ze_driver_handle_t, void *, size_t)
_ImportPrototype: Final = ctypes.CFUNCTYPE(
    ctypes.c_int32, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t
)
# ze_result_t (ze_driver_handle_t, void *)
_ReleasePrototype: Final = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_void_p, ctypes.c_void_p)


def _can_use_all_memory(device: LZDevice) -> bool:
    return bool(device.access.sharedSystemAllocCapabilities)


def can_import(device: LZDevice) -> bool:
    """Return whether memory that the program has allocated itself becomes USM."""
    return _can_use_all_memory(device) or bool(device.platform.find_extension_function(_IMPORT))


def import_memory(context: LZContext, address: int, size: int) -> None:
    """Make memory that the program allocated host USM.

    Raises:
        URError: UNSUPPORTED_FEATURE, INVALID_VALUE for memory that is USM, and as `locate`.
    """
    if not all(map(can_import, context.devices)):
        raise failure("UNSUPPORTED_FEATURE", f"the driver has no {_IMPORT}")
    if not all(map(_can_use_all_memory, context.devices)):
        function = _ImportPrototype(context.platform.find_extension_function(_IMPORT))
        check(function(context.platform.ze, address, size), _IMPORT)
    add_known(AllocationObject(address, MemoryRequest(context, "host", None, size), imported=True))


def forget_imported(context: LZContext, allocation: AllocationObject) -> None:
    """Give imported memory back to the program, after what uses it. Raises LevelZeroError."""
    drain_queues(context=context)
    remove_known(context, allocation.base)
    if not all(map(_can_use_all_memory, context.devices)):
        function = _ReleasePrototype(context.platform.find_extension_function(_RELEASE))
        check(function(context.platform.ze, allocation.base), _RELEASE)


def locate(context: LZContext, address: int, size: int) -> AllocationObject | None:
    """Return the allocation of some bytes, None for host memory.

    Raises:
        URError: INVALID_SIZE for bytes that end behind the allocation they begin in.
            INVALID_MEM_OBJECT if there is no memory at the first or the last byte.
    """
    foreign = partial(_find_foreign, context, address)
    return find_bytes(address, size, find_known(context, address), foreign)


def _find_foreign(context: LZContext, address: int) -> AllocationObject | None:
    """Return memory that the driver has at an address, and that the context does not know."""
    base, size = ctypes.c_void_p(), ctypes.c_size_t()
    given = context.ze, address, ctypes.byref(base), ctypes.byref(size)
    if context.table.zeMemGetAddressRange(*given) or not base.value:
        return None
    return AllocationObject(base.value, MemoryRequest(context, "device", None, size.value))
