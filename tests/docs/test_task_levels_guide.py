"""The program of docs/task_levels.md prints what is below it; what the guide says of orders is
true."""

from __future__ import annotations

import re

from helpers.support import ROOT, RunPython

GUIDE = (ROOT / "docs/task_levels.md").read_text(encoding="utf-8")


def test_the_example_prints_what_is_below_it(run_python: RunPython) -> None:
    (program,) = re.findall(r"```python\n(.*?)```", GUIDE, re.S)
    (printed,) = re.findall(r"```text\n(.*?)```", GUIDE, re.S)
    assert run_python(program).out == printed


def test_the_picture_is_of_this_model(run_python: RunPython) -> None:
    (program,) = re.findall(r"```python\n(.*?)```", GUIDE, re.S)
    (picture,) = re.findall(r"\((images/\S+\.svg)\)", GUIDE)
    drawn = (ROOT / "docs" / picture).read_text(encoding="utf-8")
    assert run_python(f"{program}print(model.to_svg(), end='')").out.endswith(drawn)


def test_the_reordered_batches(run_python: RunPython) -> None:
    """The guide's program with one line moved."""
    (program,) = re.findall(r"```python\n(.*?)```", GUIDE, re.S)
    lines = program.splitlines(keepends=True)
    found = re.findall(r"With command (\d+) before command (\d+)\s.*?`(.*?)`", GUIDE, re.S)
    assert len(found) == 2
    for moved, before, batches in found:
        (line,) = (line for line in lines if f'enqueue("{moved}"' in line)
        (other,) = (line for line in lines if f'enqueue("{before}"' in line)
        rest = [one for one in lines if one != line]
        rest.insert(rest.index(other), line)
        assert f"batches: {batches}\n" in run_python("".join(rest)).out
