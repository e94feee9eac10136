"""What people read is short lines and short sentences: Markdown, docstrings and comments."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

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


PRODUCT = ("conformance", "fairlead", "graph", "icd", "loader", "plugins", "runtime")
SOURCES = sorted(
    path
    for folder in PRODUCT
    for path in (ROOT / folder).rglob("*")
    if path.suffix in (".py", ".c", ".h") and path.is_file()
)


class Read(NamedTuple):
    """What is to be read in a file."""

    docstrings: list[str]
    comments: list[str]
    messages: list[str]
    empty_entries: list[str]


@cache
def read(path: Path) -> Read:
    """Read a module, or the comments of a file in C."""
    text = path.read_text(encoding="utf-8")
    if path.suffix != ".py":
        return Read([], list(comments_of_c(text)), [], [])
    nodes = list(ast.walk(ast.parse(text)))
    documented = (ast.Module, ast.ClassDef, ast.FunctionDef)
    docstrings = [ast.get_docstring(node) or "" for node in nodes if isinstance(node, documented)]
    comments, messages = list(comments_of_python(text)), list(messages_of(nodes))
    return Read(docstrings, comments, messages, list(empty_entries(nodes)))


def written_in(path: Path) -> Iterator[str]:
    """Yield the docstrings and comments of a file."""
    found = read(path)
    yield from found.docstrings
    yield from found.comments


def comments_of_c(text: str) -> Iterator[str]:
    for comment in re.findall(r"/\*(.*?)\*/", text, re.S):
        yield re.sub(r"\n\s*\*? ?", "\n", comment).strip("- ")


#: A string or a comment of Python. A quotation mark in a comment begins no string.
TOKEN = re.compile(r"(?P<quote>\"{3}|'{3}|\"|')(?:\\.|(?!(?P=quote)).)*(?P=quote)|#[^\n]*", re.S)


def comments_of_python(text: str) -> Iterator[str]:
    lines: dict[int, str] = {}  # of a comment that begins there
    begin = last = line = 1
    end = 0
    for token in TOKEN.finditer(text):
        line += text.count("\n", end, token.start())
        end = token.start()
        if not token["quote"]:
            begin, last = line if line > last + 1 else begin, line
            lines[begin] = f"{lines.get(begin, '')} {token[0].lstrip('#: ')}"
    yield from lines.values()


def paragraphs(text: str) -> Iterator[str]:
    """Yield the paragraphs, items and attributes of a docstring, without tables and examples."""
    text = re.sub(
        r"^ +\w+(?:[ ,.*]{1,2}\w+)*: ", "\n\n", text, flags=re.M
    )  # an argument or attribute
    for block in re.split(r"\n\s*\n|\n(?=\s*(?:[-*]|\d+\.) )", text):
        lines = block.strip("\n").splitlines()
        is_example = block.startswith("\b") or all(line.startswith("    ") for line in lines)
        if "|" not in block and not is_example:
            yield " ".join(block.split())


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


def long_parts(paragraphs: Iterable[str]) -> list[str]:
    """The sentences that are too long, with their numbers of words. A `;` ends one, too."""
    parts = (
        part
        for paragraph in paragraphs
        for sentence in sentences(paragraph)
        for part in sentence.split("; ")
    )
    return [f"{len(part.split())} words: {part}" for part in parts if len(part.split()) >= WORDS]


def test_docstrings_and_comments_are_short() -> None:
    long = [
        f"{path.relative_to(ROOT)}, {part}"
        for path in SOURCES
        for text in written_in(path)
        for part in long_parts(paragraphs(text))
    ]
    assert not long, "\n".join(long)


def test_messages_are_short() -> None:
    """Each line of a string is read for itself. Most strings with several lines are code."""
    long = [
        f"{path.relative_to(ROOT)}, {part}"
        for path in SOURCES
        for text in read(path).messages
        for part in long_parts(text.splitlines())
    ]
    assert not long, "\n".join(long)


#: Forms that the field does not use: "it is no kernel", "it is none of them". "There is no" says
#: what is missing.
DIALECT = re.compile(
    r"(?<!there )(?<!where )\b(?:is|are|was|were) (?:none of|no "
    r"(?!\w*er\b|such|more|matter|wider))",
    re.I,
)


def messages_of(nodes: Iterable[ast.AST]) -> Iterator[str]:
    """Yield the strings of a module, docstrings too. A field of an f-string is one word."""
    fields = set[ast.AST]()
    for node in nodes:  # what is inside an f-string comes after it
        if isinstance(node, ast.JoinedStr):
            fields |= set(node.values)
            words = (part.value if isinstance(part, ast.Constant) else "" for part in node.values)
            yield "".join(str(word or "FIELD") for word in words)
        elif node not in fields and isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.value


def test_dialect() -> None:
    texts = [(path, path.read_text(encoding="utf-8")) for path in FILES]
    texts += [
        (path, text) for path in SOURCES for text in (*written_in(path), *read(path).messages)
    ]
    plain = ((path, " ".join(text.split())) for path, text in texts)
    found = [
        f"{path.relative_to(ROOT)}: …{text[max(0, match.start() - 40) : match.end() + 30]}…"
        for path, text in plain
        for match in DIALECT.finditer(text)
    ]
    assert not found, "\n".join(found)


def test_dialect_is_found() -> None:
    assert DIALECT.search("a number that is none of a parameter") and DIALECT.search(
        "It is no kernel"
    )
    assert not DIALECT.search("There is no kernel, where is no device; it is no longer used")


def test_docstrings_and_comments_are_found(tmp_path: Path) -> None:
    module, c = tmp_path / "module.py", tmp_path / "file.c"
    module.write_text('"""One\n\n    an example\n\ntwo."""\n# three\n# four\nx = 1  # five\n')
    c.write_text("/* One\n * two. */ int x; /* three */")
    found = [one for text in written_in(module) for one in paragraphs(text)]
    assert found == ["One", "two.", "three four five"]
    strings = tmp_path / "strings.py"
    strings.write_text("one, two = 'One. ' f'is {x} or {y}', 'two'")
    assert read(strings).messages == ["One. is FIELD or FIELD", "two"]
    assert long_parts(["Short. " + "word " * WORDS]) == [f"{WORDS} words: {'word ' * WORDS}"]
    assert [" ".join(text.split()) for text in written_in(c)] == ["One two.", "three"]


#: Words of an entry that say nothing, besides those of its name, its type and its function.
_WORDS = """a about all and any as be by come each every for from given has have in is it its may
of on one or run s select some that the their this to updated use what which who whom whose whether
will with"""
_FILLER = frozenset(_WORDS.split())
_ENTRY = re.compile(r"^ {4}((?:[*\w]+, )*[*\w]+): (.*(?:\n {5,}.*)*)", re.M)
#: What says a value, or where more is said.
_VALUE = re.compile(r"[\"`\d]|None|as (?:of|given)|see ")


def empty_entries(nodes: Iterable[ast.AST]) -> Iterator[str]:
    """Yield the entries of docstrings that say no more than the signature."""
    for node in nodes:
        if isinstance(node, (ast.ClassDef, ast.FunctionDef)):
            for section in re.split(r"\n\n", ast.get_docstring(node) or ""):
                entries = section.startswith(("Args:\n", "Attributes:\n"))
                for names, text in _ENTRY.findall(section) if entries else ():
                    known = _stems(f"{node.name} {names} {_types_of(node, names)}")
                    if not (_VALUE.search(text) or _stems(text) - known - _FILLER):
                        yield f"{node.name}: {names}: {' '.join(text.split())}"


def _types_of(node: ast.ClassDef | ast.FunctionDef, names: str) -> str:
    """Return the annotations of parameters or attributes, the names of which are given."""
    found = [
        (ast.unparse(one.target) if isinstance(one, ast.AnnAssign) else one.arg, one.annotation)
        for one in ast.walk(node)
        if isinstance(one, (ast.AnnAssign, ast.arg)) and one.annotation
    ]
    wanted = re.findall(r"\w+", names)
    return " ".join(ast.unparse(type_) for name, type_ in found if name.split(".")[-1] in wanted)


def _stems(text: str) -> set[str]:
    """Return the words of a text or of names, without their plurals."""
    parts = re.findall(r"[A-Z]?[a-z]+|[A-Z]+|\d+", text)
    return {re.sub(r"(?<=\w{3})s$", "", part.lower()) for part in parts}


def test_entries_say_more_than_the_signature() -> None:
    found = [
        f"{path.relative_to(ROOT)}: {entry}"
        for path in SOURCES
        for entry in read(path).empty_entries
    ]
    assert not found, "\n".join(found)


def test_empty_entries_are_found() -> None:
    source = '''
class Queue:
    """A queue.

    Args:
        context: its context.
        names: its names.
        devices: the devices
            that it uses.
        size: bytes.
        other: its context, or None.

    Attributes:
        events: the events.
    """

    def __init__(self, context: Context, names: list[str], devices: int, size: int, other: int):
        self.events: set[int] = set()
'''
    found = [entry.split(": ")[1] for entry in empty_entries(ast.walk(ast.parse(source)))]
    assert found == ["context", "names", "devices", "events"]
