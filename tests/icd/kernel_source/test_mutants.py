"""Wrong analyses are caught: each mutant makes one step of the analysis wrong.

A mutant is a copy of the package with one text exchanged. The kernels of test_truth.py then show,
by running, that something is claimed which is not true. With the right analysis they show nothing.
"""

from __future__ import annotations

import importlib
import shutil
import sys
from pathlib import Path

import pyopencl as cl
import pytest

from fairlead.icd import kernel_source

from .test_truth import TRICKY, find_violations

#: What is wrong: the file, its text, what stands there instead, and the kernel that shows it.
MUTANTS = {
    "integers never wrap": (
        "values.py",
        "return self.needs | {Fits(self.value, least, greatest)}",
        "return self.needs",
        "narrow",
    ),
    "branches agree on integers": (
        "values.py",
        "if (left.value, left.type) == (right.value, right.type)",
        "if True",
        "branch",
    ),
    "branches agree on pointers": (
        "values.py",
        "return Pointer(left.arguments | right.arguments, None, left.target)",
        "return left",
        "pointer",
    ),
    "a remainder is the number": (
        "values.py",
        "rest = left.value - right.value * quotient",
        "rest = left.value",
        "modulo",
    ),
    "a quotient is the number": (
        "values.py",
        'quotient = symbol("quotient", "", left.value, right.value)',
        "quotient = left.value",
        "shift",
    ),
    "min and max never limit": ("values.py", " | {Fits(gap, 0, _MOST)}", "", "clamp"),
    "differences are sums": ("values.py", '"-": operator.sub', '"-": operator.add', "minus"),
    "strides never overlap": ("conditions.py", "if stride < reach:", "if False:", "stride"),
    "groups have any size": (
        "conditions.py",
        "dimension), size, size)",
        "dimension), 1, 99)",
        "sixteen",
    ),
    "loops assign nothing": ("syntax.py", "target = one.lvalue", "target = None", "loop"),
    "no address is taken": (
        "syntax.py",
        'if isinstance(one, c_ast.UnaryOp) and one.op == "&":',
        "if False:",
        "address",
    ),
    "helpers do not change what they get": (
        "syntax.py",
        'if isinstance(one, c_ast.UnaryOp) and one.op == "&":',
        "if False:",
        "helper",
    ),
    "loops are forgotten": ("variables.py", "if key[0] in names:", "if False:", "turns"),
    "pointers of loops stay": (
        "variables.py",
        "value.lost if isinstance(value, Pointer)",
        "value if isinstance(value, Pointer)",
        "moved",
    ),
    "blocks have no variables": (
        "walk.py",
        "with self.scope():\n            for one",
        "if True:\n            for one",
        "shadow",
    ),
    "cases do not fall through": (
        "walk.py",
        "self.forget(names)\n                    self.visit(part)",
        "self.visit(part)",
        "case",
    ),
    "a loop ends before its bound": (
        "walk.py",
        'number(int(operator == "<="))',
        "number(0)",
        "shifted",
    ),
    "x++ is ++x": (
        "evaluation.py",
        'return old[0] if node.op[0] == "p" else new',
        "return new",
        "postfix",
    ),
    "++x is x": ("evaluation.py", "Integer(number(1), INT)", "Integer(number(0), INT)", "prefix"),
    "+= is nothing": (
        "evaluation.py",
        "lambda old: calculate_value(name, old, right)",
        "lambda old: old",
        "compound",
    ),
    "a choice is its first part": (
        "evaluation.py",
        "return join(*found)",
        "return found[0]",
        "ternary",
    ),
    "&& evaluates both": (
        "evaluation.py",
        "with self.branch():\n                self.visit(node.right)",
        "if True:\n                self.visit(node.right)",
        "lazy",
    ),
    "a part is the whole": (
        "evaluation.py",
        "return _Storage(place.key, type_)",
        "return _Storage(place.key, type_, True)",
        "union",
    ),
    "helpers return what comes first": (
        "evaluation.py",
        "found = join(found, value)",
        "pass",
        "returns",
    ),
    "casts of pointers do nothing": (
        "evaluation.py",
        "return value.to(type_.target)",
        "return value",
        "short",
    ),
    "vectors are one element": (
        "evaluation.py",
        'self._access(place, match[1] == "store", width, node)',
        'self._access(place, match[1] == "store", pointer.target.size, node)',
        "vload",
    ),
    "atomics access nothing": (
        "evaluation.py",
        "for pointer in pointers:\n                self._access(pointer.lost",
        "for pointer in []:\n                self._access(pointer.lost",
        "atomic",
    ),
    "places in groups are ids": (
        "evaluation.py",
        '"get_local_id": "local"',
        '"get_local_id": "id"',
        "local",
    ),
    "structs have no padding": (
        "c_types.py",
        "start = -(-end // of.alignment) * of.alignment",
        "start = end",
        "padded",
    ),
    "a piece is one access": (
        "reading.py",
        "min(least, distance), max(most, distance + one.width)",
        "least, most",
        "postfix",
    ),
}


QUICK = list(MUTANTS)[::5]


def test_there_are_many() -> None:
    assert len(MUTANTS) >= 20


@pytest.mark.one_driver
@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=[] if name in QUICK else pytest.mark.thorough, id=name)
        for name in MUTANTS
    ],
)
def test_mutants_are_caught(
    context: cl.Context, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """With the right analysis, `test_tricky_kernels` finds nothing in the same kernels."""
    file, old, new, kernel = MUTANTS[name]
    mutant = tmp_path / "mutant"
    package = Path(str(kernel_source.__file__)).parent
    shutil.copytree(package, mutant, ignore=shutil.ignore_patterns("__pycache__"))
    text = (mutant / file).read_text()
    assert text.count(old) == 1, f"{file} has other text now"
    (mutant / file).write_text(text.replace(old, new))
    monkeypatch.syspath_prepend(tmp_path)
    try:
        reading = importlib.import_module("mutant.reading")
        assert find_violations(context, TRICKY, kernel, reading)[0]
    finally:
        for module in [one for one in sys.modules if one.partition(".")[0] == "mutant"]:
            del sys.modules[module]
