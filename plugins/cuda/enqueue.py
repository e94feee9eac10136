"""What all entry points have in common that enqueue commands: `CuEnqueue`, `@enqueues`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from ...loader.ur.abi import UR
from ..sdk.families import EnqueueCall, EnqueueFamily
from .clocks import base_of, new_event
from .core import adapter
from .devices import CuStream
from .events import CuEvent, wait_on
from .queues import CuQueue


class CuEnqueue(EnqueueCall):
    """A call that enqueues a command."""

    queue: CuQueue

    def call(self, name: str, *arguments: Any) -> None:
        """Call a function of the driver. The device's context is current. Raises DriverError.

        Args:
            name: its neutral name.
            arguments: what it takes.
        """
        self.queue.device.call_here(name, *arguments)

    def run(self, work: Callable[[int], Any] | None = None, keep: Any = None) -> CuEvent | None:
        """Enqueue a command.

        Args:
            work: calls the driver's functions with a CUstream, in the device's context. None
                enqueues nothing but the command's place in the order.
            keep: what the command uses, and the event keeps.

        Returns:
            The event, None if it is not wanted.

        Raises:
            URError: an event of the wait list is of another context.
            DriverError: what the driver answers.
        """
        queue = self.queue
        if self.waits:
            queue.check_waits(self.waits)
        with queue.lock, queue.device.current():
            stream = queue.choose(self.waits)
            wait_on(stream, self.waits)
            event = self.begin(stream)
            if work is not None:
                work(stream.handle)
            self.end(stream, event)
        if event is not None:
            event.keep = keep
        if self.blocking:
            queue.device.call("StreamSynchronize", stream.handle)
        return event

    def begin(self, stream: CuStream) -> CuEvent | None:
        """Make the event of a command that is enqueued next, None if it is not wanted."""
        queue = self.queue
        if not self.wanted:
            return None
        base = base_of(queue.device) if queue.profiles else None
        event = CuEvent(
            queue.context,
            queue.device,
            new_event(queue.device, queue.profiles),
            queue,
            UR[f"UR_COMMAND_{self.command}"],
            begin=new_event(queue.device, True) if queue.profiles else 0,
            base=base,
        )
        event.stream = stream
        if event.begin:
            self.call("EventRecord", event.begin, stream.handle)
        return event

    def end(self, stream: CuStream, event: CuEvent | None) -> None:
        """Record the event of the command that was enqueued last."""
        if event is not None:
            self.call("EventRecord", event.end, stream.handle)
        self.queue.note_tail(stream, event.end if event is not None else 0)


enqueues: Final = EnqueueFamily(adapter, CuEnqueue)
#: `enqueues.declare`, for a function without the name of its entry point.
declare_enqueue: Final = enqueues.declare
