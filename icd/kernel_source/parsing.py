"""OpenCL C as a syntax tree of pycparser, and back.

OpenCL C becomes C by exchanging words: address spaces become qualifiers that C has and OpenCL C
lacks, and types become typedefs. Vector literals and swizzles are C's casts and members already.
`write_opencl` exchanges the words again.
"""

from __future__ import annotations

import re
from functools import lru_cache
from pathlib import Path
from typing import Final, NamedTuple

from pycparser import c_ast, c_generator, c_parser

from .constants import calculate
from .errors import UnreadableKernel
from .preprocessor import Preprocessor, Token, split_options

#: Words of OpenCL C, and words of C that stand for them in the tree.
_SPACES: Final = {"global": "_Atomic", "local": "restrict", "constant": "_Atomic restrict"}
_WORDS: Final = {
    **_SPACES,
    **{f"__{word}": text for word, text in _SPACES.items()},
    **dict.fromkeys(("kernel", "__kernel"), "_Noreturn"),
    **dict.fromkeys(("__inline", "__inline__"), "inline"),
    **dict.fromkeys(("private", "__private", "restrict", "__restrict", "__restrict__"), ""),
    **{word: word.strip("_") for word in ("__const", "__signed__")},
}
_UNREADABLE: Final = re.compile(
    r"_Pragma|__func__|__(LINE|COUNTER|FILE|FILE_NAME|BASE_FILE|INCLUDE_LEVEL|DATE|TIME|TIMESTAMP"
    r"|FUNCTION|PRETTY_FUNCTION)__"  # these have other values in a fused program
    r"|asm|__asm__|__asm|__typeof__|typeof|generic|__generic|vec_step|goto|\^\(|pipe"
    r"|volatile|__volatile__|(__)?(read_only|write_only|read_write)|image\w+_t|sampler_t"
    r"|\.?\d[\w.]*[hH]"
)
_SCALARS: Final = "char|uchar|short|ushort|int|uint|long|ulong|float|double|half"
#: SourceTypes that C lacks. The tree has a typedef of each that occurs.
_TYPE: Final = re.compile(
    r"bool|u(char|short|int|long)|half|size_t|ptrdiff_t|u?intptr_t|event_t|cl_mem_fence_flags"
    r"|memory_(order|scope)|atomic_\w+_t|atomic_(u?int|u?long|float|double|flag)"
    rf"|({_SCALARS})(2|3|4|8|16)"
)
_ALIGNED: Final = re.compile(
    r"\(\((?:__)?aligned(?:__)?\((?:(\d+)\*)?(?:sizeof\((\w+)\)|(\d+))\)\)\)"
)
_SIZES: Final = {"float": 4, "double": 8, "int": 4, "long": 8, "char": 1, "short": 2}


class ParsedProgram(NamedTuple):
    """A program's syntax tree.

    Attributes:
        functions: Its functions and kernels that have a body.
        declarations: All that the source declares, in its order.
        pragmas: Its pragmas but those that are hints for loops.
        attributes: The words of its attributes, as `reqd_work_group_size`, and their lines.
        alignment: The greatest alignment of the structs that have one given, in bytes. -1: it
            is not known how structs lie in memory.
        decisions, files: See `Preprocessor`.
    """

    functions: dict[str, c_ast.FuncDef]
    declarations: tuple[c_ast.Node, ...]
    pragmas: tuple[str, ...]
    alignment: int
    attributes: frozenset[tuple[str, int]]
    decisions: dict[str, bool]
    files: set[Path]


@lru_cache(maxsize=256)
def parse_program(
    source: str, options: str, macros: frozenset[tuple[str, str | None]]
) -> ParsedProgram:
    """Parse a program.

    Args:
        source: OpenCL C.
        options: The program's build options.
        macros: What the driver defines: names and texts. None says that a name is not defined.
            Other names are taken as what OpenCL C says, or as not defined.

    Raises:
        UnreadableKernel: The source is not understood.
    """
    defined, folders = split_options(options)
    preprocessor = Preprocessor(dict(macros), defined, folders, _calculate)
    tokens, alignment, attributes = _take_attributes(preprocessor.run(source))
    for token in tokens:
        if _UNREADABLE.fullmatch(token.text):
            raise UnreadableKernel(f"{token.text} is not understood", token.line)
    _refuse_commas(tokens)
    used = sorted({token.text for token in tokens if _TYPE.fullmatch(token.text)})
    prelude = "".join(f"typedef int {name};" for name in used)
    tree = _parse(f'{prelude}\n#line 1 "kernel"\n{_layout(tokens)}\n')
    declarations = tuple(tree.ext[len(used) :])
    functions = {node.decl.name: node for node in declarations if isinstance(node, c_ast.FuncDef)}
    rest = alignment, attributes, preprocessor.decisions, preprocessor.files
    return ParsedProgram(functions, declarations, tuple(preprocessor.pragmas), *rest)


def write_opencl(node: c_ast.Node) -> str:
    """Write a syntax tree, or a part of it, as OpenCL C."""
    text = _Generator().visit(node)
    for word, mapped in (("constant", "_Atomic restrict"), ("global", "_Atomic")):
        text = re.sub(rf"\b{mapped}\b", word, text)
    return re.sub(r"\b_Noreturn\b", "kernel", re.sub(r"\brestrict\b", "local", text))


class _Generator(c_generator.CGenerator):
    def visit_Cast(self, n: c_ast.Cast) -> str:
        """Write a vector literal as it was: C's cast of a comma has parentheses more."""
        if isinstance(n.expr, c_ast.ExprList):
            return f"({self._generate_type(n.to_type)}) ({self.visit(n.expr)})"
        return super().visit_Cast(n)


def _calculate(text: str) -> int:
    declaration = _parse(f"int x[{text}];").ext[0].type
    return calculate(declaration.dim)


def _parse(text: str) -> c_ast.FileAST:
    try:
        return c_parser.CParser().parse(text)
    except (c_parser.ParseError, AssertionError, RecursionError) as error:
        line = re.match(r"kernel:(\d+)", str(error))
        reason = f"the parser does not understand it ({str(error).partition(': ')[2] or error})"
        raise UnreadableKernel(reason, int(line[1]) if line else 0) from None


def _take_attributes(tokens: list[Token]) -> tuple[list[Token], int, frozenset[tuple[str, int]]]:
    """Take `__attribute__((…))` away, and say what alignment structs are given."""
    rest: list[Token] = []
    found: set[tuple[str, int]] = set()
    alignment, depth, words = 0, -1, ""  # depth -1: outside
    for token in tokens:
        if token.text in ("__attribute__", "__attribute"):
            depth = 0
        elif depth < 0:
            rest.append(token)
        else:
            depth += (token.text == "(") - (token.text == ")")
            words += token.text
            if re.match(r"\w", token.text):
                found.add((token.text.strip("_"), token.line))
            if token.text == ")" and not depth:
                given = _ALIGNED.fullmatch(words)
                size = given and int(given[1] or 1) * _SIZES.get(given[2], int(given[3] or 0))
                if "packed" in words or ("aligned" in words and (rest[-1].text != "}" or not size)):
                    alignment = -1
                elif size and alignment >= 0:
                    alignment = max(alignment, size)
                depth, words = -1, ""
    return rest, alignment, frozenset(found)


def _refuse_commas(tokens: list[Token]) -> None:
    """Raise an error for `(float2)((x, y))`, whose tree is that of the literal `(float2)(x, y)`."""
    texts = [token.text for token in tokens]
    for n in range(len(texts) - 4):
        if texts[n + 2 : n + 5] == [")", "(", "("] and _TYPE.fullmatch(texts[n + 1]):
            depth, end = 1, n + 5
            while depth and end < len(texts):
                depth += (texts[end] == "(") - (texts[end] == ")")
                end += 1
            if "," in texts[n:end] and texts[end : end + 1] == [")"]:
                raise UnreadableKernel("a cast of a comma is not understood", tokens[n].line)


def _layout(tokens: list[Token]) -> str:
    """Write tokens on their lines. A token of a macro is on the line of the macro's name."""
    out: list[str] = []
    line = 1
    for text, wanted, _ in tokens:
        if line < wanted <= line + 3:
            out.append("\n" * (wanted - line))
            line = wanted
        elif wanted != line:
            out.append(f'\n#line {wanted} "kernel"\n')
            line = wanted
        out.append(_WORDS.get(text, text))
    return " ".join(out)
