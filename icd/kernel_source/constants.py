"""Constant expressions of integers: of `#if`, and of the sizes of arrays."""

from __future__ import annotations

import operator
import re
from collections.abc import Callable
from typing import Final

from pycparser import c_ast

from .errors import UnreadableKernel

_UNARY: Final[dict[str, Callable[[int], int]]] = {
    "-": operator.neg,
    "+": operator.pos,
    "~": operator.invert,
    "!": operator.not_,
}
_BINARY: Final[dict[str, Callable[[int, int], int]]] = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "/": lambda left, right: abs(left) // abs(right) * (1 if (left < 0) == (right < 0) else -1),
    "%": lambda left, right: left - right * _BINARY["/"](left, right),
    "<<": operator.lshift,
    ">>": operator.rshift,
    "&": operator.and_,
    "|": operator.or_,
    "^": operator.xor,
    "<": operator.lt,
    ">": operator.gt,
    "<=": operator.le,
    ">=": operator.ge,
    "==": operator.eq,
    "!=": operator.ne,
}


def calculate(expression: c_ast.Node | None) -> int:
    """Calculate a constant expression of integers, by C's rules.

    Raises:
        UnreadableKernel: It is not one.
    """
    match expression:
        case c_ast.Constant() if "int" in expression.type:
            return integer(expression.value)
        case c_ast.UnaryOp(op=name) if name in _UNARY:
            return int(_UNARY[name](calculate(expression.expr)))
        case c_ast.BinaryOp(op="&&" | "||" as name):
            left = bool(calculate(expression.left))
            return int(bool(calculate(expression.right)) if left == (name == "&&") else left)
        case c_ast.BinaryOp(op=name) if name in _BINARY:
            left, right = calculate(expression.left), calculate(expression.right)
            if right or name not in "/%":
                return int(_BINARY[name](left, right))
        case c_ast.TernaryOp():
            is_true = calculate(expression.cond)
            return calculate(expression.iftrue if is_true else expression.iffalse)
        case _:
            pass
    raise UnreadableKernel("an expression is not a constant integer")


def integer(text: str) -> int:
    """Read an integer literal of C."""
    digits = text.rstrip("uUlL")
    return int(digits, 8 if re.fullmatch("0[0-7]+", digits) else 0)
