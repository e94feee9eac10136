"""The program of docs/runtime.md prints what is below it; the names that the guide gives exist."""

from __future__ import annotations

import re

from helpers.support import ROOT, RunPython

from fairlead.runtime import interop

GUIDE = (ROOT / "docs/runtime.md").read_text(encoding="utf-8")


def test_the_example_prints_what_is_below_it(run_python: RunPython) -> None:
    program = re.search(r"```python\n(.*?)```", GUIDE, re.S)
    printed = re.search(r"```text\n(.*?)```", GUIDE, re.S)
    assert program and printed
    assert run_python(program[1]).out == printed[1]


def test_the_functions_of_interop_exist() -> None:
    named = re.search(r"\((`device_of`.*?)\)", GUIDE)
    assert named
    names = re.findall(r"`(\w+)`", named[1])
    assert len(names) == 6 and all(callable(getattr(interop, name)) for name in names)


def test_the_files_that_are_named_exist() -> None:
    for file in re.findall(r"\b(runtime/\w+\.\w+)", GUIDE):
        assert (ROOT / file).exists(), file
