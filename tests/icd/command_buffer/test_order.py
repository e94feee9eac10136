"""Orders, as properties: every schedule has every command once and honours every edge."""

from __future__ import annotations

from dataclasses import dataclass

from hypothesis import given
from hypothesis import strategies as st

from fairlead.icd.command_buffer.order import (
    BARRIER,
    Order,
    Schedule,
    reduce_edges,
    schedule_by_events,
    schedule_by_level,
    schedule_in_order,
    spread_over_queues,
)


@dataclass(frozen=True)
class Case:
    """A graph, the queue of each node, and which queues are in order."""

    graph: Order
    queues: list[int]
    in_order: frozenset[int]


@st.composite
def graphs(draw: st.DrawFn) -> Order:
    size = draw(st.integers(0, 24))
    dependencies = [
        draw(st.lists(st.integers(0, max(node - 1, 0)), max_size=4, unique=True)) if node else []
        for node in range(size)
    ]
    return Order(dependencies, draw(st.lists(st.booleans(), min_size=size, max_size=size)))


@st.composite
def cases(draw: st.DrawFn) -> Case:
    graph = draw(graphs())
    queues = draw(st.lists(st.integers(0, 2), min_size=len(graph), max_size=len(graph)))
    return Case(graph, queues, frozenset({1, 2} | ({0} if draw(st.booleans()) else set())))


def closure(graph: Order) -> list[set[int]]:
    """All nodes that each node comes after."""
    behind: list[set[int]] = []
    for predecessors in graph.dependencies:
        behind.append(set(predecessors).union(*(behind[node] for node in predecessors)))
    return behind


def behind_steps(schedule: Schedule, in_order: frozenset[int]) -> list[set[int]]:
    """All steps that surely come before each step, by the rules of OpenCL's queues."""
    behind: list[set[int]] = []
    for number, step in enumerate(schedule.steps):
        direct = set(step.waits)
        same = [other for other in range(number) if schedule.steps[other].queue == step.queue]
        if step.queue in in_order or (step.command == BARRIER and not step.waits):
            direct.update(same)
        else:
            direct.update(other for other in same if schedule.steps[other].command == BARRIER)
        behind.append(direct.union(*(behind[other] for other in direct)))
    return behind


def assert_honours(
    graph: Order,
    schedule: Schedule,
    in_order: frozenset[int],
    queues: set[int],
    fenced: bool = False,
) -> None:
    steps = schedule.steps
    of_node = {step.command: number for number, step in enumerate(steps) if step.command != BARRIER}
    commands = {node for node in range(len(graph)) if not graph.order_only[node]}
    numbers = [step.command for step in steps if step.command != BARRIER]
    assert len(numbers) == len(set(numbers)) and commands <= set(numbers)
    begun = {number for number, step in enumerate(steps) if step.begins}
    for number, before in enumerate(behind_steps(schedule, in_order)):
        assert number in begun or begun & before  # all of it comes after what the replay waits for
    if 0 in in_order or fenced:
        assert begun <= {0}
    else:  # it holds nothing else up, and waits for nothing else in the caller's queue
        assert all(step.begins for step in steps if step.command == BARRIER and not step.queue)
    behind = behind_steps(schedule, in_order)
    for node, before in enumerate(closure(graph)):
        for other in before & commands:
            if node in commands:
                assert of_node[other] in behind[of_node[node]]
    for number, step in enumerate(steps):
        assert all(wait < number and steps[wait].signals for wait in step.waits)
        assert step.queue in queues
    if (
        len(queues) > 1 or 0 not in in_order
    ):  # the caller sees the end of queue 0: a barrier there comes last
        end = (
            set(range(len(steps)))
            if not schedule.final_waits and steps and steps[-1].command == BARRIER
            else {len(steps) - 1, *behind[-1]}
            if not schedule.final_waits and steps and not fenced
            else set()
        )
        ends = set(schedule.final_waits)
        covered = end.union(ends, *(behind[number] for number in ends))
        last_queue_0 = {
            number for number, step in enumerate(steps) if step.queue == 0 and 0 in in_order
        }
        assert set(of_node.values()) <= covered | last_queue_0


@given(graphs(), st.booleans())
def test_in_order_and_levels(graph: Order, fenced: bool) -> None:
    assert_honours(graph, schedule_in_order(graph), frozenset({0}), {0})
    levels = schedule_by_level(graph, fenced)
    assert_honours(graph, levels, frozenset(), {0} if fenced else {0, 1}, fenced)
    assert levels.events == (0 if fenced else min(2, len(levels.steps)))


@given(cases(), st.booleans())
def test_events_on_several_queues(case: Case, fenced: bool) -> None:
    schedule = schedule_by_events(case.graph, case.queues, case.in_order, fenced=fenced)
    assert_honours(case.graph, schedule, case.in_order, {0, 1, 2}, fenced)


@given(graphs(), st.booleans())
def test_events_on_one_out_of_order_queue(graph: Order, fenced: bool) -> None:
    schedule = schedule_by_events(graph, [0] * len(graph), frozenset(), fenced=fenced)
    assert_honours(graph, schedule, frozenset(), {0}, fenced)


@given(graphs(), st.data())
def test_what_is_seen_from_outside_has_a_step(graph: Order, data: st.DataObject) -> None:
    seen = frozenset(data.draw(st.sets(st.integers(0, max(0, len(graph) - 1)))))
    schedule = schedule_by_events(graph, [0] * len(graph), frozenset(), seen=seen)
    numbers = {step.command for step in schedule.steps}
    assert {node for node in seen if node < len(graph)} <= numbers


@given(graphs(), st.integers(0, 60))
def test_many_ends_are_joined_on_a_queue_of_their_own(graph: Order, ends: int) -> None:
    wide = Order([*graph.dependencies, *[[]] * ends], [*graph.order_only, *[False] * ends])
    schedule = schedule_by_events(wide, [0] * len(wide), frozenset({1}))
    assert_honours(wide, schedule, frozenset({1}), {0, 1})
    joins = [step for step in schedule.steps if step.queue == 1]
    assert schedule.own_queues == bool(joins) and all(step.command == BARRIER for step in joins)
    assert all(len(step.waits) <= 16 for step in joins) and len(schedule.final_waits) <= 16


@given(graphs())
def test_a_path_on_a_queue_of_its_own_needs_two_events(graph: Order) -> None:
    schedule = schedule_by_events(graph, [1] * len(graph), frozenset({1}))
    assert_honours(graph, schedule, frozenset({1}), {0, 1})
    assert schedule.events <= 2


@given(graphs(), st.integers(1, 3))
def test_branches_on_queues_of_their_own(graph: Order, count: int) -> None:
    queues = frozenset(range(1, count + 1))
    schedule = schedule_by_events(graph, spread_over_queues(graph, queues), queues, "queues")
    assert_honours(graph, schedule, queues, {0, *queues})
    assert schedule.kind == "queues"


@given(graphs(), st.integers(1, 3))
def test_one_branch_on_the_in_order_queue_of_the_caller(graph: Order, count: int) -> None:
    """All steps come after what was in the queue before, and before its next command."""
    queues = frozenset(range(count))
    schedule = schedule_by_events(graph, spread_over_queues(graph, queues), queues, "queues")
    assert_honours(graph, schedule, queues, set(queues))
    assert all(0 in behind for behind in behind_steps(schedule, queues)[1:])
    joined = set(schedule.final_waits)
    before_next = joined.union(*(behind_steps(schedule, queues)[step] for step in joined))
    others = {number for number, step in enumerate(schedule.steps) if step.queue}
    assert others <= before_next


def test_queues_take_branches_whole() -> None:
    """Two chains, recorded in turns and one after the other: one event at the start, one for each
    queue."""
    for dependencies, queues in (
        ([[], [], [0], [1], [2], [3]], [1, 2, 1, 2, 1, 2]),
        ([[], [0], [1], [], [3], [4]], [1, 1, 1, 2, 2, 2]),
    ):
        chains = Order(dependencies, [False] * 6)
        assert chains.width == 2
        assert spread_over_queues(chains, {1, 2}) == queues
        assert schedule_by_events(chains, queues, frozenset({1, 2}), "queues").events == 3


@given(st.integers(1, 4), st.integers(1, 9), st.integers(1, 4))
def test_queues_share_chains(each: int, length: int, queues: int) -> None:
    """Every queue has as many chains, whole ones, though they were recorded in turns."""
    width, numbers = each * queues, range(1, queues + 1)
    edges = [[node - width] if node >= width else [] for node in range(width * length)]
    chains = Order(edges, [False] * len(edges))
    chosen = spread_over_queues(chains, numbers)
    assert [chosen.count(queue) for queue in numbers] == [each * length] * queues
    assert schedule_by_events(chains, chosen, frozenset(numbers), "queues").events == 1 + queues


def test_queues_share_what_has_no_order() -> None:
    assert spread_over_queues(Order([[]] * 8, [False] * 8), {1, 2}) == [1, 2] * 4
    assert Order([], []).width == 0


@given(graphs())
def test_reduction_keeps_the_order(graph: Order) -> None:
    assert closure(Order(reduce_edges(graph), graph.order_only)) == closure(graph)


@given(graphs())
def test_levels_are_the_lengths_of_longest_paths(graph: Order) -> None:
    for node, before in enumerate(closure(graph)):
        commands = [other for other in before if not graph.order_only[other]]
        assert graph.levels[node] == max((graph.levels[other] + 1 for other in commands), default=0)
    distinct = {graph.levels[node] for node in range(len(graph)) if not graph.order_only[node]}
    assert graph.is_path == (len(distinct) == sum(not only for only in graph.order_only))
