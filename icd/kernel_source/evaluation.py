"""The values of expressions, and each access to memory in them."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import reduce
from typing import Any, Final

from pycparser import c_ast

from .c_types import INT, LONG, SIZE, UINT, ULONG, CType, SourceTypes
from .conditions import UNIFORM_GROUPS, Needs
from .constants import integer
from .growth import GROWING, MEMORY, Root, combine, unite
from .parsing import ParsedProgram
from .polynomials import Polynomial, number, symbol
from .syntax import children, line_of
from .values import (
    PRIVATE,
    Integer,
    Pointer,
    Unknown,
    Value,
    calculate_value,
    find_flows,
    find_type,
    join,
    limit,
)
from .variables import Variables


@dataclass(frozen=True)
class KernelParameter:
    """A parameter of a function: a kernel, or a helper."""

    name: str
    index: int
    type: CType
    declaration: c_ast.Decl


@dataclass(frozen=True)
class Access:
    """An access to an argument's memory.

    Attributes:
        argument: The argument's name.
        writes: Whether it writes. It reads otherwise.
        offset: Its first byte; None if that is not known.
        width: Bytes; 0 if that is not known.
        needs: What must be true, so that the offset is right.
        certain: Whether each item does it.
    """

    argument: str
    writes: bool
    offset: Polynomial | None
    width: int
    needs: Needs
    line: int
    certain: bool


@dataclass(frozen=True)
class SignedResult:
    """What an operator makes of signed integers, or an integer made of a floating-point number.

    C leaves it undefined where the type is too small.

    Attributes:
        value: The right number as long as no type was too small; None if it is not known.
        needs: What must be true, so that its type was not, nor another one on the way to it.
        range: The least and the greatest number of the type; (0, 0) if it is not known.
        refusal: Why a launch with it stays as it is whatever its values are, or "".
    """

    value: Polynomial | None
    needs: Needs
    range: tuple[int, int]
    line: int
    refusal: str = ""


@dataclass(frozen=True)
class _Storage:
    """A variable, or a part of one. Of parts only the type is known."""

    key: Root | None
    target: CType | None
    whole: bool = False


_NOWHERE: Final = _Storage(None, None)
_DIVIDES: Final = "a divisor may be 0"
_CONVERTS: Final = "a compiler has several ways to make a small or unsigned integer of a double"
#: Functions of ids, and the symbols of what they return.
_IDS: Final = {
    "get_local_id": "local",
    "get_group_id": "group",
    "get_global_size": "global_size",
    "get_local_size": "local_size",
    "get_enqueued_local_size": "local_size",
    "get_num_groups": "groups",
    "get_global_offset": "offset",
}
#: What a kernel uses besides memory of its arguments: by the functions that it calls.
_USES: Final = {
    "barrier": re.compile(r"(work_group_|sub_group_)?barrier|\w*mem_fence|(work|sub)_group_\w+"),
    "printf": re.compile("printf"),
}
_ATOMIC: Final = re.compile(r"atom(ic)?_\w+")
#: Functions that write one element where their pointer leads.
_WRITING: Final = frozenset({"fract", "modf", "sincos", "remquo", "frexp", "lgamma_r"})
_VECTOR_ACCESS: Final = re.compile(r"v(load|store)(a_half|_half)?(|2|3|4|8|16)(_rt[ezpn])?")
#: Functions whose name has the type that they return.
_NAMED_TYPE: Final = re.compile(r"(?:convert|as)_(u?(?:char|short|int|long|half|float|double)\d*)")
#: Functions that make products.
_PRODUCTS: Final = re.compile(r"mul|mad|fma|rot")
_COMPONENT: Final = re.compile("[xyzw]|[sS][0-9a-fA-F]")
_DEEPEST: Final = 24
_Place = _Storage | Pointer


class Evaluation(Variables, c_ast.NodeVisitor):
    """Visits expressions. A visit returns the value, or None if it is not known.

    Attributes:
        accesses: In the order of the walk.
        signed: What is calculated with signed integers or converted to integers.
        uses: `barrier`, `local memory`, `atomics`, `printf`: what else the kernel uses.
        returned: The values that the function returns.
        left: What may have ended the walk already: `Return`, `Break`, `Continue`.
    """

    def __init__(self, program: ParsedProgram, uniform_groups: bool) -> None:
        super().__init__()
        self.accesses: list[Access] = []
        self.signed: list[SignedResult] = []
        self.uses: set[str] = set()
        self.returned: list[Value] = []
        self.left: frozenset[type] = frozenset()
        self.types = SourceTypes(program)
        self.functions = program.functions
        self._groups: Needs = frozenset() if uniform_groups else UNIFORM_GROUPS
        self._depth = 0

    def visit(self, node: c_ast.Node | None) -> Any:
        """Walk a part of a kernel."""
        if node is None:
            return Unknown()
        self.line = line_of(node) or self.line
        return super().visit(node)

    def generic_visit(self, node: c_ast.Node) -> None:
        """Refuse what no method walks."""
        raise self.refuse(f"{type(node).__name__} is not understood")

    # memory

    def _access(self, pointer: Pointer, writes: bool, width: int, node: c_ast.Node) -> None:
        place = pointer.offset if len(pointer.arguments) == 1 else None
        certain = not self.in_branch and not self.left
        rest = place, width, pointer.needs, line_of(node) or self.line, certain
        self.accesses += (Access(name, writes, *rest) for name in sorted(pointer.arguments))

    def _place(self, node: c_ast.Node) -> _Place:
        """Return where an expression that can be assigned is."""
        match node:
            case c_ast.ID(name=name):
                found = self.find(name)
                return _Storage(*found, whole=name not in self.program_scope) if found else _NOWHERE
            case c_ast.ArrayRef():
                return self._element(node)
            case c_ast.UnaryOp(op="*"):
                return self._follow(self.visit(node.expr))
            case c_ast.StructRef(type="->"):
                return self._member(self._follow(self.visit(node.name)), node)
            case c_ast.StructRef():
                return self._member(self._place(node.name), node)
            case _:
                self.visit(node)
                return _NOWHERE

    def _element(self, node: c_ast.ArrayRef) -> _Place:
        is_place = isinstance(node.name, c_ast.ID | c_ast.ArrayRef | c_ast.StructRef)
        place = self._place(node.name) if is_place else None
        base = self.visit(node.name) if place is None else self._load(place, node)
        index: Value = self.visit(node.subscript)
        if isinstance(index, Pointer):
            base, index = index, base
        if isinstance(base, Pointer):
            return base.move(index, base.target.size)
        if isinstance(place, _Storage) and place.target and place.target.kind == "vector":
            return _Storage(place.key, place.target.target)
        return self._follow(base)

    def _member(self, place: _Place, node: c_ast.StructRef) -> _Place:
        of = place.target
        if of is not None and of.kind == "vector":
            if isinstance(place, Pointer):  # to store one component keeps the others: it reads
                self._access(place, False, of.size, node)
                return place
            return _Storage(place.key, of)
        offset, type_ = of.find(node.field.name) if of is not None else (None, None)
        if isinstance(place, _Storage):
            return _Storage(place.key, type_)
        by = Unknown() if offset is None else Integer(number(offset), LONG)
        return place.move(by, 1).to(type_ or CType("void"))

    def _follow(self, value: Value) -> Pointer:
        if not isinstance(value, Pointer):
            raise self.refuse("it is not known where a pointer leads")
        return value

    def _load(self, place: _Place, node: c_ast.Node) -> Value:
        type_ = place.target
        if type_ and type_.kind == "array" and type_.target:
            if isinstance(place, _Storage):
                place = replace(PRIVATE, root=self.find_root(place.key))
            return place.to(type_.target)
        if isinstance(place, Pointer):
            self._access(place, False, place.target.size, node)
        return self._get(place)

    def _get(self, place: _Place) -> Value:
        """Return what is known of what is in a place."""
        if isinstance(place, Pointer):
            return Unknown(place.target, dict.fromkeys(place.roots, 1))
        value = self.known.get(place.key) if place.key and place.whole else None
        value = value or self.get_unknown(place.key)
        return Unknown(place.target, value.flows) if isinstance(value, Unknown) else value

    def _calculate(self, name: str, left: Value, right: Value) -> Value:
        """Return what an operator makes of two values, and note integers."""
        made = calculate_value(name, left, right)
        if name not in GROWING or isinstance(made, Pointer):
            return made
        type_ = made.type.scalar if made.type else None
        # A compiler concludes that a divisor is not 0, also in the kernels behind.
        is_integer = type_ is not None and type_.kind == "integer"
        divides = name in "/%" and is_integer and not isinstance(right, Integer)
        refusal = _DIVIDES if divides else ""
        if type_ is None or (is_integer and (type_.signed or divides)):
            known = [one.exact for one in (left, right, made) if isinstance(one, Integer)]
            value = made.value if isinstance(made, Integer) else None
            row = value, frozenset().union(*known), type_.range if type_ else (0, 0)
            self.signed.append(SignedResult(*row, self.line, refusal))
        return made

    def _note_conversion(self, value: Value, type_: CType | None) -> None:
        """Note a floating-point number that becomes an integer."""
        old = find_type(value)
        match old and old.scalar, type_ and type_.scalar:
            case CType("float", size=of), CType("integer") as to if to.name != "bool":
                # A processor converts 32-bit floats to all integers in one way, doubles in several.
                refusal = _CONVERTS if of == 8 and (to.size < 4 or not to.signed) else ""
                self.signed.append(SignedResult(None, frozenset(), (0, 0), self.line, refusal))

    def set(self, key: Root, type_: CType, value: Value) -> Value:
        self._note_conversion(value, type_)
        return super().set(key, type_, value)

    # expressions

    def visit_Constant(self, node: c_ast.Constant) -> Value:
        if "int" not in node.type:
            is_char = node.type == "char"
            return Unknown(INT if is_char else self.types.read_name(node.type.split()[-1]))
        value, digits = integer(node.value), node.value.rstrip("uUlL")
        suffix = node.value[len(digits) :].lower()
        types = (UINT, ULONG) if "u" in suffix else (INT, LONG)
        if digits[0] == "0" and len(digits) > 1 and "u" not in suffix:
            types = (INT, UINT, LONG, ULONG)
        for type_ in types:
            if value <= type_.range[1] and (type_.size == 8 or "l" not in suffix):
                return Integer(number(value), type_)
        return Unknown()

    def visit_ID(self, node: c_ast.Node) -> Value:
        return self._load(self._place(node), node)

    visit_ArrayRef = visit_ID

    def visit_StructRef(self, node: c_ast.StructRef) -> Value:
        found = self._load(self._place(node), node)
        if isinstance(found, Unknown) and found.type and found.type.kind == "vector":
            is_one = _COMPONENT.fullmatch(node.field.name)
            return replace(found, type=found.type.target) if is_one else found
        return found

    def visit_UnaryOp(self, node: c_ast.UnaryOp) -> Value:
        name = node.op.strip("p")
        if name == "sizeof":
            is_type = isinstance(node.expr, c_ast.Typename)
            size = self.types.read(node.expr).size if is_type else 0
            return Integer(number(size), SIZE) if size else Unknown(SIZE)
        if name == "*":
            return self._load(self._place(node), node)
        if name == "&":
            place = self._place(node.expr)
            return place if isinstance(place, Pointer) else PRIVATE
        if name in ("++", "--"):
            old: list[Value] = []

            def step(value: Value) -> Value:
                old.append(value)
                return self._calculate(name[0], value, Integer(number(1), INT))

            new = self._assign(node.expr, step, reads=True)
            return old[0] if node.op[0] == "p" else new
        value = self.visit(node.expr)
        if name in ("-", "+", "~"):
            operator, zero = ("^", -1) if name == "~" else (name, 0)
            return self._calculate(operator, Integer(number(zero), INT), value)
        return Unknown(INT)

    def visit_BinaryOp(self, node: c_ast.BinaryOp) -> Value:
        if node.op in ("&&", "||"):
            self.visit(node.left)
            with self.branch():
                self.visit(node.right)
            return Unknown(INT)
        return self._calculate(node.op, self.visit(node.left), self.visit(node.right))

    def visit_Assignment(self, node: c_ast.Assignment) -> Value:
        name = node.op[:-1]
        right: Value = self.visit(node.rvalue)
        return self._assign(
            node.lvalue,
            lambda old: self._calculate(name, old, right) if name else right,
            reads=bool(name),
        )

    def _assign(self, target: c_ast.Node, change: Callable[[Value], Value], reads: bool) -> Value:
        place = self._place(target)
        if isinstance(place, Pointer) and reads:
            self._access(place, False, place.target.size, target)
        value = change(self._get(place))
        if isinstance(place, _Storage) and place.whole and place.key and place.target:
            return self.set(place.key, place.target, value)
        self.lose(value, "a pointer is kept where it is not followed")
        self._note_conversion(value, place.target)
        if isinstance(place, Pointer):
            self._access(place, True, place.target.size, target)
            for root in place.roots - {MEMORY}:
                self.note(root, value)
        elif place.key:
            self.known[place.key] = self.get_unknown(place.key)
            self.note(self.find_root(place.key), value)
        return self._get(place)

    def visit_TernaryOp(self, node: c_ast.TernaryOp) -> Value:
        self.visit(node.cond)
        found: list[Value] = []
        for part in (node.iftrue, node.iffalse):
            with self.branch():
                found.append(self.visit(part))
        return join(*found)

    def visit_Cast(self, node: c_ast.Cast) -> Value:
        return self._convert(self.visit(node.expr), self.types.read(node.to_type))

    def _convert(self, value: Value, type_: CType) -> Value:
        if isinstance(value, Integer):
            return value.convert(type_) or Unknown(type_, find_flows(value))
        if isinstance(value, Pointer) and type_.kind == "pointer" and type_.target:
            return value.to(type_.target)
        if type_.kind != "void":
            self.lose(value, "a pointer becomes a number")
            self._note_conversion(value, type_)
        return Unknown(type_, find_flows(value))

    def visit_ExprList(self, node: c_ast.ExprList) -> Value:
        """Walk a comma operator, or the elements of a vector."""
        values: list[Value] = [self.visit(one) for one in node.exprs]
        return values[0] if len(values) == 1 else self._list(values)

    def visit_InitList(self, node: c_ast.Node) -> Value:
        parts = (part for part in children(node) if not isinstance(part, c_ast.Typename))
        return self._list([self.visit(part) for part in parts])

    def _list(self, values: list[Value]) -> Value:
        for value in values:
            self.lose(value, "a pointer is in a list")
        return Unknown(None, reduce(unite, map(find_flows, values), {}))

    visit_CompoundLiteral = visit_NamedInitializer = visit_InitList

    # calls

    def visit_FuncCall(self, node: c_ast.FuncCall) -> Value:
        if not isinstance(node.name, c_ast.ID):
            raise self.refuse("a function is called through an expression")
        name = node.name.name
        values: list[Value] = [self.visit(one) for one in (node.args.exprs if node.args else [])]
        if name in self.functions:
            return self._inline(self.functions[name], values)
        if name.startswith("get_"):
            return self._identify(name, values)
        self.uses |= {use for use, names in _USES.items() if names.fullmatch(name)}
        pointers = [value for value in values if isinstance(value, Pointer) and value.arguments]
        for value in values:
            if isinstance(value, Pointer) and not value.arguments:  # it may write there
                self.note(value.root, Unknown())
        if pointers:
            self._touch(name, node, values, pointers)
        is_limit = len(values) == {"min": 2, "max": 2, "clamp": 3}.get(name)
        if is_limit and (found := limit(name, values)):
            return found
        type_ = pointers[0].target if pointers else find_type(values[0]) if values else None
        if named := _NAMED_TYPE.match(name):
            type_ = self.types.read_name(named[1])
            if name.startswith("convert"):  # also with "_sat": PoCL's make any number of a NaN
                self._note_conversion(values[0] if values else Unknown(), type_)
        flows = reduce(unite, map(find_flows, values), {MEMORY: 1} if pointers else {})
        if _PRODUCTS.match(name):
            flows = combine("*", flows, {}, None, type_ and type_.scalar)
        return Unknown(type_, flows)

    def _identify(self, name: str, values: list[Value]) -> Value:
        which = values[0].value.constant if values and isinstance(values[0], Integer) else None
        if which not in (0, 1, 2) or (name not in _IDS and name != "get_global_id"):
            return Unknown(SIZE)
        if name == "get_global_id":
            return Integer(symbol("id", which) + symbol("offset", which), SIZE)
        is_grouped = _IDS[name] not in ("global_size", "offset")
        needs: Needs = self._groups if is_grouped else frozenset()
        return Integer(symbol(_IDS[name], which), SIZE, needs)

    def _touch(
        self, name: str, node: c_ast.FuncCall, values: list[Value], pointers: list[Pointer]
    ) -> None:
        """Note what a function of OpenCL C does with pointers to arguments."""
        if match := _VECTOR_ACCESS.fullmatch(name):
            pointer, width = pointers[0], pointers[0].target.size * int(match[3] or 1)
            index = values[0 if match[1] == "load" else 1]
            is_padded = (match[2], match[3]) == ("a_half", "3")  # then 4 halves lie apart
            place = pointer.move(index, 0 if is_padded else width)
            self._access(place, match[1] == "store", width, node)
        elif _ATOMIC.fullmatch(name):
            self.uses.add("atomics")
            for pointer in pointers:
                self._access(pointer.lost, False, 0, node)
                self._access(pointer.lost, True, 0, node)
        elif name in _WRITING:
            for pointer in pointers:
                self._access(pointer, True, pointer.target.size, node)
        elif name not in ("prefetch", "printf"):
            raise self.refuse(f"a pointer is given to {name}")

    def _inline(self, function: c_ast.FuncDef, values: list[Value]) -> Value:
        """Walk a helper. It returns what is true of all that it may return."""
        if self._depth > _DEEPEST:
            raise self.refuse("functions call each other too deeply")
        declared = parameters(function, self.types)
        if len(declared) != len(values):
            raise self.refuse(f"{function.decl.name} is called with other arguments")
        returned, left, line = self.returned, self.left, self.line
        self.returned = []
        self._depth += 1
        with self.function(function.body):
            for one, value in zip(declared, values, strict=True):
                self.set(self.declare(one.name, one.type), one.type, value)
            self.visit(function.body)
        found = reduce(join, self.returned) if self.returned else Unknown()
        self.returned, self.left, self.line = returned, left, line
        self._depth -= 1
        return self._convert(found, self.types.read(function.decl.type.type))


def parameters(function: c_ast.FuncDef, types: SourceTypes) -> list[KernelParameter]:
    """Return the parameters of a function, in their order."""
    declared = function.decl.type.args
    found: list[KernelParameter] = []
    for one in declared.params if declared else []:
        type_ = types.read(one.type)
        if type_.kind == "void":
            continue
        if type_.kind == "array":
            type_ = CType("pointer", 8, 8, target=type_.target, space=type_.space)
        found.append(KernelParameter(one.name, len(found), type_, one))
    return found
