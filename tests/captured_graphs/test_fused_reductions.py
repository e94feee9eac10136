"""Reductions and scans calculate what launches wrote for them, and give the same bits."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pyopencl as cl
import pyopencl.array as cl_array
import pytest
from pyopencl.reduction import ReductionKernel
from pyopencl.scan import InclusiveScanKernel

from .test_fusion import Arrays, check

#: Works in groups. `t` is an array that launches before it wrote.
IN_GROUPS = """
kernel void half_of(global const float *x, global float *out) {
    size_t i = get_global_id(0);
    out[i] = 0.5f * x[i];
}
kernel void sums(global const float *t, global float *out, local float *l) {
    size_t i = get_global_id(0), k = get_local_id(0);
    l[k] = t[i];
    barrier(CLK_LOCAL_MEM_FENCE);
    if (k == 0) out[get_group_id(0)] = l[0] + l[1] + l[2] + l[3];
}
kernel void turns(global const float *t, global float *x, local float *l) {
    size_t i = get_global_id(0), k = get_local_id(0);
    l[k] = t[i];
    barrier(CLK_LOCAL_MEM_FENCE);
    x[get_global_size(0) - 1 - i] = l[3 - k];
}
kernel void behind(global const float *t, global float *out, local float *l) {
    size_t i = get_global_id(0), k = get_local_id(0);
    global const float *next = t + 1;
    l[k] = i + 1 < get_global_size(0) ? next[i] : 0;
    barrier(CLK_LOCAL_MEM_FENCE);
    out[i] = l[3 - k];
}
kernel void addresses(global const float *t, global float *out, local float *l) {
    size_t i = get_global_id(0), k = get_local_id(0);
    l[k] = *&t[i];
    barrier(CLK_LOCAL_MEM_FENCE);
    out[i] = l[3 - k];
}
"""


def _is_folded(sources: list[str]) -> bool:
    return any("fl_read" in source for source in sources)


def _folds(queue: cl.CommandQueue) -> bool:
    """On GPUs what a reduction reads stays in memory (rewrites/reductions.py)."""
    return bool(queue.device.type & cl.device_type.CPU)


@pytest.mark.parametrize(
    ("kind", "size"),
    [(np.float32, 1), (np.float32, 10_000), (np.int32, 1000), (np.float64, 777)],
)
def test_sums_of_expressions(queue: cl.CommandQueue, kind: Any, size: int) -> None:
    """10,000 elements take a second kernel, which has the array as an argument, unread."""

    def program(x: Any, y: Any, z: Any) -> list[Any]:
        return [cl_array.sum((x * y - z) * x)]

    sources = check(Arrays(queue, size, kind), program)
    assert _is_folded(sources) is _folds(queue) and len(sources) == 1


def test_two_expressions_of_one_reduction(queue: cl.CommandQueue) -> None:
    def program(x: Any, y: Any, z: Any) -> list[Any]:
        return [cl_array.dot(x - y, z * z), cl_array.max(abs(x - z))]

    assert _is_folded(check(Arrays(queue, 1000), program)) is _folds(queue)


def test_what_stands_before_stays(queue: cl.CommandQueue) -> None:
    """`x` and `kept` are written by the launches, `x - y` only for the reduction."""

    def program(x: Any, y: Any, z: Any) -> list[Any]:
        x += z
        kept = x * y
        return [kept, cl_array.sum((x - y) * (x - y))]

    assert _is_folded(check(Arrays(queue, 1000), program)) is _folds(queue)


def test_what_others_read_is_written(queue: cl.CommandQueue) -> None:
    def program(x: Any, y: Any, z: Any) -> list[Any]:
        one = x * y
        total = cl_array.sum(one)
        y += one
        held = x + z
        return [total, held, cl_array.sum(held), cl_array.sum((x - z)[10:])]

    assert not _is_folded(check(Arrays(queue, 1000), program))


def test_special_numbers(queue: cl.CommandQueue) -> None:
    """NaN, infinities, numbers that are denormal, and products that round."""
    arrays = Arrays(queue, 4096)
    for array, before in zip(arrays.inputs, arrays._before, strict=True):
        before[::97] = np.nan if array is arrays.inputs[0] else 1e-40
        before[5::101] *= np.float32(1e-38)
        array.set(before)
    count: Any = ReductionKernel(
        queue.context,
        np.float32,
        "0",
        "a + b",
        "isnan(t[i]) ? 1 : t[i] * u[i]",
        "__global const float *t, __global const float *u",
        name="without_nan",
    )

    def program(x: Any, y: Any, z: Any) -> list[Any]:
        return [count(x * y - z, y * z)]

    assert _is_folded(check(arrays, program)) is _folds(queue)


def test_scans(queue: cl.CommandQueue) -> None:
    scan = InclusiveScanKernel(queue.context, np.dtype(np.int32), "a+b", neutral="0")

    def program(x: Any, y: Any, z: Any) -> list[Any]:
        scan(x * y - z, z)
        return []

    check(Arrays(queue, 1000, np.int32), program)


@pytest.mark.parametrize("name", ["sums", "turns", "behind", "addresses"])
def test_kernels_that_work_in_groups(queue: cl.CommandQueue, name: str) -> None:
    """`turns` writes what the launch before it reads. Two read the array in other ways."""
    kernels: Any = cl.Program(queue.context, IN_GROUPS).build()

    def program(x: Any, y: Any, z: Any) -> list[Any]:
        made = cl.Buffer(queue.context, cl.mem_flags.READ_WRITE, x.nbytes)
        kernels.half_of(queue, (x.size,), None, x.data, made)
        out = x if name == "turns" else y
        getattr(kernels, name)(queue, (x.size,), (4,), made, out.data, cl.LocalMemory(16))
        return []

    sources = check(Arrays(queue, 64), program, is_fused=False)
    assert _is_folded(sources) is (name == "sums" and _folds(queue))


def test_parts_of_a_buffer_are_written(queue: cl.CommandQueue) -> None:
    """Nobody else refers to a sub-buffer, and all see its bytes in the whole."""
    kernels: Any = cl.Program(queue.context, IN_GROUPS).build()

    def program(x: Any, y: Any, z: Any) -> list[Any]:
        part = y.data.get_sub_region(0, x.nbytes // 2)
        kernels.half_of(queue, (x.size // 2,), None, x.data, part)
        kernels.half_of(queue, (x.size // 2,), None, part, z.data)
        kernels.sums(queue, (x.size // 2,), (4,), part, x.data, cl.LocalMemory(16))
        return []

    check(Arrays(queue, 64), program, is_fused=False)


def _write_program(made: random.Random) -> Any:
    def program(*arrays: Any) -> list[Any]:
        pool, results = list(arrays), list[Any]()
        for _ in range(8):
            one, other = made.choice(pool), made.choice(pool)
            action = made.randrange(7)
            if action == 0:
                one += other
            elif action == 1:
                pool.append(one * other)
            elif action == 2:
                pool.append(one - np.float32(made.random()))
            elif action == 3:
                results.append(cl_array.sum(one * other))
            elif action == 4:
                results.append(cl_array.dot(one + other, one))
            elif action == 5:
                results.append(cl_array.max(abs(one) - other))
            else:
                results.append(cl_array.sum(one))
        return [*results, made.choice(pool)]

    return program


@pytest.mark.parametrize(
    "seed", [*range(2), *(pytest.param(n, marks=pytest.mark.thorough) for n in range(2, 40))]
)
def test_random_programs(queue: cl.CommandQueue, seed: int) -> None:
    made = random.Random(seed)

    def program(*arrays: Any) -> list[Any]:
        made.seed(seed)
        return _write_program(made)(*arrays)

    check(Arrays(queue, (1, 127, 1000, 10_000)[seed % 4]), program, is_fused=False)
