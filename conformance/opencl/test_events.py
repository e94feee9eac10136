"""Events of commands and of the host: status, callbacks, waiting, times."""

from __future__ import annotations

import ctypes
import threading
from typing import Any

import pytest

from fairlead.conformance.arrays import handles
from fairlead.conformance.checks import equal, failed, forked, rule
from fairlead.conformance.opencl.commands import expect_code
from fairlead.conformance.opencl.objects import PROFILING, CLObjects
from fairlead.icd.abi import OPENCL

INFO, SET, WAIT = "clGetEventInfo", "clSetUserEventStatus", "clWaitForEvents"
COMPLETE = OPENCL["CL_COMPLETE"]
#: Seconds that are enough for any callback. A case that waits so long has failed.
PATIENCE = 10.0
_Callback = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int32, ctypes.c_void_p)


@pytest.fixture
def buffer(objects: CLObjects) -> int:
    """A buffer of zeros."""
    return objects.buffer([0] * 1024)


def launch(objects: CLObjects, queue: int, buffer: int, waits: list[int]) -> int:
    """Launch a kernel that adds 1 to the numbers. Returns its event."""
    event = ctypes.c_void_p()
    objects.launch(queue, objects.kernel("increment", buffer), 1024, waits, ctypes.byref(event))
    return objects.owned(event.value or 0, "cl_event")


@rule("clCreateUserEvent", "is CL_SUBMITTED at first, of no queue, and of the type CL_COMMAND_USER")
def test_user_event(objects: CLObjects) -> None:
    event = objects.user_event()
    names = ("COMMAND_QUEUE", "COMMAND_TYPE", "CONTEXT")
    answers = [
        objects.status(event),
        *(objects.number(INFO, event, f"CL_EVENT_{name}") for name in names),
    ]
    equal(
        answers,
        [OPENCL["CL_SUBMITTED"], 0, OPENCL["CL_COMMAND_USER"], objects.context],
        "the answers",
    )


@rule(SET, "CL_INVALID_OPERATION the second time")
def test_set_twice(objects: CLObjects) -> None:
    event = objects.user_event()
    objects.call(SET, event, COMPLETE)
    expect_code(objects.cl.clSetUserEventStatus(event, COMPLETE), "CL_INVALID_OPERATION")


@rule(SET, "CL_INVALID_VALUE if the status is neither CL_COMPLETE nor negative")
def test_set_wrong(objects: CLObjects) -> None:
    expect_code(
        objects.cl.clSetUserEventStatus(objects.user_event(), OPENCL["CL_RUNNING"]),
        "CL_INVALID_VALUE",
    )


@rule(SET, "commands that wait for the event run then, and not before")
def test_gate(objects: CLObjects, queue: int, buffer: int) -> None:
    gate = objects.user_event()
    event = launch(objects, queue, buffer, [gate])
    objects.call("clFlush", queue)
    before = objects.status(event)
    objects.call(SET, gate, COMPLETE)
    objects.call(WAIT, 1, handles(event))
    equal(
        before in (OPENCL["CL_QUEUED"], OPENCL["CL_SUBMITTED"]),
        True,
        f"{before} is queued or submitted",
    )
    equal(
        (objects.status(event), objects.read(queue, buffer)),
        (COMPLETE, [1] * 1024),
        "status and buffer",
    )


@rule(
    SET, "with an error commands that wait for the event do not run, and end with a negative status"
)
def test_error(objects: CLObjects, buffer: int) -> None:
    gate, queue = objects.make("clCreateUserEvent", objects.context), objects.queue()
    event = launch(objects, queue, buffer, [gate])
    objects.call("clFlush", queue)
    objects.call(SET, gate, -5)
    expect_code(
        objects.cl.clWaitForEvents(1, handles(event)),
        "CL_EXEC_STATUS_ERROR_FOR_EVENTS_IN_WAIT_LIST",
    )
    equal(objects.status(event) < 0, True, f"{objects.status(event)} is negative")
    equal(objects.read(objects.queue(), buffer), [0] * 1024, "the buffer")


@rule(INFO, "says queue, type and context of a command")
def test_info(objects: CLObjects, queue: int, buffer: int) -> None:
    event = launch(objects, queue, buffer, [])
    answers = [
        objects.number(INFO, event, f"CL_EVENT_{name}")
        for name in ("COMMAND_QUEUE", "COMMAND_TYPE", "CONTEXT")
    ]
    equal(answers, [queue, OPENCL["CL_COMMAND_NDRANGE_KERNEL"], objects.context], "the answers")


@rule("clEnqueueMarkerWithWaitList", "its event is complete when all before it is")
def test_marker(objects: CLObjects, out_of_order: int, buffer: int) -> None:
    gate, marker = objects.user_event(), ctypes.c_void_p()
    event = launch(objects, out_of_order, buffer, [gate])
    objects.call("clEnqueueMarkerWithWaitList", out_of_order, 0, None, ctypes.byref(marker))
    objects.call("clFlush", out_of_order)
    early = objects.status(objects.owned(marker.value or 0, "cl_event"))
    objects.call(SET, gate, COMPLETE)
    objects.call(WAIT, 1, handles(marker.value or 0))
    equal(early == COMPLETE, False, "the marker is complete before the command is")
    equal(objects.status(event), COMPLETE, "the status of the command")


@rule("clEnqueueNDRangeKernel", "waits for events of another queue")
def test_other_queue(objects: CLObjects, queue: int, buffer: int) -> None:
    gate, other = objects.user_event(), objects.queue()
    first = launch(objects, queue, buffer, [gate])
    objects.call("clFlush", queue)
    second = launch(objects, other, buffer, [first])
    objects.call("clFlush", other)
    objects.call(SET, gate, COMPLETE)
    objects.call(WAIT, 1, handles(second))
    equal(objects.read(other, buffer), [2] * 1024, "the buffer")


@rule("clSetEventCallback", "calls back with event, status and data")
@pytest.mark.parametrize("kind", ["command", "user"])
def test_callback(objects: CLObjects, queue: int, buffer: int, kind: str) -> None:
    called, seen, gate = threading.Event(), [], objects.user_event()

    @_Callback
    def callback(event: Any, status: int, data: Any) -> None:
        seen.append((event, status, data))
        called.set()

    event = launch(objects, queue, buffer, [gate]) if kind == "command" else gate
    objects.call("clSetEventCallback", event, COMPLETE, callback, 42)
    objects.call(SET, gate, COMPLETE)
    objects.finish(queue)
    if not called.wait(PATIENCE):
        failed("the callback is called", "it is not")
    equal(seen, [(event, COMPLETE, 42)], "the arguments")


@rule("clSetEventCallback", "calls back at once for an event that is complete")
def test_late_callback(objects: CLObjects, queue: int, buffer: int) -> None:
    called = threading.Event()
    callback = _Callback(lambda event, status, data: called.set())
    event = launch(objects, queue, buffer, [])
    objects.finish(queue)
    objects.call("clSetEventCallback", event, COMPLETE, callback, None)
    if not called.wait(PATIENCE):
        failed("the callback is called", "it is not")


@rule("clGetEventProfilingInfo", "queued ≤ submit ≤ start ≤ end")
def test_profiling(objects: CLObjects, buffer: int) -> None:
    queue = objects.queue(PROFILING)
    event = launch(objects, queue, buffer, [])
    objects.finish(queue)
    names = ("QUEUED", "SUBMIT", "START", "END")
    times = [
        objects.number("clGetEventProfilingInfo", event, f"CL_PROFILING_COMMAND_{name}")
        for name in names
    ]
    if times != sorted(times) or not times[0]:
        failed("times in order", times)


@rule(
    "clGetEventProfilingInfo",
    "CL_PROFILING_INFO_NOT_AVAILABLE on a queue without profiling, and for user events",
)
@pytest.mark.parametrize("kind", ["command", "user"])
def test_no_profiling(objects: CLObjects, queue: int, buffer: int, kind: str) -> None:
    event = launch(objects, queue, buffer, []) if kind == "command" else objects.user_event()
    time = ctypes.c_uint64()
    objects.finish(queue)
    code = objects.cl.clGetEventProfilingInfo(
        event, OPENCL["CL_PROFILING_COMMAND_START"], 8, ctypes.byref(time), None
    )
    expect_code(code, "CL_PROFILING_INFO_NOT_AVAILABLE")


@forked
@rule(WAIT, "CL_INVALID_VALUE if there are no events, CL_INVALID_EVENT if one is not valid")
@pytest.mark.parametrize(
    ("count", "events", "code"),
    [(0, None, "VALUE"), (1, None, "VALUE"), (1, handles(0), "EVENT")],
    ids=["nothing", "null-list", "null"],
)
def test_wait_errors(objects: CLObjects, count: int, events: Any, code: str) -> None:
    expect_code(objects.cl.clWaitForEvents(count, events), f"CL_INVALID_{code}")


@forked
@rule(
    "clEnqueueMarkerWithWaitList",
    "CL_INVALID_EVENT_WAIT_LIST if list and number disagree, or an event is not valid",
)
@pytest.mark.parametrize(
    ("count", "events"),
    [(1, None), (0, handles(0)), (1, handles(0))],
    ids=["null-list", "no-number", "null"],
)
def test_wait_list(objects: CLObjects, queue: int, count: int, events: Any) -> None:
    expect_code(
        objects.cl.clEnqueueMarkerWithWaitList(queue, count, events, None),
        "CL_INVALID_EVENT_WAIT_LIST",
    )


@rule("clEnqueueMarkerWithWaitList", "CL_INVALID_CONTEXT if an event is of another context")
def test_wait_list_context(objects: CLObjects, queue: int) -> None:
    event = objects.make("clCreateUserEvent", objects.new_context())
    objects.call(SET, event, COMPLETE)
    expect_code(
        objects.cl.clEnqueueMarkerWithWaitList(queue, 1, handles(event), None), "CL_INVALID_CONTEXT"
    )
