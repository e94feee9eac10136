"""docs/adapter_support.md tells the truth: every entry point is declared, or there is a reason why
not."""

from __future__ import annotations

from collections import Counter

from helpers.support import ROOT, RunPython
from helpers.tables import table
from helpers.ur_calls import Calls

from fairlead.loader.ur.abi import UR
from fairlead.loader.ur.plugin import Plugin
from fairlead.plugins.opencl.core import adapter as declared
from fairlead.plugins.opencl.unsupported import REASONS, TABLES, make_page

EVERY = [name for names in TABLES.values() for name in names]


def test_every_entry_point_is_implemented_or_has_one_reason() -> None:
    assert len(EVERY) == 241
    reasons = Counter(name for names in REASONS.values() for name in names)
    there = [name for name in EVERY if name in declared.declared]
    assert Counter(there) + reasons == Counter(EVERY)


def test_the_page_is_what_the_adapter_declares() -> None:
    assert (ROOT / "docs/adapter_support.md").read_text(encoding="utf-8") == make_page() + "\n"


def test_the_module_prints_the_page(run_python: RunPython) -> None:
    done = run_python(
        "import runpy; runpy.run_module('fairlead.plugins.opencl.unsupported', run_name='__main__')"
    )
    assert done.out == make_page() + "\n"


@table("name", [name for names in REASONS.values() for name in names])
def test_what_is_not_implemented_answers_unsupported_feature(
    ur: Calls, adapter: Plugin, name: str
) -> None:
    nothing = [None if p.stars else UR.make_ctype(p.type)() for p in UR.functions[name].parameters]
    assert ur(name, *nothing) == "UNSUPPORTED_FEATURE"
