"""Submissions of command-buffers: repeated, among other commands, on other queues, from threads.

It also tests what may be released when.
"""

from __future__ import annotations

import ctypes

import pytest

from fairlead.conformance.arrays import handles
from fairlead.conformance.checks import equal, rule, unsupported
from fairlead.conformance.opencl.commands import (
    CHAINED,
    SIMULTANEOUS,
    CLRecorder,
    CommandBuffers,
    chain,
)
from fairlead.conformance.opencl.objects import OUT_OF_ORDER, PROFILING, CLObjects, check
from fairlead.conformance.opencl.shared_cases import run_in_threads
from fairlead.icd.abi import OPENCL

ENQUEUE = "clEnqueueCommandBufferKHR"
COMPLETE = OPENCL["CL_COMPLETE"]


@rule(ENQUEUE, "a command-buffer runs as often as it is enqueued")
def test_again(recorder: CLRecorder, objects: CLObjects) -> None:
    buffer = objects.buffer([0] * 8)
    recorder.launch(objects.kernel("increment", buffer), 8)
    recorder.run(times=5)
    equal(objects.read(recorder.queue, buffer), [5] * 8, "the buffer")


@rule(ENQUEUE, "commands of the queue that are enqueued while recording run at once")
def test_interleaved(recorder: CLRecorder, objects: CLObjects) -> None:
    buffer = objects.buffer([0] * 8)
    recorder.launch(objects.kernel("twice_plus", buffer, ctypes.c_int32(1)), 8)
    objects.launch(recorder.queue, objects.kernel("add", buffer, ctypes.c_int32(10)), 8)
    equal(
        objects.read(recorder.queue, buffer), [10] * 8, "the buffer before the command-buffer runs"
    )
    recorder.run()
    equal(objects.read(recorder.queue, buffer), [21] * 8, "the buffer")


@rule(ENQUEUE, "runs in order with the other commands of a queue in order")
def test_between(recorder: CLRecorder, objects: CLObjects) -> None:
    buffer = objects.buffer([0] * 1024)
    recorder.launch(objects.kernel("twice_plus", buffer, ctypes.c_int32(1)), 1024)
    recorder.finalize()
    add = objects.kernel("add", buffer, ctypes.c_int32(10))
    objects.launch(recorder.queue, add, 1024)
    recorder.enqueue()
    objects.launch(recorder.queue, add, 1024)
    equal(objects.read(recorder.queue, buffer), [31] * 1024, "the buffer")


@rule(ENQUEUE, "clFlush sends it to the device")
def test_flush(recorder: CLRecorder, objects: CLObjects) -> None:
    buffer = objects.buffer([0] * 8)
    recorder.launch(objects.kernel("increment", buffer), 8)
    recorder.finalize()
    event = recorder.enqueue_with_event()
    objects.call("clFlush", recorder.queue)
    objects.call("clWaitForEvents", 1, handles(event))
    equal(objects.read(recorder.queue, buffer), [1] * 8, "the buffer")


@rule(ENQUEUE, "the command-buffer can be released as soon as it has been enqueued")
def test_enqueue_and_release(commands: CommandBuffers, objects: CLObjects, queue: int) -> None:
    buffer = objects.buffer([0] * 1024)
    inner = objects.new_maker()
    recorder = CLRecorder(commands, inner, queue)
    chain(recorder, buffer, ordered=True)
    recorder.finalize()
    recorder.enqueue()
    inner.close()
    equal(objects.read(queue, buffer), CHAINED, "the buffer")


@rule(
    ENQUEUE,
    "submissions in order need no wait in between (since 0.9.8, or with the flag of simultaneous "
    "use)",
)
@pytest.mark.parametrize("ordered_by", ["queue", "event", "barrier"])
def test_pipeline(
    commands: CommandBuffers, objects: CLObjects, ordered_by: str, request: pytest.FixtureRequest
) -> None:
    if not commands.can_be_pipelined and not commands.can("SIMULTANEOUS_USE"):
        unsupported("the device has no simultaneous use")
    queue = request.getfixturevalue("queue" if ordered_by == "queue" else "out_of_order")
    recorder = CLRecorder(
        commands, objects, queue, flags=0 if commands.can_be_pipelined else SIMULTANEOUS
    )
    buffer = objects.buffer([0] * 1024)
    recorder.launch(objects.kernel("twice_plus", buffer, ctypes.c_int32(1)), 1024)
    recorder.finalize()
    events: list[int] = []
    for _ in range(8):
        events = [recorder.enqueue_with_event(waits=events if ordered_by == "event" else [])]
        if ordered_by == "barrier":
            objects.call("clEnqueueBarrierWithWaitList", queue)
    objects.finish(queue)
    equal(objects.read(queue, buffer), [255] * 1024, "the buffer")


@rule(
    ENQUEUE, "two submissions may be under way at once with CL_COMMAND_BUFFER_SIMULTANEOUS_USE_KHR"
)
def test_simultaneous(commands: CommandBuffers, objects: CLObjects, out_of_order: int) -> None:
    if not commands.can("SIMULTANEOUS_USE"):
        unsupported("the device has no simultaneous use")
    recorder = CLRecorder(commands, objects, out_of_order, flags=SIMULTANEOUS)
    buffer, gate = objects.buffer([0] * 64), objects.user_event()
    recorder.fill(buffer, 9, 256)
    recorder.finalize()
    events = [recorder.enqueue_with_event(waits=[gate]) for _ in range(2)]
    objects.call("clSetUserEventStatus", gate, COMPLETE)
    objects.call("clWaitForEvents", 2, handles(*events))
    equal(objects.read(out_of_order, buffer), [9] * 64, "the buffer")


# Other queues


@rule(ENQUEUE, "runs on another queue of the same device and context")
@pytest.mark.parametrize(
    "kind", [0, OUT_OF_ORDER, PROFILING], ids=["in-order", "out-of-order", "profiling"]
)
def test_another_queue(recorder: CLRecorder, objects: CLObjects, kind: int) -> None:
    device = objects.number("clGetDeviceInfo", objects.device, "CL_DEVICE_QUEUE_ON_HOST_PROPERTIES")
    if kind & ~device:
        unsupported("the device has no such queues")
    if kind and recorder.commands.version < (0, 9, 7):
        unsupported("before 0.9.7 the queue had to have the properties of the first one")
    if kind and kind & ~recorder.commands.device.info(
        "CL_DEVICE_COMMAND_BUFFER_SUPPORTED_QUEUE_PROPERTIES_KHR"
    ):
        unsupported("the device does not support such queues for command-buffers")
    buffer, other = objects.buffer([0] * 1024), objects.queue(kind)
    chain(recorder, buffer, ordered=True)
    recorder.finalize()
    recorder.enqueue(other)
    objects.finish(other)
    equal(objects.read(other, buffer), CHAINED, "the buffer")


@rule(ENQUEUE, "the queue that it was made for can be released before it runs on another")
def test_released_queue(commands: CommandBuffers, objects: CLObjects) -> None:
    inner = objects.new_maker()
    buffer, other = objects.buffer([0] * 8), objects.queue()
    recorder = CLRecorder(commands, objects, inner.queue())
    recorder.launch(objects.kernel("increment", buffer), 8)
    recorder.finalize()
    inner.close()
    recorder.enqueue(other)
    equal(objects.read(other, buffer), [1] * 8, "the buffer")


@rule(ENQUEUE, "8 threads, each with a command-buffer and a queue of its own")
def test_threads(commands: CommandBuffers, objects: CLObjects) -> None:
    def work(own: CLObjects, number: int) -> tuple[list[int], list[int]]:
        buffer, queue = own.buffer([0] * 64), own.queue()
        recorder = CLRecorder(commands, own, queue)
        recorder.launch(own.kernel("add", buffer, ctypes.c_int32(number)), 64)
        recorder.run(times=20)
        return own.read(queue, buffer), [20 * number] * 64

    run_in_threads(objects, work)


@rule("clReleaseCommandBufferKHR", "a command-buffer that was never finalized can be released")
def test_release_unfinalized(commands: CommandBuffers, objects: CLObjects, queue: int) -> None:
    inner = objects.new_maker()
    recorder = CLRecorder(commands, inner, queue)
    recorder.launch(inner.kernel("increment", recorder.argument("buffer")), 8)
    check(commands.clRetainCommandBufferKHR(recorder.handle), "clRetainCommandBufferKHR")
    check(commands.clReleaseCommandBufferKHR(recorder.handle), "clReleaseCommandBufferKHR")
    inner.close()
