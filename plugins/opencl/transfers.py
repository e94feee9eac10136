"""Transfers of buffers: read, write, copy, fill, map, and their forms for rectangles; device global variables, where the
driver reaches them.

What OpenCL leaves to drivers to refuse is refused here, with the codes that the specification lists: INVALID_SIZE for
everything that does not fit. A transfer of no bytes has its place in the order like any other. OpenCL fills with patterns
of up to 128 bytes: longer ones are copied in, and then what is there already is doubled until it is all.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import Any, Final

from ...icd.abi import OPENCL
from ...loader.ur.abi import UR
from .buffers import URBuffer, check_buffers
from .contexts import URContext
from .core import CLObject, adapter, create, failure, flags
from .events import UREvent
from .extensions import Call, enqueue_by, enqueue_in_sequence, enqueue_marker, wait_if_blocking
from .memory import URMemory
from .queues import URQueue

Rect = tuple[int, int, int]
LARGEST_PATTERN: Final = 128  # SPEC clEnqueueFillBuffer: 1, 2, 4 … 128 bytes
_BLOCK: Final = 1 << 16  # bytes: how much of a pattern is written out before doubling begins


def check_range(buffer: URBuffer, offset: int, size: int) -> None:
    """Raise URError (INVALID_SIZE) for what goes beyond a buffer."""
    if offset + size > buffer.size:
        raise failure(
            "INVALID_SIZE", f"bytes {offset} to {offset + size} of a buffer of {buffer.size}"
        )


def transfer(
    queue: URQueue,
    routine: str,
    command: str,
    arguments: tuple[Any, ...],
    size: int,
    waits: Sequence[UREvent],
    wanted: bool,
    blocking: bool,
) -> UREvent | None:
    """Enqueue one transfer. `who_waits` says who waits for a blocking one."""
    if not size:
        return wait_if_blocking(enqueue_marker(queue, command, waits, wanted or blocking), blocking)
    by_us = queue.split_blocking(blocking)[1]
    return wait_if_blocking(
        queue.enqueue(routine, command, arguments, waits, wanted or by_us), by_us
    )


@adapter.entry
def urEnqueueMemBufferRead(
    hQueue: URQueue,
    hBuffer: URBuffer,
    blockingRead: bool,
    offset: int,
    size: int,
    pDst: int,
    phEventWaitList: list[UREvent],
    phEvent: bool,
) -> UREvent | None:
    check_buffers(hQueue.context, hBuffer)
    check_range(hBuffer, offset, size)
    arguments = (hBuffer.cl, hQueue.split_blocking(blockingRead)[0], offset, size, pDst)
    return transfer(
        hQueue,
        "clEnqueueReadBuffer",
        "MEM_BUFFER_READ",
        arguments,
        size,
        phEventWaitList,
        phEvent,
        blockingRead,
    )


@adapter.entry
def urEnqueueMemBufferWrite(
    hQueue: URQueue,
    hBuffer: URBuffer,
    blockingWrite: bool,
    offset: int,
    size: int,
    pSrc: int,
    phEventWaitList: list[UREvent],
    phEvent: bool,
) -> UREvent | None:
    check_buffers(hQueue.context, hBuffer)
    check_range(hBuffer, offset, size)
    arguments = (hBuffer.cl, hQueue.split_blocking(blockingWrite)[0], offset, size, pSrc)
    return transfer(
        hQueue,
        "clEnqueueWriteBuffer",
        "MEM_BUFFER_WRITE",
        arguments,
        size,
        phEventWaitList,
        phEvent,
        blockingWrite,
    )


@adapter.entry
def urEnqueueMemBufferCopy(
    hQueue: URQueue,
    hBufferSrc: URBuffer,
    hBufferDst: URBuffer,
    srcOffset: int,
    dstOffset: int,
    size: int,
    phEventWaitList: list[UREvent],
    phEvent: bool,
) -> UREvent | None:
    check_buffers(hQueue.context, hBufferSrc, hBufferDst)
    check_range(hBufferSrc, srcOffset, size)
    check_range(hBufferDst, dstOffset, size)
    arguments = (hBufferSrc.cl, hBufferDst.cl, srcOffset, dstOffset, size)
    return transfer(
        hQueue,
        "clEnqueueCopyBuffer",
        "MEM_BUFFER_COPY",
        arguments,
        size,
        phEventWaitList,
        phEvent,
        False,
    )


# rectangles


def offset_of(value: Any) -> Rect:
    """A ur_rect_offset_t."""
    return value.x, value.y, value.z


def region_of(value: Any) -> Rect:
    """A ur_rect_region_t. Raises URError (INVALID_SIZE) for an empty one."""
    if not (value.width and value.height and value.depth):
        raise failure("INVALID_SIZE", "the region is empty")
    return value.width, value.height, value.depth


def check_pitches(region: Rect, row: int, slice_: int) -> tuple[int, int]:
    """Row and slice pitch with 0 filled in. Raises URError (INVALID_SIZE) for pitches that do not hold the region."""
    row_bytes = row or region[0]
    if row_bytes < region[0]:
        raise failure("INVALID_SIZE", f"a row of {region[0]} bytes with a pitch of {row}")
    slice_bytes = slice_ or row_bytes * region[1]
    if slice_bytes < row_bytes * region[1] or slice_bytes % row_bytes:
        raise failure(
            "INVALID_SIZE",
            f"a slice of {region[1]} rows of {row_bytes} bytes with a pitch of {slice_}",
        )
    return row_bytes, slice_bytes


def check_rect(buffer: URBuffer, origin: Rect, region: Rect, row: int, slice_: int) -> None:
    """Raise URError (INVALID_SIZE) unless the rectangle lies in the buffer."""
    row_bytes, slice_bytes = check_pitches(region, row, slice_)
    last = (origin[0] + region[0], origin[1] + region[1] - 1, origin[2] + region[2] - 1)
    if last[0] + last[1] * row_bytes + last[2] * slice_bytes > buffer.size:
        raise failure(
            "INVALID_SIZE", f"the region goes beyond the {buffer.size} bytes of the buffer"
        )


def in_parent_buffer(buffer: URBuffer, origin: Rect) -> tuple[int, Rect]:
    """The cl_mem to copy a rectangle in, and the origin there: a sub-buffer's or its parent's."""
    if not buffer.context.platform.profile.copies_rects_of_parents:
        return buffer.cl, origin
    cl, offset = buffer.whole
    return cl, (origin[0] + offset, *origin[1:])


def _sizes(value: Rect) -> Any:
    return (ctypes.c_size_t * 3)(*value)


def _host_rect(
    queue: URQueue,
    routine: str,
    command: str,
    buffer: URBuffer,
    blocking: bool,
    origins: tuple[Any, Any],
    region: Any,
    pitches: tuple[int, int, int, int],
    host: int,
    waits: Sequence[UREvent],
    wanted: bool,
) -> UREvent | None:
    """Between a buffer and host memory; the buffer's origin and pitches come first."""
    check_buffers(queue.context, buffer)
    origin, size = offset_of(origins[0]), region_of(region)
    check_pitches(size, *pitches[2:])
    check_rect(buffer, origin, size, *pitches[:2])
    arguments = (
        buffer.cl,
        queue.split_blocking(blocking)[0],
        _sizes(origin),
        _sizes(offset_of(origins[1])),
        _sizes(size),
        *pitches,
        host,
    )
    return transfer(queue, routine, command, arguments, 1, waits, wanted, blocking)


@adapter.entry
def urEnqueueMemBufferReadRect(
    hQueue: URQueue,
    hBuffer: URBuffer,
    blockingRead: bool,
    bufferOrigin: Any,
    hostOrigin: Any,
    region: Any,
    bufferRowPitch: int,
    bufferSlicePitch: int,
    hostRowPitch: int,
    hostSlicePitch: int,
    pDst: int,
    phEventWaitList: list[UREvent],
    phEvent: bool,
) -> UREvent | None:
    pitches = (bufferRowPitch, bufferSlicePitch, hostRowPitch, hostSlicePitch)
    return _host_rect(
        hQueue,
        "clEnqueueReadBufferRect",
        "MEM_BUFFER_READ_RECT",
        hBuffer,
        blockingRead,
        (bufferOrigin, hostOrigin),
        region,
        pitches,
        pDst,
        phEventWaitList,
        phEvent,
    )


@adapter.entry
def urEnqueueMemBufferWriteRect(
    hQueue: URQueue,
    hBuffer: URBuffer,
    blockingWrite: bool,
    bufferOrigin: Any,
    hostOrigin: Any,
    region: Any,
    bufferRowPitch: int,
    bufferSlicePitch: int,
    hostRowPitch: int,
    hostSlicePitch: int,
    pSrc: int,
    phEventWaitList: list[UREvent],
    phEvent: bool,
) -> UREvent | None:
    pitches = (bufferRowPitch, bufferSlicePitch, hostRowPitch, hostSlicePitch)
    return _host_rect(
        hQueue,
        "clEnqueueWriteBufferRect",
        "MEM_BUFFER_WRITE_RECT",
        hBuffer,
        blockingWrite,
        (bufferOrigin, hostOrigin),
        region,
        pitches,
        pSrc,
        phEventWaitList,
        phEvent,
    )


@adapter.entry
def urEnqueueMemBufferCopyRect(
    hQueue: URQueue,
    hBufferSrc: URBuffer,
    hBufferDst: URBuffer,
    srcOrigin: Any,
    dstOrigin: Any,
    region: Any,
    srcRowPitch: int,
    srcSlicePitch: int,
    dstRowPitch: int,
    dstSlicePitch: int,
    phEventWaitList: list[UREvent],
    phEvent: bool,
) -> UREvent | None:
    check_buffers(hQueue.context, hBufferSrc, hBufferDst)
    source, target, size = offset_of(srcOrigin), offset_of(dstOrigin), region_of(region)
    check_rect(hBufferSrc, source, size, srcRowPitch, srcSlicePitch)
    check_rect(hBufferDst, target, size, dstRowPitch, dstSlicePitch)
    (source_cl, source), (target_cl, target) = (
        in_parent_buffer(hBufferSrc, source),
        in_parent_buffer(hBufferDst, target),
    )
    pitches = (srcRowPitch, srcSlicePitch, dstRowPitch, dstSlicePitch)
    arguments = (source_cl, target_cl, _sizes(source), _sizes(target), _sizes(size), *pitches)
    return hQueue.enqueue(
        "clEnqueueCopyBufferRect", "MEM_BUFFER_COPY_RECT", arguments, phEventWaitList, phEvent
    )


# fills


def is_power_of_two(number: int) -> bool:
    """1, 2, 4, and so on."""
    return number > 0 and not number & (number - 1)


def repeated(pattern: bytes, size: int) -> bytes:
    """A pattern repeated until it is `_BLOCK` bytes or `size`, whichever is less, or once if it is longer than that."""
    return pattern * max(1, min(size, _BLOCK) // len(pattern))


def doubling_steps(have: int, size: int) -> list[tuple[int, int]]:
    """Where to copy what is there already, and how much of it, until `have` bytes have become `size`."""
    steps = []
    while have < size:
        steps.append((have, min(have, size - have)))
        have += steps[-1][1]
    return steps


def temporary_buffer(context: URContext, data: bytes | int) -> URBuffer:
    """A buffer with a copy of some bytes, or of so many. It may be dropped as soon as what uses it is enqueued (SPEC
    clReleaseMemObject).
    """
    size, host = (data, None) if isinstance(data, int) else (len(data), data)
    bits = OPENCL["CL_MEM_READ_WRITE"] | (OPENCL["CL_MEM_COPY_HOST_PTR"] if host else 0)
    return URBuffer(
        create(context.table, "clCreateBuffer", context.cl, bits, size, host), context, size
    )


def fill_buffer(
    queue: URQueue,
    memory: CLObject,
    command: str,
    pattern: bytes,
    offset: int,
    size: int,
    waits: Sequence[UREvent],
    wanted: bool,
) -> UREvent | None:
    """Fill bytes of a cl_mem with a pattern of any size, of which `size` is a multiple."""
    if (
        len(pattern) <= LARGEST_PATTERN
        and is_power_of_two(len(pattern))
        and not offset % len(pattern)
    ):
        arguments = (memory.cl, pattern, len(pattern), offset, size)
        return queue.enqueue("clEnqueueFillBuffer", command, arguments, waits, wanted)
    block = temporary_buffer(queue.context, repeated(pattern, size))
    calls: list[Call] = [("clEnqueueCopyBuffer", (block.cl, memory.cl, 0, offset, block.size))]
    calls += [
        ("clEnqueueCopyBuffer", (memory.cl, memory.cl, offset, offset + at, count))
        for at, count in doubling_steps(block.size, size)
    ]
    return enqueue_in_sequence(queue, calls, command, waits, wanted)


@adapter.entry
def urEnqueueMemBufferFill(
    hQueue: URQueue,
    hBuffer: URBuffer,
    pPattern: int,
    patternSize: int,
    offset: int,
    size: int,
    phEventWaitList: list[UREvent],
    phEvent: bool,
) -> UREvent | None:
    check_buffers(hQueue.context, hBuffer)
    if not size or not is_power_of_two(patternSize) or size % patternSize or offset % patternSize:
        raise failure(
            "INVALID_SIZE",
            "a pattern's size is a power of two, of which offset and size are multiples",
        )
    check_range(hBuffer, offset, size)
    pattern = ctypes.string_at(pPattern, patternSize)
    return fill_buffer(
        hQueue, hBuffer, "MEM_BUFFER_FILL", pattern, offset, size, phEventWaitList, phEvent
    )


# maps

_MAP_FLAGS: Final = {
    "UR_MAP_FLAG_READ": "CL_MAP_READ",
    "UR_MAP_FLAG_WRITE": "CL_MAP_WRITE",
    "UR_MAP_FLAG_WRITE_INVALIDATE_REGION": "CL_MAP_WRITE_INVALIDATE_REGION",
}


@adapter.entry
def urEnqueueMemBufferMap(
    hQueue: URQueue,
    hBuffer: URBuffer,
    blockingMap: bool,
    mapFlags: int,
    offset: int,
    size: int,
    phEventWaitList: list[UREvent],
    phEvent: bool,
) -> tuple[UREvent | None, int]:
    check_buffers(hQueue.context, hBuffer)
    check_range(hBuffer, offset, size)
    if not size:
        raise failure("INVALID_SIZE", "there is nothing to map")
    made = ctypes.c_void_p()
    waits = hQueue.wait_list(phEventWaitList)
    blocks, by_us = hQueue.split_blocking(blockingMap)
    arguments = (
        hBuffer.cl,
        blocks,
        flags(mapFlags, _MAP_FLAGS),
        offset,
        size,
        *waits,
        ctypes.byref(made) if phEvent or by_us else None,
    )
    address = create(hQueue.table, "clEnqueueMapBuffer", hQueue.cl, *arguments)
    hQueue.enqueued += 1
    event = (
        UREvent(made.value, hQueue.context, hQueue, UR["UR_COMMAND_MEM_BUFFER_MAP"])
        if made.value
        else None
    )
    return wait_if_blocking(event, by_us), address


@adapter.entry
def urEnqueueMemUnmap(
    hQueue: URQueue, hMem: URMemory, pMappedPtr: int, phEventWaitList: list[UREvent], phEvent: bool
) -> UREvent | None:
    hQueue.context.check_same("the memory", hMem)
    return hQueue.enqueue(
        "clEnqueueUnmapMemObject", "MEM_UNMAP", (hMem.cl, pMappedPtr), phEventWaitList, phEvent
    )


# device global variables

#: cl_int f(queue, program, name, blocking, size, offset, host memory, events…): Intel's drivers, in no header that is public.
_GlobalVariable: Final = ctypes.CFUNCTYPE(
    ctypes.c_int32,
    ctypes.c_void_p,
    ctypes.c_void_p,
    ctypes.c_char_p,
    ctypes.c_uint32,
    ctypes.c_size_t,
    ctypes.c_size_t,
    ctypes.c_void_p,
    ctypes.c_uint32,
    ctypes.c_void_p,
    ctypes.c_void_p,
)


def _global_variable(
    queue: URQueue,
    routine: str,
    command: str,
    program: CLObject,
    name: str,
    blocking: bool,
    count: int,
    offset: int,
    host: int,
    waits: Sequence[UREvent],
    wanted: bool,
) -> UREvent | None:
    queue.context.check_same("the program", program)
    address = queue.context.platform.icd.extension_function(routine)
    if not address:
        raise failure("UNSUPPORTED_FEATURE", f"the driver has no {routine}")
    blocks, by_us = queue.split_blocking(blocking)
    arguments = (program.cl, name.encode(), blocks, count, offset, host)
    return wait_if_blocking(
        enqueue_by(
            _GlobalVariable(address), queue, routine, command, arguments, waits, wanted or by_us
        ),
        by_us,
    )


@adapter.entry
def urEnqueueDeviceGlobalVariableWrite(
    hQueue: URQueue,
    hProgram: CLObject,
    name: str,
    blockingWrite: bool,
    count: int,
    offset: int,
    pSrc: int,
    phEventWaitList: list[UREvent],
    phEvent: bool,
) -> UREvent | None:
    return _global_variable(
        hQueue,
        "clEnqueueWriteGlobalVariableINTEL",
        "DEVICE_GLOBAL_VARIABLE_WRITE",
        hProgram,
        name,
        blockingWrite,
        count,
        offset,
        pSrc,
        phEventWaitList,
        phEvent,
    )


@adapter.entry
def urEnqueueDeviceGlobalVariableRead(
    hQueue: URQueue,
    hProgram: CLObject,
    name: str,
    blockingRead: bool,
    count: int,
    offset: int,
    pDst: int,
    phEventWaitList: list[UREvent],
    phEvent: bool,
) -> UREvent | None:
    return _global_variable(
        hQueue,
        "clEnqueueReadGlobalVariableINTEL",
        "DEVICE_GLOBAL_VARIABLE_READ",
        hProgram,
        name,
        blockingRead,
        count,
        offset,
        pDst,
        phEventWaitList,
        phEvent,
    )
