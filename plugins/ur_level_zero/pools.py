"""Pools of USM of the adapter on Level Zero, and allocations and frees in a queue's order. Level
Zero itself has no pools.
"""

from __future__ import annotations

from ..sdk.pools import PoolEntryPoints, USMPool, make_immediate
from .allocations import LZAllocation, LZRequest, add, free, release_memory, remove
from .captures import refuse_capture
from .contexts import LZContext
from .core import adapter, failure
from .enqueue import LZEnqueue, enqueues
from .events import LZEvent
from .operations import fill
from .queues import create_queue
from .transfers import enqueue_operation
from .usm import allocate_usm


@adapter.kind
class LZPool(USMPool):
    """A pool of a context, or of one device of it."""

    def is_of(self, context: LZContext) -> bool:
        return context.ze == self.context.ze

    def zero(self, allocation: LZAllocation, request: LZRequest) -> None:
        device = request.device or self.context.devices[0]
        enqueue = LZEnqueue(create_queue(self.context, device, 0), "USM_FILL", blocking=True)
        enqueue_operation(enqueue, fill(device, allocation.base, b"\0", allocation.size))

    def free(self, allocation: LZAllocation) -> None:
        free(allocation)


pools = PoolEntryPoints(adapter, LZPool)
pools.declare_allocations(
    enqueues.declare, make_immediate(allocate_usm, LZEnqueue.mark, remove, release_memory)
)


@enqueues("ENQUEUE_USM_FREE_EXP")
def urEnqueueUSMFreeExp(enqueue: LZEnqueue, pPool: LZPool | None, pMem: int) -> LZEvent | None:
    """Free memory when the queue has come there. The memory is gone for the program at once.

    Level Zero calls nobody when a command has ended. So this waits.
    """
    refuse_capture(enqueue.queue, "free memory", enqueue.waits)
    allocation = remove(enqueue.queue.context, pMem)
    try:
        if pPool is not None and allocation.pool is not pPool:
            raise failure("INVALID_VALUE", "the memory is of another pool")
        enqueue.blocking = True
        event = enqueue.mark()
    except BaseException:
        add(allocation)
        raise
    release_memory(allocation)
    return event if enqueue.wanted else None
