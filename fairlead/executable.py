"""A finalized graph: `replay(queue)` enqueues all of its commands by one native call.

The commands run as a command-buffer (`icd.command_buffer`), which lays them out once for every kind of queue. A replay comes
after the one before it, also on another queue; it need not be waited for.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

from . import _client
from .icd.abi import CL_INVALID_COMMAND_QUEUE, CL_INVALID_CONTEXT
from .icd.capture import CaptureError, is_captured
from .icd.command_buffer import CommandBuffer
from .icd.errors import OpenCLError, describe, error

if TYPE_CHECKING:
    from .captured import CapturedGraph

SCHEDULES: Final = ("auto", "in-order", "lanes", "levels", "events")


class ReplayError(OpenCLError):
    """A command failed while it was enqueued. `node` is its number in the graph, -1 for a barrier of the schedule.

    What was enqueued before it runs; the graph is as it was and can be replayed again.
    """

    def __init__(self, message: str, *, node: int, **parts: Any) -> None:
        super().__init__(message, **parts)
        self.node = node


def _is_in_order(queue: Any) -> bool:
    import pyopencl

    return not queue.properties & pyopencl.command_queue_properties.OUT_OF_ORDER_EXEC_MODE_ENABLE


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
        recording = graph.recording
        self._devices = [queue.device.int_ptr for queue in graph.queues]
        self._context, self._pending = recording.context, recording.pending
        self._buffer = CommandBuffer(self._context, self._devices, recording.commands, graph, graph, schedule=schedule)
        self._last: Any = None  # the event of the last replay
        _forget_finished()

    def replay(self, queue: Any, times: int = 1, wait_for: Iterable[Any] | None = None) -> Any:
        """Enqueue the graph `times` times on a pyopencl.CommandQueue and return the pyopencl.Event of its end.

        The queue belongs to the context and to a device that the graph was captured from. The first command comes after the
        events in `wait_for` and after the last replay of this executable. Nothing is waited for.

        Raises ReplayError if a command cannot be enqueued, OpenCLError for a wrong queue or event, ArgumentError for a wrong
        type.
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

        with self._buffer.lock:
            if self._pending:
                waits += self._still_pending()
            code, event, failed, _ = self._buffer.enqueue(handle, queue.device.int_ptr, _is_in_order(queue), times, waits)
            if code:
                raise self._failure(code, failed)
            self._last = result = pyopencl.Event.from_int_ptr(event, False)
        return result

    def explain(self, queue: Any) -> str:
        """How a replay on this queue is run, and why so, in a few words."""
        handle = self._checked(queue, "explain")
        return self._buffer.explain(handle, queue.device.int_ptr, _is_in_order(queue))

    def _checked(self, queue: Any, routine: str) -> int:
        """The handle of a queue that is one, and of the graph's context."""
        handle = _client.handle(queue, "CommandQueue", routine)
        if _client.context_of(queue, routine) != self._context:
            remedy = "replay on a queue of that context"
            raise error(CL_INVALID_COMMAND_QUEUE, routine, "It is not of the graph's context.", remedy)
        if queue.device.int_ptr not in self._devices:
            remedy = "replay on a queue of a captured device"
            raise error(CL_INVALID_COMMAND_QUEUE, routine, f"No command was captured for {queue.device.name}.", remedy)
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
            _unfinished.append((last, self.graph))
            _forget_finished()

    def __repr__(self) -> str:
        return f"<Executable of {len(self.graph)} nodes>"
