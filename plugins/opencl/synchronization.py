"""OpenCL adapter: commands that neither move data nor launch kernels: waits, barriers, time stamps,
host tasks.
"""

from __future__ import annotations

import ctypes
from typing import Any, Final

from ...loader.ur.abi import UR
from .core import adapter, create
from .enqueue import Enqueue, enqueues
from .events import UREvent, call_host_function, call_on_status
from .queues import BARRIER, URQueue, create_queue

_MARKER: Final = "clEnqueueMarkerWithWaitList"
_PROFILING: Final = UR["UR_QUEUE_FLAG_PROFILING_ENABLE"]
_NativeEnqueue: Final = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p)


@adapter.entry
def urEnqueueEventsWait(
    hQueue: URQueue, phEventWaitList: list[UREvent], phEvent: bool
) -> UREvent | None:
    return hQueue.enqueue(_MARKER, "EVENTS_WAIT", (), phEventWaitList, phEvent)


def _enqueue_barrier(
    hQueue: URQueue, phEventWaitList: list[UREvent], phEvent: bool
) -> UREvent | None:
    return hQueue.enqueue(BARRIER, "EVENTS_WAIT_WITH_BARRIER", (), phEventWaitList, phEvent)


adapter.declare(
    urEnqueueEventsWaitWithBarrier=_enqueue_barrier,
    urEnqueueEventsWaitWithBarrierExt=_enqueue_barrier,
)


@adapter.entry
def urEnqueueTimestampRecordingExp(
    hQueue: URQueue, blocking: bool, phEventWaitList: list[UREvent]
) -> UREvent:
    """Enqueue a marker, and a second one behind it if the first has no time.

    The first has none if its queue does not profile, or if the driver does not time a marker that
    waits. The second is in a new in-order queue that profiles.
    """
    event = hQueue.mark(phEventWaitList, "TIMESTAMP_RECORDING_EXP")
    hQueue.flush()
    untimed = phEventWaitList and hQueue.context.platform.profile.waiting_markers_have_no_times
    if untimed or not hQueue.flags & _PROFILING:
        clock = create_queue(hQueue.context, hQueue.device, _PROFILING)
        clock.mark([event])
        event = clock.mark(command="TIMESTAMP_RECORDING_EXP")
        clock.flush()
        event.queue = hQueue
    event.is_time_stamp = True
    if blocking:
        event.wait()
    return event


@enqueues("HOST_TASK_EXP")
def urEnqueueHostTaskExp(enqueue: Enqueue, pfnHostTask: int, data: int) -> UREvent | None:
    """Run a host function in the queue's order.

    The callback of a marker runs it and completes a user event. Everything after it in the queue
    waits for that event.
    """
    queue = enqueue.queue
    before = queue.mark(enqueue.waits)
    done = UREvent(create(queue.table, "clCreateUserEvent", queue.context.cl), queue.context)

    def run(status: int) -> None:
        # NVIDIA's driver calls back with 0 for a failed event, whose own status is right. Of
        # Intel's it is the other way round.
        status = min(status, before.status, 0)
        try:
            if status >= 0:
                call_host_function(pfnHostTask, data)
        finally:
            queue.table.clSetUserEventStatus(done.cl, status)
            before.finish()

    # The callback comes first: if it fails, nothing is enqueued that would wait for ever.
    call_on_status(before.cl, queue.table, 0, run)
    enqueue.waits = [done]
    made = enqueue.call(BARRIER if queue.in_order else _MARKER)
    queue.flush()  # a callback does not flush (SPEC clSetEventCallback)
    return made


@enqueues("ENQUEUE_NATIVE_EXP")
def urEnqueueNativeCommandExp(
    enqueue: Enqueue, pfnNativeEnqueue: int, data: int, phMemList: list[Any]
) -> UREvent | None:
    """Call a function that enqueues commands of its own, between two barriers."""
    enqueue.check_context("the memory", *phMemList)
    queue = enqueue.queue
    queue.enqueue(BARRIER, "EVENTS_WAIT_WITH_BARRIER", (), enqueue.waits, False)
    _NativeEnqueue(pfnNativeEnqueue)(queue.handle, data)
    enqueue.waits = ()
    return enqueue.call(BARRIER)
