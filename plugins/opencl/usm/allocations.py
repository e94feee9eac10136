"""USM of the OpenCL adapter, memory that is used by its address: allocated, freed, looked up,
imported from the program.

A free waits for the queues of the context, because a kernel may use any memory. Memory that is
still allocated when its context is closed is not freed.

(Unified Runtime: USM, EXP-USM-IMPORT-RELEASE, EXP-USM-CONTEXT-MEMCPY, EXP-USM-HOST-ALLOC-REGISTER.)
"""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from typing import Any, Final

from ...sdk._native import ffi, lib
from ...sdk.usm import (
    USM_KINDS,
    declare_allocation,
    declare_imports,
    declare_memory_query,
    find_memory_descriptor,
    make_release,
    read_chained_flags,
)
from ..contexts import URContext
from ..core import adapter, failure
from ..devices import URDevice
from ..queues import drain_queues
from .addresses import locate
from .registry import add, find, find_foreign, free, remove
from .strategies import can_use_host_memory, find_strategy, find_svm_flags, require_strategy
from .strategy import Allocation, AllocationRequest, Hints, Strategy


def _read_hints(descriptor: Any) -> Hints:
    """Return what a ur_usm_desc_t asks for. Raises URError (INVALID_ENUMERATION)."""
    if not descriptor or not descriptor.pNext:
        return Hints()

    host, device = (read_chained_flags(descriptor, kind) for kind in ("host", "device"))
    place = find_memory_descriptor(descriptor, "alloc_location")
    return Hints(host, device, place.location if place else None)


_limits: Final[weakref.WeakKeyDictionary[URDevice, tuple[int, int]]] = weakref.WeakKeyDictionary()


def query_limits(device: URDevice) -> tuple[int, int]:
    """Return a device's largest allocation and its largest data type, both in bytes."""
    found = _limits.get(device)
    if found is None:
        names = "CL_DEVICE_MAX_MEM_ALLOC_SIZE", "CL_DEVICE_MIN_DATA_TYPE_ALIGN_SIZE"
        found = _limits[device] = (device.icd.info(names[0]), device.icd.info(names[1]) or 128)
    return found


def allocate(
    context: URContext,
    kind: str,
    device: URDevice | None,
    descriptor: Any,
    pool: Any,
    size: int,
    align: int = 0,
) -> int:
    """Allocate memory, and return its address.

    Args:
        kind: "host", "device" or "shared".
        device: its device, None for host memory.
        descriptor: a pointer to a ur_usm_desc_t, or None.
        pool: a `URPool`, or None.
        size: bytes.
        align: a power of two, where there is no descriptor. 0 is any alignment.

    Raises:
        URError: INVALID_USM_SIZE, INVALID_VALUE, or INVALID_OPERATION for a kind
            that the devices do not have.
    """
    devices: Sequence[URDevice] = (device,) if device is not None else context.devices
    limits = [query_limits(one) for one in devices]
    if any(size > largest for largest, _ in limits):
        raise failure("INVALID_USM_SIZE", f"{size} bytes")
    strategy = require_strategy(context)
    if not all(strategy.support(one).get(kind) for one in devices):
        raise failure("INVALID_OPERATION", f"the device has no {kind} USM")
    align = descriptor.align if descriptor else align
    request = AllocationRequest(context, kind, device, size, align, _read_hints(descriptor))

    def make_allocation() -> Allocation:
        if strategy.aligns_freely or align <= min(alignment for _, alignment in limits):
            return strategy.allocate(request)
        allocation = strategy.allocate(request._replace(size=size + align, align=0))
        allocation.padding = -allocation.base % align
        allocation.base += allocation.padding
        allocation.size = size
        return allocation

    made = add(make_allocation() if pool is None else pool.take(request, make_allocation))
    if not context.struct.device_count:
        _describe_devices_to_c(context, strategy)
    return made.base


def _describe_devices_to_c(context: URContext, strategy: type[Strategy]) -> None:
    """Tell C what can be allocated in a context."""
    struct = context.struct
    if struct.usm == lib.FL_USM_OTHER or context.platform.profile.svm_needs_lock:
        return
    supports = [strategy.support(device) for device in context.devices]
    kinds = [
        sum(1 << number for kind, number in USM_KINDS.items() if support.get(kind))
        for support in supports
    ]
    rows = [
        (device.cl, *query_limits(device), bits)
        for device, bits in zip(context.devices, kinds, strict=True)
    ]
    struct.svm_flags = find_svm_flags(context)
    context.usm_devices = struct.devices = ffi.new("fl_usm_device[]", rows)
    struct.device_count = len(rows)  # last: a thread that reads it may read the others
    if len(rows) == 1:  # the next context has it from the beginning
        memory = context.devices[0].memory
        memory.device, memory.svm_flags = rows[0], struct.svm_flags
        memory.usm = struct.usm


def _query_line(device: URDevice) -> int:
    return device.icd.info("CL_DEVICE_GLOBAL_MEM_CACHELINE_SIZE") or 64


declare_allocation(adapter, allocate, _query_line)


#: Gives memory that was removed to its pool, or else to the driver. With `wait` the driver may wait
#: until it knows that nothing uses the memory. It raises OpenCLError.
release_memory: Final = make_release(free)


def _find(context: URContext, address: int) -> Allocation | None:
    return find(context, address) or find_foreign(context, find_strategy(context), address)


declare_memory_query(adapter, _find)


# host memory that the program allocates itself


def _import_memory(context: URContext, address: int, size: int) -> None:
    strategy = find_strategy(context)
    if strategy is None or not can_use_host_memory(context):
        raise failure(
            "UNSUPPORTED_FEATURE", "the devices use no memory but what is allocated for them"
        )
    add(
        AllocationRequest(context, "host", None, size).make_allocation(
            address, strategy, imported=True
        )
    )


def _forget_imported(context: URContext, allocation: Allocation) -> None:
    drain_queues(context=context)
    remove(context, allocation.base)


declare_imports(adapter, locate=locate, take=_import_memory, forget=_forget_imported, find=find)
