"""A captured graph: the commands of a capture block. It can be changed through its command graph.

A graph that is not changed or inspected is only its block. Its nodes are made at their first use.
Its command graph (graph/command_graph.py), with the runtime's objects for PyOpenCL's, is made when
something needs it. So capture and replay alone load no adapter.
"""

from __future__ import annotations

import sys
import weakref
from collections.abc import Iterable, Iterator, Mapping
from contextlib import AbstractContextManager
from threading import RLock
from typing import TYPE_CHECKING, Any, ClassVar, overload

from ..graph.command_graph import Addable, CommandGraph
from ..graph.conditions import Decides
from ..graph.dynamic import DynamicParameter
from ..graph.files import Saves
from ..graph.node import Node
from ..graph.nodes import Nodes, cut_edges
from ..graph.picture import Drawable
from ..graph.recording import make_recording_error
from ..icd.capture.recording import CaptureError
from .block import CapturedBlock
from .commands import CapturedLaunch
from .executable import Executable
from .nodes import CapturedNode, make_nodes
from .pyopencl_client import warn_in_program

if TYPE_CHECKING:
    from ..runtime.context import Context
    from ..runtime.platform import Device
    from ..runtime.queue import Queue


class NotFinalizedError(CaptureError, AttributeError):
    """A graph was used as what `finalize` returns."""


class CapturedGraph(Nodes, Drawable, Decides, Saves):
    """The commands of a capture block. It can be inspected, changed and finalized after the block.

    `graph[3]`, slices, iteration and `nodes` give nodes in the order of recording, added ones at
    the end. `edges` gives pairs of their indices. It is changed like a CommandGraph: its nodes
    belong to `command_graph`.

    Attributes:
        block: what was recorded.
        queue: a queue like the first captured one that is captured too, for code that takes a
            queue. Only inside the block.
        state: "recording" inside the block, then "captured", or "failed" if the block raised: the
            graph is empty then.
    """

    executable_class: ClassVar[type[Executable]] = Executable
    _nodes: list[Node] | None = None
    _command_graph: CommandGraph | None = None

    def __init__(self, block: CapturedBlock) -> None:
        super().__init__()
        self.block = block
        self.queue: Any = None
        self.state = "recording"
        self.lock: AbstractContextManager[Any] = RLock()

    if not TYPE_CHECKING:  # a type checker shall find what is misspelt

        def __getattr__(self, name: str) -> Any:
            if not name.startswith("_") and hasattr(Executable, name):
                raise NotFinalizedError(
                    "the graph is not finalized.",
                    call=name,
                    remedy=f"finalize() first: loop = graph.finalize(), and then loop.{name}",
                )
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")

    def end(self, failed: bool, variables: Mapping[str, Any]) -> None:
        """End the recording. See `CapturedBlock.end`."""
        self.queue = None
        self.state = "failed" if failed else "captured"
        self.block.end(failed, variables)

    # its nodes, made at their first use

    if TYPE_CHECKING:  # they are of the same class, unless the program adds others

        def __iter__(self) -> Iterator[CapturedNode]: ...
        @overload
        def __getitem__(self, index: int) -> CapturedNode: ...
        @overload
        def __getitem__(self, index: slice) -> list[CapturedNode]: ...
        def __getitem__(self, index: int | slice) -> Any: ...

    def all_nodes(self) -> list[Node]:
        if self.state == "recording":
            return []
        if self._nodes is None:
            self._nodes = list(make_nodes(self.block, _Owner(self)))
        return self._nodes

    def __len__(self) -> int:
        return len(self.block) if self._nodes is None else len(self._nodes)

    def find(self, kernel: str) -> list[CapturedNode]:
        """Return the nodes that launch a kernel of this name, in the order of recording."""
        return [
            node
            for node in self.nodes
            if isinstance(node, CapturedNode)
            and isinstance(node.command, CapturedLaunch)
            and node.command.kernel_name == kernel
        ]

    @property
    def is_as_recorded(self) -> bool:
        """Whether the graph is as the block left it."""
        nodes = self._nodes
        if nodes is None:
            return True
        return (
            len(nodes) == len(self.block)
            and sum(len(node.predecessors) for node in nodes) == self.block.edge_count
            and not any(
                isinstance(node.command, CapturedLaunch) and node.command.changed for node in nodes
            )
        )

    # its command graph, made at its first use

    @property
    def command_graph(self) -> CommandGraph:
        """The command graph that its nodes belong to. Raises CaptureError inside the block."""
        with self.lock:
            if self._command_graph is None:
                self._check_ended("command_graph")
                made = CommandGraph(self.context, self.devices)
                made.adopt(self.all_nodes(), self.lock)
                self._command_graph = made
            return self._command_graph

    @property
    def dynamic_parameters(self) -> Iterable[DynamicParameter]:
        """The dynamic parameters that were made for its command graph and live."""
        return () if self._command_graph is None else self._command_graph.dynamic_parameters

    @property
    def context(self) -> Context:
        """The runtime's context for the one that was captured in."""
        return self.block.context

    @property
    def devices(self) -> tuple[Device, ...]:
        """The runtime's devices of the queues that were captured."""
        return tuple(dict.fromkeys(self.block.runtime_devices))

    @property
    def device(self) -> Device:
        """The first of its devices."""
        return self.devices[0]

    @property
    def is_recording(self) -> bool:
        """Whether the block has not ended, or a queue of the runtime's is recording to it."""
        graph = self._command_graph
        return self.state == "recording" or (graph is not None and graph.is_recording)

    def add(
        self,
        what: Addable = None,
        *,
        depends_on: Node | Iterable[Node] = (),
        depends_on_all_leaves: bool = False,
        device: Device | None = None,
    ) -> Node:
        """Add a node. See `CommandGraph.add`."""
        self._check_explicit("add")
        return self.command_graph.add(
            what, depends_on=depends_on, depends_on_all_leaves=depends_on_all_leaves, device=device
        )

    def make_edge(self, src: Node, dst: Node) -> None:
        """Let `dst` come after `src`. See `CommandGraph.make_edge`."""
        self._check_explicit("make_edge")
        self.command_graph.make_edge(src, dst)

    def begin_recording(self, queues: Queue | Iterable[Queue]) -> bool:
        """Let runtime queues record to this graph. See `CommandGraph.begin_recording`."""
        return self.command_graph.begin_recording(queues)

    def end_recording(self, queues: Queue | Iterable[Queue] | None = None) -> bool:
        """Let runtime queues execute again. See `CommandGraph.end_recording`."""
        return self.command_graph.end_recording(queues)

    def recording(self, *queues: Queue) -> AbstractContextManager[CommandGraph]:
        """Let runtime queues record for the length of a block. See `CommandGraph.recording`."""
        return self.command_graph.recording(*queues)

    def _check_explicit(self, routine: str) -> None:
        if self.state == "recording":
            raise make_recording_error(routine)

    def _check_ended(self, call: str) -> None:
        if self.state == "recording":
            raise CaptureError(
                "the block has not ended.",
                call=call,
                remedy="do it after the with block has ended without an error",
            )

    # the end

    def finalize(
        self,
        *,
        schedule: str = "auto",
        updatable: bool = False,
        enable_profiling: bool = False,
        policy: str = "seed",
        fuse: str | bool | None = None,
    ) -> Executable:
        """Make the graph ready to be replayed.

        A RuntimeWarning says what the program could do so that replays are much faster: share its
        buffers with CUDA.

        Args:
            schedule: how captured commands that branch run on an out-of-order queue. "queues":
                branches on several in-order queues of our own. "levels": a barrier between two task
                levels. "events": each command waits for its direct predecessors. "in-order": as
                recorded, one after the other. "auto": they take turns after the first replays,
                and the fastest stays. On an in-order queue it makes no difference.
            updatable: whether its nodes can be updated.
            enable_profiling: whether its replays have times, if their queue profiles.
            policy: how it is divided into partitions, "seed" or "rank" (graph/partition.py).
            fuse: whether launches over the same items become one kernel: False; "auto",
                where that is proven to give the same bits; "wait", which also waits until the
                kernels are built; or "check", which also runs the first replays both ways and
                raises FusionError in a replay that differs. None: what FAIRLEAD_FUSE says, by
                default "auto".

        Raises:
            CaptureError: the block has not ended, or failed.
            ArgumentError: `fuse` or FAIRLEAD_FUSE has another value.
            UnknownEngineError: FAIRLEAD_COMMAND_BUFFER names an unknown engine.
        """
        self.block.check_process("finalize")
        self._check_ended("finalize")
        if self.state == "failed":
            raise CaptureError(
                "the block failed, and nothing of it was captured.",
                call="finalize",
                remedy="finalize after the with block has ended without an error",
            )
        with self.lock:
            made = self.executable_class(
                self,
                schedule,
                updatable=updatable,
                profiling=enable_profiling,
                policy=policy,
                fuse=fuse,
            )
        if text := made.suggest_speedup():
            warn_in_program(text, sys._getframe(1))
        return made

    def __del__(self) -> None:
        """Cut the references among nodes, which would live until a garbage collection.

        A command graph does that itself.
        """
        nodes = self._nodes if self._command_graph is None else None
        if nodes is not None and cut_edges is not None:  # Python is not taking modules down
            cut_edges(nodes)

    def __repr__(self) -> str:
        return f"<CapturedGraph of {len(self)} nodes>"


class _Owner:
    """Returns the command graph of a captured graph to its nodes, None if the graph is gone."""

    def __init__(self, graph: CapturedGraph) -> None:
        self._graph = weakref.ref(graph)

    def __call__(self) -> CommandGraph | None:
        graph = self._graph()
        return None if graph is None else graph.command_graph
