"""What keeps a compiler of GPUs from rounding otherwise in a fused kernel.

Such a compiler contracts `a * b + c`. Whether it does depends on who else uses the product. So the
function of an old kernel must not see what another one calculates, and calculate nothing that
another one shares. Each value that goes into it passes `x ^ zero`, with a zero of that launch that
is a kernel argument: a compiler cannot know that it is 0. A value that just comes from memory needs
that only if another launch had it before. Values of memory pass in variables. That is the same as
memory only where an old kernel reads all before it writes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from pycparser import c_ast

from ...kernel_source.reading import KernelAccess
from ...kernel_source.syntax import walk_tree
from .kernels import has_inner_loops
from .opaque import measure_kind

_STEPS: Final = ("++", "--", "p++", "p--")


def why_not_isolated(access: KernelAccess, arrays: set[str]) -> str | None:
    """Return why the function of a kernel may round otherwise with variables for memory.

    Args:
        arrays: the names by which it indexes memory.
    """
    for one in access.parameters:
        if one.type.kind != "pointer" and not measure_kind(one.type.name):
            return f"its argument {one.name} has a type that a GPU's fused kernel cannot have"
    if has_inner_loops(access):
        return "an item has a loop, in which a GPU's compiler may round otherwise"
    order = _AccessOrder(arrays)
    if _may_skip_writes(access.function.body, order.is_element):
        return "an item may leave memory as it is, which a variable would write back"
    order.visit(access.function.body)
    return "it reads memory after it has written some" if order.reads_late else None


#: What decides whether a part of a kernel runs, and what ends an item.
_CHOICES: Final = (c_ast.If, c_ast.Switch, c_ast.TernaryOp)
_JUMPS: Final = (c_ast.Return, c_ast.Continue, c_ast.Break, c_ast.Goto)


def _may_skip_writes(body: c_ast.Node, is_element: Callable[[Any], bool]) -> bool:
    """Return whether an item may write less than all elements that the kernel writes."""
    nodes = list(walk_tree(body))
    choices = [
        one
        for one in nodes
        if isinstance(one, _CHOICES) or (isinstance(one, c_ast.BinaryOp) and one.op in ("&&", "||"))
    ]
    changed = [
        node.lvalue if isinstance(node, c_ast.Assignment) else node.expr
        for choice in choices
        for node in walk_tree(choice)
        if isinstance(node, c_ast.Assignment)
        or (isinstance(node, c_ast.UnaryOp) and node.op in _STEPS)
    ]
    written = any(is_element(node) for one in changed for node in walk_tree(one))
    return written or any(isinstance(node, _JUMPS) for node in nodes)


class _AccessOrder(c_ast.NodeVisitor):
    """Finds out whether a kernel reads any memory after it has written some."""

    def __init__(self, arrays: set[str]) -> None:
        self._arrays, self._has_written, self.reads_late = arrays, False, False

    def is_element(self, node: Any) -> bool:
        """Whether a part of the kernel is an element of memory."""
        return isinstance(node, c_ast.ArrayRef) and getattr(node.name, "name", "") in self._arrays

    def visit_Assignment(self, node: Any) -> None:
        self.visit(node.rvalue)
        if self.is_element(node.lvalue):
            self.visit(node.lvalue.subscript)
            self.reads_late |= node.op != "=" and self._has_written
            self._has_written = True
        else:
            self._see_changed(node.lvalue)

    def visit_UnaryOp(self, node: Any) -> None:
        if node.op in _STEPS:
            self._see_changed(node.expr)
        else:
            self.visit(node.expr)

    def _see_changed(self, node: Any) -> None:
        # a member of an element, or a variable of the function's own
        self.visit(node)
        self._has_written |= any(self.is_element(one) for one in walk_tree(node))

    def visit_ArrayRef(self, node: Any) -> None:
        self.reads_late |= self.is_element(node) and self._has_written
        self.generic_visit(node)
