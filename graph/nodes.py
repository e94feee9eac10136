"""A modifiable graph as the collection of its nodes, in the order in which they were made; and its
edges, which both nodes know.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager
from typing import Any, overload

from ..loader.base.never_copied import NeverCopied
from .node import Node


class Nodes(NeverCopied):
    """The nodes of a graph: `graph[3]`, slices, iteration, `nodes`, and `edges` as pairs of their
    places."""

    remedy_for_copies = "capture or record it again"
    lock: AbstractContextManager[Any]

    def __init__(self) -> None:
        #: a list of nodes, how many of it were looked at for leaves, and those that there were
        self._leaves: tuple[list[Node], int, list[Node]] = [], 0, []

    def all_nodes(self) -> list[Node]:
        """Return the list of nodes itself. The caller holds `lock`."""
        raise NotImplementedError

    @property
    def nodes(self) -> list[Node]:
        """All nodes, in the order in which they were made. (get_nodes)"""
        with self.lock:
            return list(self.all_nodes())

    @property
    def roots(self) -> list[Node]:
        """The nodes without predecessors. (get_root_nodes)"""
        return [node for node in self.nodes if not node.predecessors]

    @property
    def leaves(self) -> list[Node]:
        """The nodes without successors."""
        with self.lock:
            nodes, (of, seen, leaves) = self.all_nodes(), self._leaves
            # no other node can be a leaf, because edges do not go away
            found = leaves + nodes[seen:] if of is nodes else nodes
            found = [node for node in found if not node.successors]
            self._leaves = nodes, len(nodes), found
            return found.copy()

    @property
    def edges(self) -> Iterator[tuple[int, int]]:
        """Pairs (earlier node, later node) of places in `nodes`."""
        nodes = self.nodes
        place = {node: number for number, node in enumerate(nodes)}
        return (
            (place[before], number)
            for number, node in enumerate(nodes)
            for before in node.predecessors
        )

    def empty(self) -> bool:
        """Whether the graph has no node."""
        return not self.all_nodes()

    def __len__(self) -> int:
        return len(self.all_nodes())

    def __bool__(self) -> bool:
        return True

    def __iter__(self) -> Iterator[Node]:
        return iter(self.nodes)

    @overload
    def __getitem__(self, index: int) -> Node: ...
    @overload
    def __getitem__(self, index: slice) -> list[Any]: ...
    def __getitem__(self, index: int | slice) -> Any:
        with self.lock:
            if isinstance(index, int) and not -len(self) <= index < len(self):
                raise IndexError(f"the graph has {len(self)} nodes, there is no node {index}")
            return self.all_nodes()[index]


def cut_edges(nodes: Iterable[Node]) -> None:
    """Cut all edges of nodes whose graph is gone."""
    for node in nodes:
        node.predecessors.clear()
        node.successors.clear()


def are_connected(src: Node, dst: Node) -> bool:
    """Return whether an edge exists. The side with fewer edges is searched, because a node may have
    very many."""
    after, before = src.successors, dst.predecessors
    return dst in after if len(after) < len(before) else src in before


def connect(src: Node, dst: Node) -> None:
    """Make an edge, unless it exists."""
    if not are_connected(src, dst):
        src.successors.append(dst)
        dst.predecessors.append(src)
