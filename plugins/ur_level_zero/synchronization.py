"""Adapter on Level Zero: commands that neither move data nor launch kernels: waits, barriers, time
stamps, host tasks.
"""

from __future__ import annotations

from ..sdk.queues import declare_synchronization
from .captures import refuse_capture
from .core import failure
from .enqueue import LZEnqueue, enqueues
from .events import LZEvent
from .queues import BARRIER, LZQueue


def _record_time(queue: LZQueue, waits: list[LZEvent]) -> LZEvent:
    """Enqueue a barrier whose event has times."""
    refuse_capture(queue, "record the time", waits)
    event = queue.make_event("TIMESTAMP_RECORDING_EXP")
    event.cell = event.first = queue.context.take_cell(timed=True)
    event.timed = event.is_time_stamp = True
    event.queued = event.queued or queue.device.read_clocks()[1]
    queue.append(BARRIER, waits=queue.list_cells(waits), cell=event.cell)
    return event


def _call_host(enqueue: LZEnqueue, function: int, data: int) -> LZEvent | None:
    routine = "zeCommandListAppendHostFunction"
    if not enqueue.queue.context.platform.has(routine):
        raise failure("UNSUPPORTED_FEATURE", f"the driver has no {routine}")
    return enqueue.call(routine, function, data or None, None)


declare_synchronization(
    enqueues,
    wait=LZEnqueue.mark,
    barrier=LZEnqueue.mark,
    record_time=_record_time,
    call_host=_call_host,
)
