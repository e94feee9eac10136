"""docs/icd_2_rules.md names files and tests that exist, and a test in each row."""

from __future__ import annotations

import re

from helpers.support import ROOT, check_named_files, check_named_tests

TEXT = (ROOT / "docs/icd_2_rules.md").read_text(encoding="utf-8")


def test_every_test_that_is_named_exists() -> None:
    assert check_named_tests(TEXT) > 30


def test_every_file_that_is_named_exists() -> None:
    native = {path.name for path in (ROOT / "icd/libopencl/native").iterdir()}
    assert set(re.findall(r"`(\w+\.(?:c|py))`", TEXT)) <= native
    check_named_files(TEXT, r"`(icd/(?!test_)[\w/]+\.(?:py|abi))`")


def test_every_row_names_a_test() -> None:
    rows = [line for line in TEXT.splitlines() if line.startswith("| ")]
    rows = [row for row in rows if not row.startswith(("| it says", "| rule"))]
    assert len(rows) > 25
    assert not [row for row in rows if "/test_" not in row]
