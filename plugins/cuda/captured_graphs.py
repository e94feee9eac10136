"""CUDA and HIP: graphs that queues record, and the executable graphs made of them: entry points of
both.

Commands of two captures into one graph come one after the other. An executable graph holds what its
commands use. (Unified Runtime: experimental graph record and replay.)
"""

from __future__ import annotations

import ctypes
import itertools
import weakref
from typing import Any, Final

from ...loader.base.forks import make_lock
from ..sdk.captures import declare_graphs
from .captures import CuCapture
from .contexts import CuContext
from .core import Object, adapter, check, failure, find_routine
from .devices import CuDevice
from .enqueue import CuEnqueue, enqueues
from .events import CuEvent
from .queues import CuQueue

_Callback: Final = ctypes.CFUNCTYPE(None, ctypes.c_void_p)
_numbers: Final = itertools.count(1)
_lock = make_lock()


@adapter.kind
class CuGraph(Object):
    """A graph that queues are captured into.

    Attributes:
        number: a number that grows with every graph.
        ends: the nodes that the next capture comes after.
        capture: the capture that goes on, or None.
        keep: what its commands use.
        callbacks: functions of the program that are called at the end, with their data.
    """

    type = "ur_exp_graph_handle_t"

    def __init__(self, context: CuContext, device: CuDevice) -> None:
        self.context, self.device = context, device
        self.native = device.make("GraphCreate", 0)
        self.number = next(_numbers)
        self.ends: tuple[int, ...] = ()
        self.capture: CuCapture | None = None
        self.keep: list[Any] = []
        self.callbacks: list[tuple[int, int]] = []
        self._failed = False

    def begin(self, queue: CuQueue) -> None:
        """Let a queue record into the graph.

        Raises:
            URError: INVALID_CONTEXT, INVALID_DEVICE, INVALID_GRAPH while another queue does,
                INVALID_OPERATION for a queue that records already.
            DriverError: what the driver answers.
        """
        queue.context.check_same("the graph", self)
        if queue.device is not self.device:
            raise failure("INVALID_DEVICE", "the queue is of another device")
        with _lock, queue.lock:
            if queue.part is not None:
                raise failure("INVALID_OPERATION", "the queue is captured already")
            if self.capture is not None:
                raise failure("INVALID_GRAPH", "another queue is captured into the graph")
            self.capture = CuCapture(self, queue)

    def end(self) -> None:
        """End the capture. Raises DriverError: then nothing can be made of the graph."""
        with _lock:
            capture, self.capture = self.capture, None
            assert capture is not None
            self._failed = True
            capture.end()
            self._failed = False

    def add_child(self, child: int) -> None:
        """Add all that a CUgraph does as one node, and destroy it. Raises DriverError."""
        before = (ctypes.c_void_p * max(len(self.ends), 1))(*self.ends)
        given = self.native, before, len(self.ends), child
        self.ends = (self.device.make("GraphAddChildGraphNode", *given),)
        self.device.ask("GraphDestroy", child)

    @property
    def is_empty(self) -> bool:
        """Return whether the graph has no nodes. Raises DriverError."""
        count = ctypes.c_size_t()
        self.device.call("GraphGetNodes", self.native, None, ctypes.byref(count))
        return not count.value

    def check_complete(self) -> None:
        """Raise URError (INVALID_GRAPH) during the graph's capture, or after a failed one."""
        if self.capture is not None or self._failed:
            what = "has not ended" if self.capture is not None else "has failed"
            raise failure("INVALID_GRAPH", f"a capture into the graph {what}")

    def get_native(self) -> int:
        return self.native

    def close(self) -> None:
        self.device.ask("GraphDestroy", self.native)
        for function, data in self.callbacks:
            _Callback(function)(data)


@adapter.kind
class CuExecutableGraph(Object):
    """A graph that can be enqueued.

    Args:
        graph: what it is made of, as it is now.
    """

    type = "ur_exp_executable_graph_handle_t"

    def __init__(self, graph: CuGraph) -> None:
        graph.check_complete()
        self.context, self.device, self.keep = graph.context, graph.device, list(graph.keep)
        self.native = self.device.make("GraphInstantiateWithFlags", graph.native, 0)
        self._graph, self._ends = weakref.ref(graph), graph.ends

    def get_source(self) -> int:
        """Return the CUgraph that the executable graph was made of.

        Raises:
            URError: GRAPH_CAPTURE_UNSUPPORTED if the graph was destroyed or captured into since.
        """
        graph = self._graph()
        gone = graph is None or not graph.references  # an event of its capture may still hold it
        if graph is None or gone or graph.capture is not None or graph.ends is not self._ends:
            raise failure("GRAPH_CAPTURE_UNSUPPORTED", "its graph was destroyed or has changed")
        return graph.native

    def get_native(self) -> int:
        return self.native

    def close(self) -> None:
        self.device.ask("GraphExecDestroy", self.native)  # the driver does so after its launches


# recording


@adapter.entry
def urGraphCreateExp(hContext: CuContext) -> CuGraph:
    """Make an empty graph for the context's first device."""
    return CuGraph(hContext, hContext.device)


@adapter.entry
def urQueueBeginGraphCaptureExp(hQueue: CuQueue) -> None:
    graph = CuGraph(hQueue.context, hQueue.device)
    graph.begin(hQueue)


declare_graphs(adapter)


@adapter.entry
def urGraphSetDestructionCallbackExp(hGraph: CuGraph, pfnCallback: int, pUserData: int) -> None:
    hGraph.callbacks.append((pfnCallback, pUserData))


@adapter.entry
def urGraphDumpContentsExp(hGraph: CuGraph, filePath: str) -> None:
    """Let the driver write a picture of the graph, in the language DOT."""
    device = hGraph.device
    if not device.has("GraphDebugDotPrint"):
        raise failure("UNSUPPORTED_FEATURE", "the driver is too old to print graphs")
    code = device.ask("GraphDebugDotPrint", hGraph.native, filePath.encode(), 0)
    check(code, find_routine("GraphDebugDotPrint"), filePath)


# executable graphs


@adapter.entry
def urGraphInstantiateGraphExp(hGraph: CuGraph) -> CuExecutableGraph:
    return CuExecutableGraph(hGraph)


@enqueues("ENQUEUE_GRAPH_EXP")
def urEnqueueGraphExp(enqueue: CuEnqueue, hGraph: CuExecutableGraph) -> CuEvent | None:
    enqueue.check_context("the graph", hGraph)
    if enqueue.queue.device is not hGraph.device:
        raise failure("INVALID_DEVICE", "the queue is of another device")
    return enqueue.run_graph(hGraph.native, hGraph.get_source, hGraph)
