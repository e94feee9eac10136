"""Transfers of buffers: read, write, copy, fill, and the forms of them for rectangles."""

from __future__ import annotations

from functools import partial
from typing import Any, Final

from ...loader.base.operations import TransferCommand
from ..sdk.patterns import read_buffer_pattern
from .enqueue import LZEnqueue, enqueues
from .events import LZEvent
from .memory import LZBuffer, check_buffers
from .operations import copy_buffers, copy_rect, fill, transfer


def enqueue_operation(enqueue: LZEnqueue, operation: TransferCommand) -> LZEvent | None:
    """Enqueue an operation. Returns the event, if one is wanted."""
    routine, arguments = operation.make_call("ze")
    return enqueue.call(routine, *arguments, keep=operation.keep)


def _transfer_host(
    reads: bool, enqueue: LZEnqueue, buffer: LZBuffer, offset: int, size: int, host: int
) -> LZEvent | None:
    check_buffers(enqueue.queue.context, buffer)
    operation = transfer(buffer, offset, size, host, reads)
    return enqueue_operation(enqueue, operation) if size else enqueue.mark()


for _name, _command, _reads, _host in (
    ("urEnqueueMemBufferRead", "MEM_BUFFER_READ", True, "pDst"),
    ("urEnqueueMemBufferWrite", "MEM_BUFFER_WRITE", False, "pSrc"),
):
    _parameters = "hBuffer", "offset", "size", _host
    enqueues.declare(_name, _command, partial(_transfer_host, _reads), *_parameters)


@enqueues("MEM_BUFFER_COPY")
def urEnqueueMemBufferCopy(
    enqueue: LZEnqueue,
    hBufferSrc: LZBuffer,
    hBufferDst: LZBuffer,
    srcOffset: int,
    dstOffset: int,
    size: int,
) -> LZEvent | None:
    check_buffers(enqueue.queue.context, hBufferSrc, hBufferDst)
    operation = copy_buffers(hBufferSrc, hBufferDst, srcOffset, dstOffset, size)
    return enqueue_operation(enqueue, operation) if size else enqueue.mark()


def _transfer_host_rect(
    reads: bool,
    enqueue: LZEnqueue,
    buffer: LZBuffer,
    host: int,
    buffer_origin: Any,
    host_origin: Any,
    region: Any,
    *pitches: int,
) -> LZEvent | None:
    check_buffers(enqueue.queue.context, buffer)
    if reads:
        operation = copy_rect(buffer, host, buffer_origin, host_origin, region, *pitches)
    else:
        back = *pitches[2:], *pitches[:2]
        operation = copy_rect(host, buffer, host_origin, buffer_origin, region, *back)
    return enqueue_operation(enqueue, operation)


_RECT: Final = (
    *("bufferOrigin", "hostOrigin", "region"),
    *("bufferRowPitch", "bufferSlicePitch", "hostRowPitch", "hostSlicePitch"),
)
for _name, _command, _reads, _host in (
    ("urEnqueueMemBufferReadRect", "MEM_BUFFER_READ_RECT", True, "pDst"),
    ("urEnqueueMemBufferWriteRect", "MEM_BUFFER_WRITE_RECT", False, "pSrc"),
):
    _function = partial(_transfer_host_rect, _reads)
    enqueues.declare(_name, _command, _function, "hBuffer", _host, *_RECT)


@enqueues("MEM_BUFFER_COPY_RECT")
def urEnqueueMemBufferCopyRect(
    enqueue: LZEnqueue,
    hBufferSrc: LZBuffer,
    hBufferDst: LZBuffer,
    srcOrigin: Any,
    dstOrigin: Any,
    region: Any,
    srcRowPitch: int,
    srcSlicePitch: int,
    dstRowPitch: int,
    dstSlicePitch: int,
) -> LZEvent | None:
    check_buffers(enqueue.queue.context, hBufferSrc, hBufferDst)
    pitches = srcRowPitch, srcSlicePitch, dstRowPitch, dstSlicePitch
    operation = copy_rect(hBufferSrc, hBufferDst, srcOrigin, dstOrigin, region, *pitches)
    return enqueue_operation(enqueue, operation)


@enqueues("MEM_BUFFER_FILL")
def urEnqueueMemBufferFill(
    enqueue: LZEnqueue, hBuffer: LZBuffer, pPattern: int, patternSize: int, offset: int, size: int
) -> LZEvent | None:
    check_buffers(enqueue.queue.context, hBuffer)
    pattern = read_buffer_pattern(pPattern, patternSize, hBuffer.size, offset, size)
    operation = fill(enqueue.queue.device, hBuffer.address + offset, pattern, size, hBuffer)
    return enqueue_operation(enqueue, operation)
