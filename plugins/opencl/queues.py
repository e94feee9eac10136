"""Queues, and what is enqueued that is no transfer and no launch: waits, barriers, time stamps, host tasks, native commands.

The commands of a queue go on after the program has released it. `drain_queues` waits for them too: a queue that is closed while
commands may run leaves a marker behind them (`_UnfinishedCommands`).
"""

from __future__ import annotations

import ctypes
import time
from collections.abc import Sequence
from contextlib import suppress
from typing import Any, Final
from weakref import WeakValueDictionary

from ...icd.abi import OPENCL
from ...icd.command_buffer.leaving import leave, release_ended
from ...icd.command_buffer.waiting import finish
from ...icd.command_buffer.waiting import wait as wait_for_event
from ...icd.errors import OpenCLError
from ...loader.ur.abi import UR
from .contexts import URContext, check_native
from .core import CLObject, adapter, check, create, failure, handles, query, retain_unless_owned
from .devices import URDevice, device_of
from .events import UREvent, call_host_function, call_on_status, waits_itself

_OUT_OF_ORDER: Final = UR["UR_QUEUE_FLAG_OUT_OF_ORDER_EXEC_MODE_ENABLE"]
_PROFILING: Final = UR["UR_QUEUE_FLAG_PROFILING_ENABLE"]
_NativeEnqueue: Final = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p)


@adapter.kind
class URQueue(CLObject):
    """A cl_command_queue. `flags` are those of its creation (ur_queue_flags_t)."""

    type = "ur_queue_handle_t"
    release, retain_function = "clReleaseCommandQueue", "clRetainCommandQueue"

    def __init__(
        self, cl: int, context: URContext, device: URDevice, flags: int, owned: bool = True
    ) -> None:
        super().__init__(cl, context.table, owned)
        self.context, self.device, self.flags = context, device, flags
        # commands so far, each counted after it was enqueued, since another thread may finish the queue; and how many had been then
        self.enqueued = self._finished = 0
        self.shared = (
            False  # whether the program has its native handle, by which it may enqueue too
        )
        self.borrowed = False  # whether it is the program's own, which only an event led to
        _queues[id(self)] = self

    @property
    def in_order(self) -> bool:
        """Whether its commands run in the order in which they are enqueued."""
        return not self.flags & _OUT_OF_ORDER

    def close(self) -> None:
        profile = self.context.platform.profile
        may_run = not self.borrowed and (self.shared or self.enqueued != self._finished)
        unfinished = _UnfinishedCommands.of(self) if may_run else None
        used = may_run or (self.enqueued and profile.final_release_delay is not None)
        if self.owned and not self.in_order and used:
            marker = 0
            if unfinished is not None and not self.shared:  # nobody enqueues after it
                marker = unfinished.cl
                check(self.table.clRetainEvent(marker), "clRetainEvent")
            leave(self.cl, profile, marker=marker, keep=self.device)
        else:
            super().close()

    def split_blocking(self, blocking: bool) -> tuple[bool, bool]:
        """For a command that is `blocking` to the program: whether it blocks in the driver, and
        whether we wait for its event afterwards."""
        by_us = waits_itself(self.context.platform)
        early = self.context.platform.profile.blocking_write_returns_early
        return bool(blocking and not by_us), bool(blocking and (by_us or early))

    def drain(self) -> None:
        """Wait until all that is enqueued is complete."""
        enqueued = self.enqueued
        if waits_itself(self.context.platform):
            finish(self.cl, self.in_order, self.context.platform.profile.waits_one_at_a_time)
        else:
            check(self.table.clFinish(self.cl), "clFinish")
        self._finished = enqueued

    @property
    def is_empty(self) -> bool:
        """Whether nothing is enqueued that is not complete. A driver does not tell: a marker does, as soon as it has run."""
        if self.enqueued == self._finished and not self.shared:
            return True
        enqueued, marker = (
            self.enqueued,
            self.enqueue("clEnqueueMarkerWithWaitList", "EVENTS_WAIT", (), (), True),
        )
        check(self.table.clFlush(self.cl), "clFlush")
        return marker is not None and marker.status == 0 and self.enqueued == enqueued + 1

    def check_waits(self, waits: Sequence[UREvent]) -> None:
        """Raise URError for events that a command of the queue cannot wait for: INVALID_CONTEXT for one of another context, with which
        Intel's driver crashes, and what `UREvent.check_usable` raises."""
        self.context.check_same("an event of the wait list", *waits)
        for event in waits:
            event.check_usable()

    def wait_list(self, waits: Sequence[UREvent]) -> tuple[int, Any]:
        """The wait list of a command that is enqueued now, as OpenCL takes it. Raises URError for an event that cannot be waited for."""
        if waits:
            self.check_waits(waits)
        return len(waits), handles(waits)

    def enqueue(
        self,
        routine: str,
        command: str,
        arguments: tuple[Any, ...],
        waits: Sequence[UREvent],
        wanted: bool,
    ) -> UREvent | None:
        """Call one of OpenCL's clEnqueue… functions with what lies between the queue and the wait list.

        `command` is the name of a ur_command_t after UR_COMMAND_; the event is only made if it is `wanted`. Raises URError,
        OpenCLError.
        """
        count, listed = self.wait_list(waits)
        made = ctypes.c_void_p()
        out = ctypes.byref(made) if wanted else None
        check(getattr(self.table, routine)(self.cl, *arguments, count, listed, out), routine)
        self.enqueued += 1
        return (
            UREvent(made.value or 0, self.context, self, UR[f"UR_COMMAND_{command}"])
            if wanted
            else None
        )


#: The queues that exist, by their `id`. A released queue exists as long as an event of its commands holds it.
_queues: Final[WeakValueDictionary[int, URQueue]] = WeakValueDictionary()


class _UnfinishedCommands(CLObject):
    """The commands of a closed queue: the event of a marker behind them.

    It holds the device, which some drivers delete while a queue of it has commands, but not the context: the program's
    deleters must not wait for it.
    """

    type = ""
    release, retain_function = "clReleaseEvent", "clRetainEvent"

    def __init__(self, cl: int, queue: URQueue) -> None:
        super().__init__(cl, queue.table)
        self.context_cl, self.device, self.in_order = queue.context.cl, queue.device, queue.in_order

    @classmethod
    def of(cls, queue: URQueue) -> _UnfinishedCommands | None:
        """Remember the commands of a queue that is closed now. Nothing is waited for.

        The answer is None if the driver refuses a marker.
        """
        cls.forget_ended()
        marker = ctypes.c_void_p()
        code = queue.table.clEnqueueMarkerWithWaitList(queue.cl, 0, None, ctypes.byref(marker))
        if code or not marker.value:
            return None
        queue.table.clFlush(queue.cl)
        unfinished = cls(marker.value, queue)
        _unfinished[id(unfinished)] = unfinished
        return unfinished

    @staticmethod
    def forget_ended() -> None:
        """Release the markers that are complete."""
        for key, one in list(_unfinished.items()):
            with suppress(OpenCLError):
                status = ctypes.c_int32.from_buffer_copy(
                    one.query("CL_EVENT_COMMAND_EXECUTION_STATUS")
                )
                if status.value <= 0:
                    _unfinished.pop(key, None)

    def wait(self) -> None:
        """Wait until the commands have ended. That one of them failed is no error here."""
        with suppress(OpenCLError):
            if waits_itself(self.device.platform):
                one_at_a_time = self.device.platform.profile.waits_one_at_a_time
                wait_for_event(self.cl, self.in_order, one_at_a_time)
            else:
                check(self.table.clWaitForEvents(1, handles([self])), "clWaitForEvents")


_unfinished: Final[dict[int, _UnfinishedCommands]] = {}
adapter.on_close.append(_unfinished.clear)


def drain_queues(*, context: URContext | None = None, device: URDevice | None = None) -> None:
    """Wait for the commands of all queues of a context, or to a device and its sub-devices.

    The queues that the program has released are among them. Raises OpenCLError.
    """

    def is_meant(context_cl: int, of: URDevice) -> bool:
        return (context is None or context_cl == context.cl) and (
            device is None or of.is_part_of(device)
        )

    for reference in _queues.valuerefs():
        queue = reference()
        # A weak reference leads to an object until its finalizer has returned.
        if queue is None or queue.is_closed:
            continue
        if is_meant(queue.context.cl, queue.device):
            queue.drain()
    for one in list(_unfinished.values()):  # second: a queue that was closed meanwhile is here
        if is_meant(one.context_cl, one.device):
            one.wait()


_PATIENCE: Final = 1.0  # seconds for commands that may wait for something that never comes


def _release_all() -> None:
    deadline = time.monotonic() + _PATIENCE
    while release_ended() and time.monotonic() < deadline:
        time.sleep(0.001)


adapter.on_close.append(_release_all)


def create_queue(context: URContext, device: URDevice, flags: int) -> URQueue:
    """A new queue. Raises OpenCLError; URError (INVALID_QUEUE_PROPERTIES) for flags that the device does not have."""
    release_ended()
    _UnfinishedCommands.forget_ended()
    bits = 0
    if flags & _OUT_OF_ORDER:
        bits |= OPENCL["CL_QUEUE_OUT_OF_ORDER_EXEC_MODE_ENABLE"]
    if flags & _PROFILING:
        bits |= OPENCL["CL_QUEUE_PROFILING_ENABLE"]
    if device.platform.icd.version_number >= (2, 0):
        properties = (ctypes.c_uint64 * 3)(OPENCL["CL_QUEUE_PROPERTIES"], bits, 0)
        cl = create(
            context.table, "clCreateCommandQueueWithProperties", context.cl, device.cl, properties
        )
    else:
        cl = create(context.table, "clCreateCommandQueue", context.cl, device.cl, bits)
    return URQueue(cl, context, device, flags)


#: Flags that contradict each other, and those of which a host's queue can have none.
_CONTRADICTIONS: Final = (
    ("UR_QUEUE_FLAG_PRIORITY_LOW", "UR_QUEUE_FLAG_PRIORITY_HIGH"),
    ("UR_QUEUE_FLAG_SUBMISSION_BATCHED", "UR_QUEUE_FLAG_SUBMISSION_IMMEDIATE"),
)
_ON_DEVICE: Final = UR["UR_QUEUE_FLAG_ON_DEVICE"] | UR["UR_QUEUE_FLAG_ON_DEVICE_DEFAULT"]


@adapter.entry
def urQueueCreate(hContext: URContext, hDevice: URDevice, pProperties: Any) -> URQueue:
    hContext.check_device(hDevice)
    flags = pProperties.flags if pProperties else 0
    for pair in _CONTRADICTIONS:
        if all(flags & UR[name] for name in pair):
            raise failure("INVALID_QUEUE_PROPERTIES", " and ".join(pair))
    if flags & _ON_DEVICE:
        raise failure(
            "INVALID_QUEUE_PROPERTIES", "queues on the device are not for the host to fill"
        )
    return create_queue(hContext, hDevice, flags)


adapter.info(
    "urQueueGetInfo",
    {
        "UR_QUEUE_INFO_CONTEXT": lambda queue: queue.context,
        "UR_QUEUE_INFO_DEVICE": lambda queue: queue.device,
        "UR_QUEUE_INFO_FLAGS": lambda queue: queue.flags,
        "UR_QUEUE_INFO_REFERENCE_COUNT": lambda queue: queue.references,
        "UR_QUEUE_INFO_EMPTY": lambda queue: queue.is_empty,
    },
)


@adapter.entry
def urQueueFinish(hQueue: URQueue) -> None:
    hQueue.drain()


@adapter.entry
def urDeviceWaitExp(hDevice: URDevice) -> None:
    drain_queues(device=hDevice)


@adapter.entry
def urQueueFlush(hQueue: URQueue) -> None:
    check(hQueue.table.clFlush(hQueue.cl), "clFlush")


@adapter.entry
def urQueueGetNativeHandle(hQueue: URQueue) -> int:
    hQueue.shared = True
    return hQueue.cl


@adapter.entry
def urQueueCreateWithNativeHandle(
    hNativeQueue: int, hContext: URContext, hDevice: URDevice | None, pProperties: Any
) -> URQueue:
    check_native(hNativeQueue, hContext, "clGetCommandQueueInfo", "CL_QUEUE_CONTEXT")
    device = _ask_native(hNativeQueue, hContext, "CL_QUEUE_DEVICE")
    if hDevice is not None and device != hDevice.cl:
        raise failure("INVALID_DEVICE", "the native queue is of another device")
    owned = bool(pProperties and pProperties.isNativeHandleOwned)
    return _of_native(hNativeQueue, hContext, hDevice or device_of(device), owned)


def _ask_native(native: int, context: URContext, name: str) -> int:
    data = query(context.table, "clGetCommandQueueInfo", native, OPENCL[name])
    return int.from_bytes(data, "little")


def _of_native(native: int, context: URContext, device: URDevice, owned: bool) -> URQueue:
    """A new object for a cl_command_queue."""
    retain_unless_owned(URQueue, native, context.table, owned)
    bits = _ask_native(native, context, "CL_QUEUE_PROPERTIES")
    flags = _OUT_OF_ORDER if bits & OPENCL["CL_QUEUE_OUT_OF_ORDER_EXEC_MODE_ENABLE"] else 0
    flags |= _PROFILING if bits & OPENCL["CL_QUEUE_PROFILING_ENABLE"] else 0
    queue = URQueue(native, context, device, flags)
    queue.shared = True
    return queue


def queue_of(native: int, context: URContext) -> URQueue:
    """The queue with a native handle: one that exists, or a new object for it. Raises URError, OpenCLError."""
    found = filter(None, (reference() for reference in _queues.valuerefs()))
    known = next((one for one in found if one.cl == native and not one.is_closed), None)
    if known is not None:
        return known
    device = device_of(_ask_native(native, context, "CL_QUEUE_DEVICE"))
    queue = _of_native(native, context, device, owned=False)
    queue.borrowed = True
    return queue


# commands that move nothing and launch nothing


@adapter.entry
def urEnqueueEventsWait(
    hQueue: URQueue, phEventWaitList: list[UREvent], phEvent: bool
) -> UREvent | None:
    return hQueue.enqueue(
        "clEnqueueMarkerWithWaitList", "EVENTS_WAIT", (), phEventWaitList, phEvent
    )


@adapter.entry
def urEnqueueEventsWaitWithBarrier(
    hQueue: URQueue, phEventWaitList: list[UREvent], phEvent: bool
) -> UREvent | None:
    return hQueue.enqueue(
        "clEnqueueBarrierWithWaitList", "EVENTS_WAIT_WITH_BARRIER", (), phEventWaitList, phEvent
    )


@adapter.entry
def urEnqueueEventsWaitWithBarrierExt(
    hQueue: URQueue, phEventWaitList: list[UREvent], phEvent: bool
) -> UREvent | None:
    return urEnqueueEventsWaitWithBarrier(hQueue, phEventWaitList, phEvent)


@adapter.entry
def urEnqueueTimestampRecordingExp(
    hQueue: URQueue, blocking: bool, phEventWaitList: list[UREvent]
) -> UREvent:
    """The time of a marker, or of a second marker behind it.

    A second one, on an in-order queue that profiles, is needed where the queue does not profile or
    the driver does not time a marker that waits.
    """
    event = hQueue.enqueue(
        "clEnqueueMarkerWithWaitList", "TIMESTAMP_RECORDING_EXP", (), phEventWaitList, True
    )
    assert event is not None
    check(hQueue.table.clFlush(hQueue.cl), "clFlush")
    untimed = phEventWaitList and hQueue.context.platform.profile.waiting_markers_have_no_times
    if untimed or not hQueue.flags & _PROFILING:
        clock = create_queue(hQueue.context, hQueue.device, _PROFILING)
        clock.enqueue("clEnqueueMarkerWithWaitList", "EVENTS_WAIT", (), [event], False)
        stamp = clock.enqueue(
            "clEnqueueMarkerWithWaitList", "TIMESTAMP_RECORDING_EXP", (), (), True
        )
        assert stamp is not None
        check(clock.table.clFlush(clock.cl), "clFlush")
        event, stamp.queue = stamp, hQueue
    event.is_time_stamp = True
    if blocking:
        event.wait()
    return event


@adapter.entry
def urEnqueueHostTaskExp(
    hQueue: URQueue, pfnHostTask: int, data: int, phEventWaitList: list[UREvent], phEvent: bool
) -> UREvent | None:
    """A marker's callback runs the task and completes a user event, for which everything after it in the queue waits."""
    before = hQueue.enqueue("clEnqueueMarkerWithWaitList", "EVENTS_WAIT", (), phEventWaitList, True)
    assert before is not None
    done = UREvent(create(hQueue.table, "clCreateUserEvent", hQueue.context.cl), hQueue.context)
    task = "clEnqueueBarrierWithWaitList" if hQueue.in_order else "clEnqueueMarkerWithWaitList"

    def run(status: int) -> None:
        try:
            if status >= 0:
                call_host_function(pfnHostTask, data)
        finally:
            hQueue.table.clSetUserEventStatus(done.cl, min(status, 0))
            before.finish()

    call_on_status(
        before.cl, hQueue.table, 0, run
    )  # first: if it fails, nothing is enqueued that would wait for ever
    made = hQueue.enqueue(task, "HOST_TASK_EXP", (), [done], phEvent)
    check(
        hQueue.table.clFlush(hQueue.cl), "clFlush"
    )  # a callback is no flush (SPEC clSetEventCallback)
    return made


@adapter.entry
def urEnqueueNativeCommandExp(
    hQueue: URQueue,
    pfnNativeEnqueue: int,
    data: int,
    phMemList: list[Any],
    phEventWaitList: list[UREvent],
    phEvent: bool,
) -> UREvent | None:
    hQueue.context.check_same("the memory", *phMemList)
    hQueue.enqueue(
        "clEnqueueBarrierWithWaitList", "EVENTS_WAIT_WITH_BARRIER", (), phEventWaitList, False
    )
    _NativeEnqueue(pfnNativeEnqueue)(hQueue.handle, data)
    return hQueue.enqueue("clEnqueueBarrierWithWaitList", "ENQUEUE_NATIVE_EXP", (), (), phEvent)
