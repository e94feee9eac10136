"""One graph on several queues in turn, in each phase of a trial, by each engine.

A replay comes after the replay before it, wherever that was. It is in the order of the queue that
it was given: what comes later there comes after it, and `finish` of that queue waits for it.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pyopencl as cl
import pytest
from helpers.captures import OUT_OF_ORDER, Numbers, new_queue
from helpers.cuda_program import Program
from helpers.timings import Rival

from fairlead.captured_graphs.context import capture
from fairlead.icd.command_buffer import choice, trial
from fairlead.icd.command_buffer.engine import Engine
from fairlead.icd.command_buffer.engines.cuda import Cuda
from fairlead.icd.command_buffer.engines.replay import Replay

COMPLETE = cl.command_execution_status.COMPLETE
#: What runs the graph: an engine, or "auto" with these candidates.
ENGINES = ["auto", "replay", "native", "direct", "direct,native", "rivals", "schedules"]


class Late:
    """A timing that is known when it was asked for some times, or never."""

    random: ClassVar[random.Random]

    def __init__(self, queue: int, after: Sequence[int] | None) -> None:
        self._asked, self._known = 0, self.random.choice([1, 1, 1, 3, 10])
        self._seconds = self.random.choice([1.0, 2.0, float("inf")])

    def end(self, event: int) -> None:
        pass

    @property
    def seconds(self) -> float | None:
        self._asked += 1
        return self._seconds if self._asked >= self._known else None


class TwoNumbers:
    """A graph that changes two numbers beside each other, and what they have to be."""

    def __init__(self, numbers: Numbers | OnCuda, out_of_order: bool) -> None:
        self._numbers, self._buffers = numbers, [numbers.buffer, numbers.new()]
        x, y = self._buffers
        queue = numbers.queue
        if out_of_order:
            queue = new_queue(queue.context, OUT_OF_ORDER)
        with capture(queue) as self.graph:
            one = numbers.add(1, x, queue=queue)
            other = numbers.add(2, y, queue=queue)
            one = numbers.mul(3, x, queue=queue, wait_for=[one])
            numbers.mul(2, y, queue=queue, wait_for=[one, other])
        self.place = 2 if isinstance(numbers, OnCuda) else 1  # of the summand's argument
        self.expected = [0, 0]

    def plan(self, summand: int, times: int) -> None:
        """Expect so many replays that add this number first."""
        for _ in range(times):
            x, y = self.expected
            self.expected = [(x + summand) * 3 % 2**32, (y + 2) * 2 % 2**32]

    def double(self, queue: cl.CommandQueue, wait_for: list[cl.Event] | None) -> cl.Event:
        """Multiply the first number by 5, by a launch outside of the graph."""
        self.expected[0] = self.expected[0] * 5 % 2**32
        return self._numbers.mul(5, self._buffers[0], queue=queue, wait_for=wait_for)

    def read(self, queue: cl.CommandQueue) -> list[int]:
        """What the numbers are, read on a queue that has nothing else to do."""
        found = [np.empty(64, np.uint32) for _ in self._buffers]
        for values, buffer in zip(found, self._buffers, strict=True):
            cl.enqueue_copy(queue, values, buffer)
            assert (values == values[0]).all()
        return [int(values[0]) for values in found]


def replay_on_queues_in_turn(world: TwoNumbers, context: cl.Context, seed: int) -> None:
    """Replay a graph on random queues, with launches of the program's own between the replays."""
    chosen = random.Random(seed)

    def choose_queue() -> cl.CommandQueue:
        return new_queue(context, 0 if chosen.randrange(3) else OUT_OF_ORDER)

    queues, reader = [cl.CommandQueue(context), *(choose_queue() for _ in range(3))], choose_queue()
    loop = world.graph.finalize(updatable=True)
    summand, before = 1, list[cl.Event]()
    gates = list[cl.UserEvent]()
    for _ in range(100):
        queue = chosen.choice(queues[: chosen.choice([1, 2, 4])])
        if not chosen.randrange(8):
            summand += 1
            world.graph[0].set_arg(world.place, np.int32(summand))
            loop.update(world.graph[0])
        if not chosen.randrange(4):
            gates.append(cl.UserEvent(context))
            before.append(gates[-1])
        times = chosen.choice([1, 1, 1, 2, 5])
        world.plan(summand, times)
        end = loop.replay(queue, times=times, wait_for=before or None)
        before = list[cl.Event]()
        if chosen.randrange(2):
            in_order = not queue.properties & OUT_OF_ORDER
            before = [world.double(queue, None if in_order else [end])]
        if chosen.randrange(3):
            continue
        for gate in gates:
            gate.set_status(COMPLETE)
        gates = []
        queue.finish()
        assert world.read(reader) == world.expected
        if not chosen.randrange(4):  # another queue, perhaps with the handle of this one
            place = queues.index(queue)
            del queue
            queues[place] = choose_queue()
    for gate in gates:
        gate.set_status(COMPLETE)
    for queue in queues:
        queue.finish()
    assert world.read(reader) == world.expected


@pytest.fixture
def late(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> type[Late]:
    """Trials find anything, at any time, and nothing is known from before."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(trial, "Timing", Late)
    return Late


def set_engines(monkeypatch: pytest.MonkeyPatch, engines: str) -> None:
    given: dict[str, list[Engine]] = {
        "schedules": [Replay()],
        "rivals": [Rival(), Replay()],
        "cuda in a trial": [Cuda(), Replay()],
    }
    monkeypatch.setenv("FAIRLEAD_COMMAND_BUFFER", "auto" if engines in given else engines)
    if engines in given:
        found = {engine.name: engine for engine in given[engines]}
        monkeypatch.setattr(choice, "ENGINES", found)


@pytest.mark.parametrize("engines", ENGINES)
@pytest.mark.parametrize("captured", ["in order", "out of order"])
@pytest.mark.parametrize("seed", range(3))
def test_a_replay_is_in_the_order_of_its_queue(
    numbers: Numbers,
    late: type[Late],
    monkeypatch: pytest.MonkeyPatch,
    engines: str,
    captured: str,
    seed: int,
) -> None:
    monkeypatch.setattr(late, "random", random.Random(seed), raising=False)
    set_engines(monkeypatch, engines)
    world = TwoNumbers(numbers, captured == "out of order")
    replay_on_queues_in_turn(world, numbers.queue.context, seed)


class OnCuda:
    """The numbers of TwoNumbers in memory that PoCL and the fake CUDA driver share."""

    def __init__(self, program: Program) -> None:
        self._program, self.queue = program, program.queue
        self.buffer = self.new()

    def new(self) -> cl.Buffer:
        return self._program.buffer(0)

    def add(self, number: int, buffer: cl.Buffer, **how: Any) -> cl.Event:
        return self._program.scale(buffer, 1, number, **how)

    def mul(self, number: int, buffer: cl.Buffer, **how: Any) -> cl.Event:
        return self._program.scale(buffer, number, 0, **how)


@pytest.mark.parametrize("engines", ["cuda", "cuda in a trial"])
@pytest.mark.parametrize("captured", ["in order", "out of order"])
@pytest.mark.parametrize("seed", range(3))
def test_a_replay_by_cuda_is_in_the_order_of_its_queue(
    program: Program,
    late: type[Late],
    monkeypatch: pytest.MonkeyPatch,
    engines: str,
    captured: str,
    seed: int,
) -> None:
    monkeypatch.setattr(late, "random", random.Random(seed), raising=False)
    set_engines(monkeypatch, engines)
    before = program.fake.calls("cuGraphLaunch")
    world = TwoNumbers(OnCuda(program), captured == "out of order")
    replay_on_queues_in_turn(world, program.context, seed)
    assert program.fake.calls("cuGraphLaunch") > before
