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


def test_it_is_one_page() -> None:
    assert len(README.splitlines()) < 120


def test_the_example_has_five_lines_and_runs(run_python: RunPython) -> None:
    example = re.search(r"```python\n(.*?)```", README, re.S)
    assert example and len(example[1].splitlines()) == 5
    words = run_python(read_example()).out.split()
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
    rows = re.findall(r"^\| ([^|]*÷[^|]*?) \|(.*)\|$", README, re.M)
    assert len(rows) >= 4
    benchmarks = (ROOT / "docs/benchmarks.md").read_text(encoding="utf-8")
    for measure, figures in rows:
        cells = re.findall(rf"^\| {re.escape(measure)} \|(.*)\|$", benchmarks, re.M)[0]
        numbers = [re.findall(r"\d+\.?\d*", text) for text in (figures, cells)]
        assert numbers[0] == numbers[1][-len(numbers[0]) :], measure


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
