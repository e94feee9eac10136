"""Captures of the adapter on Level Zero: what queues append goes into a graph instead of running.

The driver captures the list of a queue. Another queue joins when it waits for an event of the
capture. An event of the capture has no meaning outside, so nothing here asks or waits for one.
Everything that the driver refuses while it captures is refused here first, because the driver then
gives up the whole capture.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

from .core import ZE, failure
from .devices import LZDevice

if TYPE_CHECKING:
    from .captured_graphs import LZGraph
    from .events import LZEvent
    from .queues import LZQueue

_EXTENSION: Final = ZE.strings["ZE_RECORD_REPLAY_GRAPH_EXT_NAME"]


class LZCapture:
    """A capture: one or several queues record their commands into a graph.

    Args:
        queue: the queue that begins and ends the capture.

    Attributes:
        is_open: whether it has not ended.
        kept: what its commands use. Its graph gets that at the end.
    """

    def __init__(self, graph: LZGraph, queue: LZQueue) -> None:
        self.graph, self.first, self.is_open = graph, queue, True
        self.kept: list[Any] = []
        self._queues: list[LZQueue] = []
        self.join(queue)

    def join(self, queue: LZQueue) -> None:
        """Take a queue in."""
        queue.enter(self)
        self._queues.append(queue)

    def drop(self, queue: LZQueue) -> None:
        """Let a queue go that has not joined after all."""
        self._queues.remove(queue)
        queue.leave()

    def end(self) -> list[Any]:
        """Take the queues and the graph out of the capture. Returns what its commands use."""
        self.is_open = False
        for queue in self._queues:
            queue.leave()
        kept, self.kept = self.kept, []
        self._queues.clear()
        del self.graph, self.first  # the graph keeps events, which keep this
        return kept


def can_capture(device: LZDevice) -> bool:
    """Return whether queues of a device record graphs."""
    platform = device.platform
    return _EXTENSION in platform.extensions and platform.has("zeGraphCreateExt")


def refuse_capture(queue: LZQueue, what: str, waits: Sequence[LZEvent] = ()) -> None:
    """Refuse what a capture cannot have.

    Args:
        what: what it would do.

    Raises:
        URError: GRAPH_CAPTURE_UNSUPPORTED if the queue is captured, or would be.
    """
    if queue.capture is not None or any(event.cell.capture is not None for event in waits):
        raise failure("GRAPH_CAPTURE_UNSUPPORTED", f"a queue that is captured cannot {what}")
