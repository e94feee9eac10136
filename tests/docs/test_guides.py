"""The programs of the guides print what is below them; the names that the guides give exist."""

from __future__ import annotations

import re
from dataclasses import fields
from pathlib import Path

import pytest
from helpers.support import ROOT, RunPython, check_named_files

import fairlead.graph
import fairlead.runtime
from fairlead.graph_files.document import Document
from fairlead.loader.base.operations import OPERATIONS
from fairlead.runtime import interop


def read(page: str) -> str:
    return (ROOT / f"docs/{page}.md").read_text(encoding="utf-8")


def blocks(page: str, kind: str = "python") -> list[str]:
    """Return the programs of a page, or what is printed (`text`)."""
    return re.findall(rf"```{kind}\n(.*?)```", read(page), re.S)


@pytest.mark.parametrize(("page", "count"), [("runtime", 3), ("task_levels", 1)])
def test_each_program_prints_what_is_below_it(run_python: RunPython, page: str, count: int) -> None:
    assert len(blocks(page)) == count
    assert [run_python(program).out for program in blocks(page)] == blocks(page, "text")


@pytest.mark.slow
@pytest.mark.parametrize(
    "selector",
    [
        pytest.param("opencl:0", id="intel"),
        pytest.param("opencl:1", id="pocl", marks=pytest.mark.thorough),
    ],
)
def test_the_programs_about_graphs_print_what_is_below_them(
    run_python: RunPython, wheel_drivers: dict[str, str], selector: str
) -> None:
    programs, printed = blocks("graphs"), blocks("graphs", "text")
    assert len(programs) == len(printed) == 12
    env = {**wheel_drivers, "ONEAPI_DEVICE_SELECTOR": selector}
    assert run_python("\n".join(programs), env=env).out == "".join(printed)


def test_the_programs_about_captures_run_one_after_the_other(run_python: RunPython) -> None:
    assert len(blocks("capture")) == 11
    lines = run_python("\n".join(blocks("capture"))).out.splitlines()
    assert (
        lines[0].startswith("0 kernel add(1024) {'kernel': 'add'")
        and "read(4096 bytes)" in lines[1]
    )
    assert any(line.startswith("once more: ") for line in lines)
    parameters = "  2 nodes; Parameters: self.u, self.v, self.dt"
    assert lines[-2:] == ["Wave.step: 1 graph", parameters]
    stopped, replays = lines[-3].split()
    assert stopped == "True" and 73 <= int(replays) < 73 + 16


def test_a_graph_file_is_loaded_in_another_process(run_python: RunPython, tmp_path: Path) -> None:
    saving, loading = blocks("graph_files")[:2]
    name = repr(str(tmp_path / "step.flg"))
    run_python(saving.replace('"step.flg"', name))
    code = "import fairlead, numpy as np\n" + loading.replace('"step.flg"', name)
    assert run_python(code).out == "[1.25 1.25]\n"


def test_every_member_and_operation_of_graph_files_is_documented() -> None:
    transfers = [name for name, operation in OPERATIONS.items() if operation.target]
    for name in (*(one.name for one in fields(Document)), *transfers):
        assert f"`{name}`" in read("graph_files"), name


def test_the_picture_of_task_levels_is_of_the_guides_model(run_python: RunPython) -> None:
    (program,) = blocks("task_levels")
    (picture,) = re.findall(r"\((images/\S+\.svg)\)", read("task_levels"))
    drawn = (ROOT / "docs" / picture).read_text(encoding="utf-8")
    assert run_python(f"{program}print(model.to_svg(), end='')").out.endswith(drawn)


def test_the_reordered_batches(run_python: RunPython) -> None:
    """The program about task levels with one line moved."""
    (program,) = blocks("task_levels")
    lines = program.splitlines(keepends=True)
    pattern = r"With command (\d+) before command (\d+)\s.*?`(.*?)`"
    found = re.findall(pattern, read("task_levels"), re.S)
    assert len(found) == 2
    for moved, before, batches in found:
        (line,) = (line for line in lines if f'enqueue("{moved}"' in line)
        (other,) = (line for line in lines if f'enqueue("{before}"' in line)
        rest = [one for one in lines if one != line]
        rest.insert(rest.index(other), line)
        assert f"batches: {batches}\n" in run_python("".join(rest)).out


def test_the_functions_of_interop_exist() -> None:
    named = re.search(r"\((`device_of`.*?)\)", read("runtime"))
    assert named
    names = re.findall(r"`(\w+)`", named[1])
    assert len(names) == 6 and all(callable(getattr(interop, name)) for name in names)


def test_the_files_of_the_runtime_exist() -> None:
    check_named_files(read("runtime"), r"\b(runtime/\w+\.\w+)")


#: What instances have and classes do not.
ATTRIBUTES = {"graph": {"id"}, "node": {"predecessors", "successors"}}


def test_the_python_names_of_the_table_of_graphs_exist() -> None:
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
    table = re.search(r"\| C\+\+ .*?\n\n", read("graphs"), re.S)
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
