"""The example of a Dask cluster computes what NumPy computes, and draws it."""

from __future__ import annotations

import runpy
from pathlib import Path

import numpy as np
import pytest
from distributed import Client, LocalCluster
from helpers.support import ROOT, RunPython

EXAMPLE = ROOT / "examples/parameter_sweep.py"

pytestmark = pytest.mark.slow


def expected(size: int, steps: int, feed: float, remove: float) -> float:
    """The deviation at the end, by NumPy."""
    u, v = np.ones((size, size), np.float32), np.zeros((size, size), np.float32)
    middle = slice(size // 2 - 3, size // 2 + 3)
    u[middle, middle], v[middle, middle] = 0.5, 0.25
    for _ in range(steps):
        spread = [
            sum(np.roll(of, shift, axis) for shift in (1, -1) for axis in (0, 1)) - 4 * of
            for of in (u, v)
        ]
        eaten = u * v * v
        u = u + np.float32(0.16) * spread[0] - eaten + np.float32(feed) * (1 - u)
        v = v + np.float32(0.08) * spread[1] + eaten - np.float32(feed + remove) * v
    return float(v.std())


def test_it_computes_what_numpy_does() -> None:
    simulate = runpy.run_path(str(EXAMPLE))["simulate"]
    points = [(0.03, 0.06), (0.06, 0.05)]
    with (
        LocalCluster(n_workers=1, processes=False, dashboard_address="") as cluster,
        Client(cluster) as client,
    ):
        found = simulate(client, 12, 4, points)
    assert found == pytest.approx([expected(12, 4, *point) for point in points], rel=1e-4)


def test_it_says_and_draws_what_it_found(run_python: RunPython, tmp_path: Path) -> None:
    """On a cluster of one worker: it has one for each core."""
    code = """
import os, runpy, sys
os.sched_setaffinity(0, [min(os.sched_getaffinity(0))])
sys.argv = sys.argv[1:]
runpy.run_path(sys.argv[0], run_name="__main__")
"""
    sizes = "--size 12 --steps 4 --feeds 3 --removals 2 --picture"
    out = run_python(code, str(EXAMPLE), *sizes.split(), str(tmp_path / "map.svg")).out
    assert "6 simulations of 4 steps on 1 workers: " in out and "% of them end with patterns" in out
    assert (tmp_path / "map.svg").read_text(encoding="utf-8").count("<rect ") == 6
    assert len(EXAMPLE.read_text(encoding="utf-8").splitlines()) <= 120
