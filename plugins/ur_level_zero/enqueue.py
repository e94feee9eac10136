"""Adapter on Level Zero: what all entry points have in common that enqueue commands: `LZEnqueue`,
`@enqueues`.

An entry point of Unified Runtime may need several of Level Zero's commands. The caller gets one
event, whose times are those of all the commands.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from ..sdk.families import EnqueueCall, EnqueueFamily
from .captures import refuse_capture
from .core import adapter
from .events import LZEvent
from .queues import BARRIER, LZQueue

#: A function of Level Zero, and its arguments between the list and the event.
Call = tuple[str, tuple[Any, ...]]


class LZEnqueue(EnqueueCall):
    """A call that enqueues a command."""

    queue: LZQueue

    def __init__(
        self,
        queue: LZQueue,
        command: str,
        waits: Sequence[LZEvent] = (),
        wanted: bool = False,
        blocking: bool = False,
    ) -> None:
        super().__init__(queue, command, waits, wanted, blocking)
        if blocking:
            refuse_capture(queue, "run commands that block", waits)

    def call(self, routine: str, *arguments: Any, keep: Any = ()) -> LZEvent | None:
        """Enqueue one command, and return the event, or None if nobody needs it.

        Args:
            routine: the function of Level Zero.
            arguments: its arguments between the list and the event.
            keep: what has to live until the command has ended.

        Raises:
            URError: a wait list that the queue cannot wait for.
        """
        wanted = self.wanted or self.blocking
        event = self.queue.append_command(
            routine, self.command, arguments, self.waits, wanted, keep
        )
        return self.complete(event)

    def mark(self, keep: Any = ()) -> LZEvent | None:
        """Enqueue a command that does nothing: it has its place in the order, and an event."""
        return self.call(BARRIER, keep=keep)

    def call_each(self, calls: Sequence[Call], keep: Any = ()) -> LZEvent | None:
        """Enqueue commands that may run in any order. Arguments are those of `call`."""
        if len(calls) == 1:
            return self.call(calls[0][0], *calls[0][1], keep=keep)
        queue, wanted = self.queue, self.wanted or self.blocking
        cells, waits = [], queue.list_cells(self.waits)
        with queue.lock:
            for index, (routine, arguments) in enumerate(calls):
                needed = not queue.in_order or (wanted and not index)
                cell = queue.take_cell() if needed else None
                queue.append(routine, *arguments, waits=waits, cell=cell, keep=keep)
                cells += [cell] if cell is not None else []
            event = queue.make_event(self.command) if wanted else None
            if event is not None:
                event.first = cells[0]
                queue.append(
                    BARRIER, waits=() if queue.in_order else cells, cell=event.cell, keep=cells
                )
        return self.complete(event)

    def complete(self, event: LZEvent | None) -> LZEvent | None:
        """Wait for the event if the caller does. Raises LevelZeroError if it failed."""
        if self.blocking and event is not None:
            event.wait()
        return event


enqueues: Final = EnqueueFamily(adapter, LZEnqueue)
