"""The C preprocessor: directives, macros and includes of a program's source.

Macros are replaced by the algorithm of hide sets, which the C standard describes: a token
remembers the macros that it came from, and is never replaced by one of them again.

What the compiler defines differs from driver to driver, and selects other code. So what is assumed
of it is written down: `decisions` has each condition, and whether it was taken as true. An `#if` in
another program can ask the compiler.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Final, NamedTuple

from .errors import UnreadableKernel


class Token(NamedTuple):
    """A word of the source, the line that it is on, and the macros that it came from."""

    text: str
    line: int
    hidden: frozenset[str] = frozenset()


class _Macro(NamedTuple):
    parameters: list[str] | None  # None: a macro without parentheses
    body: list[str]


_WORD: Final = re.compile(
    r"""[^\S\n]+|"(?:\\.|[^"\\])*"|'(?:\\.|[^'\\])*'|[A-Za-z_]\w*|\.?\d(?:[eEpP][+-]|[\w.])*"""
    r"""|\#\#|<<=|>>=|\.\.\.|[-+*/%&|^=!<>]=|&&|\|\||<<|>>|->|\+\+|--|."""
)
#: A string, which may hold what looks like a comment; or a comment.
_COMMENT: Final = re.compile(
    r""""(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])*'|//[^\n]*|/\*.*?\*/""", re.DOTALL
)
_DIRECTIVE: Final = re.compile(r"[\s\x02]*#[ \t]*(\w*)[ \t]*(.*)", re.DOTALL)
_DEFINE: Final = re.compile(r"([A-Za-z_]\w*)(?:\(([^)]*)\))?(.*)", re.DOTALL)
#: Pragmas that only say how a compiler may make loops faster.
_HINTS: Final = re.compile(r"once\b|(no)?unroll|clang\s+loop\b|ivdep\b")
#: Names that OpenCL C defines.
_OPENCL: Final = re.compile(
    r"(M|FLT|DBL|CHAR|SCHAR|UCHAR|SHRT|USHRT|INT|UINT|LONG|ULONG|CLK)_\w+"
    r"|NULL|NAN|INFINITY|MAXFLOAT|HUGE_VALF?"
)
_NAME: Final = re.compile(r"\b[A-Za-z_]\w*")
_DEFINED: Final = re.compile(r"\bdefined\s*(?:\(\s*(\w+)\s*\)|(\w+))")
#: A newline that is not the end of a line: one in a comment, or after a backslash.
_INNER: Final = "\x02"
_CONTINUED: Final = re.compile(r"\\[ \t]*\n")
_TRIGRAPH: Final = re.compile(r"\?\?[-=/'()!<>]")
_DEEPEST: Final = 40


def split_options(options: str) -> tuple[dict[str, str], list[str]]:
    """Find the macros and the folders of includes in a program's build options.

    Args:
        options: The text that clBuildProgram got.

    Returns:
        The macros of `-D` with their texts, and the folders of `-I`.
    """
    macros: dict[str, str] = {}
    folders: list[str] = []
    words = iter(shlex.split(options))
    for word in words:
        if (kind := word[:2]) in ("-D", "-I"):
            value = word[2:] or next(words, "")
            if kind == "-I":
                folders.append(value)
            else:
                name, given, text = value.partition("=")
                if not name.isidentifier():
                    raise UnreadableKernel(f"its program was built with -D {name}")
                macros[name] = text if given else "1"
    return macros, folders


class Preprocessor:
    """One run over one source.

    Attributes:
        pragmas: In their order.
        decisions: The conditions of its directives, and whether they were taken as true. The names
            in them are the compiler's.
        files: Which it includes: their paths.
    """

    def __init__(
        self,
        given: Mapping[str, str | None],
        defined: Mapping[str, str],
        folders: list[str],
        calculate: Callable[[str], int],
    ) -> None:
        self._given = given
        self._macros = {name: _Macro(None, _words(text)) for name, text in defined.items()}
        self._own = set(defined)  # what is known of their names is right
        self.decisions: dict[str, bool] = {}
        self._folders = folders
        self._calculate = calculate
        self.files: set[Path] = set()
        self._once: set[Path] = set()
        self._depth = 0
        self.pragmas: list[str] = []

    def run(self, source: str) -> list[Token]:
        """Replace the macros of a source, and obey its directives. Returns its tokens.

        Raises:
            UnreadableKernel: It is not known what the driver makes of the source.
        """
        return list(self._run(source, 0, None))

    def _run(self, source: str, included_at: int, path: Path | None) -> Iterator[Token]:
        line, active, chunk = 1, [True], list[Token]()
        taken = [True]  # of each #if: whether one of its branches was taken
        if found := _TRIGRAPH.search(source):
            raise UnreadableKernel(f"the trigraph {found[0]} is not understood", included_at)
        source = _join_lines(source)
        for text in source.split("\n"):
            here = included_at or line
            if match := _DIRECTIVE.fullmatch(text):
                yield from self._expand(chunk)
                chunk = []
                name, rest = match[1], match[2].replace(_INNER, " ").strip()
                if name in ("if", "ifdef", "ifndef"):
                    hit = active[-1] and self._decide(name, rest, here)
                    taken.append(hit or not active[-1])
                    active.append(hit)
                elif name in ("elif", "else", "endif"):
                    if len(active) == 1:
                        raise UnreadableKernel(f"#{name} has no #if", here)
                    active.pop()
                    if name == "endif":
                        taken.pop()
                    else:
                        hit = not taken[-1] and (name == "else" or self._decide("if", rest, here))
                        taken[-1] |= hit
                        active.append(hit)
                elif active[-1]:
                    yield from self._obey(name, rest, here, path)
            elif active[-1]:
                chunk += [Token(word, here) for word in _words(text)]
            line += 1 + text.count(_INNER)
        yield from self._expand(chunk)

    def _obey(self, name: str, rest: str, line: int, path: Path | None) -> Iterator[Token]:
        if name == "define" and (match := _DEFINE.fullmatch(rest)):
            given = match[2]
            names = None if given is None else [one.strip() for one in given.split(",") if given]
            if names and names[-1] == "...":
                names[-1] = "__VA_ARGS__"
            self._macros[match[1]] = _Macro(names, _words(match[3]))
            self._own.add(match[1])
        elif name == "undef":
            self._macros.pop(rest, None)
            self._own.add(rest)
        elif name == "include":
            yield from self._include(rest, line, path)
        elif name == "pragma":
            if rest == "once" and path:
                self._once.add(path)
            elif not _HINTS.match(rest):
                self.pragmas.append(rest)
        elif name not in ("", "warning", "line"):
            raise UnreadableKernel(f"#{name} {rest}".strip(), line)

    def _include(self, rest: str, line: int, of: Path | None) -> Iterator[Token]:
        name = rest.strip('<>" ')
        beside = [of.parent] if of and rest[:1] == '"' else []
        for folder in [*beside, *self._folders]:
            path = Path(folder, name)
            if path.is_file():
                self.files.add(path)
                if path not in self._once:
                    self._depth += 1
                    if self._depth > _DEEPEST:
                        raise UnreadableKernel("its includes are nested too deeply", line)
                    yield from self._run(path.read_text(encoding="utf-8"), line, path)
                    self._depth -= 1
                return
        raise UnreadableKernel(f"the file {name}, which it includes, is not found", line)

    def _decide(self, directive: str, rest: str, line: int) -> bool:
        if directive != "if":
            name = rest.split()[0] if rest else ""
            rest = f"{'!' * (directive == 'ifndef')}defined({name})"

        def is_defined(match: re.Match[str]) -> str:
            name = match[1] or match[2]
            return str(int(name in self._macros)) if name in self._own else f"defined({name})"

        def is_given(match: re.Match[str]) -> str:
            text = self._given.get(match[1], "1" if _OPENCL.fullmatch(match[1]) else None)
            return str(int(text is not None))

        def get_value(match: re.Match[str]) -> str:
            if match[0] not in self._given and _OPENCL.fullmatch(match[0]):
                raise UnreadableKernel(f"the code depends on the value of {match[0]}", line)
            return self._given.get(match[0]) or "0"

        asked = [Token(word, line) for word in _words(_DEFINED.sub(is_defined, rest))]
        words = [token.text for token in self._expand(asked)]
        text = " ".join("0" if word in self._own else word for word in words)
        is_true = self._calculate(_NAME.sub(get_value, _DEFINED.sub(is_given, text))) != 0
        if not text.isdigit():
            self.decisions[text] = is_true
        return is_true

    def _expand(self, tokens: list[Token]) -> Iterator[Token]:
        todo = tokens[::-1]
        while todo:
            token = todo.pop()
            macro = self._macros.get(token.text)
            if macro is None or token.text in token.hidden:
                yield token
            elif macro.parameters is None:
                todo += self._substitute(macro, {}, token, token.hidden)[::-1]
            elif todo and todo[-1].text == "(":
                values, hidden = _arguments(todo, token)
                named = _name_arguments(macro.parameters, values, token)
                todo += self._substitute(macro, named, token, token.hidden & hidden)[::-1]
            else:
                yield token

    def _substitute(
        self, macro: _Macro, values: dict[str, list[Token]], token: Token, hidden: frozenset[str]
    ) -> list[Token]:
        hidden |= {token.text}
        out: list[Token] = []
        body = macro.body
        index = 0
        while index < len(body):
            word = body[index]
            if word == "##" and out and index + 1 < len(body):
                index += 1
                right = values.get(body[index], [Token(body[index], token.line)])
                if right:
                    out[-1] = Token(out[-1].text + right[0].text, token.line)
                    out += right[1:]
            elif word == "#" and macro.parameters is not None and index + 1 < len(body):
                index += 1
                text = " ".join(one.text for one in values.get(body[index], []))
                out.append(Token('"' + text.replace("\\", r"\\").replace('"', r"\"") + '"', 0))
            elif word in values:
                pasted = body[index + 1 : index + 2] == ["##"]
                value = values[word]
                # an empty left side of ## is an empty token, to which the right side is pasted
                out += (value or [Token("", 0)]) if pasted else self._expand(value)
            else:
                out.append(Token(word, 0))
            index += 1
        return [Token(one.text, token.line, one.hidden | hidden) for one in out if one.text]


def _words(text: str) -> list[str]:
    return [word for word in _WORD.findall(text.replace(_INNER, " ")) if not word.isspace()]


def _join_lines(source: str) -> str:
    """Join continued lines, and make each comment a space. Lines keep their numbers."""
    source = source.replace("\r\n", "\n")
    source = re.sub(
        r"((?:[^\n]*\\[ \t]*\n)+)([^\n]*)",
        lambda match: _CONTINUED.sub("", match[1]) + match[2] + _INNER * match[1].count("\n"),
        source,
    )

    def shorten(match: re.Match[str]) -> str:
        text = match[0]
        return " " + _INNER * (text.count("\n") + text.count(_INNER)) if text[0] == "/" else text

    return _COMMENT.sub(shorten, source)


def _arguments(todo: list[Token], name: Token) -> tuple[list[list[Token]], frozenset[str]]:
    """Take the arguments of a call of a macro from the end of the reversed tokens."""
    todo.pop()
    values, depth = [list[Token]()], 0
    while todo:
        token = todo.pop()
        if token.text == ")" and not depth:
            return values, token.hidden
        depth += (token.text == "(") - (token.text == ")")
        if token.text == "," and not depth:
            values.append([])
        else:
            values[-1].append(token)
    raise UnreadableKernel(f"the call of the macro {name.text} does not end", name.line)


def _name_arguments(
    names: list[str], values: list[list[Token]], token: Token
) -> dict[str, list[Token]]:
    if names and names[-1] == "__VA_ARGS__":
        rest: list[Token] = []
        for index, value in enumerate(values[len(names) - 1 :]):
            rest += ([Token(",", token.line)] if index else []) + value
        values = [*values[: len(names) - 1], rest]
    if not names and values == [[]]:
        values = []
    if len(names) != len(values):
        raise UnreadableKernel(f"the macro {token.text} has {len(names)} arguments", token.line)
    return dict(zip(names, values, strict=True))
