"""USM: allocated, copied, filled, queried. pools.py has the pools."""

from __future__ import annotations

import ctypes
from typing import Any, Final

from ..sdk.patterns import read_pattern, read_row_pattern
from ..sdk.usm import (
    check_copied_rows,
    check_descriptor,
    check_rows_in,
    declare_allocation,
    declare_imports,
    declare_memory_query,
)
from .allocations import (
    LZRequest,
    add,
    allocate,
    check_place,
    find,
    forget_imported,
    import_memory,
    release_memory,
    remove,
)
from .contexts import LZContext
from .core import adapter, failure
from .devices import LZDevice
from .enqueue import LZEnqueue, enqueues
from .events import LZEvent
from .memory import COPY_MEMORY
from .operations import Box, copy, copy_boxes, fill
from .queues import LZQueue, create_queue
from .transfers import enqueue_operation
from .unfinished_queues import drain_queues

_SUPPORT: Final = {
    "host": "hostAllocCapabilities",
    "device": "deviceAllocCapabilities",
    "shared": "sharedSingleDeviceAllocCapabilities",
}


def allocate_usm(
    context: LZContext,
    kind: str,
    device: LZDevice | None,
    descriptor: Any,
    pool: Any,
    size: int,
) -> int:
    """Allocate memory, and register it.

    Args:
        context: its context.
        kind: "host", "device" or "shared".
        device: its device, None for host memory.
        descriptor: a pointer to a ur_usm_desc_t, or None.
        pool: a `LZPool`, or None.
        size: bytes.

    Returns:
        The address.

    Raises:
        URError: INVALID_USM_SIZE, INVALID_VALUE, INVALID_DEVICE, or INVALID_OPERATION for a kind
            that the device does not have.
        LevelZeroError: what the driver answers.
    """
    if device is not None:
        context.check_device(device)
    if descriptor:
        check_descriptor(descriptor)
    align = descriptor.align if descriptor else 0
    devices = (device,) if device is not None else context.devices
    if not size or any(size > one.properties.maxMemAllocSize for one in devices):
        raise failure("INVALID_USM_SIZE", f"{size} bytes")
    if not all(getattr(one.access, _SUPPORT[kind]) for one in devices):
        raise failure("INVALID_OPERATION", f"the device has no {kind} USM")
    request = LZRequest(context, kind, device, size, align)
    made = allocate(request) if pool is None else pool.take(request, lambda: allocate(request))
    return add(made).base


declare_allocation(adapter, allocate_usm, lambda device: 64)


@adapter.entry
def urUSMFree(hContext: LZContext, pMem: int) -> None:
    found = hContext.allocations.get(pMem)
    if found is None or found.imported:
        raise failure("INVALID_MEM_OBJECT", "no USM memory of the context begins there")
    drain_queues(context=hContext)
    release_memory(remove(hContext, pMem))


declare_memory_query(adapter, find)


def _forget_imported(context: LZContext, address: int) -> None:
    drain_queues(context=context)
    forget_imported(context, address)


declare_imports(adapter, import_memory, _forget_imported)


# copies


@enqueues("USM_MEMCPY")
def urEnqueueUSMMemcpy(enqueue: LZEnqueue, pDst: int, pSrc: int, size: int) -> LZEvent | None:
    if not size:
        raise failure("INVALID_SIZE", "there is nothing to copy")
    for address in (pDst, pSrc):
        check_place(enqueue.queue.context, address, size)
    return enqueue.call(COPY_MEMORY, pDst, pSrc, size)


@adapter.entry
def urUSMContextMemcpyExp(hContext: LZContext, pDst: int, pSrc: int, size: int) -> None:
    """Copy on a queue of its own, which has no order with others."""
    queue = create_queue(hContext, hContext.devices[0], 0)
    urEnqueueUSMMemcpy(LZEnqueue(queue, "USM_MEMCPY", blocking=True), pDst, pSrc, size)


def _check_rows(context: LZContext, address: int, pitch: int, width: int, height: int) -> None:
    """Raise URError unless rows lie in their allocation (INVALID_SIZE), or in host memory
    (INVALID_MEM_OBJECT)."""
    found = find(context, address)
    if found is not None:
        check_rows_in(found, address, pitch, width, height)
    else:
        check_place(context, address, pitch * (height - 1) + width)


@enqueues("USM_MEMCPY_2D")
def urEnqueueUSMMemcpy2D(
    enqueue: LZEnqueue, pDst: int, dstPitch: int, pSrc: int, srcPitch: int, width: int, height: int
) -> LZEvent | None:
    check_copied_rows(width, height, srcPitch, dstPitch)
    _check_rows(enqueue.queue.context, pDst, dstPitch, width, height)
    _check_rows(enqueue.queue.context, pSrc, srcPitch, width, height)
    if not width:
        return enqueue.mark()
    source, target = Box(pSrc, (0, 0, 0), srcPitch, 0), Box(pDst, (0, 0, 0), dstPitch, 0)
    return enqueue_operation(enqueue, copy_boxes(source, target, (width, height, 1)))


# fills


@enqueues("USM_FILL")
def urEnqueueUSMFill(
    enqueue: LZEnqueue, pMem: int, patternSize: int, pPattern: int, size: int
) -> LZEvent | None:
    pattern = read_pattern(pPattern, patternSize, size)
    check_place(enqueue.queue.context, pMem, size)
    return enqueue_operation(enqueue, fill(enqueue.queue.device, pMem, pattern, size))


@enqueues("USM_FILL_2D")
def urEnqueueUSMFill2D(
    enqueue: LZEnqueue,
    pMem: int,
    pitch: int,
    patternSize: int,
    pPattern: int,
    width: int,
    height: int,
) -> LZEvent | None:
    """Fill rows by copies of host memory. The pattern continues from row to row."""
    pattern = read_row_pattern(pPattern, patternSize, pitch, width, height)
    _check_rows(enqueue.queue.context, pMem, pitch, width, height)
    size = width * height
    block = ctypes.create_string_buffer(pattern * (size // patternSize), size)
    if pitch == width:
        return enqueue_operation(enqueue, copy(pMem, ctypes.addressof(block), size, block))
    source = Box(ctypes.addressof(block), (0, 0, 0), width, 0)
    target = Box(pMem, (0, 0, 0), pitch, 0)
    return enqueue_operation(enqueue, copy_boxes(source, target, (width, height, 1), block))


# hints


def _enqueue_hint(enqueue: LZEnqueue, address: int, size: int) -> LZEvent | None:
    """Enqueue nothing but an event: memory moves when it is used."""
    if not size:
        raise failure("INVALID_SIZE")
    check_place(enqueue.queue.context, address, size)
    return enqueue.mark()


@enqueues("USM_PREFETCH")
def urEnqueueUSMPrefetch(enqueue: LZEnqueue, pMem: int, size: int) -> LZEvent | None:
    queue = enqueue.queue
    if size and find(queue.context, pMem) is not None:
        check_place(queue.context, pMem, size)
        with queue.lock:
            queue.append("zeCommandListAppendBarrier", waits=queue.list_cells(enqueue.waits))
            routine = "zeCommandListAppendMemoryPrefetch"
            code = getattr(queue.table, routine)(queue.ze, pMem, size)
            if code:
                adapter.log("info", f"the driver refuses a prefetch, which is left out: {code:#x}")
            enqueue.waits = ()
            return enqueue.mark()
    return _enqueue_hint(enqueue, pMem, size)


@adapter.entry
def urEnqueueUSMAdvise(hQueue: LZQueue, pMem: int, size: int, phEvent: bool) -> LZEvent | None:
    """Check advice, and do no more: it changes how fast memory is, and not what it holds."""
    return _enqueue_hint(LZEnqueue(hQueue, "USM_ADVISE", (), phEvent), pMem, size)
