"""CUDA and HIP: commands that neither move data nor launch kernels: waits, barriers, time stamps,
host tasks.
"""

from __future__ import annotations

from typing import Final

from ...loader.ur.abi import UR
from ..sdk.queues import declare_synchronization
from .captures import refuse_capture
from .clocks import make_base, make_event
from .core import API, check, find_routine
from .enqueue import CuEnqueue, enqueues
from .events import CuEvent, wait_on
from .queues import CuQueue

_TIME_STAMP: Final = UR["UR_COMMAND_TIMESTAMP_RECORDING_EXP"]


def _enqueue_wait(enqueue: CuEnqueue) -> CuEvent | None:
    """Wait for events, or for everything in the queue if there are none."""
    queue = enqueue.queue
    if enqueue.waits or queue.in_order:
        return enqueue.run()
    with queue.lock, queue.device.make_current():
        stream = queue.choose(())
        if queue.part is not None:
            queue.part.gather()
        else:
            queue.join(stream, queue.streams)
        event = enqueue.begin(stream)
        enqueue.end(stream, event)
    return event


def _enqueue_barrier(enqueue: CuEnqueue) -> CuEvent | None:
    """Let everything that follows wait for events, or for everything before it."""
    queue = enqueue.queue
    if queue.in_order:
        return enqueue.run()
    with queue.lock, queue.device.make_current():
        queue.check_waits(enqueue.waits)
        stream, part = queue.streams[0], queue.part
        if part is not None:
            part.start(enqueue.waits) if enqueue.waits else part.gather()
            part.set_barrier()
            event = enqueue.begin(stream)
            enqueue.end(stream, event)
            return event
        if enqueue.waits:
            wait_on(stream, enqueue.waits)
        else:
            queue.join(stream, queue.streams)
        event = enqueue.begin(stream)
        enqueue.end(stream, event)
        for other in queue.streams[1:]:
            queue.join(other, [stream])
            queue.note_tail(other, 0)
    return event


def _record_time(queue: CuQueue, waits: list[CuEvent]) -> CuEvent:
    refuse_capture(queue, "record the time", waits)
    enqueue = CuEnqueue(queue, "TIMESTAMP_RECORDING_EXP", waits)
    device = queue.device
    base = make_base(device)

    def record(stream: int) -> None:
        enqueue.call("EventRecord", made.end, stream)

    with device.make_current():
        made = CuEvent(queue.context, device, make_event(device, True), queue, base=base)
    enqueue.run(record)
    made.command = _TIME_STAMP
    return made


def _call_host(enqueue: CuEnqueue, function: int, data: int) -> CuEvent | None:
    """Run a host function in the queue's order. It must not call the driver."""
    device = enqueue.queue.device

    def work(stream: int) -> None:
        check(API.call_host(device, stream, function, data), find_routine("LaunchHostFunc"))

    return enqueue.run(work)


def _note_native(queue: CuQueue) -> None:
    if queue.part is not None:
        queue.part.note(None)


declare_synchronization(
    enqueues,
    wait=_enqueue_wait,
    barrier=_enqueue_barrier,
    record_time=_record_time,
    call_host=_call_host,
    after_native=_note_native,
)
