"""Graphs whose choices are measured again, after so few replays that a test sees it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np
import pyopencl as cl
import pytest
from helpers.captures import Numbers
from helpers.timings import Rival, Told, tell

import fairlead
from fairlead.captured_graphs.context import capture
from fairlead.conformance.threads import in_threads
from fairlead.icd.command_buffer import choice, direct_device, reviews
from fairlead.icd.command_buffer.engine import Engine, QueueKind
from fairlead.icd.command_buffer.engines.replay import Replay
from fairlead.icd.command_buffer.execution_plans import ExecutionPlans
from fairlead.icd.command_buffer.trial import TURNS

FEW = 8


@pytest.fixture(autouse=True)
def often(monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> None:
    """Reviews come after few replays, whatever they take."""
    monkeypatch.setattr(reviews, "FIRST", FEW)
    monkeypatch.setattr(reviews, "_SHARE", 0)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.delenv("FAIRLEAD_COMMAND_BUFFER", raising=False)


@pytest.fixture
def told(monkeypatch: pytest.MonkeyPatch) -> type[Told]:
    """Two engines that run everything, and take as long as the test says."""
    given: list[Engine] = [Rival(), Replay()]
    monkeypatch.setattr(choice, "ENGINES", {engine.name: engine for engine in given})
    return tell(monkeypatch)


@pytest.fixture
def reviewed(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """After how many replays a choice was measured again."""
    found, review = list[int](), ExecutionPlans._review

    def note(plans: ExecutionPlans, kind: QueueKind) -> None:
        found.append(plans.native.enqueued)
        review(plans, kind)

    monkeypatch.setattr(ExecutionPlans, "_review", note)
    return found


def chosen(loop: Any, queue: cl.CommandQueue) -> str:
    """The engine that runs all commands."""
    (line,) = (one for one in loop.explain(queue).splitlines()[1:] if "not chosen" not in one)
    return line.split()[0]


@pytest.mark.parametrize("wait", [False, True])
def test_another_engine_is_chosen_when_it_has_become_the_fastest(
    numbers: Numbers, told: type[Told], reviewed: list[int], wait: bool
) -> None:
    with capture(numbers.queue) as graph:
        numbers.add(1)
    loop, turns = graph.finalize(fuse=False), 2 * TURNS
    told.seconds_of = [0.5, 1.0]
    for number in range(turns + FEW - 1):
        loop.replay(numbers.queue, wait=wait)
        assert numbers.value() == number + 1
    assert chosen(loop, numbers.queue) == "rival" and not reviewed
    told.seconds_of = [1.0, 0.5]
    for _ in range(turns + 2):
        loop.replay(numbers.queue, wait=wait)
    assert chosen(loop, numbers.queue) == "replay"
    assert reviewed == [turns + FEW] and told.count == 2 * turns
    for _ in range(FEW + turns + 1):  # the next review, since this one has changed the choice
        loop.replay(numbers.queue, wait=wait)
    assert len(reviewed) == 2 and told.count == 3 * turns
    for _ in range(2 * FEW - 2):  # the one after that: it has confirmed it
        loop.replay(numbers.queue, wait=wait)
    assert len(reviewed) == 2
    loop.replay(numbers.queue, wait=wait)
    assert len(reviewed) == 3 and chosen(loop, numbers.queue) == "replay"
    assert numbers.value() == 3 * turns + 4 * FEW + 1


def test_the_short_way_is_taken_between_reviews(
    numbers: Numbers, told: type[Told], reviewed: list[int]
) -> None:
    with capture(numbers.queue) as graph:
        numbers.add(1)
    loop = graph.finalize(fuse=False)
    for _ in range(2 * TURNS + 2):
        loop.replay(numbers.queue)
    again = loop._repeat
    assert again is not None
    for _ in range(FEW - 2):
        loop.replay(numbers.queue)
    assert loop._repeat is again and not reviewed
    loop.replay(numbers.queue)
    assert loop._repeat is None and reviewed
    for _ in range(2 * TURNS):
        loop.replay(numbers.queue)
    assert loop._repeat is not None
    assert numbers.value() == 4 * TURNS + FEW + 1


# --- replays stay right, whatever engines there are ---


@pytest.mark.parametrize("kind", ["queue", "out_of_order"])
@pytest.mark.parametrize("fuse", ["wait", False])
def test_results_and_updates_are_right_through_reviews(
    request: pytest.FixtureRequest, numbers: Numbers, kind: str, fuse: Any
) -> None:
    queue = request.getfixturevalue(kind)
    with capture(queue) as graph:
        event = numbers.add(1, queue=queue)
        event = numbers.mul(3, queue=queue, wait_for=[event])
        numbers.add(2, queue=queue, wait_for=[event])
    loop = graph.finalize(updatable=not fuse, fuse=fuse)
    expected, number = np.zeros(1, np.int32), 1
    for turn in range(160):
        if not fuse:
            number = turn
            graph[0].set_arg(1, np.int32(number))
            loop.update(graph[0])
        times = turn % 3 + 1
        loop.replay(queue, times=times, wait=turn % 2 == 0).wait()
        for _ in range(times):
            expected = (expected + np.int32(number)) * np.int32(3) + np.int32(2)
        assert numbers.value() == expected[0]


def test_parameters_keep_their_values_through_reviews(numbers: Numbers) -> None:
    by = fairlead.Parameter(np.int32(0), name="by")
    with capture(numbers.queue) as graph:
        numbers.add(by)
        numbers.add(1)
    loop, expected = graph.finalize(), 0
    for number in range(100):
        loop.replay(numbers.queue, by=np.int32(number), wait=number % 2 == 0)
        loop.replay(numbers.queue, 2, by=np.array([1, number], np.int32))
        expected += 2 * number + 4
    assert numbers.value() == expected


def test_threads_replay_through_reviews(numbers: Numbers, told: type[Told]) -> None:
    with capture(numbers.queue) as graph:
        numbers.add(1)
    loop = graph.finalize()

    def run(_: int) -> None:
        for _ in range(150):
            loop.replay(numbers.queue)

    in_threads(3, run)
    assert numbers.value() == 450


def test_what_was_left_to_others_is_taken_again(
    numbers: Numbers, reviewed: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """As on a GPU whose program no longer changes between OpenCL and CUDA."""

    class Learning(Rival):
        name = "learning"
        slow: ClassVar[Mapping[int, str]] = {0: "it is slow"}

        def cost(self, target: QueueKind) -> Any:
            return choice_cost(0.0)

        def build(self, commands: Any, target: QueueKind) -> Any:
            built = super().build(commands, target)
            built.learns = True
            monkeypatch.setattr(built, "find_slower_commands", lambda: self.slow, raising=False)
            return built

    class Dear(Replay):
        def cost(self, target: QueueKind) -> Any:
            return choice_cost(1.0)

    def choice_cost(each: float) -> Any:
        from fairlead.icd.command_buffer.engine import Cost

        return Cost(0.0, each, "known")

    monkeypatch.setattr(choice, "ENGINES", {"learning": Learning(), "replay": Dear()})
    with capture(numbers.queue) as graph:
        numbers.add(1)
    loop = graph.finalize(fuse=False)
    for _ in range(FEW):
        loop.replay(numbers.queue)
    assert chosen(loop, numbers.queue) == "replay" and not reviewed
    Learning.slow = {}
    for _ in range(FEW):
        loop.replay(numbers.queue)
    assert reviewed and chosen(loop, numbers.queue) == "learning"
    assert numbers.value() == 2 * FEW


def test_a_review_counts_the_cores_again(
    numbers: Numbers, reviewed: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The program may have got others."""
    monkeypatch.setattr(reviews, "FIRST", 1 << 20)
    monkeypatch.setattr(reviews, "MOST", FEW)
    cores = 2
    for module in (reviews, direct_device):
        monkeypatch.setattr(module, "count_cores", lambda: cores)
    monkeypatch.setattr(direct_device, "query_compute_units", lambda device: 2)
    with capture(numbers.queue) as graph:
        numbers.add(1)
    loop = graph.finalize()
    for _ in range(4 * FEW):
        loop.replay(numbers.queue, wait=True)
    if "one native kernel" not in loop.explain(numbers.queue):
        pytest.skip("the engine direct does not run here")
    known = direct_device.get_device(numbers.queue.context.int_ptr, numbers.queue.device.int_ptr)
    assert not reviewed and known.native.thread_limits.threads == 2
    cores = 1
    for _ in range(2 * FEW):
        loop.replay(numbers.queue, wait=True)
    assert len(reviewed) == 1 and known.native.thread_limits.threads == 1
    assert numbers.value() == 6 * FEW


def test_runs_in_this_thread_count(numbers: Numbers, reviewed: list[int]) -> None:
    with capture(numbers.queue) as graph:
        numbers.add(1)
    loop = graph.finalize()
    for _ in range(50):
        loop.replay(numbers.queue, wait=True)
    segment: Any = loop._get_only_segment()
    assert segment._buffer.enqueued == numbers.value() == 50


def test_kinds_of_queues_are_reviewed_apart(
    numbers: Numbers, out_of_order: cl.CommandQueue, told: type[Told], reviewed: list[int]
) -> None:
    """The plan of another kind stays as it is."""
    with capture(numbers.queue) as graph:
        numbers.add(1)
    loop, turns = graph.finalize(), 2 * TURNS
    for queue in (out_of_order, numbers.queue):
        for _ in range(turns + 1):
            loop.replay(queue)
    assert not reviewed  # the second kind was still measured when that was due
    segment: Any = loop._get_only_segment()
    found = segment._buffer.plans._found
    before = {kind.in_order: plans for kind, plans in found.items()}
    while not reviewed:
        loop.replay(numbers.queue)
    after = {kind.in_order: plans for kind, plans in found.items()}
    assert before[False] is after[False] and before[True] is not after[True]
    assert not before[False][0].is_closed and before[True][0].is_closed


def test_without_a_choice_there_is_no_review(
    numbers: Numbers, reviewed: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(choice, "ENGINES", {"replay": Replay()})
    with capture(numbers.queue) as graph:
        numbers.add(1)
    loop = graph.finalize()
    for _ in range(4 * FEW):
        loop.replay(numbers.queue)
    assert not reviewed and numbers.value() == 4 * FEW
