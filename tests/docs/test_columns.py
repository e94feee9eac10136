"""Lines of C, C++, Python and Markdown end at 100 columns, in the whole tree."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from helpers.support import ROOT

#: What test_prose.py calls COLUMNS, and ruff line-length.
COLUMNS = 100
#: Folders that are in the tree, and not of it.
_MADE = (".", "build", "dist")


def files(*suffixes: str) -> Iterator[Path]:
    """Yield the files of the tree. The links in fairlead/ lead to folders that are seen anyway."""
    folders = [ROOT]
    while folders:
        for path in sorted(folders.pop().iterdir()):
            if path.is_symlink() or path.name.startswith(_MADE):
                continue
            if path.is_dir():
                folders.append(path)
            elif path.suffix in suffixes:
                yield path


def long_lines(text: str) -> dict[int, str]:
    """Return the lines that are too long, by their numbers. What tells a linter does not count."""
    lines = ((n, re.sub(r"  # (noqa|pyright):.*", "", line)) for n, line in _numbered(text))
    return {number: line for number, line in lines if len(line) > COLUMNS}


def _numbered(text: str) -> Iterator[tuple[int, str]]:
    return enumerate(text.splitlines(), 1)


def without_code(text: str) -> str:
    """Return Markdown with empty lines in the place of code, tables and what cannot be broken."""
    text = re.sub(r"^```.*?^```", lambda m: "\n" * m[0].count("\n"), text, flags=re.S | re.M)
    lines = text.splitlines()
    return "\n".join(
        "" if line[:1] == "|" or " " not in line.strip("-* ") else line for line in lines
    )


def _named(path: Path, lines: dict[int, str]) -> list[str]:
    return [f"{path.relative_to(ROOT)}:{number}: {line}" for number, line in lines.items()]


def test_c() -> None:
    found = list(files(".c", ".h", ".cpp", ".hpp"))
    assert len(found) > 200
    long = [one for path in found for one in _named(path, long_lines(path.read_text("utf-8")))]
    assert not long, "\n".join(long)


def test_python() -> None:
    """Also those in strings: programs, messages and what is expected of a program."""
    found = list(files(".py"))
    assert len(found) > 900
    long = [one for path in found for one in _named(path, long_lines(path.read_text("utf-8")))]
    assert not long, "\n".join(long)


def test_markdown() -> None:
    """Results are written by programs."""
    found = [path for path in files(".md") if path.parent.name != "results"]
    assert len(found) > 35
    long = [
        one
        for path in found
        for one in _named(path, long_lines(without_code(path.read_text("utf-8"))))
    ]
    assert not long, "\n".join(long)


def test_long_lines_are_found() -> None:
    long = "x" * COLUMNS
    assert long_lines(f"{long}\n{long}y\n") == {2: f"{long}y"}
    found = without_code("one\n```\ntwo\n```\n| three |\nhttp://four\nfive six")
    assert found == "\n" * 6 + "five six"
