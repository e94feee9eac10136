"""What tests of command graphs share: expected refusals, and edges as they can be compared."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from hypothesis import strategies as st

from fairlead.graph import CommandGraph
from fairlead.runtime import Errc, SYCLError

Edges = list[tuple[int, int]]


@contextmanager
def refused(message: str, errc: Errc = Errc.invalid) -> Iterator[None]:
    """The block raises SYCLError of a class, with these words in its message."""
    with pytest.raises(SYCLError) as caught:
        yield
    assert caught.value.errc is errc, caught.value
    assert message in caught.value.message
    assert caught.value.routine


def edges(graph: CommandGraph) -> set[tuple[int, int]]:
    """Return the edges of a graph, by the order of its nodes.

    Predecessors and successors must agree.
    """
    nodes = graph.nodes
    forward = {
        (nodes.index(node), nodes.index(after)) for node in nodes for after in node.successors
    }
    assert forward == {
        (nodes.index(before), nodes.index(node)) for node in nodes for before in node.predecessors
    }
    assert len(forward) == sum(len(node.successors) for node in nodes)  # none twice
    return forward


def sides(count: int, edges: Edges) -> tuple[list[list[int]], list[list[int]]]:
    """Successors and predecessors of each node, in the order of the edges."""
    successors: list[list[int]] = [[] for _ in range(count)]
    predecessors: list[list[int]] = [[] for _ in range(count)]
    for source, destination in edges:
        successors[source].append(destination)
        predecessors[destination].append(source)
    return successors, predecessors


@st.composite
def acyclic_graphs(draw: st.DrawFn) -> tuple[int, Edges]:
    """A graph without a cycle whose edges also lead to nodes that were added earlier."""
    count = draw(st.integers(0, 12))
    line = draw(st.permutations(range(count)))
    pairs = st.tuples(st.integers(0, max(count - 1, 0)), st.integers(0, max(count - 1, 0))).filter(
        lambda pair: pair[0] < pair[1]
    )
    edges = draw(st.lists(pairs, max_size=2 * count, unique=True)) if count > 1 else []
    return count, [(line[a], line[b]) for a, b in edges]
