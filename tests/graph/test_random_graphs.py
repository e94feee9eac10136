"""The one law of command graphs, on real devices: every node of a random graph runs once, in order.

Each node, a kernel or a host task, checks when it runs that every predecessor has run once more
often than itself, and then counts itself. A graph that loses an edge, drops a node or runs one
twice leaves a wrong count.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import numpy
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fairlead.graph import CommandGraph, Node
from fairlead.graph.partition import POLICIES
from fairlead.runtime import Context, Device, NDRange, Program, Queue, malloc_shared

pytestmark = pytest.mark.slow

MOST: Final = 14  # nodes
RUNS: Final = 3
SOURCE: Final = """
kernel void visit(global volatile int *counts, global const int *before, int first, int number,
    int node, global volatile int *mistakes) {
    for (int i = first; i < first + number; i++)
        if (counts[before[i]] != counts[node] + 1) atomic_inc(mistakes);
    counts[node]++;
}
"""


@dataclass
class Shape:
    """A random graph: what each node is, its edges in the order in which they are made, and its
    devices."""

    kinds: list[str]
    edges: list[tuple[int, int]]
    devices: list[int] = field(default_factory=list)


@st.composite
def shapes(draw: st.DrawFn, most_devices: int) -> Shape:
    """Draw an acyclic graph: edges follow a random order of the nodes, so that many point
    backwards."""
    count = draw(st.integers(1, MOST))
    kinds = draw(
        st.lists(
            st.sampled_from(["kernel"] * 6 + ["host"] * 2 + ["empty"]),
            min_size=count,
            max_size=count,
        )
    )
    order = draw(st.permutations(range(count)))
    density = draw(st.sampled_from([0.1, 0.25, 0.5]))
    chances = draw(
        st.lists(
            st.floats(0, 1), min_size=count * (count - 1) // 2, max_size=count * (count - 1) // 2
        )
    )
    pairs = [(order[i], order[j]) for i in range(count) for j in range(i + 1, count)]
    edges = draw(
        st.permutations(
            [pair for pair, chance in zip(pairs, chances, strict=True) if chance < density]
        )
    )
    where = draw(st.lists(st.integers(0, most_devices - 1), min_size=count, max_size=count))
    return Shape(kinds, edges, where)


class Bench:
    """A context with the memory and the kernel that graphs are tried with."""

    def __init__(self, members: list[Device]) -> None:
        self.context = Context(members)
        self.members = members
        self.queues = [
            Queue(self.context, members[0]),
            Queue(self.context, members[0], in_order=True),
        ]
        self.visit = Program(self.context, SOURCE).kernel("visit")
        where = self.context, members[0]
        given = MOST * MOST, numpy.int32, where
        self.counts, self.before = (malloc_shared(MOST, numpy.int32, where), malloc_shared(*given))
        self.mistakes = malloc_shared(1, numpy.int32, where)

    def try_out(self, shape: Shape, policy: str) -> None:
        """Build a graph, run it, look at what it has left."""
        graph, found = self.graph(shape), self.counts.array
        executable = graph.finalize(policy=policy)
        for queue in self.queues:
            found[:], self.mistakes.array[:] = 0, 0
            for _ in range(RUNS):
                queue.graph(executable)
            queue.wait()
            assert self.mistakes.array[0] == 0, executable.explain()
            for node, kind in enumerate(shape.kinds):
                assert found[node] == (0 if kind == "empty" else RUNS), executable.explain()

    def graph(self, shape: Shape) -> CommandGraph:
        """Return the graph of a shape: nodes first, then the edges, so that edges can point
        backwards."""
        before = real_predecessors(shape)
        graph = CommandGraph(self.context, self.members)
        nodes: list[Node] = []
        first = 0
        for number, kind in enumerate(shape.kinds):
            self.before.array[first : first + len(before[number])] = before[number]
            device = self.members[shape.devices[number]]
            nodes.append(
                graph.add(self.command(kind, number, first, before[number]), device=device)
            )
            first += len(before[number])
        for src, dst in shape.edges:
            graph.make_edge(nodes[src], nodes[dst])
        return graph

    def command(self, kind: str, number: int, first: int, before: list[int]) -> Any:
        """The command-group function of a node."""
        if kind == "empty":
            return None
        if kind == "host":
            return lambda handler: handler.host_task(lambda: self.visit_on_host(number, before))
        values = numpy.int32(first), numpy.int32(len(before)), numpy.int32(number)
        return lambda handler: handler.parallel_for(
            NDRange(1, 1), self.visit, self.counts, self.before, *values, self.mistakes
        )

    def visit_on_host(self, number: int, before: list[int]) -> None:
        """What the kernel does."""
        counts = self.counts.array
        assert all(counts[node] == counts[number] + 1 for node in before), (
            f"host task {number} came too early"
        )
        counts[number] += 1


def real_predecessors(shape: Shape) -> list[list[int]]:
    """Return for each node the predecessors that count, also those behind empty nodes."""
    direct: list[list[int]] = [[] for _ in shape.kinds]
    for src, dst in shape.edges:
        direct[dst].append(src)

    def found(node: int) -> set[int]:
        return {
            one
            for before in direct[node]
            for one in ({before} if shape.kinds[before] != "empty" else found(before))
        }

    return [sorted(found(node)) for node in range(len(shape.kinds))]


@pytest.fixture(scope="module")
def whole(device: Device) -> Bench:
    """One device."""
    return Bench([device])


@pytest.fixture(scope="module")
def divided(parts: Sequence[Device]) -> Bench:
    """Two sub-devices of a device."""
    return Bench(list(parts[:2]))


#: Examples of each law on each driver, under each policy: of `make test`, and of `make test-all`.
_each_count = pytest.mark.parametrize(
    "examples", [40, pytest.param(150, marks=pytest.mark.thorough)]
)


@_each_count
@pytest.mark.parametrize("policy", POLICIES)
def test_every_edge_is_honoured(whole: Bench, policy: str, examples: int) -> None:
    @settings(max_examples=examples)
    @given(shapes(1))
    def law(shape: Shape) -> None:
        whole.try_out(shape, policy)

    law()


@_each_count
@pytest.mark.parametrize("policy", POLICIES)
def test_every_edge_between_devices_is_honoured(divided: Bench, policy: str, examples: int) -> None:
    @settings(max_examples=examples)
    @given(shapes(2))
    def law(shape: Shape) -> None:
        divided.try_out(shape, policy)

    law()


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("task_first", [True, False])
def test_a_kernel_that_leads_to_no_host_task_beside_one_that_does(
    whole: Bench, policy: str, task_first: bool
) -> None:
    """Upstream (libsycl 2026.2) crashes here: K1 > K2, K1 > HT."""
    kinds, edges = (
        (["host", "kernel", "kernel"], [(1, 2), (1, 0)])
        if task_first
        else (["kernel", "kernel", "host"], [(0, 1), (0, 2)])
    )
    whole.try_out(Shape(kinds, edges, [0, 0, 0]), policy)


@pytest.mark.parametrize("policy", POLICIES)
def test_a_dependency_of_a_node_that_is_no_root_of_its_partition(whole: Bench, policy: str) -> None:
    """Upstream (libsycl 2026.2) runs K0, K2, K1 here: K0 > K2, K1 > K2, K1 > HT3."""
    whole.try_out(
        Shape(["kernel", "kernel", "kernel", "host"], [(0, 2), (1, 2), (1, 3)], [0] * 4), policy
    )
