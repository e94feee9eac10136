"""README.md is short, its example runs, and its commands, links, figures and picture are true."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

from helpers.as_user import read_example
from helpers.support import ROOT, RunPython

README = (ROOT / "README.md").read_text(encoding="utf-8")
RESULT = ROOT / "bench/results/2026-11-27.json"
PICTURED = "PyOpenCL ÷ replay, 1,000 tiny kernels"
#: What a replay is faster than, the measure in docs/benchmarks.md, and whether that is the inverse.
FASTER = {
    "PyOpenCL's calls of 1,000 tiny kernels": (PICTURED, False),
    "the same calls with argument types declared": (
        "PyOpenCL with argument types declared ÷ replay",
        False,
    ),
    "expressions of `pyopencl.array` on 1,024 floats": (
        "pyopencl.array ÷ replay, 1,024 floats",
        False,
    ),
    "a loop in C that enqueues the 1,000 tiny kernels": (
        "replay ÷ C loop, 1,000 tiny kernels",
        True,
    ),
    **{
        f"PyOpenCL's calls; NumPy; numba; JAX: {size} floats": (
            f"ten array operations on {size} floats: PyOpenCL; NumPy; numba; JAX ÷ fused",
            False,
        )
        for size in ("64 Ki", "1 Mi")
    },
    "PyOpenCL's calls of 1,000 kernels in a chain": (
        "PyOpenCL ÷ replay, 1,000 calls in a chain",
        False,
    ),
    "a loop in C that enqueues them; in 8 chains": ("C loop ÷ replay, a chain; in 8 chains", False),
}


def test_it_is_one_page() -> None:
    assert len(README.splitlines()) < 120


def test_the_example_can_be_pasted(run_python: RunPython) -> None:
    """It runs line by line, as at Python's prompt."""
    assert len(read_example().splitlines()) < 15
    lines = read_example().splitlines()
    code = f"import code\nprompt = code.InteractiveConsole()\nfor one in {lines}: prompt.push(one)"
    words = run_python(code).out.splitlines()[-1].split()
    assert int(words[0]) >= 3 and abs(float(words[2]) - 1) < 1e-3  # y has come to x


def test_every_make_target_that_is_named_exists() -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    targets = set(re.findall(r"^([a-z-]+):", makefile, re.M))
    for file in ("README.md", "CONTRIBUTING.md"):
        named = set(re.findall(r"(?:`|^)make ([a-z-]+)", (ROOT / file).read_text(), re.M))
        assert {"demo", "test"} <= named <= targets, named - targets


def test_every_command_that_is_named_exists(run_python: RunPython) -> None:
    named = re.findall(r"^fairlead ([a-z-]+) .*# ", README, re.M)
    code = "from fairlead.cli.main import main; print(*main.commands)"
    assert len(named) >= 6 and set(named) <= set(run_python(code).out.split())


def test_the_figures_are_those_of_the_benchmarks() -> None:
    gains = README.partition("## What it gains")[2].partition("\n## ")[0]
    rows = dict(re.findall(r"^\| ([^|]+) \|(.*\d.*)\|$", gains, re.M))
    rows = {label: cells for label, cells in rows.items() if "so many times" not in label}
    assert set(rows) == set(FASTER)
    benchmarks = (ROOT / "docs/benchmarks.md").read_text(encoding="utf-8")
    for label, (measure, is_inverse) in FASTER.items():
        cells = re.findall(rf"^\| {re.escape(measure)} \|(.*)\|$", benchmarks, re.M)[0]
        shown, found = (re.findall(r"\d+\.?\d*", text) for text in (rows[label], cells))
        measured = found[-len(shown) :]
        if is_inverse:
            measured = [f"{1 / float(number):.3g}" for number in measured]
        assert shown == measured, label


def test_the_figures_are_those_of_the_newest_result() -> None:
    """The measures of the README are in no newer file of results."""
    results = sorted((ROOT / "bench/results").glob("*.json"))
    measured = [file for file in results if PICTURED in file.read_text(encoding="utf-8")]
    assert measured[-1] == RESULT


def test_drawing_the_picture_anew_gives_the_file(tmp_path: Path) -> None:
    arguments = RESULT, tmp_path / "replay.svg"
    command = [sys.executable, "-m", "bench.picture", *map(str, arguments)]
    subprocess.run(command, cwd=ROOT, check=True)
    assert arguments[1].read_bytes() == (ROOT / "docs/images/replay.svg").read_bytes()
