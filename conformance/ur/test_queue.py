"""Queues: queries, order, flush and finish."""

from __future__ import annotations

import ctypes
import threading

import pytest

from fairlead.conformance.arrays import ints
from fairlead.conformance.checks import each, equal, rule, unsupported
from fairlead.conformance.ur.calls import URCalls
from fairlead.conformance.ur.objects import COUNT, SIZE, URObjects
from fairlead.conformance.ur.values import BufferValue
from fairlead.loader.ur.abi import UR

FLAGS = (
    "OUT_OF_ORDER_EXEC_MODE_ENABLE",
    "PROFILING_ENABLE",
    "OUT_OF_ORDER_EXEC_MODE_ENABLE PROFILING_ENABLE",
)

#: Flags that change nothing of what a queue does: every adapter may ignore these hints.
HINTS = (
    "PRIORITY_LOW",
    "PRIORITY_HIGH",
    "SUBMISSION_BATCHED",
    "SUBMISSION_IMMEDIATE",
    "DISCARD_EVENTS",
    "USE_DEFAULT_STREAM",
    "SYNC_WITH_DEFAULT_STREAM",
)


def sum_bits(flags: str) -> int:
    return sum(UR[f"UR_QUEUE_FLAG_{name}"] for name in flags.split())


@rule("urQueueCreate", "a queue without properties tells its context and device")
def test_plain(ur: URCalls, queue: int, context: int, device: int) -> None:
    equal(ur.info("urQueueGetInfo", queue, "UR_QUEUE_INFO_CONTEXT"), context, "the context")
    equal(ur.info("urQueueGetInfo", queue, "UR_QUEUE_INFO_DEVICE"), device, "the device")


@pytest.mark.parametrize("flags", each(FLAGS, "urQueueCreate", "{}: the queue reports it"))
def test_flags(ur: URCalls, make: URObjects, flags: str) -> None:
    if ur.device_says("UR_DEVICE_INFO_QUEUE_ON_HOST_PROPERTIES") & sum_bits(flags) != sum_bits(
        flags
    ):
        unsupported(f"the device has no queue with {flags}")
    queue = make.queue(flags)
    reported = ur.info("urQueueGetInfo", queue, "UR_QUEUE_INFO_FLAGS")
    equal(reported & sum_bits(flags), sum_bits(flags), "the flags of the queue")


@pytest.mark.parametrize(
    "hint", each(HINTS, "urQueueCreate", "{}: a queue that works as any other")
)
def test_hints(make: URObjects, buffer: int, hint: str) -> None:
    queue = make.queue(hint)
    make.launch(queue, make.kernel(), BufferValue(buffer), ints([3]))
    equal(make.read(queue, buffer), [3] * COUNT, "what a launch wrote")


@rule("urQueueFinish", "returns when everything has been executed")
def test_finish(ur: URCalls, make: URObjects, queue: int, buffer: int) -> None:
    events = [
        make.launch(queue, make.kernel(), BufferValue(buffer), ints([value])) for value in range(10)
    ]
    ur.ok("urQueueFinish", queue)
    for event in events:
        equal(ur.is_complete(event), True, "whether a launch after urQueueFinish is complete")


@rule("urQueueFinish", "an empty queue is finished")
def test_finish_empty(ur: URCalls, queue: int) -> None:
    ur.ok("urQueueFinish", queue)


@rule("urQueueFlush", "what was enqueued is executed without another call for the queue")
def test_flush(ur: URCalls, make: URObjects, queue: int, buffer: int) -> None:
    event = make.launch(queue, make.kernel(), BufferValue(buffer), ints([4]))
    ur.ok("urQueueFlush", queue)
    make.wait(event)
    equal(make.read(queue, buffer), [4] * COUNT, "what the launch wrote")


@rule("urQueueFlush", "returns although a command waits for an event")
def test_flush_does_not_wait(ur: URCalls, make: URObjects, queue: int, buffer: int) -> None:
    gate = make.user_event()
    fill = "urEnqueueMemBufferFill", queue, buffer, ints([5]), 4, 0, SIZE
    make.enqueue(*fill, after=(gate.handle,))
    flush = threading.Thread(target=ur.code, args=("urQueueFlush", queue))
    flush.start()
    flush.join(5)
    returned = not flush.is_alive()
    gate.complete()
    flush.join()
    ur.ok("urQueueFinish", queue)
    equal(returned, True, "whether it returned within 5 s")


@rule("urQueueCreate", "commands of an in-order queue are executed one after the other")
def test_in_order(make: URObjects, queue: int, buffer: int) -> None:
    make.write(queue, buffer, [0] * COUNT)
    kernels = [make.kernel(name) for name in ("add_one", "twice")]
    for _ in range(10):
        for kernel in kernels:
            make.launch(queue, kernel, BufferValue(buffer))
    equal(make.read(queue, buffer), [2046] * COUNT, "what twenty dependent launches wrote")


@rule(
    "urQueueGetInfo", "UR_QUEUE_INFO_EMPTY: an idle queue is empty, one whose command waits is not"
)
def test_empty(ur: URCalls, make: URObjects, queue: int) -> None:
    ur.ok("urQueueFinish", queue)
    answer = ur.code("urQueueGetInfo", queue, UR["UR_QUEUE_INFO_EMPTY"], 0, None, ctypes.c_size_t())
    if answer != "UR_RESULT_SUCCESS":
        unsupported(f"the adapter answers {answer}")
    idle = ur.info("urQueueGetInfo", queue, "UR_QUEUE_INFO_EMPTY")
    gate = make.user_event()
    make.barrier(queue, gate.handle)
    busy = ur.info("urQueueGetInfo", queue, "UR_QUEUE_INFO_EMPTY")
    gate.complete()
    ur.ok("urQueueFinish", queue)
    equal((idle, busy), (True, False), "whether it is empty")


@rule("urQueueCreate", "two queues of a context share its memory")
def test_two_queues(ur: URCalls, make: URObjects, buffer: int) -> None:
    first, second = make.queue(), make.queue()
    event = make.launch(first, make.kernel(), BufferValue(buffer), ints([6]))
    other = make.buffer()
    make.enqueue("urEnqueueMemBufferCopy", second, buffer, other, 0, 0, SIZE, after=(event,))
    ur.ok("urQueueFlush", first)
    equal(
        make.read(second, other),
        [6] * COUNT,
        "what a copy in the second queue, after a launch in the first, gave",
    )


@rule("urQueueCreate", "out of order: a command waits for the events of its list")
def test_out_of_order(make: URObjects, out_of_order: int, buffer: int) -> None:
    make.write(out_of_order, buffer, [1] * COUNT)
    event = 0
    for name in ("twice", "add_one", "twice", "add_one"):
        event = make.launch(
            out_of_order, make.kernel(name), BufferValue(buffer), after=(event,) if event else ()
        )
    make.wait(event)
    equal(make.read(out_of_order, buffer), [7] * COUNT, "what four launches in a row wrote")


@rule("urQueueCreate", "out of order: a command without a list does not wait for the one before")
def test_out_of_order_does_not_wait(
    ur: URCalls, make: URObjects, out_of_order: int, buffer: int
) -> None:
    gate = make.user_event()
    read = "urEnqueueMemBufferRead", out_of_order, buffer, False, 0, SIZE, ints([0] * COUNT)
    held = make.enqueue(*read, after=(gate.handle,))
    fill = "urEnqueueMemBufferFill", out_of_order, make.buffer(), ints([1]), 4, 0, SIZE
    make.wait(make.enqueue(*fill))  # it would hang here
    is_complete = ur.is_complete(held)
    gate.complete()
    ur.ok("urQueueFinish", out_of_order)
    equal(is_complete, False, "whether the first command is complete before its event")
