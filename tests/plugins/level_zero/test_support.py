"""docs/level_zero_support.md tells the truth: every function is declared, or there is a reason."""

from __future__ import annotations

from helpers.support import ROOT

from fairlead.loader.ze.abi import TABLES
from fairlead.plugins.level_zero.core import driver
from fairlead.plugins.level_zero.unsupported import find_reason, make_page

EVERY = [name for names in TABLES.values() for name in names]


def test_every_function_is_implemented_or_has_a_reason() -> None:
    without = [name for name in EVERY if name not in driver.declared]
    assert [name for name in without if not find_reason(name)] == []
    assert driver.declared <= set(EVERY)


def test_the_page_is_what_the_driver_declares() -> None:
    page = (ROOT / "docs/level_zero_support.md").read_text(encoding="utf-8")
    assert page == make_page() + "\n"
