"""What an address is to kernels, transfers and command-buffers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from ....icd._native import ffi
from ....icd.command_buffer.commands import MemoryFunctions
from ....loader.base.operations import TransferCommand
from ...sdk.transfers import Location
from ...sdk.usm import find_bytes
from ..contexts import URContext
from ..core import failure
from ..transfers import is_opencl_pattern
from .registry import find, find_foreign, is_unreachable
from .strategies import Buffers, Intel, can_use_host_memory, find_strategy, require_strategy
from .strategy import Allocation

_new: Final = tuple.__new__  # the NamedTuple's takes three times as long


def find_allocation(context: URContext, address: int, size: int) -> Allocation | None:
    """Return the allocation of some bytes, None for host memory.

    Args:
        context: the context that the memory has to belong to, if it is not host memory.
        size: how many bytes.

    Raises:
        URError: INVALID_SIZE if an allocation ends before the bytes do. INVALID_MEM_OBJECT if there
            is no memory at the first or the last byte, or device memory of another context.
    """
    found = find(context, address)
    if found is None and is_unreachable(address):
        raise failure(
            "INVALID_MEM_OBJECT", f"the device memory at {address:#x} is of another context"
        )
    return find_bytes(
        address, size, found, lambda: find_foreign(context, find_strategy(context), address)
    )


def locate(context: URContext, address: int, size: int) -> Location:
    """Return an address with its allocation. Arguments and errors are as of `find_allocation`."""
    return Location(address, find_allocation(context, address, size))


def make_pointer_argument(context: URContext, address: int) -> tuple[str, int]:
    """Say how an address becomes a kernel's argument.

    Returns:
        What sets it, and the value. "svm": clSetKernelArgSVMPointer; "usm":
        clSetKernelArgMemPointerINTEL; "mem": clSetKernelArg with a cl_mem, 0 for NULL.

    Raises:
        URError: INVALID_OPERATION without USM, INVALID_VALUE for an address outside USM memory,
            UNSUPPORTED_FEATURE where no sub-buffer can begin.
    """
    strategy = require_strategy(context)
    if not address and strategy is not Intel:  # NVIDIA's driver refuses NULL for SVM
        return "mem", 0
    if strategy is not Buffers:
        return strategy.argument, address
    allocation = find(context, address)
    if allocation is None:
        raise failure("INVALID_VALUE", "the address is in no USM memory of the context")
    return "mem", Buffers.get_part(allocation, address - allocation.base)


def get_memory_functions(context: URContext) -> MemoryFunctions:
    """Return the driver's functions for addresses where they are not those of SVM."""
    if find_strategy(context) is not Intel:
        return MemoryFunctions()
    routines = "clSetKernelArgMemPointerINTEL", Intel.copy_routine, Intel.fill_routine
    find_function = context.platform.icd.extension_function
    return MemoryFunctions(*(find_function(routine) or 0 for routine in routines))


def make_copy_operation(context: URContext, target: int, source: int, size: int) -> TransferCommand:
    """Return the operation of `icd.command_buffer` that copies bytes.

    Raises:
        URError: as `locate` and `Strategy.copy`.
    """
    target_place, source_place = locate(context, target, size), locate(context, source, size)
    return require_strategy(context).copy(target_place, source_place, size)


def can_fill(context: URContext, target: Location, pattern_size: int) -> bool:
    """Return whether the driver has a fill for this pattern and this memory.

    SPEC clEnqueueSVMMemFill, clEnqueueMemFillINTEL: other memory than the driver's own needs system
    SVM. PoCL 7.1 crashes there without it.
    """
    return is_opencl_pattern(pattern_size, target.address) and (
        target.allocation is not None or can_use_host_memory(context)
    )


def make_fill_operation(
    context: URContext, address: int, pattern: bytes, size: int, keep: Callable[[bytes], Any]
) -> TransferCommand:
    """Return the operation of `icd.command_buffer` that fills bytes.

    Args:
        size: how many bytes are filled. The pattern may end in the middle.
        keep: copies bytes to where the command-buffer keeps them, and returns a pointer to them.

    Raises:
        URError: as `locate`, `Strategy.fill` and `Strategy.copy`.
    """
    return fill_location(context, locate(context, address, size), pattern, size, keep)


def fill_location(
    context: URContext, place: Location, pattern: bytes, size: int, keep: Callable[[bytes], Any]
) -> TransferCommand:
    """Do what `make_fill_operation` does, for bytes that were found."""
    strategy = require_strategy(context)
    if not size % len(pattern) and can_fill(context, place, len(pattern)):
        return strategy.fill(place, keep(pattern), len(pattern), size)
    whole = keep((pattern * (size // len(pattern) + 1))[:size])
    return strategy.copy(place, Location(int(ffi.cast("uintptr_t", whole)), None), size)
