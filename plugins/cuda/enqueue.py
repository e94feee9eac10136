"""CUDA and HIP: what all entry points have in common that enqueue commands: `CuEnqueue`,
`@enqueues`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

from ...loader.ur.abi import UR
from ..sdk.families import EnqueueCall, EnqueueFamily
from .captures import refuse_capture
from .clocks import make_base, make_event
from .core import adapter
from .devices import CuStream
from .events import CuEvent, CuReusableEvent, wait_on
from .queues import CuQueue


class CuEnqueue(EnqueueCall):
    """A call that enqueues a command. `wanted` may be an event that is used again."""

    queue: CuQueue

    def __init__(
        self,
        queue: CuQueue,
        command: str,
        waits: Sequence[CuEvent] = (),
        wanted: bool | CuReusableEvent = False,
        blocking: bool = False,
    ) -> None:
        super().__init__(queue, command, waits, bool(wanted), blocking)
        self._is_asked_to_block = blocking
        self._signal = wanted if isinstance(wanted, CuReusableEvent) else None

    def call(self, name: str, *arguments: Any) -> None:
        """Call a function of the driver. The device's context is current. Raises DriverError."""
        self.queue.device.call_here(name, *arguments)

    def run(self, work: Callable[[int], Any] | None = None, keep: Any = None) -> CuEvent | None:
        """Enqueue a command, and return the event, None if it is not wanted.

        Args:
            work: calls the driver's functions with a CUstream, in the device's context. None
                enqueues nothing but the command's place in the order.

        Raises:
            URError: an event of the wait list is of another context; what a capture does not
                allow (`captures.join_captures`).
        """
        queue = self.queue
        with queue.lock, queue.device.make_current():
            if self._is_asked_to_block:
                refuse_capture(queue, "run commands that block", self.waits)
            if self.waits:
                queue.check_waits(self.waits)
            stream, part = queue.choose(self.waits), queue.part
            if part is None:
                wait_on(stream, self.waits)
            else:
                part.start(self.waits)
                part.capture.graph.keep.append(keep)
            event = self.begin(stream)
            if work is not None:
                work(stream.handle)
            self.end(stream, event)
        if event is not None:
            event.keep = keep
        if self.blocking and part is None:  # what a capture uses, its graph keeps
            queue.device.call("StreamSynchronize", stream.handle)
        return event

    def mark(self, keep: Any = None) -> CuEvent | None:
        """Enqueue nothing but a place in the order. Raises what `run` raises."""
        return self.run(keep=keep)

    def run_graph(
        self, executable: int, child: Callable[[], int], keep: Any, ended: int = 0
    ) -> CuEvent | None:
        """Launch an executable graph, or add what it is made of to a capture.

        Args:
            executable: the CUgraphExec.
            child: returns the CUgraph for a capture.
            ended: a CUevent that is recorded behind it, or 0.

        Returns:
            The event, None if it is not wanted.

        Raises:
            URError: as `run`, and what `child` raises.
        """

        def work(stream: int) -> None:
            part = self.queue.part
            if part is None:
                self.call("GraphLaunch", executable, stream)
                if ended:
                    self.call("EventRecord", ended, stream)
            else:
                part.add_child(child())

        return self.run(work, keep)

    def begin(self, stream: CuStream) -> CuEvent | None:
        """Make the event of a command that is enqueued next, None if it is not wanted."""
        queue = self.queue
        if not self.wanted:
            return None
        part, command = queue.part, UR[f"UR_COMMAND_{self.command}"]
        timed = queue.profiles and part is None
        if self._signal is not None:
            self._signal.signal(queue, command, timed)
            event: CuEvent = self._signal
        else:
            base = make_base(queue.device) if timed else None
            begin = make_event(queue.device, True) if timed else 0
            end = make_event(queue.device, timed)
            given = queue.context, queue.device, end, queue, command
            event = CuEvent(*given, begin=begin, base=base)
        event.stream = stream
        if part is not None:
            event.capture = part.capture
        if event.begin:
            self.call("EventRecord", event.begin, stream.handle)
        return event

    def end(self, stream: CuStream, event: CuEvent | None) -> None:
        """Record the event of the command that was enqueued last."""
        if event is not None:
            self.call("EventRecord", event.end, stream.handle)
        if self.queue.part is not None:
            self.queue.part.note(event)
        self.queue.note_tail(stream, event.end if event is not None else 0)


enqueues: Final = EnqueueFamily(adapter, CuEnqueue)
#: `enqueues.declare`, for a function without the name of its entry point.
declare_enqueue: Final = enqueues.declare
