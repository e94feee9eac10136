"""Updates of executable graphs: which commands are put in the place of others, and what is checked before."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

from ..runtime.commands import Command, HostTask, KernelLaunch
from ..runtime.errors import SYCLError, invalid
from .node import Node

if TYPE_CHECKING:
    from .command_graph import CommandGraph
    from .executable import ExecutableGraph, Snapshot

_UPDATABLE: Final = frozenset(("kernel", "host_task", "empty", "ext_oneapi_barrier"))
_SAME: Final = "make the second graph by the same calls as the first"


def update(executable: ExecutableGraph, what: CommandGraph | Node | Iterable[Node], strict: bool) -> None:
    """See `ExecutableGraph.update`."""
    from .command_graph import CommandGraph

    if not executable.updatable:
        raise invalid(
            "update() cannot be called on a executable graph which was not created with property::updatable", routine="update",
            remedy="finalize(updatable=True)",
        )  # fmt: skip
    if isinstance(what, CommandGraph):
        changes = _of_graph(executable, what, strict)
    else:
        changes = _of_nodes(executable, [what] if isinstance(what, Node) else list(what))
    executable.make_ready(accessor for command in changes.values() for accessor in command.requirements)
    executable.settle()
    executable.exchange(changes)


def _of_nodes(executable: ExecutableGraph, nodes: Iterable[Node]) -> dict[int, Command]:
    changes: dict[int, Command] = {}
    for node in nodes:
        index = executable.snapshot.index.get(node.id) if isinstance(node, Node) else None
        if index is None and getattr(node, "type", "") != "subgraph":
            raise invalid(
                "Node passed to update() is not part of the graph.",
                routine="update",
                remedy="give nodes of the graph that was finalized",
            )
        if node.type not in _UPDATABLE:
            raise invalid(
                f"node_type::{node.type} nodes are not supported for update. "
                "Only kernel, host_task, barrier and empty nodes are supported.",
                routine="update", remedy="finalize the graph again",
            )  # fmt: skip
        assert index is not None
        if isinstance(node.command, (KernelLaunch, HostTask)):
            changes[index] = node.command.copy()
    return changes


def _of_graph(executable: ExecutableGraph, graph: CommandGraph, strict: bool) -> dict[int, Command]:
    from .executable import Snapshot

    if graph.devices != executable.devices:
        raise _differs("Cannot update using a graph created with a different device.")
    if graph.context != executable.context:
        raise _differs("Cannot update using a graph created with a different context.")
    old, new = executable.snapshot, Snapshot(graph.nodes)
    _check_topology(old, new, strict)
    changes: dict[int, Command] = {}
    for index, (before, after) in enumerate(zip(old.commands, new.commands, strict=True)):
        if (isinstance(before, KernelLaunch) and isinstance(after, KernelLaunch)) or isinstance(before, HostTask):
            changes[index] = after
        elif before.node_type not in _UPDATABLE and repr(before) != repr(after):
            raise _differs(
                f"node_type::{before.node_type} nodes are not supported for update, and node {index} differs: {before}, {after}."
            )
    return changes


def _check_topology(old: Snapshot, new: Snapshot, strict: bool) -> None:
    prefix = "Cannot update using a graph with a different topology. Mismatch found in the number of"
    if len(old.commands) != len(new.commands):
        raise _differs(f"{prefix} nodes: {len(old.commands)} and {len(new.commands)}.")
    for index, (before, after) in enumerate(zip(old.commands, new.commands, strict=True)):
        for edges, others in ((old.successors, new.successors), (old.predecessors, new.predecessors)):
            if len(edges[index]) != len(others[index]):
                raise _differs(f"{prefix} edges of node {index}: {len(edges[index])} and {len(others[index])}.")
        if type(before) is not type(after) or (strict and before.node_type != after.node_type):
            raise _differs(
                f"Cannot update using a graph with mismatched node types. Node {index}: {before.node_type}, {after.node_type}."
            )
        if isinstance(before, KernelLaunch) and isinstance(after, KernelLaunch) and before.kernel.name != after.kernel.name:
            raise _differs(
                "Cannot update using a graph with mismatched kernel types. "
                f"Source node type {after.kernel.name}, target {before.kernel.name} (node {index})."
            )
        if strict and sorted(old.successors[index]) != sorted(new.successors[index]):
            raise _differs(
                f"Cannot update using a graph with a different topology. "
                f"Node {index} leads to {new.successors[index]}, not {old.successors[index]}."
            )


def _differs(message: str) -> SYCLError:
    return invalid(message, routine="update", remedy=_SAME)
