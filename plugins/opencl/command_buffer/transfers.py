"""Transfers and fills in a command-buffer, of buffers and of memory by address."""

from __future__ import annotations

from functools import partial
from typing import Any, Final

from ...sdk.patterns import read_pattern
from ...sdk.rectangles import check_pitches, check_range, check_rect, read_offset, read_region
from ..buffers import URBuffer, check_buffers
from ..core import failure
from ..transfers import (
    find_in_parent,
    is_opencl_pattern,
)
from ..usm.addresses import make_copy_operation, make_fill_operation
from ..usm.strategy import Operation
from .appends import Append, Appended, appends, declare_append


def _check_range(room: int, offset: int, size: int) -> None:
    if not size:
        raise failure("INVALID_SIZE", "there is nothing to transfer")
    check_range(room, offset, size)


#: The field of a command between a buffer and host memory that is the buffer.
_ENDS: Final = {"read": "source", "read_rect": "source", "write": "target", "write_rect": "target"}


def _append_linear(
    op: str, append: Append, buffer: URBuffer, host: int, offset: int, size: int
) -> Appended:
    """Append a "read" or a "write"."""
    check_buffers(append.buffer.context, buffer)
    _check_range(buffer.size, offset, size)
    fields = {_ENDS[op]: buffer.cl, "host": host}
    return append.add(op, f"MEM_BUFFER_{op.upper()}", (offset, size), (buffer,), **fields)


def _append_rect(
    op: str,
    append: Append,
    buffer: URBuffer,
    host: int,
    buffer_origin: Any,
    host_origin: Any,
    region: Any,
    *pitches: int,
) -> Appended:
    """Append a "read_rect" or a "write_rect". `pitches`: two of the buffer, two of the host."""
    check_buffers(append.buffer.context, buffer)
    size, origin = read_region(region), read_offset(buffer_origin)
    check_rect(buffer.size, origin, size, *pitches[:2])
    check_pitches(size, *pitches[2:])
    numbers = *origin, *read_offset(host_origin), *size, *pitches
    fields = {_ENDS[op]: buffer.cl, "host": host}
    return append.add(op, f"MEM_BUFFER_{op.upper()}", numbers, (buffer,), **fields)


_RECT: Final = (
    *("bufferOffset", "hostOffset", "region"),
    *("bufferRowPitch", "bufferSlicePitch", "hostRowPitch", "hostSlicePitch"),
)
for _name, _function, _parameters in (
    (
        "urCommandBufferAppendMemBufferReadExp",
        partial(_append_linear, "read"),
        ("pDst", "offset", "size"),
    ),
    (
        "urCommandBufferAppendMemBufferWriteExp",
        partial(_append_linear, "write"),
        ("pSrc", "offset", "size"),
    ),
    (
        "urCommandBufferAppendMemBufferReadRectExp",
        partial(_append_rect, "read_rect"),
        ("pDst", *_RECT),
    ),
    (
        "urCommandBufferAppendMemBufferWriteRectExp",
        partial(_append_rect, "write_rect"),
        ("pSrc", *_RECT),
    ),
):
    declare_append(_name, _function, "hBuffer", *_parameters)


@appends
def urCommandBufferAppendMemBufferCopyExp(
    append: Append,
    hSrcMem: URBuffer,
    hDstMem: URBuffer,
    srcOffset: int,
    dstOffset: int,
    size: int,
) -> Appended:
    check_buffers(append.buffer.context, hSrcMem, hDstMem)
    _check_range(hSrcMem.size, srcOffset, size)
    _check_range(hDstMem.size, dstOffset, size)
    numbers, fields = (srcOffset, dstOffset, size), {"source": hSrcMem.cl, "target": hDstMem.cl}
    return append.add("copy", "MEM_BUFFER_COPY", numbers, (hSrcMem, hDstMem), **fields)


@appends
def urCommandBufferAppendMemBufferCopyRectExp(
    append: Append,
    hSrcMem: URBuffer,
    hDstMem: URBuffer,
    srcOrigin: Any,
    dstOrigin: Any,
    region: Any,
    srcRowPitch: int,
    srcSlicePitch: int,
    dstRowPitch: int,
    dstSlicePitch: int,
) -> Appended:
    check_buffers(append.buffer.context, hSrcMem, hDstMem)
    pitches = srcRowPitch, srcSlicePitch, dstRowPitch, dstSlicePitch
    start, to, size = read_offset(srcOrigin), read_offset(dstOrigin), read_region(region)
    check_rect(hSrcMem.size, start, size, *pitches[:2])
    check_rect(hDstMem.size, to, size, *pitches[2:])
    source, start = find_in_parent(hSrcMem, start)
    target, to = find_in_parent(hDstMem, to)
    numbers, fields = (*start, *to, *size, *pitches), {"source": source, "target": target}
    return append.add("copy_rect", "MEM_BUFFER_COPY_RECT", numbers, (hSrcMem, hDstMem), **fields)


@appends
def urCommandBufferAppendMemBufferFillExp(
    append: Append, hBuffer: URBuffer, pPattern: int, patternSize: int, offset: int, size: int
) -> Appended:
    check_buffers(append.buffer.context, hBuffer)
    pattern = read_pattern(pPattern, patternSize, size)
    _check_range(hBuffer.size, offset, size)
    op, fields = "fill", {"target": hBuffer.cl}
    keep_pattern = append.buffer.commands.copy_pattern
    if is_opencl_pattern(patternSize, offset):
        fields |= {"pattern": keep_pattern(pattern), "pattern_size": patternSize}
    else:
        op, fields["host"] = "write", keep_pattern(pattern * (size // patternSize))
    return append.add(op, "MEM_BUFFER_FILL", (offset, size), (hBuffer,), **fields)


# memory by address


def _append_operation(append: Append, command: str, operation: Operation) -> Appended:
    return append.add(operation.op, command, operation.numbers, operation.keep, **operation.fields)


@appends
def urCommandBufferAppendUSMMemcpyExp(append: Append, pDst: int, pSrc: int, size: int) -> Appended:
    if not size:  # as libsycl does on queues
        return append.add("hint", "USM_MEMCPY")
    operation = make_copy_operation(append.buffer.context, pDst, pSrc, size)
    return _append_operation(append, "USM_MEMCPY", operation)


@appends
def urCommandBufferAppendUSMFillExp(
    append: Append, pMemory: int, pPattern: int, patternSize: int, size: int
) -> Appended:
    if not size and patternSize:
        return append.add("hint", "USM_FILL")
    pattern = read_pattern(pPattern, patternSize, size)
    keep = append.buffer.commands.copy_pattern
    operation = make_fill_operation(append.buffer.context, pMemory, pattern, size, keep)
    return _append_operation(append, "USM_FILL", operation)
