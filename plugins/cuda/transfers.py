"""Buffers: read, write, copy, fill, map, and the forms of them for rectangles."""

from __future__ import annotations

import ctypes
from functools import partial
from typing import Any, Final

from ...loader.ur.abi import UR
from ..sdk.gpu.api import CopyPlace, GpuSet
from ..sdk.patterns import read_buffer_pattern
from ..sdk.rectangles import check_pitches, check_range, check_rect, read_offset, read_region
from .buffers import CuBuffer, check_buffers
from .commands import make_sets
from .core import API, failure
from .enqueue import CuEnqueue, declare_enqueue, enqueues
from .events import CuEvent


def copy_bytes(
    enqueue: CuEnqueue, target: int, source: int, size: int, keep: Any = None
) -> CuEvent | None:
    """Enqueue a copy between any two addresses."""
    arguments = API.list_copy_arguments(target, source, size)
    return enqueue.run(lambda stream: enqueue.call("MemcpyAsync", *arguments, stream), keep)


def fill_bytes(
    enqueue: CuEnqueue, address: int, pattern: bytes, size: int, keep: Any = None
) -> CuEvent | None:
    """Enqueue a fill.

    Args:
        enqueue: the call.
        address: the first byte.
        pattern: a pattern of any size.
        size: how many bytes, a multiple of the pattern's size.
        keep: what the command uses.

    Returns:
        The event, if one is wanted.
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


def _read(enqueue: CuEnqueue, buffer: CuBuffer, offset: int, size: int, host: int) -> Any:
    check_buffers(enqueue.queue.context, buffer)
    check_range(buffer.size, offset, size)
    if not size:
        return enqueue.run()
    return copy_bytes(enqueue, host, buffer.address + offset, size, buffer)


def _write(enqueue: CuEnqueue, buffer: CuBuffer, offset: int, size: int, host: int) -> Any:
    check_buffers(enqueue.queue.context, buffer)
    check_range(buffer.size, offset, size)
    if not size:
        return enqueue.run()
    return copy_bytes(enqueue, buffer.address + offset, host, size, buffer)


for _name, _command, _function, _host in (
    ("urEnqueueMemBufferRead", "MEM_BUFFER_READ", _read, "pDst"),
    ("urEnqueueMemBufferWrite", "MEM_BUFFER_WRITE", _write, "pSrc"),
):
    declare_enqueue(_name, _command, _function, "hBuffer", "offset", "size", _host)


@enqueues("MEM_BUFFER_COPY")
def urEnqueueMemBufferCopy(
    enqueue: CuEnqueue,
    hBufferSrc: CuBuffer,
    hBufferDst: CuBuffer,
    srcOffset: int,
    dstOffset: int,
    size: int,
) -> CuEvent | None:
    check_copy(enqueue.queue.context, hBufferSrc, hBufferDst, srcOffset, dstOffset, size)
    if not size:
        return enqueue.run()
    source, target = hBufferSrc.address + srcOffset, hBufferDst.address + dstOffset
    return copy_bytes(enqueue, target, source, size, (hBufferSrc, hBufferDst))


def check_copy(
    context: Any, source: CuBuffer, target: CuBuffer, source_at: int, target_at: int, size: int
) -> None:
    """Check a copy between buffers.

    Raises:
        URError: INVALID_MEM_OBJECT, INVALID_CONTEXT, INVALID_SIZE.
    """
    check_buffers(context, source, target)
    check_range(source.size, source_at, size)
    check_range(target.size, target_at, size)


# rectangles


def make_buffer_place(
    buffer: CuBuffer, origin: Any, region: tuple[int, int, int], row: int, slice_: int
) -> CopyPlace:
    """Return the end of a copy that is a rectangle of a buffer. Raises URError (INVALID_SIZE)."""
    start = read_offset(origin)
    pitches = check_rect(buffer.size, start, region, row, slice_)
    return CopyPlace(buffer.address, not buffer.is_host, start, *pitches)


def make_host_place(
    host: int, origin: Any, region: tuple[int, int, int], row: int, slice_: int
) -> CopyPlace:
    """Return the end of a copy that is in host memory. Raises URError (INVALID_SIZE)."""
    return CopyPlace(host, False, read_offset(origin), *check_pitches(region, row, slice_))


def _transfer_rect(
    reads: bool,
    enqueue: CuEnqueue,
    buffer: CuBuffer,
    host: int,
    buffer_origin: Any,
    host_origin: Any,
    region: Any,
    *pitches: int,
) -> CuEvent | None:
    """Read or write a rectangle. `pitches` are two for the buffer and two for host memory."""
    check_buffers(enqueue.queue.context, buffer)
    size = read_region(region)
    there = make_host_place(host, host_origin, size, *pitches[2:])
    here = make_buffer_place(buffer, buffer_origin, size, *pitches[:2])
    copy = API.make_copy(there, here, size) if reads else API.make_copy(here, there, size)
    return copy_rows(enqueue, copy, buffer)


_RECT: Final = (
    *("bufferOrigin", "hostOrigin", "region"),
    *("bufferRowPitch", "bufferSlicePitch", "hostRowPitch", "hostSlicePitch"),
)
for _name, _command, _reads, _host in (
    ("urEnqueueMemBufferReadRect", "MEM_BUFFER_READ_RECT", True, "pDst"),
    ("urEnqueueMemBufferWriteRect", "MEM_BUFFER_WRITE_RECT", False, "pSrc"),
):
    _work = partial(_transfer_rect, _reads)
    declare_enqueue(_name, _command, _work, "hBuffer", _host, *_RECT)


@enqueues("MEM_BUFFER_COPY_RECT")
def urEnqueueMemBufferCopyRect(
    enqueue: CuEnqueue,
    hBufferSrc: CuBuffer,
    hBufferDst: CuBuffer,
    srcOrigin: Any,
    dstOrigin: Any,
    region: Any,
    srcRowPitch: int,
    srcSlicePitch: int,
    dstRowPitch: int,
    dstSlicePitch: int,
) -> CuEvent | None:
    check_buffers(enqueue.queue.context, hBufferSrc, hBufferDst)
    size = read_region(region)
    source = make_buffer_place(hBufferSrc, srcOrigin, size, srcRowPitch, srcSlicePitch)
    target = make_buffer_place(hBufferDst, dstOrigin, size, dstRowPitch, dstSlicePitch)
    return copy_rows(enqueue, API.make_copy(target, source, size), (hBufferSrc, hBufferDst))


# fills


@enqueues("MEM_BUFFER_FILL")
def urEnqueueMemBufferFill(
    enqueue: CuEnqueue, hBuffer: CuBuffer, pPattern: int, patternSize: int, offset: int, size: int
) -> CuEvent | None:
    check_buffers(enqueue.queue.context, hBuffer)
    pattern = read_buffer_pattern(pPattern, patternSize, hBuffer.size, offset, size)
    return fill_bytes(enqueue, hBuffer.address + offset, pattern, size, hBuffer)


# maps

_READ, _WRITE, _INVALIDATE = (
    UR[f"UR_MAP_FLAG_{name}"] for name in ("READ", "WRITE", "WRITE_INVALIDATE_REGION")
)


@enqueues("MEM_BUFFER_MAP")
def urEnqueueMemBufferMap(
    enqueue: CuEnqueue, hBuffer: CuBuffer, mapFlags: int, offset: int, size: int
) -> tuple[CuEvent | None, int]:
    """Give the host the bytes: in place in host memory, else as a copy."""
    check_buffers(enqueue.queue.context, hBuffer)
    check_range(hBuffer.size, offset, size)
    if not size:
        raise failure("INVALID_SIZE", "there is nothing to map")
    mapped = hBuffer.map(offset, size, bool(mapFlags & (_WRITE | _INVALIDATE)))
    try:
        if hBuffer.is_host or mapFlags & _INVALIDATE:
            return enqueue.run(keep=mapped), mapped.address
        source = hBuffer.address + offset
        return copy_bytes(enqueue, mapped.address, source, size, mapped), mapped.address
    except BaseException:
        hBuffer.forget_map(mapped)
        raise


@enqueues("MEM_UNMAP")
def urEnqueueMemUnmap(enqueue: CuEnqueue, hMem: CuBuffer, pMappedPtr: int) -> CuEvent | None:
    check_buffers(enqueue.queue.context, hMem)
    mapped = hMem.find_map(pMappedPtr)
    if hMem.is_host or not mapped.writes:
        event = enqueue.run(keep=mapped)
    else:
        target = hMem.address + mapped.offset
        event = copy_bytes(enqueue, target, mapped.address, mapped.size, mapped)
    hMem.forget_map(mapped)
    return event
