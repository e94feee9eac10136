"""docs/level_zero_adapter.md tells the truth about what is missing."""

from __future__ import annotations

import re

from helpers.support import ROOT

from fairlead.loader.ur.abi import UR
from fairlead.plugins.ur_level_zero import adapter

_PAGE = (ROOT / "docs/level_zero_adapter.md").read_text(encoding="utf-8")


def test_every_entry_point_is_implemented_or_has_one_reason() -> None:
    every = {name for names in next(iter(UR.layouts.values())).values() for name in names if name}
    part = _PAGE.partition("## What is missing")[2].partition("\n## ")[0]
    cells = [line.split("|")[1] for line in part.splitlines() if line.startswith("| `ur")]
    patterns = [name.replace("…", r"\w+") for cell in cells for name in re.findall("`(.*?)`", cell)]
    found = [[one for one in patterns if re.fullmatch(one, name)] for name in sorted(every)]
    there = [name in adapter.declared for name in sorted(every)]
    assert [len(reasons) for reasons in found] == [0 if known else 1 for known in there]
    assert all(any(re.fullmatch(one, name) for name in every) for one in patterns)
    assert f"implements {sum(there)} of the {len(every)} entry points" in part
