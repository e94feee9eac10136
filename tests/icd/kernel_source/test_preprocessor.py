"""The preprocessor, compared with GCC's."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pyopencl
import pytest

from fairlead.icd.kernel_source.errors import UnreadableKernel
from fairlead.icd.kernel_source.parsing import _calculate, parse_program
from fairlead.icd.kernel_source.preprocessor import Preprocessor

HEADERS = Path(pyopencl.__file__).parent / "cl"
TRICKY = r"""
#define EMPTY
#define f(x) (x + g(x))
#define g(x) f(2 * x)
f(1) f (2) f
(3) f EMPTY (4)
#define x1 3
#define paste(a, b) a ## b
#define pasted(a, b) paste(a, b)
#define xy x1
paste(x, 1) pasted(x, y) paste(, x1) paste(x1, ) pasted(EMPTY, y)
#define text(a) #a
text(a + "b\n" /* gone */ + x1)
#define several(a, ...) a(__VA_ARGS__)
several(f, 1) several(h, 1, (2, 3), 4) several(h,)
#define none() 7
none() none
#define self self + 1
self
#if defined(x1) && !defined x2 && (x1 * 2 == 6 || 1 / 0) ? 1 : 0
right
#elif 1
wrong
#else
wrong
#endif
#if 0
#if 1
wrong
#else
wrong
#endif
#elif -1 / 2 == 0 && 0x10 >> 2 == 4 && 010 == 8 && 5 % 3 == 2u && ~0 == -1
right too
#endif
#undef x1
x1 "a /* no comment */ // none" 'c' // a comment \
that goes on
long\
name 1.5e+3f .5 0x1p-3 a+++b x->y <<= ...
#ifndef x1
# define x1(a) a /* a comment
of two lines */ + a
#endif
x1(3
,) /**/ x1
(
4) __LINES
"""


def _words(text: str) -> list[str]:
    text = re.sub(r"^#.*", "", text, flags=re.MULTILINE)
    return re.findall(r'"(?:\\.|[^"\\])*"|\w+|[^\w\s]', text)


def _ours(source: str, folders: list[str]) -> list[str]:
    tokens = Preprocessor({}, {}, folders, _calculate).run(source)
    return _words("\n".join(token.text for token in tokens))


def _theirs(source: str, folders: list[str]) -> list[str]:
    command = ["gcc", "-E", "-P", "-undef", "-x", "c", *(f"-I{one}" for one in folders), "-"]
    done = subprocess.run(command, input=source, capture_output=True, text=True, check=False)
    return _words(done.stdout)


@pytest.mark.skipif(not shutil.which("gcc"), reason="needs gcc")
def test_like_gcc() -> None:
    source = TRICKY.replace("x1(3\n,)", "x1(3)").replace("a comment \\", "a comment \\ ")
    assert _ours(source, []) == _theirs(source, [])


@pytest.mark.skipif(not shutil.which("gcc"), reason="needs gcc")
@pytest.mark.parametrize("header", ["pyopencl-complex.h", "pyopencl-random123/philox.cl"])
def test_headers_of_pyopencl_like_gcc(header: str) -> None:
    source = f"#define PYOPENCL_DEFINE_CDOUBLE\n#define __OPENCL_VERSION__ 120\n#include <{header}>"
    assert _ours(source, [str(HEADERS)]) == _theirs(source, [str(HEADERS)])


@pytest.mark.parametrize(
    ("source", "line", "reason"),
    [
        ("\n#if UINT_MAX > 5\n#endif", 2, "UINT_MAX"),
        ("#if 0\n#error a\n#endif\n#error b", 4, "b"),
        ("#else", 1, "no #if"),
        ("#define f(a) a\nf(1, 2)", 2, "1 arguments"),
        ("#define f(a) a\nf(1", 2, "does not end"),
        ("#include <missing.h>", 1, "missing.h"),
        ("#if a(\n#endif", 0, "parser"),
        ("// ??/\nint a;", 0, "trigraph"),
        ('_Pragma("OPENCL FP_CONTRACT OFF")', 1, "_Pragma"),
        ("int a;\nfloat2 f(int x, int y) { return (float2)((x, y)); }", 2, "a cast of a comma"),
    ],
)
def test_what_is_not_understood(source: str, line: int, reason: str) -> None:
    with pytest.raises(UnreadableKernel, match=re.escape(reason)) as caught:
        parse_program(source, "", frozenset())
    assert caught.value.line == line


def test_parentheses_of_vectors() -> None:
    """A literal, and casts of one value."""
    values = "(float2)(x, y)", "(float2)((x))", "(float2)((x + y), y)", "(float2)((x), f(x, y).x)"
    text = "".join(f"a = {value};" for value in values)
    source = f"float2 f(int x, int y) {{ float2 a; {text} return a; }}"
    assert "f" in parse_program(source, "", frozenset()).functions


def test_what_depends_on_the_driver_is_written_down() -> None:
    source = """
        #define OWN __OPENCL_VERSION__
        #undef GONE
        #if OWN >= 200 && !defined(__POCL__) && !defined GONE && (-1 < 0u || defined(M_PI))
        int f() { return __OPENCL_VERSION__; }
        #endif
        #ifndef GUARD
        #define GUARD
        #endif
        #ifdef GUARD
        #endif"""
    found = parse_program(source, "-D OTHER", frozenset({("__OPENCL_VERSION__", "300")}))
    condition = "__OPENCL_VERSION__ >= 200 && ! defined ( __POCL__ ) && ! 0"
    assert found.functions and found.decisions == {
        f"{condition} && ( - 1 < 0u || defined ( M_PI ) )": True,
        "! defined ( GUARD )": True,
    }
