"""Transfers between addresses of USM and of host memory: copies and fills, whole or by rows; hints.

Prefetches and advice need managed memory. About other memory they are checked and do nothing.
"""

from __future__ import annotations

import ctypes
from typing import Final

from ...loader.ur.abi import UR
from ..sdk.gpu.api import CopyPlace
from ..sdk.patterns import read_pattern, read_row_pattern
from ..sdk.usm import check_copied_rows, check_rows_in
from .allocations import CuAllocation, locate
from .commands import fill_rows
from .contexts import CuContext
from .core import API, adapter, failure, get_constant
from .enqueue import CuEnqueue, enqueues
from .events import CuEvent
from .queues import CuQueue
from .transfers import copy_bytes, copy_rows, fill_bytes, set_bytes

_TO_HOST: Final = UR["UR_USM_MIGRATION_FLAG_DEVICE_TO_HOST"]


@enqueues("USM_MEMCPY")
def urEnqueueUSMMemcpy(enqueue: CuEnqueue, pDst: int, pSrc: int, size: int) -> CuEvent | None:
    if not size:
        raise failure("INVALID_SIZE", "there is nothing to copy")
    locate(enqueue.queue.context, pDst, size)
    locate(enqueue.queue.context, pSrc, size)
    return copy_bytes(enqueue, pDst, pSrc, size)


@adapter.entry
def urUSMContextMemcpyExp(hContext: CuContext, pDst: int, pSrc: int, size: int) -> None:
    """Copy on a stream of its own, which has no order with queues."""
    if not size:
        raise failure("INVALID_SIZE", "there is nothing to copy")
    locate(hContext, pDst, size)
    locate(hContext, pSrc, size)
    hContext.device.copy(pDst, pSrc, size)


def is_on_device(allocation: CuAllocation | None) -> bool:
    """Return whether the driver counts memory as the device's. Managed memory is."""
    return allocation is not None and allocation.kind != "host"


def _find_rows(context: CuContext, address: int, pitch: int, width: int, height: int) -> CopyPlace:
    """Find rows of `width` bytes.

    Raises:
        URError: INVALID_SIZE unless the rows lie in their allocation: with their pitch in all of
            it, without the last pitch in what follows the address. Else as `locate`.
    """
    found = locate(context, address, 1)
    if found is None:
        locate(context, address, pitch * (height - 1) + max(width, 1))
    else:
        check_rows_in(found, address, pitch, width, height)
    return CopyPlace(address, is_on_device(found), (0, 0, 0), pitch)


@enqueues("USM_MEMCPY_2D")
def urEnqueueUSMMemcpy2D(
    enqueue: CuEnqueue, pDst: int, dstPitch: int, pSrc: int, srcPitch: int, width: int, height: int
) -> CuEvent | None:
    check_copied_rows(width, height, srcPitch, dstPitch)
    target = _find_rows(enqueue.queue.context, pDst, dstPitch, width, height)
    source = _find_rows(enqueue.queue.context, pSrc, srcPitch, width, height)
    if not width:
        return enqueue.run()
    return copy_rows(enqueue, API.make_copy(target, source, (width, height, 1)))


# fills


@enqueues("USM_FILL")
def urEnqueueUSMFill(
    enqueue: CuEnqueue, pMem: int, patternSize: int, pPattern: int, size: int
) -> CuEvent | None:
    pattern = read_pattern(pPattern, patternSize, size)
    _check_filled(enqueue.queue.context, pMem, size)
    return fill_bytes(enqueue, pMem, pattern, size)


def _check_filled(context: CuContext, address: int, size: int) -> None:
    """Raise URError (INVALID_MEM_OBJECT) for memory that is not the driver's, and as `locate`."""
    if locate(context, address, size) is None:
        raise failure("INVALID_MEM_OBJECT", f"{API.name} fills no memory but its own")


@enqueues("USM_FILL_2D")
def urEnqueueUSMFill2D(
    enqueue: CuEnqueue,
    pMem: int,
    pitch: int,
    patternSize: int,
    pPattern: int,
    width: int,
    height: int,
) -> CuEvent | None:
    """Fill rows. The pattern continues from row to row if a row is not a multiple of it."""
    pattern = read_row_pattern(pPattern, patternSize, pitch, width, height)
    place = _find_rows(enqueue.queue.context, pMem, pitch, width, height)
    _check_filled(enqueue.queue.context, pMem, 1)
    if pitch == width:
        return fill_bytes(enqueue, pMem, pattern, width * height)
    one = fill_rows(pMem, pitch, pattern, width, height)
    if one is not None:
        return enqueue.run(lambda stream: set_bytes(enqueue, one, stream))
    data = (pattern * (width * height // patternSize))[: width * height]
    block = ctypes.create_string_buffer(data, len(data))
    source = CopyPlace(ctypes.addressof(block), False, (0, 0, 0), width)
    enqueue.blocking = True  # nothing but this call keeps the block
    return copy_rows(enqueue, API.make_copy(place, source, (width, height, 1)), block)


# hints


def _is_managed(context: CuContext, address: int, size: int) -> bool:
    """Return whether a hint is about managed memory. Raises URError as `locate`, INVALID_SIZE."""
    if not size:
        raise failure("INVALID_SIZE")
    found = locate(context, address, size)
    return found is not None and found.kind == "shared"


@enqueues("USM_PREFETCH")
def urEnqueueUSMPrefetch(enqueue: CuEnqueue, pMem: int, size: int, flags: int) -> CuEvent | None:
    queue = enqueue.queue
    device = queue.device
    if not _is_managed(queue.context, pMem, size) or not device.query_attribute(
        "CONCURRENT_MANAGED_ACCESS"
    ):
        return enqueue.run()
    where = API.list_prefetch_location(None if flags & _TO_HOST else device.native)
    return enqueue.run(lambda stream: enqueue.call("MemPrefetchAsync", pMem, size, *where, stream))


#: The driver's advice for that of Unified Runtime, and whether it is about the host.
_ADVICE: Final = {
    UR[f"UR_USM_ADVICE_FLAG_{name}"]: (get_constant(f"CU_MEM_ADVISE_{advice}"), host)
    for name, advice, host in (
        ("SET_READ_MOSTLY", "SET_READ_MOSTLY", False),
        ("CLEAR_READ_MOSTLY", "UNSET_READ_MOSTLY", False),
        ("SET_PREFERRED_LOCATION", "SET_PREFERRED_LOCATION", False),
        ("CLEAR_PREFERRED_LOCATION", "UNSET_PREFERRED_LOCATION", False),
        ("SET_PREFERRED_LOCATION_HOST", "SET_PREFERRED_LOCATION", True),
        ("CLEAR_PREFERRED_LOCATION_HOST", "UNSET_PREFERRED_LOCATION", True),
        ("SET_ACCESSED_BY_DEVICE", "SET_ACCESSED_BY", False),
        ("CLEAR_ACCESSED_BY_DEVICE", "UNSET_ACCESSED_BY", False),
        ("SET_ACCESSED_BY_HOST", "SET_ACCESSED_BY", True),
        ("CLEAR_ACCESSED_BY_HOST", "UNSET_ACCESSED_BY", True),
    )
}


@adapter.entry
def urEnqueueUSMAdvise(
    hQueue: CuQueue, pMem: int, size: int, advice: int, phEvent: bool
) -> CuEvent | None:
    device = hQueue.device
    managed = _is_managed(hQueue.context, pMem, size)
    if managed and device.query_attribute("CONCURRENT_MANAGED_ACCESS"):
        for flag, (number, host) in _ADVICE.items():
            if advice & flag:
                place = API.list_location(None if host else device.native)
                device.call("MemAdvise", pMem, size, number, *place)
    return CuEnqueue(hQueue, "USM_ADVISE", (), phEvent).run()
