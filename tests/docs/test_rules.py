"""The pages of rules name files, tests and attributes that exist, and a test in each row."""

from __future__ import annotations

import inspect
import re
from typing import Final

import pytest
from helpers.support import ROOT, check_named_files, check_named_tests

import fairlead.graph
import fairlead.graph.executable
import fairlead.graph.partition
import fairlead.graph.recording
import fairlead.graph.segments
import fairlead.runtime
import fairlead.runtime.commands

#: More tests than this are named, more files than this by this pattern, and there are more rows.
PAGES: Final = {
    "command_graph_rules": (
        *(100, r"`((?:graph|runtime|plugins|icd)/(?:\w+/)*(?!test_)\w+\.py)`"),
        *(30, 38),
    ),
    "icd_2_rules": (30, r"`(icd/(?!test_)[\w/]+\.(?:py|abi))`", 0, 25),
    "plugin_interface_rules": (
        *(50, r"`((?:loader|fairlead|icd|vendors\.d)/(?:\w+/)*(?!test_)[\w.]+\.\w+)"),
        *(15, 25),
    ),
}
MODULES: Final = (
    fairlead.graph,
    fairlead.graph.executable,
    fairlead.graph.partition,
    fairlead.graph.recording,
    fairlead.graph.segments,
    fairlead.runtime,
    fairlead.runtime.commands,
)


def read(page: str) -> str:
    return (ROOT / f"docs/{page}.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("page", PAGES)
def test_tests_and_files_that_are_named_exist(page: str) -> None:
    tests, pattern, files, least = PAGES[page]
    text = read(page)
    assert check_named_tests(text) > tests
    assert check_named_files(text, pattern) >= files
    rows = [line for line in text.splitlines() if line.startswith("| ")]
    rows = [row for row in rows if not row.startswith(("| it says", "| rule"))]
    without = [row for row in rows if "/test_" not in row and "a rule for authors" not in row]
    assert len(rows) > least and not without


def test_the_native_files_of_icd_2_exist() -> None:
    native = {path.name for path in (ROOT / "icd/libopencl/native").iterdir()}
    assert set(re.findall(r"`(\w+\.(?:c|py))`", read("icd_2_rules"))) <= native


def test_attributes_of_command_graphs_exist() -> None:
    named = re.findall(r"`([A-Z]\w+)\.(\w+)(?:\(\))?`", read("command_graph_rules"))
    assert len(named) > 30
    for owner, attribute in named:
        found = next(getattr(module, owner) for module in MODULES if hasattr(module, owner))
        assert hasattr(found, attribute) or re.search(
            rf"self\.{attribute}\b", inspect.getsource(found)
        ), f"{owner}.{attribute}"


def test_every_row_of_the_specification_is_there() -> None:
    numbers = re.findall(r"^\| A(\d+) ", read("command_graph_rules"), re.M)
    assert [int(number) for number in numbers] == list(range(1, 39))
