"""Adapter on Level Zero: commands that neither move data nor launch kernels: waits, barriers, time
stamps, host tasks.
"""

from __future__ import annotations

import ctypes
from typing import Any, Final

from .captures import refuse_capture
from .core import adapter, failure
from .enqueue import LZEnqueue, enqueues
from .events import LZEvent
from .queues import BARRIER, LZQueue

_NativeEnqueue: Final = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p)


def _enqueue_barrier(enqueue: LZEnqueue) -> LZEvent | None:
    return enqueue.mark()


enqueues.declare("urEnqueueEventsWait", "EVENTS_WAIT", _enqueue_barrier)
for _name in ("urEnqueueEventsWaitWithBarrier", "urEnqueueEventsWaitWithBarrierExt"):
    enqueues.declare(_name, "EVENTS_WAIT_WITH_BARRIER", _enqueue_barrier)


@adapter.entry
def urEnqueueTimestampRecordingExp(
    hQueue: LZQueue, blocking: bool, phEventWaitList: list[LZEvent]
) -> LZEvent:
    """Enqueue a barrier whose event has times, also if the queue does not profile."""
    refuse_capture(hQueue, "record the time", phEventWaitList)
    event = hQueue.make_event("TIMESTAMP_RECORDING_EXP")
    event.cell = event.first = hQueue.context.take_cell(timed=True)
    event.timed = event.is_time_stamp = True
    event.queued = event.queued or hQueue.device.read_clocks()[1]
    hQueue.append(BARRIER, waits=hQueue.list_cells(phEventWaitList), cell=event.cell)
    if blocking:
        event.wait()
    return event


@enqueues("HOST_TASK_EXP")
def urEnqueueHostTaskExp(enqueue: LZEnqueue, pfnHostTask: int, data: int) -> LZEvent | None:
    routine = "zeCommandListAppendHostFunction"
    if not enqueue.queue.context.platform.has(routine):
        raise failure("UNSUPPORTED_FEATURE", f"the driver has no {routine}")
    return enqueue.call(routine, pfnHostTask, data or None, None)


@enqueues("ENQUEUE_NATIVE_EXP")
def urEnqueueNativeCommandExp(
    enqueue: LZEnqueue, pfnNativeEnqueue: int, data: int, phMemList: list[Any]
) -> LZEvent | None:
    """Call a function that appends commands of its own, between two barriers."""
    enqueue.check_context("the memory", *phMemList)
    queue = enqueue.queue
    queue.append(BARRIER, waits=queue.list_cells(enqueue.waits))
    _NativeEnqueue(pfnNativeEnqueue)(queue.handle, data)
    enqueue.waits = ()
    return enqueue.mark()
