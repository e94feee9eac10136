"""What people read is short lines and short sentences: every Markdown file of the repository."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from helpers.support import ROOT

#: Columns of a line, outside of tables and code. A link or an address may not be broken.
COLUMNS = 100
#: A sentence has fewer words than this.
WORDS = 25

FILES = sorted(
    path
    for pattern in ("*.md", "docs/*.md", "*/README.md")
    for path in ROOT.glob(pattern)
    if not path.parent.is_symlink()
)


def prose(text: str) -> Iterator[str]:
    """Yield the paragraphs and the items of lists, without code, tables, headings and pictures."""
    text = re.sub(r"^```.*?^```", "", text, flags=re.S | re.M)
    text = re.sub(r"<!--.*?-->", "", text, flags=re.S)
    for block in re.split(r"\n\s*\n|\n(?=\s*(?:[-*]|\d+\.) )", text):
        if block.strip() and not block.lstrip("\n").startswith(("|", "#", "!", "    ")):
            yield " ".join(block.split())


def sentences(paragraph: str) -> Iterator[str]:
    """Yield the sentences of a paragraph. A code span, or a list of them, is one word."""
    plain = re.sub(r"`[^`]+`", "CODE", paragraph)
    plain = re.sub(r"CODE(?:,? (?:and |or )?CODE)+", "CODE", plain)
    plain = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", plain)
    plain = re.sub(r"^(?:[-*]|\d+\.) ", "", plain)
    yield from re.split(r"(?<=[.!?:])[*_)\"]*\s+", plain)


def test_there_is_something_to_read() -> None:
    assert len(FILES) > 20
    assert list(sentences("- One `a b`: two. Three.")) == ["One CODE:", "two.", "Three."]


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(ROOT)))
def test_lines_are_short(path: Path) -> None:
    text = re.sub(r"^```.*?^```", "", path.read_text(encoding="utf-8"), flags=re.S | re.M)
    long = [line for line in text.splitlines() if len(line) > COLUMNS and line[:1] != "|"]
    assert not [line for line in long if " " in line.strip("-* ")]


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(ROOT)))
def test_sentences_are_short(path: Path) -> None:
    found = (each for part in prose(path.read_text(encoding="utf-8")) for each in sentences(part))
    long = [f"{len(each.split())} words: {each}" for each in found if len(each.split()) >= WORDS]
    assert not long, "\n".join(long)
