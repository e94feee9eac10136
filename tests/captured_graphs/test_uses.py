"""Engines of which one costs less for single replays, and another one for all others."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, ClassVar

import numpy as np
import pyopencl as cl
import pyopencl.array as cl_array
import pytest
from helpers.captures import Numbers

from fairlead.captured_graphs.context import capture
from fairlead.captured_graphs.executable import Executable
from fairlead.icd.command_buffer import choice
from fairlead.icd.command_buffer.command_buffer import _WORTH_A_CHANGE
from fairlead.icd.command_buffer.cost import is_cheaper
from fairlead.icd.command_buffer.engine import Cost, QueueKind, Use
from fairlead.icd.command_buffer.engines import replay as replay_engine
from fairlead.icd.command_buffer.engines.cuda import Cuda
from fairlead.icd.command_buffer.engines.replay import Replay
from fairlead.icd.driver_profiles import DriverProfile


class Plain(Replay):
    """Costs 5 µs a command."""

    def cost(self, target: QueueKind) -> Cost:
        return Cost(0.0, 5e-6, "")


class Batch(Plain):
    """Costs more to enqueue, and less for each command."""

    name = "batch"
    fixed: ClassVar[Mapping[Use, float]] = {Use.ONCE: 7e-6, Use.WAITED: 1e-6, Use.SEVERAL: 0.0}

    def cost(self, target: QueueKind) -> Cost:
        return Cost(self.fixed[target.use or Use.ONCE], 0.1e-6, "")


@pytest.fixture(autouse=True)
def engines(monkeypatch: pytest.MonkeyPatch) -> None:
    """Both engines, and `auto`."""
    monkeypatch.setattr(choice, "ENGINES", {one.name: one for one in (Batch(), Plain())})
    monkeypatch.delenv("FAIRLEAD_COMMAND_BUFFER", raising=False)


def find_engine(loop: Executable) -> str:
    """The engine of the last replay."""
    segment: Any = loop._get_only_segment()
    (part,) = segment._buffer._route.plan.parts
    return part.name


def list_kinds(loop: Executable) -> list[Use | None]:
    """The uses that something is built for."""
    segment: Any = loop._get_only_segment()
    return [kind.use for kind in segment._buffer.plans._found]


@pytest.fixture
def loop(numbers: Numbers) -> Executable:
    """One launch, which adds 1."""
    with capture(numbers.queue) as graph:
        numbers.add(1)
    return graph.finalize()


def test_several_replays_at_once_take_the_engine_that_is_best_for_them(
    numbers: Numbers, loop: Executable
) -> None:
    loop.replay(numbers.queue)
    assert find_engine(loop) == "replay"
    loop.replay(numbers.queue, times=_WORTH_A_CHANGE)
    assert find_engine(loop) == "batch"
    for _ in range(_WORTH_A_CHANGE - 1):
        loop.replay(numbers.queue)
        assert find_engine(loop) == "batch"
    for _ in range(3):
        loop.replay(numbers.queue)
        assert find_engine(loop) == "replay"
    loop.replay(numbers.queue, times=2)  # too few
    assert find_engine(loop) == "replay"
    assert numbers.value() == 2 * _WORTH_A_CHANGE + 5
    assert set(list_kinds(loop)) == {Use.ONCE, Use.SEVERAL}


def test_replays_that_are_waited_for_have_their_own_engine(
    numbers: Numbers, loop: Executable
) -> None:
    loop.replay(numbers.queue, wait=True)
    assert find_engine(loop) == "batch"
    for _ in range(_WORTH_A_CHANGE):
        loop.replay(numbers.queue)
    assert find_engine(loop) == "replay"
    for number in range(_WORTH_A_CHANGE):
        assert find_engine(loop) == "replay", number
        loop.replay(numbers.queue, wait=True)
    assert find_engine(loop) == "batch"
    assert numbers.value() == 2 * _WORTH_A_CHANGE + 1


def test_nothing_changes_where_uses_alternate(numbers: Numbers, loop: Executable) -> None:
    """Most replays go the short way, which looks at nothing."""
    for number in range(9 * _WORTH_A_CHANGE):
        loop.replay(numbers.queue, wait=number % 8 == 7)
        assert find_engine(loop) == "replay"
    assert numbers.value() == 9 * _WORTH_A_CHANGE
    assert list_kinds(loop) == [Use.ONCE]


def test_all_uses_run_alike_where_one_engine_is_best_for_all(numbers: Numbers) -> None:
    with capture(numbers.queue) as graph:
        numbers.add(1)
        numbers.mul(1)
    loop = graph.finalize()
    for wait in (False, True, False):
        loop.replay(numbers.queue, wait=wait)
    loop.replay(numbers.queue, times=2 * _WORTH_A_CHANGE)
    assert find_engine(loop) == "batch" and list_kinds(loop) == [None]


def test_updates_reach_what_is_built_for_each_use(numbers: Numbers) -> None:
    with capture(numbers.queue) as graph:
        numbers.add(1)
    loop, expected = graph.finalize(updatable=True), 0
    for number in range(12):
        graph[0].set_arg(1, np.int32(number))
        loop.update(graph[0])
        times = _WORTH_A_CHANGE if number % 3 == 2 else 1
        for _ in range(_WORTH_A_CHANGE if number % 3 == 1 else 1):
            loop.replay(numbers.queue, times=times)
            expected += number * times
    assert numbers.value() == expected
    assert set(list_kinds(loop)) == {Use.ONCE, Use.SEVERAL}


@pytest.mark.parametrize("fuse", ["wait", "auto"])
def test_what_is_fused_has_an_engine_for_each_use(queue: cl.CommandQueue, fuse: str) -> None:
    """Two launches are for one engine in each use, and the fused one is not."""
    x = cl_array.to_device(queue, np.zeros(64, np.float32))
    with capture(queue) as graph:
        x += 1
        x += 2
    loop, ran = graph.finalize(fuse=fuse), 0
    segment: Any = loop._get_only_segment()
    for wait in (False, True):
        for _ in range(2):
            loop.replay(queue, wait=wait)
            ran += 1
    segment._buffer.plans.rewriting.wait()
    assert "fused" in loop.explain(queue)
    for times in (1, _WORTH_A_CHANGE, 1):
        for _ in range(2 * _WORTH_A_CHANGE):
            loop.replay(queue, times=times)
            ran += times
        loop.explain(queue)
    loop.replay(queue, wait=True)
    assert (x.get() == 3 * (ran + 1)).all()
    assert None not in list_kinds(loop) and Use.SEVERAL in list_kinds(loop)


@pytest.mark.parametrize("in_order", [True, False])
def test_one_kernel_is_for_cuda_unless_opencl_waits_for_each_replay(
    monkeypatch: pytest.MonkeyPatch, in_order: bool
) -> None:
    profile = DriverProfile(launch_seconds=5e-6, wait_seconds=12e-6)
    monkeypatch.setattr(replay_engine, "find_device_profile", lambda device: profile)
    out_of_order = cl.command_queue_properties.OUT_OF_ORDER_EXEC_MODE_ENABLE
    target = QueueKind(0, 0, 0 if in_order else out_of_order)
    alone = set(Use) if in_order else {Use.WAITED, Use.SEVERAL}
    for count, best in ((1, alone), (11, set(Use))):
        kinds = {use: replace(target, use=use) for use in Use}
        found = {
            use
            for use, kind in kinds.items()
            if (mine := Cuda().cost(kind))
            and (other := Replay().cost(kind))
            and is_cheaper(mine, other, count)
        }
        assert found == best
