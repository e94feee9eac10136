"""A capture block records PyOpenCL's calls, and a replay does exactly what the calls would have
done."""

from __future__ import annotations

import gc
from typing import Any

import numpy as np
import pyopencl as cl
import pyopencl.array
import pytest
from helpers.captures import Numbers
from helpers.programs import build_once

from fairlead.captured_graphs.context import capture

SOURCE = """
__kernel void scale(__global float *a, float s) { int i = get_global_id(0); a[i] = s * a[i] + 1; }
__kernel void add(__global float *a, __global const float *b, float s) {
    int i = get_global_id(0);
    a[i] += s * b[i];
}
__kernel void where(__global int *at) {
    at[get_global_id(0) + 100 * get_global_id(1)] = get_global_id(0) * 1000 + get_global_id(1);
}
"""
N = 256


@pytest.fixture
def program(context: cl.Context) -> cl.Program:
    return build_once(context, SOURCE)


def buffer(queue: cl.CommandQueue, values: np.ndarray) -> cl.Buffer:
    result = cl.Buffer(queue.context, cl.mem_flags.READ_WRITE, values.nbytes)
    cl.enqueue_copy(queue, result, values)
    return result


def content(queue: cl.CommandQueue, source: cl.Buffer, dtype: type = np.float32) -> np.ndarray:
    result = np.empty(source.size // np.dtype(dtype).itemsize, dtype)
    cl.enqueue_copy(queue, result, source)
    return result


def ramp(n: int = N) -> np.ndarray:
    return np.linspace(-1, 1, n, dtype=np.float32)


def test_work_sizes_and_offsets(queue: cl.CommandQueue, program: cl.Program) -> None:
    at = buffer(queue, np.zeros(2000, np.int32))
    kernel = program.where
    with capture(queue) as graph:
        kernel(queue, (4, 6), (2, 3), at, global_offset=(3, 5))
    graph.finalize().replay(queue).wait()
    result = content(queue, at, np.int32)
    assert {(x, y) for x in range(3, 7) for y in range(5, 11)} == {
        (v // 1000, v % 1000) for v in result[result > 0]
    }
    assert graph[0].details == {
        "kernel": "where",
        "global_size": (4, 6),
        "local_size": (2, 3),
        "global_offset": (3, 5),
    }


def test_rects(queue: cl.CommandQueue) -> None:
    grid = np.arange(64, dtype=np.float32).reshape(8, 8)
    a, b = buffer(queue, grid), buffer(queue, np.zeros((8, 8), np.float32))
    host = np.zeros((8, 8), np.float32)
    patch = np.full((8, 8), 7, np.float32)
    with capture(queue) as graph:
        cl.enqueue_copy(
            queue,
            b,
            a,
            src_origin=(4, 1),
            dst_origin=(8, 2),
            region=(12, 3),
            src_pitches=(32,),
            dst_pitches=(32,),
        )
        copy: Any = cl.enqueue_copy  # PyOpenCL's type hints do not know these arguments
        pitches = {"buffer_pitches": (32,), "host_pitches": (32,), "is_blocking": False}
        copy(queue, b, patch, buffer_origin=(0, 6), host_origin=(4, 1), region=(8, 2), **pitches)
        copy(queue, host, b, buffer_origin=(0, 0), host_origin=(0, 0), region=(32, 8), **pitches)
    assert [node.op for node in graph] == ["copy_rect", "write_rect", "read_rect"]
    graph.finalize().replay(queue).wait()
    expected = np.zeros((8, 8), np.float32)
    expected[2:5, 2:5] = grid[1:4, 1:4]
    expected[6:8, 0:2] = 7
    assert (host == expected).all()


@pytest.mark.parametrize("engine", ["auto", "replay"])
def test_rects_of_parts(
    queue: cl.CommandQueue, monkeypatch: pytest.MonkeyPatch, engine: str
) -> None:
    """PoCL 3.0 crashes on them. A graph from another driver may have them."""
    monkeypatch.setenv("FAIRLEAD_COMMAND_BUFFER", engine)
    numbers = np.arange(2048, dtype=np.float32)
    whole, other = buffer(queue, numbers), buffer(queue, np.zeros(2048, np.float32))
    part, there = whole.get_sub_region(4096, 4096), other.get_sub_region(4096, 4096)
    with capture(queue) as graph:
        for target in (there, other):
            cl.enqueue_copy(
                queue,
                target,
                part,
                src_origin=(4, 1),
                dst_origin=(8, 2),
                region=(16, 3),
                src_pitches=(32,),
                dst_pitches=(64,),
            )
    graph.finalize().replay(queue, times=2).wait()
    wanted = np.zeros(2048, np.float32)
    for start in (1024, 0):
        wanted[start:].reshape(-1, 16)[2:5, 2:6] = numbers[1024:].reshape(-1, 8)[1:4, 1:5]
    assert (content(queue, other) == wanted).all()


def test_old_markers_and_barriers(out_of_order: cl.CommandQueue, program: cl.Program) -> None:
    queue = out_of_order
    a = buffer(queue, ramp())
    queue.finish()
    kernel = program.scale
    with capture(queue) as graph:
        first = kernel(queue, (N,), None, a, np.float32(2))
        cl.enqueue_barrier(queue)
        kernel(queue, (N,), None, a, np.float32(3))
        cl.enqueue_barrier(queue)
        cl.enqueue_marker(queue, wait_for=[first])
        queue.flush()
    graph.finalize().replay(queue).wait()
    assert np.allclose(content(queue, a), 3 * (2 * ramp() + 1) + 1, rtol=1e-6)


# --- what stays alive ---


@pytest.mark.slow
def test_arrays_and_their_temporaries(queue: cl.CommandQueue) -> None:
    """Every expression of pyopencl.array makes temporaries.

    Here they are freed, and their memory is overwritten.
    """

    def expression(x: pyopencl.array.Array, y: pyopencl.array.Array) -> pyopencl.array.Array:
        for _ in range(6):
            y = 2 * x + y * x - 3 * y / (1 + x * x)
        return y

    x, y = pyopencl.array.to_device(queue, ramp()), pyopencl.array.to_device(queue, 1 + ramp())
    direct = expression(x, y).get()
    with capture(queue) as graph:
        result = expression(x, y)
    gc.collect()
    rubbish = [pyopencl.array.to_device(queue, np.full(N, np.nan, np.float32)) for _ in range(200)]
    loop = graph.finalize()
    for _ in range(3):
        result.fill(0)
        loop.replay(queue)
        assert result.get().tobytes() == direct.tobytes()
    del rubbish


def test_the_result_of_a_captured_expression_can_be_used_as_ever_after_a_replay(
    queue: cl.CommandQueue,
) -> None:
    x = pyopencl.array.to_device(queue, ramp())
    with capture(queue) as graph:
        y = x + 1
    loop = graph.finalize()
    loop.replay(queue)
    z = (y * 2).get()  # waits for the events that y kept from inside the block
    y.finish()
    assert np.allclose(z, 2 * (ramp() + 1))


def test_buffers_from_before_the_block_that_the_program_drops(
    queue: cl.CommandQueue, program: cl.Program
) -> None:
    result, b = buffer(queue, np.zeros(N, np.float32)), buffer(queue, ramp())
    c = buffer(queue, 10 * ramp())
    with capture(queue) as graph:
        program.add(queue, (N,), None, result, b, np.float32(2))
        cl.enqueue_copy(queue, b, c)
    before = graph.block.recording.kept
    del b, c
    gc.collect()
    rubbish = [buffer(queue, np.full(N, np.nan, np.float32)) for _ in range(200)]
    loop = graph.finalize()
    loop.replay(queue)
    loop.replay(queue)
    assert np.allclose(content(queue, result), 2 * ramp() + 20 * ramp(), rtol=1e-5)
    assert graph.block.recording.kept == before and len(rubbish) == 200


def test_host_arrays_that_the_program_drops(queue: cl.CommandQueue) -> None:
    a = buffer(queue, np.zeros(N, np.float32))
    with capture(queue) as graph:
        cl.enqueue_copy(queue, a, ramp() * 3, is_blocking=False)
        cl.enqueue_copy(queue, a, bytearray(np.full(4, 9, np.float32).tobytes()), is_blocking=False)
    gc.collect()
    rubbish = [np.full(N, np.nan, np.float32) for _ in range(500)]
    graph.finalize().replay(queue).wait()
    expected = ramp() * 3
    expected[:4] = 9
    assert (content(queue, a) == expected).all() and rubbish


def test_a_buffer_in_host_memory_keeps_that_memory(
    queue: cl.CommandQueue, program: cl.Program
) -> None:
    flags = cl.mem_flags.READ_WRITE | cl.mem_flags.USE_HOST_PTR
    target = buffer(queue, np.zeros(N, np.float32))
    before = cl.Buffer(queue.context, flags, hostbuf=ramp().copy())
    with capture(queue) as graph:
        inside = cl.Buffer(queue.context, flags, hostbuf=2 * ramp())
        program.add(queue, (N,), None, target, before, np.float32(1))
        program.add(queue, (N,), None, target, inside, np.float32(1))
        del inside
    del before
    gc.collect()
    rubbish = [np.full(N, np.nan, np.float32) for _ in range(500)]
    graph.finalize().replay(queue).wait()
    assert np.allclose(content(queue, target), 3 * ramp(), rtol=1e-6) and rubbish


def test_pooled_buffers_are_not_given_to_somebody_else(queue: cl.CommandQueue) -> None:
    from pyopencl.tools import ImmediateAllocator, MemoryPool

    pool = MemoryPool(ImmediateAllocator(queue))
    x = pyopencl.array.to_device(queue, ramp(), allocator=pool)
    with capture(queue) as graph:
        y = 2 * x + 3 * x
    others = [
        pyopencl.array.to_device(queue, np.full(N, 7, np.float32), allocator=pool)
        for _ in range(20)
    ]
    graph.finalize().replay(queue).wait()
    assert np.allclose(y.get(), 5 * ramp(), rtol=1e-6)
    assert all((other.get() == 7).all() for other in others)


def test_dropping_the_graph_gives_everything_back(
    queue: cl.CommandQueue, program: cl.Program
) -> None:
    a, b = buffer(queue, ramp()), buffer(queue, ramp())
    queue.finish()
    counts = a.reference_count, b.reference_count, program.reference_count
    queue_count = queue.reference_count
    with capture(queue) as graph:
        program.add(queue, (N,), None, a, b, np.float32(2))
    loop = graph.finalize()
    loop.replay(queue).wait()
    assert a.reference_count > counts[0]
    gc.disable()  # reference counts alone do it
    try:
        del graph, loop
        queue.finish()
        assert (a.reference_count, b.reference_count, program.reference_count) == counts
        assert (
            queue.reference_count <= queue_count
        )  # PoCL lets go of the last transfer's reference only with the next command
    finally:
        gc.enable()


def test_the_graph_outlives_context_queue_and_program(device: cl.Device) -> None:
    context = cl.Context([device])
    queue = cl.CommandQueue(context)
    program = build_once(context, SOURCE)
    target = np.zeros(N, np.float32)
    a = buffer(queue, ramp())
    with capture(queue) as graph:
        program.scale(queue, (N,), None, a, np.float32(2))
        cl.enqueue_copy(queue, target, a, is_blocking=False)
    loop, again = graph.finalize(), cl.CommandQueue(context)
    del context, queue, program, a
    gc.collect()
    loop.replay(again).wait()
    assert np.allclose(target, 2 * ramp() + 1)


# --- SVM ---


def allocate(context: cl.Context, queue: cl.CommandQueue | None = None) -> cl.SVMAllocation:
    """Allocate SVM that is freed by clSVMFree, or with a queue by clEnqueueSVMFree.

    Outside a block it is not freed with a queue on PoCL, which reads PyOpenCL's list of pointers
    when the command runs. By then the list is gone.
    """
    return cl.SVMAllocation(context, N * 4, 0, cl.svm_mem_flags.READ_WRITE, queue=queue)


def test_svm_copy_fill_and_kernel_arguments(queue: cl.CommandQueue, program: cl.Program) -> None:
    a, b = allocate(queue.context), allocate(queue.context)
    cl.enqueue_copy(queue, a, ramp())
    out = np.zeros(N, np.float32)
    with capture(queue) as graph:
        cl.enqueue_svm_memfill(queue, b, np.full(1, 5, np.float32))
        program.add(queue, (N,), None, b, a, np.float32(2))
        temporary = allocate(queue.context, queue)
        cl.enqueue_copy(queue, temporary, b, is_blocking=False)
        cl.enqueue_copy(queue, b, temporary, is_blocking=False)
        del temporary
    del a  # from before the block, used by a kernel
    gc.collect()
    rubbish = [allocate(queue.context) for _ in range(50)]
    for other in rubbish:
        cl.enqueue_svm_memfill(queue, other, np.full(1, np.nan, np.float32))
    queue.finish()
    assert [node.op for node in graph if node.op != "marker"] == [
        "svm_fill",
        "kernel",
        "svm_copy",
        "svm_copy",
    ]
    graph.finalize().replay(
        queue
    )  # dropped at once: the graph stays until the memory is not used any more
    del graph
    cl.enqueue_copy(queue, out, b)
    assert np.allclose(out, 5 + 2 * ramp(), rtol=1e-6)
    queue.finish()


def test_a_dropped_executable_keeps_host_memory_until_its_replay_has_ended(
    queue: cl.CommandQueue,
) -> None:
    gate = cl.UserEvent(queue.context)
    a = buffer(queue, ramp())
    with capture(queue) as graph:
        cl.enqueue_copy(queue, a, 3 * ramp(), is_blocking=False)
        target = np.zeros(N, np.float32)
        cl.enqueue_copy(queue, target, a, is_blocking=False)
    graph.finalize().replay(queue, times=20, wait_for=[gate])
    del graph
    gc.collect()
    rubbish = [np.full(N, np.nan, np.float32) for _ in range(500)]
    gate.set_status(cl.command_execution_status.COMPLETE)
    queue.finish()
    assert (target == 3 * ramp()).all() and rubbish


# --- arguments set before the block ---


def test_arguments_set_before_the_block_are_refused_and_keep_lifts_it(
    queue: cl.CommandQueue, program: cl.Program
) -> None:
    from fairlead.captured_graphs.context import CaptureError

    a, b = buffer(queue, ramp()), buffer(queue, ramp())
    kernel = program.add
    kernel.set_args(a, b, np.float32(2))
    with pytest.raises(CaptureError, match="set before the block"), capture(queue):
        cl.enqueue_nd_range_kernel(queue, kernel, (N,), None)
    with capture(queue, keep=[a, b]) as graph:
        cl.enqueue_nd_range_kernel(queue, kernel, (N,), None)
    del a
    again = buffer(queue, np.zeros(N, np.float32))
    with capture(queue) as other:
        kernel.set_args(again, b, np.float32(2))
        for _ in range(3):
            cl.enqueue_nd_range_kernel(queue, kernel, (N,), None)
    graph.finalize().replay(queue)
    other.finalize().replay(queue).wait()
    assert np.allclose(content(queue, again), 6 * ramp(), rtol=1e-6)


def test_an_unseen_argument_that_is_set_later_has_both_values(
    queue: cl.CommandQueue, program: cl.Program
) -> None:
    a, b = buffer(queue, np.zeros(N, np.float32)), buffer(queue, ramp())
    kernel = program.add
    kernel.set_args(a, b, np.float32(2))
    with capture(queue, keep=[a, b]) as graph:
        cl.enqueue_nd_range_kernel(queue, kernel, (N,), None)
        kernel.set_arg(2, np.float32(5))
        cl.enqueue_nd_range_kernel(queue, kernel, (N,), None)
    graph.finalize().replay(queue, times=2).wait()
    assert np.allclose(content(queue, a), 14 * ramp(), rtol=1e-5)


def test_pooled_buffers_that_another_function_sets(
    queue: cl.CommandQueue, program: cl.Program
) -> None:
    from pyopencl.tools import ImmediateAllocator, MemoryPool

    pool: Any = MemoryPool(ImmediateAllocator(queue))
    a, kernel = buffer(queue, np.zeros(N, np.float32)), program.add
    held = {"b": pool.allocate(N * 4)}
    cl.enqueue_copy(queue, held["b"], ramp())

    def set_arguments() -> None:
        kernel.set_args(a, held["b"], np.float32(2))

    with capture(queue) as graph:
        set_arguments()
        cl.enqueue_nd_range_kernel(queue, kernel, (N,), None)
    held.clear()
    others = [pool.allocate(N * 4) for _ in range(4)]
    for other in others:
        cl.enqueue_copy(queue, other, np.full(N, 1000, np.float32))
    graph.finalize().replay(queue).wait()
    assert np.allclose(content(queue, a), 2 * ramp(), rtol=1e-6)


@pytest.mark.slow
@pytest.mark.one_driver
def test_reductions_and_scans_of_pyopencl(queue: cl.CommandQueue) -> None:
    x = pyopencl.array.to_device(queue, np.arange(1000, dtype=np.float32) % 7)
    total, running = pyopencl.array.sum(x), pyopencl.array.cumsum(x)
    expected = total.get().tobytes(), running.get().tobytes()
    with capture(queue) as graph:
        total, running = pyopencl.array.sum(x), pyopencl.array.cumsum(x)
    loop = graph.finalize()
    for _ in range(2):
        total.fill(0)
        running.fill(0)
        loop.replay(queue).wait()
        assert (total.get().tobytes(), running.get().tobytes()) == expected


def test_a_block_that_is_dropped_unfinished_gives_its_queues_back(numbers: Numbers) -> None:
    u, v = numbers.new(1), numbers.new(2)
    unfinished = capture(numbers.queue, swap=(u, v))
    graph = unfinished.__enter__()
    numbers.add(1)
    del unfinished
    gc.collect()
    numbers.add(5)
    numbers.queue.finish()
    assert numbers.value() == 5 and graph.state == "failed"
    with capture(numbers.queue, swap=(u, v)) as again:
        numbers.add(1)
    assert len(again) == 1
