"""Events: waiting, status, callbacks, times, native handles."""

from __future__ import annotations

import ctypes
import threading
from typing import Any

import pytest

from fairlead.conformance.arrays import handles
from fairlead.conformance.checks import equal, failed, forked, rule, unsupported
from fairlead.conformance.pi.objects import PROFILING, PIObjects, codes, waits
from fairlead.conformance.shared_cases import in_threads
from fairlead.loader.pi.abi import PI

INFO, WAIT = "piEventGetInfo", "piEventsWait"
COMPLETE = PI["PI_EVENT_COMPLETE"]
PATIENCE = 10.0


def fill(objects: PIObjects, queue: int, *after: int) -> int:
    """Enqueue a command that takes a while. Returns its event."""
    memory = objects.usm("shared", [0] * 4096)
    return objects.make("piextUSMEnqueueMemset", queue, memory, 3, 16384, *waits(*after), ...)


@rule(WAIT, "returns when all events are complete")
def test_wait(bare_objects: PIObjects, queue: int) -> None:
    events = [fill(bare_objects, queue) for _ in range(3)]
    bare_objects.call(WAIT, *waits(*events))
    equal([bare_objects.status(event) for event in events], [COMPLETE] * 3, "the status")


@rule(WAIT, "waits for events of several queues")
def test_wait_for_queues(bare_objects: PIObjects, queue: int) -> None:
    other = bare_objects.queue()
    first = fill(bare_objects, queue)
    second = fill(bare_objects, other, first)
    bare_objects.call(WAIT, *waits(first, second))
    equal([bare_objects.status(event) for event in (first, second)], [COMPLETE] * 2, "the status")


@forked
@rule(WAIT, "an error if there are no events, or one is NULL")
@pytest.mark.parametrize(
    ("count", "events"),
    [(0, None), (1, None), (1, handles(0))],
    ids=["nothing", "null-list", "null"],
)
def test_wait_errors(bare_objects: PIObjects, count: int, events: Any) -> None:
    code = bare_objects.pi.piEventsWait(count, events)
    if not code:
        failed("an error", "PI_SUCCESS")


@rule(INFO, "says queue, type and context of a command")
def test_info(bare_objects: PIObjects, queue: int) -> None:
    event = fill(bare_objects, queue)
    answers = [
        bare_objects.number(INFO, event, f"PI_EVENT_INFO_{name}")
        for name in ("COMMAND_QUEUE", "CONTEXT")
    ]
    equal(answers, [queue, bare_objects.context], "queue and context")
    equal(
        bare_objects.number(INFO, event, "PI_EVENT_INFO_COMMAND_TYPE")
        in PI.groups["pi_command_type"],
        True,
        "a known type",
    )


@rule("piEventGetProfilingInfo", "queued ≤ submit ≤ start ≤ end")
def test_profiling(bare_objects: PIObjects) -> None:
    queue = bare_objects.queue(PROFILING)
    event = fill(bare_objects, queue)
    bare_objects.call(WAIT, *waits(event))
    names = ("QUEUED", "SUBMIT", "START", "END")
    times = [
        bare_objects.number("piEventGetProfilingInfo", event, f"PI_PROFILING_INFO_COMMAND_{name}")
        for name in names
    ]
    if times != sorted(times) or not times[-1]:
        failed("times in order", times)


@rule(
    "piEventGetProfilingInfo", "PI_ERROR_PROFILING_INFO_NOT_AVAILABLE on a queue without profiling"
)
def test_no_profiling(bare_objects: PIObjects, queue: int) -> None:
    event, time = fill(bare_objects, queue), ctypes.c_uint64()
    bare_objects.call(WAIT, *waits(event))
    name = PI["PI_PROFILING_INFO_COMMAND_START"]
    code = bare_objects.pi.piEventGetProfilingInfo(event, name, 8, ctypes.byref(time), None)
    codes(code, "PROFILING_INFO_NOT_AVAILABLE")


_Callback = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int32, ctypes.c_void_p)


@rule("piEventSetCallback", "calls back with event, status and data")
def test_callback(bare_objects: PIObjects, queue: int) -> None:
    objects, called, seen = bare_objects, threading.Event(), []

    @_Callback
    def callback(event: Any, status: int, data: Any) -> None:
        seen.append((event, status, data))
        called.set()

    event = fill(objects, queue)
    code = objects.pi.piEventSetCallback(event, COMPLETE, callback, 42)
    if PI.errors[code][0] == "PI_ERROR_UNSUPPORTED_FEATURE":
        unsupported("the plugin has no callbacks")
    codes(code, "PI_SUCCESS")
    objects.finish(queue)
    if not called.wait(PATIENCE):
        failed("the callback is called", "it is not")
    equal(seen, [(event, COMPLETE, 42)], "the arguments")


@rule("piEventCreate", "gives an event that piEventSetStatus completes, or neither is supported")
def test_user_event(bare_objects: PIObjects) -> None:
    event = ctypes.c_void_p()
    code = bare_objects.pi.piEventCreate(bare_objects.context, ctypes.byref(event))
    if code:
        codes(code, "UNSUPPORTED_FEATURE", "INVALID_EVENT", "INVALID_OPERATION")
        unsupported("the plugin has no events of the host")
    handle = bare_objects.owned(event.value or 0, "pi_event")
    bare_objects.call("piEventSetStatus", handle, COMPLETE)
    equal(bare_objects.status(handle), COMPLETE, "the status")


@rule(
    "piextEventGetNativeHandle",
    "piextEventCreateWithNativeHandle gives an event of the same native handle",
)
def test_native_event(bare_objects: PIObjects, queue: int) -> None:
    objects = bare_objects
    event = fill(objects, queue)
    objects.finish(queue)
    native = objects.make("piextEventGetNativeHandle", event, ...)
    again = objects.make("piextEventCreateWithNativeHandle", native, objects.context, False, ...)
    equal(objects.make("piextEventGetNativeHandle", again, ...), native, "the native handle")
    equal(objects.status(again), COMPLETE, "the status")


@forked
@rule("piEnqueueEventsWait", "an error if list and number disagree, or an event is NULL")
@pytest.mark.parametrize(
    ("count", "events"), [(1, None), (1, handles(0))], ids=["null-list", "null"]
)
def test_wait_list(bare_objects: PIObjects, queue: int, count: int, events: Any) -> None:
    code = bare_objects.pi.piEnqueueEventsWait(queue, count, events, None)
    if not code:
        failed("an error", "PI_SUCCESS")


@rule("piextUSMEnqueueMemset", "8 threads, each with a queue and memory of its own")
def test_threads(bare_objects: PIObjects) -> None:
    bare_objects.usm("shared", [0])  # ends the case if the device has none

    def work(own: PIObjects, number: int) -> tuple[list[int], list[int]]:
        queue, memory = own.queue(), own.usm("shared", [0] * 64)
        for _ in range(20):
            own.call("piextUSMEnqueueMemset", queue, memory, number, 256, 0, None, None)
        return own.numbers(queue, memory, 64), [number * 0x01010101] * 64

    in_threads(bare_objects, work)
