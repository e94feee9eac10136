"""README.md is short, its example runs, and its commands, links, figures and picture are true."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

from helpers.support import ROOT, RunPython

README = (ROOT / "README.md").read_text(encoding="utf-8")


def test_it_is_one_page() -> None:
    assert len(README.splitlines()) < 120


def test_the_example_runs(run_python: RunPython) -> None:
    example = re.search(r"```python\n(.*?)```", README, re.S)
    assert example
    words = run_python(example[1]).out.split()
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
        assert re.findall(r"\d\.\d+", figures) == re.findall(r"\d\.\d+", cells)[-3:], measure


def test_drawing_the_picture_anew_gives_the_file(tmp_path: Path) -> None:
    arguments = ROOT / "bench/results/2026-11-21.json", tmp_path / "replay.svg"
    command = [sys.executable, "-m", "bench.picture", *map(str, arguments)]
    subprocess.run(command, cwd=ROOT, check=True)
    assert arguments[1].read_bytes() == (ROOT / "docs/images/replay.svg").read_bytes()
