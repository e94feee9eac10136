"""Updates of executable graphs: which commands replace others, and what is checked before."""

from __future__ import annotations

import ctypes
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Final, Protocol

from ..runtime.checks import as_list
from ..runtime.commands import Barrier, Command, HostTask
from ..runtime.errors import SYCLError, make_invalid_error
from ..runtime.launches import KernelLaunch, Launch
from ..runtime.transfers import Transfer
from .node import Node

if TYPE_CHECKING:
    from .command_graph import CommandGraph
    from .executable import ExecutableGraph
from .snapshot import Snapshot

_UPDATABLE: Final = frozenset(("kernel", "host_task", "empty", "ext_oneapi_barrier"))
_SAME: Final = "make the second graph by the same calls as the first"


class HasCommandGraph(Protocol):
    """A command graph, or what has one, such as a captured graph."""

    @property
    def command_graph(self) -> CommandGraph: ...


def find_changes(
    executable: ExecutableGraph, what: HasCommandGraph | Node | Iterable[Node], strict: bool
) -> dict[int, Command]:
    """Return the commands that `ExecutableGraph.update` puts in the place of others, by index.
    Raises SYCLError (invalid).

    Args:
        what, strict: as of `ExecutableGraph.update`.
    """
    executable.context.adapter.check_open("update")
    if not executable.updatable:
        raise make_invalid_error(
            "update() cannot be called on an executable graph which was not created with "
            "property::updatable",
            routine="update",
            remedy="finalize(updatable=True)",
        )
    if isinstance(what, Node):
        return _find_changes_of_nodes(executable, (what,))
    given: Any = what
    if hasattr(given, "command_graph"):
        return _find_changes_of_graph(executable, given.command_graph, strict)
    return _find_changes_of_nodes(
        executable,
        as_list(
            given, Node, "update", "give a node, several, or a CommandGraph", "Node or CommandGraph"
        ),
    )


def _find_changes_of_nodes(
    executable: ExecutableGraph, nodes: Iterable[Node]
) -> dict[int, Command]:
    changes: dict[int, Command] = {}
    for node in nodes:
        command, index = node.command, executable.snapshot.index.get(node.id)
        if index is None and command.node_type != "subgraph":
            raise make_invalid_error(
                "Node passed to update() is not part of the graph.",
                routine="update",
                remedy="give nodes of the graph that was finalized",
            )
        if command.node_type not in _UPDATABLE:
            raise make_invalid_error(
                f"node_type::{command.node_type} nodes are not supported for update. "
                "Only kernel, host_task, barrier and empty nodes are supported.",
                routine="update",
                remedy="finalize the graph again",
            )
        assert index is not None
        if isinstance(command, (Launch, HostTask)):
            changes[index] = command.copy()
    return changes


def _find_changes_of_graph(
    executable: ExecutableGraph, graph: CommandGraph, strict: bool
) -> dict[int, Command]:
    if graph.devices != executable.devices:
        raise _make_difference_error("Cannot update using a graph created with a different device.")
    if graph.context != executable.context:
        raise _make_difference_error(
            "Cannot update using a graph created with a different context."
        )
    with graph.lock:
        old, new = executable.snapshot, Snapshot(graph.nodes, to_compare=not strict)
        different = _find_different(old, new, strict)
    changes: dict[int, Command] = {}
    for index in different:
        before, after = old.commands[index], new.commands[index]
        if isinstance(before, (Launch, HostTask)) or (
            before.segment_maker is not None and not isinstance(before, Barrier)
        ):
            changes[index] = after.copy()
        elif before.node_type not in _UPDATABLE and not are_same(before, after):
            raise _make_difference_error(
                f"node_type::{before.node_type} nodes are not supported for update, and node "
                f"{index} differs: {before}, {after}."
            )
    return changes


def _find_different(old: Snapshot, new: Snapshot, strict: bool) -> list[int]:
    """Return the nodes whose commands differ. Raises SYCLError (invalid) unless the graphs have the
    same topology, and nodes of the same kinds."""
    prefix = (
        "Cannot update using a graph with a different topology. Mismatch found in the number of"
    )
    if len(old.commands) != len(new.commands):
        raise _make_difference_error(
            f"{prefix} nodes: {len(old.commands)} and {len(new.commands)}."
        )
    different = list[int]()
    sides = (old.successors, new.successors), (old.predecessors, new.predecessors)
    looks_at_edges = strict or any(
        list(map(len, here)) != list(map(len, there)) for here, there in sides
    )
    for index, (before, after) in enumerate(zip(old.commands, new.commands, strict=True)):
        if looks_at_edges:
            for here, there in sides:
                if len(here[index]) != len(there[index]):
                    raise _make_difference_error(
                        f"{prefix} edges of node {index}: {len(here[index])} and "
                        f"{len(there[index])}."
                    )
            if strict and sorted(old.successors[index]) != sorted(new.successors[index]):
                raise _make_difference_error(
                    f"Cannot update using a graph with a different topology. Node {index} leads "
                    f"to {list(new.successors[index])}, not {list(old.successors[index])}."
                )
        if before.is_like(after):
            continue
        different.append(index)
        if (
            isinstance(before, KernelLaunch)
            and isinstance(after, KernelLaunch)
            and before.kernel is after.kernel
        ):
            continue
        makers = before.segment_maker, after.segment_maker
        if before.node_type != after.node_type or (
            makers[0] is not makers[1] and makers[0] != makers[1]
        ):
            raise _make_difference_error(
                f"Cannot update using a graph with mismatched node types. Node {index}: "
                f"{before.node_type}, {after.node_type}."
            )
        if (
            isinstance(before, Launch)
            and isinstance(after, Launch)
            and before.kernel_name != after.kernel_name
        ):
            raise _make_difference_error(
                "Cannot update using a graph with mismatched kernel types. "
                f"Source node type {after.kernel_name}, target {before.kernel_name} (node {index})."
            )
    return different


def are_same(before: Command, after: Command) -> bool:
    """Whether two commands that cannot be updated do the same."""
    if isinstance(before, Transfer) and isinstance(after, Transfer):
        return before.row is after.row and _list_content(before) == _list_content(after)
    return getattr(before, "function", before) is getattr(after, "function", after)


def _list_content(transfer: Transfer) -> list[Any]:
    named = dict(zip(transfer.row.fields, transfer.fields, strict=True))
    if "pattern" in named:
        named["pattern"] = ctypes.string_at(named["pattern"], named["pattern_size"])
    return [
        bytes(field) if isinstance(field, ctypes.Structure) else field for field in named.values()
    ]


def _make_difference_error(message: str) -> SYCLError:
    return make_invalid_error(message, routine="update", remedy=_SAME)
