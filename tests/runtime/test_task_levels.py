"""Task levels: every number of Intel's sample, its two reorderings, the limitations, and the rules
as properties."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ElementTree
from collections.abc import Sequence
from itertools import pairwise
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairlead.icd.command_buffer.order import BARRIER, Order, schedule_by_level
from fairlead.runtime import Errc, SYCLError
from fairlead.runtime.task_levels import ModelCommand, TaskLevels

if TYPE_CHECKING:
    from fairlead.runtime.task_levels import ModelUserEvent

#: The sample's commands: the queue, the commands whose events they wait for, the returned event.
SAMPLE: dict[int, tuple[int, Sequence[int], str]] = {
    1: (0, (), ""),
    2: (1, (), "e1"),
    3: (2, (), ""),
    4: (0, (), "e2"),
    5: (1, (), ""),
    6: (0, (), "e3"),
    7: (1, (4,), "e4"),
    8: (2, (7,), ""),
    9: (2, (2, 6), ""),
    10: (0, (), ""),
}

TABLE = """\
command  queue  waits for  returns  level  ioq1  ioq2  ooq3  receiver
1        ioq1                       0      0     0     0     0
2        ioq2              e1       0      0     0     0     0
3        ooq3                       0      0     0     0     0
4        ioq1              e2       1      1     0     0     1
5        ioq2                       1      1     1     0     1
6        ioq1              e3       2      2     1     0     2
7        ioq2   e2         e4       2      2     2     0     2
8        ooq3   e4                  3      2     2     3     3
9        ooq3   e1,e3               3      2     2     3     3
10       ioq1                       3      3     2     3     3
batches: {1, 2, 3} {4, 5} {6, 7} {8, 9, 10}"""


#: What the picture says of its arrows.
LEGEND = "order of a queue", "event"


def sample(order: Sequence[int] = tuple(SAMPLE), serial: bool = False) -> TaskLevels:
    """The sample's commands, enqueued in an order; all in one in-order queue if `serial`."""
    model = TaskLevels()
    queues = [model.queue("ioq1"), model.queue("ioq2"), model.queue("ooq3", in_order=False)]
    made: dict[int, ModelCommand] = {}
    for number in order:
        queue, waits, returns = SAMPLE[number]
        events = [] if serial else [made[other] for other in waits]
        target = queues[0 if serial else queue]
        made[number] = target.enqueue(str(number), waits_for=events, returns=returns)
    return model


def batches(model: TaskLevels) -> str:
    return " ".join(map(str, model.batches))


def test_the_table_of_the_sample() -> None:
    model = sample()
    assert str(model) == TABLE
    assert [queue.level for queue in model.queues] == [3, 2, 3] and model.level == 3
    assert repr(model) == "<TaskLevels of 3 queues: 10 commands, 4 batches>"


def test_in_order_every_command_has_a_level_of_its_own() -> None:
    model = sample(serial=True)
    assert [command.level for command in model.passed] == list(range(10))
    assert batches(model) == " ".join(f"{{{number}}}" for number in SAMPLE)


@pytest.mark.parametrize(
    ("order", "expected"),
    [
        ((1, 4, 2, 3, 5, 6, 7, 8, 9, 10), "{1} {4, 2, 3} {5, 6} {7} {8, 9, 10}"),
        ((1, 4, 2, 3, 6, 5, 7, 9, 10, 8), "{1} {4, 2, 3} {6, 5} {7, 9, 10} {8}"),
        ((1, 2, 3, 4, 5, 6, 9, 7, 8, 10), "{1, 2, 3} {4, 5} {6} {9, 7} {8, 10}"),
        ((1, 2, 3, 4, 5, 6, 7, 9, 10, 8), "{1, 2, 3} {4, 5} {6, 7} {9, 10, 8}"),
        ((1, 2, 3, 4, 5, 6, 9, 7, 10, 8), "{1, 2, 3} {4, 5} {6} {9, 7, 10} {8}"),
    ],
    ids=["4 before 2", "and 8 last", "9 before 7", "only 8 last", "9 before 7 and 8 last"],
)
def test_the_order_of_the_calls_makes_the_batches(order: Sequence[int], expected: str) -> None:
    assert batches(sample(order)) == expected


def test_what_the_sample_says_of_reorderings() -> None:
    """Command 2 is then not aggregated with 1, and command 7 not with 6."""
    for order, pair in (
        ((1, 4, 2, 3, 5, 6, 7, 8, 9, 10), {"1", "2"}),
        ((1, 2, 3, 4, 5, 6, 9, 7, 8, 10), {"6", "7"}),
    ):
        for model, together in ((sample(), True), (sample(order), False)):
            names = [{command.name for command in batch.commands} for batch in model.batches]
            assert any(pair <= batch for batch in names) is together


def test_an_event_of_an_in_order_queue_needs_an_out_of_order_queue() -> None:
    for any_out_of_order, expected in ((False, "{a} {b} {c, d}"), (True, "{a, b, c, d}")):
        model = TaskLevels()
        queues = [model.queue() for _ in range(4)]
        if any_out_of_order:
            model.queue("ooq", in_order=False)
        for queue, name in zip(queues, "abcd", strict=True):
            queue.enqueue(name, returns="e1" if name == "b" else "")
        assert batches(model) == expected
        assert {command.level for command in model.passed} == {0}
        assert ("alone: b, it returns an event in an in-order queue" in str(model)) is (
            not any_out_of_order
        )


def test_profiling_keeps_commands_apart() -> None:
    model = TaskLevels()
    profiled = model.queue("ooq", in_order=False, profiling=True)
    plain = model.queue("plain", in_order=False)
    for queue, name in ((profiled, "a"), (plain, "b"), (plain, "c"), (profiled, "d")):
        queue.enqueue(name)
    assert batches(model) == "{a} {b, c} {d}"
    assert str(model).endswith(
        "alone: a, its queue has profiling\nalone: d, its queue has profiling"
    )


def test_a_user_event_blocks_what_comes_after_it() -> None:
    model = TaskLevels()
    first, second = model.queue("ioq"), model.queue("ooq", in_order=False)
    gate = model.user_event("gate")
    held = first.enqueue("held", waits_for=[gate], returns="e1")
    behind = first.enqueue("behind")
    after = second.enqueue("after", waits_for=[held])
    free = second.enqueue("free")
    assert [one.level for one in (held, behind, after, free)] == [None, None, None, 0]
    assert all(one.is_blocked for one in (held, behind, after)) and not free.is_blocked
    assert model.blocked == [held, behind, after] and batches(model) == "{free}"
    assert re.search(r"^held +ioq +gate +e1 +blocked$", str(model), re.MULTILINE)
    gate.complete()
    assert model.blocked == [] and [one.level for one in model.passed] == [0, 0, 1, 1]
    assert batches(model) == "{free} {held} {behind} {after}"
    assert {one.why_alone for one in (held, behind, after)} == {"a user event blocked it"}
    late = second.enqueue("late", waits_for=[gate])
    assert late.level == 1 and not late.why_alone


def test_a_command_may_wait_for_two_user_events() -> None:
    model = TaskLevels()
    queue, gates = model.queue(), [model.user_event("a"), model.user_event("b")]
    held = queue.enqueue(waits_for=gates)
    gates[1].complete()
    assert held.is_blocked and model.passed == []
    gates[0].complete()
    assert held.level == 0 and model.passed == [held]


def test_a_flush_ends_a_batch_of_all_queues() -> None:
    model = TaskLevels()
    first, second = model.queue(), model.queue()
    first.flush()  # nothing is there
    first.enqueue("a")
    second.enqueue("b")
    second.flush()
    second.flush()
    model.queue().enqueue("c")
    assert batches(model) == "{a, b} {c}"
    assert [batch.submitted for batch in model.batches] == [True, False]
    assert [batch.level for batch in model.batches] == [0, 0]
    assert [command.buffer for command in model.passed] == [0, 0, 1]


def test_names_are_numbers_by_default() -> None:
    model = TaskLevels()
    queue = model.queue()
    queue.enqueue(waits_for=[model.user_event()])
    assert queue.name == "queue 1" and queue.enqueue().name == "2"


def test_misuses() -> None:
    model, other = TaskLevels(), TaskLevels()
    queue, gate = model.queue(), model.user_event("gate")
    silent, foreign = queue.enqueue("silent"), other.queue().enqueue("foreign", returns="e1")
    for wrong, words in (
        (silent, "silent returns no event"),
        (foreign, "foreign is of another model"),
        (other.user_event("far"), "far is of another model"),
        ("e1", "a command cannot wait for 'e1'"),
    ):
        with pytest.raises(SYCLError, match=words) as caught:
            queue.enqueue(waits_for=[wrong])  # pyright: ignore[reportArgumentType]
        assert caught.value.errc is Errc.invalid and caught.value.remedy
    assert len(model.passed) == 1  # a refused command is none
    gate.complete()
    with pytest.raises(SYCLError, match="gate is complete already"):
        gate.complete()


def test_the_pictures_have_every_command_and_arrow() -> None:
    dot, svg = sample().to_dot(), ElementTree.fromstring(sample().to_svg())
    assert len(re.findall(r"subgraph cluster_\d", dot)) == 4
    assert dot.count("#d97706") == 5 and dot.count("#2563eb") == 4  # by queues, by events
    texts = [element.text for element in svg.iter() if element.tag.endswith("text")]
    names = [*map(str, SAMPLE), "ioq1", "ioq2", "ooq3", *(f"level {n}" for n in range(4))]
    names += ["e1", "e2", "e3", "e4", *LEGEND]
    assert sorted(text for text in texts if text) == sorted(names)
    lines = [element for element in svg.iter() if element.tag.endswith("line")]
    assert len(lines) == 9
    assert all(float(line.attrib["y1"]) < float(line.attrib["y2"]) for line in lines)
    ends = [(line.attrib["x2"], line.attrib["y2"]) for line in lines]
    assert len(set(ends)) == 9  # two commands have two arrows each, which end beside each other
    straight = [line for line in lines if line.attrib["x1"] == line.attrib["x2"]]
    assert [line.attrib["stroke"] for line in straight] == ["#d97706"] * 5


def test_boxes_lie_beside_each_other() -> None:
    svg = ElementTree.fromstring(sample()._repr_svg_())
    boxes = [
        tuple(float(element.attrib[name]) for name in ("x", "y", "width", "height"))
        for element in svg.iter()
        if element.attrib.get("stroke") == "#334155"
    ]
    assert len(boxes) == 10
    for place, (x, y, width, height) in enumerate(boxes):
        assert x >= 0 and x + width <= float(svg.attrib["width"])
        assert y >= 0 and y + height <= float(svg.attrib["height"])
        for left, top, other_width, _ in boxes[:place]:
            assert y != top or x >= left + other_width or left >= x + width


def test_pictures_of_names_that_are_markup_and_of_blocked_commands() -> None:
    model = TaskLevels()
    queue = model.queue('<q "1">')
    gate = model.user_event("&")
    queue.enqueue('a\\"', waits_for=[gate])
    queue.enqueue("<b>")
    svg = ElementTree.fromstring(model.to_svg())
    texts = {element.text for element in svg.iter() if element.tag.endswith("text")}
    assert texts == {'<q "1">', 'a\\"', "<b>", "blocked", *LEGEND}
    assert r'label="a\\\""' in model.to_dot()
    assert ElementTree.fromstring(TaskLevels().to_svg()) is not None and "digraph" in (
        TaskLevels().to_dot()
    )


@st.composite
def programs(draw: st.DrawFn, limited: bool = True) -> TaskLevels:
    """Random calls on random queues; without limitations if not `limited`."""
    model = TaskLevels()
    for _ in range(draw(st.integers(1, 4))):
        profiling = limited and draw(st.integers(0, 5)) == 0
        model.queue(in_order=draw(st.booleans()), profiling=profiling)
    if not limited:
        model.queue(in_order=False)
    events: list[ModelCommand | ModelUserEvent] = []
    gates = [model.user_event() for _ in range(draw(st.integers(0, 2)) if limited else 0)]
    for _ in range(draw(st.integers(0, 14))):
        waits = draw(st.lists(st.sampled_from([*events, *gates]), max_size=3)) if events else []
        returns = draw(st.sampled_from(["", "e"]))
        queue = draw(st.sampled_from(model.queues))
        made = queue.enqueue(waits_for=waits, returns=returns)
        if returns:
            events.append(made)
        if limited and draw(st.integers(0, 4)) == 0:
            queue.flush()
        if gates and not gates[-1].is_complete and draw(st.integers(0, 4)) == 0:
            gates.pop().complete()
    return model


def depends(after: ModelCommand, before: ModelCommand) -> bool:
    """Whether a command comes after another one, directly or not."""
    return any(one is before or depends(one, before) for one in after.predecessors)


@given(programs())
def test_the_levels_of_any_program(model: TaskLevels) -> None:
    """The receiver's level never falls. It rises by one exactly when a command comes directly after
    one of the same level."""
    receiver = 0
    for command in model.passed:
        expected = receiver + any(one.level == receiver for one in command.predecessors)
        assert command.level == expected
        receiver = expected
    assert model.level == receiver
    for queue in model.queues:
        levels = [one.level for one in model.passed if one.queue is queue]
        assert queue.level == (levels[-1] if levels else 0)


@pytest.mark.slow
@given(programs())
def test_the_batches_of_any_program(model: TaskLevels) -> None:
    """Each command is in one batch, and comes after none of that batch."""
    together = [command for batch in model.batches for command in batch.commands]
    assert together == model.passed
    for batch in model.batches:
        assert {command.level for command in batch.commands} == {batch.level}
        assert len({command.buffer for command in batch.commands}) == 1
        assert len(batch.commands) == 1 or not any(one.why_alone for one in batch.commands)
        for one in batch.commands:
            assert not any(depends(one, other) for other in batch.commands)


@given(programs())
def test_what_a_user_event_blocks(model: TaskLevels) -> None:
    """A command is blocked exactly if an incomplete user event is somewhere before it."""

    def waits(command: ModelCommand) -> bool:
        gates = [one for one in command.waits_for if hasattr(one, "is_complete")]
        return any(not gate.is_complete for gate in gates) or any(map(waits, command.predecessors))  # pyright: ignore[reportAttributeAccessIssue]

    assert all(map(waits, model.blocked)) and not any(map(waits, model.passed))


@given(programs(limited=False))
def test_no_division_of_the_same_calls_has_fewer_batches(model: TaskLevels) -> None:
    """The receiver only appends. Among all ways to cut its commands into runs without an order, the
    levels need the fewest."""
    fewest = [0]
    for end in range(1, len(model.passed) + 1):
        options: list[int] = []
        for start in range(end - 1, -1, -1):
            run = model.passed[start:end]
            if any(depends(run[0], one) or depends(one, run[0]) for one in run[1:]):
                break
            options.append(fewest[start] + 1)
        fewest.append(min(options))
    assert len(model.batches) == fewest[-1]


@st.composite
def orders(draw: st.DrawFn) -> Order:
    before = [
        draw(st.lists(st.integers(0, node - 1), max_size=3, unique=True)) if node else []
        for node in range(draw(st.integers(0, 16)))
    ]
    return Order(before, [False] * len(before))


@given(orders())
def test_the_schedule_levels_is_the_model_in_the_best_order(order: Order) -> None:
    """A graph has as many batches as its longest path has commands, if it is enqueued level by
    level. No other order needs fewer."""

    def enqueued(nodes: Sequence[int]) -> list[list[int]]:
        model, made = TaskLevels(), dict[int, ModelCommand]()
        queue = model.queue(in_order=False)
        for node in nodes:
            waits = [made[other] for other in order.dependencies[node]]
            made[node] = queue.enqueue(str(node), waits_for=waits, returns="e")
        return [[int(command.name) for command in batch.commands] for batch in model.batches]

    steps = [step.command for step in schedule_by_level(order, fenced=True).steps]
    cuts = [place for place, command in enumerate(steps) if command == BARRIER]
    between = [steps[a + 1 : b] for a, b in pairwise(cuts)]
    assert enqueued([command for command in steps if command != BARRIER]) == between
    assert len(enqueued(range(len(order)))) >= len(between)
