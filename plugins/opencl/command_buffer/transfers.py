"""Transfers and fills in a command-buffer, of buffers and of memory by address."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from ....icd._native import ffi as icd_ffi
from ..buffers import URBuffer, check_buffers
from ..core import adapter, failure
from ..events import UREvent
from ..transfers import (
    LARGEST_PATTERN,
    check_pitches,
    check_range,
    check_rect,
    in_parent_buffer,
    is_power_of_two,
    offset_of,
    region_of,
)
from ..usm.addresses import as_copy, as_fill
from ..usm.strategy import Operation
from .appends import Append, Appended
from .command_buffers import URCommandBuffer


def _check_range(buffer: URBuffer, offset: int, size: int) -> None:
    if not size:
        raise failure("INVALID_SIZE", "there is nothing to transfer")
    check_range(buffer, offset, size)


def _rect(
    origin: Any,
    other: Any,
    region: Any,
    pitches: Sequence[int],
    first: URBuffer,
    second: URBuffer | None,
) -> list[int]:
    """`fl_command.n` of a rectangle. Raises URError (INVALID_SIZE) for an empty one, or one that does not lie in its buffers."""
    size = region_of(region)
    check_rect(first, offset_of(origin), size, *pitches[:2])
    if second is None:  # host memory
        check_pitches(size, *pitches[2:])
    else:
        check_rect(second, offset_of(other), size, *pitches[2:])
    return [*offset_of(origin), *offset_of(other), *size, *pitches]


def _check_context(append: Append, *things: URBuffer) -> None:
    check_buffers(append.buffer.context, *things)


#: Operations between a buffer and host memory, and which end of them the buffer is.
_ENDS: Final = {"read": "source", "read_rect": "source", "write": "target", "write_rect": "target"}


def _add_host(
    append: Append, op: str, buffer: URBuffer, numbers: Sequence[int], host: int
) -> Appended:
    return append.add(
        op, f"MEM_BUFFER_{op.upper()}", numbers, (buffer,), host=host, **{_ENDS[op]: buffer.cl}
    )


def _add_linear(
    append: Append, op: str, buffer: URBuffer, offset: int, size: int, host: int
) -> Appended:
    """A "read" or a "write"."""
    _check_context(append, buffer)
    _check_range(buffer, offset, size)
    return _add_host(append, op, buffer, (offset, size), host)


def _add_rect(
    append: Append,
    op: str,
    buffer: URBuffer,
    origins: tuple[Any, Any],
    region: Any,
    pitches: Sequence[int],
    host: int,
) -> Appended:
    """A "read_rect" or a "write_rect": `origins` and `pitches` are those of the buffer, then those of host memory."""
    _check_context(append, buffer)
    return _add_host(append, op, buffer, _rect(*origins, region, pitches, buffer, None), host)


@adapter.entry
def urCommandBufferAppendMemBufferCopyExp(
    hCommandBuffer: URCommandBuffer,
    hSrcMem: URBuffer,
    hDstMem: URBuffer,
    srcOffset: int,
    dstOffset: int,
    size: int,
    pSyncPointWaitList: list[int],
    phEventWaitList: list[UREvent],
    phEvent: bool,
    phCommand: bool,
) -> Appended:
    append = Append(hCommandBuffer, pSyncPointWaitList, phEventWaitList, phEvent, phCommand)
    _check_context(append, hSrcMem, hDstMem)
    _check_range(hSrcMem, srcOffset, size)
    _check_range(hDstMem, dstOffset, size)
    numbers = (srcOffset, dstOffset, size)
    return append.add(
        "copy", "MEM_BUFFER_COPY", numbers, (hSrcMem, hDstMem), source=hSrcMem.cl, target=hDstMem.cl
    )


@adapter.entry
def urCommandBufferAppendMemBufferCopyRectExp(
    hCommandBuffer: URCommandBuffer,
    hSrcMem: URBuffer,
    hDstMem: URBuffer,
    srcOrigin: Any,
    dstOrigin: Any,
    region: Any,
    srcRowPitch: int,
    srcSlicePitch: int,
    dstRowPitch: int,
    dstSlicePitch: int,
    pSyncPointWaitList: list[int],
    phEventWaitList: list[UREvent],
    phEvent: bool,
    phCommand: bool,
) -> Appended:
    append = Append(hCommandBuffer, pSyncPointWaitList, phEventWaitList, phEvent, phCommand)
    _check_context(append, hSrcMem, hDstMem)
    numbers = _rect(
        srcOrigin,
        dstOrigin,
        region,
        (srcRowPitch, srcSlicePitch, dstRowPitch, dstSlicePitch),
        hSrcMem,
        hDstMem,
    )
    (source, numbers[0:3]), (target, numbers[3:6]) = (
        in_parent_buffer(hSrcMem, offset_of(srcOrigin)),
        in_parent_buffer(hDstMem, offset_of(dstOrigin)),
    )
    return append.add(
        "copy_rect",
        "MEM_BUFFER_COPY_RECT",
        numbers,
        (hSrcMem, hDstMem),
        source=source,
        target=target,
    )


@adapter.entry
def urCommandBufferAppendMemBufferReadExp(
    hCommandBuffer: URCommandBuffer,
    hBuffer: URBuffer,
    offset: int,
    size: int,
    pDst: int,
    pSyncPointWaitList: list[int],
    phEventWaitList: list[UREvent],
    phEvent: bool,
    phCommand: bool,
) -> Appended:
    append = Append(hCommandBuffer, pSyncPointWaitList, phEventWaitList, phEvent, phCommand)
    return _add_linear(append, "read", hBuffer, offset, size, pDst)


@adapter.entry
def urCommandBufferAppendMemBufferWriteExp(
    hCommandBuffer: URCommandBuffer,
    hBuffer: URBuffer,
    offset: int,
    size: int,
    pSrc: int,
    pSyncPointWaitList: list[int],
    phEventWaitList: list[UREvent],
    phEvent: bool,
    phCommand: bool,
) -> Appended:
    append = Append(hCommandBuffer, pSyncPointWaitList, phEventWaitList, phEvent, phCommand)
    return _add_linear(append, "write", hBuffer, offset, size, pSrc)


@adapter.entry
def urCommandBufferAppendMemBufferReadRectExp(
    hCommandBuffer: URCommandBuffer,
    hBuffer: URBuffer,
    bufferOffset: Any,
    hostOffset: Any,
    region: Any,
    bufferRowPitch: int,
    bufferSlicePitch: int,
    hostRowPitch: int,
    hostSlicePitch: int,
    pDst: int,
    pSyncPointWaitList: list[int],
    phEventWaitList: list[UREvent],
    phEvent: bool,
    phCommand: bool,
) -> Appended:
    append = Append(hCommandBuffer, pSyncPointWaitList, phEventWaitList, phEvent, phCommand)
    pitches = (bufferRowPitch, bufferSlicePitch, hostRowPitch, hostSlicePitch)
    return _add_rect(
        append, "read_rect", hBuffer, (bufferOffset, hostOffset), region, pitches, pDst
    )


@adapter.entry
def urCommandBufferAppendMemBufferWriteRectExp(
    hCommandBuffer: URCommandBuffer,
    hBuffer: URBuffer,
    bufferOffset: Any,
    hostOffset: Any,
    region: Any,
    bufferRowPitch: int,
    bufferSlicePitch: int,
    hostRowPitch: int,
    hostSlicePitch: int,
    pSrc: int,
    pSyncPointWaitList: list[int],
    phEventWaitList: list[UREvent],
    phEvent: bool,
    phCommand: bool,
) -> Appended:
    append = Append(hCommandBuffer, pSyncPointWaitList, phEventWaitList, phEvent, phCommand)
    pitches = (bufferRowPitch, bufferSlicePitch, hostRowPitch, hostSlicePitch)
    return _add_rect(
        append, "write_rect", hBuffer, (bufferOffset, hostOffset), region, pitches, pSrc
    )


def _pattern(address: int, pattern_size: int, size: int) -> bytes:
    """The pattern of a fill. Raises URError (INVALID_SIZE) for one that does not fit."""
    if not pattern_size or not size or size % pattern_size:
        raise failure(
            "INVALID_SIZE", "a fill's size is a multiple of its pattern's, and neither is 0"
        )
    return bytes(icd_ffi.buffer(icd_ffi.cast("char *", address), pattern_size))


def _is_pattern(size: int, at: int) -> bool:
    """Whether OpenCL fills with a pattern of this size from there on."""
    return size <= LARGEST_PATTERN and is_power_of_two(size) and at % size == 0


@adapter.entry
def urCommandBufferAppendMemBufferFillExp(
    hCommandBuffer: URCommandBuffer,
    hBuffer: URBuffer,
    pPattern: int,
    patternSize: int,
    offset: int,
    size: int,
    pSyncPointWaitList: list[int],
    phEventWaitList: list[UREvent],
    phEvent: bool,
    phCommand: bool,
) -> Appended:
    append = Append(hCommandBuffer, pSyncPointWaitList, phEventWaitList, phEvent, phCommand)
    _check_context(append, hBuffer)
    pattern = _pattern(pPattern, patternSize, size)
    _check_range(hBuffer, offset, size)
    commands = hCommandBuffer.commands
    if _is_pattern(patternSize, offset):
        memory = commands.pattern(pattern)
        return append.add(
            "fill",
            "MEM_BUFFER_FILL",
            (offset, size),
            (hBuffer,),
            target=hBuffer.cl,
            pattern=memory,
            pattern_size=patternSize,
        )
    memory = commands.pattern(pattern * (size // patternSize))
    return append.add(
        "write", "MEM_BUFFER_FILL", (offset, size), (hBuffer,), target=hBuffer.cl, host=memory
    )


# memory by address


def _add(append: Append, command: str, operation: Operation) -> Appended:
    return append.add(operation.op, command, operation.numbers, operation.keep, **operation.fields)


@adapter.entry
def urCommandBufferAppendUSMMemcpyExp(
    hCommandBuffer: URCommandBuffer,
    pDst: int,
    pSrc: int,
    size: int,
    pSyncPointWaitList: list[int],
    phEventWaitList: list[UREvent],
    phEvent: bool,
    phCommand: bool,
) -> Appended:
    append = Append(hCommandBuffer, pSyncPointWaitList, phEventWaitList, phEvent, phCommand)
    if not size:  # as libsycl has it on queues
        return append.add("hint", "USM_MEMCPY")
    return _add(append, "USM_MEMCPY", as_copy(hCommandBuffer.context, pDst, pSrc, size))


@adapter.entry
def urCommandBufferAppendUSMFillExp(
    hCommandBuffer: URCommandBuffer,
    pMemory: int,
    pPattern: int,
    patternSize: int,
    size: int,
    pSyncPointWaitList: list[int],
    phEventWaitList: list[UREvent],
    phEvent: bool,
    phCommand: bool,
) -> Appended:
    append = Append(hCommandBuffer, pSyncPointWaitList, phEventWaitList, phEvent, phCommand)
    if not size and patternSize:
        return append.add("hint", "USM_FILL")
    pattern = _pattern(pPattern, patternSize, size)
    commands = hCommandBuffer.commands
    if _is_pattern(patternSize, pMemory):
        memory = commands.pattern(pattern)
        return _add(
            append, "USM_FILL", as_fill(hCommandBuffer.context, pMemory, memory, patternSize, size)
        )
    memory = commands.pattern(pattern * (size // patternSize))
    source = int(icd_ffi.cast("uintptr_t", memory))
    return _add(append, "USM_FILL", as_copy(hCommandBuffer.context, pMemory, source, size))
