"""Adapter on Level Zero: graphs that queues record, and the executable graphs made of them, by the
driver's extension.

Level Zero captures into a graph once. (Unified Runtime: experimental graph record and replay.)
"""

from __future__ import annotations

from typing import Final

from ..sdk.captures import GraphObject, declare_graphs
from ..sdk.objects import Object
from .captures import LZCapture, can_capture, refuse_capture
from .contexts import LZContext
from .core import ZE, adapter, call, check, create, failure
from .enqueue import LZEnqueue, enqueues
from .events import LZEvent
from .queues import LZQueue

_TRUE: Final = ZE.codes["ZE_RESULT_QUERY_TRUE"]
_FALSE: Final = ZE.codes["ZE_RESULT_QUERY_FALSE"]


def _check(context: LZContext) -> None:
    if not can_capture(context.devices[0]):
        raise failure("UNSUPPORTED_FEATURE", "the driver captures no graphs")


@adapter.kind
class LZGraph(GraphObject):
    """A graph of Unified Runtime that a queue is captured into: a ze_graph_handle_t.

    Args:
        ze: its ze_graph_handle_t, 0 if the driver makes it for a capture.
    """

    def __init__(self, context: LZContext, ze: int = 0) -> None:
        super().__init__(context)
        self.table, self.ze, self._is_own = context.table, ze, bool(ze)
        self.capture: LZCapture | None

    def begin(self, queue: LZQueue) -> None:
        """Let a queue record into the graph.

        Raises:
            URError: INVALID_CONTEXT, INVALID_GRAPH while another queue does, INVALID_OPERATION for
                a queue that records already.
        """
        queue.context.check_same("the graph", self)
        with queue.lock:
            self.check_free(queue)
            self.capture = LZCapture(self, queue)
            try:
                if self._is_own:
                    routine, into = "zeCommandListBeginCaptureIntoGraphExt", (self.ze,)
                else:
                    routine, into = "zeCommandListBeginGraphCaptureExt", ()
                call(self.table, routine, queue.ze, *into, None)
                if not self._is_own:
                    self.ze = create(self.table, "zeCommandListGetGraphExt", queue.ze)
            except BaseException:
                self._leave()
                raise

    def _leave(self) -> None:
        capture, self.capture = self.capture, None
        assert capture is not None
        self.keep = capture.end()

    def end(self) -> None:
        """End the capture.

        Raises:
            LevelZeroError: GRAPH_UNJOINED_FORKS, GRAPH_CAPTURE_INVALIDATED. Then the driver has
                destroyed a graph that it had made for the capture.
        """
        assert self.capture is not None
        queue = self.capture.first
        with queue.lock:
            try:
                create(self.table, "zeCommandListEndGraphCaptureExt", queue.ze, None)
            except BaseException:
                self.ze = self.ze if self._is_own else 0
                raise
            finally:
                self._leave()

    @property
    def is_empty(self) -> bool:
        """Return whether the graph has no commands. Raises LevelZeroError."""
        code = self.table.zeGraphIsEmptyExt(self.ze)
        if code not in (_TRUE, _FALSE):
            check(code, "zeGraphIsEmptyExt")
        return code == _TRUE

    def get_native(self) -> int:
        return self.ze

    def close(self) -> None:
        if self.ze:
            call(self.table, "zeGraphDestroyExt", self.ze)


@adapter.kind
class LZExecutableGraph(Object):
    """A graph that can be enqueued. Raises URError (INVALID_GRAPH) during its capture."""

    type = "ur_exp_executable_graph_handle_t"

    def __init__(self, graph: LZGraph) -> None:
        if graph.capture is not None:
            raise failure("INVALID_GRAPH", "a capture into the graph has not ended")
        self.context, self.table, self.keep = graph.context, graph.table, graph.keep
        self.ze = create(self.table, "zeGraphInstantiateExt", graph.ze, None)

    def get_native(self) -> int:
        return self.ze

    def close(self) -> None:
        call(self.table, "zeExecutableGraphDestroyExt", self.ze)


# entry points


def _create(context: LZContext) -> LZGraph:
    _check(context)
    return LZGraph(context, create(context.table, "zeGraphCreateExt", context.ze, None))


def _begin(queue: LZQueue) -> None:
    _check(queue.context)
    LZGraph(queue.context).begin(queue)


def _call_at_end(graph: LZGraph, function: int, data: int) -> None:
    routine = "zeGraphSetDestructionCallbackExt"
    call(graph.table, routine, graph.ze, function, data or None, None)


def _dump(graph: LZGraph, path: str) -> None:
    call(graph.table, "zeGraphDumpContentsExt", graph.ze, path.encode(), None)


def _run(enqueue: LZEnqueue, graph: LZExecutableGraph) -> LZEvent | None:
    refuse_capture(enqueue.queue, "run a graph", enqueue.waits)
    return enqueue.call("zeCommandListAppendGraphExt", graph.ze, None, keep=graph)


declare_graphs(
    enqueues,
    create=_create,
    begin=_begin,
    call_at_end=_call_at_end,
    dump=_dump,
    instantiate=LZExecutableGraph,
    run=_run,
)
