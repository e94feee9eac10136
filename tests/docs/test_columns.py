"""Lines of C, C++, Python and Markdown end at 100 columns, in the whole tree."""

from __future__ import annotations

import ast
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


def in_strings(text: str) -> set[int]:
    """Return the numbers of the lines of a module that have a string, or a part of one."""
    strings = (n for n in ast.walk(ast.parse(text)) if isinstance(n, (ast.Constant, ast.JoinedStr)))
    spans = ((n.lineno, n.end_lineno or n.lineno) for n in strings if not _is_number(n))
    return {number for first, last in spans for number in range(first, last + 1)}


def _is_number(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and not isinstance(node.value, (str, bytes))


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
    """Programs and messages in the strings of tests may be longer."""
    long, found = [], list(files(".py"))
    assert len(found) > 900
    for path in found:
        text = path.read_text("utf-8")
        lines = long_lines(text)
        if lines and "tests" in path.relative_to(ROOT).parts:
            lines = {n: line for n, line in lines.items() if n not in in_strings(text)}
        long += _named(path, lines)
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
    assert in_strings('a = 1\nb = """\n  c\n"""\nd = f"{a}"\n') == {2, 3, 4, 5}
    assert (
        without_code("one\n```\ntwo\n```\n| three |\nhttp://four\nfive six")
        == "\n" * 6 + "five six"
    )
