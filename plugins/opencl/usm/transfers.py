"""Transfers between addresses: of USM, of host memory, or from one to the other; whole or row by row; fills with patterns
of any size.

What is a single command of the driver's is one (`Strategy.copy`, `Strategy.fill`). A pattern that OpenCL does not take is
copied in, and then what is there already is doubled; rows that do not follow each other are a command each where the
driver has no rectangles for addresses. Prefetches move memory where the driver can, advice is taken and forgotten: both
are hints.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import Any, Final

from ....icd.errors import OpenCLError
from ....loader.ur.abi import UR
from ..contexts import URContext
from ..core import adapter, failure
from ..events import UREvent, call_on_status
from ..extensions import (
    Call,
    enqueue,
    enqueue_in_sequence,
    enqueue_marker,
    enqueue_unordered,
    wait_if_blocking,
)
from ..queues import URQueue, create_queue
from ..transfers import (
    LARGEST_PATTERN,
    doubling_steps,
    fill_buffer,
    is_power_of_two,
    repeated,
    temporary_buffer,
)
from .allocations import locate, required_strategy
from .strategies import Allocation, Buffers, Operation, Strategy

Place = tuple[int, "Allocation | None"]

_TO_HOST: Final = UR["UR_USM_MIGRATION_FLAG_DEVICE_TO_HOST"]


def call_of(strategy: type[Strategy], operation: Operation, blocking: bool) -> Call:
    """The driver's command for an operation. Only those that move host memory can block."""
    numbers, fields = operation.numbers, operation.fields
    if operation.op == "svm_copy":
        return strategy.copy_routine, (blocking, fields["target"], fields["source"], numbers[0])
    if operation.op == "svm_fill":
        return strategy.fill_routine, (
            fields["target"],
            fields["pattern"],
            fields["pattern_size"],
            numbers[1],
        )
    if operation.op == "copy":
        return "clEnqueueCopyBuffer", (fields["source"], fields["target"], *numbers)
    if operation.op == "fill":
        return "clEnqueueFillBuffer", (
            fields["target"],
            fields["pattern"],
            fields["pattern_size"],
            *numbers,
        )
    if operation.op == "read":
        return "clEnqueueReadBuffer", (fields["source"], blocking, *numbers, fields["host"])
    assert operation.op == "write"
    return "clEnqueueWriteBuffer", (fields["target"], blocking, *numbers, fields["host"])


# copies


def copy(
    queue: URQueue,
    blocking: bool,
    target: int,
    source: int,
    size: int,
    waits: Sequence[UREvent],
    wanted: bool,
) -> UREvent | None:
    """Copy bytes; see urEnqueueUSMMemcpy."""
    if not size:
        raise failure("INVALID_SIZE", "there is nothing to copy")
    to, at = locate(queue.context, target, size), locate(queue.context, source, size)
    known = to or at
    strategy = known.strategy if known is not None else required_strategy(queue.context)
    blocks, by_us = queue.split_blocking(blocking)
    if strategy is not Buffers:
        arguments = blocks, target, source, size
        return wait_if_blocking(
            enqueue(queue, strategy.copy_routine, "USM_MEMCPY", arguments, waits, wanted or by_us),
            by_us,
        )
    if known is None:
        return _copy_between_host(queue, blocking, target, source, size, waits, wanted)
    operation = strategy.copy((target, to), (source, at), size)
    # SPEC clEnqueueWriteBuffer: a blocking one only waits until the host memory may be used again; a copy between buffers never waits
    by_us = by_us or (blocking and operation.op != "read")
    event = enqueue(
        queue,
        *_named(call_of(strategy, operation, blocking and not by_us), "USM_MEMCPY"),
        waits,
        wanted or by_us,
    )
    return wait_if_blocking(event, by_us)


def _named(call: Call, command: str) -> tuple[str, str, tuple[Any, ...]]:
    return call[0], command, call[1]


def _copy_between_host(
    queue: URQueue,
    blocking: bool,
    target: int,
    source: int,
    size: int,
    waits: Sequence[UREvent],
    wanted: bool,
) -> UREvent | None:
    """From host memory to host memory through a buffer, which is all that such a driver can do in its queue's order."""
    between, (blocks, by_us) = temporary_buffer(queue.context, size), queue.split_blocking(blocking)
    calls: list[Call] = [
        ("clEnqueueWriteBuffer", (between.cl, False, 0, size, source)),
        ("clEnqueueReadBuffer", (between.cl, blocks, 0, size, target)),
    ]
    return wait_if_blocking(
        enqueue_in_sequence(queue, calls, "USM_MEMCPY", waits, wanted or by_us), by_us
    )


def _copy_rows_between_host(
    queue: URQueue,
    target: int,
    target_pitch: int,
    source: int,
    source_pitch: int,
    width: int,
    height: int,
    waits: Sequence[UREvent],
    wanted: bool,
) -> UREvent | None:
    """The same, row by row."""
    between = temporary_buffer(queue.context, width * height)
    zero, region = _sizes(0, 0, 0), _sizes(width, height, 1)
    calls: list[Call] = [
        (
            "clEnqueueWriteBufferRect",
            (between.cl, False, zero, zero, region, width, 0, source_pitch, 0, source),
        ),
        (
            "clEnqueueReadBufferRect",
            (between.cl, False, zero, zero, region, width, 0, target_pitch, 0, target),
        ),
    ]
    return enqueue_in_sequence(queue, calls, "USM_MEMCPY_2D", waits, wanted)


def _sizes(*values: int) -> Any:
    return (ctypes.c_size_t * 3)(*values)


@adapter.entry
def urEnqueueUSMMemcpy(
    hQueue: URQueue,
    blocking: bool,
    pDst: int,
    pSrc: int,
    size: int,
    phEventWaitList: list[UREvent],
    phEvent: bool,
) -> UREvent | None:
    event = copy(hQueue, bool(blocking), pDst, pSrc, size, phEventWaitList, phEvent)
    return event if phEvent else None


@adapter.entry
def urUSMContextMemcpyExp(hContext: URContext, pDst: int, pSrc: int, size: int) -> None:
    """On a queue of its own, which comes after nothing and before nothing."""
    copy(create_queue(hContext, hContext.devices[0], 0), True, pDst, pSrc, size, (), False)


def _check_rows(place: Place, pitch: int, width: int, height: int) -> None:
    """Raise URError (INVALID_SIZE) unless the rows lie in the allocation: with their pitch in all of it, without it in the
    rest of it.
    """
    address, allocation = place
    if allocation is not None and (
        pitch * height > allocation.size or address + pitch * (height - 1) + width > allocation.end
    ):
        raise failure(
            "INVALID_SIZE", f"{height} rows of {pitch} bytes in an allocation of {allocation.size}"
        )


def _rows_of(context: URContext, address: int, pitch: int, width: int, height: int) -> Place:
    """Where rows are. Raises URError."""
    place = address, locate(context, address, 1)
    _check_rows(place, pitch, width, height)
    if place[1] is None:
        locate(context, address, pitch * (height - 1) + max(width, 1))
    return place


@adapter.entry
def urEnqueueUSMMemcpy2D(
    hQueue: URQueue,
    blocking: bool,
    pDst: int,
    dstPitch: int,
    pSrc: int,
    srcPitch: int,
    width: int,
    height: int,
    phEventWaitList: list[UREvent],
    phEvent: bool,
) -> UREvent | None:
    if not srcPitch or not dstPitch or srcPitch < width or dstPitch < width or not height:
        raise failure(
            "INVALID_SIZE",
            f"{height} rows of {width} bytes, with pitches of {srcPitch} and {dstPitch}",
        )
    target = _rows_of(hQueue.context, pDst, dstPitch, width, height)
    source = _rows_of(hQueue.context, pSrc, srcPitch, width, height)
    wanted = phEvent or bool(blocking)
    if not width:
        event = enqueue_marker(hQueue, "USM_MEMCPY_2D", phEventWaitList, wanted)
    elif target[1] is None and source[1] is None and required_strategy(hQueue.context) is Buffers:
        place = pDst, dstPitch, pSrc, srcPitch, width, height
        event = _copy_rows_between_host(hQueue, *place, phEventWaitList, wanted)
    else:
        calls = _copy_rows(hQueue, target, dstPitch, source, srcPitch, width, height)
        event = enqueue_unordered(hQueue, calls, "USM_MEMCPY_2D", phEventWaitList, wanted)
    event = wait_if_blocking(event, bool(blocking))
    return event if phEvent else None


def _copy_rows(
    queue: URQueue,
    target: Place,
    target_pitch: int,
    source: Place,
    source_pitch: int,
    width: int,
    height: int,
) -> list[Call]:
    """The commands that copy rows, in any order."""
    strategy = required_strategy(queue.context)
    if target_pitch == source_pitch == width:
        width, height = width * height, 1
    if height > 1 and strategy is Buffers:
        return [_rect(target, target_pitch, source, source_pitch, width, height)]
    calls = []
    for row in range(height):
        to, at = (
            (target[0] + row * target_pitch, target[1]),
            (source[0] + row * source_pitch, source[1]),
        )
        calls.append(call_of(strategy, strategy.copy(to, at, width), False))
    return calls


def _rect(
    target: Place, target_pitch: int, source: Place, source_pitch: int, width: int, height: int
) -> Call:
    """Rows between buffers, or between one and host memory, as a rectangle."""

    def origin(place: Place, pitch: int) -> Any:
        offset = place[0] - place[1].base if place[1] is not None else 0
        return _sizes(offset % pitch, offset // pitch, 0)

    to, at, region = target[1], source[1], _sizes(width, height, 1)
    if to is not None and at is not None:
        origins = origin(source, source_pitch), origin(target, target_pitch)
        return "clEnqueueCopyBufferRect", (
            at.mem,
            to.mem,
            *origins,
            region,
            source_pitch,
            0,
            target_pitch,
            0,
        )
    if at is not None:
        arguments = (
            at.mem,
            False,
            origin(source, source_pitch),
            _sizes(0, 0, 0),
            region,
            source_pitch,
            0,
            target_pitch,
            0,
            target[0],
        )
        return "clEnqueueReadBufferRect", arguments
    assert to is not None
    arguments = (
        to.mem,
        False,
        origin(target, target_pitch),
        _sizes(0, 0, 0),
        region,
        target_pitch,
        0,
        source_pitch,
        0,
        source[0],
    )
    return "clEnqueueWriteBufferRect", arguments


# fills


def fill(
    queue: URQueue,
    command: str,
    target: Place,
    pattern: bytes,
    size: int,
    waits: Sequence[UREvent],
    wanted: bool,
) -> UREvent | None:
    """Fill bytes with a pattern, of which `size` is a multiple."""
    address, allocation = target
    strategy = allocation.strategy if allocation is not None else required_strategy(queue.context)
    if strategy is Buffers:
        if allocation is None or allocation.memory is None:
            raise failure("INVALID_MEM_OBJECT", "the address is in no USM memory of the context")
        return fill_buffer(
            queue,
            allocation.memory,
            command,
            pattern,
            address - allocation.base,
            size,
            waits,
            wanted,
        )
    count = len(pattern)
    if count <= LARGEST_PATTERN and is_power_of_two(count) and not address % count:
        return enqueue(
            queue,
            *_named(call_of(strategy, strategy.fill(target, pattern, count, size), False), command),
            waits,
            wanted,
        )
    block = ctypes.create_string_buffer(data := repeated(pattern, size), len(data))
    first = enqueue(
        queue,
        strategy.copy_routine,
        command,
        (False, address, ctypes.addressof(block), len(data)),
        waits,
        True,
    )
    assert first is not None
    call_on_status(
        first.cl, queue.table, 0, lambda status, block=block: None
    )  # the copy reads it when it runs
    calls: list[Call] = [
        (strategy.copy_routine, (False, address + at, address, part))
        for at, part in doubling_steps(len(data), size)
    ]
    if not calls:
        return first if wanted else None
    event = enqueue_in_sequence(queue, calls, command, () if queue.in_order else (first,), wanted)
    if event is not None:
        event.first = first
    return event


@adapter.entry
def urEnqueueUSMFill(
    hQueue: URQueue,
    pMem: int,
    patternSize: int,
    pPattern: int,
    size: int,
    phEventWaitList: list[UREvent],
    phEvent: bool,
) -> UREvent | None:
    if not patternSize or not size or size % patternSize:
        raise failure("INVALID_SIZE", f"{size} bytes with a pattern of {patternSize}")
    place = pMem, locate(hQueue.context, pMem, size)
    return fill(
        hQueue,
        "USM_FILL",
        place,
        ctypes.string_at(pPattern, patternSize),
        size,
        phEventWaitList,
        phEvent,
    )


@adapter.entry
def urEnqueueUSMFill2D(
    hQueue: URQueue,
    pMem: int,
    pitch: int,
    patternSize: int,
    pPattern: int,
    width: int,
    height: int,
    phEventWaitList: list[UREvent],
    phEvent: bool,
) -> UREvent | None:
    """The pattern goes on from row to row where a row is no multiple of it."""
    if not pitch or pitch < width or not width or not height:
        raise failure("INVALID_SIZE", f"{height} rows of {width} bytes with a pitch of {pitch}")
    if not is_power_of_two(patternSize) or width * height % patternSize:
        raise failure(
            "INVALID_SIZE",
            f"a pattern of {patternSize} bytes: a power of two, of which the bytes to fill are a multiple",
        )
    place = _rows_of(hQueue.context, pMem, pitch, width, height)
    pattern = ctypes.string_at(pPattern, patternSize)
    if pitch == width:
        return fill(hQueue, "USM_FILL_2D", place, pattern, width * height, phEventWaitList, phEvent)
    return _fill_rows(hQueue, place, pitch, pattern, width, height, phEventWaitList, phEvent)


def _fill_rows(
    queue: URQueue,
    place: Place,
    pitch: int,
    pattern: bytes,
    width: int,
    height: int,
    waits: Sequence[UREvent],
    wanted: bool,
) -> UREvent | None:
    """A fill for each row, in any order but for the last, which waits for the others."""
    events: list[UREvent] = []
    for row in range(height):
        last, begin = row == height - 1, row * width % len(pattern)
        data = (
            pattern
            if not width % len(pattern)
            else ((pattern + pattern)[begin:] + pattern * (width // len(pattern)))[:width]
        )
        before = (
            ()
            if queue.in_order and row
            else waits
            if queue.in_order or not last
            else [*waits, *events]
        )
        needed = wanted and (last or not row or not queue.in_order)
        event = fill(
            queue, "USM_FILL_2D", (place[0] + row * pitch, place[1]), data, width, before, needed
        )
        if event is not None:
            events.append(event)
    if wanted and events[-1] is not events[0]:
        events[-1].first = events[0]
    return events[-1] if wanted else None


# hints


@adapter.entry
def urEnqueueUSMPrefetch(
    hQueue: URQueue, pMem: int, size: int, flags: int, phEventWaitList: list[UREvent], phEvent: bool
) -> UREvent | None:
    allocation = _hinted(hQueue, pMem, size)
    call = (
        allocation.strategy.migrate(hQueue, allocation, pMem, size, bool(flags & _TO_HOST))
        if allocation is not None
        else None
    )
    if call is not None:
        try:
            return enqueue(hQueue, *_named(call, "USM_PREFETCH"), phEventWaitList, phEvent)
        except OpenCLError as refusal:  # Intel's CPU driver takes some prefetches and not others
            adapter.log("info", f"a prefetch is left out: {refusal}")
    return enqueue_marker(hQueue, "USM_PREFETCH", phEventWaitList, phEvent)


@adapter.entry
def urEnqueueUSMAdvise(hQueue: URQueue, pMem: int, size: int, phEvent: bool) -> UREvent | None:
    _hinted(hQueue, pMem, size)
    return enqueue_marker(hQueue, "USM_ADVISE", (), phEvent)


def _hinted(queue: URQueue, address: int, size: int) -> Allocation | None:
    if not size:
        raise failure("INVALID_SIZE")
    return locate(queue.context, address, size)
