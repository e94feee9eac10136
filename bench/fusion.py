"""Ten operations of `pyopencl.array`, fused, beside what else computes them: NumPy, numba and JAX.

All sides compute the same function of three arrays of floats. OpenCL's sides and numba's must give
NumPy's bits; JAX may contract a multiplication and an addition. numba runs it in all threads and in
one, and the faster counts. What is not installed is left out (`pip install -e '.[bench]'`).

Then two of the examples, as captured against fused.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyopencl.array as cl_array

import fairlead

from .measuring import Row, Target, in_turns, ratio, summary
from .work import make_queue

_EXAMPLES: Final = str(Path(__file__).resolve().parent.parent / "examples")
_SIZES: Final = {"1 Ki": 1 << 10, "64 Ki": 1 << 16, "1 Mi": 1 << 20, "16 Mi": 1 << 24}
#: The most that a replay may take, as a part of the best of numba and JAX: on PoCL, on others.
_TARGETS: Final = {
    "1 Ki": (0.45, 2.5),
    "64 Ki": (0.6, 1.1),
    "1 Mi": (0.95, 1.05),
    "16 Mi": (1.0, 0.9),
}
_LEAST: Final = 60  # PyOpenCL's calls ÷ fused replay on PoCL, from 64 Ki floats on
_WARM: Final = 150  # replays after which a graph has decided how it runs
_WARM_LARGE: Final = 40
_FUSED: Final = "fused"


def compute(x: Any, y: Any, z: Any) -> Any:
    """The ten operations, on arrays of any kind."""
    a = x * y + z
    b = a * x - y
    c = b * z + a
    d = c - x * b
    return d * y + c


def measure(quick: bool) -> list[Row]:
    """Measure everything on this process's driver."""
    rows: list[Row] = []
    for name, size in _SIZES.items():
        if not (quick and size > 1 << 16):
            rows += _measure_arrays(name, size, quick)
    return [*rows, *_measure_examples(quick)]


def _measure_arrays(name: str, size: int, quick: bool) -> list[Row]:
    queue = make_queue()
    host = list(np.random.default_rng(1).random((3, size), np.float32))
    arrays = [cl_array.to_device(queue, one) for one in host]
    with fairlead.capture(queue) as graph:
        out = compute(*arrays)
    # the fused one first: another loop would have references to the temporaries
    loops = {_FUSED: graph.finalize(fuse="wait"), "as captured": graph.finalize(fuse=False)}
    expected = compute(*host).tobytes()
    for what, loop in loops.items():
        out.fill(0)
        for _ in range(_WARM if size < 1 << 22 else _WARM_LARGE):
            loop.replay(queue, wait=True)
        if out.get().tobytes() != expected:
            raise SystemExit(f"{what}: the arrays have other bits than NumPy's")

    def call() -> None:
        compute(*arrays)
        queue.finish()

    actions: dict[str, Callable[[], object]] = {
        what: (lambda loop=loop: loop.replay(queue, wait=True)) for what, loop in loops.items()
    }
    actions |= {"PyOpenCL": call, "NumPy": lambda: compute(*host)}
    others = {**_make_numba(host, expected), **_make_jax(host)}
    rounds = 3 if quick or size > 1 << 22 else 11 if size > 1 << 18 else 51
    samples = in_turns({**actions, **others}, rounds)
    series = {what: summary(found) for what, found in samples.items()}
    note = "" if loops[_FUSED].fused else _explain(loops[_FUSED], queue)
    is_pocl = "Portable" in queue.device.platform.name
    title, unit = f"ten array operations on {name} floats", "µs"
    rows = [
        ratio(f"{title}: as captured ÷ fused", samples, "as captured", _FUSED, None, unit, note),
        ratio(
            f"{title}: PyOpenCL ÷ fused",
            samples,
            "PyOpenCL",
            _FUSED,
            Target("≥", _LEAST) if is_pocl and size > 1 << 15 else None,
            unit,
            note,
        ),
        ratio(f"{title}: NumPy ÷ fused", samples, "NumPy", _FUSED, None, unit, note),
    ]
    if others:
        best = min(others, key=lambda what: series[what]["median"])
        bound = Target("≤", _TARGETS[name][0 if is_pocl else 1])
        least = ", ".join(f"{what} {series[what]['median']:.4g}" for what in others)
        text = f"µs: {least}{'; ' if note else ''}{note}"
        rows.append(ratio(f"{title}: fused ÷ {best}", samples, _FUSED, best, bound, unit, text))
    return rows


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
        rows.append(_compare(what, queue, lambda one=one: one.step(queue), 1.8, quick))
    return rows


def _compare(what: str, queue: Any, record: Callable[[], object], least: float, quick: bool) -> Row:
    with fairlead.capture(queue) as graph:
        record()
    loops = {_FUSED: graph.finalize(fuse="wait"), "as captured": graph.finalize(fuse=False)}
    for loop in loops.values():
        for _ in range(_WARM):
            loop.replay(queue, wait=True)
    actions = {
        name: (lambda loop=loop: loop.replay(queue, wait=True)) for name, loop in loops.items()
    }
    samples = in_turns(actions, 5 if quick else 51)
    fused = loops[_FUSED]
    note = f"fused kernels: {len(fused.fused)}" if fused.fused else _explain(fused, queue)
    title = f"examples/{what}: as captured ÷ fused"
    return ratio(title, samples, "as captured", _FUSED, Target("≥", least), "µs", note)
