"""Events and command-buffers: what a submission waits for, what waits for it, what its event
says."""

from __future__ import annotations

import ctypes
import threading
from typing import Any

import pytest

from fairlead.conformance.arrays import handles
from fairlead.conformance.checks import equal, failed, rule, unsupported
from fairlead.conformance.opencl.commands import CLRecorder, CommandBuffers
from fairlead.conformance.opencl.objects import PROFILING, CLObjects
from fairlead.icd.abi import OPENCL

ENQUEUE, INFO = "clEnqueueCommandBufferKHR", "clGetEventInfo"
COMPLETE = OPENCL["CL_COMPLETE"]
#: Seconds that are enough for any callback. A case that waits so long has failed.
PATIENCE = 10.0


@pytest.fixture
def buffer(objects: CLObjects) -> int:
    """A buffer of zeros."""
    return objects.buffer([0] * 1024)


@pytest.fixture
def adder(recorder: CLRecorder, objects: CLObjects, buffer: int) -> CLRecorder:
    """A finalized command-buffer that doubles every number of `buffer` and adds 1."""
    recorder.launch(objects.kernel("twice_plus", buffer, ctypes.c_int32(1)), 1024)
    recorder.finalize()
    return recorder


def read_first(objects: CLObjects, queue: int, buffer: int) -> int:
    """Return the first number of the buffer. All numbers must be the same."""
    objects.finish(queue)
    numbers = objects.read(queue, buffer)
    equal(len(set(numbers)), 1, "different numbers in the buffer")
    return numbers[0]


def signal(objects: CLObjects, event: int) -> None:
    """Complete a user event."""
    objects.call("clSetUserEventStatus", event, COMPLETE)


@rule(ENQUEUE, "waits for a user event")
def test_user_event(adder: CLRecorder, objects: CLObjects, buffer: int) -> None:
    gate = objects.user_event()
    event = adder.enqueue_with_event(waits=[gate])
    if objects.status(event) == COMPLETE:
        failed("the event is not complete before the user event is", "CL_COMPLETE")
    signal(objects, gate)
    equal(read_first(objects, adder.queue, buffer), 1, "the buffer")


@rule(ENQUEUE, "waits for all of several user events")
def test_user_events(adder: CLRecorder, objects: CLObjects, buffer: int) -> None:
    gates = [objects.user_event() for _ in range(3)]
    event = adder.enqueue_with_event(waits=gates)
    for gate in gates[:2]:
        signal(objects, gate)
    if objects.status(event) == COMPLETE:
        failed("the event is not complete before the last user event is", "CL_COMPLETE")
    signal(objects, gates[2])
    equal(read_first(objects, adder.queue, buffer), 1, "the buffer")


@rule(ENQUEUE, "waits for an event of another command, of its own queue or another")
@pytest.mark.parametrize("same", [True, False], ids=["own-queue", "other-queue"])
def test_waits_for_command(adder: CLRecorder, objects: CLObjects, buffer: int, same: bool) -> None:
    other = adder.queue if same else objects.queue()
    gate, event = objects.user_event(), ctypes.c_void_p()
    kernel = objects.kernel("add", buffer, ctypes.c_int32(10))
    objects.launch(other, kernel, 1024, [gate], ctypes.byref(event))
    objects.call("clFlush", other)
    adder.enqueue(waits=[objects.owned(event.value or 0, "cl_event")])
    signal(objects, gate)
    objects.finish(other)
    equal(read_first(objects, adder.queue, buffer), 21, "the buffer")


@rule(ENQUEUE, "a command waits for its event, on its own queue or another")
@pytest.mark.parametrize("same", [True, False], ids=["own-queue", "other-queue"])
def test_command_waits(adder: CLRecorder, objects: CLObjects, buffer: int, same: bool) -> None:
    other = adder.queue if same else objects.queue()
    gate = objects.user_event()
    event = adder.enqueue_with_event(waits=[gate])
    objects.call("clFlush", adder.queue)
    objects.launch(other, objects.kernel("add", buffer, ctypes.c_int32(10)), 1024, [event])
    signal(objects, gate)
    objects.finish(other)
    equal(read_first(objects, adder.queue, buffer), 11, "the buffer")


@rule(ENQUEUE, "waits for the event of another command-buffer, on its own queue or another")
@pytest.mark.parametrize("same", [True, False], ids=["own-queue", "other-queue"])
def test_waits_for_command_buffer(
    adder: CLRecorder, commands: CommandBuffers, objects: CLObjects, buffer: int, same: bool
) -> None:
    queue = adder.queue if same else objects.queue()
    second = CLRecorder(commands, objects, queue)
    second.launch(objects.kernel("add", buffer, ctypes.c_int32(10)), 1024)
    second.finalize()
    gate = objects.user_event()
    event = adder.enqueue_with_event(waits=[gate])
    objects.call("clFlush", adder.queue)
    last = second.enqueue_with_event(waits=[event])
    objects.call("clFlush", queue)
    signal(objects, gate)
    objects.call("clWaitForEvents", 1, handles(last))
    equal(read_first(objects, queue, buffer), 11, "the buffer")


@rule(ENQUEUE, "clWaitForEvents waits for the events of submissions")
def test_wait(adder: CLRecorder, objects: CLObjects, buffer: int) -> None:
    events = []
    for _ in range(2):
        events.append(adder.enqueue_with_event())
        if not adder.commands.can_be_pipelined:
            objects.call("clWaitForEvents", 1, handles(events[-1]))
    objects.call("clWaitForEvents", 2, handles(*events))
    equal(
        [objects.status(event) for event in events],
        [COMPLETE, COMPLETE],
        "the status of the events",
    )
    equal(read_first(objects, adder.queue, buffer), 3, "the buffer")


_Callback = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int32, ctypes.c_void_p)


@rule("clSetEventCallback", "calls back when the command-buffer has ended")
def test_callback(adder: CLRecorder, objects: CLObjects, buffer: int) -> None:
    called, seen = threading.Event(), []

    @_Callback
    def callback(event: Any, status: int, data: Any) -> None:
        seen.append((event, status, data))
        called.set()

    gate = objects.user_event()
    event = adder.enqueue_with_event(waits=[gate])
    objects.call("clSetEventCallback", event, COMPLETE, callback, 42)
    equal(called.is_set(), False, "it was called before")
    signal(objects, gate)
    objects.finish(adder.queue)
    if not called.wait(PATIENCE):
        failed("the callback is called", "it is not")
    equal(seen, [(event, COMPLETE, 42)], "the arguments")


@rule(
    "clSetEventCallback", "a callback may complete the user event that another submission waits for"
)
def test_callback_signals(
    adder: CLRecorder, commands: CommandBuffers, objects: CLObjects, buffer: int
) -> None:
    queue, gate, second_gate = objects.queue(), objects.user_event(), objects.user_event()
    second = CLRecorder(commands, objects, queue)
    second.launch(objects.kernel("add", buffer, ctypes.c_int32(10)), 1024)
    second.finalize()

    @_Callback
    def callback(event: Any, status: int, data: Any) -> None:
        objects.cl.clSetUserEventStatus(second_gate, COMPLETE)

    event = adder.enqueue_with_event(waits=[gate])
    objects.call("clSetEventCallback", event, COMPLETE, callback, None)
    last = second.enqueue_with_event(waits=[second_gate])
    signal(objects, gate)
    objects.finish(adder.queue)
    objects.call("clWaitForEvents", 1, handles(last))
    equal(read_first(objects, queue, buffer), 11, "the buffer")


# What the event says


@rule(INFO, "CL_EVENT_COMMAND_TYPE is CL_COMMAND_COMMAND_BUFFER_KHR")
def test_type(adder: CLRecorder, objects: CLObjects) -> None:
    event = adder.enqueue_with_event()
    equal(
        objects.number(INFO, event, "CL_EVENT_COMMAND_TYPE"),
        OPENCL["CL_COMMAND_COMMAND_BUFFER_KHR"],
        "the type",
    )


@rule(INFO, "CL_EVENT_COMMAND_QUEUE is the queue that it was enqueued on")
@pytest.mark.parametrize("substituted", [False, True], ids=["own-queue", "other-queue"])
def test_queue(adder: CLRecorder, objects: CLObjects, substituted: bool) -> None:
    other = objects.queue() if substituted else 0
    event = adder.enqueue_with_event(other)
    equal(objects.number(INFO, event, "CL_EVENT_COMMAND_QUEUE"), other or adder.queue, "the queue")
    objects.call("clWaitForEvents", 1, handles(event))


@rule(INFO, "CL_EVENT_CONTEXT is the command-buffer's context")
def test_context(adder: CLRecorder, objects: CLObjects) -> None:
    event = adder.enqueue_with_event()
    equal(objects.number(INFO, event, "CL_EVENT_CONTEXT"), objects.context, "the context")


@rule(
    INFO,
    "CL_EVENT_COMMAND_EXECUTION_STATUS is CL_QUEUED or CL_SUBMITTED while it waits, and "
    "CL_COMPLETE at the end",
)
def test_status(adder: CLRecorder, objects: CLObjects) -> None:
    gate = objects.user_event()
    event = adder.enqueue_with_event(waits=[gate])
    waiting = objects.status(event)
    signal(objects, gate)
    objects.finish(adder.queue)
    equal(
        waiting in (OPENCL["CL_QUEUED"], OPENCL["CL_SUBMITTED"]),
        True,
        f"{waiting} is queued or submitted",
    )
    equal(objects.status(event), COMPLETE, "the status at the end")


@rule(INFO, "CL_EVENT_REFERENCE_COUNT counts clRetainEvent")
def test_references(adder: CLRecorder, objects: CLObjects) -> None:
    event = adder.enqueue_with_event()
    objects.finish(adder.queue)
    before = objects.number(INFO, event, "CL_EVENT_REFERENCE_COUNT")
    objects.call("clRetainEvent", event)
    after = objects.number(INFO, event, "CL_EVENT_REFERENCE_COUNT")
    objects.call("clReleaseEvent", event)
    equal(after, before + 1, "the count")


@rule(
    "clGetEventProfilingInfo",
    "the times of a submission are in order, and the second comes after the first",
)
def test_profiling(commands: CommandBuffers, objects: CLObjects, buffer: int) -> None:
    supported = PROFILING
    if commands.version >= (0, 9, 6):
        supported = commands.device.info("CL_DEVICE_COMMAND_BUFFER_SUPPORTED_QUEUE_PROPERTIES_KHR")
    if not supported & PROFILING:
        unsupported("the device has no profiling of command-buffers")
    recorder = CLRecorder(commands, objects, objects.queue(PROFILING))
    recorder.launch(objects.kernel("increment", buffer), 1024)
    recorder.finalize()
    times: list[int] = []
    for _ in range(2):
        event = recorder.enqueue_with_event()
        objects.finish(recorder.queue)
        names = ("QUEUED", "SUBMIT", "START", "END")
        times += [
            objects.number("clGetEventProfilingInfo", event, f"CL_PROFILING_COMMAND_{name}")
            for name in names
        ]
    if times != sorted(times) or not times[0]:
        failed("queued ≤ submit ≤ start ≤ end, twice", times)


@rule("clGetEventProfilingInfo", "CL_PROFILING_INFO_NOT_AVAILABLE on a queue without profiling")
def test_no_profiling(adder: CLRecorder, objects: CLObjects) -> None:
    event, time = adder.enqueue_with_event(), ctypes.c_uint64()
    objects.finish(adder.queue)
    code = objects.cl.clGetEventProfilingInfo(
        event, OPENCL["CL_PROFILING_COMMAND_START"], 8, ctypes.byref(time), None
    )
    equal(OPENCL.errors[code][0], "CL_PROFILING_INFO_NOT_AVAILABLE", "the code")
