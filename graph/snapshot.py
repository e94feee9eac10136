"""A graph as it was when it was finalized: commands and edges by index, with sub-graphs inlined."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from ..runtime.accessor import Accessor
from ..runtime.coherent_memory import CoherentMemory
from ..runtime.commands import Command, Empty, HostTask
from ..runtime.context import Context
from ..runtime.event import Event
from ..runtime.launches import KernelLaunch
from ..runtime.memory import MODES
from ..runtime.memory import lock as buffers
from ..runtime.platform import Device
from ..runtime.queue import Queue
from .node import Node
from .segments import ORDER_ONLY

if TYPE_CHECKING:
    from .executable import ExecutableGraph


#: What `Snapshot.kinds` is if there are only launches.
_LAUNCHES: Final = {KernelLaunch}


class Snapshot:
    """A graph's commands and edges by index, with sub-graphs inlined.

    Args:
        only: the device of all nodes, None if they have several.
        to_compare: whether it is only compared with another one. Then the commands are the graph's
            own, there are no devices, and neighbours may be nodes: only their number is right.

    Attributes:
        commands, devices: those of each node.
        kinds: the classes of the commands.
        predecessors, successors: those of each node, as indices.
        index: the indices of the graph's own nodes, by id. A sub-graph's node has none.
    """

    def __init__(
        self, nodes: Sequence[Node], *, only: Device | None = None, to_compare: bool = False
    ) -> None:
        self.commands: list[Command] = [node.command for node in nodes]
        self.kinds = set(map(type, self.commands))
        self.devices: list[Device] = []
        self.predecessors: list[Sequence[int]] = []
        self.successors: list[Sequence[int]] = []
        self.index: dict[int, int] = {}
        before: list[list[Node]] = [node.predecessors for node in nodes]
        after: list[list[Node]] = [node.successors for node in nodes]
        if GraphExecution in self.kinds:
            self.commands.clear()
            self._add_nodes(nodes)
            self.kinds = set(map(type, self.commands))
        elif to_compare:
            neighbours: Any = before, after
            self.predecessors, self.successors = neighbours
        else:
            index = self.index = {node.id: number for number, node in enumerate(nodes)}
            self.predecessors = [
                (index[some[0].id],) if len(some) == 1 else _find_indices(index, some)
                for some in before
            ]
            self.successors = [
                (index[some[0].id],)
                if len(some) == 1
                else tuple(sorted(_find_indices(index, some)))
                for some in after
            ]
            self.commands = [command.copy() for command in self.commands]
            self.devices = [node.device for node in nodes] if only is None else [only] * len(nodes)

    def _add_nodes(self, nodes: Sequence[Node]) -> None:
        """Add nodes, of which some are sub-graphs."""
        #: of each node, by its id: itself; or those nodes of the sub-graph that nothing of this
        #: comes before, and after
        begins: dict[int, tuple[int, ...]] = {}
        ends: dict[int, tuple[int, ...]] = {}
        for node in nodes:
            command = node.command
            if isinstance(command, GraphExecution):
                if command.executable.snapshot.commands:
                    begins[node.id], ends[node.id] = self._add_subgraph(command.executable.snapshot)
                    continue
                command = Empty()
            number = self.index[node.id] = len(self.commands)
            begins[node.id] = ends[node.id] = (number,)
            self._add(command.copy(), node.device)
        for node in nodes:
            before = _find_numbers(ends, node.predecessors)
            after = _find_numbers(begins, node.successors)
            for begin in begins[node.id]:
                self.predecessors[begin] = before
            for end in ends[node.id]:
                self.successors[end] = after if len(after) < 2 else tuple(sorted(after))

    def _add(
        self,
        command: Command,
        device: Device,
        before: Sequence[int] = (),
        after: Sequence[int] = (),
    ) -> None:
        self.commands.append(command)
        self.devices.append(device)
        self.predecessors.append(before)
        self.successors.append(after)

    def find_segment_makers(self) -> list[Hashable] | None:
        """Return what the nodes of a partition must have in common, for each node: its segment
        maker, or its device, and for what no command-buffer has a mark besides. None if all have
        the same.

        A node that is only there for its order takes a neighbour's, so that it separates nothing.
        Host tasks are separate in any case.
        """
        if len(set(self.devices)) < 2 and (
            self.kinds == _LAUNCHES
            or all(
                command.segment_maker is None and command.in_command_buffers
                for command in self.commands
            )
        ):
            return None
        makers: list[Hashable] = [
            None
            if isinstance(command, (HostTask, *ORDER_ONLY))
            else command.segment_maker
            or (device if command.in_command_buffers else (device, "queue"))
            for command, device in zip(self.commands, self.devices, strict=True)
        ]
        if makers.count(makers[0]) == len(makers) and makers[0] is not None:
            return None
        for node, maker in enumerate(makers):
            if maker is None:
                near = (
                    makers[other] for other in (*self.predecessors[node], *self.successors[node])
                )
                makers[node] = next((one for one in near if one is not None), self.devices[node])
        return makers

    def _add_subgraph(self, inner: Snapshot) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """Add a sub-graph's nodes. Returns those without predecessors, and those without
        successors."""
        base = len(self.commands)
        for command, device, before, after in zip(
            inner.commands, inner.devices, inner.predecessors, inner.successors, strict=True
        ):
            self._add(
                command.copy(),
                device,
                [base + one for one in before],
                [base + one for one in after],
            )
        entries = tuple(
            [base + node for node, before in enumerate(inner.predecessors) if not before]
        )
        exits = tuple([base + node for node, after in enumerate(inner.successors) if not after])
        return entries, exits


def _find_indices(index: Mapping[int, int], nodes: Sequence[Node]) -> tuple[int, ...]:
    return tuple([index[node.id] for node in nodes])


def _find_numbers(places: Mapping[int, tuple[int, ...]], nodes: Sequence[Node]) -> tuple[int, ...]:
    """Return the numbers of nodes. They are tuples, because the garbage collector stops tracking
    tuples of numbers, and graphs may be large."""
    if len(nodes) == 1:
        return places[nodes[0].id]
    return tuple([one for node in nodes for one in places[node.id]])


class GraphExecution(Command):
    """The submission of an executable graph by a command group. In a graph it is a sub-graph."""

    node_type = "subgraph"
    title = "sub-graph"

    def __init__(self, executable: ExecutableGraph) -> None:
        self.executable = executable
        self.requirements = executable.requirements
        self.beyond_queue = executable.beyond_queue

    def execute(self, queue: Queue, dependencies: Sequence[Event]) -> Event:
        return self.executable.execute(queue, dependencies)

    def describe(self) -> list[str]:
        return [f"nodes: {len(self.executable.snapshot.commands)}"]


def find_required_accessors(snapshot: Snapshot) -> Sequence[Accessor]:
    """Return one accessor for each buffer, which reads, writes or needs the old contents if one of
    the commands' does."""
    found: dict[CoherentMemory, tuple[bool, bool, bool]] = {}
    for accessor in [
        accessor for command in snapshot.commands for accessor in command.requirements
    ]:
        reads, writes, keeps, _ = MODES[accessor.mode]
        before = found.get(accessor.buffer)
        if before is None:
            found[accessor.buffer] = reads, writes, keeps
        else:
            found[accessor.buffer] = before[0] or reads, before[1] or writes, before[2] or keeps
    names = {flags[:3]: mode for mode, flags in MODES.items()}
    return tuple(
        Accessor(buffer, names.get(flags, "read_write")) for buffer, flags in found.items()
    )


def make_ready(context: Context, requirements: Iterable[Accessor]) -> None:
    """Wait until the buffers that commands use are allocated and filled. A command-buffer cannot
    wait inside. (the seed, "Scheduler Integration")"""
    waits: list[Event] = []
    with buffers:
        for accessor in requirements:
            accessor.buffer.prepare(context, accessor.mode, "update")
            waits += accessor.buffer.dependencies(accessor.mode)
    Event.wait_all(waits)
