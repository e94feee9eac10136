"""Command graphs that can be changed: nodes are added or recorded, edges are made, and `finalize`
makes executable graphs.

    graph = CommandGraph(queue)
    with graph.recording(queue):
        queue.parallel_for(1024, kernel, memory)     # nothing of it runs
    executable = graph.finalize()
    queue.graph(executable)                          # as often as is wanted

A command's predecessors follow from its command group: the events of `depends_on`, the accessors,
and its queue's order. `make_edge` adds others, also to an earlier node. (sycl_ext_oneapi_graph;
names as Python writes them.)
"""

from __future__ import annotations

import itertools
import weakref
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager
from threading import RLock
from typing import Any, Final, NoReturn

from ..runtime.accessor import Accessor
from ..runtime.checks import as_list, check_group
from ..runtime.coherent_memory import CoherentMemory
from ..runtime.commands import Barrier, Command
from ..runtime.context import Context, get_default_context
from ..runtime.errors import make_invalid_error, make_unsupported_error
from ..runtime.handler import Handler
from ..runtime.interop import queue_of
from ..runtime.memory import MODES
from ..runtime.platform import Device
from ..runtime.queue import Queue
from .conditions import Decides
from .dynamic import DynamicCommandGroup, DynamicParameter, check_dynamic
from .executable import ExecutableGraph
from .files import Saves
from .node import Node
from .nodes import Nodes, are_connected, connect, cut_edges
from .partition import POLICIES
from .picture import Drawable
from .recording import GraphRecorder, Recordable
from .snapshot import GraphExecution, Snapshot


def find_graph_devices(
    context: Context, device: Device | Iterable[Device] | None
) -> tuple[Device, ...]:
    """Return the devices of a graph.

    Args:
        device: one or several of its devices; None means the first one.

    Raises:
        SYCLError: invalid, for no device, for one of another context, and for one whose adapter
            has no command-buffers.
    """
    given = context.devices[:1] if device is None else device
    wanted: tuple[Device, ...] = tuple(
        as_list(given, Device, "CommandGraph", "CommandGraph(context, device)")
    )
    if not wanted:
        raise make_invalid_error(
            "a graph needs a device", routine="CommandGraph", remedy="CommandGraph(context, device)"
        )
    for one in wanted:
        if one not in context:
            raise make_invalid_error(
                f"{one.name} is not a device of the context",
                routine="CommandGraph",
                remedy="give a device of the context",
            )
        if not one.has("ext_oneapi_limited_graph"):
            raise make_invalid_error(
                f"{one.backend} backend is not supported by SYCL Graph extension.",
                routine="CommandGraph",
                remedy="use an adapter with command-buffers: the reference adapter has "
                "them on every OpenCL driver",
            )
    return wanted


#: What `add` takes: a command-group function, a dynamic command-group, or nothing, for an empty
#: node.
Addable = Callable[[Handler], object] | DynamicCommandGroup | None

_ids: Final = itertools.count()
_NODE: Final = "give nodes of this graph: what graph.add gives, Node.of_event(event)"


class CommandGraph(Nodes, Recordable, Drawable, Decides, Saves):
    """A modifiable graph of commands for the devices of a context. Its methods can be called from
    any thread.

    Args:
        of: a queue, whose context and device it takes; a device; or a context, with `device`.
        device: the device, or several, that its nodes may run on; of a context by default the first
            one.
        no_cycle_check: `make_edge` does not look for cycles. A graph with a cycle cannot be
            finalized.
        assume_buffer_outlives_graph: buffers may be used. The caller promises to close none before
            the graph is gone.
        assume_data_outlives_buffer: accepted without effect, because buffers hold the arrays that
            they were made of.
        enable_native_recording: refused (feature_not_supported), because the runtime records
            queues, not the backend.

    Attributes:
        id: a number that grows in the order in which graphs are made. No other graph has it.
            (get_id)
        dynamic_parameters: those that were made for it and live.
    """

    def __init__(
        self,
        of: Queue | Context | Device | Any,
        device: Device | Iterable[Device] | None = None,
        *,
        no_cycle_check: bool = False,
        assume_buffer_outlives_graph: bool = False,
        assume_data_outlives_buffer: bool = False,
        enable_native_recording: bool = False,
    ) -> None:
        if isinstance(of, Context):
            self.context = of
        elif isinstance(of, Device):
            self.context, device = get_default_context(of), device or of
        else:
            queue = of if isinstance(of, Queue) else queue_of(of, "CommandGraph")
            self.context, device = queue.context, device or queue.device
        self.devices = find_graph_devices(self.context, device)
        if enable_native_recording:
            raise make_unsupported_error(
                f"{self.device.backend} backend does not record natively",
                routine="CommandGraph",
                remedy="leave that property out",
            )
        super().__init__()
        self.id = next(_ids)
        self.no_cycle_check = no_cycle_check
        self.assume_buffer_outlives_graph = assume_buffer_outlives_graph
        self.assume_data_outlives_buffer = assume_data_outlives_buffer
        self.lock: AbstractContextManager[Any] = RLock()
        self._nodes: list[Node] = []
        self._self: weakref.ref[CommandGraph] = weakref.ref(self)
        self.recorder = GraphRecorder(self._self)
        #: of each buffer: the node that wrote last, and those that have read since
        self._uses: dict[CoherentMemory, tuple[Node | None, list[Node]]] = {}
        self.allocations: Any = None  # allocation.Allocations, once there are any
        self.dynamic_parameters: weakref.WeakSet[DynamicParameter] = weakref.WeakSet()

    @property
    def command_graph(self) -> CommandGraph:
        """The graph itself. Objects that have a command graph, such as captured graphs, have the
        same attribute."""
        return self

    def all_nodes(self) -> list[Node]:
        return self._nodes

    def adopt(self, nodes: list[Node], lock: AbstractContextManager[Any]) -> None:
        """Take over these nodes, as the only ones.

        Args:
            nodes: with their edges. They refer to each other, so the edges are cut when the graph
                goes; otherwise they would live until a collection.
            lock: guards the graph from now on.
        """
        self._nodes, self.lock = nodes, lock
        for node in nodes:
            node.belong_to(self._self)
        weakref.finalize(self, cut_edges, nodes).atexit = False

    @property
    def device(self) -> Device:
        """The first of its devices."""
        return self.devices[0]

    # the explicit API

    def add(
        self,
        what: Addable = None,
        *,
        depends_on: Node | Iterable[Node] = (),
        depends_on_all_leaves: bool = False,
        device: Device | None = None,
    ) -> Node:
        """Add a node. (command_graph::add)

        Args:
            what: a command-group function, which is called once; a dynamic command-group; or
                nothing, for an empty node.
            depends_on: nodes that it comes after, besides those of its command group.
            depends_on_all_leaves: whether it comes after every node without successors.
            device: one of the graph's devices, by default the first one.

        Raises:
            SYCLError: invalid, while a queue is recording to the graph, and for nodes of other
                graphs.
        """
        with self.lock:
            recorder = self.recorder
            if recorder.has_recorded and recorder.is_active:
                self.check_explicit("add")
            if not self.context.adapter.open:  # in a forked child
                self.context.adapter.check_open("add")
            if type(depends_on) is Node:
                before = [depends_on]
            else:
                before = as_list(depends_on, Node, "add", _NODE)
            for node in before:
                if node.graph_ref is not self._self:
                    raise make_invalid_error(
                        "Node must be a node inside the graph.", routine="add", remedy=_NODE
                    )
            if device is not None and device not in self.devices:
                raise make_invalid_error(
                    f"{device!r} is not a device of the graph",
                    routine="add",
                    remedy="CommandGraph(context, [devices])",
                )
            if depends_on_all_leaves:
                before += self.leaves
            if isinstance(what, DynamicCommandGroup):
                return self._add_group(what, before, device)
            handler = Handler(self.context, self)
            handler.after = before  # which async_malloc looks at too
            if what is not None:
                try:
                    what(handler)
                except TypeError as error:
                    check_group(error, what, "add")
                    raise
            if isinstance(handler.command, Barrier):
                raise make_invalid_error(
                    "The sycl_ext_oneapi_enqueue_barrier feature is not available with SYCL Graph "
                    "Explicit API. Please use empty nodes instead.",
                    routine="add",
                    remedy="graph.add(depends_on=[…])",
                )
            return self.insert(handler, device or self.devices[0])

    def _add_group(
        self, group: DynamicCommandGroup, before: list[Node], device: Device | None
    ) -> Node:
        if group.graph is not self:
            raise make_invalid_error(
                "Cannot add dynamic command-group to a graph other than the one it was created "
                "with.",
                routine="add",
                remedy="make the dynamic command-group for this graph",
            )
        command = group.commands[group.active_index]
        node = self._insert(
            command, command.requirements, before + group.before, device or self.device, None
        )
        group.attach(node)
        return node

    def make_edge(self, src: Node, dst: Node) -> None:
        """Let `dst` come after `src`, whichever was made first. An edge that exists is kept.
        (command_graph::make_edge)

        Raises:
            SYCLError: invalid, for a cycle. The graph is unchanged then.
        """
        with self.lock:
            self.check_explicit("make_edge")
            if src is dst:
                raise make_invalid_error(
                    "make_edge() cannot be called when Src and Dest are the same.",
                    routine="make_edge",
                    remedy="give two nodes",
                )
            for node, name in ((src, "Src"), (dst, "Dest")):
                if not isinstance(node, Node) or node.graph is not self:
                    raise make_invalid_error(
                        f"{name} must be a node inside the graph.",
                        routine="make_edge",
                        remedy="give nodes of this graph",
                    )
            if are_connected(src, dst):
                return
            if not self.no_cycle_check and dst.leads_to(src):
                raise make_invalid_error(
                    "Command graphs cannot contain cycles.",
                    routine="make_edge",
                    remedy="turn the edge round",
                )
            connect(src, dst)

    # insertions

    def insert(self, handler: Handler, device: Device, queue: Queue | None = None) -> Node:
        """Make a node of a handler whose command-group function was called.

        Args:
            device: where the node runs.
            queue: the queue that is recorded, None for a node that is added.
        """
        command = handler.command
        if command is None or handler.requirements:
            command = handler.take_command()
        if handler.dynamic:
            check_dynamic(handler)
        if isinstance(command, GraphExecution):
            command.executable.check_inside(self)
        before = handler.after
        if handler.dependencies or type(before) is not list:
            before = self.predecessors_of(handler)
        node = self._insert(command, handler.requirements, before, device, queue)
        for dynamic, index in handler.dynamic:
            dynamic.register(command, index)
        if handler.when_added is not None:
            handler.when_added(node)
        return node

    def predecessors_of(self, handler: Handler) -> list[Node]:
        """Return the nodes that a handler's command comes after, named directly or by events.
        Raises SYCLError (invalid)."""
        found = list(handler.after)
        for event in handler.dependencies:
            if event.node is None or event.node.graph is not self:
                raise make_invalid_error(
                    "Graph nodes cannot depend on events from outside the graph.",
                    routine="depends_on",
                    remedy="let the submission of the executable graph depend on them",
                )
            found.append(event.node)
        return found

    def _insert(
        self,
        command: Command,
        requirements: Sequence[Accessor],
        before: list[Node],
        device: Device,
        queue: Queue | None,
    ) -> Node:
        for accessor in requirements:
            self.check_buffer(accessor.buffer)
        before = before if len(before) < 2 else list(dict.fromkeys(before))
        node = Node(self._self, command, device, queue, before)
        for earlier in before:
            earlier.successors.append(node)
        for accessor in requirements:
            self._add_buffer_edges(node, accessor)
        self._nodes.append(node)
        return node

    def _add_buffer_edges(self, node: Node, accessor: Accessor) -> None:
        """Add the edges of a buffer's use: from the last writer, and for a writer also from the
        readers since."""
        buffer = accessor.buffer
        writer, readers = self._uses.get(buffer, (None, []))
        if writer is not None and writer is not node:
            connect(writer, node)
        if MODES[accessor.mode][1]:
            for reader in readers:
                if reader is not node:
                    connect(reader, node)
            self._uses[buffer] = node, []
        else:
            readers.append(node)
            self._uses[buffer] = writer, readers
        buffer.graphs.add(self)

    def check_buffer(self, buffer: CoherentMemory) -> None:
        """Raise SYCLError (invalid) for a buffer that its nodes cannot use."""
        if not self.assume_buffer_outlives_graph:
            raise make_invalid_error(
                "Cannot use buffers in a graph without passing the assume_buffer_outlives_graph "
                "property on Graph construction.",
                routine="add",
                remedy="CommandGraph(…, assume_buffer_outlives_graph=True)",
            )
        if buffer.write_back:
            raise make_invalid_error(
                "Accessors to buffers which have write_back enabled are not allowed to be used in "
                "command graphs.",
                routine="add",
                remedy="Buffer(array, write_back=False)",
            )

    # the end

    def finalize(
        self, *, updatable: bool = False, enable_profiling: bool = False, policy: str = "seed"
    ) -> ExecutableGraph:
        """Make an executable graph of the present nodes. Later changes reach it only by its
        `update`. (command_graph::finalize)

        It waits until the buffers that the graph uses are ready.

        Args:
            updatable: whether its nodes can be updated.
            enable_profiling: whether its submissions can be asked for times, if their queue
                profiles.
            policy: how it is divided into partitions, "seed" or "rank" (graph/partition.py).

        Raises:
            SYCLError: feature_not_supported, for a command that the adapter's command-buffers do
                not have. The message names it.
        """
        return self.make_executable(updatable, enable_profiling, policy)

    def make_executable(
        self, updatable: bool, profiling: bool, policy: str, schedule: str = "auto"
    ) -> ExecutableGraph:
        """Do what `finalize` does, with a schedule for commands that are not the adapter's
        (Command.segment_maker).

        Args:
            updatable, profiling, policy: as of `finalize`.
            schedule: a name of fairlead.captured_graphs.executable.SCHEDULES.
        """
        if policy not in POLICIES:
            raise make_invalid_error(
                f"there is no policy {policy!r}",
                routine="finalize",
                remedy=f"one of {', '.join(POLICIES)}",
            )
        with self.lock:
            if self.allocations is not None:
                self.allocations.check_single()
            if updatable and any(not device.has("ext_oneapi_graph") for device in self.devices):
                raise make_unsupported_error(
                    f"{self.device.name} has the aspect ext_oneapi_limited_graph alone: "
                    "executable graphs cannot be updated on it",
                    routine="finalize",
                    remedy="finalize without updatable=True, or use the reference adapter",
                )
            return ExecutableGraph(
                self.context,
                self.devices,
                Snapshot(self._nodes, only=self.devices[0] if len(self.devices) == 1 else None),
                updatable=updatable,
                profiling=profiling,
                policy=policy,
                allocations=self.allocations,
                schedule=schedule,
            )

    def find_executable(self, context: Context) -> NoReturn:
        """Raise SYCLError (invalid): a submission asks an executable graph for this, and this graph
        is none."""
        raise make_invalid_error(
            "a modifiable graph cannot be submitted",
            routine="ext_oneapi_graph",
            remedy="submit what finalize() gives",
        )

    def __del__(self) -> None:
        """Let queues that recorded to it execute again."""
        recorder = getattr(self, "recorder", None)
        if recorder is not None:
            recorder.end(None)

    def __repr__(self) -> str:
        return f"<CommandGraph of {len(self)} nodes{', recording' if self.is_recording else ''}>"
