"""Buffers that exchange their roles from one replay to the next."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pyopencl as cl
import pyopencl.array
import pytest
from helpers.captures import Numbers
from helpers.programs import build_once

import fairlead
from fairlead.captured_graphs.context import capture
from fairlead.captured_graphs.pyopencl_client import ArgumentError
from fairlead.captured_graphs.swaps import CaptureWarning
from fairlead.icd.command_buffer.command_buffer import CommandBuffer
from fairlead.icd.command_buffer.routes import Route
from fairlead.icd.errors import OpenCLError

SOURCE = (
    "kernel void step(global const int *u, global int *v) { v[get_global_id(0)] = "
    "2 * u[get_global_id(0)] + 1; }"
)


class Steps:
    """Two buffers of 64 int32, and a step from one to the other."""

    def __init__(self, numbers: Numbers) -> None:
        self.queue, self.u, self.v = numbers.queue, numbers.new(0), numbers.new(-1)
        program = build_once(self.queue.context, SOURCE.replace("step", "advance"))
        self._kernel, self._numbers = program.advance, numbers

    def step(self, u: Any, v: Any, queue: Any = None) -> cl.Event:
        return self._kernel(queue or self.queue, (64,), None, u, v)

    def values(self) -> tuple[int, int]:
        return self._numbers.value(self.u), self._numbers.value(self.v)


@pytest.fixture
def steps(numbers: Numbers) -> Steps:
    return Steps(numbers)


def test_transfers_arrays_and_several_pairs(steps: Steps) -> None:
    queue = steps.queue
    a, b = (pyopencl.array.to_device(queue, np.full(64, n, np.int32)) for n in (1, 2))
    with capture(queue, swap=[(steps.u, steps.v), (a, b)]) as graph:
        steps.step(steps.u, steps.v)
        cl.enqueue_copy(queue, a.base_data, steps.v)  # pyright: ignore[reportCallIssue, reportArgumentType]
    loop = graph.finalize()
    loop.replay(queue)
    loop.replay(queue).wait()
    assert steps.values() == (3, 1) and (a.get()[0], b.get()[0]) == (1, 3)


def test_the_pair_is_known_in_the_block_alone(steps: Steps) -> None:
    with capture(steps.queue, swap=(steps.u, steps.v)):
        pass
    with capture(steps.queue) as graph:
        steps.step(steps.u, steps.v)
    loop = graph.finalize()
    loop.replay(steps.queue, times=3)
    assert steps.values() == (0, 1) and not loop.is_swapped and loop.parameters == ()


def test_an_exchange_in_the_block_is_told(steps: Steps) -> None:
    u, v, w = steps.u, steps.v, steps.u
    message = r"not continue from its own.*swap=.u, v."
    with pytest.warns(CaptureWarning, match=message) as caught, capture(steps.queue):
        steps.step(u, v)
        u, v = v, u
    assert caught[0].filename == __file__ and w is v
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with capture(steps.queue) as graph:  # an even number of steps
            for _ in range(2):
                steps.step(u, v)
                u, v = v, u
        with capture(steps.queue, swap=(u, v)):  # it is known
            steps.step(u, v)
            u, v = v, u
        with capture(steps.queue):  # another buffer is no exchange
            w = cl.Buffer(steps.queue.context, cl.mem_flags.READ_WRITE, 256)
    assert len(graph) == 2 and w is not None


class Simulation:
    """A step that exchanges what the program holds, in one of several ways."""

    __slots__ = ("by_name", "here", "pair", "slot", "steps")

    def __init__(self, steps: Steps) -> None:
        self.steps, self.slot, self.here = steps, steps.u, steps.v
        self.pair = [steps.u, steps.v]
        self.by_name = {"u": steps.u, "v": steps.v}

    def exchange_attributes(self) -> None:
        self.steps.step(self.slot, self.here)
        self.slot, self.here = self.here, self.slot

    def exchange_attributes_of_attributes(self) -> None:
        self.steps.step(self.steps.u, self.steps.v)
        self.steps.u, self.steps.v = self.steps.v, self.steps.u

    def reverse_a_list(self) -> None:
        self.steps.step(*self.pair)
        self.pair.reverse()

    def exchange_in_a_dict(self) -> None:
        u, v = self.by_name.values()
        self.steps.step(u, v)
        self.by_name.update(u=v, v=u)


def make_closure(steps: Steps) -> Callable[[], None]:
    """A function that exchanges variables of this one."""
    u, v = steps.u, steps.v

    def step() -> None:
        nonlocal u, v
        steps.step(u, v)
        u, v = v, u

    return step


def step_of_globals() -> None:
    """Exchanges globals of this module."""
    global_steps.step(global_pair[0], global_pair[1])
    globals()["global_pair"] = global_pair[::-1]


global_steps: Any = None
global_pair: Any = None


@pytest.mark.parametrize(
    ("style", "names"),
    [
        ("exchange_attributes", r"(\w+\.here, \w+\.slot|\w+\.slot, \w+\.here)"),
        ("exchange_attributes_of_attributes", r"steps\.u, steps\.v"),
        ("reverse_a_list", r"\w+\.pair\[0\], \w+\.pair\[1\]"),
        ("exchange_in_a_dict", r"\w+\.by_name\['u'\], \w+\.by_name\['v'\]"),
        ("closure", "u, v"),
        ("globals", r"global_pair\[0\], global_pair\[1\]"),
    ],
)
def test_an_exchange_is_told_in_every_style_of_program(
    steps: Steps, monkeypatch: pytest.MonkeyPatch, style: str, names: str
) -> None:
    if style == "globals":
        monkeypatch.setattr(sys.modules[__name__], "global_steps", steps)
        monkeypatch.setattr(sys.modules[__name__], "global_pair", [steps.u, steps.v])
        step = step_of_globals
    else:
        step = make_closure(steps) if style == "closure" else getattr(Simulation(steps), style)
    message = f"result: {names} have exchanged"
    with pytest.warns(CaptureWarning, match=message) as caught, capture(steps.queue):
        step()
    assert caught[0].filename == __file__
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with capture(steps.queue):  # an even number of steps
            step()
            step()


def test_what_cannot_be_swapped(steps: Steps, numbers: Numbers) -> None:
    small = cl.Buffer(steps.queue.context, cl.mem_flags.READ_WRITE, 128)
    for wrong in ((steps.u, small), (steps.u, steps.u), (steps.u,), [(1, 2)], (steps.u, None)):
        message = r"swap is not|expected a pyopencl.Buffer"
        with pytest.raises(ArgumentError, match=message), capture(steps.queue, swap=wrong):
            pass


def test_ctrl_c_loses_no_replay(steps: Steps, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ctrl-C comes between two parts of many replays: those of the first part count."""
    with capture(steps.queue, swap=(steps.u, steps.v)) as graph:
        steps.step(steps.u, steps.v)
    loop, enqueue = graph.finalize(), Route.enqueue

    def interrupted(*arguments: Any, **options: Any) -> Any:
        enqueue(*arguments, **options)
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(Route, "enqueue", interrupted)
        with pytest.raises(KeyboardInterrupt):
            loop.replay(steps.queue, times=1000)
    assert steps.values() == (0, 1) and loop.is_swapped
    loop.replay(steps.queue)
    assert steps.values() == (3, 1) and not loop.is_swapped


def test_ctrl_c_loses_no_run_until_a_flag(steps: Steps, monkeypatch: pytest.MonkeyPatch) -> None:
    never = steps.u  # its first word is not read: the interrupt comes first
    with capture(steps.queue, swap=(steps.u, steps.v)) as graph:
        steps.step(steps.u, steps.v)
    loop, run, ran = graph.finalize(), CommandBuffer.run_until, list[int]()

    def interrupted(*arguments: Any, **options: Any) -> Any:
        ran.append(run(*arguments, **options)[0])
        raise KeyboardInterrupt

    monkeypatch.setattr(CommandBuffer, "run_until", interrupted)
    with pytest.raises(KeyboardInterrupt):
        loop.replay(steps.queue, times=1, until=never)
    assert loop.is_swapped == bool(ran[0] % 2)


def test_a_buffer_alternates_in_one_block_at_a_time(steps: Steps, numbers: Numbers) -> None:
    pair, other = (steps.u, steps.v), cl.CommandQueue(steps.queue.context)
    new = numbers.new(), numbers.new()
    with capture(steps.queue, swap=pair) as graph:
        with pytest.raises(ArgumentError, match="alternates in another block"):
            capture(other, swap=pair).__enter__()
        with pytest.raises(OpenCLError, match="could not be captured") as captured:
            capture(steps.queue, swap=new).__enter__()
        steps.step(*pair)
    with pytest.raises(ArgumentError, match="a buffer of swap is a Parameter"):
        capture(other, swap=(fairlead.Parameter(steps.u), steps.v)).__enter__()
    with pytest.raises(ArgumentError, match="one pair of one block") as refused:
        capture(other, swap=[pair, (steps.u, numbers.buffer)]).__enter__()
    with capture(other, swap=[pair, new]):  # though the errors live, and with them their frames
        pass
    graph.finalize().replay(steps.queue, times=2)
    assert captured and refused and steps.values() == (3, 1)


def test_replays_count_before_their_parts_have_begun(steps: Steps) -> None:
    with capture(steps.queue, swap=(steps.u, steps.v)) as graph:
        steps.step(steps.u, steps.v)
    graph.add(lambda handler: handler.host_task(lambda: None), depends_on=graph[0])
    loop, gate = graph.finalize(), cl.UserEvent(steps.queue.context)
    try:
        ends = [loop.replay(steps.queue, times, [gate]) for times in (2, 1)]
        assert loop.is_swapped
    finally:
        gate.set_status(cl.command_execution_status.COMPLETE)
    for end in ends:
        end.wait()
    assert steps.values() == (3, 7) and loop.is_swapped
