"""OpenCL adapter: commands that neither move data nor launch kernels: waits, barriers, time stamps,
host tasks.
"""

from __future__ import annotations

from typing import Final

from ...loader.ur.abi import UR
from ..sdk.queues import declare_synchronization
from .core import create
from .enqueue import Enqueue, enqueues
from .events import UREvent, call_host_function, call_on_status
from .queues import BARRIER, URQueue, create_queue

_MARKER: Final = "clEnqueueMarkerWithWaitList"
_PROFILING: Final = UR["UR_QUEUE_FLAG_PROFILING_ENABLE"]


def _record_time(queue: URQueue, waits: list[UREvent]) -> UREvent:
    """Enqueue a marker, and a second one behind it if the first has no time.

    The first has none if its queue does not profile, or if the driver does not time a marker that
    waits. The second is in a new in-order queue that profiles.
    """
    event = queue.mark(waits, "TIMESTAMP_RECORDING_EXP")
    queue.flush()
    untimed = waits and queue.context.platform.profile.waiting_markers_have_no_times
    if untimed or not queue.flags & _PROFILING:
        clock = create_queue(queue.context, queue.device, _PROFILING)
        clock.mark([event])
        event = clock.mark(command="TIMESTAMP_RECORDING_EXP")
        clock.flush()
        event.queue = queue
    event.is_time_stamp = True
    return event


def _call_host(enqueue: Enqueue, function: int, data: int) -> UREvent | None:
    """Run a host function in the queue's order.

    The callback of a marker runs it and completes a user event. Everything after it in the queue
    waits for that event.
    """
    queue = enqueue.queue
    before = queue.mark(enqueue.waits)
    done = UREvent(create(queue.table, "clCreateUserEvent", queue.context.cl), queue.context)

    def run(status: int) -> None:
        # NVIDIA's driver calls back with 0 for a failed event, whose own status is right.
        status = min(status, before.status, 0)
        try:
            if status >= 0:
                call_host_function(function, data)
        finally:
            queue.table.clSetUserEventStatus(done.cl, status)
            before.finish()

    # The callback comes first: if it fails, nothing is enqueued that would wait for ever.
    call_on_status(before.cl, queue.table, 0, run)
    enqueue.waits = [done]
    made = enqueue.call(BARRIER if queue.in_order else _MARKER)
    queue.flush()  # a callback does not flush (SPEC clSetEventCallback)
    return made


declare_synchronization(
    enqueues,
    wait=lambda enqueue: enqueue.call(_MARKER),
    barrier=lambda enqueue: enqueue.call(BARRIER),
    record_time=_record_time,
    call_host=_call_host,
)
