"""Pools of USM of the OpenCL adapter, and allocations and frees in a queue's order.

An enqueued allocation is made at once. An enqueued free happens in the queue's order.

(Unified Runtime: USM pools, EXP-ASYNC-ALLOC.)
"""

from __future__ import annotations

from functools import partial

from ...sdk.pools import PoolEntryPoints, USMPool, make_immediate
from ...sdk.transfers import Location
from ...sdk.usm import declare_frees
from ..contexts import URContext
from ..core import adapter
from ..enqueue import Enqueue, enqueues
from ..events import UREvent, call_on_status
from ..queues import create_queue, drain_queues
from .allocations import allocate, release_memory
from .registry import add, find, free, remove
from .strategy import Allocation, AllocationRequest
from .transfers import fill


@adapter.kind
class URPool(USMPool):
    """A pool of a context, or of one device of it."""

    def is_of(self, context: URContext) -> bool:
        return context.cl == self.context.cl

    def zero(self, allocation: Allocation, request: AllocationRequest) -> None:
        device = request.device or self.context.devices[0]
        queue = create_queue(self.context, device, 0)
        place = Location(allocation.base, allocation)
        fill(Enqueue(queue, "USM_FILL"), place, b"\0", allocation.size)
        queue.drain()

    def free(self, allocation: Allocation) -> None:
        free(allocation)


pools = PoolEntryPoints(adapter, URPool)
pools.declare_allocations(
    enqueues.declare, make_immediate(allocate, Enqueue.mark, release_memory, remove)
)


def _free_later(enqueue: Enqueue, allocation: Allocation) -> UREvent:
    queue = enqueue.queue
    event = queue.mark(enqueue.waits, enqueue.command)
    call_on_status(event.cl, queue.table, 0, lambda status: release_memory(allocation))
    queue.flush()  # a callback does not flush (SPEC clSetEventCallback)
    return event


declare_frees(
    enqueues,
    drain=lambda context: drain_queues(context=context),
    release=partial(release_memory, wait=True),
    free_later=_free_later,
    add=add,
    find=find,
    remove=remove,
)
