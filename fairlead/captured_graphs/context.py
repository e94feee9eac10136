"""`with fairlead.capture(queue) as graph:` records what unmodified PyOpenCL code gives to a queue; nothing of it runs.

The block's commands become a `CapturedGraph`; `graph.finalize()` makes an `Executable` of it, whose `replay(queue)` runs all of them by
one native call. It is a command graph like any other (graph/command_graph.py): its nodes can be changed, host tasks and sub-graphs added,
and it can be a sub-graph itself. Nodes are made when somebody looks at them.

How it is done: `icd.capture` exchanges the queue's dispatch pointer, `block` is what it has recorded, `executable` runs it.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterable, Sequence
from functools import cached_property
from types import TracebackType
from typing import Any

from ..graph.command_graph import CommandGraph
from ..graph.node import Node
from ..icd.abi import CL_INVALID_CONTEXT
from ..icd.capture.recording import CaptureError, Recording
from ..icd.errors import error
from ..icd.tables import parse_version
from ..loader.base.forks import forks
from ..runtime import interop
from ..runtime.context import Context
from ..runtime.errors import Errc, SYCLError
from ..runtime.platform import Device
from . import pyopencl_client as _client
from .block import Block, Observer
from .executable import Executable
from .nodes import CapturedLaunch, CapturedNode, command_of

__all__ = ["CaptureError", "CapturedGraph", "capture"]


class CapturedGraph(CommandGraph):
    """The commands of a capture block, as a command graph. It can be looked at, changed and finalized once the block has ended.

    `graph[3]`, slices, iteration and `nodes` give nodes in the order of recording, added ones at the end; `edges` gives pairs of their
    places. `add`, `make_edge` and the other methods of a CommandGraph are for the context that was captured in.

    Attributes:
        block: what was recorded.
        queue: a queue like the first captured one that is captured too, for code that takes a queue. Only inside the block.
        state: "recording" inside the block, then "captured", or "failed" if the block raised: the graph is empty then.
    """

    def __init__(self, block: Block) -> None:
        self.block = block
        self.queue: Any = None
        self.state = "recording"
        self._forks = forks()
        self._begin()

    def check_process(self, routine: str) -> None:
        """Raise SYCLError (runtime) in a child that was forked after the capture: the threads of its drivers are not there."""
        if self._forks != forks():
            raise SYCLError(
                Errc.runtime,
                "the graph was captured before this process was forked",
                routine=routine,
                remedy='capture in the child; of multiprocessing\'s start methods use "spawn"',
            )

    def _end(self, failed: bool) -> None:
        self.queue = None
        self.state = "failed" if failed else "captured"
        self.block.end(failed)
        self.__dict__.pop("_nodes", None)

    # what a command graph is made for: the runtime's objects for PyOpenCL's, when they are needed

    @cached_property
    def context(self) -> Context:  # pyright: ignore[reportIncompatibleVariableOverride]
        """The runtime's context for the one that was captured in."""
        return interop.context_of(self.block.queues[0].context)

    @cached_property
    def devices(self) -> tuple[Device, ...]:  # pyright: ignore[reportIncompatibleVariableOverride]
        """The runtime's devices of the queues that were captured."""
        return tuple(dict.fromkeys(self.devices_of_queues))

    @cached_property
    def devices_of_queues(self) -> tuple[Device, ...]:
        """The runtime's device of each queue of the block."""
        return tuple(interop.device_of(queue.device) for queue in self.block.queues)

    @property
    def is_recording(self) -> bool:
        """Whether the block has not ended, or a queue of the runtime's is recording to it."""
        return self.state == "recording" or super().is_recording

    # nodes

    @cached_property
    def _nodes(self) -> list[Node]:  # pyright: ignore[reportIncompatibleVariableOverride]
        return list(nodes_of(self.block, self._self))

    @property
    def is_as_recorded(self) -> bool:
        """Whether nothing of it has been changed since the block ended."""
        nodes = self.__dict__.get("_nodes")
        if nodes is None:
            return True
        edges = sum(len(set(before)) for before in self.block.order.dependencies)
        return (
            len(nodes) == len(self.block)
            and sum(len(node.predecessors) for node in nodes) == edges
            and not any(
                isinstance(node.command, CapturedLaunch) and node.command.changed for node in nodes
            )
        )

    def __len__(self) -> int:
        return len(self._nodes) if "_nodes" in self.__dict__ else len(self.block)

    @property
    def uses_host_memory(self) -> bool:
        """Whether commands use memory that has no reference count in OpenCL: the host's, or SVM."""
        return self.block.uses_host_memory

    # the end

    def finalize(  # pyright: ignore[reportIncompatibleMethodOverride]
        self,
        *,
        schedule: str = "auto",
        updatable: bool = False,
        enable_profiling: bool = False,
        policy: str = "seed",
    ) -> Executable:
        """Make the graph ready to be replayed.

        Args:
            schedule: how captured commands that branch are run on an out-of-order queue: "lanes" (branches on several in-order queues of
                our own), "levels" (a barrier between two task levels), "events" (each command waits for those that it directly
                follows), "in-order" (as it was recorded, one after the other), or "auto", which measures what a barrier and an event
                cost on the device. On an in-order queue it makes no difference.
            updatable, enable_profiling, policy: as of any command graph.
        """
        self.check_process("finalize")
        if self.state != "captured":
            why = (
                "the block has not ended"
                if self.state == "recording"
                else "the block failed, and nothing of it was captured"
            )
            raise CaptureError(
                f"{why}.",
                call="finalize",
                remedy="finalize after the with block has ended without an error",
            )
        with self.lock:
            return Executable(
                self, schedule, updatable=updatable, profiling=enable_profiling, policy=policy
            )

    def __del__(self) -> None:
        """Nodes name each other: without the graph nobody needs that, and what they keep is not kept until a collection."""
        super().__del__()
        for node in self.__dict__.get("_nodes", ()):
            node.predecessors.clear()
            node.successors.clear()

    def __repr__(self) -> str:
        return f"<CapturedGraph of {len(self)} nodes>"


def nodes_of(block: Block, graph: weakref.ref[CommandGraph]) -> Sequence[CapturedNode]:
    """New nodes for the commands of a block, with their edges."""
    nodes = [CapturedNode(graph, command_of(block, index)) for index in range(len(block))]
    for node, predecessors in zip(nodes, block.order.dependencies, strict=True):
        node.predecessors = [nodes[before] for before in dict.fromkeys(predecessors)]
        for before in node.predecessors:
            before.successors.append(node)
    return nodes


class capture:
    """A context manager that captures one or several queues (all of one context).

    Inside the block the queues record instead of executing; the program uses them as always. `keep` names objects that the graph
    must keep alive although it cannot find them: host arrays, and buffers of kernels whose arguments were set before the block. To
    name a buffer is a promise: kernels with such arguments are then accepted, and all of their buffers have to be named.

    Raises CaptureError where the block asked for something that cannot be captured: in the line that asked, and if the program
    swallowed that, when the block ends. After an error the graph is empty and every queue is as it was.
    """

    def __init__(self, *queues: Any, keep: Iterable[Any] = ()) -> None:
        if not queues:
            raise _client.ArgumentError(
                "no queue was given.", routine="capture", remedy="capture(queue)"
            )
        unique = {_client.handle(queue, "CommandQueue", "capture"): queue for queue in queues}
        self._handles, queues = list(unique), tuple(unique.values())
        contexts = {_client.context_of(queue, "capture") for queue in queues}
        if len(contexts) > 1:
            raise error(
                CL_INVALID_CONTEXT,
                "capture",
                remedy="capture queues of one context; make one graph for each context",
            )
        self._queues, self._context, self._keep = queues, contexts.pop(), list(keep)
        self._graph: CapturedGraph | None = None

    def __enter__(self) -> CapturedGraph:
        import pyopencl

        first = self._queues[0]
        extra = pyopencl.CommandQueue(first.context, first.device, properties=first.properties)
        observer = Observer(self._keep)
        recording = Recording(
            [*self._handles, extra.int_ptr],
            self._context,
            observer,
            version=parse_version(first.device.platform.version),
            allow_unseen=any(map(_client.is_device_memory, self._keep)),
        )
        self._graph = CapturedGraph(Block(recording, observer, [*self._queues, extra]))
        self._graph.queue = extra
        return self._graph

    def __exit__(
        self,
        kind: type[BaseException] | None,
        raised: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        graph = self._graph
        if graph is None:
            raise CaptureError(
                "the block was never entered.",
                call="capture",
                remedy="with fairlead.capture(queue) as graph:",
            )
        graph.block.recording.end()
        refusals = graph.block.recording.refusals
        graph._end(failed=bool(raised or refusals or graph.block.recording.raised))
        if raised is None and graph.block.recording.raised is not None:
            raise graph.block.recording.raised
        if refusals and (raised is None or _is_code(raised, "INVALID_OPERATION")):
            # PyOpenCL knows only the code: the same error again, in the same line, with the reason.
            raise refusals[-1 if raised else 0].error().with_traceback(trace) from raised


def _is_code(raised: BaseException, name: str) -> bool:
    import pyopencl

    return isinstance(raised, pyopencl.Error) and name in str(raised)
