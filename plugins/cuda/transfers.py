"""CUDA and HIP: transfers on queues, of buffers and of memory by address; hints. Maps of buffers
are copies.

Prefetches and advice need managed memory. About other memory they are checked and do nothing.

A fill is one set (`GpuSet`), or one for each column of a longer pattern. CUDA sets elements of 1, 2
or 4 bytes. HIP sets single bytes in rows.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import Any, Final

from ...loader.base.operations import TransferCommand
from ...loader.ur.abi import UR
from ..sdk.buffers import declare_maps
from ..sdk.gpu.api import CopyPlace, GpuSet
from ..sdk.programs import declare_variable_copies
from ..sdk.transfers import COPIES, Location, Transfers, find_place
from .allocations import CuAllocation, locate
from .buffers import CuBuffer
from .contexts import CuContext
from .core import API, adapter, failure, get_constant
from .enqueue import CuEnqueue, enqueues
from .events import CuEvent
from .programs import find_variable


def _shorten(pattern: bytes) -> bytes:
    """Return the shortest pattern that gives the same bytes."""
    for size in (1, 2, 4):
        if size < len(pattern) and pattern == pattern[:size] * (len(pattern) // size):
            return pattern[:size]
    return pattern


def make_sets(address: int, pattern: bytes, size: int) -> Sequence[GpuSet] | None:
    """Return the parameters of the sets that fill bytes, in any order.

    Args:
        size: how many bytes, a multiple of the pattern's size.

    Returns:
        The parameters; None if the pattern has to be written instead.
    """
    if len(pattern) * (size // len(pattern)) == size:
        pattern = _shorten(pattern)
    if size % len(pattern) or len(pattern) > API.widest_pattern:
        return None
    length = len(pattern)
    aligned = [one for one in (4, 2, 1) if not (length % one or address % one)]
    if length == aligned[0]:
        return [_set(address, 0, pattern, size // length, 1)]
    element = next(one for one in aligned if one <= API.widest_element)
    count = size // length
    return [
        _set(address + at, length, pattern[at : at + element], 1, count)
        for at in range(0, length, element)
    ]


def fill_rows(address: int, pitch: int, pattern: bytes, width: int, height: int) -> GpuSet | None:
    """Return the parameters of the set that fills rows, None if there is no such set."""
    pattern = _shorten(pattern)
    length = len(pattern)
    if (
        length not in (1, 2, 4)
        or length > API.widest_element
        or width % length
        or address % length
        or pitch % length
    ):
        return None
    return _set(address, pitch, pattern, width // length, height)


def _set(address: int, pitch: int, pattern: bytes, width: int, height: int) -> GpuSet:
    value = int.from_bytes(pattern, "little")
    return GpuSet(address, pitch, value, len(pattern), width, height)


def copy_bytes(
    enqueue: CuEnqueue, target: int, source: int, size: int, keep: Any = None
) -> CuEvent | None:
    """Enqueue a copy between any two addresses."""
    arguments = API.list_copy_arguments(target, source, size)
    return enqueue.run(lambda stream: enqueue.call("MemcpyAsync", *arguments, stream), keep)


def fill_bytes(
    enqueue: CuEnqueue, address: int, pattern: bytes, size: int, keep: Any = None
) -> CuEvent | None:
    """Enqueue a fill, and return the event, if one is wanted.

    Args:
        size: how many bytes, a multiple of the pattern's size.
    """
    sets = make_sets(address, pattern, size)
    if sets is not None:
        return enqueue.run(lambda stream: [set_bytes(enqueue, one, stream) for one in sets], keep)
    block = ctypes.create_string_buffer((pattern * (size // len(pattern) + 1))[:size], size)
    source = ctypes.addressof(block)
    enqueue.blocking = True  # nothing but this call keeps the block
    return copy_bytes(enqueue, address, source, size, (keep, block))


def set_bytes(enqueue: CuEnqueue, one: GpuSet, stream: int) -> None:
    """Enqueue a set. Raises DriverError."""
    bits = 8 * one.elementSize
    if one.height == 1:
        enqueue.call(f"MemsetD{bits}Async", one.dst, one.value, one.width, stream)
    else:
        shape = one.width, one.height
        enqueue.call(f"MemsetD2D{bits}Async", one.dst, one.pitch, one.value, *shape, stream)


def copy_rows(enqueue: CuEnqueue, copy: Any, keep: Any = None) -> CuEvent | None:
    """Enqueue a copy of rows and slices (`API.make_copy`)."""
    pointer = ctypes.byref(copy)
    return enqueue.run(lambda stream: enqueue.call("Memcpy3DAsync", pointer, stream), keep)


declare_maps(enqueues, copy_bytes)
declare_variable_copies(enqueues, find_variable, copy_bytes)


_TO_HOST: Final = UR["UR_USM_MIGRATION_FLAG_DEVICE_TO_HOST"]


def is_on_device(allocation: CuAllocation | None) -> bool:
    """Return whether the driver counts memory as the device's. Managed memory is."""
    return allocation is not None and allocation.kind != "host"


def make_place(transfer: TransferCommand, side: str) -> CopyPlace:
    """Return the "source" or the "target" of a transfer (sdk/transfers.py)."""
    place = find_place(transfer, side)
    memory = place.memory
    if isinstance(memory, CuBuffer):
        on_device = not memory.is_host
    else:
        on_device = isinstance(memory, Location) and is_on_device(memory.allocation)
    return CopyPlace(place.address, on_device, place.origin, place.row, place.slice)


def find_filled(transfer: TransferCommand) -> int:
    """Return where a fill begins.

    Raises:
        URError: INVALID_MEM_OBJECT for memory that is not the driver's.
    """
    target = find_place(transfer, "target")
    _check_filled(target.memory)
    return target.address


def _check_filled(place: Any) -> None:
    if isinstance(place, Location) and place.allocation is None:
        raise failure("INVALID_MEM_OBJECT", f"{API.name} fills no memory but its own")


def _run(enqueue: CuEnqueue, transfer: TransferCommand, command: str) -> CuEvent | None:
    """Enqueue a fill by address (sdk/transfers.py). Returns the event, if one is wanted."""
    operands = transfer.operands
    given = find_filled(transfer), operands["pattern"], operands["size"]
    return fill_bytes(enqueue, *given, transfer.keep)


def _make_rectangle(target: str, source: str) -> str:
    """Return the expression that copies a rectangle between "buffer"s and "host" memory."""
    ends = []
    for side, kind in (("target", target), ("source", source)):
        place = f"{side}.address, not {side}.is_host" if kind == "buffer" else f"{side}, False"
        pitches = f"{side}_origin, {side}_row_pitch, {side}_slice_pitch"
        ends.append(f"new(CopyPlace, ({place}, {pitches}, 0, 1))")
    return f"copy_rows(call, make_copy({', '.join(ends)}, region), keep)"


transfers: Final = Transfers(
    enqueues,
    locate,
    _run,
    {
        **COPIES,
        "fill": "fill(call, target.address + offset, pattern, size, keep)",
        "read_rect": _make_rectangle("host", "buffer"),
        "write_rect": _make_rectangle("buffer", "host"),
        "copy_rect": _make_rectangle("buffer", "buffer"),
    },
    copy=copy_bytes,
    fill=fill_bytes,
    copy_rows=copy_rows,
    make_copy=API.make_copy,
    CopyPlace=CopyPlace,
)


@adapter.entry
def urUSMContextMemcpyExp(hContext: CuContext, pDst: int, pSrc: int, size: int) -> None:
    """Copy on a stream of its own, which has no order with queues."""
    locate(hContext, pDst, size)
    locate(hContext, pSrc, size)
    hContext.device.copy(pDst, pSrc, size)


def _fill_rows(
    enqueue: CuEnqueue, target: Location, pitch: int, pattern: bytes, width: int, height: int
) -> CuEvent | None:
    """Fill rows. The pattern continues from row to row if a row is not a multiple of it."""
    _check_filled(target)
    one = fill_rows(target.address, pitch, pattern, width, height)
    if one is not None:
        return enqueue.run(lambda stream: set_bytes(enqueue, one, stream))
    data = (pattern * (width * height // len(pattern)))[: width * height]
    block = ctypes.create_string_buffer(data, len(data))
    source = CopyPlace(ctypes.addressof(block), False, row=width)
    enqueue.blocking = True  # nothing but this call keeps the block
    copy = API.make_copy(_make_rows(target, pitch), source, (width, height, 1))
    return copy_rows(enqueue, copy, block)


def _make_rows(place: Location, pitch: int) -> CopyPlace:
    return CopyPlace(place.address, is_on_device(place.allocation), row=pitch)


def _copy_rows(
    enqueue: CuEnqueue,
    target: Location,
    to_pitch: int,
    source: Location,
    pitch: int,
    width: int,
    height: int,
) -> CuEvent | None:
    ends = _make_rows(target, to_pitch), _make_rows(source, pitch)
    return copy_rows(enqueue, API.make_copy(*ends, (width, height, 1)))


transfers.declare_rows(_copy_rows, _fill_rows)


# hints


def _can_move(enqueue: CuEnqueue, place: Location) -> bool:
    """Return whether the driver takes hints about memory: managed memory of some devices."""
    found = place.allocation
    is_managed = found is not None and found.kind == "shared"
    return is_managed and bool(enqueue.queue.device.query_attribute("CONCURRENT_MANAGED_ACCESS"))


def _prefetch(enqueue: CuEnqueue, place: Location, size: int, flags: int) -> CuEvent | None:
    if not _can_move(enqueue, place):
        return enqueue.run()
    where = API.list_prefetch_location(None if flags & _TO_HOST else enqueue.queue.device.native)
    given = place.address, size, *where
    return enqueue.run(lambda stream: enqueue.call("MemPrefetchAsync", *given, stream))


#: The driver's advice for that of Unified Runtime, and whether it is about the host.
_ADVICE: Final = {
    UR[f"UR_USM_ADVICE_FLAG_{name}"]: (get_constant(f"CU_MEM_ADVISE_{advice}"), host)
    for name, advice, host in (
        ("SET_READ_MOSTLY", "SET_READ_MOSTLY", False),
        ("CLEAR_READ_MOSTLY", "UNSET_READ_MOSTLY", False),
        ("SET_PREFERRED_LOCATION", "SET_PREFERRED_LOCATION", False),
        ("CLEAR_PREFERRED_LOCATION", "UNSET_PREFERRED_LOCATION", False),
        ("SET_PREFERRED_LOCATION_HOST", "SET_PREFERRED_LOCATION", True),
        ("CLEAR_PREFERRED_LOCATION_HOST", "UNSET_PREFERRED_LOCATION", True),
        ("SET_ACCESSED_BY_DEVICE", "SET_ACCESSED_BY", False),
        ("CLEAR_ACCESSED_BY_DEVICE", "UNSET_ACCESSED_BY", False),
        ("SET_ACCESSED_BY_HOST", "SET_ACCESSED_BY", True),
        ("CLEAR_ACCESSED_BY_HOST", "UNSET_ACCESSED_BY", True),
    )
}


def _advise(enqueue: CuEnqueue, place: Location, size: int, advice: int) -> CuEvent | None:
    device = enqueue.queue.device
    if _can_move(enqueue, place):
        for flag, (number, host) in _ADVICE.items():
            if advice & flag:
                where = API.list_location(None if host else device.native)
                device.call("MemAdvise", place.address, size, number, *where)
    return enqueue.run()


transfers.declare_hints(_prefetch, _advise)
