"""Transfers on queues of the OpenCL adapter: those of memory by address as OpenCL runs them, whole
or by rows; hints.

A transfer is one command of the driver's where the driver has such a command. Rows that do not
follow each other are a command each where the driver has no rectangles for addresses. A fill that
OpenCL does not take is a copy of the pattern, and copies then double the filled part.

Prefetches move memory if the driver can. Advice is checked and has no effect.
"""

from __future__ import annotations

import ctypes
from typing import Any, Final, NamedTuple

from ....icd.abi import OPENCL
from ....icd.errors import OpenCLError
from ....loader.base.operations import TransferCommand
from ....loader.ur.abi import UR
from ...sdk.transfers import Location, Transfers
from ..contexts import URContext
from ..core import adapter, failure
from ..enqueue import Call, Enqueue, enqueues
from ..events import UREvent
from ..queues import create_queue
from ..transfers import (
    BUFFER_CALLS,
    convert_sizes,
    copy_rect,
    create_temporary_buffer,
    fill_memory,
    plan_doubling,
    repeat_pattern,
)
from .addresses import can_fill, find_allocation
from .strategies import Buffers, require_strategy

_TO_HOST: Final = UR["UR_USM_MIGRATION_FLAG_DEVICE_TO_HOST"]

# copies


def _copy(
    enqueue: Enqueue, target: int, source: int, size: int, to: Any, at: Any
) -> UREvent | None:
    """Copy bytes between two addresses. `to` and `at` are their allocations."""
    context = enqueue.queue.context
    known = to or at
    strategy = known.strategy if known is not None else require_strategy(context)
    if strategy is not Buffers:
        return enqueue.call(strategy.copy_routine, enqueue.blocks, target, source, size)
    if known is None:  # such a driver can do no more than that in its queue's order
        between = create_temporary_buffer(context, size)
        write = "clEnqueueWriteBuffer", (between.cl, False, 0, size, source)
        read = "clEnqueueReadBuffer", (between.cl, enqueue.blocks, 0, size, target)
        return enqueue.call_in_sequence([write, read])
    transfer = strategy.copy(Location(target, to), Location(source, at), size)
    # SPEC clEnqueueWriteBuffer: a blocking write returns when the host memory may be used again.
    # A copy between buffers never blocks.
    if transfer.operation != "read":
        enqueue.block_by_event()
    return enqueue.call_in_sequence([strategy.make_call(transfer, enqueue.blocks)])


def _make_sizes(*values: int) -> Any:
    return (ctypes.c_size_t * 3)(*values)


class _Rows(NamedTuple):
    """Rows of memory.

    Attributes:
        pitch: bytes from the beginning of a row to that of the next.
        memory: the cl_mem that the rows are in, 0 in host memory.
    """

    place: Location
    pitch: int
    memory: int

    @classmethod
    def at(cls, place: Location, pitch: int) -> _Rows:
        """Return the rows that begin at a place."""
        return cls(place, pitch, place.allocation.mem if place.allocation is not None else 0)

    def find_row(self, index: int) -> Location:
        """Return where a row begins."""
        return self.place._replace(address=self.place.address + index * self.pitch)

    @property
    def origin(self) -> Any:
        """Return where the rectangle begins in `memory`."""
        return _make_sizes(self.place.offset % self.pitch, self.place.offset // self.pitch, 0)


def _copy_rows(
    enqueue: Enqueue, to: Location, to_pitch: int, at: Location, pitch: int, width: int, height: int
) -> UREvent | None:
    context, target, source = enqueue.queue.context, _Rows.at(to, to_pitch), _Rows.at(at, pitch)
    enqueue.block_by_event()
    strategy = require_strategy(context)
    if strategy is Buffers and not (target.memory or source.memory):
        buffer = create_temporary_buffer(context, width * height)
        rows = _Rows(Location(0, None), width, buffer.cl)
        calls = [_copy_rect(rows, source, width, height), _copy_rect(target, rows, width, height)]
        return enqueue.call_in_sequence(calls)
    if target.pitch == source.pitch == width:
        width, height = width * height, 1
    if strategy is Buffers and height > 1:
        return enqueue.call_in_sequence([_copy_rect(target, source, width, height)])
    copies = (strategy.copy(target.find_row(i), source.find_row(i), width) for i in range(height))
    return enqueue.call_in_any_order([strategy.make_call(copy) for copy in copies])


def _copy_rect(target: _Rows, source: _Rows, width: int, height: int) -> Call:
    """Return the command for rows between buffers, or between a buffer and host memory."""
    region = _make_sizes(width, height, 1)
    if target.memory and source.memory:
        memories, origins = (source.memory, target.memory), (source.origin, target.origin)
        pitches = source.pitch, 0, target.pitch, 0
        return "clEnqueueCopyBufferRect", (*memories, *origins, region, *pitches)
    routine, buffer, host = (
        ("clEnqueueReadBufferRect", source, target)
        if source.memory
        else ("clEnqueueWriteBufferRect", target, source)
    )
    origins, pitches = (buffer.origin, _make_sizes(0, 0, 0)), (buffer.pitch, 0, host.pitch, 0)
    return routine, (buffer.memory, False, *origins, region, *pitches, host.place.address)


# fills


def fill(enqueue: Enqueue, target: Location, pattern: bytes, size: int) -> UREvent | None:
    """Fill bytes, and return the event, if one is wanted.

    Args:
        size: how many bytes, a multiple of the pattern's size.

    Raises:
        URError: INVALID_MEM_OBJECT if the driver cannot fill host memory, and as `Enqueue.call`.
        OpenCLError: as `Enqueue.call`.
    """
    address, allocation = target
    context = enqueue.queue.context
    strategy = allocation.strategy if allocation is not None else require_strategy(context)
    if strategy is Buffers:
        if allocation is None or allocation.memory is None:
            raise failure("INVALID_MEM_OBJECT", "the address is in no USM memory of the context")
        return fill_memory(enqueue, allocation.memory, pattern, target.offset, size)
    if can_fill(context, target, len(pattern)):
        return enqueue.call(strategy.fill_routine, address, pattern, len(pattern), size)
    block = ctypes.create_string_buffer(data := repeat_pattern(pattern, size), len(data))
    parts = [(0, ctypes.addressof(block), len(data))]
    parts += [(at, address, count) for at, count in plan_doubling(len(data), size)]
    return enqueue.call_in_sequence(
        [
            (strategy.copy_routine, (False, address + at, source, count))
            for at, source, count in parts
        ],
        keep=block,
    )


def _run(enqueue: Enqueue, transfer: TransferCommand, command: str) -> UREvent | None:
    """Enqueue a fill (sdk/transfers.py)."""
    operands = transfer.operands
    return fill(enqueue, operands["target"], operands["pattern"], operands["size"])


_ADDRESS_CALLS: Final = {
    "svm_copy": "copy(call, target, source, size, found_target, found_source)",
    "svm_fill": "fill(call, new(Location, (target, found_target)), pattern, size)",
}
transfers: Final = Transfers(
    enqueues,
    find_allocation,
    _run,
    {**BUFFER_CALLS, **_ADDRESS_CALLS},
    copy=_copy,
    copy_rect=copy_rect,
    fill=fill,
    fill_memory=fill_memory,
    sizes=convert_sizes,
)


@adapter.entry
def urUSMContextMemcpyExp(hContext: URContext, pDst: int, pSrc: int, size: int) -> None:
    """Copy on a queue of its own, which has no order with others."""
    queue = create_queue(hContext, hContext.devices[0], 0)
    transfers.copy(Enqueue(queue, "USM_MEMCPY", blocking=True), pDst, pSrc, size)


def _fill_rows(
    enqueue: Enqueue, place: Location, pitch: int, pattern: bytes, width: int, height: int
) -> UREvent | None:
    """Fill each row by a command. The last one waits for the others, which have no order.

    The pattern continues from row to row if a row is not a multiple of it.
    """
    rows = _Rows.at(place, pitch)
    queue, events = enqueue.queue, list[UREvent]()
    for index in range(height):
        is_last, begin = index == height - 1, index * width % len(pattern)
        data = pattern
        if width % len(pattern):
            data = (pattern * (width // len(pattern) + 2))[begin : begin + width]
        waits = enqueue.waits
        if queue.in_order and index:
            waits = ()
        elif is_last and not queue.in_order:
            waits = [*waits, *events]
        needed = enqueue.wanted and (is_last or not index or not queue.in_order)
        row = Enqueue(queue, enqueue.command, waits, needed)
        event = fill(row, rows.find_row(index), data, width)
        if event is not None:
            events.append(event)
    if not enqueue.wanted:
        return None
    if events[-1] is not events[0]:
        events[-1].first = events[0]
    return events[-1]


transfers.declare_rows(_copy_rows, _fill_rows)


# hints


def _prefetch(enqueue: Enqueue, place: Location, size: int, flags: int) -> UREvent | None:
    call = None
    if place.allocation is not None:
        where = OPENCL["CL_MIGRATE_MEM_OBJECT_HOST"] if flags & _TO_HOST else 0
        call = place.allocation.strategy.migrate(place.allocation, place.address, size, where)
    if call is not None:
        try:
            return enqueue.call_in_sequence([call])
        except OpenCLError as refusal:  # Intel's CPU driver takes some prefetches and not others
            adapter.log("info", f"the driver refuses a prefetch, which is left out: {refusal}")
    return enqueue.mark()


transfers.declare_hints(_prefetch)
