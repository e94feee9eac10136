"""The programs of docs/runtime.md print what is below them; the names that the guide gives
exist."""

from __future__ import annotations

import re

from helpers.support import ROOT, RunPython, check_named_files

from fairlead.runtime import interop

GUIDE = (ROOT / "docs/runtime.md").read_text(encoding="utf-8")


def test_the_examples_print_what_is_below_them(run_python: RunPython) -> None:
    programs = re.findall(r"```python\n(.*?)```", GUIDE, re.S)
    printed = re.findall(r"```text\n(.*?)```", GUIDE, re.S)
    assert len(programs) == 3
    assert [run_python(program).out for program in programs] == printed


def test_the_functions_of_interop_exist() -> None:
    named = re.search(r"\((`device_of`.*?)\)", GUIDE)
    assert named
    names = re.findall(r"`(\w+)`", named[1])
    assert len(names) == 6 and all(callable(getattr(interop, name)) for name in names)


def test_the_files_that_are_named_exist() -> None:
    check_named_files(GUIDE, r"\b(runtime/\w+\.\w+)")
