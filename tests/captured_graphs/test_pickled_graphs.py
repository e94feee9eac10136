"""Graphs in pickles: they do in another process what they would have done here."""

from __future__ import annotations

import multiprocessing
import pickle
from typing import Any

import numpy as np
import pyopencl as cl
import pytest
from helpers.captures import Numbers
from pyopencl.array import Array

import fairlead
from fairlead.graph_files.errors import GraphFileError

#: A pickle is the same on each driver.
pytestmark = pytest.mark.one_driver


def child(data: bytes, by: int) -> list[int]:
    """What a graph computes in a process of its own."""
    loop: Any = pickle.loads(data)
    if isinstance(loop, fairlead.CapturedGraph):
        loop = loop.finalize()
    (out,) = loop(by=by).values()
    return out.view(np.int32).tolist()


@pytest.fixture
def graph(numbers: Numbers) -> fairlead.CapturedGraph:
    by = fairlead.Parameter(np.int32(2))
    with fairlead.capture(numbers.queue) as graph:
        numbers.add(by)
        numbers.mul(3)
    return graph


@pytest.mark.slow
def test_a_graph_and_its_executable_run_in_another_process(
    numbers: Numbers, graph: fairlead.CapturedGraph
) -> None:
    before = numbers.value()
    loop = graph.finalize()
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        found = [pool.apply(child, (pickle.dumps(one), 5)) for one in (graph, loop)]
    assert found == 2 * [64 * [(before + 5) * 3]]
    assert numbers.value() == before  # they have memory of their own


def test_a_pickle_is_loaded_on_the_same_device(
    graph: fairlead.CapturedGraph, device: cl.Device
) -> None:
    loaded = pickle.loads(pickle.dumps(graph))
    assert isinstance(loaded, fairlead.LoadedGraph)
    queue = loaded.new_queue()
    assert (queue.device.name, queue.device.platform.name) == (device.name, device.platform.name)
    assert pickle.loads(pickle.dumps(loaded)).memory.keys() == loaded.memory.keys()


def test_a_pickle_has_the_names_of_the_block(numbers: Numbers) -> None:
    def captured() -> fairlead.CapturedGraph:
        step = fairlead.Parameter(np.int32(2))
        array = Array(numbers.queue, (8, 8), np.int32, data=numbers.buffer)
        with fairlead.capture(numbers.queue) as graph:
            numbers.add(step)
        assert array.base_data is numbers.buffer
        return graph

    loaded = pickle.loads(pickle.dumps(captured()))
    out = loaded.finalize()(array=np.ones((8, 8), np.int32), step=4)
    assert out["array"].shape == (8, 8) and np.all(out["array"] == 5)


@pytest.mark.parametrize("schedule", ["levels", "events"])
def test_an_executable_is_finalized_as_it_was(graph: fairlead.CapturedGraph, schedule: str) -> None:
    loop: Any = graph.finalize(schedule=schedule, updatable=True, policy="rank")
    again = pickle.loads(pickle.dumps(loop))
    assert isinstance(again, fairlead.LoadedExecutable)
    assert (again.schedule, again.updatable, again.policy) == (schedule, True, "rank")


def test_an_executable_goes_on_with_the_buffer_whose_turn_it_is(numbers: Numbers) -> None:
    """After an odd number of replays the last result is in the second one of a pair."""
    u, v = numbers.new(1), numbers.new(0)
    with fairlead.capture(numbers.queue, swap=(u, v)) as graph:
        cl.enqueue_copy(numbers.queue, v, u)
        numbers.add(1, v)
    loop = graph.finalize()
    for count, name in ((1, "u"), (2, "v")):
        loop.replay(numbers.queue).wait()
        again: Any = pickle.loads(pickle.dumps(loop))
        assert again.is_swapped == loop.is_swapped == (name == "u")
        assert again()[name].view(np.int32)[0] == count + 2


def test_what_is_written_in_part_keeps_the_rest(numbers: Numbers) -> None:
    buffer = numbers.new(5)
    with fairlead.capture(numbers.queue) as graph:
        cl.enqueue_fill_buffer(numbers.queue, buffer, np.full(1, 7, np.int32), 0, 4 * 16)
    (found,) = pickle.loads(pickle.dumps(graph)).finalize()().values()
    assert found.view(np.int32).tolist() == 16 * [7] + 48 * [5]


@pytest.mark.parametrize("schedule", ["levels", "events"])
def test_a_call_that_gives_a_buffer_of_a_pair_begins_as_it_was_captured(
    numbers: Numbers, schedule: str
) -> None:
    """After an odd number of replays the graph read the other buffer, not the given one."""
    u, v = numbers.new(1), numbers.new(0)
    with fairlead.capture(numbers.queue, swap=(u, v)) as graph:
        cl.enqueue_copy(numbers.queue, v, u)
        numbers.add(1, v)
    loop: Any = pickle.loads(pickle.dumps(graph)).finalize(schedule=schedule)
    for start, times, name in ((10, 1, "v"), (20, 3, "v"), (30, 2, "u"), (40, 1, "v")):
        values = np.full(64, start, np.int32).view(np.uint8)
        assert loop(times=times, u=values)[name].view(np.int32)[0] == start + times
    assert loop()["u"].view(np.int32)[0] == 42  # nothing is given: it goes on


def test_what_no_file_holds_is_not_pickled(graph: fairlead.CapturedGraph) -> None:
    graph.add(lambda handler: handler.host_task(print))
    with pytest.raises(GraphFileError, match="CANNOT_SAVE"):
        pickle.dumps(graph)
