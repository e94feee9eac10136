"""Reductions and scans calculate what launches wrote for them, and give the same bits."""

from __future__ import annotations

import random
from importlib import import_module
from typing import Any

import numpy as np
import pyopencl as cl
import pyopencl.array as cl_array
import pytest
from helpers.support import ROOT
from pyopencl.elementwise import ElementwiseKernel
from pyopencl.reduction import ReductionKernel
from pyopencl.scan import InclusiveScanKernel

from fairlead import Parameter
from fairlead.captured_graphs.context import capture

from .test_fusion import Arrays, check

HALF = """
kernel void half_of(global const float *x, global float *out) {
    size_t i = get_global_id(0);
    out[i] = 0.5f * x[i];
}
"""


def _is_folded(sources: list[str]) -> bool:
    """Whether a reduction is one kernel with launches before it."""
    return any("fl_sums" in source and "fl_kernel_1" in source for source in sources)


def _folds(queue: cl.CommandQueue) -> bool:
    """On GPUs what a reduction reads stays in memory (rewrites/runs.py)."""
    return bool(queue.device.type & cl.device_type.CPU)


@pytest.mark.parametrize(
    ("kind", "size"), [(np.float32, 1), (np.float32, 10_000), (np.int32, 1000), (np.float64, 777)]
)
def test_sums_of_expressions(queue: cl.CommandQueue, kind: Any, size: int) -> None:
    """10,000 elements take a second kernel, which has the array as an argument, unread."""

    def program(x: Any, y: Any, z: Any) -> list[Any]:
        return [cl_array.sum((x * y - z) * x)]

    sources = check(Arrays(queue, size, kind), program)
    assert _is_folded(sources) is _folds(queue)
    assert len(sources) == 1 + (size == 10_000 and _folds(queue))


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

    assert _is_folded(check(Arrays(queue, 1000), program)) is _folds(queue)


def test_what_changes_after_a_reduction_is_written(queue: cl.CommandQueue) -> None:
    def program(x: Any, y: Any, z: Any) -> list[Any]:
        one = x * y
        first = cl_array.sum(one)
        one += z
        return [first, cl_array.sum(one)]

    assert _is_folded(check(Arrays(queue, 1000), program)) is _folds(queue)


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


def test_parts_of_a_buffer_are_written(queue: cl.CommandQueue) -> None:
    """Nobody else refers to a sub-buffer, and all see its bytes in the whole."""
    kernels: Any = cl.Program(queue.context, HALF).build()

    def program(x: Any, y: Any, z: Any) -> list[Any]:
        part = y.data.get_sub_region(0, x.nbytes // 2)
        kernels.half_of(queue, (x.size // 2,), None, x.data, part)
        kernels.half_of(queue, (x.size // 2,), None, part, z.data)
        return [cl_array.sum(z)]

    check(Arrays(queue, 64), program, is_fused=False)


def test_parts_of_arrays(queue: cl.CommandQueue) -> None:
    """A reduction may begin anywhere, take steps, and put its result anywhere."""
    total: Any = ReductionKernel(queue.context, np.float32, "0", "a+b", "x[i]", "float *x")

    def program(x: Any, y: Any, z: Any) -> list[Any]:
        y += x
        total(y, slice=slice(3, 900, 7), out=z[5:6])
        z *= y
        total(z, range=slice(100, 1000), out=x[7:8])
        return [cl_array.sum(y[11:])]

    sources = check(Arrays(queue, 1000), program)
    assert sum("fl_sums" in source for source in sources) == 3 * _folds(queue)


def test_the_result_is_memory_of_launches_before(queue: cl.CommandQueue) -> None:
    """Other items read what a group writes: these launches stay apart."""
    total: Any = ReductionKernel(
        queue.context, np.float32, "0", "a+b", "x[i] - y[i]", "float *x, float *y"
    )

    def program(x: Any, y: Any, z: Any) -> list[Any]:
        y += x[5] * z
        total(y, z, out=x[5:6])
        y -= x
        total(y, z, out=y[7:8])
        return []

    sources = check(Arrays(queue, 3000), program, is_fused=False)
    assert not _is_folded(sources)


def test_expressions_of_their_own(queue: cl.CommandQueue) -> None:
    """Helpers, numbers, constants; a sum that is not a built-in type stays as it is."""
    norm: Any = ReductionKernel(
        queue.context,
        np.float32,
        "START",
        "join(a, b)",
        "scale * fabs(x[i] - y[i]) * y[0]",
        "float scale, const float *x, const float *y",
        preamble="#define START -1\nfloat join(float a, float b) { return a > b ? a : b; }",
    )

    def program(x: Any, y: Any, z: Any) -> list[Any]:
        both = x * y
        return [norm(np.float32(0.75), both - z, y), cl_array.sum(both.astype(np.complex64))]

    assert _is_folded(check(Arrays(queue, 2500), program)) is _folds(queue)


def test_a_reduction_of_a_graph_that_changes(queue: cl.CommandQueue) -> None:
    factor = Parameter(np.float32(0.5))
    x: Any = cl_array.to_device(queue, np.arange(3000, dtype=np.float32))
    scale: Any = ElementwiseKernel(queue.context, "float *z, float *x, float a", "z[i] = a * x[i]")
    total: Any = cl_array.empty(queue, (), np.float32)
    y = cl_array.empty_like(x)
    with capture(queue) as graph:
        scale(y, x, factor)
        result = cl_array.dot(y, x)
        total[()] = result
    for fuse in ("wait", False):
        loop, found = graph.finalize(fuse=fuse), list[float]()
        for number in (0.5, 0.5, 2, 0.25):
            loop.replay(queue, factor=np.float32(number), wait=True)
            found.append(float(total.get()))
        assert found == [found[0], found[0], 4 * found[0], found[0] / 2]


@pytest.mark.parametrize("side", [12, 80])
def test_conjugate_gradients_pass_over_memory_three_times(
    queue: cl.CommandQueue, monkeypatch: pytest.MonkeyPatch, side: int
) -> None:
    """The product and its sum; x, the residual and its sum; and the next direction."""
    monkeypatch.syspath_prepend(str(ROOT / "examples"))
    example: Any = import_module("conjugate_gradient_arrays")
    solver = example.Solver(queue, example.make_problem(side)[1])
    with capture(queue) as graph:
        solver.iterate()
    found: dict[Any, bytes] = {}
    for fuse in ("wait", "check", False):
        loop = graph.finalize(fuse=fuse)
        if fuse == "wait" and loop.fused and _folds(queue):
            lines = loop.explain(queue).splitlines()
            taken = [line.split()[1] for line in lines if "are one fused kernel" in line]
            assert taken in (
                ["0–1", "3–7", "9–11", "12–13"],
                ["0–1", "4–8", "11–13", "14–15"],  # a reduction has a second kernel
            )
        solver.reset()
        for _ in range(12):
            loop.replay(queue, wait=True)
        found[fuse] = solver.x.get().tobytes() + solver.r.get().tobytes()
    assert len({*found.values()}) == 1


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
