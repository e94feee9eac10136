"""Recorders: what takes a queue's commands while a graph records the queue."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

from .errors import make_invalid_error
from .event import Event
from .handler import Handler

if TYPE_CHECKING:
    from .queue import Queue


class Recorder(Protocol):
    """Takes the commands of a queue that is being recorded (graph/recording.py)."""

    graph: Any

    def make_handler(self, queue: Queue) -> Handler: ...
    def record(self, queue: Queue, handler: Handler) -> Event: ...


def find_recorder(queue: Queue, handler: Handler) -> Recorder | None:
    """Return the recorder of an event that the command depends on.

    It begins to record the queue, too. (SYCL-Graph, transitive queue recording)

    Raises:
        SYCLError: invalid, for an event of a graph that records no queue.
    """
    for event in handler.dependencies:
        if event.node is not None:
            recorder = event.node.recorder
            if recorder is not None:
                recorder.join(queue)
                return queue.recorder
            raise make_invalid_error(
                "an event of a graph cannot be depended on outside of the graph",
                routine="submit",
                remedy="depend on the event of the submission of the executable graph",
            )
    return None
