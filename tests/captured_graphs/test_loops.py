"""Replays that end when a flag is set, and nodes that decide by a flag."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyopencl as cl
import pyopencl.array
import pytest
from helpers.captures import Numbers, seen_between
from helpers.programs import build_once

import fairlead
from fairlead.captured_graphs.context import capture
from fairlead.captured_graphs.pyopencl_client import ArgumentError
from fairlead.graph import CommandGraph
from fairlead.icd.command_buffer.choice import ENGINES
from fairlead.runtime import Errc, Program, Queue, SYCLError, malloc_device
from fairlead.runtime.interop import context_of

SOURCE = """
kernel void count(global int *n, global int *flag, int most) {
    n[0] += 1; if (n[0] >= most) flag[0] = 1;
}
kernel void count_down(global int *n, global int *flag) {
    n[0] += 1; flag[0] -= 1;
}
"""

SLOW = """
kernel void slow(global int *n) { for (int i = 0; i < 100000; i++) n[0] ^= i * n[0]; }
kernel void clear(global int *flag) { flag[0] = 0; }
"""


class Counter:
    """A counter and a flag, and a graph of one launch that counts and sets the flag at the end."""

    def __init__(self, queue: cl.CommandQueue, most: Any) -> None:
        self.queue = queue
        self.n = pyopencl.array.zeros(queue, 1, np.int32)
        self.flag = pyopencl.array.zeros(queue, 1, np.int32)
        self.program = build_once(queue.context, SOURCE)
        kernel = cl.Kernel(self.program, "count")
        with capture(queue) as self.graph:
            kernel(queue, (1,), None, self.n.base_data, self.flag.base_data, most)  # pyright: ignore[reportArgumentType]

    @property
    def value(self) -> int:
        return int(self.n.get()[0])


@pytest.mark.slow
@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("every", [1, 3, 100])
def test_a_loop_stops_when_its_flag_is_set(
    queue: cl.CommandQueue, every: int, engine: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FAIRLEAD_COMMAND_BUFFER", engine)
    counter = Counter(queue, np.int32(50))
    loop = counter.graph.finalize()
    done = loop.replay(queue, times=100_000, until=counter.flag, every=every)
    assert done.has_stopped and done.replays == counter.value
    assert 50 <= done.replays < 50 + 2 * every
    counter.flag.fill(0)
    again = loop.replay(queue, times=2, until=counter.flag.base_data, every=1, wait_for=[done])  # pyright: ignore
    assert again.has_stopped and again.replays in (1, 2)


def test_no_replay_changes_a_flag_that_is_read(
    queue: cl.CommandQueue, out_of_order: cl.CommandQueue
) -> None:
    """Each replay sets the flag, and takes it back after a while: it is 0 whenever it is read."""
    counter, zero = Counter(queue, np.int32(0)), np.int32(0)
    kernels = build_once(queue.context, SLOW)
    wait, count = kernels.slow, cl.Kernel(counter.program, "count")
    queue.finish()
    with capture(out_of_order) as graph:
        n, flag = counter.n.base_data, counter.flag.base_data
        event = count(out_of_order, (1,), None, n, flag, zero)  # pyright: ignore[reportArgumentType]
        event = wait(out_of_order, (1,), None, n, wait_for=[event])  # pyright: ignore[reportArgumentType]
        kernels.clear(out_of_order, (1,), None, flag, wait_for=[event])  # pyright: ignore[reportArgumentType]
    done = graph.finalize().replay(out_of_order, times=300, until=counter.flag, every=1)
    assert (done.replays, done.has_stopped) == (300, False)


def test_a_graph_with_host_tasks(numbers: Numbers) -> None:
    graph, seen = seen_between(numbers)
    done = graph.finalize().replay(numbers.queue, times=100, until=numbers.buffer, every=1)
    assert done.has_stopped and done.replays == len(seen) == 1


def test_what_cannot_be_a_flag(numbers: Numbers) -> None:
    with capture(numbers.queue) as graph:
        numbers.add(1)
    loop, context = graph.finalize(), numbers.queue.context
    elsewhere = cl.Buffer(cl.Context([numbers.queue.device]), cl.mem_flags.READ_WRITE, 256)
    small = cl.Buffer(context, cl.mem_flags.READ_WRITE, 2)
    for wrong in (np.zeros(1), 5, small, fairlead.Parameter(numbers.buffer)):
        with pytest.raises(ArgumentError, match="until is not a buffer"):
            loop.replay(numbers.queue, times=2, until=wrong)  # pyright: ignore
    with pytest.raises(SYCLError, match="the flag of until is memory of another context"):
        loop.replay(numbers.queue, times=2, until=elsewhere)
    with pytest.raises(ArgumentError, match="every is a whole number from 1"):
        loop.replay(numbers.queue, times=2, until=numbers.buffer, every=0)
    assert numbers.value() == 0


# --- nodes that decide ---


def test_a_node_repeats_a_graph(numbers: Numbers) -> None:
    queue = numbers.queue
    n = pyopencl.array.zeros(queue, 1, np.int32)
    flag = pyopencl.array.to_device(queue, np.array([5, 0], np.int32))
    program = build_once(queue.context, SOURCE)
    down = program.count_down
    with capture(queue) as body:
        down(queue, (1,), None, n.base_data, flag.base_data)  # pyright: ignore[reportArgumentType]
    with capture(queue) as graph:
        numbers.add(1)
        numbers.mul(2)
    node = graph.while_loop(body.finalize(), flag, depends_on=graph[0])
    graph[1].depends_on(node)
    loop = graph.finalize()
    loop.replay(queue).wait()
    assert (n.get()[0], flag.get()[0], numbers.value()) == (5, 0, 2)
    loop.replay(queue).wait()  # the flag is not set: nothing of the body runs
    assert (n.get()[0], numbers.value()) == (5, 6)
    flag.fill(-1)
    with capture(queue) as graph:
        numbers.add(1)
    endless = graph.while_loop(body.finalize(), flag, at_most=10)
    assert endless.type == "host_task"
    with pytest.raises(SYCLError, match="still set after 10 turns"):
        graph.finalize().replay(queue).wait()


def test_a_node_runs_one_of_two_graphs(numbers: Numbers) -> None:
    flag, loops = numbers.new(1), []
    for number in (10, 1000):
        with capture(numbers.queue) as graph:
            numbers.add(number)
        loops.append(graph.finalize())
    with capture(numbers.queue) as graph:
        numbers.add(1)
    graph.if_else(flag, loops[0], loops[1], depends_on=graph[0])
    graph.if_else(flag, None, loops[1], depends_on=graph[1])
    loop = graph.finalize()
    loop.replay(numbers.queue).wait()
    assert numbers.value() == 11
    cl.enqueue_fill_buffer(numbers.queue, flag, np.array(0, np.int32), 0, 256).wait()
    loop.replay(numbers.queue).wait()
    assert numbers.value() == 11 + 1 + 2000


def test_a_loop_within_a_loop(numbers: Numbers) -> None:
    """Host tasks that wait for graphs with host tasks."""
    queue, program = numbers.queue, build_once(numbers.queue.context, SOURCE)
    inner_flag, outer_flag = numbers.new(0), numbers.new(3)
    n = numbers.new(0)
    with capture(queue) as body:
        program.count_down(queue, (1,), None, n, inner_flag)
    with capture(queue) as outer:
        cl.enqueue_fill_buffer(queue, inner_flag, np.array(4, np.int32), 0, 256)
        program.count_down(queue, (1,), None, numbers.buffer, outer_flag)
    outer.while_loop(body.finalize(), inner_flag, depends_on=outer[1])
    with capture(queue) as graph:
        numbers.mul(1)
    graph.while_loop(outer.finalize(), outer_flag, depends_on=graph[0])
    graph.finalize().replay(queue).wait()
    counts = np.zeros(64, np.int32)
    cl.enqueue_copy(queue, counts, n)
    assert counts[0] == 12


def test_graphs_of_the_runtime(context: cl.Context) -> None:
    queue = Queue(context_of(context))
    program = Program(queue, SOURCE)
    n, flag = malloc_device(1, np.int32, queue), malloc_device(1, np.int32, queue)
    queue.memset(n, 0).wait()
    queue.fill(flag, np.int32(7)).wait()
    body, graph = CommandGraph(queue), CommandGraph(queue)
    body.add(lambda handler: handler.single_task(program.count_down, n, flag))
    graph.while_loop(body.finalize(), flag)
    queue.graph(graph.finalize()).wait()
    counted = np.zeros(1, np.int32)
    queue.memcpy(counted, n).wait()
    assert counted[0] == 7


def test_a_limit_that_is_none(context: cl.Context) -> None:
    queue = Queue(context_of(context))
    flag, graph = malloc_device(1, np.int32, queue), CommandGraph(queue)
    body = CommandGraph(queue).finalize()
    wrong: tuple[Any, ...] = -1, 1.5
    for at_most in wrong:
        with pytest.raises(SYCLError) as caught:
            graph.while_loop(body, flag, at_most=at_most)
        assert (caught.value.errc, caught.value.routine) == (Errc.invalid, "while_loop")
    assert len(graph) == 0


def test_what_cannot_decide(numbers: Numbers, context: cl.Context) -> None:
    with capture(numbers.queue) as graph:
        numbers.add(1)
    loop = graph.finalize()
    small: Any = cl.Buffer(context, cl.mem_flags.READ_WRITE, 2)
    for flag in (np.zeros(1, np.int32), 5, small):
        with pytest.raises(SYCLError, match="a flag is memory of the device"):
            graph.while_loop(loop, flag)
    body: Any = graph
    with pytest.raises(SYCLError, match="executable graph"):
        graph.if_else(numbers.buffer, body)
    other = Queue(context_of(cl.Context([numbers.queue.device])))
    with pytest.raises(SYCLError):
        CommandGraph(other).while_loop(loop, numbers.buffer)
    assert len(graph) == 1
