"""A command graph: nodes in the order in which they were recorded, and what each one comes after.

The order of recording is itself a valid order: a node depends on earlier nodes only. A `Graph` is immutable and knows no API: it is
given the predecessors of each node and makes `Node` objects only for whoever asks, so that a graph of a hundred thousand nodes costs
nothing until it is looked at. What the nodes are is for a subclass to say (`Graph.node`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import overload

from ..loader.schedule import Order


@dataclass(frozen=True)
class Node:
    """One command of a graph.

    Attributes:
        index: its place in the order of recording.
        op: what it is: "kernel", "copy", "fill", "read", "barrier" and so on.
        label: one line for people, such as "step(64×64)".
        queue: the number of the queue that it was recorded from.
        predecessors: the nodes that it comes directly after.
        where: file and line of the call, "" if not known.
        details: what was recorded, by name: sizes in bytes, offsets in bytes, work sizes in work-items.
    """

    index: int
    op: str
    label: str
    queue: int
    predecessors: tuple[int, ...]
    where: str = ""
    details: dict[str, object] = field(default_factory=dict)


class Graph(Order, Sequence[Node]):
    """`len(graph)`, `graph[i]` and iteration give nodes; `edges` gives pairs; `to_dot()` gives Graphviz."""

    def node(self, index: int) -> Node:
        """The node of a number from 0 on."""
        return Node(index, "command", "command", 0, tuple(self.dependencies[index]))

    @overload
    def __getitem__(self, index: int) -> Node: ...
    @overload
    def __getitem__(self, index: slice) -> list[Node]: ...
    def __getitem__(self, index: int | slice) -> Node | list[Node]:
        if isinstance(index, slice):
            return [self.node(i) for i in range(*index.indices(len(self)))]
        if not -len(self) <= index < len(self):
            raise IndexError(f"the graph has {len(self)} nodes, there is no node {index}")
        return self.node(index % len(self))

    @property
    def nodes(self) -> list[Node]:
        """All nodes, in the order of recording."""
        return list(self)

    @property
    def edges(self) -> Iterator[tuple[int, int]]:
        """Pairs (earlier node, later node)."""
        return ((before, node) for node, predecessors in enumerate(self.dependencies) for before in predecessors)

    def to_dot(self) -> str:
        """The graph in Graphviz's language, one box a node."""
        lines = ["digraph fairlead {", '  node [shape=box, fontname="monospace"];']
        for node in self:
            style = ", style=dashed" if self.order_only[node.index] else ""
            label = f"{node.index}: {node.label}".replace("\\", "\\\\").replace('"', '\\"')
            lines.append(f'  n{node.index} [label="{label}"{style}];')
        lines += [f"  n{before} -> n{after};" for before, after in self.edges]
        return "\n".join([*lines, "}", ""])
