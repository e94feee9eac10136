"""A finalized graph: `replay(queue)` enqueues all of its commands by one native call.

The graph's order is scheduled once for every kind of queue that it is replayed on (`graph.schedule`), made into a native program
(`icd.replay`) and kept. A replay comes after the one before it, also on another queue; it need not be waited for.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

from . import _client
from .graph import Schedule, plan
from .icd.abi import CL_INVALID_COMMAND_QUEUE, CL_INVALID_CONTEXT
from .icd.capture import CaptureError, is_captured
from .icd.errors import OpenCLError, describe, error
from .icd.replay import Program, Step, time_of_order

if TYPE_CHECKING:
    from .captured import CapturedGraph

#: How much of a branching graph is tried to find out how to run it: barriers and events cost what they cost by its shape.
_MEASURED_NODES: Final = 128

SCHEDULES: Final = ("auto", "in-order", "levels", "events")


class ReplayError(OpenCLError):
    """A command failed while it was enqueued. `node` is its number in the graph, -1 for a barrier of the schedule.

    What was enqueued before it runs; the graph is as it was and can be replayed again.
    """

    def __init__(self, message: str, *, node: int, **parts: Any) -> None:
        super().__init__(message, **parts)
        self.node = node


class _Plan:
    """A schedule as a program, with the queues of our own that it needs besides the caller's."""

    def __init__(self, schedule: Schedule, program: Program, own_queues: list[Any], why: str) -> None:
        self.schedule, self.program, self.own_queues, self.why = schedule, program, own_queues, why


def _is_in_order(queue: Any) -> bool:
    import pyopencl

    return not queue.properties & pyopencl.command_queue_properties.OUT_OF_ORDER_EXEC_MODE_ENABLE


def _steps(schedule: Schedule) -> list[Step]:
    """A schedule as the native engine takes it."""
    return [(step.command, step.lane, step.waits, step.signals) for step in schedule.steps]


#: Graphs of dropped executables, with the event after which nothing of them is used any more. Looked through now and then.
_unfinished: list[tuple[Any, Any]] = []


def _forget_finished() -> None:
    import pyopencl

    done = pyopencl.command_execution_status.COMPLETE
    for item in list(_unfinished):
        if item[0].command_execution_status <= done:
            with suppress(ValueError):  # another thread was faster
                _unfinished.remove(item)


class Executable:
    """What `graph.finalize()` gives. It keeps the graph, and with it all memory that the commands use, alive.

    Thread-safe: replays from several threads follow each other.
    """

    def __init__(self, graph: CapturedGraph, schedule: str) -> None:
        if schedule not in SCHEDULES:
            raise _client.ArgumentError(
                f"there is no schedule {schedule!r}.", routine="finalize", remedy=f"one of {', '.join(SCHEDULES)}"
            )
        self.graph = graph
        self._schedule = schedule
        self._plans: dict[tuple[int, bool], _Plan] = {}
        self._devices = [queue.device for queue in graph.queues]
        self._context = graph.recording.context
        self._pending = graph.recording.pending
        self._last: tuple[int, Any, Any] | None = None  # queue (handle), event and queue of the last replay
        self._lock = threading.Lock()
        _forget_finished()

    def replay(self, queue: Any, times: int = 1, wait_for: Iterable[Any] | None = None) -> Any:
        """Enqueue the graph `times` times on a pyopencl.CommandQueue and return the pyopencl.Event of its end.

        The queue belongs to the context and to a device that the graph was captured from. The first command comes after the events
        in `wait_for` and after the last replay of this executable. Nothing is waited for.

        Raises ReplayError if a command cannot be enqueued, OpenCLError for a wrong queue or event, ArgumentError for a wrong type.
        """
        handle = self._checked(queue, "replay")
        if type(times) is not int or not 1 <= times < 1 << 32:
            remedy = "replay(queue, times=1)"
            raise _client.ArgumentError("times must be a whole number from 1 to 4294967295.", routine="replay", remedy=remedy)
        waits = self._wait_list(wait_for)
        if is_captured(handle):
            raise CaptureError(
                "the queue is being captured.", call="replay", remedy="replay on a queue that is not in a capture block"
            )
        import pyopencl

        with self._lock:
            in_order = _is_in_order(queue)
            used = self._plan(queue, in_order)
            if self._last and (self._last[0] != handle or not in_order):
                waits.append(self._last[1].int_ptr)
                self._last[2].flush()  # SPEC clFlush: whoever waits for another queue's event has to flush that queue
            if self._pending:
                waits += self._still_pending()
            lanes = [handle, *(own.int_ptr for own in used.own_queues)]
            code, event, failed = used.program.replay(lanes, times, waits)
            if code:
                raise self._failure(code, failed)
            result = pyopencl.Event.from_int_ptr(event, False)
            self._last = (handle, result, queue)
        return result

    def explain(self, queue: Any) -> str:
        """How a replay on this queue is run, and why so, in a few words."""
        self._checked(queue, "explain")
        with self._lock:
            used = self._plan(queue, _is_in_order(queue))
        commands = len(self.graph) - sum(self.graph.order_only)
        return f"{commands} commands, {used.schedule.kind}, {used.schedule.events} events in one pass: {used.why}"

    def _checked(self, queue: Any, routine: str) -> int:
        """The handle of a queue that is one, and of the graph's context."""
        handle = _client.handle(queue, "CommandQueue", routine)
        if _client.context_of(queue, routine) != self._context:
            remedy = "replay on a queue of that context"
            raise error(CL_INVALID_COMMAND_QUEUE, routine, "It is not of the graph's context.", remedy)
        return handle

    def _wait_list(self, wait_for: Iterable[Any] | None) -> list[int]:
        events: list[int] = []
        if wait_for is not None and not isinstance(wait_for, Iterable):
            raise _client.ArgumentError(
                "wait_for is no list of events.", routine="replay", remedy="replay(queue, wait_for=[event])"
            )
        for event in wait_for or ():
            events.append(_client.handle(event, "Event", "replay"))
            if event.context.int_ptr != self._context:
                raise error(
                    CL_INVALID_CONTEXT,
                    "replay",
                    "An event of the wait list is foreign.",
                    "wait for events of the graph's context",
                )
        return events

    def _still_pending(self) -> list[int]:
        """The events from before the block that have still not completed."""
        import pyopencl

        done = pyopencl.command_execution_status.COMPLETE
        waits = []
        for handle in list(self._pending):
            status = pyopencl.Event.from_int_ptr(handle, True).command_execution_status
            if status < done:
                name, sentence = describe(status)
                raise OpenCLError(
                    f"A command from before the capture block, which the graph waits for, failed. {sentence}",
                    routine="replay", code=name, value=status, remedy="capture again once the earlier command has succeeded",
                )  # fmt: skip
            if status == done:
                self._pending.remove(handle)
            else:
                waits.append(handle)
        return waits

    def _plan(self, queue: Any, in_order: bool) -> _Plan:
        device = queue.device
        found = self._plans.get((device.int_ptr, in_order))
        if found is None:
            if device not in self._devices:
                raise error(
                    CL_INVALID_COMMAND_QUEUE,
                    "replay",
                    f"No command was captured for {device.name}.",
                    "replay on a queue of a captured device",
                )
            found = self._plans[device.int_ptr, in_order] = self._make_plan(queue, device, in_order)
        return found

    def _make_plan(self, queue: Any, device: Any, in_order: bool) -> _Plan:
        """Lane 0 is the caller's queue; each other device that commands were captured for has an in-order queue of our own."""
        import pyopencl

        graph, commands = self.graph, self.graph.recording.commands
        lane_of_device, own_queues = {device.int_ptr: 0}, []
        used = {commands[node].queue for node in range(len(graph)) if not graph.order_only[node]}
        for other in (self._devices[number] for number in sorted(used)):
            if other.int_ptr not in lane_of_device:
                own_queues.append(pyopencl.CommandQueue(queue.context, other))
                lane_of_device[other.int_ptr] = len(own_queues)
        lanes = [lane_of_device.get(self._devices[commands[node].queue].int_ptr, 0) for node in range(len(graph))]
        ordered = set(range(1, len(own_queues) + 1)) | ({0} if in_order else set())
        if own_queues:
            kind, why = "events", "commands of several devices wait for each other by events"
        elif in_order:
            kind, why = "in-order", "the queue keeps the order"
        else:
            kind, why = self._choose(device)
            if kind == "in-order":
                kind, lanes, ordered = "events", [1] * len(graph), {1}
                own_queues.append(pyopencl.CommandQueue(queue.context, device))
        schedule = plan(graph, lanes, frozenset(ordered), kind)
        return _Plan(schedule, Program(commands, graph, _steps(schedule), schedule.final_waits), own_queues, why)

    def _choose(self, device: Any) -> tuple[str, str]:
        """How to run on one out-of-order queue."""
        if self._schedule != "auto":
            return self._schedule, "asked for"
        if self.graph.is_path:
            return "in-order", "the graph is a single path, so an in-order queue of its own needs no events"
        shape = self.graph.beginning(_MEASURED_NODES)
        seconds = {}
        for kind in ("levels", "events"):
            schedule = plan(shape, [0] * len(shape), frozenset(), kind)
            seconds[kind] = time_of_order(self._context, device.int_ptr, len(shape), _steps(schedule), schedule.final_waits)
        figures = ", ".join(f"{kind} {value * 1e6:.0f} µs" for kind, value in seconds.items())
        return min(
            seconds, key=seconds.__getitem__
        ), f"measured with empty commands in place of its first {len(shape)}: {figures}"

    def _failure(self, code: int, failed: int) -> ReplayError:
        name, sentence = describe(code)
        node = self.graph[failed] if failed >= 0 else None
        what = f"node {failed}, {node.label}" + (f", recorded at {node.where}" if node.where else "") if node else "a barrier"
        return ReplayError(
            f"{what}, could not be enqueued. {sentence}", routine="replay", code=name, value=code, node=failed,
            remedy="the commands before it are enqueued: finish the queue, mend the cause and replay again",
        )  # fmt: skip

    def __del__(self) -> None:
        """Host memory and SVM go with the graph, so a graph whose replay may still be using them is kept until that has ended."""
        last = getattr(self, "_last", None)
        if last is not None and self.graph.uses_host_memory:
            _unfinished.append((last[1], self.graph))
            _forget_finished()

    def __repr__(self) -> str:
        return f"<Executable of {len(self.graph)} nodes>"
