"""Replays of a graph of several segments: on a queue of our own.

Two barriers hold its place in the caller's queue. In an out-of-order queue, two places do
(calls.enqueue_place): the second one waits for the replay's end, and they hold nothing else up. If
barriers of the block order the queue's other commands, too, they are barriers there as well.

A thread waits for the events of a replay's wait list. So no queue waits for an event that fails,
which Intel's driver takes for a success, or which ends the process.

Our thread that waits for a host task's turn and the program's threads are in the driver's waits at
the same time. The queue is in order where an out-of-order one would make them stand still
(`out_of_order_waits_hang` of icd/driver_profiles.py).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, Final

from ..icd.calls import (
    call,
    enqueue_barrier,
    enqueue_place,
    find_device_profile,
    is_in_order,
    query_properties,
    query_status,
)
from ..icd.command_buffer.commands import has_barrier
from ..runtime.event import Event
from ..runtime.queue import Queue
from ..runtime.scheduler import run_on_host
from .segment import make_event

if TYPE_CHECKING:
    from ..graph.executable import ExecutableGraph
    from ..runtime.platform import Device
    from .block import CapturedBlock

_COMPLETE: Final = 0


class OwnQueues:
    """The runtime's queues that replays of a graph use, one for each device.

    Args:
        profiling: whether the queues profile.
    """

    def __init__(self, block: CapturedBlock, profiling: bool) -> None:
        self._block, self._profiling = block, profiling
        self._queues: dict[Device, Queue] = {}

    @cached_property
    def _fenced(self) -> bool:
        return has_barrier(self._block.recording.commands, self._block.order)

    def replay(
        self,
        graph: ExecutableGraph,
        queue: Any,
        handle: int,
        times: int,
        waits: Sequence[int],
        profiled: bool,
        before: Callable[[int], None],
    ) -> Any:
        """Enqueue a graph, and return the event of its end.

        Args:
            queue: the caller's, of pyopencl.
            times: at least 1.
            waits: events, handles.
            profiled: whether the event has the times of the first and the last command.
            before: a function that is called with the number of each turn, before it.
        """
        import pyopencl

        from .replay_end import ReplayedEvent

        context, own = self._block.context, self.get_runtime_queue(queue)
        beside = not (is_in_order(query_properties(handle)) or self._fenced)
        enqueue = enqueue_place if beside else enqueue_barrier
        begin, first = enqueue(handle, ()), None
        call(handle, "clFlush")  # SPEC clFlush: another queue's commands wait for it
        event = Event(context, make_event(begin, context))
        pending = [
            pyopencl.Event.from_int_ptr(one) for one in waits if query_status(one) != _COMPLETE
        ]
        if pending:
            event = run_on_host(context, partial(_wait_for_all, pending), [event])
        for turn in range(times):
            before(turn)
            event = graph.execute(own, [event])
            first = first or event
        own.adapter.call("urQueueFlush", own.handle)
        parts = list(event.parts())
        if profiled or any(part.deferred is not None or part.error is not None for part in parts):
            ended = ReplayedEvent(queue.context, event, first if profiled else None)
            natives = [ended.released.int_ptr]
        else:
            ended = None
            natives = [
                context.adapter.obtain("urEventGetNativeHandle", part.handle)
                for part in parts
                if part.handle
            ]
        end = pyopencl.Event.from_int_ptr(enqueue(handle, natives), False)
        call(handle, "clFlush")
        return ended or end

    def get_runtime_queue(self, queue: Any) -> Queue:
        """Return the queue of the runtime for the device of a pyopencl queue."""
        handle = queue.device.int_ptr
        device = self._block.runtime_devices[self._block.devices.index(handle)]
        if device not in self._queues:
            in_order = find_device_profile(handle).out_of_order_waits_hang
            self._queues[device] = Queue(
                self._block.context, device, in_order=in_order, profiling=self._profiling
            )
        return self._queues[device]


def _wait_for_all(events: Sequence[Any]) -> None:
    """Wait for events of pyopencl. Raises pyopencl.Error if one failed."""
    import pyopencl
    from pyopencl import _cl

    for event in events:
        event.wait()
        # NVIDIA's driver takes a wait for a failed user event for a success.
        if query_status(event.int_ptr) < _COMPLETE:
            code = pyopencl.status_code.EXEC_STATUS_ERROR_FOR_EVENTS_IN_WAIT_LIST
            raise pyopencl.RuntimeError(_cl._ErrorRecord("clWaitForEvents", code, ""))
