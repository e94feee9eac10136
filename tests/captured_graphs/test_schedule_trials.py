"""Schedules that take turns in replays of a branching graph on an out-of-order queue."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyopencl as cl
import pytest
from helpers.captures import Numbers
from helpers.timings import Rival, Told, tell

from fairlead.captured_graphs.context import capture
from fairlead.icd.command_buffer import choice
from fairlead.icd.command_buffer.choice import Choice
from fairlead.icd.command_buffer.commands import CommandArray, CommandList
from fairlead.icd.command_buffer.engine import Engine, QueueKind
from fairlead.icd.command_buffer.engines import replay as replay_engine
from fairlead.icd.command_buffer.engines.direct import Direct
from fairlead.icd.command_buffer.engines.replay import Replay
from fairlead.icd.command_buffer.planning import make_plans
from fairlead.icd.command_buffer.trial import TURNS_OF_SCHEDULES
from fairlead.icd.errors import OpenCLError


@pytest.fixture
def told(monkeypatch: pytest.MonkeyPatch) -> type[Told]:
    return tell(monkeypatch)


@pytest.fixture(autouse=True)
def only_replays(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """No other engine takes the commands, and nothing is fused, which would take turns, too.

    Returns the file of what trials found.
    """
    monkeypatch.setenv("FAIRLEAD_FUSE", "0")
    monkeypatch.setattr(choice, "ENGINES", {"replay": Replay()})
    monkeypatch.setenv("FAIRLEAD_COMMAND_BUFFER", "auto")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    return tmp_path / "fairlead" / "engines.json"


def list_candidates(queue: cl.CommandQueue) -> list[str]:
    """The schedules of the candidates, and at the end what is taken otherwise."""
    if "Portable" in queue.device.platform.name:  # barriers wait for everything before them
        return ["in-order", "queues", "events"]
    return ["in-order", "levels", "events", "queues"]


def waits_run_commands(queue: cl.CommandQueue) -> bool:
    return "Intel" in queue.device.platform.name


class Branches:
    """A captured graph: two numbers that grow beside each other, and a launch after both."""

    def __init__(self, numbers: Numbers, queue: cl.CommandQueue) -> None:
        self._numbers, self.other = numbers, numbers.new()
        with capture(queue) as self.graph:
            first = numbers.add(1, queue=queue)
            second = numbers.add(2, self.other, queue=queue)
            third = numbers.mul(3, queue=queue, wait_for=[first])
            numbers.mul(2, self.other, queue=queue, wait_for=[second, third])

    def values(self) -> tuple[int, int]:
        return self._numbers.value(), self._numbers.value(self.other)


def taken(loop: Any, queue: cl.CommandQueue) -> str:
    """What `explain` says of the replay."""
    return loop.explain(queue).splitlines()[1]


def test_replays_are_right_while_schedules_take_turns(
    numbers: Numbers, out_of_order: cl.CommandQueue
) -> None:
    branches = Branches(numbers, out_of_order)
    graph = branches.graph
    loop = graph.finalize(updatable=True)
    one, other = np.int32(0), np.int32(0)
    for number in range(40):
        graph[0].set_arg(1, np.int32(number))
        loop.update(graph[0])
        times = number % 3 + 1
        loop.replay(out_of_order, times=times).wait()
        with np.errstate(over="ignore"):
            for _ in range(times):
                one, other = (one + np.int32(number)) * np.int32(3), (other + np.int32(2)) * 2
        assert branches.values() == (int(one), int(np.int32(other)))


@pytest.mark.parametrize("best", [0, 1, -1])
def test_the_fastest_schedule_stays(
    numbers: Numbers, out_of_order: cl.CommandQueue, told: type[Told], only_replays: Path, best: int
) -> None:
    names = list_candidates(out_of_order)
    told.seconds_of = [0.7] * len(names)
    told.seconds_of[best] = 0.68  # no schedule can do more than another: a small difference counts
    rounds = 2  # all are close to the fastest one, and take turns again
    branches = Branches(numbers, out_of_order)
    loop = branches.graph.finalize()
    turns = rounds * TURNS_OF_SCHEDULES * len(names)
    for _ in range(8):  # few replays are not worth it
        loop.replay(out_of_order).wait()
    assert told.count == 0
    loop.replay(out_of_order, times=turns).wait()
    assert told.count == turns
    said = taken(loop, out_of_order)
    how = {"in-order": "queues (1 of its own)"}.get(names[best], names[best])
    assert said.split(maxsplit=1)[1].startswith(how), said
    figures = ", ".join(
        f"replay ({name}) {seconds * 1e6:.1f} µs"
        for name, seconds in zip(names[:-1], told.seconds_of, strict=False)
    )
    assert f"the first replays took: {figures}, replay " in said
    loop.replay(out_of_order, times=3).wait()
    assert told.count == turns
    assert not only_replays.exists()  # how long kernels take is known of this graph only


@pytest.mark.parametrize("best", [0, 1])
def test_a_branch_on_the_program_s_in_order_queue(
    numbers: Numbers,
    queue: cl.CommandQueue,
    out_of_order: cl.CommandQueue,
    told: type[Told],
    best: int,
) -> None:
    """Where a wait runs commands, one branch is in the program's queue if that is faster.

    What was in the queue before comes before it, and what comes later comes after it.
    """
    if not waits_run_commands(queue):
        pytest.skip("only on a driver whose waits run commands")
    told.seconds_of = [0.7, 0.7]
    told.seconds_of[best] = 0.6
    branches = Branches(numbers, out_of_order)
    loop = branches.graph.finalize()
    gate, one, other = cl.UserEvent(queue.context), 0, 0
    for number in range(9 + 2 * TURNS_OF_SCHEDULES):
        numbers.add(1, queue=queue, wait_for=None if number else [gate])
        loop.replay(queue)
        numbers.add(1, branches.other, queue=queue)
        one, other = (one + 2) * 3, (other + 2) * 2 + 1
    queue.flush()
    gate.set_status(cl.command_execution_status.COMPLETE)
    assert told.count == 2 * TURNS_OF_SCHEDULES
    assert branches.values() == (wrapped(one), wrapped(other))
    kinds = ["queues (1 of its own)", "in-order, 0 events"]
    assert taken(loop, queue).split(maxsplit=1)[1].startswith(kinds[best])


def wrapped(number: int) -> int:
    return int(np.int64(number % 2**32).astype(np.int32))


def test_waiting_for_what_is_before_a_replay(
    numbers: Numbers, out_of_order: cl.CommandQueue
) -> None:
    """It does not wait for the replay, which needs something of the same thread later."""
    branches = Branches(numbers, out_of_order)
    loop = branches.graph.finalize(schedule="queues")
    gate = cl.UserEvent(out_of_order.context)
    before = numbers.add(1, queue=out_of_order)
    end = loop.replay(out_of_order, wait_for=[before, gate])
    before.wait()
    gate.set_status(cl.command_execution_status.COMPLETE)
    end.wait()
    loop.replay(out_of_order)
    out_of_order.finish()
    assert branches.values() == (((1 + 1) * 3 + 1) * 3, (2 * 2 + 2) * 2)


def test_schedules_take_turns_after_engines(
    numbers: Numbers,
    out_of_order: cl.CommandQueue,
    told: type[Told],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(choice, "ENGINES", {"rival": Rival(), "replay": Replay()})
    told.seconds_of = [1.0, 1.0]
    loop = Branches(numbers, out_of_order).graph.finalize()
    loop.replay(out_of_order, times=17).wait()
    assert told.count == 16
    told.count, count = 0, 1 + len(list_candidates(out_of_order))
    told.seconds_of = [float(place) for place in range(1, 1 + count)]
    loop.replay(out_of_order, times=100).wait()
    assert told.count == TURNS_OF_SCHEDULES * count


def test_what_the_driver_refuses_is_left_out(
    numbers: Numbers,
    out_of_order: cl.CommandQueue,
    told: type[Told],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    lay_out = replay_engine.lay_out

    def refusing(commands: CommandList, target: QueueKind, variant: str = "") -> Any:
        if variant == "in-order":
            raise OpenCLError("no queue", routine="clCreateCommandQueue")
        return lay_out(commands, target, variant)

    monkeypatch.setattr(replay_engine, "lay_out", refusing)
    names = list_candidates(out_of_order)[1:]
    told.seconds_of = [float(place) for place in range(1, 1 + len(names))]
    branches = Branches(numbers, out_of_order)
    loop = branches.graph.finalize()
    for times in (8, 80):
        loop.replay(out_of_order, times=times).wait()
    assert told.count == TURNS_OF_SCHEDULES * len(names)
    assert "(in-order)" not in taken(loop, out_of_order)


def test_who_takes_no_turns(
    numbers: Numbers, queue: cl.CommandQueue, out_of_order: cl.CommandQueue, told: type[Told]
) -> None:
    """Paths, schedules that are asked for, and in-order queues that nobody's wait runs."""
    told.seconds_of = [1.0]
    branches = Branches(numbers, out_of_order).graph
    with capture(out_of_order) as path:
        numbers.mul(2, queue=out_of_order, wait_for=[numbers.add(1, queue=out_of_order)])
    in_order = [] if waits_run_commands(queue) else [(branches.finalize(), queue)]
    for loop, used in (
        *in_order,
        (path.finalize(), out_of_order),
        (branches.finalize(schedule="levels"), out_of_order),
    ):
        for _ in range(10):
            loop.replay(used).wait()
        assert "take turns" not in taken(loop, used)
    assert told.count == 0


def test_an_engine_that_is_asked_for_takes_no_turns(
    numbers: Numbers,
    out_of_order: cl.CommandQueue,
    told: type[Told],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("FAIRLEAD_COMMAND_BUFFER", "replay")
    loop = Branches(numbers, out_of_order).graph.finalize()
    for _ in range(10):
        loop.replay(out_of_order).wait()
    assert told.count == 0


# --- plans, without a driver ---


class Two(Replay):
    """Has another setting."""

    def list_variants(self, commands: CommandList, target: QueueKind) -> dict[str, Engine]:
        return {"other": Replay()}


class Alone(Replay):
    """Has one setting."""

    def list_variants(self, commands: CommandList, target: QueueKind) -> dict[str, Engine]:
        return {}


class Picky(Direct):
    """Takes everything."""

    def prepare(self, commands: CommandList, target: QueueKind) -> tuple[()]:
        return ()

    def why_not(self, commands: CommandList, target: QueueKind) -> str | None:
        return None

    def list_refusals(self, commands: CommandList, target: QueueKind) -> dict[int, str]:
        return {}


TARGET = QueueKind(0, 0, 0)


def plans(*engines: Engine, left: dict[str, dict[int, str]], **refused: str) -> list[str]:
    array = CommandArray()
    for _ in range(3):
        array.add("kernel", ())
    commands = CommandList(0, [0], array.array, array.order, array)
    choice = Choice(engines, is_auto=True)
    (known, *_), candidates = (
        make_plans(commands, TARGET, choice, refused, left, with_variants=asked)
        for asked in (False, True)
    )
    assert known.has_variants is (len(candidates) > 1) and known.name == candidates[-1].name
    return [plan.name for plan in candidates]


def test_settings_of_the_last_engine_come_before_it() -> None:
    assert plans(Two(), left={}) == ["replay (other)", "replay"]
    assert plans(Two(), left={}, other="the driver refused it") == ["replay"]


def test_an_engine_that_takes_everything_needs_no_variants() -> None:
    assert plans(Picky(), Two(), left={}) == ["direct"]


def test_what_an_engine_learned_to_leave_is_tried_once_more() -> None:
    """Whether the driver's threads are faster depends on what else the machine does."""
    left = {"direct": {1: "it took long"}}
    assert plans(Picky(), Two(), left=left) == [
        "direct (all of it)",
        "direct+replay (other)",
        "direct+replay",
    ]
    assert plans(Picky(), Alone(), left=left) == ["direct+replay"]
