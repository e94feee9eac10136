"""What keeps a compiler of CPUs from concluding more of signed integers in a fused kernel.

C leaves signed overflow undefined. So a compiler takes `y > x` for true where it sees that `y` is
`x + 1`, and `x * x` for positive. In kernels of their own it saw neither: one kernel wrote `y` and
another one read it, or `x` came from two arguments. Processors let such numbers wrap around. So the
function of an old kernel that calculates with signed integers hides what it reads: each element
passes `x ^ zero`, with a zero of that argument that is an argument of the fused kernel.
"""

from __future__ import annotations

import copy
import re
from collections.abc import Mapping, Sequence
from typing import Any, Final

from pycparser import c_ast

from ...kernel_source.c_types import INT, SIZE, CType, SourceTypes
from ...kernel_source.errors import UnreadableKernel
from ...kernel_source.parsing import write_opencl
from ...kernel_source.reading import KernelAccess
from ...kernel_source.syntax import children, find_needed, walk_tree
from .opaque import isolate, measure_kind

_SIGNED: Final = ("char", "short", "int", "long")
_ARITHMETIC: Final = frozenset({"+", "-", "*", "/", "%", "<<"})
_COMPARISONS: Final = frozenset({"<", ">", "<=", ">=", "==", "!=", "&&", "||"})
_STEPS: Final = frozenset({"++", "--", "p++", "p--"})
#: Functions whose name has the type that they return.
_NAMED_TYPE: Final = re.compile(r"(?:convert|as)_(u?(?:char|short|int|long|half|float|double)\d*)")


def find_hidden(
    access: KernelAccess, elements: Mapping[str, tuple[str, str]]
) -> tuple[tuple[str, str, str], ...]:
    """Return the arguments of which a kernel hides the elements: name, variable, type.

    Args:
        elements: how elements of arguments are written (`KernelRead.elements`).

    Raises:
        UnreadableKernel: it reads signed integers in a way that cannot be hidden.
    """
    needed = find_needed(access.program.declarations, access.function)
    functions = [row.node for row in needed if isinstance(row.node, c_ast.FuncDef)]
    types = SourceTypes(access.program)
    returned = {one.decl.name: types.read(one.decl.type.type) for one in functions}
    if not any(_Arithmetic(types, returned, one).is_signed for one in functions):
        return ()
    found = list[tuple[str, str, str]]()
    for name, argument in access.arguments.items():
        target, row = argument.parameter.type.target, elements.get(name)
        if row is None or not measure_kind(row[1]):
            if target is None or _has_signed(target):
                raise UnreadableKernel(f"it calculates with signed integers of its {name}")
        elif argument.reads and row[1].startswith(_SIGNED):
            found.append((name, *row))
    variables = {variable for _, variable, _ in found}
    for node in walk_tree(access.function):
        if not isinstance(node, c_ast.UnaryOp) or node.op not in (*_STEPS, "&"):
            continue
        if _indexed(node.expr, variables):
            name = node.op.strip("p")
            raise UnreadableKernel(f"it calculates with signed integers that it uses with {name}")
    return tuple(found)


def _has_signed(type_: CType) -> bool:
    if type_.kind == "struct":
        return not type_.members or any(_has_signed(one) for _, _, one in type_.members)
    if type_.kind in ("vector", "array"):
        return type_.target is None or _has_signed(type_.target)
    return type_.kind != "float" and not (type_.kind == "integer" and not type_.signed)


def _indexed(node: Any, variables: set[str]) -> bool:
    """Return whether an expression is an element, or a component of one."""
    return any(
        isinstance(one, c_ast.ArrayRef) and getattr(one.name, "name", "") in variables
        for one in walk_tree(node)
    )


class _Arithmetic(c_ast.NodeVisitor):
    """Finds out whether a function calculates with signed integers.

    A visit of an expression returns its type. What is not known is taken for a signed integer.
    """

    def __init__(
        self, types: SourceTypes, returned: Mapping[str, CType], function: c_ast.FuncDef
    ) -> None:
        self._types, self._returned, self.is_signed = types, returned, False
        self._variables = dict[str, CType]()
        for node in walk_tree(function):
            if isinstance(node, c_ast.Decl) and node.name:
                known, type_ = self._variables.get(node.name), types.read(node.type)
                self._variables[node.name] = type_ if known in (None, type_) else INT
        self.visit(function.body)

    def visit(self, node: Any) -> CType:
        return super().visit(node) or INT

    def generic_visit(self, node: Any) -> None:
        for one in children(node):
            self.visit(one)

    def visit_Decl(self, node: Any) -> CType:
        return self.visit(node.init) if node.init is not None else INT

    def visit_Constant(self, node: Any) -> CType:
        is_float = "int" not in node.type and "char" not in node.type
        return CType("float", 4, name="float") if is_float else INT

    def visit_ID(self, node: Any) -> CType:
        return self._variables.get(node.name, INT)

    def visit_Cast(self, node: Any) -> CType:
        self.visit(node.expr)
        return self._types.read(node.to_type)

    def visit_FuncCall(self, node: Any) -> CType:
        name = getattr(node.name, "name", "")
        given = [self.visit(one) for one in (node.args.exprs if node.args else ())]
        if name in self._returned:
            return self._returned[name]
        if name.startswith("get_"):
            return SIZE
        if found := _NAMED_TYPE.match(name):
            return self._types.read(c_ast.IdentifierType([found[1]]))
        return given[0] if given else INT

    def visit_ArrayRef(self, node: Any) -> CType:
        type_ = self.visit(node.name)
        self.visit(node.subscript)
        return type_.target or INT

    def visit_StructRef(self, node: Any) -> CType:
        of = self.visit(node.name)
        if node.type == "->":
            of = of.target or INT
        if of.kind == "vector":
            return of.target or INT
        return of.find(node.field.name)[1] or INT

    def visit_TernaryOp(self, node: Any) -> CType:
        self.visit(node.cond)
        return self._join(self.visit(node.iftrue), self.visit(node.iffalse))

    def visit_UnaryOp(self, node: Any) -> CType:
        type_ = self.visit(node.expr)
        if node.op == "*":
            return type_.target or INT
        if node.op == "&":
            return CType("pointer", 8, target=type_)
        if node.op in ("-", *_STEPS):
            self._calculate(type_)
        return INT if node.op == "!" else type_

    def visit_BinaryOp(self, node: Any) -> CType:
        type_ = self._join(self.visit(node.left), self.visit(node.right))
        if node.op in _COMPARISONS:
            return INT
        if node.op in _ARITHMETIC:
            self._calculate(type_)
        return type_

    def visit_Assignment(self, node: Any) -> CType:
        type_ = self.visit(node.lvalue)
        right = self.visit(node.rvalue)
        if node.op != "=":
            self._calculate(self._join(type_, right))
        return type_

    def _calculate(self, type_: CType) -> None:
        element = type_.target if type_.kind == "vector" else type_
        self.is_signed |= element is None or (element.kind == "integer" and element.signed)

    def _join(self, left: CType, right: CType) -> CType:
        for kind in ("pointer", "vector", "struct", "float"):
            for one in (left, right):
                if one.kind == kind:
                    return one
        wide = max(left, right, key=lambda one: (one.size, not one.signed))
        return wide if wide.size >= 4 else INT


class HideElements(c_ast.NodeVisitor):
    """Lets a function hide the elements that it reads.

    Args:
        rows: of `find_hidden`.
        own: the arguments instead of whose elements it takes pointers to variables.
    """

    def __init__(self, rows: Sequence[tuple[str, str, str]], own: Sequence[str]) -> None:
        self._rows = {
            f"*fl_own_{name}" if name in own else variable: (kind, name_zero(name))
            for name, variable, kind in rows
        }

    def visit_Assignment(self, node: Any) -> None:
        target = node.lvalue
        while isinstance(target, c_ast.StructRef):  # a component of a vector
            target = target.name
        row = self._find(target)
        if row is not None and node.op != "=":  # `x[i] += y` reads `x[i]`
            old = copy.deepcopy(c_ast.ExprList([node.lvalue]))
            node.op, node.rvalue = "=", c_ast.BinaryOp(node.op[:-1], old, node.rvalue)
        if row is None:
            self._replace(node, "lvalue", node.lvalue)
        else:
            self.generic_visit(target)
        self._replace(node, "rvalue", node.rvalue)

    def generic_visit(self, node: Any) -> None:
        for name, child in node.children():
            self._replace(node, name, child)

    def _replace(self, node: Any, name: str, child: Any) -> None:
        """Hide an element that is a part of a node, or look at its parts."""
        row = self._find(child)
        if row is None:
            self.visit(child)
            return
        self.generic_visit(child)
        new = c_ast.ID(isolate(write_opencl(child), *row))
        field, _, place = name.partition("[")  # children() names them so: "args" or "exprs[1]"
        if place:
            getattr(node, field)[int(place[:-1])] = new
        else:
            setattr(node, field, new)

    def _find(self, node: Any) -> tuple[str, str] | None:
        """Return the type and the zero of an element, None if it is something else."""
        if isinstance(node, c_ast.UnaryOp) and node.op == "*":
            return self._rows.get(f"*{getattr(node.expr, 'name', '')}")
        if isinstance(node, c_ast.ArrayRef):
            return self._rows.get(getattr(node.name, "name", ""))
        return None


def name_zero(argument: str) -> str:
    """Return the name of the zero that hides an argument's elements."""
    return f"fl_zero_{argument}"
