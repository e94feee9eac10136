"""Captures of CUDA and HIP: what queues enqueue goes into a graph instead of running.

A queue captures on its first stream, which no other queue has meanwhile. Another queue joins when
it waits for an event of the capture. The driver adds a node for each command, behind the nodes that
the stream has reached. That is the order of an in-order queue. For an out-of-order queue these
nodes are set before each command: the last barrier's, and those of the events that it waits for.

Everything that the driver refuses while it captures is refused here first, because the driver then
gives up the whole capture.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, Final

from ..sdk.captures import find_capture
from .core import API, failure, get_constant
from .devices import CuStream
from .events import CuEvent

if TYPE_CHECKING:
    from .captured_graphs import CuGraph
    from .queues import CuQueue

_RELAXED: Final = get_constant("CU_STREAM_CAPTURE_MODE_RELAXED")
_SET: Final = 1  # CU_STREAM_SET_CAPTURE_DEPENDENCIES


class CuCapture:
    """A capture: one or several queues record their commands into a graph.

    Args:
        queue: the queue that begins and ends the capture.

    Attributes:
        is_open: whether it has not ended.
    """

    def __init__(self, graph: CuGraph, queue: CuQueue) -> None:
        self.graph, self.first, self.is_open = graph, queue, True
        self.queues: list[CuQueue] = []
        device = queue.device
        self._into = device.has("StreamBeginCaptureToGraph")
        stream = self._take(queue)
        try:
            if self._into:
                after = _make_array(graph.ends)
                given = graph.native, after, None, len(graph.ends), _RELAXED
                device.call("StreamBeginCaptureToGraph", stream.handle, *given)
            else:
                device.call("StreamBeginCapture", stream.handle, _RELAXED)
        except BaseException:
            self._leave()
            raise

    def join(self, queue: CuQueue, event: CuEvent) -> None:
        """Take a queue in that waits for an event of the capture. Raises DriverError."""
        stream = self._take(queue)
        try:
            queue.device.call("StreamWaitEvent", stream.handle, event.end, 0)
        except BaseException:
            self._drop(queue)
            raise

    def _take(self, queue: CuQueue) -> CuStream:
        stream = queue.take_stream_alone()
        queue.part = QueuePart(self, queue, stream)
        self.queues.append(queue)
        return stream

    def _drop(self, queue: CuQueue) -> None:
        self.queues.remove(queue)
        queue.part = None
        queue.give_stream_back()

    def _leave(self) -> None:
        self.is_open = False
        for queue in list(self.queues):
            self._drop(queue)

    def end(self) -> None:
        """Complete the graph.

        Raises:
            DriverError: the capture is invalid, or queues were not joined again.
        """
        device, stream, part = self.first.device, self.first.streams[0], self.first.part
        assert part is not None
        found = ctypes.c_void_p()
        try:
            with device.make_current():
                part.gather()
                ends = part.find_nodes()
                device.call_here("StreamEndCapture", stream.handle, ctypes.byref(found))
        finally:
            self._leave()
        if self._into:
            self.graph.ends = ends
        else:  # the driver made a graph of its own, which becomes one node
            self.graph.add_child(found.value or 0)


class QueuePart:
    """A queue's part in a capture."""

    def __init__(self, capture: CuCapture, queue: CuQueue, stream: CuStream) -> None:
        self.capture, self.stream, self._device = capture, stream, queue.device
        #: Whether commands come after nothing but what they wait for. Without the driver's
        #: functions for it, they come after one another.
        self.is_free = not queue.in_order and queue.device.has("StreamUpdateCaptureDependencies")
        self._barrier: tuple[int, ...] = ()
        self._ends: dict[int, None] = {}  # nodes since the barrier that nothing comes after

    def find_nodes(self) -> tuple[int, ...]:
        """Return the nodes that the stream has reached. The device's context is current."""
        return self._find_reached()[1] if self._device.has("StreamGetCaptureInfo") else ()

    def _find_reached(self) -> tuple[int, tuple[int, ...]]:
        """Return the graph, and the nodes that the stream has reached. Raises DriverError."""
        status, graph, found = ctypes.c_uint32(), ctypes.c_void_p(), ctypes.c_void_p()
        count = ctypes.c_size_t()
        places = ctypes.byref(graph), ctypes.byref(found), *API.edge_kinds, ctypes.byref(count)
        given = ctypes.byref(status), None, *places
        self._device.call_here("StreamGetCaptureInfo", self.stream.handle, *given)
        nodes = (ctypes.c_size_t * count.value).from_address(found.value) if found.value else ()
        return graph.value or 0, tuple(nodes)

    def add_child(self, child: int) -> None:
        """Add all that a CUgraph does as the next node. The driver launches nothing in a capture.

        Args:
            child: the CUgraph, which the driver copies.

        Raises:
            URError: UNSUPPORTED_FEATURE if the driver is too old.
        """
        if not self._device.has("StreamUpdateCaptureDependencies"):
            raise failure("UNSUPPORTED_FEATURE", "the driver is too old for graphs in captures")
        graph, before = self._find_reached()
        given = _make_array(before), len(before), child
        self._set([self._device.make("GraphAddChildGraphNode", graph, *given)])

    def _set(self, nodes: Iterable[int]) -> None:
        chosen = tuple(dict.fromkeys(nodes))
        given = _make_array(chosen), *API.edge_kinds, len(chosen), _SET
        self._device.call_here("StreamUpdateCaptureDependencies", self.stream.handle, *given)

    def start(self, waits: Sequence[CuEvent]) -> None:
        """Let the next command come after the last barrier, and wait for events."""
        if self.is_free:
            self._set(self._barrier)
        for event in waits:
            self._device.call_here("StreamWaitEvent", self.stream.handle, event.end, 0)
            for node in event.nodes:
                self._ends.pop(node, None)

    def gather(self) -> None:
        """Let the next command come after all commands of the queue."""
        if self.is_free:
            self._set((*self._barrier, *self._ends))

    def note(self, event: CuEvent | None) -> None:
        """Note that a command was captured: its nodes end the part, and are its event's nodes."""
        if not self.is_free:
            return
        nodes = self.find_nodes()
        self._ends.update(dict.fromkeys(nodes))
        if event is not None:
            event.nodes = nodes

    def set_barrier(self) -> None:
        """Let all that follows come after what the stream has reached."""
        if self.is_free:
            self._barrier = self.find_nodes()
            for node in self._barrier:
                self._ends.pop(node, None)


def _make_array(nodes: Sequence[int]) -> Any:
    return (ctypes.c_void_p * len(nodes))(*nodes) if nodes else None


def join_captures(queue: CuQueue, waits: Sequence[CuEvent]) -> None:
    """Check the events that a command waits for, and let its queue join their capture.

    Raises:
        URError: see `find_capture`.
    """
    own = queue.capture
    capture = find_capture(own, [event.capture for event in waits])
    if own is None and capture is not None:
        capture.join(queue, waits[0])


def refuse_capture(queue: CuQueue, what: str, waits: Sequence[CuEvent] = ()) -> None:
    """Refuse what a capture cannot have.

    Args:
        what: what it would do.

    Raises:
        URError: GRAPH_CAPTURE_UNSUPPORTED if the queue is captured, or would be.
    """
    if queue.part is not None or any(event.capture is not None for event in waits):
        raise failure("GRAPH_CAPTURE_UNSUPPORTED", f"a queue that is captured cannot {what}")
