"""Transfers on queues of the adapter on Level Zero, of buffers and of memory by address; hints."""

from __future__ import annotations

import ctypes
from typing import Final

from ...loader.base.operations import TransferCommand
from ..sdk.transfers import COPIES, Location, MemoryPlace, Transfers
from .allocations import locate
from .contexts import LZContext
from .core import adapter
from .enqueue import LZEnqueue, enqueues
from .events import LZEvent
from .memory import copy_memory
from .operations import convert, copy_rows
from .queues import create_queue


def enqueue_operation(enqueue: LZEnqueue, operation: TransferCommand) -> LZEvent | None:
    """Enqueue an operation of Level Zero. Returns the event, if one is wanted."""
    routine, arguments = operation.make_call("ze")
    return enqueue.call(routine, *arguments, keep=operation.keep)


def _run(enqueue: LZEnqueue, transfer: TransferCommand, command: str) -> LZEvent | None:
    return enqueue_operation(enqueue, convert(enqueue.queue.device, transfer))


transfers: Final = Transfers(enqueues, locate, _run, COPIES, copy=copy_memory)


@adapter.entry
def urUSMContextMemcpyExp(hContext: LZContext, pDst: int, pSrc: int, size: int) -> None:
    """Copy on a queue of its own, which has no order with others."""
    queue = create_queue(hContext, hContext.devices[0], 0)
    transfers.copy(LZEnqueue(queue, "USM_MEMCPY", blocking=True), pDst, pSrc, size)


def _fill_rows(
    enqueue: LZEnqueue, place: Location, pitch: int, pattern: bytes, width: int, height: int
) -> LZEvent | None:
    """Fill rows by copies of host memory. The pattern continues from row to row."""
    size = width * height
    block = ctypes.create_string_buffer(pattern * (size // len(pattern)), size)
    source = MemoryPlace(None, ctypes.addressof(block), (0, 0, 0), width, 0)
    target = MemoryPlace(None, place.address, (0, 0, 0), pitch, 0)
    return enqueue_operation(enqueue, copy_rows(source, target, (width, height, 1), block))


def _copy_rows(
    enqueue: LZEnqueue,
    to: Location,
    to_pitch: int,
    at: Location,
    pitch: int,
    width: int,
    height: int,
) -> LZEvent | None:
    target = MemoryPlace(None, to.address, (0, 0, 0), to_pitch, 0)
    source = MemoryPlace(None, at.address, (0, 0, 0), pitch, 0)
    return enqueue_operation(enqueue, copy_rows(source, target, (width, height, 1)))


transfers.declare_rows(_copy_rows, _fill_rows)


def _prefetch(enqueue: LZEnqueue, place: Location, size: int, flags: int) -> LZEvent | None:
    if place.allocation is None:
        return enqueue.mark()
    queue = enqueue.queue
    with queue.lock:
        queue.append("zeCommandListAppendBarrier", waits=queue.list_cells(enqueue.waits))
        code = queue.table.zeCommandListAppendMemoryPrefetch(queue.ze, place.address, size)
        if code:
            adapter.log("info", f"the driver refuses a prefetch, which is left out: {code:#x}")
        enqueue.waits = ()
        return enqueue.mark()


# Advice changes how fast memory is, and not what it holds. So it is checked and does no more.
transfers.declare_hints(_prefetch)
