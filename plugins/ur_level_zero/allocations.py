"""Adapter on Level Zero: the allocations of USM of a context: made by Level Zero, found by any
address in them.
"""

from __future__ import annotations

import ctypes
from functools import partial
from typing import Any, Final, NamedTuple

from ..sdk.usm import find_bytes
from .contexts import LZContext
from .core import call, check, create, failure, make_struct
from .devices import LZDevice

_new: Final = tuple.__new__  # the NamedTuple's takes three times as long


class LZRequest(NamedTuple):
    """An allocation that is asked for: `size` bytes, aligned to `align` bytes (0: to anything)."""

    context: LZContext
    kind: str
    device: LZDevice | None
    size: int
    align: int = 0


class LZAllocation:
    """Memory that was allocated.

    Args:
        base: its first byte.
        request: what was asked for.
        imported: whether the program has allocated it itself.

    Attributes:
        pool: the pool that it was taken from.
        key: the key under which its pool keeps it.
    """

    def __init__(self, base: int, request: LZRequest, imported: bool = False) -> None:
        self.base, self.size, self.kind = base, request.size, request.kind
        self.context, self.device = request.context, request.device
        self.imported = imported
        self.pool: Any = None
        self.key: Any = None

    @property
    def end(self) -> int:
        """Return the first address behind the memory."""
        return self.base + self.size


def allocate(request: LZRequest) -> LZAllocation:
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
    return LZAllocation(create(context.table, routine, context.ze, *given), request)


def free(allocation: LZAllocation) -> None:
    """Give memory back to the driver. Raises LevelZeroError."""
    context = allocation.context
    call(context.table, "zeMemFree", context.ze, allocation.base)


def release_memory(allocation: LZAllocation) -> None:
    """Give memory that nothing uses to its pool, or else to the driver. Raises LevelZeroError."""
    if allocation.pool is not None:
        allocation.pool.give(allocation)
    else:
        free(allocation)


#: Functions of Intel's GPU driver, which no specification has: they import and release host memory.
_IMPORT, _RELEASE = "zexDriverImportExternalPointer", "zexDriverReleaseImportedPointer"
_ImportPrototype: Final = ctypes.CFUNCTYPE(
    ctypes.c_int32, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t
)
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
        LevelZeroError: what the driver answers.
    """
    if not all(map(can_import, context.devices)):
        raise failure("UNSUPPORTED_FEATURE", f"the driver has no {_IMPORT}")
    if find(context, address) is not None:
        raise failure("INVALID_VALUE", "the memory is USM already")
    locate(context, address, size)
    if not all(map(_can_use_all_memory, context.devices)):
        function = _ImportPrototype(context.platform.find_extension_function(_IMPORT))
        check(function(context.platform.ze, address, size), _IMPORT)
    add(LZAllocation(address, LZRequest(context, "host", None, size), imported=True))


def forget_imported(context: LZContext, address: int) -> None:
    """Give imported memory, which nothing uses, back to the program.

    Raises:
        URError: INVALID_VALUE if no imported memory begins there.
        LevelZeroError: what the driver answers.
    """
    found = context.allocations.get(address)
    if found is None or not found.imported:
        raise failure("INVALID_VALUE", "no imported memory begins there")
    remove(context, address, imported=True)
    if not all(map(_can_use_all_memory, context.devices)):
        function = _ReleasePrototype(context.platform.find_extension_function(_RELEASE))
        check(function(context.platform.ze, address), _RELEASE)


def add(allocation: LZAllocation) -> LZAllocation:
    """Register an allocation in its context, and return it."""
    allocation.context.allocations[allocation.base] = allocation
    return allocation


def remove(context: LZContext, address: int, imported: bool = False) -> LZAllocation:
    """Forget an allocation. It is not freed.

    Args:
        address: where it begins.
        imported: whether it is memory of the program's.

    Raises:
        URError: INVALID_MEM_OBJECT if no allocation of the context begins there.
    """
    found = context.allocations.get(address)
    if found is None or found.imported is not imported:
        raise failure("INVALID_MEM_OBJECT", "no USM memory of the context begins there")
    return context.allocations.pop(address)


def find(context: LZContext, address: int) -> LZAllocation | None:
    """Return the allocation of a context that an address is in, None if there is none."""
    found = context.allocations.get(address)
    if found is not None:
        return found
    everything = list(context.allocations.values())
    return next((one for one in everything if one.base <= address < one.end), None)


def locate(context: LZContext, address: int, size: int) -> LZAllocation | None:
    """Find the allocation of some bytes.

    Returns:
        The allocation, None for host memory.

    Raises:
        URError: INVALID_SIZE for bytes that end behind the allocation they begin in.
            INVALID_MEM_OBJECT if there is no memory at the first or the last byte.
    """
    foreign = partial(_find_foreign, context, address)
    return find_bytes(address, size, find(context, address), foreign)


def _find_foreign(context: LZContext, address: int) -> LZAllocation | None:
    """Return memory that the driver has at an address, and that the context does not know."""
    base, size = ctypes.c_void_p(), ctypes.c_size_t()
    given = context.ze, address, ctypes.byref(base), ctypes.byref(size)
    if context.table.zeMemGetAddressRange(*given) or not base.value:
        return None
    return LZAllocation(base.value, LZRequest(context, "device", None, size.value))
