"""Every link from a Markdown file to a file or a heading of the repository leads somewhere."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from helpers.support import ROOT

FILES = sorted(
    path
    for pattern in ("*.md", "docs/*.md", "*/README.md")
    for path in ROOT.glob(pattern)
    if not path.parent.is_symlink()
)


def headings(path: Path) -> set[str]:
    """Return the anchors of a file's headings, as hosting pages make them."""
    lines = re.sub(r"^```.*?^```", "", path.read_text(encoding="utf-8"), flags=re.S | re.M)
    found = re.findall(r"^#+ (.*)$", lines, re.M)
    return {re.sub(r"[^\w -]", "", text).lower().replace(" ", "-") for text in found}


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(ROOT)))
def test_links_lead_somewhere(path: Path) -> None:
    text = re.sub(r"^```.*?^```", "", path.read_text(encoding="utf-8"), flags=re.S | re.M)
    for file, heading in re.findall(r"\]\((?!http)([^)#\s]*)(?:#([^)\s]+))?\)", text):
        target = path.parent / file if file else path
        assert target.exists(), file
        assert not heading or heading in headings(target), f"{file}#{heading}"


def test_every_guide_is_in_the_index() -> None:
    index = (ROOT / "docs/README.md").read_text(encoding="utf-8")
    guides = {path.name for path in (ROOT / "docs").glob("*.md")} - {"README.md"}
    assert guides <= set(re.findall(r"\]\((\w+\.md)\)", index))
