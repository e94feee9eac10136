"""A walk through a kernel: the values of its variables, and each access to memory.

The walk goes from statement to statement (this file). It evaluates their expressions
(evaluation.py), and keeps what is known of each variable (variables.py). Helpers are walked at
each call.

So a value that is known is right on every path. Whatever the walk does not understand and could
reach memory raises `UnreadableKernel`. A pointer that it would lose sight of is such a case.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

from pycparser import c_ast

from .c_types import INT, CType
from .conditions import ONE_DIMENSION
from .errors import UnreadableKernel
from .evaluation import Evaluation, SignedResult, parameters
from .growth import MEMORY, Root, find_growing
from .parsing import ParsedProgram
from .polynomials import Polynomial, number, symbol
from .syntax import assigned, ends_early, line_of, uses_ids
from .values import Integer, Pointer, Unknown, Value, combine_types

_MIRRORED: Final = str.maketrans("<>", "><")
_GROWS: Final = "an inner loop lets a signed integer grow again and again"


@dataclass(frozen=True)
class ItemLoop:
    """The loop over items, `for (i = first + get_global_id(0); i < behind; i += global size)`.

    Each item is done once, by one thread.

    Attributes:
        variable: The name of its counter, and `type` its type.
        first, behind: The first item, and the number behind the last one.
        uses_ids: Whether the body uses the ids otherwise than by the counter.
        carried: Variables that one turn leaves for a later one, as the sum of a reduction.
    """

    node: c_ast.For
    variable: str
    type: CType
    first: Polynomial
    behind: Polynomial
    uses_ids: bool
    carried: frozenset[str] = frozenset()


class Walk(Evaluation):
    """One walk through one kernel. Afterwards its attributes say what was found.

    Attributes:
        loop: The loop over items, if there is one.
        parameters: Of the kernel, in their order.
    """

    def __init__(self, program: ParsedProgram, kernel: c_ast.FuncDef, uniform_groups: bool) -> None:
        super().__init__(program, uniform_groups)
        self.loop: ItemLoop | None = None
        self._kernel, self.parameters = kernel, parameters(kernel, self.types)
        for node in program.declarations:
            if isinstance(node, c_ast.Decl) and node.name:
                self._declare_table(node)
        with self.function(kernel.body):
            for one in self.parameters:
                value = self._begin_with(one.name, one.type)
                self.set(self.declare(one.name, one.type), one.type, value)
            self.visit(kernel.body)

    def _declare_table(self, node: c_ast.Decl) -> None:
        if isinstance(node.type, c_ast.FuncDecl):
            return
        if not {"_Atomic", "restrict"} <= set(node.quals or []):
            raise UnreadableKernel(f"{node.name} is a variable of the program", line_of(node))
        self.declare(node.name, self.types.read(node.type))

    def _begin_with(self, name: str, type_: CType) -> Value:
        """Return what a parameter of the kernel is when the kernel begins."""
        if type_.kind == "integer":
            return Integer(symbol("argument", name), type_)
        if type_.kind != "pointer" or not type_.target:
            return Unknown(type_, {MEMORY: 1})
        if type_.space == "private":
            raise self.refuse(f"the address space of {name} is not known")
        if type_.space == "local":
            self.uses.add("local memory")
            return Pointer(frozenset(), None, type_.target, root=(name, 0))
        return Pointer(frozenset({name}), Polynomial(), type_.target)

    # simple statements

    def visit_EmptyStatement(self, node: c_ast.Node) -> None:
        pass

    visit_Typedef = visit_EmptyStatement

    def visit_Break(self, node: c_ast.Node) -> None:
        self.left |= {type(node)}

    visit_Continue = visit_Break

    def visit_Return(self, node: c_ast.Return) -> None:
        self.returned.append(self.visit(node.expr))
        self.left |= {type(node)}

    def visit_Compound(self, node: c_ast.Compound) -> None:
        with self.scope():
            for one in node.block_items or []:
                self.visit(one)

    def visit_DeclList(self, node: c_ast.DeclList) -> None:
        for one in node.decls:
            self.visit(one)

    def visit_Decl(self, node: c_ast.Decl) -> None:
        if node.name is None or isinstance(node.type, c_ast.FuncDecl):
            return
        type_ = self.types.read(node.type)
        is_shared = "restrict" in (node.quals or []) and type_.kind != "pointer"
        if is_shared or (type_.kind == "array" and type_.space == "local"):
            self.uses.add("local memory")
        value: Value = self.visit(node.init)
        others_change = is_shared or "static" in (node.storage or [])
        key = self.declare(node.name, type_, is_tracked=not others_change)
        quals = node.type.quals if isinstance(node.type, c_ast.PtrDecl) else None
        if {"_Atomic", "restrict"} & set(quals or []):
            raise self.refuse(f"{node.name} is a pointer that items share")
        self.set(key, type_, value)

    # branches and loops

    def visit_If(self, node: c_ast.If) -> None:
        self.visit(node.cond)
        before, ends = self.known, list[dict[Root, Value]]()
        for part in (node.iftrue, node.iffalse):
            self.known = before
            with self.branch():
                self.visit(part)
                ends.append(self.known)
        self.known = self.join_known(*ends)

    def visit_While(self, node: c_ast.While | c_ast.DoWhile) -> None:
        self._repeat(node, assigned(node))

    visit_DoWhile = visit_While

    def visit_For(self, node: c_ast.For) -> None:
        with self.scope():
            self.visit(node.init)
            names = assigned(node.stmt) | assigned(node.cond) | assigned(node.next)
            self._repeat(node, names, self._find_counter(node, names), node.next)

    def _repeat(
        self,
        node: c_ast.For | c_ast.While | c_ast.DoWhile,
        names: frozenset[str],
        counter: dict[Root, Value] | None = None,
        step: c_ast.Node | None = None,
    ) -> None:
        """Walk a loop.

        Args:
            names: What it assigns.
            counter: Its value in each turn. Each turn of a loop over items is a turn of each item.
            step: What follows a turn, also one that `continue` ends.
        """
        left, first = self.left, len(self.rows)
        is_of_items = self.loop is not None and self.loop.node is node
        for part, is_done in (([node.cond, node.stmt], is_of_items), ([step], False)):
            self.forget(names)
            with self.branch(is_done=is_done):
                self.known |= counter or {}
                for one in part:
                    self.visit(one)
        self.forget(names)
        if self.loop and is_of_items:
            changed = self.list_changed(first) - {self.loop.variable}
            self.loop = replace(self.loop, carried=changed)
        elif line := find_growing(self.rows, first):
            self.signed.append(SignedResult(None, frozenset(), (0, 0), line, _GROWS))
        self.left = left | (self.left - {c_ast.Break, c_ast.Continue})

    def _find_counter(self, node: c_ast.For, names: frozenset[str]) -> dict[Root, Value] | None:
        """Return the value of a loop's counter in each turn; or None."""
        name = next(iter(assigned(node.next)), "")
        found = self.find(name)
        start = self.known.get(found[0]) if found else None
        if found is None or not isinstance(start, Integer) or not self.is_tracked(found[0]):
            return None
        if name in assigned(node.stmt) | assigned(node.cond):
            return None
        key, type_ = found
        self.forget(names)
        test, noted = self._find_bound(node.cond, name), len(self.signed)
        if test is None:
            return None
        bound, is_down = test
        ends = (bound.value, start.value + number(1)) if is_down else (start.value, bound.value)
        turn = symbol("turn", f"{name} {key[1]}", *ends)
        with self.branch():
            self.known[key] = Integer(turn, type_)
            self.visit(node.next)
            after = self.known[key]
        del self.signed[noted:]
        if not isinstance(after, Integer):
            return None
        # `i < bound` compares in the larger type. All must be right there, after the last step too
        by, compared = after.value - turn, combine_types(start.type, bound.type) or INT
        needs = start.exact | after.needs | Integer(bound.value + by, type_, bound.needs).exact
        for one in (start, bound):
            needs |= Integer(one.value, compared).exact
        is_strided, first = by == symbol("global_size", 0), start.value - symbol("id", 0)
        if (1 if is_strided else by.constant or 0) * (-1 if is_down else 1) <= 0:
            return None
        is_outside = node in self._kernel.body.block_items and not ends_early(node.stmt)
        if is_strided and is_outside and not (self.loop or first.varies or bound.value.varies):
            asks = uses_ids(self.functions, self._kernel, node, name)
            self.loop = ItemLoop(node, name, type_, first, bound.value, asks)
            turn, needs = symbol("item", name, first, bound.value), needs | ONE_DIMENSION
        return {key: Integer(turn, type_, needs)}

    def _find_bound(self, node: c_ast.Node | None, name: str) -> tuple[Integer, bool] | None:
        """Return N of a condition `i < N` and False, or that of `i >= N` and True."""
        if not isinstance(node, c_ast.BinaryOp):
            return None
        left, right, operator = node.left, node.right, node.op
        if isinstance(right, c_ast.ID) and right.name == name:
            left, right, operator = right, left, operator.translate(_MIRRORED)
        if operator.strip("=") not in ("<", ">") or getattr(left, "name", None) != name:
            return None
        bound = self.visit(right)
        if not isinstance(bound, Integer) or assigned(right):
            return None
        more = number(int(operator in ("<=", ">")))
        return Integer(bound.value + more, bound.type, bound.exact), operator[0] == ">"

    def visit_Switch(self, node: c_ast.Switch) -> None:
        """Walk a switch. Each label leads into its block, with what other labels have left."""
        if not isinstance(node.stmt, c_ast.Compound):
            raise self.refuse("a switch has no block")
        self.visit(node.cond)
        left, names = self.left, assigned(node.stmt)
        with self.branch(), self.scope():
            for one in node.stmt.block_items or []:
                parts = one.stmts if isinstance(one, c_ast.Case | c_ast.Default) else [one]
                for part in parts or []:
                    self.forget(names)
                    self.visit(part)
        self.forget(names)
        self.left = left | (self.left - {c_ast.Break})
