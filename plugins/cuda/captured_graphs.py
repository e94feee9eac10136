"""CUDA and HIP: graphs that queues record, and the executable graphs made of them: entry points of
both.

Commands of two captures into one graph come one after the other. An executable graph holds what its
commands use. (Unified Runtime: experimental graph record and replay.)
"""

from __future__ import annotations

import ctypes
import weakref
from typing import Final

from ...loader.base.forks import make_lock
from ..sdk.captures import GraphObject, declare_graphs
from .captures import CuCapture
from .contexts import CuContext
from .core import Object, adapter, check, failure, find_routine
from .devices import CuDevice
from .enqueue import CuEnqueue, enqueues
from .events import CuEvent
from .queues import CuQueue

# void (void *data), of urGraphSetDestructionCallbackExp
_Callback: Final = ctypes.CFUNCTYPE(None, ctypes.c_void_p)
_lock = make_lock()


@adapter.kind
class CuGraph(GraphObject):
    """A graph of Unified Runtime that queues are captured into: a CUgraph.

    Attributes:
        ends: the nodes that the next capture comes after.
        callbacks: functions of the program that are called at the end, with their data.
    """

    def __init__(self, context: CuContext, device: CuDevice) -> None:
        super().__init__(context)
        self.device, self.native = device, device.make("GraphCreate", 0)
        self.ends: tuple[int, ...] = ()
        self.capture: CuCapture | None
        self.callbacks: list[tuple[int, int]] = []
        self._failed = False

    def begin(self, queue: CuQueue) -> None:
        """Let a queue record into the graph.

        Raises:
            URError: INVALID_CONTEXT, INVALID_DEVICE, INVALID_GRAPH while another queue does,
                INVALID_OPERATION for a queue that records already.
        """
        queue.context.check_same("the graph", self)
        if queue.device is not self.device:
            raise failure("INVALID_DEVICE", "the queue is of another device")
        with _lock, queue.lock:
            self.check_free(queue)
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
    """A graph of Unified Runtime that can be enqueued: a CUgraphExec.

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


# entry points


def _dump(graph: CuGraph, path: str) -> None:
    device, name = graph.device, "GraphDebugDotPrint"
    if not device.has(name):
        raise failure("UNSUPPORTED_FEATURE", "the driver is too old to print graphs")
    check(device.ask(name, graph.native, path.encode(), 0), find_routine(name), path)


def _run(enqueue: CuEnqueue, graph: CuExecutableGraph) -> CuEvent | None:
    if enqueue.queue.device is not graph.device:
        raise failure("INVALID_DEVICE", "the queue is of another device")
    return enqueue.run_graph(graph.native, graph.get_source, graph)


declare_graphs(
    enqueues,
    create=lambda context: CuGraph(context, context.device),
    begin=lambda queue: CuGraph(queue.context, queue.device).begin(queue),
    call_at_end=lambda graph, function, data: graph.callbacks.append((function, data)),
    dump=_dump,
    instantiate=CuExecutableGraph,
    run=_run,
)
