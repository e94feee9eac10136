"""The README's example is a program that runs, and its commands are targets that exist."""

from __future__ import annotations

import re

from helpers.support import ROOT, RunPython

README = (ROOT / "README.md").read_text(encoding="utf-8")


def test_the_example_runs(run_python: RunPython) -> None:
    example = re.search(r"```python\n(.*?)```", README, re.S)
    assert example
    words = run_python(example[1]).out.split()
    assert int(words[0]) >= 3 and abs(float(words[2]) - 1) < 1e-3  # y has come to x


def test_every_make_target_that_is_named_exists() -> None:
    targets = set(re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.M))
    named = {
        word
        for line in re.findall(r"`?make ([a-z ]+)", README)
        for word in line.split()
        if word in line.split()[:2]
    }
    assert {"demo", "test", "bench", "sanitize", "lint", "types"} <= targets
    assert {"demo", "test"} <= named


def test_the_files_that_are_linked_exist() -> None:
    for link in re.findall(r"\]\(([^)#]+)\)", README):
        assert link.startswith("http") or (ROOT / link).exists(), link
