"""Transfers and fills in a command-buffer, of buffers and of memory by address."""

from __future__ import annotations

from functools import partial
from typing import Any, Final

from ....loader.base.operations import TransferCommand
from ...sdk.patterns import read_pattern
from ...sdk.rectangles import check_pitches, check_range, check_rect, read_offset, read_region
from ..buffers import URBuffer, check_buffers
from ..core import failure
from ..transfers import (
    find_in_parent,
    is_opencl_pattern,
)
from ..usm.addresses import make_copy_operation, make_fill_operation
from .appends import Append, Appended, appends, declare_append


def _check_range(room: int, offset: int, size: int) -> None:
    if not size:
        raise failure("INVALID_SIZE", "there is nothing to transfer")
    check_range(room, offset, size)


#: The side of a transfer between a buffer and host memory that is the buffer, and the other one.
_SIDES: Final = {
    "read": ("source", "target"),
    "read_rect": ("source", "target"),
    "write": ("target", "source"),
    "write_rect": ("target", "source"),
}


def _append_linear(
    op: str, append: Append, buffer: URBuffer, host: int, offset: int, size: int
) -> Appended:
    """Append a "read" or a "write"."""
    check_buffers(append.buffer.context, buffer)
    _check_range(buffer.size, offset, size)
    operands = dict(zip(_SIDES[op], (buffer.cl, host), strict=True))
    command = f"MEM_BUFFER_{op.upper()}"
    return append.add(op, command, (buffer,), offset=offset, size=size, **operands)


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
    operands: dict[str, Any] = {"region": size}
    sides = (buffer.cl, origin, pitches[:2]), (host, read_offset(host_origin), pitches[2:])
    for side, (memory, start, (row, slice_)) in zip(_SIDES[op], sides, strict=True):
        operands |= {side: memory, f"{side}_origin": start}
        operands |= {f"{side}_row_pitch": row, f"{side}_slice_pitch": slice_}
    return append.add(op, f"MEM_BUFFER_{op.upper()}", (buffer,), **operands)


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
    places = {"source_offset": srcOffset, "target_offset": dstOffset, "size": size}
    operands = {"source": hSrcMem.cl, "target": hDstMem.cl, **places}
    return append.add("copy", "MEM_BUFFER_COPY", (hSrcMem, hDstMem), **operands)


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
    return append.add(
        "copy_rect",
        "MEM_BUFFER_COPY_RECT",
        (hSrcMem, hDstMem),
        source=source,
        target=target,
        source_origin=start,
        target_origin=to,
        region=size,
        source_row_pitch=srcRowPitch,
        source_slice_pitch=srcSlicePitch,
        target_row_pitch=dstRowPitch,
        target_slice_pitch=dstSlicePitch,
    )


@appends
def urCommandBufferAppendMemBufferFillExp(
    append: Append, hBuffer: URBuffer, pPattern: int, patternSize: int, offset: int, size: int
) -> Appended:
    check_buffers(append.buffer.context, hBuffer)
    pattern = read_pattern(pPattern, patternSize, size)
    _check_range(hBuffer.size, offset, size)
    op, operands = "fill", dict[str, Any](target=hBuffer.cl, offset=offset, size=size)
    keep_pattern = append.buffer.commands.copy_pattern
    if is_opencl_pattern(patternSize, offset):
        operands |= {"pattern": keep_pattern(pattern), "pattern_size": patternSize}
    else:
        op, operands["source"] = "write", keep_pattern(pattern * (size // patternSize))
    return append.add(op, "MEM_BUFFER_FILL", (hBuffer,), **operands)


# memory by address


def _append_transfer(append: Append, command: str, transfer: TransferCommand) -> Appended:
    return append.add(transfer.operation, command, transfer.keep, **transfer.operands)


@appends
def urCommandBufferAppendUSMMemcpyExp(append: Append, pDst: int, pSrc: int, size: int) -> Appended:
    if not size:  # as libsycl does on queues
        return append.add("hint", "USM_MEMCPY")
    transfer = make_copy_operation(append.buffer.context, pDst, pSrc, size)
    return _append_transfer(append, "USM_MEMCPY", transfer)


@appends
def urCommandBufferAppendUSMFillExp(
    append: Append, pMemory: int, pPattern: int, patternSize: int, size: int
) -> Appended:
    if not size and patternSize:
        return append.add("hint", "USM_FILL")
    pattern = read_pattern(pPattern, patternSize, size)
    keep = append.buffer.commands.copy_pattern
    transfer = make_fill_operation(append.buffer.context, pMemory, pattern, size, keep)
    return _append_transfer(append, "USM_FILL", transfer)
