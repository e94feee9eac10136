"""Captured graphs as CUDA Graphs, on the fake CUDA driver."""

from __future__ import annotations

import gc
import os
import sys
import time

import numpy as np
import pyopencl as cl
import pytest
from helpers.cuda_program import Program, count_launches

import fairlead
from fairlead.captured_graphs.context import capture
from fairlead.captured_graphs.executable import Executable
from fairlead.icd._native import lib
from fairlead.icd.abi import OPENCL
from fairlead.icd.command_buffer import cuda_functions
from fairlead.icd.command_buffer.cuda_order import chain_commands
from fairlead.icd.command_buffer.engines.cuda import _unfinished
from fairlead.icd.command_buffer.order import Order


def test_a_chain_runs_as_one_graph(program: Program) -> None:
    y, x = program.buffer(1), program.buffer(10)
    with capture(program.queue) as graph:
        program.scale(y, 2, 3)
        program.total(y, x)
        cl.enqueue_copy(program.queue, x, y, byte_count=y.size)
        cl.enqueue_fill_buffer(program.queue, y, np.full(1, 4, np.int32), 0, y.size)
        program.total(y, x)
    loop = graph.finalize()
    assert "a CUDA Graph of 5 nodes in a chain" in loop.explain(program.queue)
    assert count_launches(program, lambda: loop.replay(program.queue, wait=True)) == 1
    assert (program.values(x), program.values(y)) == ([25], [37])
    assert count_launches(program, lambda: loop.replay(program.queue, times=3).wait()) == 3


def test_what_is_enqueued_around_it_keeps_its_order(program: Program) -> None:
    y = program.buffer(0)
    with capture(program.queue) as graph:
        program.scale(y, 2, 1)
    loop, expected = graph.finalize(), 0
    for number in range(30):
        program.scale(y, 3, number)
        loop.replay(program.queue)
        expected = (expected * 3 + number) * 2 + 1
    expected = (expected + 2**31) % 2**32 - 2**31
    assert program.values(y) == [expected]


def doubling(program: Program) -> tuple[cl.Buffer, Executable, cl.UserEvent]:
    """A buffer of fives, a graph that doubles them, and an event that the host sets."""
    y, gate = program.buffer(5), cl.UserEvent(program.context)
    with capture(program.queue) as graph:
        program.scale(y, 2, 0)
    return y, graph.finalize(), gate


def test_it_waits_for_events_and_blocks_nobody(program: Program) -> None:
    y, loop, gate = doubling(program)
    end = loop.replay(program.queue, wait_for=[gate])
    assert end.command_execution_status > 0
    gate.set_status(cl.command_execution_status.COMPLETE)
    end.wait()
    assert program.values(y) == [10]


def test_an_enqueue_does_not_wait_for_the_replay_before_it(program: Program) -> None:
    y, loop, gate = doubling(program)
    before = program.fake.calls("cuStreamSynchronize")
    program.fake.hold()
    loop.replay(program.queue, wait_for=[gate])
    gate.set_status(cl.command_execution_status.COMPLETE)
    while program.fake.calls("cuStreamSynchronize") == before:
        os.sched_yield()
    end = loop.replay(program.queue)
    program.fake.let_go()
    end.wait()
    assert program.values(y) == [20]


def test_a_graph_that_is_dropped_runs_to_its_end(program: Program) -> None:
    y, loop, gate = doubling(program)
    end = loop.replay(program.queue, wait_for=[gate])
    del loop
    gc.collect()
    (native,) = _unfinished
    assert not lib.fl_cuda_has_ended(native)
    kept = y.reference_count
    gate.set_status(cl.command_execution_status.COMPLETE)
    end.wait()
    assert program.values(y) == [10]
    while _unfinished:  # its thread ends, and Python hears of it
        time.sleep(0)  # CPython 3.11 may lose a pending call until the GIL is given up
    assert y.reference_count < kept


@pytest.mark.skipif(sys.version_info < (3, 11), reason="it cannot stop tracing")
def test_no_tracer_sees_python_hear_of_an_end(program: Program) -> None:
    """It could stand still there (loader/base/native/untraced.h)."""
    _, loop, gate = doubling(program)
    end = loop.replay(program.queue, wait_for=[gate])
    del loop
    gc.collect()
    assert _unfinished
    seen = set[str]()
    before = sys.gettrace()
    sys.settrace(lambda frame, *event: seen.add(frame.f_code.co_name))
    try:
        gate.set_status(cl.command_execution_status.COMPLETE)
        end.wait()
        while _unfinished:
            time.sleep(0)
        doubling(program)
    finally:
        sys.settrace(before)
    assert "doubling" in seen and "_drop_ended_graphs" not in seen


def test_branches_become_chains(program: Program) -> None:
    queue = cl.CommandQueue(
        program.context, properties=cl.command_queue_properties.OUT_OF_ORDER_EXEC_MODE_ENABLE
    )
    buffers = [program.buffer(number) for number in range(20)]
    with capture(queue) as graph:
        firsts = [program.scale(one, 2, 1, queue=queue) for one in buffers]
        for before, one in zip(firsts, buffers[:-1], strict=False):
            program.total(one, buffers[-1], queue=queue, wait_for=[before, *firsts])
    loop = graph.finalize()
    assert "a CUDA Graph of 39 nodes in 8 chains" in loop.explain(queue)
    loop.replay(queue).wait()
    for number, buffer in enumerate(buffers[:-1]):
        assert program.values(buffer)[0] == (number * 2 + 1) * 3 + 19 * 2 + 1


def test_kernels_of_a_graph_that_is_gone_are_not_compiled_again(program: Program) -> None:
    y = program.buffer(1)
    before = program.fake.calls("cuModuleLoadDataEx")
    for _ in range(3):
        with capture(program.queue) as graph:
            program.scale(y, 2, 1)
        graph.finalize().replay(program.queue, wait=True)
        del graph
        gc.collect()
    assert program.values(y) == [15]
    assert program.fake.calls("cuModuleLoadDataEx") - before == 1


def test_options_of_a_build_are_those_of_cudas_compiler(
    program: Program, monkeypatch: pytest.MonkeyPatch
) -> None:
    """PoCL takes no options of NVIDIA's compiler, so it is asked in vain."""
    options = b"-DA=1 -cl-nv-maxrregcount=24 -cl-nv-opt-level 1\0"
    monkeypatch.setattr(cuda_functions, "query_bytes", lambda *query: options)
    y = program.buffer(1)
    with capture(program.queue) as graph:
        program.scale(y, 2, 1)
    with fairlead.trace(["cuda"]) as calls:
        graph.finalize().replay(program.queue, wait=True)
    (load,) = [str(one) for one in calls if one.name == "cuModuleLoadDataEx"]
    assert "{CU_JIT_MAX_REGISTERS, CU_JIT_OPTIMIZATION_LEVEL}" in load and "{0x18, 0x1}" in load
    assert program.values(y) == [3]


def test_edges_have_the_given_order_and_no_more_than_they_need() -> None:
    edges = chain_commands(Order([[], [0], [1], []], [False] * 4))
    assert (edges.before, edges.chains) == ([[], [0], [1], []], 2)
    assert (edges.first, edges.flat) == ([0, 0, 1, 2, 2], [0, 1])
    join = chain_commands(
        Order([[], [], [], [0, 1, 2], [3], [3]], [False] * 3 + [True] + [False] * 2)
    )
    assert sorted(join.before[4]) == sorted(join.before[5]) == [0, 1, 2]
    assert OPENCL["CL_MEM_USE_HOST_PTR"] == 8  # what the fake driver gives PoCL
