"""docs/graphs.md is a program that prints what is below it; the names of its table exist."""

from __future__ import annotations

import re

import pytest
from helpers.support import ROOT, RunPython

import fairlead.graph
import fairlead.runtime

pytestmark = pytest.mark.slow

GUIDE = (ROOT / "docs/graphs.md").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    "selector",
    [
        pytest.param("opencl:0", id="intel"),
        pytest.param("opencl:1", id="pocl", marks=pytest.mark.thorough),
    ],
)
def test_the_examples_print_what_is_below_them(
    run_python: RunPython, wheel_drivers: dict[str, str], selector: str
) -> None:
    programs, printed = (
        re.findall(rf"```{kind}\n(.*?)```", GUIDE, re.S) for kind in ("python", "text")
    )
    assert len(programs) == len(printed) == 12
    assert run_python(
        "\n".join(programs), env={**wheel_drivers, "ONEAPI_DEVICE_SELECTOR": selector}
    ).out == "".join(printed)


def test_the_python_names_of_the_table_exist() -> None:
    objects = {
        "graph": fairlead.graph.CommandGraph,
        "executable": fairlead.graph.ExecutableGraph,
        "node": fairlead.graph.Node,
        "Node": fairlead.graph.Node,
        "p": fairlead.graph.DynamicParameter,
        "b": fairlead.graph.Node,
        "queue": fairlead.runtime.Queue,
        "handler": fairlead.runtime.Handler,
        "device": fairlead.runtime.Device,
    }
    table = re.search(r"\| C\+\+ .*?\n\n", GUIDE, re.S)
    assert table
    python = [row.split(" | ")[1] for row in table[0].splitlines()[2:] if " | " in row]
    named = [
        match
        for cell in python
        for match in re.findall(r"\b(\w+)\.(\w+)", cell)
        if match[0] in objects
    ]
    assert len(python) > 20 and len(named) > 20
    for owner, name in named:
        assert hasattr(objects[owner], name) or name in ATTRIBUTES[owner], f"{owner}.{name}"
    for name in re.findall(r"`([A-Z]\w+)\(", table[0]):
        assert name in fairlead.graph.__all__, name


#: What instances have and classes do not.
ATTRIBUTES = {"graph": {"id"}, "node": {"predecessors", "successors"}}


def test_the_files_and_headings_that_are_linked_exist() -> None:
    for file, heading in re.findall(r"\]\((?!http)([^)#]*)(?:#([^)]+))?\)", GUIDE):
        path = ROOT / "docs" / (file or "graphs.md")
        assert path.exists(), file
        headings = [
            re.sub(r"[^\w ]", "", line[3:]).lower().replace(" ", "-")
            for line in path.read_text().splitlines()
            if line[:3] == "## "
        ]
        assert not heading or heading in headings, heading
