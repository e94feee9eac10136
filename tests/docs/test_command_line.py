"""docs/command_line.md lists every command of fairlead, and no other."""

from __future__ import annotations

import re

from helpers.support import ROOT

from fairlead.cli.main import main


def test_every_command_is_listed() -> None:
    text = (ROOT / "docs/command_line.md").read_text(encoding="utf-8")
    assert set(re.findall(r"^\| `fairlead ([a-z-]+)` \|", text, re.M)) == set(main.commands)
