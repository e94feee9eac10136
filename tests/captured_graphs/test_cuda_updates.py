"""Updates, Parameters and alternating buffers in CUDA Graphs, on the fake CUDA driver.

The GPU changes between OpenCL and CUDA: what that costs counts where it happens.
"""

from __future__ import annotations

import gc
import os
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyopencl as cl
import pytest
from helpers.cuda import PTX
from helpers.cuda_program import Program

import fairlead
from fairlead.captured_graphs.context import capture
from fairlead.captured_graphs.executable import Executable
from fairlead.captured_graphs.graph import CapturedGraph
from fairlead.icd._native import ffi, lib
from fairlead.icd.command_buffer import cuda_functions
from fairlead.icd.command_buffer.engines import cuda as cuda_engine
from fairlead.icd.command_buffer.engines.cuda import BuiltCuda


def repeating(program: Program, *, scales: bool = False) -> tuple[cl.Buffer, Executable]:
    """A buffer of ones, and four launches that add the Parameter `by`.

    Args:
        program: the kernels.
        scales: whether they multiply by it first.
    """
    y, by = program.buffer(1), fairlead.Parameter(np.int32(3), name="by")
    with capture(program.queue) as graph:
        for _ in range(4):
            program.scale(y, by if scales else 1, by)
    return y, graph.finalize()


def test_updates_and_parameters_reach_the_graph(program: Program) -> None:
    y, loop = repeating(program)
    built = program.fake.calls("cuGraphInstantiateWithFlags")
    loop.replay(program.queue, wait=True)
    assert program.values(y) == [13]
    for value in range(5):
        loop.set(by=value)
        loop.replay(program.queue)
    assert program.values(y) == [13 + 4 * 10]
    assert program.fake.calls("cuGraphInstantiateWithFlags") - built == 1


def test_a_whole_graph_updates_the_launches_that_differ(program: Program) -> None:
    y, calls = program.buffer(0), "cuGraphExecKernelNodeSetParams_v2"

    def step(*summands: int) -> CapturedGraph:
        with capture(program.queue) as graph:
            for summand in summands:
                program.scale(y, 2, summand)
        return graph

    graph, again = step(1, 2, 3), step(1, 20, 3)
    loop = graph.finalize(updatable=True)
    loop.replay(program.queue, wait=True)
    before = program.fake.calls(calls)
    loop.update(graph)
    assert program.fake.calls(calls) == before
    loop.update(again)  # its launches have kernels of their own
    assert program.fake.calls(calls) == before + 3
    again[0].set_arg(2, np.int32(10))
    loop.update(again)
    assert program.fake.calls(calls) == before + 4
    loop.replay(program.queue, wait=True)
    assert program.values(y) == [11 * 8 + 10 * 4 + 20 * 2 + 3]


def test_a_changed_parameter_is_one_copy_for_all_launches(program: Program) -> None:
    y, loop = repeating(program)
    loop.replay(program.queue, wait=True)
    names = "cuGraphExecKernelNodeSetParams_v2", "cuMemcpyAsync"
    before = [program.fake.calls(name) for name in names]
    for value in (3, 5, 5):
        loop.set(by=value)
        loop.replay(program.queue, wait=True)
    assert program.values(y) == [1 + 4 * (3 + 3 + 5 + 5)]
    assert [program.fake.calls(name) for name in names] == [before[0], before[1] + 1]


def test_a_parameter_that_cannot_lie_in_memory_is_updated_in_each_launch(
    program: Program, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = PTX.replace("%envreg3;", "%envreg3;\n\tmov.b64 %rd1, scale_param_2;")
    monkeypatch.setattr(cuda_functions, "query_ptx", lambda *_: text)
    y, loop = repeating(program, scales=True)
    for value in (1, 2):  # the second one looks whether to fuse, and so sets everything again
        loop.replay(program.queue, by=value, wait=True)
    assert program.values(y) == [((((5 * 2 + 2) * 2) + 2) * 2 + 2) * 2 + 2]
    before = program.fake.calls("cuGraphExecKernelNodeSetParams_v2")
    for value in (0, 1, 3):
        loop.replay(program.queue, by=value, wait=True)
    assert program.values(y) == [(((4 * 3 + 3) * 3 + 3) * 3 + 3) * 3 + 3]
    assert program.fake.calls("cuGraphExecKernelNodeSetParams_v2") - before == 3 * 4


def test_launches_differ_in_which_arguments_are_parameters(program: Program) -> None:
    y, by = program.buffer(1), fairlead.Parameter(np.int32(3), name="by")
    with capture(program.queue) as graph:
        program.scale(y, 2, 1)
        program.scale(y, by, 1)
        program.scale(y, 1, by)
        program.scale(y, by, by)
    loop = graph.finalize()
    assert "a CUDA Graph of 4 nodes" in loop.explain(program.queue)
    loop.replay(program.queue, by=10, wait=True)
    assert program.values(y) == [(((1 * 2 + 1) * 10 + 1) + 10) * 10 + 10]


def test_an_update_does_not_reach_what_is_enqueued(program: Program) -> None:
    y = program.buffer(0)
    by = fairlead.Parameter(np.int32(1), name="by")
    gate = cl.UserEvent(program.context)
    with capture(program.queue) as graph:
        program.scale(y, 10, by)
    loop = graph.finalize()
    loop.replay(program.queue, wait_for=[gate])
    built = program.fake.calls("cuGraphInstantiateWithFlags")
    loop.set(by=2)
    loop.replay(program.queue)
    gate.set_status(cl.command_execution_status.COMPLETE)
    assert program.values(y) == [12]
    assert program.fake.calls("cuGraphInstantiateWithFlags") == built


def test_buffers_of_a_replay_that_waits_are_kept(program: Program) -> None:
    a, b, gate = program.buffer(1), program.buffer(2), cl.UserEvent(program.context)
    with capture(program.queue, swap=[(a, b)]) as graph:
        program.total(a, b)
    loop = graph.finalize()
    before = a.reference_count, b.reference_count
    end = loop.replay(program.queue, wait_for=[gate])
    assert (a.reference_count, b.reference_count) == (before[0] + 1, before[1] + 1)
    gate.set_status(cl.command_execution_status.COMPLETE)
    end.wait()
    while (a.reference_count, b.reference_count) != before:
        os.sched_yield()
    loop.replay(program.queue, wait=True)
    assert (program.values(a), program.values(b)) == ([5], [11])


def test_buffers_that_alternate(program: Program) -> None:
    a, b = program.buffer(1), program.buffer(2)
    with capture(program.queue, swap=[(a, b)]) as graph:
        program.total(a, b)
    loop = graph.finalize()
    loop.replay(program.queue, wait=True)
    assert (program.values(a), program.values(b)) == ([5], [2])
    loop.replay(program.queue, wait=True)
    assert (program.values(a), program.values(b)) == ([5], [11])


COUNT = lib.FL_CUDA_MEASURED


@pytest.fixture
def built(program: Program) -> Iterator[BuiltCuda]:
    """A graph of ten launches, which the driver would take 50 µs for."""
    y = program.buffer(1)
    with capture(program.queue) as graph:
        for _ in range(10):
            program.scale(y, 1, 1)
    loop = graph.finalize()
    loop.replay(program.queue, wait=True)
    made = next(one for one in gc.get_objects() if isinstance(one, BuiltCuda) and one._count == 10)
    made._launch_seconds = 5e-6
    yield made
    loop.replay(program.queue, wait=True)  # it is still there


def decide(
    built: BuiltCuda, monkeypatch: pytest.MonkeyPatch, taken: list[int], on_device: int
) -> dict[int, str]:
    """What is left to the driver after replays of so many µs each."""

    def tell(graph: object, times: Any, ran: Any) -> int:
        for number, time in enumerate(taken):
            times[number], ran[number] = 1000 * time, 1000 * on_device
        return 1

    fake = SimpleNamespace(fl_cuda_times=tell, FL_CUDA_MEASURED=COUNT)
    with monkeypatch.context() as patched:
        patched.setattr(cuda_engine, "lib", fake)
        found = built.find_slower_commands()
    assert found is not None
    return dict(found)


@pytest.mark.parametrize(
    ("taken", "on_device"),
    [
        ([25] * 8, 10),
        ([2000, *[25] * 7], 10),  # the first one, which prepares
        ([25] * 5 + [800] + [25] * 2, 10),  # one that was interrupted
        ([330] * 8, 300),  # long kernels are no change
        ([160, *[85] * 7], 10),  # a slow host
    ],
)
def test_a_loop_without_changes_is_for_cuda(
    built: BuiltCuda, monkeypatch: pytest.MonkeyPatch, taken: list[int], on_device: int
) -> None:
    assert decide(built, monkeypatch, taken, on_device) == {}


@pytest.mark.parametrize(
    ("taken", "on_device"),
    [
        ([165] * 8, 10),
        ([440] * 8, 300),  # the driver's launches would be hidden behind the kernels
        ([25, 165] * 4, 10),
    ],
)
def test_what_changes_cost_more_than_launches_is_for_the_driver(
    built: BuiltCuda, monkeypatch: pytest.MonkeyPatch, taken: list[int], on_device: int
) -> None:
    found = decide(built, monkeypatch, taken, on_device)
    assert list(found) == list(range(10))
    assert "the GPU changes from OpenCL to CUDA and back for" in found[0]


def test_changes_count_as_often_as_they_happen(
    built: BuiltCuda, monkeypatch: pytest.MonkeyPatch
) -> None:
    built._launch_seconds = 10e-6  # the driver would take 90 µs more than the device
    seldom, often = [25, 165, 165, *[25] * 5], [25, 165, 165, 165, *[25] * 4]
    assert decide(built, monkeypatch, seldom, 10) == {}
    assert len(decide(built, monkeypatch, often, 10)) == 10


def test_replays_are_measured_in_all_and_on_the_device(built: BuiltCuda) -> None:
    taken, ran = ffi.new("uint64_t[]", COUNT), ffi.new("uint64_t[]", COUNT)
    graph = built._graph
    for _ in range(2):  # the second time after a trial
        assert not lib.fl_cuda_times(graph, taken, ran)
        assert built.find_slower_commands() is None
        assert not lib.fl_run_cuda(graph, COUNT)
        for _ in range(COUNT - 1):
            assert not lib.fl_run_cuda(graph, 1)
        assert lib.fl_cuda_times(graph, taken, ran)
        assert all(0 < ran[number] <= taken[number] for number in range(COUNT))
        built.measure_again()


def test_without_events_no_change_is_seen(
    built: BuiltCuda, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert decide(built, monkeypatch, [165] * 8, 2**64 // 1000 - 1) == {}
