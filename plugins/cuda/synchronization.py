"""CUDA and HIP: commands that neither move data nor launch kernels: waits, barriers, time stamps,
host tasks.
"""

from __future__ import annotations

import ctypes
from typing import Any, Final

from ...loader.ur.abi import UR
from .captures import refuse_capture
from .clocks import make_base, make_event
from .core import API, adapter, check, find_routine
from .enqueue import CuEnqueue, enqueues
from .events import CuEvent, wait_on
from .queues import CuQueue

_TIME_STAMP: Final = UR["UR_COMMAND_TIMESTAMP_RECORDING_EXP"]
_NativeEnqueue: Final = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p)


@enqueues("EVENTS_WAIT")
def urEnqueueEventsWait(enqueue: CuEnqueue) -> CuEvent | None:
    """Wait for events, or for everything in the queue if there are none."""
    queue = enqueue.queue
    if enqueue.waits or queue.in_order:
        return enqueue.run()
    with queue.lock, queue.device.make_current():
        stream = queue.choose(())
        if queue.part is not None:
            queue.part.gather()
        else:
            queue.join(stream, queue.streams)
        event = enqueue.begin(stream)
        enqueue.end(stream, event)
    return event


def _enqueue_barrier(enqueue: CuEnqueue) -> CuEvent | None:
    """Let everything that follows wait for events, or for everything before it."""
    queue = enqueue.queue
    if queue.in_order:
        return enqueue.run()
    with queue.lock, queue.device.make_current():
        queue.check_waits(enqueue.waits)
        stream, part = queue.streams[0], queue.part
        if part is not None:
            part.start(enqueue.waits) if enqueue.waits else part.gather()
            part.set_barrier()
            event = enqueue.begin(stream)
            enqueue.end(stream, event)
            return event
        if enqueue.waits:
            wait_on(stream, enqueue.waits)
        else:
            queue.join(stream, queue.streams)
        event = enqueue.begin(stream)
        enqueue.end(stream, event)
        for other in queue.streams[1:]:
            queue.join(other, [stream])
            queue.note_tail(other, 0)
    return event


for _name in ("urEnqueueEventsWaitWithBarrier", "urEnqueueEventsWaitWithBarrierExt"):
    enqueues.declare(_name, "EVENTS_WAIT_WITH_BARRIER", _enqueue_barrier)


@adapter.entry
def urEnqueueTimestampRecordingExp(
    hQueue: CuQueue, blocking: bool, phEventWaitList: list[CuEvent]
) -> CuEvent:
    """Record the device's time, on queues that do not profile, too."""
    refuse_capture(hQueue, "record the time", phEventWaitList)
    enqueue = CuEnqueue(hQueue, "TIMESTAMP_RECORDING_EXP", phEventWaitList, True, bool(blocking))
    device = hQueue.device
    base = make_base(device)

    def record(stream: int) -> None:
        enqueue.call("EventRecord", made.end, stream)

    with device.make_current():
        made = CuEvent(hQueue.context, device, make_event(device, True), hQueue, base=base)
    enqueue.wanted = False
    enqueue.run(record)
    made.command = _TIME_STAMP
    return made


@enqueues("HOST_TASK_EXP")
def urEnqueueHostTaskExp(enqueue: CuEnqueue, pfnHostTask: int, data: int) -> CuEvent | None:
    """Run a host function in the queue's order. It must not call the driver."""
    device = enqueue.queue.device

    def work(stream: int) -> None:
        check(API.call_host(device, stream, pfnHostTask, data), find_routine("LaunchHostFunc"))

    return enqueue.run(work)


@enqueues("ENQUEUE_NATIVE_EXP")
def urEnqueueNativeCommandExp(
    enqueue: CuEnqueue, pfnNativeEnqueue: int, data: int, phMemList: list[Any]
) -> CuEvent | None:
    """Call a function that enqueues on the queue's native handle, between two barriers."""
    enqueue.check_context("the memory", *phMemList)
    queue, wanted = enqueue.queue, enqueue.wanted
    enqueue.wanted = False
    _enqueue_barrier(enqueue)
    _NativeEnqueue(pfnNativeEnqueue)(queue.handle, data)
    if queue.part is not None:
        queue.part.note(None)
    enqueue.wanted, enqueue.waits = wanted, ()
    return _enqueue_barrier(enqueue)
