"""What must be true of a launch, so that what was read from the source is true of it.

Each condition is data with one method, `holds`. It bounds a polynomial by intervals: the least
and the greatest value of each symbol give those of products and sums. So `holds` may say no
where a closer look would say yes, and never the other way round.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from .polynomials import Polynomial, Symbol, symbol

Three = tuple[int, int, int]


@dataclass(frozen=True)
class LaunchValues:
    """The values of one launch.

    Attributes:
        global_size: Items in each dimension; 1 in those that the launch does not have.
        local_size: Items of a group in each dimension; None if the driver chooses.
        global_offset: The first id in each dimension.
        arguments: The integers among the kernel's arguments.
    """

    global_size: Three
    local_size: Three | None = None
    global_offset: Three = (0, 0, 0)
    arguments: Mapping[str, int] = field(default_factory=dict)

    def bounds(self, polynomial: Polynomial) -> tuple[int, int] | None:
        """Return an interval that has all values of a polynomial; None if there is none."""
        low = high = 0
        for product, factor in polynomial.terms:
            least = most = factor
            for one in product:
                found = self.range(one)
                if found is None:
                    return None
                corners = [left * right for left in (least, most) for right in found]
                least, most = min(corners), max(corners)
            low, high = low + least, high + most
        for one in sorted(polynomial.symbols, key=str):
            if one.kind == "quotient" and (found := self._bound_remainder(polynomial, one)):
                low, high = max(low, found[0]), min(high, found[1])
        return low, high

    def _bound_remainder(self, of: Polynomial, quotient: Symbol) -> tuple[int, int] | None:
        """Return an interval for what a quotient is a part of by its remainder, if it is."""
        found, (dividend, divisor) = of.find_remainder(quotient), quotient.parts
        most, first = self.value(divisor), self.bounds(dividend)
        if found is None or most is None or first is None or most <= 0 or first[0] < 0:
            return None
        rest, times = (self.bounds(part) for part in found)
        last = min(most - 1, first[1])
        if rest is None or times is None:
            return None
        return rest[0] + min(0, times[0] * last), rest[1] + max(0, times[1] * last)

    def value(self, polynomial: Polynomial) -> int | None:
        """Return the value of a polynomial that is the same for all items."""
        found = self.bounds(polynomial)
        return found[0] if found and found[0] == found[1] else None

    def range(self, one: Symbol) -> tuple[int, int] | None:
        """Return the least and the greatest value of a symbol; None if they are not known."""
        if one.kind == "argument":
            value = self.arguments.get(one.name)
            return None if value is None else (value, value)
        if one.kind in ("item", "turn"):
            first, behind = (self.bounds(part) for part in one.parts)
            if first is None or behind is None:
                return None
            return first[0], max(first[1], behind[1] - 1)
        if one.kind == "quotient":
            dividend, divisor = self.bounds(one.parts[0]), self.value(one.parts[1])
            if dividend is None or divisor is None or divisor <= 0 or dividend[0] < 0:
                return None
            return dividend[0] // divisor, dividend[1] // divisor
        if one.kind == "bits":
            bounds = [self.bounds(part) for part in one.parts]
            ends = [end for found in bounds for end in found or ()]
            power = 1 << max(abs(end).bit_length() for end in (0, *ends))
            return None if None in bounds else (-power if min(ends) < 0 else 0, power - 1)
        dimension = int(one.name)
        size = self.global_size[dimension]
        local = self.local_size[dimension] if self.local_size else None
        last = max(0, size - 1)
        # there are at most as many groups as items, and groups of all items
        least, most = (local, local) if local else (1, size or 1)
        rest, offset = size % least, self.global_offset[dimension]
        return {
            "id": (0, last),
            "local": (0, most - 1),
            "group": (0, max(0, -(-size // least) - 1)),
            "rest": (rest, rest if local else last),
            "local_size": (least, most),
            "global_size": (size, size),
            "groups": (-(-size // most), -(-size // least)),
            "offset": (offset, offset),
        }[one.kind]


@dataclass(frozen=True)
class Fits:
    """A value is in a range. As a rule: it does not wrap in the type that it is calculated in."""

    value: Polynomial
    least: int
    greatest: int

    def holds(self, values: LaunchValues) -> bool:
        """Say whether all values are inside."""
        bounds = values.bounds(self.value)
        return bounds is not None and self.least <= bounds[0] and bounds[1] <= self.greatest


@dataclass(frozen=True)
class Injective:
    """Different items have disjoint pieces of memory.

    Proof: sort the symbols by their strides. The smallest stride must be as wide as a piece.
    Each next one must be as wide as all pieces that the symbols before it reach. This is how
    digits of a number work: different digits make different numbers.

    Attributes:
        offset: The first byte of an item's piece.
        width: The bytes of a piece.
    """

    offset: Polynomial
    width: int

    def holds(self, values: LaunchValues) -> bool:
        """Say whether the strides do not overlap."""
        strides: list[tuple[int, int]] = []
        unused = {str(d) for d, size in enumerate(values.global_size) if size > 1}
        for one in self.offset.symbols:
            if not one.varies:
                continue
            factor, found = self.offset.coefficient(one), values.range(one)
            stride = factor and values.value(factor)
            if stride is None or found is None:
                return False
            unused -= {"0", "1", "2"} if one.kind == "item" else {one.name}
            if found[1] > found[0]:
                strides.append((abs(stride), found[1] - found[0]))
        reach = self.width
        for stride, steps in sorted(strides):
            if stride < reach:
                return False
            reach += stride * steps
        return not unused


Condition = Fits | Injective
Needs = frozenset[Condition]
_DIMENSIONS: Final = (0, 1, 2)
#: All groups have the same size. OpenCL 2.0 lets the last one be smaller.
UNIFORM_GROUPS: Final[Needs] = frozenset(Fits(symbol("rest", d), 0, 0) for d in _DIMENSIONS)
#: The launch has one item in the second and third dimension.
ONE_DIMENSION: Final[Needs] = frozenset(Fits(symbol("global_size", d), 1, 1) for d in (1, 2))
