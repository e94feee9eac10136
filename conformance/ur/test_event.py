"""Events: status, waits, callbacks, profiling, failure."""

from __future__ import annotations

import ctypes
import threading

import pytest

from fairlead.conformance.arrays import handles, ints
from fairlead.conformance.checks import each, equal, failed, rule
from fairlead.conformance.ur.calls import URCalls, address
from fairlead.conformance.ur.objects import COUNT, SIZE, URObjects
from fairlead.conformance.ur.values import BufferValue
from fairlead.loader.ur.abi import UR

CALLBACK = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_uint32, ctypes.c_void_p)
TIMES = ("QUEUED", "SUBMIT", "START", "END")

COMMANDS = {
    "urEnqueueMemBufferFill": "UR_COMMAND_MEM_BUFFER_FILL",
    "urEnqueueMemBufferRead": "UR_COMMAND_MEM_BUFFER_READ",
    "urEnqueueMemBufferWrite": "UR_COMMAND_MEM_BUFFER_WRITE",
    "urEnqueueMemBufferCopy": "UR_COMMAND_MEM_BUFFER_COPY",
    "urEnqueueEventsWait": "UR_COMMAND_EVENTS_WAIT",
    "urEnqueueEventsWaitWithBarrier": "UR_COMMAND_EVENTS_WAIT_WITH_BARRIER",
}


def query_status(ur: URCalls, event: int) -> str:
    status = ur.info("urEventGetInfo", event, "UR_EVENT_INFO_COMMAND_EXECUTION_STATUS")
    return UR.groups["ur_event_status_t"].get(status, str(status))


@rule("urEventWait", "an event that was waited for is complete")
def test_wait(ur: URCalls, make: URObjects, queue: int, buffer: int) -> None:
    event = make.launch(queue, make.kernel(), BufferValue(buffer), ints([1]))
    make.wait(event)
    equal(query_status(ur, event), "UR_EVENT_STATUS_COMPLETE", "the status")


@rule("urEventWait", "waits for all events of its list, of several queues")
def test_wait_for_several(ur: URCalls, make: URObjects) -> None:
    events = [
        make.launch(make.queue(), make.kernel(), BufferValue(make.buffer()), ints([1]))
        for _ in range(4)
    ]
    make.wait(*events)
    equal(
        {query_status(ur, event) for event in events}, {"UR_EVENT_STATUS_COMPLETE"}, "the statuses"
    )


@rule("urEventGetInfo", "a command that waits for an event is not complete before it")
def test_not_complete_before_its_event(ur: URCalls, make: URObjects, queue: int) -> None:
    gate = make.user_event()
    event = make.barrier(queue, gate.handle)
    before = query_status(ur, event)
    gate.complete()
    make.wait(event)
    equal(before == "UR_EVENT_STATUS_COMPLETE", False, "whether it is complete")
    equal(query_status(ur, event), "UR_EVENT_STATUS_COMPLETE", "the status after its event")


@rule("urEventGetInfo", "queue and context are those of the command")
def test_belongs(ur: URCalls, make: URObjects, context: int, queue: int) -> None:
    event = make.finished_event(queue)
    equal(ur.info("urEventGetInfo", event, "UR_EVENT_INFO_COMMAND_QUEUE"), queue, "the queue")
    equal(ur.info("urEventGetInfo", event, "UR_EVENT_INFO_CONTEXT"), context, "the context")


@pytest.mark.parametrize(
    "routine",
    [
        pytest.param(r, marks=rule("urEventGetInfo", f"the command of {r} is {c}"))
        for r, c in COMMANDS.items()
    ],
)
def test_command_type(ur: URCalls, make: URObjects, queue: int, buffer: int, routine: str) -> None:
    data, other = ints([0] * COUNT), make.buffer()
    given = {
        "urEnqueueMemBufferFill": (buffer, ints([1]), 4, 0, SIZE),
        "urEnqueueMemBufferRead": (buffer, False, 0, SIZE, data),
        "urEnqueueMemBufferWrite": (buffer, False, 0, SIZE, data),
        "urEnqueueMemBufferCopy": (buffer, other, 0, 0, SIZE),
    }
    event = make.enqueue(routine, queue, *given.get(routine, ()))
    make.wait(event)
    kind = ur.info("urEventGetInfo", event, "UR_EVENT_INFO_COMMAND_TYPE")
    equal(UR.groups["ur_command_t"].get(kind, str(kind)), COMMANDS[routine], "the command's type")


@pytest.mark.parametrize(
    "when",
    each(
        ("COMPLETE", "RUNNING", "SUBMITTED"),
        "urEventSetCallback",
        "{}: is called once, with event and data",
    ),
)
def test_callback(ur: URCalls, make: URObjects, queue: int, when: str) -> None:
    gate, data, called = make.user_event(), ctypes.c_int(), threading.Event()
    seen: list[tuple[object, ...]] = []

    def notify(*arguments: object) -> None:
        seen.append(arguments)
        called.set()

    callback = make.keep(CALLBACK(notify))
    event = make.barrier(queue, gate.handle)
    ur.ok("urEventSetCallback", event, UR[f"UR_EXECUTION_INFO_{when}"], address(callback), data)
    gate.complete()
    make.wait(event)
    if not called.wait(10):
        failed("a call of the callback", "none within 10 s")
    equal(len(seen), 1, "the number of calls")
    equal(seen[0][0::2], (event, ctypes.addressof(data)), "event and data")


@rule("urEventSetCallback", "COMPLETE: an event that is complete already calls at once")
def test_callback_of_complete_event(ur: URCalls, make: URObjects, queue: int) -> None:
    event, called = make.finished_event(queue), threading.Event()
    callback = make.keep(CALLBACK(lambda *arguments: called.set()))
    ur.ok("urEventSetCallback", event, UR["UR_EXECUTION_INFO_COMPLETE"], address(callback))
    if not called.wait(10):
        failed("a call of the callback", "none within 10 s")


@rule(
    "urEventGetProfilingInfo",
    "queued ≤ submitted ≤ started ≤ ended, for a launch in a queue with profiling",
)
def test_profiling(ur: URCalls, make: URObjects, buffer: int) -> None:
    queue = make.queue("PROFILING_ENABLE")
    event = make.launch(queue, make.kernel(), BufferValue(buffer), ints([1]))
    make.wait(event)
    times = [
        ur.info("urEventGetProfilingInfo", event, f"UR_PROFILING_INFO_COMMAND_{name}")
        for name in TIMES
    ]
    equal(times, sorted(times), "the times " + " ".join(TIMES))
    if not times[0] or times[2] == times[0] == times[3]:
        failed("times that pass", times)


@rule("urEventGetProfilingInfo", "PROFILING_INFO_NOT_AVAILABLE for a queue without profiling")
def test_no_profiling(ur: URCalls, make: URObjects, queue: int, buffer: int) -> None:
    event = make.launch(queue, make.kernel(), BufferValue(buffer), ints([1]))
    make.wait(event)
    time = ctypes.c_uint64()
    query = UR["UR_PROFILING_INFO_COMMAND_START"]
    ur.fails("urEventGetProfilingInfo", "PROFILING_INFO_NOT_AVAILABLE", event, query, 8, time)


@rule("urEventGetInfo", "a command that waits for one that failed has UR_EVENT_STATUS_ERROR")
def test_failed_dependency(ur: URCalls, make: URObjects) -> None:
    queue, gate = make.queue(), make.user_event()
    event = make.barrier(queue, gate.handle)
    gate.fail()
    ur.code("urEventWait", 1, handles(event))
    equal(query_status(ur, event), "UR_EVENT_STATUS_ERROR", "the status")


@rule("urEventWait", "IN_EVENT_LIST_EXEC_STATUS for an event that failed")
def test_wait_for_failed(ur: URCalls, make: URObjects) -> None:
    gate = make.user_event()
    gate.fail()
    ur.fails("urEventWait", "IN_EVENT_LIST_EXEC_STATUS", 1, handles(gate.handle))


@rule("urEnqueueTimestampRecordingExp", "the event has a time for its start and its end")
def test_timestamp(ur: URCalls, make: URObjects, queue: int) -> None:
    ur.require("UR_DEVICE_INFO_TIMESTAMP_RECORDING_SUPPORT_EXP")
    event = make.enqueue("urEnqueueTimestampRecordingExp", queue, True)
    times = [
        ur.info("urEventGetProfilingInfo", event, f"UR_PROFILING_INFO_COMMAND_{name}")
        for name in TIMES
    ]
    if not all(times[1:]):
        failed("times", times)
