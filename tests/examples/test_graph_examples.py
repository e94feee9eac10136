"""The examples of command graphs are right on every driver, and say so.

The example of a Dask cluster computes what NumPy computes, and draws it.
"""

from __future__ import annotations

import re
import runpy
from pathlib import Path

import numpy as np
import pytest
from distributed import Client, LocalCluster
from helpers.drivers import Driver
from helpers.examples import RUN_SCRIPT, check_claims
from helpers.support import ROOT, RunPython

pytestmark = pytest.mark.slow

EXAMPLES = ROOT / "examples"

#: Small arguments of each example, the sentence about what it does with them, and what it counts.
CASES = {
    "conjugate_gradient": ("--size 12", "12×12 unknowns; the graph has 3 nodes", "iteration"),
    "conjugate_gradient_arrays": (
        "--size 12",
        "12×12 unknowns; the graph has 14 nodes",
        "iteration",
    ),
    "wave_3d": ("--size 8 --steps 40", "8³ points, 40 steps; the graph has 20 nodes", "step"),
    "image_pipeline": (
        "--size 24 --pictures 3",
        "3 pictures of 24×24; the graph has 6 nodes",
        "picture",
    ),
    "heat": ("--size 16 --steps 40", "16×16 points, 40 steps; the graph has 1 nodes", "step"),
    "tissue": ("--size 16 --steps 40", "16×16 cells, 40 steps; the graph has 13 nodes", "step"),
    "array_program": (
        "--countries 33 --days 40",
        "33 countries, 40 days; the graph has 7 nodes",
        "day",
    ),
}


@pytest.mark.one_driver
@pytest.mark.parametrize("name", CASES)
def test_it_is_right(run_python: RunPython, each_driver: Driver, name: str) -> None:
    each_driver.skip_unless_it_runs(EXAMPLES / f"{name}.py", run_python)
    arguments, what, unit = CASES[name]
    env = {"OCL_ICD_VENDORS": each_driver.library, "ONEAPI_DEVICE_SELECTOR": "opencl:0"}
    out = run_python(RUN_SCRIPT, str(EXAMPLES / f"{name}.py"), *arguments.split(), env=env).out
    check_claims(out, re.escape(each_driver.version), what, unit)


def test_a_wrong_result_is_told(run_python: RunPython) -> None:
    code = """
import sys
import numpy as np
sys.path.insert(0, sys.argv[1])
from comparison import compare
from fairlead.runtime import devices
found = np.zeros(2)
device, reset, add = devices()[0], lambda: found.fill(0), lambda: found.__iadd__(1) is found
one = lambda: 1
print(compare(device, "nothing", [1], "time", reset, one, add, lambda: found, np.ones(2), 0.5))
"""
    lines = run_python(code, str(EXAMPLES)).out.splitlines()
    assert "off NumPy by 1.0e+00 (allowed: 0.5)" in lines[2] and "off NumPy by 0.0e+00" in lines[3]
    assert lines[-2].endswith("results DIFFER") and lines[-1] == "False"


@pytest.mark.parametrize("name", CASES)
def test_it_is_a_short_read(name: str) -> None:
    assert len((EXAMPLES / f"{name}.py").read_text(encoding="utf-8").splitlines()) <= 120


def test_every_example_is_in_the_list() -> None:
    listed = set(
        re.findall(
            r"python examples/(\w+\.py)", (EXAMPLES / "README.md").read_text(encoding="utf-8")
        )
    )
    assert listed == {path.name for path in EXAMPLES.glob("*.py")} - {
        "comparison.py",
        "toy_adapter.py",
    }


EXAMPLE = ROOT / "examples/parameter_sweep.py"


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
