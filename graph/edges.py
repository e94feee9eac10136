"""Edges of command graphs: both of its nodes know an edge."""

from __future__ import annotations

from collections.abc import Iterable

from .node import Node


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
