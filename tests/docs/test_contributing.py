"""The files and names that CONTRIBUTING.md and docs/architecture.md give exist."""

from __future__ import annotations

import re

import pytest
from helpers.support import ROOT

from fairlead.icd.command_buffer.choice import ENGINES
from fairlead.icd.command_buffer.engine import BuiltCommands, Engine
from fairlead.icd.driver_profiles import ROWS

FOLDERS = (
    "bench|conformance|docs|examples|fairlead|graph|icd|loader|plugins|runtime|tests|vendors.d"
)


@pytest.mark.parametrize("page", ["CONTRIBUTING.md", "SECURITY.md", "docs/architecture.md"])
def test_the_files_that_are_named_exist(page: str) -> None:
    text = (ROOT / page).read_text(encoding="utf-8")
    named = set(re.findall(rf"`((?:{FOLDERS})/[\w/.-]*)`", text))
    assert named or page == "SECURITY.md"
    for name in named - {"icd/command_buffer/engines/NAME.py"}:
        assert (ROOT / name).exists(), name


def test_the_names_of_the_instructions_exist() -> None:
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    for name in ("why_not", "why_not_command", "divides", "defect", "cost", "build"):
        assert f"`{name}`" in text and hasattr(Engine, name)
    assert "`close`" in text and hasattr(BuiltCommands, "close")
    assert list(ENGINES)[-1] == "replay" and "before `Replay`" in " ".join(text.split())
    assert any("svm_needs_lock" in row.sets for row in ROWS) and "svm_needs_lock" in text


def test_the_picture_has_every_folder() -> None:
    text = (ROOT / "docs/architecture.md").read_text(encoding="utf-8")
    picture = text.partition("```text")[2].partition("```")[0]
    shown = set(re.findall(r"(\w+)/", picture))
    folders = {
        path.name
        for room in ("loader", "plugins")
        for path in (ROOT / room).iterdir()
        if (path / "__init__.py").exists()
    }
    assert folders | {"loader", "plugins", "icd", "graph", "runtime", "conformance"} <= shown
