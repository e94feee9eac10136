"""docs/plugin_interface_rules.md names files and tests that exist."""

from __future__ import annotations

from helpers.support import ROOT, check_named_files, check_named_tests

TEXT = (ROOT / "docs/plugin_interface_rules.md").read_text(encoding="utf-8")


def test_every_test_that_is_named_exists() -> None:
    assert check_named_tests(TEXT) > 50


def test_every_file_that_is_named_exists() -> None:
    pattern = r"`((?:loader|fairlead|icd|vendors\.d)/(?:\w+/)*(?!test_)[\w.]+\.\w+)"
    assert check_named_files(TEXT, pattern) > 15


def test_every_row_but_the_rule_for_authors_names_a_test() -> None:
    rows = [line for line in TEXT.splitlines() if line.startswith("| ") and "it says" not in line]
    without = [row for row in rows if "test_" not in row]
    assert len(without) == 1 and "a rule for authors" in without[0]
