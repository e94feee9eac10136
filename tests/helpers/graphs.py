"""What tests of command graphs share: expected refusals, and edges as they can be compared."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from fairlead.graph import CommandGraph
from fairlead.runtime import Errc, SYCLError


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
