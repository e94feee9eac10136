"""Ten operations of `pyopencl.array`, fused, beside what else computes them: NumPy, numba and JAX.

All sides compute the same function of three arrays of floats. OpenCL's sides and numba's must give
NumPy's bits; JAX may contract a multiplication and an addition. numba runs it in all threads and in
one, and the faster counts. What is not installed is left out (`pip install -e '.[bench]'`).

A graph is made to be replayed in a loop, and the figures that the targets come from were measured
so. What the caches hold (1 Ki and 64 Ki floats) is therefore taken 200 times in a row, as `timeit`
does. With 20 in a row most of the time was that of the first one, which meets the caches of the
side before it. That is another question, which a row of its own answers: each side once in a round,
after another one or NumPy, without a target.

On an NVIDIA GPU the other side is `torch.compile` in a CUDA graph, with two settings, of which the
faster counts. It may contract, too. There a sample is a hundred replays and one wait for them.

Then examples, as captured against fused. That of conjugate gradients is beside the same iteration
in numba, whose sums may take any order, and beside SciPy's solver.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from importlib import import_module
from itertools import count
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any, Final

import numpy as np
import pyopencl as cl
import pyopencl.array as cl_array
from pyopencl.scan import GenericScanKernel

import fairlead

from .measuring import Row, Target, in_turns, ratio, summary
from .work import make_queue

_EXAMPLES: Final = str(Path(__file__).resolve().parent.parent / "examples")
_SIZES: Final = {"1 Ki": 1 << 10, "64 Ki": 1 << 16, "1 Mi": 1 << 20, "16 Mi": 1 << 24}
#: The most that a replay may take, as a part of the best of the others, by the platform's name.
_TARGETS: Final = {
    "Portable": {"1 Ki": 0.45, "64 Ki": 0.6, "1 Mi": 0.95, "16 Mi": 1.0},
    "Intel": {"1 Ki": 2.5, "64 Ki": 1.1, "1 Mi": 1.05, "16 Mi": 0.9},
    "NVIDIA": {"1 Ki": 1.0, "64 Ki": 1.0, "1 Mi": 0.9, "16 Mi": 1.05},
}
#: The least of PyOpenCL's calls ÷ fused replay on PoCL.
_LEAST: Final = {"64 Ki": 60, "1 Mi": 200}
#: No graph may be slower with fusion.
_NOT_SLOWER: Final = Target("≥", 0.95)
#: Replays after which a graph has decided how it runs; those of a slow one; and what is slow.
_WARM: Final = 150
_WARM_SLOW: Final = 20
_WARM_SECONDS: Final = 2.0
_TURNS: Final = 100  # replays in one sample on a GPU
#: The same on a CPU for arrays that its caches hold, and of how many floats these are at most.
_SMALL_TURNS: Final = 200
_SMALL: Final = 1 << 16
_ITERATIONS: Final = 20  # of conjugate gradients, in one call
_FUSED: Final = "fused"


def compute(x: Any, y: Any, z: Any) -> Any:
    """The ten operations, on arrays of any kind."""
    a = x * y + z
    b = a * x - y
    c = b * z + a
    d = c - x * b
    return d * y + c


def measure(quick: bool) -> Iterator[Row]:
    """Measure everything on this process's driver, row by row."""
    for name, size in _SIZES.items():
        if not (quick and size > 1 << 16):
            yield from _measure_arrays(name, size, quick)
    yield from _measure_planning(quick)
    yield _measure_first_replays(quick)
    if _name_platform(make_queue()) == "Portable":  # Intel's compiles in clBuildProgram
        yield _measure_cold_scan(quick)
    yield from _measure_examples(quick)
    for side in (64,) if quick else (256, 1024):
        yield from _measure_solver(side, quick)


def _warm_up(replay: Callable[[], object]) -> None:
    """Replay until a graph has decided how it runs. Slow ones decide between few ways."""
    start = time.perf_counter()
    for number in range(_WARM):
        replay()
        if number >= _WARM_SLOW and time.perf_counter() - start > _WARM_SECONDS:
            break


def _measure_arrays(name: str, size: int, quick: bool) -> list[Row]:
    queue = make_queue()
    host = list(np.random.default_rng(1).random((3, size), np.float32))
    arrays = [cl_array.to_device(queue, one) for one in host]
    with fairlead.capture(queue) as graph:
        out = compute(*arrays)
    platform = _name_platform(queue)
    is_gpu = platform == "NVIDIA"
    takes_seconds = size > 1 << 22 and not is_gpu
    # the fused one first: another loop would have references to the temporaries
    loops = {_FUSED: graph.finalize(fuse="wait")}
    if not takes_seconds:
        loops["as captured"] = graph.finalize(fuse=False)
    expected = compute(*host).tobytes()
    for what, loop in loops.items():
        out.fill(0)
        _warm_up(lambda loop=loop: loop.replay(queue, wait=True))
        if out.get().tobytes() != expected:
            raise SystemExit(f"{what}: the arrays have other bits than NumPy's")

    # a GPU is kept busy, as by a program that waits once at its end; on a CPU each replay is
    # waited for, so the calling thread may do the work
    turns = _TURNS if is_gpu else _SMALL_TURNS if size <= _SMALL else 1

    def repeat(action: Callable[[], object], *, finishes: bool = False) -> Callable[[], object]:
        def act() -> None:
            for _ in range(turns):
                action()
            if finishes:
                queue.finish()

        return act

    actions: dict[str, Callable[[], object]] = {
        what: repeat(lambda loop=loop: loop.replay(queue, wait=not is_gpu), finishes=is_gpu)
        for what, loop in loops.items()
    }
    if not takes_seconds:
        actions["PyOpenCL"] = repeat(lambda: compute(*arrays), finishes=True)
    once: dict[str, Callable[[], object]] = {}
    if is_gpu:
        others = _make_torch(host, expected)
    else:
        actions["NumPy"] = repeat(lambda: compute(*host))
        once = {**_make_numba(host, expected), **_make_jax(host)}
        others = {what: repeat(action) for what, action in once.items()}
    rounds = 3 if quick else 7 if size > 1 << 22 else 11 if size > 1 << 18 else 51
    samples = _keep_faster_numba(in_turns({**actions, **others}, rounds, turns))
    note = "" if loops[_FUSED].fused else _explain(loops[_FUSED], queue)
    title, unit = f"ten array operations on {name} floats", "µs"
    least = Target("≥", _LEAST[name]) if platform == "Portable" and name in _LEAST else None
    targets = {"as captured": _NOT_SLOWER, "PyOpenCL": least}
    rows = [
        ratio(f"{title}: {one} ÷ fused", samples, one, _FUSED, targets.get(one), unit, note)
        for one in samples
        if one != _FUSED
    ]
    if others:
        bound = Target("≤", _TARGETS.get(platform, _TARGETS["Intel"])[name])
        rows.append(_compare_with_best(title, samples, list(others), bound, note))
    if others and turns == _SMALL_TURNS:
        once[_FUSED] = lambda: loops[_FUSED].replay(queue, wait=True)
        cold = _keep_faster_numba(in_turns({**once, "NumPy": lambda: compute(*host)}, rounds))
        rows.append(_compare_with_best(f"{title}, once after others", cold, list(others), None))
    return rows


def _compare_with_best(
    title: str,
    samples: Mapping[str, Sequence[float]],
    others: Sequence[str],
    bound: Target | None,
    note: str = "",
) -> Row:
    medians = {what: median(samples[what]) for what in others if what in samples}
    best = min(medians, key=lambda what: medians[what])
    what = f"{title}: fused ÷ the best, {best}"
    return ratio(what, samples, _FUSED, best, bound, "µs", note)


def _keep_faster_numba(samples: Mapping[str, list[float]]) -> dict[str, list[float]]:
    kept = {what: taken for what, taken in samples.items() if not what.startswith("numba")}
    forms = [taken for what, taken in samples.items() if what not in kept]
    return {**kept, "numba": min(forms, key=median)} if forms else kept


def _name_platform(queue: cl.CommandQueue) -> str:
    return queue.device.platform.name.split()[0].partition("(")[0]


def _explain(loop: Any, queue: Any) -> str:
    """Why nothing of a graph is fused: the first reason."""
    return next(line.strip() for line in loop.explain(queue).splitlines() if "not fused" in line)


def _make_numba(host: list[np.ndarray], expected: bytes) -> dict[str, Callable[[], object]]:
    try:
        numba: Any = import_module("numba")
    except ImportError:
        return {}
    out = np.empty_like(host[0])

    def loop(x: Any, y: Any, z: Any, out: Any) -> None:
        for i in numba.prange(len(x)):
            a = x[i] * y[i] + z[i]
            b = a * x[i] - y[i]
            c = b * z[i] + a
            d = c - x[i] * b
            out[i] = d * y[i] + c

    found: dict[str, Callable[[], object]] = {}
    for name, parallel in (("numba", True), ("numba, one thread", False)):
        made: Any = numba.njit(parallel=parallel)(loop)
        made(*host, out)
        if out.tobytes() != expected:
            raise SystemExit(f"{name}: other bits than NumPy's")
        found[name] = lambda made=made: made(*host, out)
    return found


def _make_jax(host: list[np.ndarray]) -> dict[str, Callable[[], object]]:
    try:
        jax: Any = import_module("jax")
    except ImportError:
        return {}
    made, arrays = jax.jit(compute), [jax.device_put(one) for one in host]
    return {"JAX": lambda: made(*arrays).block_until_ready()}


def _make_torch(host: list[np.ndarray], expected: bytes) -> dict[str, Callable[[], object]]:
    """Make actions that replay a CUDA graph of a compiled function a hundred times."""
    try:
        torch: Any = import_module("torch")
    except ImportError:
        return {}
    arrays = [torch.from_numpy(one).cuda() for one in host]
    found: dict[str, Callable[[], object]] = {}
    for mode in ("default", "max-autotune-no-cudagraphs"):
        torch.compiler.reset()
        made = torch.compile(compute, mode=mode)
        for _ in range(3):
            out = made(*arrays)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            out = made(*arrays)
        graph.replay()
        # contraction changes last bits, and differences of near numbers show more of them
        if not np.allclose(out.cpu().numpy(), np.frombuffer(expected, np.float32), 1e-4, 1e-5):
            raise SystemExit(f"torch.compile, {mode}: other numbers than NumPy's")

        def act(graph: Any = graph, out: Any = out) -> None:  # `out` keeps the graph's result
            for _ in range(_TURNS):
                graph.replay()
            torch.cuda.synchronize()

        found[f"torch.compile, {mode}"] = act
    return found


# what planning costs


def _measure_planning(quick: bool) -> Iterator[Row]:
    """Measure the CPU time that a node of an updatable graph adds to `finalize`.

    All runs have the same sources, which are compiled once. So differences leave compilers out.
    """
    title = "planning of an updatable graph, CPU time a node"
    yield from _measure_nodes(title, (1_000, 10_000) if quick else (1_000, 10_000, 100_000), False)
    yield from _measure_nodes(f"{title}, new buffers in each", (1_000, 10_000), True)


def _measure_nodes(title: str, sizes: Sequence[int], has_new: bool) -> list[Row]:
    queue = make_queue()
    seconds: dict[int, float] = {}
    for size in sizes:
        x, y = (cl_array.zeros(queue, 1024, np.float32) for _ in range(2))
        with fairlead.capture(queue) as graph:
            for _ in range(size):
                if has_new:
                    x = x + y
                else:
                    x += y
        taken = {how: _time_finalize(graph, how) for how in (False, "wait")}
        seconds[size] = taken["wait"] - taken[False]
    few, *_, many = seconds
    each = {
        size: 1e6 * (seconds[size] - seconds[few]) / (size - few) for size in seconds if size != few
    }
    rows = [Row(title, each[10_000], "µs", Target("≤", 50))]
    if many != 10_000:
        ratio_of_sizes = each[many] / each[10_000]
        rows.append(Row(f"{title}: {many:,} ÷ 10,000 nodes", ratio_of_sizes, "", Target("≤", 1.2)))
    return rows


def _time_finalize(graph: Any, how: str | bool) -> float:
    """Return the CPU time of `finalize`, the least of three."""
    found: list[float] = []
    for _ in range(3):
        start = time.process_time()
        graph.finalize(updatable=True, fuse=how)
        found.append(time.process_time() - start)
    return min(found)


def _measure_first_replays(quick: bool) -> Row:
    """Measure the CPU time of `finalize` and the first replay, of kernels that no cache has."""
    queue, fresh = make_queue(), count(int(time.time()))
    memory = cl.Buffer(queue.context, cl.mem_flags.READ_WRITE, 4096)
    samples: dict[str, list[float]] = {"auto": [], "False": []}
    for number in range(6 if quick else 40):  # a compiler takes one of two times, at random
        for how, taken in list(samples.items())[:: -1 if number % 2 else 1]:
            source = f"kernel void add(global float *a) {{ a[get_global_id(0)] += {next(fresh)}; }}"
            add = cl.Program(queue.context, source).build().add
            with fairlead.capture(queue) as graph:
                for _ in range(10):
                    add(queue, (1024,), None, memory)
            start = time.process_time()
            graph.finalize(fuse=how == "auto" and "auto").replay(queue)
            taken.append(1e6 * (time.process_time() - start))
            queue.finish()
    title = "finalize and first replay of a new kernel, CPU time: fuse=auto ÷ False"
    return ratio(title, samples, "auto", "False", Target("≤", 1.05), "µs")


def run_scan(how: str) -> float:
    """Return the seconds of a scan's first call, or of the first replay of a captured one."""
    queue = make_queue()
    x = cl_array.to_device(queue, np.ones(128, np.float32))
    scan = GenericScanKernel(
        queue.context,
        np.float32,
        "__global float *x",
        input_expr="x[i]",
        scan_expr="a + b",
        neutral="0",
        output_statement="x[i] = item;",
    )
    with fairlead.capture(queue) as graph:
        scan(x, queue=queue)
    loop = graph.finalize()
    start = time.perf_counter()
    if how == "call":
        scan(x, queue=queue)
    else:
        loop.replay(queue)
    queue.finish()
    seconds = time.perf_counter() - start
    if (x.get() != np.arange(1, 129)).any():
        raise SystemExit(f"{how}: the scan is wrong")
    return seconds


def _measure_cold_scan(quick: bool) -> Row:
    """Measure both in processes of their own, whose caches are empty."""
    samples: dict[str, list[float]] = {"replay": [], "call": []}
    for _ in range(1 if quick else 3):
        for how, taken in samples.items():
            with TemporaryDirectory() as folder:
                caches = dict.fromkeys(("POCL_CACHE_DIR", "PYOPENCL_CACHE_DIR"), folder)
                command = [sys.executable, "-m", "bench.fusion", how]
                told = subprocess.check_output(command, env={**os.environ, **caches}, text=True)
                taken.append(1e3 * float(told.split()[-1]))
    title = "first replay of a scan of 128 floats, no cache, ÷ its first call"
    return ratio(title, samples, "replay", "call", Target("≤", 1.2), "ms")


# the examples


def _measure_examples(quick: bool) -> list[Row]:
    sys.path.insert(0, _EXAMPLES)
    array_program: Any = import_module("array_program")
    wave: Any = import_module("wave")
    queue = make_queue()
    arrays = [cl_array.to_device(queue, one) for one in array_program.begin(1024)]
    rows = [
        _compare("array_program.py, 1 Ki", queue, lambda: array_program.day(*arrays), 12, quick)
    ]
    for size in (64,) if quick else (64, 1024):
        wave.SIZE = size
        wave.PLACE = np.int32(size // 3 * size + size // 2)
        one = wave.Wave(queue)
        one.reset()
        what = f"wave.py, {size}²"
        least = 1.8 if _name_platform(queue) == "Intel" else 0.95
        rows.append(_compare(what, queue, lambda one=one: one.step(queue), least, quick))
    return rows


# conjugate gradients


def _measure_solver(side: int, quick: bool) -> list[Row]:
    """Measure an iteration of examples/conjugate_gradient_arrays.py."""
    example: Any = import_module("conjugate_gradient_arrays")
    queue = make_queue()
    _, b = example.make_problem(side)
    solver = example.Solver(queue, b)
    with fairlead.capture(queue) as graph:
        solver.iterate()
    loops = {_FUSED: graph.finalize(fuse="wait"), "as captured": graph.finalize(fuse=False)}
    for loop in loops.values():
        _warm_up(lambda loop=loop: loop.replay(queue, wait=True))
    others = {**_make_numba_solver(b, side), **_make_scipy_solver(b, side)}
    found: dict[str, np.ndarray] = {}
    for name, loop in loops.items():
        solver.reset()
        loop.replay(queue, times=_ITERATIONS, wait=True)
        found[name] = solver.x.get()
    found |= {name: solve() for name, (_, solve) in others.items()}
    for name, x in found.items():
        if not np.allclose(x, found["as captured"], rtol=1e-3, atol=1e-3 * np.abs(x).max()):
            raise SystemExit(f"{name}: another solution than that of the graph as captured")
    solver.reset()
    actions: dict[str, Callable[[], object]] = {
        name: (lambda loop=loop: loop.replay(queue, times=_ITERATIONS, wait=True))
        for name, loop in loops.items()
    }
    actions |= {name: action for name, (action, _) in others.items()}
    samples = in_turns(actions, 3 if quick else 7, commands=_ITERATIONS)
    series = {what: summary(taken) for what, taken in samples.items()}
    title, unit = f"conjugate gradients on {side}² unknowns", "µs an iteration"
    rows = [
        ratio(f"{title}: as captured ÷ fused", samples, "as captured", _FUSED, _NOT_SLOWER, unit)
    ]
    if others:
        best = min(others, key=lambda what: series[what]["median"])
        bound = Target("≤", 1.2) if side == 1024 else None
        text = "µs: " + ", ".join(f"{what} {series[what]['median']:.4g}" for what in others)
        rows.append(ratio(f"{title}: fused ÷ {best}", samples, _FUSED, best, bound, unit, text))
    return rows


#: How to take some iterations, and what returns x after them, from the beginning.
_Solver = tuple[Callable[[], object], Callable[[], np.ndarray]]


def _make_numba_solver(b: np.ndarray, side: int) -> dict[str, _Solver]:
    try:
        numba: Any = import_module("numba")
    except ImportError:
        return {}

    def iterate(x: Any, r: Any, p: Any, q: Any, rr: Any, side: int) -> Any:
        pq = np.float32(0)
        for row in numba.prange(1, side + 1):  # p has zeros around it
            for at in range(1, side + 1):
                beside = p[row, at - 1] + p[row, at + 1]
                one = 4 * p[row, at] - beside - (p[row - 1, at] + p[row + 1, at])
                q[row - 1, at - 1] = one
                pq += p[row, at] * one
        alpha, before = rr / pq, rr
        rr = np.float32(0)
        for row in numba.prange(side):
            for at in range(side):
                x[row, at] += alpha * p[row + 1, at + 1]
                one = r[row, at] - alpha * q[row, at]
                r[row, at] = one
                rr += one * one
        beta = rr / before
        for row in numba.prange(side):
            for at in range(side):
                p[row + 1, at + 1] = r[row, at] + beta * p[row + 1, at + 1]
        return rr

    found: dict[str, _Solver] = {}
    for name, parallel in (("numba", True), ("numba, one thread", False)):
        made: Any = numba.njit(parallel=parallel, fastmath=True)(iterate)

        def run(made: Any = made) -> np.ndarray:
            r = b.reshape(side, side).copy()
            x, p, q, rr = np.zeros_like(r), np.pad(r, 1), np.empty_like(r), np.dot(b, b)
            for _ in range(_ITERATIONS):
                rr = made(x, r, p, q, rr, side)
            return x.ravel()

        found[name] = run, run
    return found


def _make_scipy_solver(b: np.ndarray, side: int) -> dict[str, _Solver]:
    try:
        sparse: Any = import_module("scipy.sparse")
        linalg: Any = import_module("scipy.sparse.linalg")
    except ImportError:
        return {}
    line = sparse.diags_array([-1, 2, -1], offsets=[-1, 0, 1], shape=(side, side))
    one = sparse.eye_array(side)
    matrix = (sparse.kron(one, line) + sparse.kron(line, one)).tocsr().astype(np.float32)

    def run() -> np.ndarray:
        return linalg.cg(matrix, b, rtol=0, maxiter=_ITERATIONS)[0]

    return {"SciPy": (run, run)}


def _compare(what: str, queue: Any, record: Callable[[], object], least: float, quick: bool) -> Row:
    with fairlead.capture(queue) as graph:
        record()
    loops = {_FUSED: graph.finalize(fuse="wait"), "as captured": graph.finalize(fuse=False)}
    for loop in loops.values():
        _warm_up(lambda loop=loop: loop.replay(queue, wait=True))
    actions = {
        name: (lambda loop=loop: loop.replay(queue, wait=True)) for name, loop in loops.items()
    }
    samples = in_turns(actions, 5 if quick else 51)
    fused = loops[_FUSED]
    note = f"fused kernels: {len(fused.fused)}" if fused.fused else _explain(fused, queue)
    title = f"examples/{what}: as captured ÷ fused"
    return ratio(title, samples, "as captured", _FUSED, Target("≥", least), "µs", note)


if __name__ == "__main__":
    print(run_scan(sys.argv[1]))
