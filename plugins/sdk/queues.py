"""Queues of all adapters: how they are made, and waits for them. Commands that neither move data
nor launch kernels: waits, barriers, time stamps, host tasks, and commands that a function enqueues
itself.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any, Final

from .adapter import Adapter
from .families import EnqueueFamily

_INFO: Final = {
    "UR_QUEUE_INFO_CONTEXT": lambda queue: queue.context,
    "UR_QUEUE_INFO_DEVICE": lambda queue: queue.device,
    "UR_QUEUE_INFO_FLAGS": lambda queue: queue.flags,
    "UR_QUEUE_INFO_REFERENCE_COUNT": lambda queue: queue.references,
    "UR_QUEUE_INFO_EMPTY": lambda queue: queue.is_empty,
}


def declare_queues(
    adapter: Adapter,
    *,
    create: Callable[[Any, Any, int], Any],
    take_native: Callable[[int, Any, Any, Any], Any],
    finish: Callable[[Any], None],
    flush: Callable[[Any], object],
    drain_device: Callable[[Any], None],
) -> None:
    """Declare how queues are made, waits for them, and the queries about them.

    Args:
        create: gets a context, a device and ur_queue_flags_t.
        take_native: gets a native handle, a context, a device or None, and properties.
        finish: waits for everything in a queue.
        flush: starts what is enqueued.
        drain_device: waits for everything on a device.
    """
    adapter.declare(
        urQueueCreate=lambda hContext, hDevice, pProperties: create(
            hContext, hDevice, pProperties.flags if pProperties else 0
        ),
        urQueueCreateWithNativeHandle=lambda hNativeQueue, hContext, hDevice, pProperties: (
            take_native(hNativeQueue, hContext, hDevice, pProperties)
        ),
        urQueueFinish=lambda hQueue: finish(hQueue),
        urQueueFlush=lambda hQueue: flush(hQueue),
        urDeviceWaitExp=lambda hDevice: drain_device(hDevice),
    )
    adapter.info("urQueueGetInfo", _INFO)


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
