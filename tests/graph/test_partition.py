"""Partitions of command graphs (spec B3): the seed's traces, DPC++'s errors, and properties.

The one law is that every edge is honoured, whatever runs at the same time. "seed" is compared with
the seed's procedure, literally.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from random import Random
from typing import Any

import pytest
from helpers.graphs import acyclic_graphs, sides
from hypothesis import given, settings
from hypothesis import strategies as st

from fairlead.graph.execution_order import find_execution_order
from fairlead.graph.partition import POLICIES, Partitions, partition

A, B, HT1, C, D, HT2, E, F = range(8)
G1 = [(A, HT1), (HT1, C), (C, F), (B, D), (D, HT2), (HT2, E)]


@dataclass(frozen=True)
class Case:
    """A graph: its edges in the order in which they were made, its host tasks, the device of each
    node."""

    count: int
    edges: list[tuple[int, int]]
    hosts: frozenset[int] = frozenset()
    devices: list[str] | None = None

    @property
    def sides(self) -> tuple[list[list[int]], list[list[int]]]:
        return sides(self.count, self.edges)

    @property
    def host(self) -> list[bool]:
        return [node in self.hosts for node in range(self.count)]

    def partition(self, policy: str = "seed", not_in_order: Sequence[int] = ()) -> Partitions:
        return partition(
            *self.sides,
            host=self.host,
            devices=self.devices,
            not_in_order=not_in_order,
            policy=policy,
        )


def case(count: int, edges: list[tuple[int, int]], *hosts: int) -> Case:
    return Case(count, edges, frozenset(hosts))


def path(count: int, *hosts: int) -> Case:
    return case(count, [(node, node + 1) for node in range(count - 1)], *hosts)


#: The seed's graphs: nodes of each partition in order of execution, and the predecessors of each
#: partition.
TRACES: dict[str, Any] = {
    "G1": (
        case(8, G1, HT1, HT2),
        [[A], [HT1], [C, F], [B, D], [HT2], [E]],
        [[], [0], [1], [], [3], [4]],
    ),
    "G2": (
        case(8, [*G1, (E, HT1)], HT1, HT2),
        [[B, D, A], [HT2], [E], [HT1], [C, F]],
        [[], [0], [1], [0, 2], [3]],
    ),
    "G3, a path": (path(4, 2), [[0, 1], [2], [3]], [[], [0], [1]]),
    "G3, one host task": (path(1, 0), [[0]], [[]]),
    "G3, host tasks in a row": (path(4, 1, 2), [[0], [1], [2], [3]], [[], [0], [1], [2]]),
    "G3, nothing": (path(0), [[]], [[]]),
    "G3, no host task": (case(4, [(0, 2), (1, 2)]), [[3, 1, 0, 2]], [[]]),
    "G4": (
        case(6, [(0, 1), (1, 2), (3, 4), (4, 5)], 1, 4),
        [[0], [1], [2], [3], [4], [5]],
        [[], [0], [1], [], [3], [4]],
    ),
    "PR 22565": (
        case(4, [(0, 1), (1, 2), (2, 3), (0, 3)], 1),
        [[0], [1], [2, 3]],
        [[], [0], [0, 1]],
    ),
    "a second host task above a node in the middle": (
        case(4, [(1, 2), (2, 3), (0, 3)], 0, 1),
        [[0], [1], [2, 3]],
        [[], [], [0, 1]],
    ),
}

#: By "rank", where that is another result.
RANKS = {
    "G1": ([[A], [B, D], [HT1], [HT2], [C, F], [E]], [[], [], [0], [1], [2], [3]]),
    "G2": ([[A], [B, D], [HT2], [E], [HT1], [C, F]], [[], [], [1], [2], [0, 3], [4]]),
    "G4": ([[0], [3], [1], [4], [2], [5]], [[], [], [0], [1], [2], [3]]),
    "a second host task above a node in the middle": ([[0], [1], [2, 3]], [[], [], [0, 1]]),
}


@pytest.mark.parametrize("name", TRACES)
def test_traces_of_the_seed(name: str) -> None:
    graph, nodes, predecessors = TRACES[name]
    result = graph.partition()
    assert (result.policy, result.reason) == ("seed", "")
    assert [list(part.nodes) for part in result.partitions] == nodes
    assert [list(part.predecessors) for part in result.partitions] == predecessors
    assert_honours(graph, result)


@pytest.mark.parametrize("name", TRACES)
def test_the_same_by_rank(name: str) -> None:
    graph = TRACES[name][0]
    nodes, predecessors = RANKS[name] if name in RANKS else TRACES[name][1:]
    result = graph.partition("rank")
    assert (result.policy, result.reason) == ("rank", "")
    assert [list(part.nodes) for part in result.partitions] == nodes
    assert [list(part.predecessors) for part in result.partitions] == predecessors
    assert_honours(graph, result)


def test_g2_is_numbered_as_the_seed_draws_it_and_libsycl_runs_it() -> None:
    graph = TRACES["G2"][0]
    numbers = annotated(graph)
    assert [numbers[node] for node in (A, B, D, HT2, E, HT1, C, F)] == [0, 0, 0, 4, 5, 7, 8, 8]
    result = graph.partition()
    assert [list(part.nodes) for part in result.partitions] == [
        [1, 4, 0],
        [5],
        [6],
        [2],
        [3, 7],
    ]  # observed: libsycl 2026.2
    assert [part.host for part in result.partitions] == [False, True, False, True, False]
    assert result.exits == (4,)


def test_branches_with_host_tasks_of_their_own_run_at_the_same_time() -> None:
    result = TRACES["G4"][0].partition()
    assert result.partitions[3].predecessors == () and result.exits == (2, 5)


@pytest.mark.parametrize(
    ("kernels", "task"), [((1, 2), 0), ((0, 1), 2)], ids=["host task first", "host task last"]
)
def test_a_kernel_that_no_host_task_comes_after(kernels: tuple[int, int], task: int) -> None:
    """K1 > K2, K1 > HT: the seed puts K2 into the first partition and K1 into the second. libsycl
    2026.2 crashes."""
    first, second = kernels
    graph = case(3, [(first, second), (first, task)], task)
    result = graph.partition()
    assert (
        result.policy == "rank"
        and result.reason == f"node {second} would run before node {first}, which it comes after"
    )
    assert [part.nodes for part in result.partitions] == [(first, second), (task,)]
    assert_honours(graph, result)


@pytest.mark.parametrize(
    ("nodes", "task"), [((0, 1, 2), 3), ((1, 2, 3), 0)], ids=["host task last", "host task first"]
)
def test_a_dependence_of_a_node_that_is_no_root(nodes: tuple[int, int, int], task: int) -> None:
    """K0 > K2, K1 > K2, K1 > HT: DPC++ forgets that K2 waits for K1, because K2 also has a
    predecessor in its partition."""
    a, b, c = nodes
    graph = case(4, [(a, c), (b, c), (b, task)], task)
    result = graph.partition()
    assert result.policy == "rank"
    assert [sorted(part.nodes) for part in result.partitions] == [[a, b, c], [task]]
    assert_honours(graph, result)


@pytest.mark.parametrize("policy", POLICIES)
def test_what_waits_for_the_same_and_is_waited_for_by_the_same_is_one_partition(
    policy: str,
) -> None:
    """Many kernels side by side, between two host tasks: one command-buffer, not one for each."""
    inner = range(1, 9)
    graph = case(10, [edge for node in inner for edge in ((0, node), (node, 9))], 0, 9)
    assert [sorted(part.nodes) for part in graph.partition(policy).partitions] == [
        [0],
        [*inner],
        [9],
    ]


@pytest.mark.parametrize("policy", POLICIES)
def test_several_devices(policy: str) -> None:
    graph = Case(
        5, [(0, 1), (1, 2), (0, 2), (2, 4)], frozenset({4}), ["a", "b", "a", "a", "never asked for"]
    )
    result = graph.partition(policy)
    assert result.policy == "rank" and result.reason == (
        "its nodes run in 2 places: on devices, or outside of command-buffers"
        if policy == "seed"
        else ""
    )
    assert [part.device for part in result.partitions] == ["a", "a", "b", "a", None]
    assert [part.nodes for part in result.partitions] == [(0,), (3,), (1,), (2,), (4,)]
    assert [part.predecessors for part in result.partitions] == [(), (), (0,), (0, 2), (3,)]


def test_in_order_means_a_single_path_without_a_branch_or_an_exception() -> None:
    def in_order(graph: Case, *exceptions: int) -> list[bool]:
        return [part.in_order for part in graph.partition(not_in_order=exceptions).partitions]

    assert in_order(path(0)) == [True]
    assert in_order(path(4, 2)) == [True, True, True]
    assert in_order(path(4, 2), 1) == [False, True, True]
    assert in_order(case(3, [(0, 1), (0, 2)])) == [False]  # a node with two successors
    assert in_order(case(3, [(0, 2), (1, 2)])) == [False]  # two roots
    assert in_order(TRACES["PR 22565"][0]) == [
        False,
        True,
        True,
    ]  # a second successor in another partition


@pytest.mark.slow
@pytest.mark.parametrize("policy", POLICIES)
def test_a_path_of_100_000_nodes_needs_no_recursion(policy: str) -> None:
    result = path(100_000, 50_000).partition(policy)
    assert [len(part.nodes) for part in result.partitions] == [50_000, 1, 49_999]


def test_seed_gives_up_where_it_would_take_long() -> None:
    """Host tasks in a row, added from the last to the first: each makes the seed visit all below it
    again."""
    count = 400
    graph = case(count, [(node + 1, node) for node in range(count - 1)], *range(count))
    result = graph.partition()
    assert (
        result.policy == "rank"
        and result.reason == "too many host tasks lead to host tasks that were added before them"
    )
    assert [part.nodes for part in result.partitions] == [
        (node,) for node in reversed(range(count))
    ]


def test_unknown_policies_are_refused() -> None:
    with pytest.raises(ValueError, match="no policy 'best', only seed and rank"):
        path(1).partition("best")


# Properties.


@st.composite
def graphs(draw: st.DrawFn, devices: int = 3) -> Case:
    count, edges = draw(acyclic_graphs())
    hosts = draw(st.sets(st.sampled_from(range(count)))) if count else set()
    names = (
        draw(st.lists(st.sampled_from("abc"[:devices]), min_size=count, max_size=count))
        if devices
        else None
    )
    return Case(count, edges, frozenset(hosts), names)


def assert_honours(graph: Case, result: Partitions, seed: int = 0) -> None:
    """Check that every node is in one partition, that both sides agree, and that every edge is
    honoured."""
    parts = result.partitions
    assert sorted(node for part in parts for node in part.nodes) == list(range(graph.count))
    assert [
        number
        for number, part in enumerate(parts)
        for node in part.nodes
        if result.of[node] != number
    ] == []
    for number, part in enumerate(parts):
        assert list(part.predecessors) == sorted(
            {n for n, other in enumerate(parts) if number in other.successors}
        )
        assert list(part.successors) == sorted(
            {n for n, other in enumerate(parts) if number in other.predecessors}
        )
        assert all(before < number for before in part.predecessors)
        hosts = graph.hosts.intersection(part.nodes)
        assert part.host == bool(hosts) and (not part.host or len(part.nodes) == 1)
        own = {
            None if part.host or graph.devices is None else graph.devices[node]
            for node in part.nodes
        }
        assert own <= {part.device}
    assert result.exits == tuple(number for number, part in enumerate(parts) if not part.successors)
    assert_edges(graph, [node for part in parts for node in part.nodes])
    for run in range(3):
        assert_edges(graph, adversarial(graph, result, Random(seed + run)))


def assert_edges(graph: Case, ran: list[int]) -> None:
    place = {node: number for number, node in enumerate(ran)}
    assert [edge for edge in graph.edges if place[edge[0]] > place[edge[1]]] == []


def adversarial(graph: Case, result: Partitions, lot: Random) -> list[int]:
    """Return nodes in a hostile order that obeys only what a runtime is told.

    That is the predecessors of partitions, and inside one its edges, or its order if it is
    in-order. Which of the possible nodes runs next is random.
    """
    _, predecessors = graph.sides
    ran: list[int] = []
    left = [list(part.nodes) for part in result.partitions]
    while any(left):
        free = []
        for part, nodes in zip(result.partitions, left, strict=True):
            if any(left[before] for before in part.predecessors):
                continue
            free += (
                nodes[:1]
                if part.in_order
                else [node for node in nodes if not set(predecessors[node]) & set(nodes)]
            )
        node = lot.choice(free)
        ran.append(node)
        left[result.of[node]].remove(node)
    return ran


@pytest.mark.slow
@given(graphs(), st.sampled_from(POLICIES), st.integers(0, 1000))
@settings(max_examples=300)
def test_every_edge_is_honoured_whatever_runs_at_the_same_time(
    graph: Case, policy: str, seed: int
) -> None:
    assert_honours(graph, graph.partition(policy), seed)


def annotated(graph: Case) -> list[int]:
    """Run the seed's procedure literally (spec B3, "annotate"): recursive and slow."""
    successors, predecessors = graph.sides
    number = [-1] * graph.count
    queue = deque(sorted(graph.hosts))

    def up(node: int) -> None:
        if (
            node not in graph.hosts and number[node] == -1
        ):  # every number there is is smaller than the current one
            number[node] = current
            for before in predecessors[node]:
                up(before)

    def down(node: int) -> None:
        if node not in graph.hosts:
            number[node] = current
            for after in successors[node]:
                down(after)
        elif number[node] != -1:
            queue.appendleft(node)

    current = -1
    while queue:
        task = queue.popleft()
        waiting = len(queue)
        current += 1
        for before in predecessors[task]:
            up(before)
        current += 1
        number[task] = current
        current += 1
        for after in successors[task]:
            down(after)
        if len(queue) > waiting:
            for other in queue:
                if number[other] == -1:
                    break
                number = [number[other] - 1 if old == number[task] - 1 else old for old in number]
    return number


@pytest.mark.slow
@given(graphs(devices=0))
@settings(max_examples=300)
def test_seed_is_the_seeds_result_wherever_that_is_right(graph: Case) -> None:
    numbers = annotated(graph)
    result = graph.partition()
    if any(numbers[a] > numbers[b] for a, b in graph.edges):
        assert result.policy == "rank" and result.reason
    else:
        groups = [
            [node for node in range(graph.count) if numbers[node] == own]
            for own in sorted(set(numbers))
        ] or [[]]
        assert result.policy == "seed" and not result.reason
        assert [list(part.nodes) for part in result.partitions] == [
            find_execution_order(group, *graph.sides) for group in groups
        ]
