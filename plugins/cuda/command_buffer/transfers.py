"""Transfers and fills in a command-buffer, of buffers and of memory by address."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from functools import partial
from typing import Any, Final

from ...sdk.gpu.api import CopyPlace
from ...sdk.patterns import read_pattern
from ...sdk.rectangles import check_range, read_region
from ..allocations import locate
from ..buffers import CuBuffer, check_buffers
from ..commands import make_sets
from ..core import API, failure
from ..transfers import check_copy, make_buffer_place, make_host_place
from ..usm_transfers import is_on_device
from .appends import Appended, CuAppend, appends, declare_append


def _copy(append: CuAppend, command: str, copy: Any, keep: Any) -> Appended:
    """Append a copy (`API.make_copy`)."""
    buffer = append.buffer

    def build(after: Sequence[int]) -> int:
        context = API.list_node_context(buffer.device)
        return buffer.add_node("MemcpyNode", after, ctypes.byref(copy), *context)

    return append.add(command, build, keep)


def _fill(
    append: CuAppend, command: str, address: int, pattern: bytes, size: int, keep: Any
) -> Appended:
    """Append a fill. Its sets have no order."""
    sets, buffer = make_sets(address, pattern, size), append.buffer
    if sets is None:
        block = ctypes.create_string_buffer((pattern * (size // len(pattern) + 1))[:size], size)
        source = CopyPlace(ctypes.addressof(block), False)
        copy = API.make_copy(CopyPlace(address, True), source, (size, 1, 1))
        return _copy(append, command, copy, (keep, block))

    def build(after: Sequence[int]) -> int:
        context = API.list_node_context(buffer.device)
        given = [(ctypes.byref(API.make_set(one)), *context) for one in sets]
        nodes = [buffer.add_node("MemsetNode", after, *one) for one in given]
        return nodes[0] if len(nodes) == 1 else buffer.add_node("EmptyNode", nodes)

    return append.add(command, build, keep)


def _check_range(buffer: CuBuffer, offset: int, size: int) -> None:
    if not size:
        raise failure("INVALID_SIZE", "there is nothing to transfer")
    check_range(buffer.size, offset, size)


def _make_place(buffer: CuBuffer, offset: int = 0) -> CopyPlace:
    return CopyPlace(buffer.address + offset, not buffer.is_host)


def _append_linear(
    reads: bool, append: CuAppend, buffer: CuBuffer, host: int, offset: int, size: int
) -> Appended:
    """Append a read or a write."""
    check_buffers(append.buffer.context, buffer)
    _check_range(buffer, offset, size)
    here, there, region = _make_place(buffer, offset), CopyPlace(host, False), (size, 1, 1)
    copy = API.make_copy(there, here, region) if reads else API.make_copy(here, there, region)
    return _copy(append, f"MEM_BUFFER_{'READ' if reads else 'WRITE'}", copy, buffer)


def _append_rect(
    reads: bool,
    append: CuAppend,
    buffer: CuBuffer,
    host: int,
    buffer_origin: Any,
    host_origin: Any,
    region: Any,
    *pitches: int,
) -> Appended:
    """Append a read or a write of a rectangle. `pitches`: two of the buffer, two of the host."""
    check_buffers(append.buffer.context, buffer)
    size = read_region(region)
    here = make_buffer_place(buffer, buffer_origin, size, *pitches[:2])
    there = make_host_place(host, host_origin, size, *pitches[2:])
    copy = API.make_copy(there, here, size) if reads else API.make_copy(here, there, size)
    return _copy(append, f"MEM_BUFFER_{'READ' if reads else 'WRITE'}_RECT", copy, buffer)


_RECT: Final = (
    *("bufferOffset", "hostOffset", "region"),
    *("bufferRowPitch", "bufferSlicePitch", "hostRowPitch", "hostSlicePitch"),
)
for _word, _reads, _host in (("Read", True, "pDst"), ("Write", False, "pSrc")):
    declare_append(
        f"urCommandBufferAppendMemBuffer{_word}Exp",
        partial(_append_linear, _reads),
        *("hBuffer", _host, "offset", "size"),
    )
    declare_append(
        f"urCommandBufferAppendMemBuffer{_word}RectExp",
        partial(_append_rect, _reads),
        *("hBuffer", _host, *_RECT),
    )


@appends
def urCommandBufferAppendMemBufferCopyExp(
    append: CuAppend,
    hSrcMem: CuBuffer,
    hDstMem: CuBuffer,
    srcOffset: int,
    dstOffset: int,
    size: int,
) -> Appended:
    check_copy(append.buffer.context, hSrcMem, hDstMem, srcOffset, dstOffset, size)
    if not size:
        raise failure("INVALID_SIZE", "there is nothing to transfer")
    copy = API.make_copy(
        _make_place(hDstMem, dstOffset), _make_place(hSrcMem, srcOffset), (size, 1, 1)
    )
    return _copy(append, "MEM_BUFFER_COPY", copy, (hSrcMem, hDstMem))


@appends
def urCommandBufferAppendMemBufferCopyRectExp(
    append: CuAppend,
    hSrcMem: CuBuffer,
    hDstMem: CuBuffer,
    srcOrigin: Any,
    dstOrigin: Any,
    region: Any,
    srcRowPitch: int,
    srcSlicePitch: int,
    dstRowPitch: int,
    dstSlicePitch: int,
) -> Appended:
    check_buffers(append.buffer.context, hSrcMem, hDstMem)
    size = read_region(region)
    source = make_buffer_place(hSrcMem, srcOrigin, size, srcRowPitch, srcSlicePitch)
    target = make_buffer_place(hDstMem, dstOrigin, size, dstRowPitch, dstSlicePitch)
    copy = API.make_copy(target, source, size)
    return _copy(append, "MEM_BUFFER_COPY_RECT", copy, (hSrcMem, hDstMem))


@appends
def urCommandBufferAppendMemBufferFillExp(
    append: CuAppend, hBuffer: CuBuffer, pPattern: int, patternSize: int, offset: int, size: int
) -> Appended:
    check_buffers(append.buffer.context, hBuffer)
    pattern = read_pattern(pPattern, patternSize, size)
    _check_range(hBuffer, offset, size)
    address = hBuffer.address + offset
    return _fill(append, "MEM_BUFFER_FILL", address, pattern, size, hBuffer)


# memory by address


@appends
def urCommandBufferAppendUSMMemcpyExp(
    append: CuAppend, pDst: int, pSrc: int, size: int
) -> Appended:
    if not size:  # as libsycl does on queues
        return append.append_empty("USM_MEMCPY")
    context = append.buffer.context
    target, source = (
        CopyPlace(address, is_on_device(locate(context, address, size))) for address in (pDst, pSrc)
    )
    return _copy(append, "USM_MEMCPY", API.make_copy(target, source, (size, 1, 1)), None)


@appends
def urCommandBufferAppendUSMFillExp(
    append: CuAppend, pMemory: int, pPattern: int, patternSize: int, size: int
) -> Appended:
    if not size and patternSize:
        return append.append_empty("USM_FILL")
    pattern = read_pattern(pPattern, patternSize, size)
    if locate(append.buffer.context, pMemory, size) is None:
        raise failure("INVALID_MEM_OBJECT", f"{API.name} fills no memory but its own")
    return _fill(append, "USM_FILL", pMemory, pattern, size, None)
