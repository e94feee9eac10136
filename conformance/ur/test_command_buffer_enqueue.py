"""Submissions of command-buffers: events, order, repetition, profiling, release."""

from __future__ import annotations

import pytest

from fairlead.conformance.arrays import ints
from fairlead.conformance.checks import beyond_specification, equal, failed, rule
from fairlead.conformance.ur.calls import URCalls
from fairlead.conformance.ur.objects import COUNT, SIZE, URObjects
from fairlead.conformance.ur.recording import LAUNCH, URRecording
from fairlead.conformance.ur.values import BufferValue
from fairlead.loader.ur.abi import UR

ENQUEUE = "urEnqueueCommandBufferExp"
CREATE = "urCommandBufferCreateExp"
FILL = "urCommandBufferAppendMemBufferFillExp"


# Enqueue


def record_add_one(make: URObjects, buffer: int, **fields: bool) -> URRecording:
    """Return a command-buffer that adds 1 to a buffer."""
    recording = URRecording(make, **fields)
    recording.launch(make.kernel("add_one"), BufferValue(buffer))
    recording.finalize()
    return recording


@pytest.mark.parametrize(
    "flags",
    [
        pytest.param(
            f, marks=rule(ENQUEUE, f"repeated: 20 times without a wait ({f or 'in order'})")
        )
        for f in ("", "OUT_OF_ORDER_EXEC_MODE_ENABLE")
    ],
)
def test_repeated(ur: URCalls, make: URObjects, buffer: int, flags: str) -> None:
    queue = make.queue(flags)
    make.write(queue, buffer, [0] * COUNT)
    recording = record_add_one(make, buffer)
    events = [recording.enqueue(queue) for _ in range(20)]
    make.wait(events[-1])
    ur.ok("urQueueFinish", queue)
    equal(make.read(queue, buffer), [20] * COUNT, "the buffer")


@rule(ENQUEUE, "serialised: enqueues on two queues are executed one after the other")
def test_serialised_across_queues(ur: URCalls, make: URObjects, buffer: int) -> None:
    queues = make.queue(), make.queue()
    make.write(queues[0], buffer, [0] * COUNT)
    recording = record_add_one(make, buffer)
    for number in range(20):
        recording.enqueue(queues[number % 2])
    for queue in queues:
        ur.ok("urQueueFinish", queue)
    equal(make.read(queues[0], buffer), [20] * COUNT, "the buffer")


@rule(ENQUEUE, "serialised: the second of two queues waits for the first, which waits for an event")
def test_serialised_behind_a_gate(ur: URCalls, make: URObjects, buffer: int) -> None:
    first, second, gate = make.queue(), make.queue(), make.user_event()
    make.write(first, buffer, [0] * COUNT)
    recording = record_add_one(make, buffer)
    recording.enqueue(first, gate.handle)
    event = recording.enqueue(second)
    is_complete = ur.is_complete(event)
    gate.complete()
    make.wait(event)
    ur.ok("urQueueFinish", first)
    equal(is_complete, False, "whether the second was complete before the first")
    equal(make.read(first, buffer), [2] * COUNT, "the buffer")


@rule(ENQUEUE, "waits_for_events: nothing is executed before the events of the list")
def test_waits_for_events(ur: URCalls, make: URObjects, queue: int, buffer: int) -> None:
    other = make.queue()
    gate = make.user_event()
    filled = make.enqueue(
        "urEnqueueMemBufferFill", other, buffer, ints([5]), 4, 0, SIZE, after=(gate.handle,)
    )
    recording = record_add_one(make, buffer)
    event = recording.enqueue(queue, filled)
    gate.complete()
    make.wait(event)
    equal(make.read(queue, buffer), [6] * COUNT, "the buffer")


@rule(ENQUEUE, "event_when_complete: the event is complete when all commands are")
def test_event_when_complete(make: URObjects, queue: int) -> None:
    recording, buffers = URRecording(make), [make.buffer() for _ in range(8)]
    for value, buffer in enumerate(buffers):
        recording.launch(make.kernel(), BufferValue(buffer), ints([value]))
    recording.finalize()
    make.wait(recording.enqueue(queue))
    other = make.queue()  # it orders nothing behind the enqueue
    for value, buffer in enumerate(buffers):
        equal(make.read(other, buffer), [value] * COUNT, f"buffer {value}")


@rule(
    ENQUEUE, "in an in-order queue it comes after what was before it, and before what comes after"
)
def test_between_commands(make: URObjects, queue: int, buffer: int) -> None:
    recording = record_add_one(make, buffer)
    out = make.buffer()
    make.launch(queue, make.kernel(), BufferValue(buffer), ints([40]))
    recording.enqueue(queue)
    make.launch(queue, make.kernel("copy"), BufferValue(out), BufferValue(buffer))
    equal(make.read(queue, out), [41] * COUNT, "what was copied after it")


@rule(ENQUEUE, "in an out-of-order queue a command can wait for its event")
def test_waited_for(make: URObjects, out_of_order: int, buffer: int) -> None:
    make.write(out_of_order, buffer, [1] * COUNT)
    recording, out = record_add_one(make, buffer), make.buffer()
    event = recording.enqueue(out_of_order)
    make.wait(
        make.launch(
            out_of_order, make.kernel("copy"), BufferValue(out), BufferValue(buffer), after=(event,)
        )
    )
    equal(make.read(out_of_order, out), [2] * COUNT, "what was copied after it")


@rule(ENQUEUE, "no event asked for: it is executed all the same")
def test_without_event(ur: URCalls, make: URObjects, queue: int, buffer: int) -> None:
    make.write(queue, buffer, [0] * COUNT)
    recording = record_add_one(make, buffer)
    for _ in range(3):
        ur.ok(ENQUEUE, queue, recording.handle)
    equal(make.read(queue, buffer), [3] * COUNT, "the buffer")


@rule(ENQUEUE, "the command type of its event is ENQUEUE_COMMAND_BUFFER")
def test_command_type(ur: URCalls, make: URObjects, queue: int, buffer: int) -> None:
    event = record_add_one(make, buffer).enqueue(queue)
    make.wait(event)
    kind = ur.info("urEventGetInfo", event, "UR_EVENT_INFO_COMMAND_TYPE")
    equal(
        UR.groups["ur_command_t"].get(kind, kind),
        "UR_COMMAND_ENQUEUE_COMMAND_BUFFER_EXP",
        "the command's type",
    )


@rule(ENQUEUE, "profiling: its event has the times of start and end")
def test_profiling(ur: URCalls, make: URObjects, buffer: int) -> None:
    queue = make.queue("PROFILING_ENABLE")
    event = record_add_one(make, buffer, enableProfiling=True).enqueue(queue)
    make.wait(event)
    names = ("QUEUED", "SUBMIT", "START", "END")
    times = [
        ur.info("urEventGetProfilingInfo", event, f"UR_PROFILING_INFO_COMMAND_{name}")
        for name in names
    ]
    equal(times, sorted(times), "the times")
    if not times[3]:
        failed("times that are not 0", times)


@rule("urCommandBufferReleaseExp", "release_while_executing: what was enqueued is executed")
def test_release_while_executing(make: URObjects, queue: int, buffer: int) -> None:
    make.write(queue, buffer, [0] * COUNT)
    recording, gate = record_add_one(make, buffer), make.user_event()
    recording.enqueue(queue, gate.handle)
    recording.enqueue(queue)
    make.release(recording.handle)
    gate.complete()
    equal(make.read(queue, buffer), [2] * COUNT, "the buffer")


@rule(ENQUEUE, "two command-buffers on one memory, in turn")
def test_two(make: URObjects, queue: int, buffer: int) -> None:
    make.write(queue, buffer, [0] * COUNT)
    first, second = record_add_one(make, buffer), URRecording(make)
    second.launch(make.kernel("twice"), BufferValue(buffer))
    second.finalize()
    for _ in range(5):
        first.enqueue(queue)
        second.enqueue(queue)
    equal(make.read(queue, buffer), [62] * COUNT, "the buffer")


@rule(LAUNCH, "a thousand commands")
def test_many_commands(make: URObjects, queue: int, buffer: int) -> None:
    make.write(queue, buffer, [0] * COUNT)
    recording, kernel = URRecording(make, isInOrder=True), make.kernel("add_one")
    for _ in range(1000):
        recording.launch(kernel, BufferValue(buffer))
    recording.finalize_and_run(queue)
    recording.run(queue)
    equal(make.read(queue, buffer), [2000] * COUNT, "the buffer")


@beyond_specification
@rule("urKernelRelease", "kernel and buffer may be released once they are appended")
def test_released_objects(make: URObjects, queue: int, buffer: int) -> None:
    recording, kernel, other = URRecording(make, isInOrder=True), make.kernel(), make.buffer()
    recording.launch(kernel, BufferValue(other), ints([7]))
    recording.copy(other, buffer)
    recording.finalize()
    make.release(kernel)
    make.release(other)
    recording.run(queue)
    equal(make.read(queue, buffer), [7] * COUNT, "the buffer")
