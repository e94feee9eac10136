"""Wrong analyses are caught: each mutant makes one step of the analysis wrong.

A mutant is a copy of the package with one text exchanged. The kernels of test_truth.py then show,
by running, that something is claimed which is not true. With the right analysis they show nothing.
"""

from __future__ import annotations

import importlib
import re
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pyopencl as cl
import pytest

from fairlead.icd import kernel_source

from .test_truth import TRICKY, find_violations

#: What is wrong: the file, the kernel that shows it, and what stands there instead.
MUTANTS_AS_DIFFS: Final = r"""
values.py, narrow: integers never wrap
- return self.needs | {Fits(self.value, least, greatest)}
+ return self.needs
values.py, branch: branches agree on integers
- if (left.value, left.type) == (right.value, right.type)
+ if True
values.py, pointer: branches agree on pointers
- return Pointer(left.arguments | right.arguments, None, left.target, root=root)
+ return left
values.py, modulo: a remainder is the number
- rest = left.value - right.value * quotient
+ rest = left.value
values.py, shift: a quotient is the number
- quotient = symbol("quotient", "", left.value, right.value)
+ quotient = left.value
values.py, clamp: min and max never limit
-  | {Fits(gap, 0, _MOST)}
values.py, minus: differences are sums
- "-": operator.sub
+ "-": operator.add
conditions.py, stride: strides never overlap
- if stride < reach:
+ if False:
syntax.py, loop: loops assign nothing
- target = one.lvalue
+ target = None
syntax.py, address: no address is taken
- if isinstance(one, c_ast.UnaryOp) and one.op == "&":
+ if False:
syntax.py, helper: helpers do not change what they get
- if isinstance(one, c_ast.UnaryOp) and one.op == "&":
+ if False:
variables.py, turns: loops are forgotten
- if key[0] in names:
+ if False:
variables.py, moved: pointers of loops stay
- value.lost if isinstance(value, Pointer)
+ value if isinstance(value, Pointer)
walk.py, shadow: blocks have no variables
- with self.scope():
-             for one
+ if True:
+             for one
walk.py, case: cases do not fall through
- self.forget(names)
-                     self.visit(part)
+ self.visit(part)
walk.py, shifted: a loop ends before its bound
- number(int(operator in ("<=", ">")))
+ number(0)
evaluation.py, postfix: x++ is ++x
- return old[0] if node.op[0] == "p" else new
+ return new
evaluation.py, prefix: ++x is x
- Integer(number(1), INT)
+ Integer(number(0), INT)
evaluation.py, compound: += is nothing
- self._calculate(name, old, right) if name
+ old if name
evaluation.py, ternary: a choice is its first part
- return join(*found)
+ return found[0]
evaluation.py, lazy: && evaluates both
- with self.branch():
-                 self.visit(node.right)
+ if True:
+                 self.visit(node.right)
evaluation.py, union: a part is the whole
- return _Storage(place.key, type_)
+ return _Storage(place.key, type_, True)
evaluation.py, returns: helpers return what comes first
- reduce(join, self.returned)
+ self.returned[0]
evaluation.py, short: casts of pointers do nothing
- return value.to(type_.target)
+ return value
evaluation.py, vload: vectors are one element
- self._access(place, match[1] == "store", width, node)
+ self._access(place, match[1] == "store", pointer.target.size, node)
evaluation.py, atomic: atomics access nothing
- for pointer in pointers:
-                 self._access(pointer.lost
+ for pointer in []:
+                 self._access(pointer.lost
evaluation.py, local: places in groups are ids
- "get_local_id": "local"
+ "get_local_id": "id"
c_types.py, padded: structs have no padding
- start = -(-end // of.alignment) * of.alignment
+ start = end
reading.py, postfix: a piece is one access
- min(least, distance), max(most, distance + one.width)
+ least, most
"""


def _read_diffs(diffs: str) -> Iterator[tuple[str, tuple[str, str, str, str]]]:
    """Yield the name of each mutant, its file, the text, what stands there instead, its kernel."""
    for mutant in re.split(r"\n(?=\w)", diffs.strip("\n")):
        head, *lines = mutant.split("\n")
        file, kernel, name = re.split(", |: ", head, maxsplit=2)
        old, new = ("\n".join(one[2:] for one in lines if one[0] == sign) for sign in "-+")
        yield name, (file, old, new, kernel)


MUTANTS: Final = dict(_read_diffs(MUTANTS_AS_DIFFS))


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
