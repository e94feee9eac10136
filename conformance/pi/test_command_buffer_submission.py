"""Submissions of command-buffers: repetition, order, events, lifetimes, threads."""

from __future__ import annotations

import ctypes

import pytest

from fairlead.conformance.checks import equal, rule
from fairlead.conformance.pi.objects import PIObjects, PIPointer, waits
from fairlead.conformance.pi.recorder import CHAINED, PREFIX, PIRecorder, chain
from fairlead.conformance.shared_cases import in_threads
from fairlead.loader.pi.abi import PI

KERNEL, ENQUEUE = "piextCommandBufferNDRangeKernel", "piextEnqueueCommandBuffer"


# Submission


@rule(ENQUEUE, "a command-buffer runs as often as it is enqueued")
def test_again(recorder: PIRecorder, objects: PIObjects, queue: int) -> None:
    memory = objects.usm("shared", [0] * 8)
    recorder.launch(objects.kernel("increment", PIPointer(memory)), 8)
    recorder.run(queue, times=5)
    equal(objects.numbers(queue, memory, 8), [5] * 8, "the memory")


@rule(ENQUEUE, "an empty command-buffer can be enqueued, and its event completes")
def test_empty(recorder: PIRecorder, objects: PIObjects, queue: int) -> None:
    recorder.finalize()
    event = recorder.enqueue_with_event(queue)
    objects.call("piEventsWait", *waits(event))
    equal(objects.status(event), PI["PI_EVENT_COMPLETE"], "the status")


@rule(
    ENQUEUE,
    "submissions need no wait in between, and are ordered: on one queue, out of order too, and on "
    "two",
)
@pytest.mark.parametrize("kind", ["in-order", "out-of-order", "two-queues"])
def test_resubmission(
    recorder: PIRecorder, objects: PIObjects, kind: str, request: pytest.FixtureRequest
) -> None:
    queue = request.getfixturevalue("out_of_order" if kind == "out-of-order" else "queue")
    queues = (queue, objects.queue()) if kind == "two-queues" else (queue,)
    memory = objects.usm("shared", [0] * 1024)
    recorder.launch(objects.kernel("twice_plus", PIPointer(memory), ctypes.c_int32(1)), 1024)
    recorder.finalize()
    for number in range(10):
        recorder.enqueue(queues[number % len(queues)])
    for one in queues:
        objects.finish(one)
    equal(objects.numbers(queue, memory, 1024), [1023] * 1024, "the memory")


@rule(ENQUEUE, "runs in order with the other commands of a queue in order")
def test_between(recorder: PIRecorder, objects: PIObjects, queue: int) -> None:
    memory = objects.usm("shared", [0] * 1024)
    recorder.launch(objects.kernel("twice_plus", PIPointer(memory), ctypes.c_int32(1)), 1024)
    recorder.finalize()
    add = objects.kernel("add", PIPointer(memory), ctypes.c_int32(10))
    objects.launch(queue, add, 1024)
    recorder.enqueue(queue)
    objects.launch(queue, add, 1024)
    equal(objects.numbers(queue, memory, 1024), [31] * 1024, "the memory")


@rule(ENQUEUE, "waits for events, and commands wait for its event")
def test_events(recorder: PIRecorder, objects: PIObjects, out_of_order: int) -> None:
    memory, event = objects.usm("shared", [0] * 1024), ctypes.c_void_p()
    recorder.launch(objects.kernel("twice_plus", PIPointer(memory), ctypes.c_int32(1)), 1024)
    recorder.finalize()
    add = objects.kernel("add", PIPointer(memory), ctypes.c_int32(10))
    objects.launch(out_of_order, add, 1024, event=ctypes.byref(event))
    ran = recorder.enqueue_with_event(out_of_order, objects.owned(event.value or 0, "pi_event"))
    objects.launch(out_of_order, add, 1024, [ran])
    equal(objects.numbers(out_of_order, memory, 1024), [31] * 1024, "the memory")


@rule(
    "piEventGetInfo",
    "PI_EVENT_INFO_COMMAND_TYPE of a submission is PI_COMMAND_TYPE_EXT_COMMAND_BUFFER; its queue "
    "and its context",
)
def test_event_info(recorder: PIRecorder, objects: PIObjects, queue: int) -> None:
    recorder.finalize()
    event = recorder.enqueue_with_event(queue)
    names = ("COMMAND_TYPE", "COMMAND_QUEUE", "CONTEXT")
    answers = [objects.number("piEventGetInfo", event, f"PI_EVENT_INFO_{name}") for name in names]
    equal(
        answers,
        [PI["PI_COMMAND_TYPE_EXT_COMMAND_BUFFER"], queue, objects.context],
        "type, queue, context",
    )


@rule(PREFIX + "Release", "a command-buffer can be released as soon as it has been enqueued")
def test_enqueue_and_release(objects: PIObjects, queue: int) -> None:
    memory, inner = (
        objects.usm("shared", [0] * 1024),
        objects.new_maker(),
    )
    recorder = PIRecorder(inner)
    chain(recorder, memory)
    recorder.finalize()
    recorder.enqueue(queue)
    inner.close()
    equal(objects.numbers(queue, memory, 1024), CHAINED, "the memory")


@rule(PREFIX + "Retain", "a second reference keeps it")
def test_retain(recorder: PIRecorder, objects: PIObjects, queue: int) -> None:
    memory = objects.usm("shared", [0] * 8)
    recorder.launch(objects.kernel("increment", PIPointer(memory)), 8)
    for action in ("Retain", "Release"):
        objects.call(PREFIX + action, recorder.handle)
    recorder.run(queue)
    equal(objects.numbers(queue, memory, 8), [1] * 8, "the memory")


@rule(PREFIX + "Release", "a command-buffer that was never finalized can be released")
def test_release_unfinalized(objects: PIObjects) -> None:
    inner = objects.new_maker()
    recorder = PIRecorder(inner)
    recorder.launch(inner.kernel("increment", PIPointer(objects.usm("shared", [0] * 8))), 8)
    inner.close()


@rule(ENQUEUE, "8 threads, each with a command-buffer and a queue of its own")
def test_threads(objects: PIObjects, recorder: PIRecorder) -> None:
    objects.usm("shared", [0])  # ends the case if the device has none

    def work(own: PIObjects, number: int) -> tuple[list[int], list[int]]:
        queue, memory = own.queue(), own.usm("shared", [0] * 64)
        mine = PIRecorder(own)
        mine.launch(own.kernel("add", PIPointer(memory), ctypes.c_int32(number)), 64)
        mine.run(queue, times=20)
        return own.numbers(queue, memory, 64), [20 * number] * 64

    in_threads(objects, work)
