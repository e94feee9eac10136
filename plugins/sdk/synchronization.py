"""Commands of all adapters that neither move data nor launch kernels.

They are waits, barriers, time stamps, host tasks, and commands that a function enqueues itself.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any, Final

from .families import EnqueueFamily

#: void (*)(ur_queue_handle_t queue, void *data), the function of urEnqueueNativeCommandExp.
_NativeEnqueue: Final = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p)


def declare_synchronization(
    enqueues: EnqueueFamily,
    *,
    wait: Callable[[Any], Any],
    barrier: Callable[[Any], Any],
    record_time: Callable[[Any, list[Any]], Any],
    call_host: Callable[[Any, int, int], Any],
    after_native: Callable[[Any], None] = lambda queue: None,
) -> None:
    """Declare commands that neither move data nor launch kernels.

    Args:
        enqueues: the family of the adapter's entry points.
        wait: gets a call. It enqueues a wait for the events of the call, or without any for
            everything in the queue.
        barrier: does the same, and everything that follows waits for it.
        record_time: gets a queue and a wait list. It returns an event that has the device's time,
            on queues that do not profile, too.
        call_host: gets a call, the address of a function, and its argument. It lets the function be
            called in the queue's order.
        after_native: gets a queue, to which a function of the program has added commands.
    """

    def stamp(hQueue: Any, blocking: bool, phEventWaitList: list[Any]) -> Any:
        event = record_time(hQueue, phEventWaitList)
        if blocking:
            event.wait()
        return event

    def call_native(call: Any, function: int, data: int, memory: list[Any]) -> Any:
        """Call a function that enqueues commands of its own, between two barriers."""
        call.check_context("the memory", *memory)
        wanted, call.wanted = call.wanted, False
        barrier(call)
        _NativeEnqueue(function)(call.queue.handle, data)
        after_native(call.queue)
        call.wanted, call.waits = wanted, ()
        return barrier(call)

    enqueues.declare("urEnqueueEventsWait", "EVENTS_WAIT", wait)
    for name in ("urEnqueueEventsWaitWithBarrier", "urEnqueueEventsWaitWithBarrierExt"):
        enqueues.declare(name, "EVENTS_WAIT_WITH_BARRIER", barrier)
    enqueues.declare("urEnqueueHostTaskExp", "HOST_TASK_EXP", call_host, "pfnHostTask", "data")
    native = "pfnNativeEnqueue", "data", "phMemList"
    enqueues.declare("urEnqueueNativeCommandExp", "ENQUEUE_NATIVE_EXP", call_native, *native)
    enqueues.adapter.declare(urEnqueueTimestampRecordingExp=stamp)
