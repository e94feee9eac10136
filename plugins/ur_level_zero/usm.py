"""USM of the adapter on Level Zero: allocated, freed, queried, imported; pools, and allocations and
frees in a queue's order. Level Zero itself has no pools.
"""

from __future__ import annotations

from typing import Final

from ..sdk.pools import PoolEntryPoints, USMPool, make_immediate
from ..sdk.usm import (
    AllocationObject,
    Allocator,
    MemoryRequest,
    declare_allocation,
    declare_frees,
    declare_imports,
    declare_memory_query,
    find_known,
)
from .allocations import allocate, forget_imported, free, import_memory, locate, release_memory
from .captures import refuse_capture
from .contexts import LZContext
from .core import adapter
from .enqueue import LZEnqueue, enqueues
from .events import LZEvent
from .queues import create_queue
from .transfers import enqueue_operation, fill
from .unfinished_queues import drain_queues

_SUPPORT: Final = {
    "host": "hostAllocCapabilities",
    "device": "deviceAllocCapabilities",
    "shared": "sharedSingleDeviceAllocCapabilities",
}


allocator: Final = Allocator(
    allocate,
    find_largest=lambda device: device.properties.maxMemAllocSize,
    has_kind=lambda device, kind: bool(getattr(device.access, _SUPPORT[kind])),
)
declare_allocation(adapter, allocator.allocate, lambda device: 64)


declare_memory_query(adapter, find_known)
declare_imports(adapter, locate=locate, take=import_memory, forget=forget_imported)


@adapter.kind
class LZPool(USMPool):
    """A pool of a context, or of one device of it."""

    def is_of(self, context: LZContext) -> bool:
        return context.ze == self.context.ze

    def zero(self, allocation: AllocationObject, request: MemoryRequest) -> None:
        device = request.device or self.context.devices[0]
        enqueue = LZEnqueue(create_queue(self.context, device, 0), "USM_FILL", blocking=True)
        enqueue_operation(enqueue, fill(device, allocation.base, b"\0", allocation.size))

    def free(self, allocation: AllocationObject) -> None:
        free(allocation)


pools = PoolEntryPoints(adapter, LZPool)
pools.declare_allocations(
    enqueues.declare, make_immediate(allocator.allocate, LZEnqueue.mark, release_memory)
)


def _free_later(enqueue: LZEnqueue, allocation: AllocationObject) -> LZEvent | None:
    """Free memory when the queue has come there. The memory is gone for the program at once.

    Level Zero calls nobody when a command has ended. So this waits.
    """
    refuse_capture(enqueue.queue, "free memory", enqueue.waits)
    enqueue.blocking = True
    event = enqueue.mark()
    release_memory(allocation)
    return event if enqueue.wanted else None


declare_frees(
    enqueues,
    drain=lambda context: drain_queues(context=context),
    release=release_memory,
    free_later=_free_later,
)
