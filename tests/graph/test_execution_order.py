"""The order of execution (spec B2), and whether an edge closes a cycle."""

from __future__ import annotations

import pytest
from helpers.graphs import Edges, acyclic_graphs, sides
from hypothesis import given
from hypothesis import strategies as st

from fairlead.graph.execution_order import find_execution_order, leads_to
from fairlead.loader.base.errors import FairleadError


def test_the_branch_that_became_ready_last_runs_first() -> None:
    """The graph of DPC++'s unit test TopologicalSort, and what libsycl does with it."""
    edges = [(6, 3), (6, 0), (6, 4), (3, 0), (3, 1), (0, 1), (0, 2), (0, 5), (2, 4)]
    assert find_execution_order(range(7), *sides(7, edges)) == [6, 3, 0, 5, 2, 4, 1]


def test_predecessors_outside_do_not_count() -> None:
    """DPC++ was wrong here until PR #22565: A > HT > B > C and A > C. C has a predecessor in
    another partition."""
    edges = [(0, 1), (1, 2), (2, 3), (0, 3)]
    assert find_execution_order([2, 3], *sides(4, edges)) == [2, 3]
    assert find_execution_order([], *sides(4, edges)) == []


def test_a_cycle_is_named() -> None:
    edges = [(0, 1), (1, 2), (2, 3), (3, 1), (3, 4)]
    with pytest.raises(FairleadError, match="cycles: nodes 1 → 2 → 3 → 1"):
        find_execution_order(range(5), *sides(5, edges))


@given(acyclic_graphs(), st.data())
def test_every_node_once_and_behind_its_predecessors(
    graph: tuple[int, Edges], data: st.DataObject
) -> None:
    count, edges = graph
    some = sorted(data.draw(st.sets(st.integers(0, count - 1)))) if count else []
    order = find_execution_order(some, *sides(count, edges))
    assert sorted(order) == some
    place = {node: number for number, node in enumerate(order)}
    assert all(place[a] < place[b] for a, b in edges if a in place and b in place)


def reachable(successors: list[list[int]], start: int) -> set[int]:
    """All nodes that a path leads to, and the start: by repetition, until nothing is added."""
    found = {start}
    while not found.issuperset(more := {after for node in found for after in successors[node]}):
        found |= more
    return found


@given(acyclic_graphs())
def test_an_edge_closes_a_cycle_if_its_source_can_be_reached_from_its_destination(
    graph: tuple[int, Edges],
) -> None:
    count, edges = graph
    successors, predecessors = sides(count, edges)
    for source in range(count):
        for destination in range(count):
            expected = source in reachable(successors, destination)
            arguments = destination, source, successors.__getitem__, predecessors.__getitem__
            assert leads_to(*arguments) == expected


class Counted(list[list[int]]):
    """Neighbours that count how often they are looked at."""

    looks = 0

    def __getitem__(self, index):  # type: ignore[no-untyped-def]
        self.looks += 1
        return super().__getitem__(index)


@pytest.mark.parametrize(
    ("source", "destination"), [(999, 1000), (1000, 0)], ids=["at the end", "at the beginning"]
)
def test_an_edge_at_either_end_of_a_path_is_looked_at_shortly(
    source: int, destination: int
) -> None:
    """`make_edge` down a path and up a path, each edge before the others, has to be cheap."""
    successors, predecessors = map(Counted, sides(1001, [(node, node + 1) for node in range(999)]))
    assert not leads_to(destination, source, successors.__getitem__, predecessors.__getitem__)
    assert successors.looks + predecessors.looks <= 4


def test_a_path_of_100_000_nodes_needs_no_recursion() -> None:
    count = 100_000
    successors, predecessors = sides(count, [(node + 1, node) for node in range(count - 1)])
    assert find_execution_order(range(count), successors, predecessors) == list(
        range(count - 1, -1, -1)
    )
    assert leads_to(count - 1, 0, successors.__getitem__, predecessors.__getitem__)
