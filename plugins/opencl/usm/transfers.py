"""Transfers between addresses of USM and of host memory: copies and fills, whole or by rows; hints.

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
from ....loader.ur.abi import UR
from ...sdk.patterns import read_pattern, read_row_pattern
from ...sdk.usm import check_copied_rows, check_rows_in
from ..contexts import URContext
from ..core import adapter, failure
from ..enqueue import Call, Enqueue, enqueues
from ..events import UREvent
from ..queues import URQueue, create_queue
from ..transfers import (
    create_temporary_buffer,
    fill_memory,
    plan_doubling,
    repeat_pattern,
)
from .addresses import can_fill, locate
from .strategies import Buffers, require_strategy
from .strategy import Allocation, Location

_TO_HOST: Final = UR["UR_USM_MIGRATION_FLAG_DEVICE_TO_HOST"]

# copies


@enqueues("USM_MEMCPY")
def urEnqueueUSMMemcpy(enqueue: Enqueue, pDst: int, pSrc: int, size: int) -> UREvent | None:
    if not size:
        raise failure("INVALID_SIZE", "there is nothing to copy")
    context = enqueue.queue.context
    target, source = locate(context, pDst, size), locate(context, pSrc, size)
    known = target.allocation or source.allocation
    strategy = known.strategy if known is not None else require_strategy(context)
    if strategy is not Buffers:
        return enqueue.call(strategy.copy_routine, enqueue.blocks, pDst, pSrc, size)
    if known is None:  # such a driver can do no more than that in its queue's order
        between = create_temporary_buffer(context, size)
        write = "clEnqueueWriteBuffer", (between.cl, False, 0, size, pSrc)
        read = "clEnqueueReadBuffer", (between.cl, enqueue.blocks, 0, size, pDst)
        return enqueue.call_in_sequence([write, read])
    transfer = strategy.copy(target, source, size)
    # SPEC clEnqueueWriteBuffer: a blocking write returns when the host memory may be used again.
    # A copy between buffers never blocks.
    if transfer.operation != "read":
        enqueue.block_by_event()
    return enqueue.call_in_sequence([strategy.make_call(transfer, enqueue.blocks)])


@adapter.entry
def urUSMContextMemcpyExp(hContext: URContext, pDst: int, pSrc: int, size: int) -> None:
    """Copy on a queue of its own, which has no order with others."""
    queue = create_queue(hContext, hContext.devices[0], 0)
    urEnqueueUSMMemcpy(Enqueue(queue, "USM_MEMCPY", blocking=True), pDst, pSrc, size)


def _make_sizes(*values: int) -> Any:
    return (ctypes.c_size_t * 3)(*values)


class _Rows(NamedTuple):
    """Rows of memory.

    Attributes:
        place: where the first row begins.
        pitch: bytes from the beginning of a row to that of the next.
        memory: the cl_mem that the rows are in, 0 in host memory.
    """

    place: Location
    pitch: int
    memory: int

    @classmethod
    def locate(cls, context: URContext, address: int, pitch: int, width: int, height: int) -> _Rows:
        """Find rows of `width` bytes.

        Raises:
            URError: INVALID_SIZE unless the rows lie in their allocation: with their pitch in all
                of it, without the last pitch in what follows the address. Else as `locate`.
        """
        place = locate(context, address, 1)
        allocation = place.allocation
        if allocation is None:
            locate(context, address, pitch * (height - 1) + max(width, 1))
        else:
            check_rows_in(allocation, address, pitch, width, height)
        return cls(place, pitch, allocation.mem if allocation is not None else 0)

    def find_row(self, index: int) -> Location:
        """Return where a row begins."""
        return self.place._replace(address=self.place.address + index * self.pitch)

    @property
    def origin(self) -> Any:
        """Return where the rectangle begins in `memory`."""
        return _make_sizes(self.place.offset % self.pitch, self.place.offset // self.pitch, 0)


@enqueues("USM_MEMCPY_2D")
def urEnqueueUSMMemcpy2D(
    enqueue: Enqueue, pDst: int, dstPitch: int, pSrc: int, srcPitch: int, width: int, height: int
) -> UREvent | None:
    check_copied_rows(width, height, srcPitch, dstPitch)
    context = enqueue.queue.context
    target = _Rows.locate(context, pDst, dstPitch, width, height)
    source = _Rows.locate(context, pSrc, srcPitch, width, height)
    enqueue.block_by_event()
    if not width:
        return enqueue.mark()
    strategy = require_strategy(context)
    if strategy is Buffers and not (target.memory or source.memory):
        buffer = create_temporary_buffer(context, width * height)
        rows = _Rows(Location(0, None), width, buffer.cl)
        calls = [_copy_rect(rows, source, width, height), _copy_rect(target, rows, width, height)]
        return enqueue.call_in_sequence(calls)
    if dstPitch == srcPitch == width:
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
    """Fill bytes.

    Args:
        enqueue: the call.
        target: where.
        pattern: a pattern of any size.
        size: how many bytes, a multiple of the pattern's size.

    Returns:
        The event, if one is wanted.

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


@enqueues("USM_FILL")
def urEnqueueUSMFill(
    enqueue: Enqueue, pMem: int, patternSize: int, pPattern: int, size: int
) -> UREvent | None:
    pattern = read_pattern(pPattern, patternSize, size)
    return fill(enqueue, locate(enqueue.queue.context, pMem, size), pattern, size)


@enqueues("USM_FILL_2D")
def urEnqueueUSMFill2D(
    enqueue: Enqueue,
    pMem: int,
    pitch: int,
    patternSize: int,
    pPattern: int,
    width: int,
    height: int,
) -> UREvent | None:
    """Fill rows. The pattern continues from row to row if a row is not a multiple of it."""
    pattern = read_row_pattern(pPattern, patternSize, pitch, width, height)
    rows = _Rows.locate(enqueue.queue.context, pMem, pitch, width, height)
    if pitch == width:
        return fill(enqueue, rows.place, pattern, width * height)
    return _fill_rows(enqueue, rows, pattern, width, height)


def _fill_rows(
    enqueue: Enqueue, rows: _Rows, pattern: bytes, width: int, height: int
) -> UREvent | None:
    """Fill each row by a command. The last one waits for the others, which have no order."""
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


# hints


def _locate_hinted(queue: URQueue, address: int, size: int) -> Allocation | None:
    """Find the memory that a hint is about. Raises URError (INVALID_SIZE), and as `locate`."""
    if not size:
        raise failure("INVALID_SIZE")
    return locate(queue.context, address, size).allocation


@enqueues("USM_PREFETCH")
def urEnqueueUSMPrefetch(enqueue: Enqueue, pMem: int, size: int, flags: int) -> UREvent | None:
    allocation = _locate_hinted(enqueue.queue, pMem, size)
    call = None
    if allocation is not None:
        where = OPENCL["CL_MIGRATE_MEM_OBJECT_HOST"] if flags & _TO_HOST else 0
        call = allocation.strategy.migrate(allocation, pMem, size, where)
    if call is not None:
        try:
            return enqueue.call_in_sequence([call])
        except OpenCLError as refusal:  # Intel's CPU driver takes some prefetches and not others
            adapter.log("info", f"the driver refuses a prefetch, which is left out: {refusal}")
    return enqueue.mark()


@adapter.entry
def urEnqueueUSMAdvise(hQueue: URQueue, pMem: int, size: int, phEvent: bool) -> UREvent | None:
    _locate_hinted(hQueue, pMem, size)
    return Enqueue(hQueue, "USM_ADVISE", (), phEvent).mark()
