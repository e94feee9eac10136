"""Recording: the commands of queues go to a graph.

A graph has one `GraphRecorder`, and each queue that records has a `QueueRecorder`. The queue gives
it every handler, and submits nothing. Graph and queues refer to each other weakly, so neither keeps
the other alive. (sycl_ext_oneapi_graph, "Queue Recording")
"""

from __future__ import annotations

import weakref
from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import TYPE_CHECKING, Any, Final, TypeVar

from ..loader.base.forks import make_lock
from ..runtime.checks import as_list
from ..runtime.commands import Barrier
from ..runtime.errors import SYCLError, make_invalid_error
from ..runtime.event import Event
from ..runtime.handler import Handler
from ..runtime.queue import Queue
from ..runtime.queue_order import QueueOrder

if TYPE_CHECKING:
    from .command_graph import CommandGraph
    from .node import Node


#: Held while queues begin or end to record: of two graphs that both want a queue, one gets it. A
#: graph may go in any line of Python.
_lock: Final = make_lock()


class QueueRecorder:
    """Takes the commands of a queue that records.

    It knows what the queue's next node comes after, and which nodes of an out-of-order queue have
    no successor in it.
    """

    __slots__ = ("_exits", "_graph", "_order")

    def __init__(self, graph: weakref.ref[CommandGraph]) -> None:
        self._graph = graph
        self._order: QueueOrder[Node] = QueueOrder()
        self._exits: dict[Node, None] = {}

    @property
    def graph(self) -> CommandGraph | None:
        """The graph, None if it is gone."""
        return self._graph()

    def make_handler(self, queue: Queue) -> Handler:
        """Return the handler for a submission."""
        made = Handler(queue.context, self._graph(), True)
        if queue.in_order:
            # here, so that the command group sees it: async_malloc
            made.after = self._find_predecessors(queue, made)
        return made

    def record(self, queue: Queue, handler: Handler) -> Event:
        """Make a node of the command that a command-group function has named. Returns the event
        that stands for the node."""
        graph = self._graph()
        if graph is None:
            raise make_invalid_error(
                "the graph that the queue recorded to is gone",
                routine="submit",
                remedy="keep the graph while it is recorded",
            )
        with graph.lock:
            handler.graph, handler.recorded = graph, True
            handler.after = self._find_predecessors(queue, handler)
            node = graph.insert(handler, queue.device, queue)
            self._order.follow(node, queue.in_order, isinstance(node.command, Barrier))
            if not queue.in_order:
                for followed in node.predecessors:
                    self._exits.pop(followed, None)
                self._exits[node] = None
            return node.event()

    def _find_predecessors(self, queue: Queue, handler: Handler) -> Sequence[Node]:
        """Return the nodes that a node comes after because of the queue."""
        if isinstance(handler.command, Barrier) and not handler.dependencies and not queue.in_order:
            return tuple(self._exits)
        last = self._order.last
        return () if last is None else (last,)


class GraphRecorder:
    """The queues that record into a graph.

    Attributes:
        has_recorded: whether one has recorded, or records.
    """

    def __init__(self, graph: weakref.ref[CommandGraph]) -> None:
        self._graph = graph
        self._recording: weakref.WeakSet[Queue] = weakref.WeakSet()
        self.has_recorded = False
        self._tracks: weakref.WeakKeyDictionary[Queue, QueueRecorder] = weakref.WeakKeyDictionary()

    @property
    def graph(self) -> CommandGraph | None:
        """The graph, None if it is gone."""
        return self._graph()

    @property
    def is_active(self) -> bool:
        """Whether a queue records."""
        return bool(self._recording)

    @property
    def queues(self) -> list[Queue]:
        """The queues that record."""
        with _lock:
            return list(self._recording)

    def begin(self, queues: Sequence[Queue]) -> None:
        """Let queues record, all or none. Raises SYCLError (invalid)."""
        if not queues:
            raise make_invalid_error(
                "there is no queue to be recorded",
                routine="begin_recording",
                remedy="graph.recording(queue)",
            )
        graph = self._graph()
        assert graph is not None  # its method calls this
        with _lock:
            for queue in queues:
                queue.adapter.check_open("begin_recording")
                if queue.recorder is not None:
                    raise make_invalid_error(
                        "begin_recording cannot be called for a queue which is already in the "
                        "recording state.",
                        routine="begin_recording",
                        remedy="end its recording first",
                    )
                _check_place(queue, graph)
            for queue in queues:
                self._enter(queue)

    def join(self, queue: Queue) -> None:
        """Let a queue record whose command comes after one of the graph. Raises SYCLError
        (invalid)."""
        graph = self.graph
        if graph is not None:
            _check_place(queue, graph)
        with _lock:
            self._enter(queue)

    def _enter(self, queue: Queue) -> None:
        if queue not in self._tracks:
            self._tracks[queue] = QueueRecorder(self._graph)
        queue.recorder = self._tracks[queue]
        self._recording.add(queue)
        self.has_recorded = True

    def end(self, queues: Iterable[Queue] | None) -> None:
        """Let queues, or all, execute again. Raises SYCLError (invalid)."""
        with _lock:
            chosen = list(self._recording) if queues is None else list(queues)
            for queue in chosen:
                recorder = queue.recorder
                if recorder is None or recorder is self._tracks.get(queue):
                    continue
                if recorder.graph is not None:
                    raise make_invalid_error(
                        "end_recording called for a queue which is recording to a different graph.",
                        routine="end_recording",
                        remedy="end it with the graph that it records to: queue.get_graph()",
                    )
            for queue in chosen:
                if queue.recorder is self._tracks.get(queue):  # not in a forked child
                    queue.recorder = None
                self._recording.discard(queue)


def _check_place(queue: Queue, graph: CommandGraph) -> None:
    """Raise SYCLError (invalid) for a queue of another context or device than the graph's."""
    if queue.context != graph.context:
        raise make_invalid_error(
            "begin_recording called for a queue whose context differs from the graph context.",
            routine="begin_recording",
            remedy="make the graph of the queue: CommandGraph(queue)",
        )
    if queue.device not in graph.devices:
        raise make_invalid_error(
            "begin_recording called for a queue whose device differs from the graph device.",
            routine="begin_recording",
            remedy="make the graph for both devices: CommandGraph(context, [devices])",
        )


def list_queues(given: Queue | Iterable[Queue], routine: str) -> list[Queue]:
    """Return one queue, or several, as a list. Raises SYCLError (invalid) for other objects."""
    remedy = (
        "give a fairlead.runtime.Queue; a pyopencl.CommandQueue is recorded by fairlead.capture"
    )
    return as_list(given, Queue, routine, remedy, "queue that records")


R = TypeVar("R", bound="Recordable")


class Recordable:
    """The methods of a graph that queues record to."""

    recorder: GraphRecorder
    lock: AbstractContextManager[Any]

    def begin_recording(self, queues: Queue | Iterable[Queue]) -> bool:
        """Let queues record to this graph. If one cannot, none does.
        (command_graph::begin_recording)

        Raises:
            SYCLError: invalid, for no queue, and for one that records already or has another
                context or device.
        """
        with self.lock:
            self.recorder.begin(list_queues(queues, "begin_recording"))
        return True

    def end_recording(self, queues: Queue | Iterable[Queue] | None = None) -> bool:
        """Let queues, by default all, execute again. Queues that do not record are ignored.
        (command_graph::end_recording)

        Raises:
            SYCLError: invalid, for a queue that records to another graph.
        """
        with self.lock:
            self.recorder.end(None if queues is None else list_queues(queues, "end_recording"))
        return True

    @contextmanager
    def recording(self: R, *queues: Queue) -> Iterator[R]:
        """Let queues record to this graph for the length of a block.

        Queues that a command of the block makes record end with it too. Those that recorded before
        go on.

        Raises:
            SYCLError: invalid, as `begin_recording` does.
        """
        with self.lock:
            before = self.recorder.queues
            self.begin_recording(queues)
        try:
            yield self
        finally:
            with self.lock:
                self.end_recording(queue for queue in self.recorder.queues if queue not in before)

    @property
    def is_recording(self) -> bool:
        """Whether a queue is recording to the graph."""
        return self.recorder.is_active

    def check_explicit(self, routine: str) -> None:
        """Raise SYCLError (invalid) if a queue is recording, as `routine` changes the graph."""
        if self.is_recording:
            raise make_recording_error(routine)


def make_recording_error(routine: str) -> SYCLError:
    """Return the error for a graph that is changed while a queue records to it."""
    return make_invalid_error(
        f'Explicit API "{routine[0].upper()}{routine[1:]}()" function cannot be called '
        "when a queue is currently recording commands to a graph.",
        routine=routine,
        remedy="end the recording first",
    )
