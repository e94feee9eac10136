"""The commands of a graph in the order of a file: each after what it depends on."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple, TypeAlias

from ..captured_graphs.block import CapturedBlock
from ..captured_graphs.commands import Captured
from ..captured_graphs.graph import CapturedGraph
from ..graph.command_graph import CommandGraph
from ..graph.dynamic import DynamicParameter
from ..graph.executable import ExecutableGraph
from ..graph.segments import ORDER_ONLY
from ..graph.snapshot import Snapshot, find_required_accessors, make_ready
from ..icd.calls import get_address
from ..runtime.commands import HostTask
from ..runtime.context import Context
from ..runtime.interop import to_pyopencl
from ..runtime.launches import KernelLaunch
from ..runtime.transfers import Transfer
from .errors import make_save_error

#: What can be written to a file.
Savable: TypeAlias = CapturedGraph | CommandGraph | ExecutableGraph

_REMEDIES: Final = (
    (HostTask, "remove the host task, or save the graph without it"),
    (object, "give the commands to a queue of the runtime, or to a pyopencl queue in a capture"),
)


class FileRow(NamedTuple):
    """A command to be written.

    Attributes:
        command: an `fl_command *`, a command of the runtime, or None for a place in the order.
        before: the rows that it comes after, by number.
        block: what it was captured in, None if it is a command of the runtime.
    """

    command: Any
    before: Sequence[int]
    block: CapturedBlock | None = None
    parameters: Mapping[int, DynamicParameter] = {}


@dataclass
class GraphRows:
    """The commands of a graph, and where they run.

    Attributes:
        context, device: those of PyOpenCL.
        rows: each after what it depends on, sub-graphs inlined.
        runtime_context: the runtime's, None if no command is the runtime's.
        blocks: what commands were captured in, once each.
        snapshot: what the rows were made of, None for a graph as it was captured.
    """

    context: Any
    device: Any
    rows: list[FileRow]
    runtime_context: Context | None = None
    blocks: Sequence[CapturedBlock] = ()
    snapshot: Snapshot | None = None

    def list_runtime_commands(self) -> Iterator[Any]:
        """Yield the commands that are the runtime's."""
        for row in self.rows:
            if row.block is None and row.command is not None:
                yield row.command

    def list_held_objects(self) -> Iterator[Any]:
        """Yield the objects that commands keep, which may own memory with an address."""
        for block in self.blocks:
            for thing in block.held:  # an object, or that and a view of it
                yield thing[0] if isinstance(thing, tuple) else thing
        for command in self.list_runtime_commands():
            if isinstance(command, KernelLaunch):
                yield from (argument.keep for argument in command.arguments)
            else:
                yield from command.keep if isinstance(command.keep, tuple) else (command.keep,)

    def list_host_places(self) -> Iterator[tuple[int, int]]:
        """Yield the addresses and sizes of host memory that captured transfers use."""
        for row in self.rows:
            if row.block is not None and row.command.host:
                yield get_address(row.command.host), row.command.host_size

    def finish(self) -> None:
        """Wait until the contents of its memory are there, and nothing uses it."""
        for block in self.blocks:
            for queue in block.queues:
                queue.finish()
        if self.runtime_context is not None and self.snapshot is not None:
            make_ready(self.runtime_context, find_required_accessors(self.snapshot))
            self.runtime_context.finish()


def list_rows(graph: Savable) -> GraphRows:
    """Return the commands of a graph.

    Raises:
        GraphFileError: files have no such command, or the graph is not for OpenCL.
    """
    if isinstance(graph, CapturedGraph):
        if graph.state != "captured":
            raise make_save_error("the capture block has not ended", "save after the block")
        queue = graph.block.queues[0]
        made = GraphRows(queue.context, queue.device, [])
        if graph.is_as_recorded:
            block = graph.block
            made.blocks = (block,)
            made.rows = [
                FileRow(block.get_command(number), list(dict.fromkeys(before)), block)
                for number, before in enumerate(block.order.dependencies)
            ]
            return made
    else:
        backend = graph.context.platform.backend
        if backend != "opencl":
            raise make_save_error(
                f"the graph is for the backend {backend}, and files hold OpenCL's commands",
                "make the graph for an OpenCL device: `fairlead adapter` lists them",
            )
        made = GraphRows(to_pyopencl(graph.context), to_pyopencl(graph.devices[0]), [])
    if isinstance(graph, ExecutableGraph):
        made.snapshot, parameters = graph.snapshot, {}
    else:
        made.snapshot = Snapshot(graph.all_nodes())
        parameters = _find_parameters(graph, made.snapshot)
    made.rows = list(_make_rows(made.snapshot, parameters))
    blocks = [graph.block] if isinstance(graph, CapturedGraph) else []
    blocks += [row.block for row in made.rows if row.block is not None]
    made.blocks = tuple({id(block): block for block in blocks}.values())
    if any(True for _ in made.list_runtime_commands()):
        made.runtime_context = graph.context
    return made


def _find_parameters(
    graph: CapturedGraph | CommandGraph, snapshot: Snapshot
) -> dict[int, dict[int, DynamicParameter]]:
    """Return the dynamic parameters of a graph's own launches: by the command's number, and the
    index of the argument."""
    numbers: dict[int, list[int]] = {}
    for node in graph.all_nodes():
        if node.id in snapshot.index:
            numbers.setdefault(id(node.command), []).append(snapshot.index[node.id])
    found: dict[int, dict[int, DynamicParameter]] = {}
    for parameter in graph.dynamic_parameters:
        for command, index in parameter.uses():
            for number in numbers.get(id(command), ()):
                found.setdefault(number, {})[index] = parameter
    return found


def _make_rows(
    snapshot: Snapshot, parameters: Mapping[int, Mapping[int, DynamicParameter]]
) -> Iterator[FileRow]:
    order = _sort_forward(snapshot)
    place = {node: number for number, node in enumerate(order)}
    for node in order:
        command = snapshot.commands[node]
        before = sorted(place[one] for one in snapshot.predecessors[node])
        if isinstance(command, Captured):
            yield FileRow(command.native, before, command.block)
        elif isinstance(command, ORDER_ONLY):
            yield FileRow(None, before)
        elif isinstance(command, (KernelLaunch, Transfer)):
            yield FileRow(command, before, None, parameters.get(node, {}))
        else:
            what = ", ".join(command.describe()) or command.title
            raise make_save_error(
                f"node {node} is a {command.title} ({what}), and files hold OpenCL's commands only",
                next(remedy for kind, remedy in _REMEDIES if isinstance(command, kind)),
            )


def _sort_forward(snapshot: Snapshot) -> list[int]:
    """Return the nodes of a snapshot, each after what it depends on."""
    left = [len(set(before)) for before in snapshot.predecessors]
    ready = [node for node, count in enumerate(left) if not count]
    for node in ready:  # which grows
        for after in dict.fromkeys(snapshot.successors[node]):
            left[after] -= 1
            if not left[after]:
                ready.append(after)
    return ready
