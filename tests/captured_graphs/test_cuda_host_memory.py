"""Copies of the host's memory, and fills, in CUDA Graphs, on the fake CUDA driver."""

from __future__ import annotations

import ctypes
import gc
import weakref
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyopencl as cl
import pyopencl.array as cl_array
import pytest
from helpers.cuda_program import COPIED, READ_WRITE, SIZE, Program, count_launches

from fairlead.captured_graphs.context import capture
from fairlead.icd._native import lib
from fairlead.icd.command_buffer.engines import cuda as cuda_engine


def test_the_graph_reads_and_writes_host_memory(program: Program) -> None:
    y, given, found = program.buffer(0), np.full(SIZE, 3, np.int32), np.zeros(SIZE, np.int32)
    array = cl_array.Array(program.queue, (SIZE,), np.int32, data=y)
    with capture(program.queue) as graph:
        cl.enqueue_copy(program.queue, y, given, is_blocking=False)
        program.scale(y, 2, 1)
        array.get_async(program.queue, found)
        program.scale(y, 0, 0)
    loop = graph.finalize()
    assert "a CUDA Graph of 4 nodes in a chain" in loop.explain(program.queue)
    for value in (3, 5):
        given[:] = value
        assert count_launches(program, lambda: loop.replay(program.queue, wait=True)) == 1
        assert (set(found), program.values(y)) == ({2 * value + 1}, [0])
    given[:] = 7
    loop.replay(program.queue, times=2).wait()
    assert set(found) == {15}


@pytest.mark.parametrize("seed", range(4))
def test_rectangles_of_host_memory_are_what_the_driver_copies(
    program: Program, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    random = np.random.default_rng(seed)
    region = [int(random.integers(1, 4)) for _ in range(3)]
    origins = [[int(random.integers(0, 3)) for _ in range(3)] for _ in range(2)]
    rows = [int(random.integers(6, 9)) for _ in range(2)]
    pitches = [(row, row * int(random.integers(6, 9))) for row in rows]
    results = []
    for engine in ("cuda", "replay"):
        monkeypatch.setenv("FAIRLEAD_COMMAND_BUFFER", engine)
        host = [np.arange(600, dtype=np.uint8), np.zeros(600, np.uint8)]
        y = cl.Buffer(program.context, READ_WRITE | COPIED, hostbuf=np.zeros(600, np.uint8))
        how = {
            "buffer_origin": origins[0],
            "host_origin": origins[1],
            "region": region,
            "buffer_pitches": pitches[0],
            "host_pitches": pitches[1],
            "is_blocking": False,
        }
        with capture(program.queue) as graph:
            cl.enqueue_copy(program.queue, y, host[0], **how)
            cl.enqueue_copy(program.queue, host[1], y, **how)
        loop = graph.finalize()
        assert ("a CUDA Graph of 2 nodes" in loop.explain(program.queue)) == (engine == "cuda")
        loop.replay(program.queue, wait=True)
        whole = np.empty(600, np.uint8)
        cl.enqueue_copy(program.queue, whole, y)
        results.append((host[1].tolist(), whole.tolist()))
    assert results[0] == results[1] and any(results[0][0])


@pytest.mark.parametrize("length", [8, 16, 128])
def test_a_fill_with_a_longer_pattern_is_a_graph_in_the_graph(
    program: Program, length: int
) -> None:
    y, pattern = program.buffer(0), np.arange(length // 4, dtype=np.int32)
    with capture(program.queue) as graph:
        cl.enqueue_fill_buffer(program.queue, y, pattern, length, y.size - length)
        program.scale(y, 3, 1)
    before = program.fake.calls("cuGraphAddMemsetNode")
    loop = graph.finalize()
    loop.replay(program.queue, wait=True)
    assert program.fake.calls("cuGraphAddMemsetNode") - before == length // 4
    assert "a CUDA Graph of 2 nodes in a chain" in loop.explain(program.queue)
    found = np.empty(SIZE, np.int32)
    cl.enqueue_copy(program.queue, found, y)
    begin = length // 4
    assert set(found[:begin]) == {1}
    assert found[begin:].tolist() == np.tile(pattern * 3 + 1, SIZE // begin - 1).tolist()


def test_a_pattern_that_repeats_is_one_set(program: Program) -> None:
    y = program.buffer(0)
    with capture(program.queue) as graph:
        cl.enqueue_fill_buffer(program.queue, y, np.full(4, 9, np.int32), 0, y.size)
    loop, before = graph.finalize(), program.fake.calls("cuGraphAddChildGraphNode")
    loop.replay(program.queue, wait=True)
    assert program.values(y) == [9]
    assert program.fake.calls("cuGraphAddChildGraphNode") == before


@pytest.mark.parametrize("function", ["", "cuGraphExecChildGraphNodeSetParams"])
def test_fills_and_reads_of_buffers_that_alternate(program: Program, function: str) -> None:
    a, b, found = program.buffer(1), program.buffer(2), np.zeros(SIZE, np.int32)
    with capture(program.queue, swap=[(a, b)]) as graph:
        cl.enqueue_copy(program.queue, found, a, is_blocking=False)
        cl.enqueue_fill_buffer(program.queue, a, np.arange(2, dtype=np.int32), 0, a.size)
    loop = graph.finalize()
    loop.replay(program.queue, wait=True)
    assert (set(found), program.values(a), program.values(b)) == ({1}, [0, 1], [2])
    built = program.fake.calls("cuGraphInstantiateWithFlags")
    program.fake.fail(function or "cuGraphCreateUnused", 801)
    loop.replay(program.queue, wait=True)
    assert (set(found), program.values(b)) == ({2}, [0, 1])
    assert (program.fake.calls("cuGraphInstantiateWithFlags") > built) == bool(function)


def test_host_memory_of_a_graph_that_is_dropped_is_kept(program: Program) -> None:
    y, gate = program.buffer(5), cl.UserEvent(program.context)
    found = np.zeros(SIZE, np.int32)
    with capture(program.queue) as graph:
        cl.enqueue_copy(program.queue, found, y, is_blocking=False)
    end = graph.finalize().replay(program.queue, wait_for=[gate])
    gone: list[int] = []
    weakref.finalize(found, gone.append, 1)
    look = found.ctypes.data
    del graph, found
    gc.collect()
    assert not gone
    gate.set_status(cl.command_execution_status.COMPLETE)
    end.wait()
    assert gone or set((ctypes.c_int32 * SIZE).from_address(look)) == {5}


@pytest.mark.parametrize(("size", "on_device", "stays"), [(64, 5, False), (1 << 20, 195, True)])
def test_auto_knows_how_long_host_memory_takes(
    program: Program, monkeypatch: pytest.MonkeyPatch, size: int, on_device: int, stays: bool
) -> None:
    y, found = cl.Buffer(program.context, READ_WRITE, size), np.zeros(size, np.uint8)
    with capture(program.queue) as graph:
        cl.enqueue_copy(program.queue, found, y, is_blocking=False)
    loop = graph.finalize()
    loop.replay(program.queue, wait=True)
    built = next(one for one in gc.get_objects() if isinstance(one, cuda_engine.BuiltCuda))
    monkeypatch.setattr(built, "_launch_seconds", 5e-6)

    def tell(graph: object, taken: Any, ran: Any) -> int:
        for number in range(lib.FL_CUDA_MEASURED):
            taken[number], ran[number] = 200_000, 1000 * on_device
        return 1

    fake = SimpleNamespace(fl_cuda_times=tell, FL_CUDA_MEASURED=lib.FL_CUDA_MEASURED)
    with monkeypatch.context() as patched:
        patched.setattr(cuda_engine, "lib", fake)
        assert (built.find_slower_commands() == {}) == stays
