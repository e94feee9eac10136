"""Parameters, series and swaps on the engine `direct`: a change is for the next replay alone."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
import pyopencl as cl
import pyopencl.array
import pytest
from helpers.captures import Numbers
from helpers.drivers import Driver
from helpers.programs import build_once

import fairlead
from fairlead.captured_graphs.context import capture
from fairlead.captured_graphs.executable import Executable
from fairlead.icd.drivers import platforms
from fairlead.runtime import SYCLError

pytestmark = pytest.mark.usefixtures("direct")

_COMPLETE = cl.command_execution_status.COMPLETE


@pytest.fixture
def device(direct_pocl: Driver) -> cl.Device:
    platform = next(one for one in platforms() if direct_pocl.has(one))
    return platform.devices[0].to_pyopencl()


@pytest.fixture
def direct(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FAIRLEAD_COMMAND_BUFFER", "direct")


def runs_directly(loop: Executable, queue: cl.CommandQueue) -> bool:
    """Whether the engine has all of a graph."""
    return "direct  one native kernel" in loop.explain(queue)


def test_numbers_and_buffers_of_replays_in_flight(numbers: Numbers) -> None:
    """Many replays wait for an event, each with its own values; the kernel's other uses keep
    theirs."""
    queue, gate = numbers.queue, cl.UserEvent(numbers.queue.context)
    by, target = fairlead.Parameter(np.int32(1)), fairlead.Parameter(numbers.buffer)
    with capture(queue) as graph:
        for _ in range(10):
            numbers.add(by, target)
        numbers.add(1000)
    loop = graph.finalize()
    assert runs_directly(loop, queue)
    buffers = [numbers.new() for _ in range(30)]
    loop.replay(queue, wait_for=[gate])
    for number, buffer in enumerate(buffers):
        loop.replay(queue, by=number, target=buffer)
    loop.set(by=7)
    loop.replay(queue)
    references = buffers[0].reference_count
    gate.set_status(_COMPLETE)
    queue.finish()
    assert numbers.value() == 10 + 32 * 1000
    values = [numbers.value(buffer) for buffer in buffers]
    assert values == [10 * number for number in range(29)] + [10 * 29 + 70]
    for buffer in buffers[1:]:  # those of before are let go
        loop.replay(queue, target=buffer, wait=True)
    assert buffers[0].reference_count < references


def test_a_series_whose_wait_list_failed_never_runs(numbers: Numbers) -> None:
    another, failed = (cl.CommandQueue(numbers.queue.context), cl.UserEvent(numbers.queue.context))
    by = fairlead.Parameter(np.int32(1))
    with capture(numbers.queue) as graph:
        numbers.add(by)
    loop = graph.finalize()
    loop.replay(numbers.queue).wait()
    event = loop.replay(another, times=1, by=[5], wait_for=[failed])
    failed.set_status(-5)
    with pytest.raises(cl.Error):
        event.wait()
    assert numbers.value() == 1


def test_a_buffer_that_only_the_driver_can_use(numbers: Numbers) -> None:
    """The host may not map it, so the replay after the change is the driver's; in a series, too."""
    queue, context = numbers.queue, numbers.queue.context
    flags = cl.mem_flags.READ_WRITE | cl.mem_flags.HOST_NO_ACCESS
    hidden, seen = cl.Buffer(context, flags, 256), numbers.new()
    target, by = fairlead.Parameter(numbers.buffer), fairlead.Parameter(np.int32(2))
    cl.enqueue_copy(queue, hidden, seen)
    with capture(queue) as graph:
        numbers.add(by, target)
    loop = graph.finalize()
    loop.replay(queue)
    assert runs_directly(loop, queue)
    loop.replay(queue, target=hidden)
    assert not runs_directly(loop, queue)
    loop.replay(queue, times=3, by=[3, 4, 5])
    cl.enqueue_copy(queue, seen, hidden)
    assert (numbers.value(), numbers.value(seen)) == (2, 14)
    with capture(queue, swap=(seen, hidden)) as graph:
        numbers.add(1, seen)
    swapped = graph.finalize()
    assert runs_directly(swapped, queue)
    swapped.replay(queue, times=5)
    assert numbers.value(seen) == 14 + 3
    cl.enqueue_copy(queue, seen, hidden)
    assert numbers.value(seen) == 14 + 2


# --- until ---

_UNTIL = """
kernel void go(global const int *u, global int *v, global int *flag, int most) {
    v[get_global_id(0)] = u[get_global_id(0)] + 1;
    if (get_global_id(0) == 0 && v[0] >= most) flag[1] = 1;
}
"""


class Loop:
    """Buffers that alternate, and a graph that adds 1 until it comes to `most`."""

    def __init__(self, numbers: Numbers, most: Any, with_transfer: bool = False) -> None:
        self.queue, self.u, self.v = numbers.queue, numbers.new(), numbers.new()
        self.flags = pyopencl.array.zeros(self.queue, 4, np.int32)
        self.flag, self._numbers = self.flags[1:], numbers
        go, flags = build_once(self.queue.context, _UNTIL).go, self.flags.base_data
        assert isinstance(flags, cl.Buffer)
        with capture(self.queue, swap=(self.u, self.v)) as graph:
            go(self.queue, (64,), None, self.u, self.v, flags, most)
            if with_transfer:
                cl.enqueue_copy(self.queue, numbers.buffer, self.v)
        self.executable = graph.finalize()
        assert runs_directly(self.executable, self.queue)

    def run(self, times: int = 100_000, **values: Any) -> Any:
        return self.executable.replay(self.queue, times=times, until=self.flag, **values)

    def values(self) -> set[int]:
        return {self._numbers.value(self.u), self._numbers.value(self.v)}


@pytest.mark.parametrize("with_transfer", [False, True], ids=["kernels", "transfers"])
def test_a_loop_stops_after_the_replay_that_sets_its_flag(
    numbers: Numbers, with_transfer: bool
) -> None:
    most, gate = fairlead.Parameter(np.int32(33)), cl.UserEvent(numbers.queue.context)
    loop = Loop(numbers, most, with_transfer)
    done = loop.run()
    assert (done.replays, done.has_stopped, loop.values()) == (33, True, {32, 33})
    assert loop.executable.is_swapped
    loop.flags.fill(0)  # the loop comes after it
    done = loop.run(most=1000, times=7)
    assert (done.replays, done.has_stopped, loop.values()) == (7, False, {39, 40})
    gate.set_status(_COMPLETE)
    done = loop.run(most=1000, wait_for=[gate])  # begins in the queue
    assert done.has_stopped and done.replays >= 960
    total = 40 + done.replays
    assert loop.values() == {total, total - 1}
    loop.executable.replay(loop.queue, times=3)
    assert loop.values() == {total + 2, total + 3}
    if with_transfer:
        assert numbers.value() == total + 3


def test_a_flag_that_the_host_cannot_see(numbers: Numbers) -> None:
    queue, context = numbers.queue, numbers.queue.context
    hidden = cl.Buffer(context, cl.mem_flags.READ_WRITE | cl.mem_flags.HOST_WRITE_ONLY, 256)
    cl.enqueue_fill_buffer(queue, hidden, np.array(0, np.int32), 0, 256)
    with capture(queue) as graph:
        numbers.add(1)
    loop = graph.finalize()
    assert runs_directly(loop, queue)
    done = loop.replay(queue, times=20, until=numbers.buffer)
    assert (done.replays, done.has_stopped, numbers.value()) == (1, True, 1)
    with pytest.raises(fairlead.OpenCLError):  # the driver lets nobody read it
        loop.replay(queue, times=20, until=hidden)


def test_a_loop_comes_after_a_replay_on_another_queue(numbers: Numbers) -> None:
    another, gate = cl.CommandQueue(numbers.queue.context), cl.UserEvent(numbers.queue.context)
    with capture(numbers.queue) as graph:
        numbers.add(1)
    loop = graph.finalize()
    loop.replay(another, wait_for=[gate])
    loop.replay(another)
    threading.Timer(0, gate.set_status, [_COMPLETE]).start()
    done = loop.replay(numbers.queue, times=5, until=numbers.buffer)
    assert (done.replays, numbers.value()) == (1, 3)


def test_a_node_repeats_a_graph_in_its_own_thread(
    numbers: Numbers, monkeypatch: pytest.MonkeyPatch
) -> None:
    """C makes all turns: nothing is submitted. Updates of the body are seen."""

    def submitted(*_: Any) -> None:
        raise AssertionError("the body was submitted")

    monkeypatch.setattr("fairlead.graph.conditions._Decision.run", submitted)
    queue, n, flag = numbers.queue, numbers.new(), numbers.new(500)
    with capture(queue) as body:
        numbers.add(1, n)
        numbers.add(-1, flag)
    inner = body.finalize(updatable=True)
    assert runs_directly(inner, queue)
    with capture(queue) as graph:
        numbers.add(100, n)
        numbers.mul(2, n)
    graph[1].depends_on(graph.while_loop(inner, flag, depends_on=graph[0]))
    loop = graph.finalize()
    loop.replay(queue).wait()
    assert (numbers.value(n), numbers.value(flag)) == (1200, 0)
    loop.replay(queue).wait()  # the flag is 0: no turn
    assert numbers.value(n) == 2600
    cl.enqueue_fill_buffer(queue, flag, np.array(3, np.int32), 0, 256).wait()
    inner.set(body[0], 1, np.int32(10))
    loop.replay(queue).wait()
    assert numbers.value(n) == 2 * (2700 + 30)
    cl.enqueue_fill_buffer(queue, flag, np.array(-1, np.int32), 0, 256).wait()
    with capture(queue) as graph:
        numbers.add(0, n)
    graph.while_loop(inner, flag, at_most=10)
    with pytest.raises(SYCLError, match="still set after 10 turns"):
        graph.finalize().replay(queue).wait()
    assert numbers.value(flag) == -11
