"""Transfers on queues of the adapter on Level Zero, of buffers and of memory by address; hints.

Queues and command-buffers (command_buffer/appends.py) append commands of the table of operations:
the line `ze` of an operation is the function. A pattern that the driver does not fill with is
repeated in host memory and copied.
"""

from __future__ import annotations

import ctypes
from typing import Any, Final

from ...loader.base.operations import TransferCommand
from ...loader.ze.abi import ZE
from ..sdk.conversions import failure
from ..sdk.rectangles import Rect
from ..sdk.rules import is_power_of_two
from ..sdk.transfers import COPIES, Location, MemoryPlace, Transfers, find_place
from .allocations import locate
from .contexts import LZContext
from .core import adapter
from .devices import LZDevice
from .enqueue import LZEnqueue, enqueues
from .events import LZEvent
from .memory import copy_memory
from .queues import create_queue

_Region: Final = ZE.get_struct("ze_copy_region_t")
_LARGEST: Final = 0xFFFFFFFF


def copy(target: int, source: int, size: int, keep: Any = ()) -> TransferCommand:
    """Return the copy of so many bytes."""
    return TransferCommand("svm_copy", {"target": target, "source": source, "size": size}, keep)


def convert(device: LZDevice, transfer: TransferCommand) -> TransferCommand:
    """Return a transfer (sdk/transfers.py) as Level Zero's functions take it.

    Raises:
        URError: INVALID_SIZE for a rectangle that is too large.
    """
    operands, keep = transfer.operands, transfer.keep
    target = find_place(transfer, "target")
    if "pattern" in operands:
        return fill(device, target.address, operands["pattern"], operands["size"], keep)
    source = find_place(transfer, "source")
    if "region" in operands:
        return copy_rows(source, target, operands["region"], keep)
    return copy(target.address, source.address, operands["size"], keep)


def copy_rows(
    source: MemoryPlace, target: MemoryPlace, size: Rect, keep: Any = ()
) -> TransferCommand:
    """Return the copy of a rectangle. Raises URError (INVALID_SIZE) if it is too large."""
    if max(*source.origin, *target.origin, *size, source.row, target.row) > _LARGEST:
        raise failure("INVALID_SIZE", "Level Zero copies rectangles of less than 4 GiB a side")
    regions = _Region(*target.origin, *size), _Region(*source.origin, *size)
    operands = {
        "target": target.address,
        "target_region": ctypes.byref(regions[0]),
        "target_row_pitch": target.row,
        "target_slice_pitch": target.slice,
        "source": source.address,
        "source_region": ctypes.byref(regions[1]),
        "source_row_pitch": source.row,
        "source_slice_pitch": source.slice,
    }
    return TransferCommand("copy_rect", operands, (keep, regions))


def fill(
    device: LZDevice, address: int, pattern: bytes, size: int, keep: Any = ()
) -> TransferCommand:
    """Return the fill of so many bytes, a multiple of the pattern's size."""
    if len(pattern) <= device.compute_group.largest_pattern and is_power_of_two(len(pattern)):
        block = ctypes.create_string_buffer(pattern, len(pattern))
        filled = {"pattern": ctypes.addressof(block), "pattern_size": len(pattern)}
        operands = {"target": address, **filled, "size": size}
        return TransferCommand("svm_fill", operands, (keep, block))
    block = ctypes.create_string_buffer(pattern * (size // len(pattern)), size)
    return copy(address, ctypes.addressof(block), size, (keep, block))


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
