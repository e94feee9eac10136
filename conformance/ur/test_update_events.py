"""Updates of the events of a command-buffer's commands.

`urCommandBufferUpdateSignalEventExp` gives a command a new event; the command must have been
appended with one. `urCommandBufferUpdateWaitEventsExp` takes as many events as the command had.
Both answer UNSUPPORTED_FEATURE if the device does not report the capability EVENTS.
"""

from __future__ import annotations

import ctypes

import pytest

from fairlead.conformance.arrays import handles, ints
from fairlead.conformance.checks import each, equal, rule, unsupported
from fairlead.conformance.ur.calls import URCalls
from fairlead.conformance.ur.objects import COUNT, URObjects
from fairlead.conformance.ur.recording import BIT, CAPABILITIES, URRecording, need, record_store
from fairlead.conformance.ur.values import BufferValue
from fairlead.loader.ur.abi import UR


def need_events(ur: URCalls) -> None:
    need(ur)
    ur.require("UR_DEVICE_INFO_COMMAND_BUFFER_EVENT_SUPPORT_EXP")
    ur.require(CAPABILITIES, UR[BIT.format("EVENTS")])


@rule(
    "urCommandBufferUpdateSignalEventExp",
    "UNSUPPORTED_FEATURE where the device does not report EVENTS",
)
def test_signal_event_refused(ur: URCalls, make: URObjects, buffer: int) -> None:
    need(ur)
    if ur.device_says(CAPABILITIES) & UR[BIT.format("EVENTS")]:
        unsupported("the device reports it")
    _, step = record_store(make, buffer)
    routine = "urCommandBufferUpdateSignalEventExp"
    ur.fails(routine, "UNSUPPORTED_FEATURE", step.command, ctypes.byref(ctypes.c_void_p()))


@rule(
    "urCommandBufferUpdateWaitEventsExp",
    "UNSUPPORTED_FEATURE where the device does not report EVENTS",
)
def test_wait_events_refused(ur: URCalls, make: URObjects, buffer: int) -> None:
    need(ur)
    if ur.device_says(CAPABILITIES) & UR[BIT.format("EVENTS")]:
        unsupported("the device reports it")
    _, step = record_store(make, buffer)
    ur.fails("urCommandBufferUpdateWaitEventsExp", "UNSUPPORTED_FEATURE", step.command)


@rule(
    "urCommandBufferUpdateSignalEventExp",
    "signal_event: the new event is complete when the command has been executed",
)
def test_signal_event(ur: URCalls, make: URObjects, queue: int, buffer: int) -> None:
    need_events(ur)
    recording = URRecording(make, isUpdatable=True)
    step = recording.launch(make.kernel(), BufferValue(buffer), ints([1]), command=True, event=True)
    recording.finalize()
    event = make.own("urEventRelease", ur.new("urCommandBufferUpdateSignalEventExp", step.command))
    done = recording.enqueue(queue)
    make.wait(event, done)
    equal(make.read(queue, buffer), [1] * COUNT, "the buffer")


@rule(
    "urCommandBufferUpdateSignalEventExp",
    "signal_event of a command that was appended without one: INVALID_OPERATION",
)
def test_signal_event_without_event(ur: URCalls, make: URObjects, buffer: int) -> None:
    need_events(ur)
    _, step = record_store(make, buffer)
    routine = "urCommandBufferUpdateSignalEventExp"
    ur.fails(routine, "INVALID_OPERATION", step.command, ctypes.byref(ctypes.c_void_p()))


@rule("urCommandBufferUpdateSignalEventExp", "signal_event before finalize: INVALID_OPERATION")
def test_signal_event_before_finalize(ur: URCalls, make: URObjects, buffer: int) -> None:
    need_events(ur)
    recording = URRecording(make, isUpdatable=True)
    step = recording.launch(make.kernel(), BufferValue(buffer), ints([1]), command=True, event=True)
    routine = "urCommandBufferUpdateSignalEventExp"
    ur.fails(routine, "INVALID_OPERATION", step.command, ctypes.byref(ctypes.c_void_p()))


@rule("urCommandBufferUpdateWaitEventsExp", "wait_events: the command waits for the new ones")
def test_wait_events(ur: URCalls, make: URObjects, queue: int, buffer: int) -> None:
    need_events(ur)
    recording = URRecording(make, isUpdatable=True)
    first, second = make.user_event(), make.user_event()
    first.complete()
    step = recording.launch(
        make.kernel(), BufferValue(buffer), ints([1]), command=True, wait=(first.handle,)
    )
    recording.finalize()
    ur.ok("urCommandBufferUpdateWaitEventsExp", step.command, 1, handles(second.handle))
    event = recording.enqueue(queue)
    is_complete = ur.is_complete(event)
    second.complete()
    make.wait(event)
    equal(is_complete, False, "whether it is complete before the new event")


@pytest.mark.parametrize(
    "count",
    each(
        (0, 2),
        "urCommandBufferUpdateWaitEventsExp",
        "wait_events: {} instead of 1: INVALID_EVENT_WAIT_LIST",
    ),
)
def test_other_number_of_wait_events(ur: URCalls, make: URObjects, buffer: int, count: int) -> None:
    need_events(ur)
    recording = URRecording(make, isUpdatable=True)
    events = [make.user_event() for _ in range(2)]
    for event in events:
        event.complete()
    step = recording.launch(
        make.kernel(), BufferValue(buffer), ints([1]), command=True, wait=(events[0].handle,)
    )
    recording.finalize()
    given = handles(*(event.handle for event in events[:count])) if count else None
    ur.fails(
        "urCommandBufferUpdateWaitEventsExp", "INVALID_EVENT_WAIT_LIST", step.command, count, given
    )
