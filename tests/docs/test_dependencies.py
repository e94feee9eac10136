"""docs/dependencies.md has a row for each requirement of setup.cfg, and for nothing else."""

from __future__ import annotations

import configparser
import re

from helpers.support import ROOT


def test_every_requirement_has_a_row() -> None:
    config = configparser.ConfigParser()
    config.read(ROOT / "setup.cfg")
    texts = [config["options"]["install_requires"], *config["options.extras_require"].values()]
    lines = {line for text in texts for line in text.splitlines() if line}
    required = {re.split(r"[<>=\[;]", line)[0] for line in lines} - {"fairlead"}
    text = (ROOT / "docs/dependencies.md").read_text(encoding="utf-8").partition("## ")[0]
    rows = re.findall(r"^\| ([\w, -]+) \| (?:core|extra)", text, re.M)
    assert {name for row in rows for name in row.split(", ")} == required
