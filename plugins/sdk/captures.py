"""Captures: which one a command belongs to, and the entry points of graphs that queues record."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, Final, Protocol, TypeVar

from .conversions import failure
from .families import EnqueueFamily
from .objects import Object

_numbers: Final = itertools.count(1)


class Capture(Protocol):
    """A capture of queues into a graph. `is_open` says whether it goes on."""

    is_open: bool


_Capture = TypeVar("_Capture", bound=Capture)


def find_capture(own: _Capture | None, waits: Sequence[_Capture | None]) -> _Capture | None:
    """Return the capture that a command becomes a part of, None for none.

    Its queue joins that capture, if it is in none.

    Args:
        own: the queue's capture, None if it is in none.
        waits: the same of each event that the command waits for.

    Raises:
        URError: GRAPH_INTERNAL_EVENT for an event of a capture that has ended,
            GRAPH_CAPTURE_UNSUPPORTED for events inside and outside, GRAPH_CAPTURE_MERGE_ATTEMPT for
            events of two captures.
    """
    found = own
    for place, capture in enumerate(waits):
        if capture is not None and not capture.is_open:
            raise failure("GRAPH_INTERNAL_EVENT")
        if found is None and capture is not None and not place:
            found = capture
        elif (found is None) != (capture is None):
            raise failure("GRAPH_CAPTURE_UNSUPPORTED", "not all events are of the capture")
        elif found is not capture:
            raise failure("GRAPH_CAPTURE_MERGE_ATTEMPT")
    return found


class GraphObject(Object):
    """A graph that queues are captured into.

    Attributes:
        number: a number that grows with every graph.
        capture: the capture that goes on, or None.
    """

    type = "ur_exp_graph_handle_t"

    def __init__(self, context: Any) -> None:
        self.context, self.number = context, next(_numbers)
        self.capture: Any = None
        self.keep: list[Any] = []

    def check_free(self, queue: Any) -> None:
        """Check that a queue can begin to record into the graph.

        Raises:
            URError: INVALID_GRAPH while another queue does, INVALID_OPERATION for a queue that
                records already.
        """
        if queue.capture is not None:
            raise failure("INVALID_OPERATION", "the queue is captured already")
        if self.capture is not None:
            raise failure("INVALID_GRAPH", "another queue is captured into the graph")


def declare_graphs(
    enqueues: EnqueueFamily,
    *,
    create: Callable[[Any], Any],
    begin: Callable[[Any], None],
    call_at_end: Callable[[Any, int, int], object],
    dump: Callable[[Any, str], None],
    instantiate: Callable[[Any], Any],
    run: Callable[[Any, Any], Any],
) -> None:
    """Declare the entry points of recorded graphs.

    A queue has `capture`, None if it is in none. A capture has `graph`, and `first`, the queue that
    began it. A graph is a `GraphObject` that has `begin(queue)`, `end()` and `is_empty`.

    Args:
        enqueues: the family of the adapter's entry points.
        create: returns an empty graph of a context.
        begin: lets a queue record into a new graph.
        call_at_end: gets a graph, the address of a function and its argument. The function is
            called when the graph is destroyed.
        dump: writes a picture of a graph to a file, in the language DOT.
        instantiate: returns the executable graph of a graph.
        run: enqueues an executable graph. It gets the call and the graph.
    """
    adapter = enqueues.adapter

    def run_graph(call: Any, graph: Any) -> Any:
        call.check_context("the graph", graph)
        return run(call, graph)

    def get_graph(queue: Any, code: str) -> Any:
        if queue.capture is None:
            raise failure(code, "the queue is not captured")
        return queue.capture.graph

    def end_capture(hQueue: Any, phGraph: Any) -> None:
        graph = get_graph(hQueue, "COMMAND_LIST_NOT_CAPTURING")
        capture, registry = graph.capture, adapter.objects
        if capture is None or capture.first is not hQueue:
            raise failure("INVALID_OPERATION", "another queue began the capture, and has to end it")
        graph.end()
        phGraph[0] = registry.show(graph) if graph.references else registry.give(graph)

    def show_graph(hQueue: Any, phGraph: Any) -> None:
        """Show the graph. The program gets no reference."""
        phGraph[0] = 0
        phGraph[0] = adapter.objects.show(get_graph(hQueue, "INVALID_OPERATION"))

    def destroy_graph(hGraph: Any) -> None:
        if hGraph.capture is not None:
            if not hGraph.references:
                raise failure("INVALID_GRAPH", "the queue makes the graph, until its capture ends")
            with suppress(Exception):  # whatever the driver says of the lost capture
                hGraph.end()
        adapter.objects.release(hGraph)

    def destroy_executable(hExecutableGraph: Any) -> None:
        adapter.objects.release(hExecutableGraph)

    adapter.declare(
        urQueueBeginCaptureIntoGraphExp=lambda hQueue, hGraph: hGraph.begin(hQueue),
        urQueueEndGraphCaptureExp=end_capture,
        urQueueIsGraphCaptureEnabledExp=lambda hQueue: hQueue.capture is not None,
        urQueueGetGraphExp=show_graph,
        urGraphDestroyExp=destroy_graph,
        urGraphCreateExp=lambda hContext: create(hContext),
        urQueueBeginGraphCaptureExp=lambda hQueue: begin(hQueue),
        urGraphSetDestructionCallbackExp=lambda hGraph, pfnCallback, pUserData: call_at_end(
            hGraph, pfnCallback, pUserData
        ),
        urGraphDumpContentsExp=lambda hGraph, filePath: dump(hGraph, filePath),
        urGraphInstantiateGraphExp=lambda hGraph: instantiate(hGraph),
        urGraphIsEmptyExp=lambda hGraph: hGraph.is_empty,
        urGraphGetIdExp=lambda hGraph: hGraph.number,
        urGraphExecutableGraphDestroyExp=destroy_executable,
    )
    enqueues.declare("urEnqueueGraphExp", "ENQUEUE_GRAPH_EXP", run_graph, "hGraph")
