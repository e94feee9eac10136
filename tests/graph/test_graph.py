"""Graphs as such: nodes, edges, pictures."""

from __future__ import annotations

from fairlead.graph import Graph


def test_edges_dot_and_nodes_of_a_plain_graph() -> None:
    graph = Graph([[], [0], [0, 1]], [False, False, True])
    assert list(graph.edges) == [(0, 1), (0, 2), (1, 2)]
    assert graph.to_dot().count("->") == 3
    assert [node.predecessors for node in graph.nodes] == [(), (0,), (0, 1)]
