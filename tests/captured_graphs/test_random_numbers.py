"""Random numbers in captured graphs: a replay draws what the calls would have drawn."""

from __future__ import annotations

import random
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyopencl as cl
import pyopencl.array
import pytest
from helpers.programs import build_once
from pyopencl import clrandom
from pyopencl.clrandom import PhiloxGenerator, ThreefryGenerator

import fairlead
from fairlead.captured_graphs.context import capture
from fairlead.captured_graphs.random_numbers import Draw
from fairlead.captured_graphs.swaps import CaptureWarning
from fairlead.graph import CommandGraph
from fairlead.runtime import Queue
from fairlead.runtime.interop import context_of

_SIZES = (5, 77, 1000)
_TOP = np.iinfo(np.int32).max
#: Counters at the corners of PyOpenCL's carries: a first word below 0 or at its end.
_COUNTERS = ([0, 0, 0, 0], [-3, -7, 5, 1], [_TOP - 100, -1, 2, 3], [_TOP - 9, _TOP - 1, -4, 9])


class Twins:
    """The same arrays and generators twice: those of replays, and those of calls."""

    def __init__(self, queue: cl.CommandQueue, kind: Any, counter: list[int]) -> None:
        self.queue = queue
        self.sides = [
            (
                [pyopencl.array.zeros(queue, size, np.float32) for size in _SIZES],
                kind(queue.context, key=[11, 12, 13][: kind.key_length - 1], counter=[*counter]),
            )
            for _ in range(2)
        ]

    def check(self) -> None:
        (ours, mine), (theirs, other) = self.sides
        assert mine.counter == other.counter
        for one, two in zip(ours, theirs, strict=True):
            assert one.get().tobytes() == two.get().tobytes()


def draw(arrays: list[Any], generator: Any) -> None:
    """Draw four times: with two kernels, and twice for one array."""
    generator.fill_uniform(arrays[0])
    generator.fill_normal(arrays[1], mu=3)
    generator.fill_uniform(arrays[2], a=1, b=2)
    generator.fill_uniform(arrays[1][:9])


@pytest.fixture(autouse=True)
def strict() -> Iterator[None]:
    with warnings.catch_warnings():
        warnings.simplefilter("error", CaptureWarning)
        yield


@pytest.mark.parametrize("kind", [PhiloxGenerator, ThreefryGenerator])
def test_replays_draw_what_calls_draw(queue: cl.CommandQueue, kind: Any) -> None:
    """Replays of every kind, mixed with calls of the same generator, in a random order."""
    twins = Twins(queue, kind, [9, 9, 9, 9])
    (arrays, generator), calls = twins.sides
    with capture(queue) as graph:
        draw(arrays, generator)
    assert generator.counter == [9, 9, 9, 9]  # nothing was drawn
    loops, choose = [graph.finalize(), graph.finalize()], random.Random(kind.__name__)
    options: list[dict[str, Any]] = [{}, {"wait": True}, {"times": 1}, {"times": 7}]
    options += [{"times": 30, "wait": True}]
    for counter in _COUNTERS:
        for _, one in twins.sides:
            one.counter[:] = counter
        for _ in range(6):
            given = choose.choice(options)
            for _ in range(choose.randrange(1, 4)):
                choose.choice(loops).replay(queue, **given)
                for _ in range(given.get("times", 1)):
                    draw(*calls)
            twins.check()
            if choose.random() < 0.3:
                for side in twins.sides:
                    side[1].fill_uniform(side[0][0])


def test_replays_with_host_tasks_draw_when_they_are_submitted(queue: cl.CommandQueue) -> None:
    """Replays that wait for an event draw before calls that come later."""
    twins, gate = Twins(queue, PhiloxGenerator, [9, 9, 9, 9]), cl.UserEvent(queue.context)
    (arrays, generator), calls = twins.sides
    seen: list[bytes] = []
    host = np.empty(_SIZES[0], np.float32)
    with capture(queue) as graph:
        draw(arrays, generator)
        arrays[0].get_async(queue, host)
    graph.add(
        lambda handler: handler.host_task(lambda: seen.append(host.tobytes())),
        depends_on=graph[len(graph) - 1],
    )
    loop, expected = graph.finalize(), list[bytes]()
    loop.replay(queue, wait_for=[gate], times=2)
    end = loop.replay(queue)
    generator.fill_uniform(arrays[0])
    gate.set_status(0)
    end.wait()
    for _ in range(3):
        draw(*calls)
        expected.append(calls[0][0].get().tobytes())
    calls[1].fill_uniform(calls[0][0])
    twins.check()
    assert seen == expected


def test_module_functions_draw_on(queue: cl.CommandQueue) -> None:
    """Those of clrandom have a generator for each context."""
    x = pyopencl.array.zeros(queue, 50, np.float32)
    find: Any = getattr(clrandom, "_get_generator")  # noqa: B009 - of PyOpenCL's own
    counter = find(queue.context).counter
    begin = [*counter]
    with capture(queue) as graph:
        clrandom.fill_rand(x)
        made = clrandom.rand(queue, 20, np.float64)
    assert counter == begin
    loop, seen = graph.finalize(), []
    for _ in range(3):
        loop.replay(queue)
        seen.append((x.get().tobytes(), made.get().tobytes()))
    counter[:] = begin
    for expected in seen:
        clrandom.fill_rand(x)
        assert (x.get().tobytes(), clrandom.rand(queue, 20, np.float64).get().tobytes()) == expected


def test_a_step_of_a_loop_has_its_own_numbers(queue: cl.CommandQueue) -> None:
    """With a Parameter for each turn, and buffers that alternate."""
    twins = Twins(queue, PhiloxGenerator, [1, 2, 3, 4])
    (ours, mine), (theirs, other) = twins.sides
    u, v = ours[2], pyopencl.array.zeros(queue, _SIZES[2], np.float32)
    s = fairlead.Parameter(np.float32(1))
    with capture(queue, swap=(u, v)) as graph:
        mine.fill_uniform(ours[0])
        v[:] = u * s + ours[0][0]
        mine.fill_uniform(ours[1])
    loop, w = graph.finalize(), theirs[2].copy()
    for times in (1, 1, 1, 6, 1, 3):
        values = np.linspace(0.5, 0.9, times).astype(np.float32)
        loop.replay(queue, times=times, s=values if times > 1 else values[0])
        for value in values:
            other.fill_uniform(theirs[0])
            w = w * value + theirs[0][0]
            other.fill_uniform(theirs[1])
        result = v if loop.is_swapped else u
        assert result.get().tobytes() == w.get().tobytes()
        assert mine.counter == other.counter


def test_host_tasks_sub_graphs_and_updates(queue: cl.CommandQueue) -> None:
    """A graph of several partitions draws in the order of recording; each copy of a graph in it
    has numbers of its own."""
    twins = Twins(queue, ThreefryGenerator, [_TOP - 9, _TOP - 1, -4, 9])
    (arrays, generator), calls = twins.sides
    with capture(queue) as graph:
        draw(arrays, generator)
    seen: list[int] = []
    task = graph.add(lambda handler: handler.host_task(lambda: seen.append(0)), depends_on=graph[1])
    graph[2].depends_on(task)
    loop = graph.finalize()
    for times in (1, 3, 1):
        loop.replay(queue, times=times).wait()
        for _ in range(times):
            draw(*calls)
        twins.check()
    assert len(seen) == 5

    with capture(queue) as step:
        draw(arrays, generator)
    body, own = step.finalize(), Queue(context_of(queue.context))
    outer = CommandGraph(own)
    first = outer.add(lambda handler: handler.graph_execution(body))
    outer.add(lambda handler: handler.graph_execution(body), depends_on=first)
    whole = outer.finalize()
    for _ in range(2):
        own.graph(whole).wait()
        draw(*calls)
        draw(*calls)
        twins.check()

    changed = step.finalize(updatable=True)
    for side in twins.sides:
        side[0][0] = pyopencl.array.zeros(queue, _SIZES[0], np.float32)
    changed.set(step[0], generator.key_length + 3, arrays[0])
    changed.replay(queue)
    draw(*calls)
    twins.check()
    with capture(queue) as other:
        draw(arrays, generator)
    changed.update(other)
    changed.replay(queue, times=2)
    draw(*calls)
    draw(*calls)
    twins.check()


def test_loops_that_end_by_themselves(queue: cl.CommandQueue) -> None:
    """Each of the replays that there were has drawn."""
    (arrays, generator), calls = Twins(queue, PhiloxGenerator, [0, 0, 0, 0]).sides
    x, flag = arrays[0], pyopencl.array.zeros(queue, 1, np.int32)
    source = (
        "kernel void test(global const float *x, global int *flag) { if (x[0] > 0.9f) *flag = 1; }"
    )
    test = build_once(queue.context, source).test
    memory: Any = x.base_data, flag.base_data
    with capture(queue) as graph:
        generator.fill_uniform(x)
        test(queue, (1,), None, *memory)
    ended = graph.finalize().replay(queue, times=500, until=flag, every=4)
    for _ in range(ended.replays):
        calls[1].fill_uniform(calls[0][0])
    assert ended.has_stopped and generator.counter == calls[1].counter
    assert x.get().tobytes() == calls[0][0].get().tobytes()


def test_fused_graphs_and_graphed_functions(queue: cl.CommandQueue) -> None:
    twins = Twins(queue, PhiloxGenerator, [7, 7, 7, 7])

    def step(array: Any, generator: Any) -> Any:
        generator.fill_normal(array)
        return array * np.float32(2) + np.float32(1)

    (arrays, generator), (others, other) = twins.sides
    with capture(queue) as graph:
        result = step(arrays[2], generator)
    loop = graph.finalize(fuse="wait")
    for turn in range(20):
        loop.replay(queue, wait=bool(turn % 2))
        assert result.get().tobytes() == step(others[2], other).get().tobytes()
    graphed = fairlead.graphed(step)
    for _ in range(3):
        given = graphed(arrays[1], generator)
        assert given.get().tobytes() == step(others[1], other).get().tobytes()
    twins.check()


def test_a_failed_block_has_drawn_nothing(queue: cl.CommandQueue) -> None:
    (arrays, generator), _ = Twins(queue, PhiloxGenerator, [1, 2, 3, 4]).sides
    with pytest.raises(ZeroDivisionError), capture(queue):
        generator.fill_uniform(arrays[0])
        raise ZeroDivisionError
    assert generator.counter == [1, 2, 3, 4]


def test_a_generator_that_has_really_drawn_stays(queue: cl.CommandQueue) -> None:
    """A queue that is not captured draws at once: replays do not draw these numbers again."""
    (arrays, generator), _ = Twins(queue, PhiloxGenerator, [0, 0, 0, 0]).sides
    other = cl.CommandQueue(queue.context)
    with pytest.warns(CaptureWarning, match="not captured"), capture(queue):
        generator.fill_uniform(arrays[0])
        generator.fill_uniform(arrays[1], queue=other)
    assert generator.counter[0] == _SIZES[0] + _SIZES[1]
    other.finish()


def test_a_file_says_that_it_has_no_generator(
    queue: cl.CommandQueue, device: cl.Device, tmp_path: Path
) -> None:
    (arrays, generator), (others, other) = Twins(queue, PhiloxGenerator, [1, 2, 3, 4]).sides
    x, y = arrays[0], others[0]
    with capture(queue) as graph:
        generator.fill_uniform(x)
    with pytest.warns(CaptureWarning, match="no generator.*same numbers"):
        graph.save(tmp_path / "draw.flg")
    other.fill_uniform(y)
    loaded = fairlead.load(tmp_path / "draw.flg", device).finalize()
    for _ in range(2):
        assert loaded()["x"].tobytes() == y.get().tobytes()
    assert generator.counter == [1, 2, 3, 4]


def test_an_unknown_way_to_count_is_told(
    queue: cl.CommandQueue, monkeypatch: pytest.MonkeyPatch
) -> None:
    (arrays, generator), _ = Twins(queue, PhiloxGenerator, [0, 0, 0, 0]).sides
    monkeypatch.setattr(Draw, "from_frame", classmethod(lambda cls, frame: None))
    message = "clrandom.*same numbers again"
    with pytest.warns(CaptureWarning, match=message) as caught, capture(queue):
        arrays[0] += 1
        for _ in range(2):
            generator.fill_normal(arrays[1])
    found = [one for one in caught if one.category is CaptureWarning]  # compilers warn, too
    assert len(found) == 1 and found[0].filename == __file__
