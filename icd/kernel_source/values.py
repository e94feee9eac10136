"""Values that the analysis knows, or whose types it knows, and C's arithmetic with them."""

from __future__ import annotations

import operator
from dataclasses import dataclass, field, replace
from typing import Final

from .c_types import INT, LONG, UINT, ULONG, CType
from .conditions import Fits, Needs
from .growth import BEHIND, KNOWN, MEMORY, SIGNED, Flows, Root, combine, unite
from .polynomials import Polynomial, number, symbol

_MOST: Final = 1 << 64


@dataclass(frozen=True)
class Integer:
    """A known integer: a polynomial, right modulo 2 to its type's bits.

    `needs` are the conditions under which the polynomial is right without the modulo wherever a
    step on the way asked for that.
    """

    value: Polynomial
    type: CType
    needs: Needs = frozenset()

    @property
    def exact(self) -> Needs:
        """What must be true, so that the polynomial is right without the modulo."""
        least, greatest = self.type.range
        constant = self.value.constant
        if constant is not None and least <= constant <= greatest:
            return self.needs
        return self.needs | {Fits(self.value, least, greatest)}

    @property
    def without_sign(self) -> Integer:
        """The integer as an unsigned one, where it is not negative."""
        return replace(self, needs=self.needs | {Fits(self.value, 0, _MOST)})

    def convert(self, type_: CType) -> Integer | None:
        """Return the integer as another type; None if that type has other values than integers."""
        if type_.name == "bool" or type_.kind != "integer":
            return None
        needs = self.exact if type_.size > self.type.size else self.needs
        return Integer(self.value, type_, needs)


@dataclass(frozen=True)
class Pointer:
    """A pointer to memory: of arguments, or of no argument (private, local and constant).

    Attributes:
        arguments: Which arguments it may point into. Empty: memory of its own.
        offset: In bytes, if it is one known argument and its place is known.
        target: The type that it points to.
        root: The array that memory of its own is, or BEHIND.
    """

    arguments: frozenset[str]
    offset: Polynomial | None
    target: CType
    needs: Needs = frozenset()
    root: Root = BEHIND

    @property
    def roots(self) -> frozenset[Root]:
        """The variables, or the memory, that the pointer may lead to."""
        if not self.arguments:
            return frozenset({self.root})
        return frozenset({MEMORY, *((name, 0) for name in self.arguments)})

    def to(self, target: CType) -> Pointer:
        """Return the pointer as a pointer to another type."""
        return replace(self, target=target)

    @property
    def lost(self) -> Pointer:
        """It, when its place is not known."""
        return replace(self, offset=None, needs=frozenset())

    def move(self, by: Value, size: int) -> Pointer:
        """Return a pointer that is moved by so many pieces of so many bytes; 0: not known."""
        wide = by.convert(LONG) if isinstance(by, Integer) else None
        if wide is None or self.offset is None or not size:
            return self.lost
        offset = self.offset + wide.value * number(size)
        return replace(self, offset=offset, needs=self.needs | wide.needs)


@dataclass(frozen=True)
class Unknown:
    """A value of which at most the type is known, and what it is made of."""

    type: CType | None = None
    flows: Flows = field(default_factory=dict[Root, float])


Value = Integer | Pointer | Unknown
PRIVATE: Final = Pointer(frozenset(), None, CType("void"))
#: Numbers that are less are steps of counters.
_LARGE: Final = 100
_EXACT: Final = {"+": operator.add, "-": operator.sub, "*": operator.mul}
_COMPARISONS: Final = frozenset({"<", ">", "<=", ">=", "==", "!="})


def join(left: Value, right: Value) -> Value:
    """Return what is known of a value that is one of two."""
    match left, right:
        case Integer(), Integer() if (left.value, left.type) == (right.value, right.type):
            return replace(left, needs=left.needs | right.needs)
        case Pointer(), Pointer():
            root = left.root if left.root == right.root else BEHIND
            if (left.arguments, left.offset, root) == (right.arguments, right.offset, left.root):
                return replace(left, needs=left.needs | right.needs)
            return Pointer(left.arguments | right.arguments, None, left.target, root=root)
        case _:
            type_ = combine_types(find_type(left), find_type(right))
            return Unknown(type_, unite(find_flows(left), find_flows(right)))


def find_type(value: Value) -> CType | None:
    """Return the type of a value; None if it is not known."""
    if isinstance(value, Pointer):
        return CType("pointer", 8, 8, target=value.target)
    return promote(value).type if isinstance(value, Integer) else value.type


def find_flows(value: Value) -> Flows:
    """Return what a number is made of. Steps of counters are made of nothing."""
    if isinstance(value, Pointer):
        return {}
    if isinstance(value, Unknown):
        is_real = value.type is not None and value.type.scalar.kind == "float"
        return {one: times for one, times in value.flows.items() if not is_real or one != SIGNED}
    constant = value.value.constant
    if constant is not None and abs(constant) < _LARGE:
        return {}
    return {MEMORY if value.value.has_arguments else KNOWN: 1}


def calculate_value(name: str, left: Value, right: Value) -> Value:
    """Return what an operator of C makes of two values."""
    found = _calculate(name, left, right)
    if found is not None:
        return found
    if name in _COMPARISONS:
        return Unknown(INT)
    type_ = combine_types(find_type(left), INT if name in ("<<", ">>") else find_type(right))
    constant = right.value.constant if isinstance(right, Integer) else None
    flows = find_flows(left), find_flows(right)
    return Unknown(type_, combine(name, *flows, constant, type_ and type_.scalar))


def combine_types(left: CType | None, right: CType | None) -> CType | None:
    """Return the type in which C calculates with two types; None if it is not known."""
    if left is None or right is None:
        return None
    for kind in ("vector", "float"):
        for one, other in ((left, right), (right, left)):
            if one.kind == kind:
                # a component of a vector has its type, too, and is calculated with as an int
                is_small = one.target is not None and one.target.size < INT.size
                return None if is_small and other.kind != kind else one
    if left.kind != "integer" or right.kind != "integer":
        return None
    wide = max(left, right, key=lambda one: (one.size, not one.signed))
    return wide if wide.size >= INT.size else INT


def _calculate(name: str, left: Value, right: Value) -> Integer | Pointer | None:
    if isinstance(right, Pointer) and name == "+":
        left, right = right, left
    if isinstance(left, Pointer):
        if name not in ("+", "-") or isinstance(right, Pointer):
            return None
        return left.move(right, left.target.size * (-1 if name == "-" else 1))
    if not isinstance(left, Integer) or not isinstance(right, Integer):
        return None
    if name in ("<<", ">>"):
        left = promote(left)
        shift = right.value.constant
        if shift is None or not 0 <= shift < 8 * left.type.size:
            return None
        power = Integer(number(1 << shift), ULONG if left.type.size == 8 else UINT)
        if name == ">>":
            return divide(left.without_sign, power, left.type)[0]
        return Integer(left.value * power.value, left.type, left.needs | right.needs)
    left, right = _balance(left, right)
    if name in _EXACT:
        return Integer(_EXACT[name](left.value, right.value), left.type, left.needs | right.needs)
    if name in ("/", "%"):
        return divide(left, right, left.type)[name == "%"]
    mask = right.value.constant
    if name == "&" and mask is not None and mask > 0 and not mask & (mask + 1):
        power = Integer(number(mask + 1), left.type)
        return divide(left.without_sign, power, left.type)[1]
    if name in ("&", "|", "^"):
        parts = left.value, right.value
        return Integer(symbol("bits", name, *parts), left.type, left.exact | right.exact)
    return None


def promote(value: Integer) -> Integer:
    """Return an integer as C calculates with it: at least as an int."""
    return (value.convert(INT) or value) if value.type.size < 4 else value


def _balance(left: Integer, right: Integer) -> tuple[Integer, Integer]:
    """Give two integers the type in which C calculates with both."""
    left, right = promote(left), promote(right)
    wide = combine_types(left.type, right.type) or INT
    return left.convert(wide) or left, right.convert(wide) or right


def divide(left: Integer, right: Integer, type_: CType) -> tuple[Integer, Integer]:
    """Return the quotient and the remainder: `a == b * (a / b) + a % b` holds in C."""
    needs = left.exact | right.exact
    first, second = left.value.constant, right.value.constant
    if first is not None and second is not None and first >= 0 and second > 0:
        quotient = number(first // second)
    else:
        quotient = symbol("quotient", "", left.value, right.value)
    rest = left.value - right.value * quotient
    return Integer(quotient, type_, needs), Integer(rest, type_, needs)


def limit(name: str, values: list[Value]) -> Integer | None:
    """Return the first argument of min, max or clamp, if the launch's values never limit it."""
    first, *others = values
    if not isinstance(first, Integer):
        return None
    for index, other in enumerate(others):
        if not isinstance(other, Integer) or other.value.varies:
            return None
        below = name == "max" or (name == "clamp" and index == 0)
        gap = first.value - other.value if below else other.value - first.value
        first = replace(first, needs=first.exact | other.exact | {Fits(gap, 0, _MOST)})
    return first
