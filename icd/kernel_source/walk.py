"""A walk through a kernel: the values of its variables, and each access to memory.

The walk keeps what is known of each variable, statement by statement. Where branches meet, a
variable keeps its value if both agree. Before a loop, all that the loop assigns is forgotten.
A variable whose address is taken is never known. Helpers are walked at each call.

So a value that is known is right on every path. Whatever the walk does not understand and could
reach memory raises `UnreadableKernel`. A pointer that it would lose sight of is such a case.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final

from pycparser import c_ast

from .c_types import INT, LONG, SIZE, UINT, ULONG, CType, SourceTypes
from .conditions import Condition, Fits, OneDimension, UniformGroups
from .errors import UnreadableKernel
from .parsing import ParsedProgram
from .polynomials import Polynomial, number, symbol
from .preprocessor import integer


@dataclass(frozen=True)
class Integer:
    """A known integer: a polynomial, right modulo 2 to its type's bits.

    `needs` are the conditions under which the polynomial is right without the modulo wherever a
    step on the way asked for that.
    """

    value: Polynomial
    type: CType
    needs: frozenset[Condition] = frozenset()


@dataclass(frozen=True)
class Pointer:
    """A pointer to memory: of arguments, or of no argument (private, local and constant).

    Attributes:
        arguments: Which arguments it may point into. Empty: memory of its own.
        offset: In bytes, if it is one known argument and its place is known.
        target: The type that it points to.
    """

    arguments: frozenset[str]
    offset: Polynomial | None
    target: CType
    needs: frozenset[Condition] = frozenset()


@dataclass(frozen=True)
class Access:
    """An access to an argument's memory.

    Attributes:
        argument: The argument's name.
        writes: Whether it writes. It reads otherwise.
        offset: Its first byte; None if that is not known.
        width: Bytes; 0 if that is not known.
        needs: What must be true, so that the offset is right.
        line: The line of the source.
        certain: Whether each item does it.
        why: Why the offset is not known, or says nothing.
    """

    argument: str
    writes: bool
    offset: Polynomial | None
    width: int
    needs: frozenset[Condition]
    line: int
    certain: bool
    why: str = ""


@dataclass(frozen=True)
class FoundLoop:
    """A loop over items, in strides of the global size: each item is done once, by one thread."""

    node: c_ast.For
    variable: str
    type: CType
    first: Polynomial
    behind: Polynomial


@dataclass(frozen=True)
class _Storage:
    """A variable, or a part of one. Nothing is known of parts."""

    key: _Key | None
    type: CType | None
    whole: bool = False


Value = Integer | Pointer | None
_Key = tuple[str, int]
_Values = dict[_Key, Value]

_IDS: Final = {
    "get_local_id": "local",
    "get_group_id": "group",
    "get_global_size": "global_size",
    "get_local_size": "local_size",
    "get_enqueued_local_size": "local_size",
    "get_num_groups": "groups",
    "get_global_offset": "offset",
}
ID_FUNCTIONS: Final = frozenset(
    {*_IDS, "get_global_id", "get_global_linear_id", "get_local_linear_id", "get_work_dim"}
)
_BARRIERS: Final = re.compile(r"(work_group_|sub_group_)?barrier|\w*mem_fence|(work|sub)_group_\w+")
#: Functions that write one element where their pointer leads.
_WRITING: Final = frozenset({"fract", "modf", "sincos", "remquo", "frexp", "lgamma_r"})
_VECTOR_ACCESS: Final = re.compile(r"v(load|store)(a_half|_half)?(|2|3|4|8|16)(_rt[ezpn])?")
_MOST: Final = 1 << 64
_DEEPEST: Final = 24
_PRIVATE: Final = Pointer(frozenset(), None, CType("void"))
_NOWHERE: Final = _Storage(None, None)


class Walk:
    """One walk through one kernel. Afterwards its attributes say what was found.

    Attributes:
        accesses: In the order of the walk.
        loop: The loop over items, if there is one.
        uses: `barrier`, `local memory`, `atomics`, `printf`: what else the kernel uses.
        returns: Whether the kernel may end before its end.
    """

    def __init__(self, program: ParsedProgram, kernel: c_ast.FuncDef, uniform_groups: bool) -> None:
        self.accesses: list[Access] = []
        self.loop: FoundLoop | None = None
        self.uses: set[str] = set()
        self.returns = False
        self._program = program
        self._types = SourceTypes(program)
        self._groups = frozenset[Condition]() if uniform_groups else frozenset({UniformGroups()})
        self._scopes: list[dict[str, tuple[_Key, CType]]] = [{}]
        self._untracked: frozenset[str] = frozenset()
        self._values: _Values = {}
        self._keys = 0
        self._certain = True
        self._depth = 0
        self._returned: list[Value] = []
        self._line = 0
        self._kernel = kernel
        self._forgotten: dict[_Key, frozenset[str]] = {}
        for node in program.declarations:
            if isinstance(node, c_ast.Decl) and node.name:
                self._declare_table(node)
        self._run()

    def _declare_table(self, node: c_ast.Decl) -> None:
        if isinstance(node.type, c_ast.FuncDecl):
            return
        if not {"_Atomic", "restrict"} <= set(node.quals or []):
            raise UnreadableKernel(f"{node.name} is a variable of the program", _line(node))
        self._declare_name(node.name, self._types.read(node.type))

    # what the names of the kernel's parameters mean at its begin

    def _run(self) -> None:
        self._scopes.append({})
        self._untracked = _addressed(self._kernel.body)
        for name, type_, _ in parameters(self._kernel, self._types):
            value: Value = None
            if type_.kind == "pointer" and type_.target:
                value = Pointer(frozenset({name}), Polynomial(), type_.target)
                if type_.space == "local":
                    value = Pointer(frozenset(), None, type_.target)
                    self.uses.add("local memory")
                elif type_.space == "private":
                    raise UnreadableKernel(f"the address space of {name} is not known", self._line)
            elif type_.kind == "integer":
                value = Integer(symbol("argument", name), type_)
            self._set(self._declare_name(name, type_), type_, value, name)
        for node in self._kernel.body.block_items or []:
            if isinstance(node, c_ast.For) and self.loop is None:
                self._for(node, top=True)
            else:
                self._statement(node)

    # variables

    def _declare_name(self, name: str, type_: CType) -> _Key:
        self._keys += 1
        self._scopes[-1][name] = (name, self._keys), type_
        return name, self._keys

    def _find(self, name: str) -> tuple[_Key, CType] | None:
        for scope in reversed(self._scopes):
            if name in scope:
                return scope[name]
        return None

    def _set(self, key: _Key, type_: CType, value: Value, name: str) -> Value:
        if isinstance(value, Integer):
            value = _convert(value, type_)
        elif isinstance(value, Pointer):
            if type_.kind == "pointer" and type_.target and name not in self._untracked:
                value = Pointer(value.arguments, value.offset, type_.target, value.needs)
            else:
                value = self._lose(value, f"a pointer is kept in {name}")
        value = None if name in self._untracked else value
        if key in self._forgotten and not (
            isinstance(value, Pointer) and value.arguments <= self._forgotten[key]
        ):
            raise UnreadableKernel(f"{name} points elsewhere in a loop", self._line)
        self._values[key] = value
        return value

    def _lose(self, value: Value, reason: str) -> None:
        """Refuse a kernel in which a pointer to an argument goes where it is not followed."""
        if isinstance(value, Pointer) and value.arguments:
            raise UnreadableKernel(reason, self._line)

    def _forget(self, names: frozenset[str]) -> None:
        """Forget what a loop or a switch assigns. Pointers stay in the same arguments."""
        for key, value in self._values.items():
            if key[0] in names:
                if isinstance(value, Pointer):
                    self._forgotten[key] = value.arguments
                    value = Pointer(value.arguments, None, value.target)
                self._values[key] = value if isinstance(value, Pointer) else None

    @contextmanager
    def _branch(self) -> Iterator[None]:
        """Walk what may or may not be done; afterwards know only what is true either way."""
        before, certain = self._values, self._certain
        self._values, self._certain = dict(before), False
        yield
        self._values = _join_all(before, self._values)
        self._certain = certain

    # memory

    def _access(self, pointer: Pointer, writes: bool, width: int, node: c_ast.Node) -> None:
        line = _line(node) or self._line
        single = pointer.offset is not None and len(pointer.arguments) == 1
        why = ""
        if not single:
            why = "it is accessed at a place that is not known"
        elif not width:
            why = f"the size of {pointer.target.name or 'an element'} is not known"
        for name in sorted(pointer.arguments):
            offset = pointer.offset if single else None
            self.accesses.append(
                Access(name, writes, offset, width, pointer.needs, line, self._certain, why)
            )

    def _place(self, node: c_ast.Node) -> _Storage | Pointer:
        """Return where an expression that can be assigned is."""
        if isinstance(node, c_ast.ID):
            found = self._find(node.name)
            return _Storage(*found, whole=node.name not in self._scopes[0]) if found else _NOWHERE
        if isinstance(node, c_ast.ArrayRef):
            return self._element(node)
        if isinstance(node, c_ast.UnaryOp) and node.op == "*":
            return self._follow(self._value(node.expr))
        if isinstance(node, c_ast.StructRef):
            if node.type == "->":
                return self._member(self._follow(self._value(node.name)), node)
            return self._member(self._place(node.name), node)
        self._value(node)
        return _NOWHERE

    def _element(self, node: c_ast.ArrayRef) -> _Storage | Pointer:
        is_place = isinstance(node.name, c_ast.ID | c_ast.ArrayRef | c_ast.StructRef)
        place = self._place(node.name) if is_place else None
        base = self._value(node.name) if place is None else self._load_from(place, node)
        index = self._value(node.subscript)
        if isinstance(index, Pointer):
            base, index = index, base
        if isinstance(base, Pointer):
            return _move(base, index)
        if isinstance(place, _Storage) and place.type and place.type.kind == "vector":
            return _Storage(place.key, None)
        return self._follow(base)

    def _member(self, place: _Storage | Pointer, node: c_ast.StructRef) -> _Storage | Pointer:
        name = node.field.name
        of = place.target if isinstance(place, Pointer) else place.type
        if of is not None and of.kind == "vector":
            if isinstance(place, Pointer):  # to store one component keeps the others: it reads
                self._access(place, False, of.size, node)
                return place
            return _Storage(place.key, None)
        offset, type_ = of.find(name) if of is not None else (None, None)
        if isinstance(place, _Storage):
            return _Storage(place.key, type_)
        by = None if offset is None else Integer(number(offset), LONG)
        moved = _move_bytes(place, by)
        return Pointer(moved.arguments, moved.offset, type_ or CType("void"), moved.needs)

    def _follow(self, value: Value) -> Pointer:
        if not isinstance(value, Pointer):
            raise UnreadableKernel("it is not known where a pointer leads", self._line)
        return value

    def _load_from(self, place: _Storage | Pointer, node: c_ast.Node) -> Value:
        type_ = place.target if isinstance(place, Pointer) else place.type
        if type_ and type_.kind == "array" and type_.target:
            if isinstance(place, Pointer):
                return Pointer(place.arguments, place.offset, type_.target, place.needs)
            return Pointer(frozenset(), None, type_.target)
        if isinstance(place, Pointer):
            self._access(place, False, place.target.size, node)
            return None
        return self._values.get(place.key) if place.key and place.whole else None

    # expressions

    def _value(self, node: c_ast.Node | None) -> Value:
        if node is None:
            return None
        if node.coord:
            self._line = node.coord.line
        method = self._EXPRESSIONS.get(type(node))
        if method is None:
            raise UnreadableKernel(f"{type(node).__name__} is not understood", self._line)
        return method(self, node)

    def _constant(self, node: c_ast.Constant) -> Value:
        if "int" not in node.type:
            return None
        value = integer(node.value)
        suffix = node.value.lower()[len(node.value.rstrip("uUlL")) :]
        ways = (UINT, ULONG) if "u" in suffix else (INT, LONG)
        if "u" not in suffix and node.value[0] == "0" and len(node.value) > 1:
            ways = (INT, UINT, LONG, ULONG)
        for type_ in ways if "l" not in suffix else [one for one in ways if one.size == 8]:
            if value <= type_.range[1]:
                return Integer(number(value), type_)
        return None

    def _load(self, node: c_ast.Node) -> Value:
        return self._load_from(self._place(node), node)

    def _unary(self, node: c_ast.UnaryOp) -> Value:
        if node.op == "sizeof":
            if isinstance(node.expr, c_ast.Typename):
                size = self._types.read(node.expr).size
                return Integer(number(size), SIZE) if size else None
            return None
        if node.op == "*":
            return self._load(node)
        if node.op == "&":
            place = self._place(node.expr)
            if isinstance(place, Pointer):
                return place
            return _PRIVATE
        if node.op.strip("p") in ("++", "--"):
            one = Integer(number(1), INT)
            old: list[Value] = []

            def step(value: Value) -> Value:
                old.append(value)
                return self._calculate(node.op.strip("p")[0], value, one)

            new = self._assign(node.expr, step, reads=True)
            return old[0] if node.op[0] == "p" else new
        value = self._value(node.expr)
        if isinstance(value, Integer) and node.op in ("-", "+"):
            value = _promote(value)
            sign = number(-1 if node.op == "-" else 1)
            return Integer(value.value * sign, value.type, value.needs)
        return None

    def _binary(self, node: c_ast.BinaryOp) -> Value:
        if node.op in ("&&", "||"):
            self._value(node.left)
            with self._branch():
                self._value(node.right)
            return None
        return self._calculate(node.op, self._value(node.left), self._value(node.right))

    def _calculate(self, operator: str, left: Value, right: Value) -> Value:
        if isinstance(left, Pointer) or isinstance(right, Pointer):
            if operator not in ("+", "-") or (
                isinstance(left, Pointer) is isinstance(right, Pointer)
            ):
                return None
            if isinstance(left, Pointer):
                return _move(left, right, -1 if operator == "-" else 1)
            return _move(right, left) if isinstance(right, Pointer) else None
        if left is None or right is None:
            return None
        if operator in ("<<", ">>"):
            left = _promote(left)
            shift = right.value.constant
            if shift is None or not 0 <= shift < 8 * left.type.size:
                return None
            power = Integer(number(1 << shift), ULONG if left.type.size == 8 else UINT)
            if operator == "<<":
                return Integer(left.value * power.value, left.type, left.needs | right.needs)
            return _divide(_demand_no_sign(left), power, left.type)[0]
        left, right = _balance(left, right)
        needs, type_ = left.needs | right.needs, left.type
        if operator == "+":
            return Integer(left.value + right.value, type_, needs)
        if operator == "-":
            return Integer(left.value - right.value, type_, needs)
        if operator == "*":
            return Integer(left.value * right.value, type_, needs)
        if operator in ("/", "%"):
            return _divide(left, right, type_)[operator == "%"]
        mask = right.value.constant
        if operator == "&" and mask is not None and mask > 0 and not mask & (mask + 1):
            return _divide(_demand_no_sign(left), Integer(number(mask + 1), type_), type_)[1]
        return None

    def _assignment(self, node: c_ast.Assignment) -> Value:
        right = self._value(node.rvalue)
        if node.op == "=":
            return self._assign(node.lvalue, lambda _: right, reads=False)
        operator = node.op[:-1]
        return self._assign(
            node.lvalue, lambda old: self._calculate(operator, old, right), reads=True
        )

    def _assign(
        self, target: c_ast.Node, change: Callable[[Value], Value], *, reads: bool
    ) -> Value:
        place = self._place(target)
        if isinstance(place, _Storage):
            key, type_ = place.key, place.type
            if place.whole and key and type_:
                return self._set(key, type_, change(self._values.get(key)), key[0])
            self._lose(change(None), "a pointer is kept where it is not followed")
            if key:
                self._values[key] = None
            return None
        if reads:
            self._access(place, False, place.target.size, target)
        self._lose(change(None), "a pointer is kept in memory")
        self._access(place, True, place.target.size, target)
        return None

    def _ternary(self, node: c_ast.TernaryOp) -> Value:
        self._value(node.cond)
        found: list[Value] = []
        for part in (node.iftrue, node.iffalse):
            with self._branch():
                found.append(self._value(part))
        return _join(*found)

    def _cast(self, node: c_ast.Cast) -> Value:
        type_ = self._types.read(node.to_type)
        value = self._value(node.expr)
        if isinstance(value, Pointer):
            if type_.kind == "pointer" and type_.target:
                return Pointer(value.arguments, value.offset, type_.target, value.needs)
            if type_.kind != "void":
                self._lose(value, "a pointer becomes a number")
            return None
        return _convert(value, type_) if isinstance(value, Integer) else None

    def _list(self, node: c_ast.ExprList) -> Value:
        """Walk a comma operator, or the elements of a vector."""
        value: Value = None
        for part in node.exprs:
            self._lose(value, "a pointer is in a list")
            value = self._value(part)
        return value if len(node.exprs) == 1 else self._lose(value, "a pointer is in a list")

    def _initial(self, node: c_ast.Node) -> Value:
        for part in children(node):
            if not isinstance(part, c_ast.Typename):
                self._lose(self._value(part), "a pointer is in a list")
        return None

    def _call(self, node: c_ast.FuncCall) -> Value:
        if not isinstance(node.name, c_ast.ID):
            raise UnreadableKernel("a function is called through an expression", self._line)
        name = node.name.name
        values = [self._value(one) for one in (node.args.exprs if node.args else [])]
        if name in self._program.functions:
            return self._inline(self._program.functions[name], values)
        if name in ID_FUNCTIONS:
            return self._identify(name, values)
        if _BARRIERS.fullmatch(name):
            self.uses.add("barrier")
        if name == "printf":
            self.uses.add("printf")
        pointers = [value for value in values if isinstance(value, Pointer) and value.arguments]
        if pointers:
            self._touch(name, node, values, pointers)
        if name in ("min", "max", "clamp") and len(values) == (3 if name == "clamp" else 2):
            return _limit(name, values)
        return None

    def _touch(
        self, name: str, node: c_ast.FuncCall, values: list[Value], pointers: list[Pointer]
    ) -> None:
        """Note what a function of OpenCL C does with pointers to arguments."""
        if match := _VECTOR_ACCESS.fullmatch(name):
            count = int(match[3] or 1)
            wide = number(pointers[0].target.size * count)
            index = _extend(values[0 if match[1] == "load" else 1])
            by = None
            if index and (count, match[2]) != (3, "a_half"):
                by = Integer(index.value * wide, LONG, index.needs)
            place = _move_bytes(pointers[0], by)
            self._access(place, match[1] == "store", pointers[0].target.size * count, node)
        elif name.startswith(("atomic_", "atom_")):
            self.uses.add("atomics")
            for pointer in pointers:
                lost = Pointer(pointer.arguments, None, pointer.target)
                self._access(lost, False, 0, node)
                self._access(lost, True, 0, node)
        elif name in _WRITING:
            for pointer in pointers:
                self._access(pointer, True, pointer.target.size, node)
        elif name not in ("prefetch", "printf"):
            raise UnreadableKernel(f"a pointer is given to {name}", self._line)

    def _identify(self, name: str, values: list[Value]) -> Value:
        which = values[0].value.constant if values and isinstance(values[0], Integer) else None
        if which not in (0, 1, 2):
            return None
        if name == "get_global_id":
            return Integer(symbol("id", which) + symbol("offset", which), SIZE)
        if name not in _IDS:
            return None
        grouped = _IDS[name] in ("group", "local", "local_size", "groups")
        needs = self._groups if grouped else frozenset[Condition]()
        return Integer(symbol(_IDS[name], which), SIZE, needs)

    def _inline(self, function: c_ast.FuncDef, values: list[Value]) -> Value:
        if self._depth > _DEEPEST:
            raise UnreadableKernel("functions call each other too deeply", self._line)
        scopes, untracked, returned = self._scopes, self._untracked, self._returned
        certain, line = self._certain, self._line
        self._scopes, self._untracked = [scopes[0], {}], _addressed(function.body)
        self._returned = []
        self._depth += 1
        names = parameters(function, self._types)
        if len(names) != len(values):
            raise UnreadableKernel(f"{function.decl.name} is called with other arguments", line)
        for (name, type_, _), value in zip(names, values, strict=True):
            self._set(self._declare_name(name, type_), type_, value, name)
        self._statement(function.body)
        type_ = self._types.read(function.decl.type.type)
        found = self._returned[0] if self._returned else None
        for value in self._returned[1:]:
            found = _join(found, value)
        self._scopes, self._untracked, self._returned = scopes, untracked, returned
        self._certain, self._line = certain, line
        self._depth -= 1
        if isinstance(found, Integer):
            return _convert(found, type_)
        if isinstance(found, Pointer) and type_.kind == "pointer" and type_.target:
            return Pointer(found.arguments, found.offset, type_.target, found.needs)
        return self._lose(found, "a pointer becomes a number")

    # statements

    def _statement(self, node: c_ast.Node | None) -> None:
        if node is None:
            return
        if node.coord:
            self._line = node.coord.line
        method = self._STATEMENTS.get(type(node))
        if method:
            method(self, node)
        elif type(node) in self._EXPRESSIONS:
            self._value(node)
        else:
            raise UnreadableKernel(f"{type(node).__name__} is not understood", self._line)

    def _nothing(self, node: c_ast.Node) -> None:
        pass

    def _jump(self, node: c_ast.Node) -> None:
        """What follows a `continue` or `break` is not done by each item."""
        self._certain = False

    def _block(self, node: c_ast.Compound) -> None:
        self._scopes.append({})
        for one in node.block_items or []:
            self._statement(one)
        self._scopes.pop()

    def _declare(self, node: c_ast.Decl) -> None:
        if node.name is None or isinstance(node.type, c_ast.FuncDecl):
            return
        type_ = self._types.read(node.type)
        space = "restrict" in (node.quals or []) and type_.kind != "pointer"
        if space or (type_.kind == "array" and type_.space == "local"):
            self.uses.add("local memory")
        value = self._value(node.init)
        key = self._declare_name(node.name, type_)
        if isinstance(node.type, c_ast.PtrDecl) and {"_Atomic", "restrict"} & set(
            node.type.quals or []
        ):
            raise UnreadableKernel(f"{node.name} is a pointer that items share", self._line)
        if space or "static" in (node.storage or []):
            self._lose(value, f"a pointer is kept in {node.name}")
            self._values[key] = None
            self._untracked |= {node.name}
        else:
            self._set(key, type_, value, node.name)

    def _declarations(self, node: c_ast.DeclList) -> None:
        for one in node.decls:
            self._declare(one)

    def _if(self, node: c_ast.If) -> None:
        self._value(node.cond)
        before, certain = self._values, self._certain
        ends: list[_Values] = []
        jumps = False
        for part in (node.iftrue, node.iffalse):
            self._values, self._certain = dict(before), False
            self._statement(part)
            ends.append(self._values)
            jumps = jumps or _leaves(part)
        self._values = _join_all(*ends)
        self._certain = certain and not jumps

    def _repeat(self, node: c_ast.While | c_ast.DoWhile) -> None:
        names = assigned(node)
        self._forget(names)
        with self._branch():
            self._value(node.cond)
            self._statement(node.stmt)
        self._forget(names)
        self._certain = self._certain and not _returns(node.stmt)

    def _for(self, node: c_ast.For, top: bool = False) -> None:
        self._scopes.append({})
        self._statement(node.init)
        changed = assigned(node.stmt) | assigned(node.cond)
        names = changed | assigned(node.next)
        certain = self._certain
        counted = self._counter(node, changed, top)
        self._forget(names)
        if counted:
            self._values[counted[0]] = counted[1]
        items = self.loop is not None and self.loop.node is node
        self._certain = certain and items
        inside = dict(self._values)
        self._value(node.cond)
        self._statement(node.stmt)
        # the step is walked with what is true whichever way the body was left
        self._values = inside
        self._forget(names)
        self._certain = False
        self._value(node.next)
        self._forget(names)
        self._certain = certain and (items or not _returns(node.stmt))
        self._scopes.pop()

    def _counter(
        self, node: c_ast.For, changed: frozenset[str], top: bool
    ) -> tuple[_Key, Integer] | None:
        """Return the variable that a loop counts by, and its value in the body."""
        name, step = _step(node.next)
        found = self._find(name) if name else None
        start = self._values.get(found[0]) if found else None
        if found is None or name in changed or not isinstance(start, Integer):
            return None
        before = dict(self._values)
        self._forget(changed | assigned(node.next))
        by = self._value(step)
        bound = self._bound(node.cond, name)
        self._values = before
        if not isinstance(by, Integer) or by.value.varies:
            return None
        key, type_ = found
        if (
            name in self._untracked
            or bound is None
            or bound.value.varies
            or type_.kind != "integer"
        ):
            return None
        # `i < bound` compares in the larger type. All must be right there, after the last step too
        last = Integer(bound.value + by.value, type_)
        compared = _balance(start, bound)[0].type
        needs = start.needs | by.needs | bound.needs | _fits(start) | _fits(by) | _fits(last)
        for one in (start, bound):
            needs |= _fits(Integer(one.value, compared))
        if by.value == symbol("global_size", 0):
            first = start.value - symbol("id", 0)
            if not top or first.varies or _leaves(node.stmt, loop=True):
                return None
            self.loop = FoundLoop(node, name, type_, first, bound.value)
            item = symbol("item", name, first, bound.value)
            return key, Integer(item, type_, needs | {OneDimension()})
        count = by.value.constant
        if count is None or count < 1:
            return None
        self._keys += 1
        turn = symbol("counter", f"{name}{self._keys}", number(0), bound.value - start.value)
        return key, Integer(start.value + turn * by.value, type_, needs)

    def _bound(self, node: c_ast.Node | None, name: str) -> Integer | None:
        """Return N of a condition `i < N` or `i <= N`."""
        if not isinstance(node, c_ast.BinaryOp):
            return None
        left, right, operator = node.left, node.right, node.op
        if operator in (">", ">="):
            left, right, operator = right, left, operator.replace(">", "<")
        if operator not in ("<", "<=") or not isinstance(left, c_ast.ID) or left.name != name:
            return None
        if assigned(right):
            return None
        bound = self._value(right)
        if not isinstance(bound, Integer):
            return None
        more = number(int(operator == "<="))
        return Integer(bound.value + more, bound.type, bound.needs | _fits(bound))

    def _switch(self, node: c_ast.Switch) -> None:
        self._value(node.cond)
        names = assigned(node.stmt)
        self._forget(names)
        with self._branch():
            self._cases(node.stmt, names)
        self._forget(names)
        self._certain = self._certain and not _returns(node.stmt)

    def _cases(self, node: c_ast.Node, names: frozenset[str]) -> None:
        """Walk the body of a switch, into which each label leads."""
        if not isinstance(node, c_ast.Compound):
            raise UnreadableKernel("a switch has no block", self._line)
        self._scopes.append({})
        for one in node.block_items or []:
            if isinstance(one, c_ast.Case | c_ast.Default):
                for part in one.stmts or []:
                    self._forget(names)
                    self._certain = False
                    self._statement(part)
            else:
                self._forget(names)
                self._statement(one)
        self._scopes.pop()

    def _return(self, node: c_ast.Return) -> None:
        if node.expr is not None:
            self._returned.append(self._value(node.expr))
        if self._depth == 0:
            self.returns = True
        self._certain = False

    _EXPRESSIONS: Final[dict[type, Callable[[Walk, c_ast.Node], Value]]] = {
        c_ast.Constant: _constant,
        c_ast.ID: _load,
        c_ast.ArrayRef: _load,
        c_ast.StructRef: _load,
        c_ast.UnaryOp: _unary,
        c_ast.BinaryOp: _binary,
        c_ast.Assignment: _assignment,
        c_ast.TernaryOp: _ternary,
        c_ast.Cast: _cast,
        c_ast.ExprList: _list,
        c_ast.InitList: _initial,
        c_ast.CompoundLiteral: _initial,
        c_ast.NamedInitializer: _initial,
        c_ast.FuncCall: _call,
    }  # type: ignore[assignment]
    _STATEMENTS: Final[dict[type, Callable[[Walk, c_ast.Node], None]]] = {
        c_ast.Compound: _block,
        c_ast.Decl: _declare,
        c_ast.DeclList: _declarations,
        c_ast.If: _if,
        c_ast.While: _repeat,
        c_ast.DoWhile: _repeat,
        c_ast.For: _for,
        c_ast.Switch: _switch,
        c_ast.Return: _return,
        c_ast.Break: _jump,
        c_ast.Continue: _jump,
        c_ast.EmptyStatement: _nothing,
        c_ast.Typedef: _nothing,
    }  # type: ignore[assignment]


def parameters(function: c_ast.FuncDef, types: SourceTypes) -> list[tuple[str, CType, c_ast.Decl]]:
    """Return the parameters of a function: names, types and declarations."""
    declared = function.decl.type.args
    found: list[tuple[str, CType, c_ast.Decl]] = []
    for one in declared.params if declared else []:
        type_ = types.read(one.type)
        if getattr(one, "name", None) is None:
            if type_.kind == "void":
                continue
            raise UnreadableKernel("a parameter has no name")
        if type_.kind == "array":
            type_ = CType("pointer", 8, 8, target=type_.target, space=type_.space)
        found.append((one.name, type_, one))
    return found


def children(node: c_ast.Node) -> list[c_ast.Node]:
    """Return the parts of a node."""
    parts: list[tuple[str, c_ast.Node]] = list(node.children() or ())  # pyright: ignore
    return [child for _, child in parts]


def assigned(node: c_ast.Node | None, *, elements: bool = False) -> frozenset[str]:
    """Return the names of the variables that a part of a kernel may change.

    With `elements`, also those whose elements it changes: of arrays, or behind pointers.
    """
    through = (c_ast.StructRef, c_ast.Cast, *([c_ast.ArrayRef] if elements else []))
    names: set[str] = set()

    def visit(one: c_ast.Node) -> None:
        target = None
        if isinstance(one, c_ast.Assignment):
            target = one.lvalue
        elif isinstance(one, c_ast.UnaryOp) and one.op.strip("p") in ("++", "--", "&"):
            target = one.expr
        while isinstance(target, through):
            target = target.expr if isinstance(target, c_ast.Cast) else target.name
        if isinstance(target, c_ast.ID):
            names.add(target.name)
        for child in children(one):
            visit(child)

    if node is not None:
        visit(node)
    return frozenset(names)


def _addressed(node: c_ast.Node) -> frozenset[str]:
    """Return the names of the variables whose address is taken."""
    names: set[str] = set()

    class Visitor(c_ast.NodeVisitor):
        def visit_UnaryOp(self, one: c_ast.UnaryOp) -> None:
            target = one.expr
            while isinstance(target, c_ast.StructRef) and target.type == ".":
                target = target.name
            if one.op == "&" and isinstance(target, c_ast.ID):
                names.add(target.name)
            self.generic_visit(one)

    Visitor().visit(node)
    return frozenset(names)


def _leaves(node: c_ast.Node | None, loop: bool = False, inner: bool = False) -> bool:
    """Whether a statement may be left by `return`, `break` or `continue`.

    `loop`: it is the body of a loop, which its own `continue` does not leave.
    """
    if node is None:
        return False
    if isinstance(node, c_ast.Return) or (isinstance(node, c_ast.Break) and not inner):
        return True
    if isinstance(node, c_ast.Continue):
        return not loop
    nested = isinstance(node, c_ast.For | c_ast.While | c_ast.DoWhile)
    return any(
        _leaves(child, loop or nested, inner or nested or isinstance(node, c_ast.Switch))
        for child in children(node)
    )


def _returns(node: c_ast.Node | None) -> bool:
    return isinstance(node, c_ast.Return) or (
        node is not None and any(_returns(child) for child in children(node))
    )


def _step(node: c_ast.Node | None) -> tuple[str, c_ast.Node | None]:
    """Return the variable that a loop's last part increases, and by what."""
    if isinstance(node, c_ast.UnaryOp) and node.op.strip("p") == "++":
        if isinstance(node.expr, c_ast.ID):
            return node.expr.name, c_ast.Constant("int", "1")
    elif isinstance(node, c_ast.Assignment) and isinstance(node.lvalue, c_ast.ID):
        name, right = node.lvalue.name, node.rvalue
        if node.op == "+=":
            return name, right
        if node.op == "=" and isinstance(right, c_ast.BinaryOp) and right.op == "+":
            for one, other in ((right.left, right.right), (right.right, right.left)):
                if isinstance(one, c_ast.ID) and one.name == name:
                    return name, other
    return "", None


def _line(node: c_ast.Node) -> int:
    return node.coord.line if node.coord else 0


# integers of C


def _fits(value: Integer) -> frozenset[Condition]:
    least, greatest = value.type.range
    constant = value.value.constant
    if constant is not None and least <= constant <= greatest:
        return frozenset()
    return frozenset({Fits(value.value, least, greatest)})


def _convert(value: Integer, type_: CType) -> Integer | None:
    if type_.name == "bool" or type_.kind != "integer":
        return None
    needs = value.needs | _fits(value) if type_.size > value.type.size else value.needs
    return Integer(value.value, type_, needs)


def _extend(value: Value) -> Integer | None:
    """Return a number as an address needs it: with all of its bits."""
    return _convert(value, LONG) if isinstance(value, Integer) else None


def _promote(value: Integer) -> Integer:
    return (_convert(value, INT) or value) if value.type.size < 4 else value


def _balance(left: Integer, right: Integer) -> tuple[Integer, Integer]:
    """Give two integers the type in which C calculates with both."""
    left, right = _promote(left), _promote(right)
    wide = max(left.type, right.type, key=lambda type_: (type_.size, not type_.signed))
    return _convert(left, wide) or left, _convert(right, wide) or right


def _divide(left: Integer, right: Integer, type_: CType) -> tuple[Integer, Integer]:
    """Return the quotient and the remainder: `a == b * (a / b) + a % b` holds in C."""
    needs = left.needs | right.needs | _fits(left) | _fits(right)
    first, second = left.value.constant, right.value.constant
    if first is not None and second is not None and first >= 0 and second > 0:
        quotient = number(first // second)
    else:
        quotient = symbol("quotient", "", left.value, right.value)
    rest = left.value - right.value * quotient
    return Integer(quotient, type_, needs), Integer(rest, type_, needs)


def _demand_no_sign(value: Integer) -> Integer:
    return Integer(value.value, value.type, value.needs | {Fits(value.value, 0, _MOST)})


def _limit(name: str, values: list[Value]) -> Value:
    """Return the first argument of min, max or clamp, if the launch's values never limit it."""
    first, *others = values
    for index, other in enumerate(others):
        if not isinstance(first, Integer) or not isinstance(other, Integer):
            return None
        if other.value.varies:
            return None
        below = name == "max" or (name == "clamp" and index == 0)
        gap = first.value - other.value if below else other.value - first.value
        needs = first.needs | other.needs | _fits(first) | _fits(other) | {Fits(gap, 0, _MOST)}
        first = Integer(first.value, first.type, needs)
    return first


# pointers


def _move(pointer: Pointer, index: Value, sign: int = 1) -> Pointer:
    """Return a pointer that is moved by a number of elements."""
    size = pointer.target.size
    wide = _extend(index)
    if wide and size:
        return _move_bytes(pointer, Integer(wide.value * number(size * sign), LONG, wide.needs))
    return _move_bytes(pointer, None)


def _move_bytes(pointer: Pointer, by: Integer | None) -> Pointer:
    if by is None or pointer.offset is None:
        return Pointer(pointer.arguments, None, pointer.target)
    offset, needs = pointer.offset + by.value, pointer.needs | by.needs
    return Pointer(pointer.arguments, offset, pointer.target, needs)


def _join(left: Value, right: Value) -> Value:
    """Return what is known of a value that is one of two."""
    if isinstance(left, Integer) and isinstance(right, Integer):
        if (left.value, left.type) == (right.value, right.type):
            return Integer(left.value, left.type, left.needs | right.needs)
        return None
    if isinstance(left, Pointer) and isinstance(right, Pointer):
        if (left.arguments, left.offset) == (right.arguments, right.offset):
            return Pointer(left.arguments, left.offset, left.target, left.needs | right.needs)
        return Pointer(left.arguments | right.arguments, None, left.target)
    return None


def _join_all(left: _Values, right: _Values) -> _Values:
    return {key: _join(left.get(key), right.get(key)) for key in {*left, *right}}
