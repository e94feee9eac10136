"""docs/command_graph_rules.md has every rule of command graphs; its files, tests and attributes
exist."""

from __future__ import annotations

import inspect
import re

from helpers.support import ROOT, check_named_files, check_named_tests

import fairlead.graph
import fairlead.graph.executable
import fairlead.graph.partition
import fairlead.graph.recording
import fairlead.graph.segments
import fairlead.runtime
import fairlead.runtime.commands

TEXT = (ROOT / "docs/command_graph_rules.md").read_text(encoding="utf-8")
MODULES = (
    fairlead.graph,
    fairlead.graph.executable,
    fairlead.graph.partition,
    fairlead.graph.recording,
    fairlead.graph.segments,
    fairlead.runtime,
    fairlead.runtime.commands,
)


def test_every_test_that_is_named_exists() -> None:
    assert check_named_tests(TEXT) > 100


def test_every_file_that_is_named_exists() -> None:
    pattern = r"`((?:graph|runtime|plugins|icd)/(?:\w+/)*(?!test_)\w+\.py)`"
    assert check_named_files(TEXT, pattern) > 30


def test_every_attribute_that_is_named_exists() -> None:
    named = re.findall(r"`([A-Z]\w+)\.(\w+)(?:\(\))?`", TEXT)
    assert len(named) > 30
    for owner, attribute in named:
        found = next(getattr(module, owner) for module in MODULES if hasattr(module, owner))
        assert hasattr(found, attribute) or re.search(
            rf"self\.{attribute}\b", inspect.getsource(found)
        ), f"{owner}.{attribute}"


def test_every_rule_and_every_row_has_a_test() -> None:
    rows = [
        line
        for line in TEXT.splitlines()
        if line.startswith("| ") and not line.startswith(("| it says", "| rule"))
    ]
    assert all("/test_" in row for row in rows)
    assert [int(number) for number in re.findall(r"^\| A(\d+) ", TEXT, re.M)] == list(range(1, 39))
