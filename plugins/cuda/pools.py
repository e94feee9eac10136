"""Pools of USM, and allocations and frees in a queue's order."""

from __future__ import annotations

from ..sdk.pools import PoolEntryPoints, USMPool
from .allocations import CuAllocation, CuRequest, add, free, remove
from .captures import refuse_capture
from .core import adapter, failure
from .enqueue import CuEnqueue, declare_enqueue, enqueues
from .events import CuEvent
from .usm import allocate_usm, release_memory


@adapter.kind
class CuPool(USMPool):
    """A pool of a context, or of one device of it."""

    keeps_context = False

    def zero(self, allocation: CuAllocation, request: CuRequest) -> None:
        owner = allocation.owner
        stream = owner.clock_stream.handle
        owner.call("MemsetD8Async", allocation.base, 0, allocation.size, stream)
        owner.call("StreamSynchronize", stream)

    def free(self, allocation: CuAllocation) -> None:
        free(allocation)


pools = PoolEntryPoints(adapter, CuPool)
pools.declare_allocations(declare_enqueue, allocate_usm, CuEnqueue.run, remove, release_memory)


@enqueues("ENQUEUE_USM_FREE_EXP")
def urEnqueueUSMFreeExp(enqueue: CuEnqueue, pPool: CuPool | None, pMem: int) -> CuEvent | None:
    """Free memory when the queue has come there. The memory is gone for the program at once.

    The driver's free waits for what is enqueued, and a pool may give the memory to another queue.
    So the host waits here.
    """
    context = enqueue.queue.context
    refuse_capture(enqueue.queue, "free memory", enqueue.waits)
    allocation = remove(context, pMem)
    try:
        if pPool is not None and allocation.pool is not pPool:
            raise failure("INVALID_VALUE", "the memory is of another pool")
        enqueue.wanted, wanted = True, enqueue.wanted
        event = enqueue.run()
        assert event is not None
        event.wait()
    except BaseException:
        add(allocation)
        raise
    release_memory(allocation)
    return event if wanted else None
