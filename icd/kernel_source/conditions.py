"""What must be true of a launch, so that what was read from the source is true of it.

Each condition is data with one method, `holds`. It bounds a polynomial by intervals: the least
and the greatest value of each symbol give those of products and sums. So `holds` may say no
where a closer look would say yes, and never the other way round.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

from .polynomials import Polynomial, Symbol

_Three = tuple[int, int, int]


@dataclass(frozen=True)
class LaunchValues:
    """The values of one launch.

    Attributes:
        global_size: Items in each dimension; 1 in those that the launch does not have.
        local_size: Items of a group in each dimension; None if the driver chooses.
        global_offset: The first id in each dimension.
        arguments: The integers among the kernel's arguments.
    """

    global_size: _Three
    local_size: _Three | None = None
    global_offset: _Three = (0, 0, 0)
    arguments: Mapping[str, int] = field(default_factory=dict)

    def bounds(self, polynomial: Polynomial) -> tuple[int, int] | None:
        """Return an interval that has all values of a polynomial; None if there is none."""
        low = high = 0
        for product, factor in polynomial.terms:
            least = most = factor
            for symbol in product:
                found = self._bounds(symbol)
                if found is None:
                    return None
                corners = [left * right for left in (least, most) for right in found]
                least, most = min(corners), max(corners)
            low, high = low + least, high + most
        return low, high

    def value(self, polynomial: Polynomial) -> int | None:
        """Return the value of a polynomial that is the same for all items."""
        found = self.bounds(polynomial)
        return found[0] if found and found[0] == found[1] else None

    def count(self, symbol: Symbol) -> int | None:
        """Return how many values a symbol has."""
        found = self._bounds(symbol)
        return found and found[1] - found[0] + 1

    def _bounds(self, symbol: Symbol) -> tuple[int, int] | None:
        kind = symbol.kind
        if kind == "argument":
            value = self.arguments.get(symbol.name)
            return None if value is None else (value, value)
        if kind in ("item", "counter"):
            first, behind = (self.bounds(part) for part in symbol.parts)
            if first is None or behind is None:
                return None
            return first[0], max(first[1], behind[1] - 1)
        if kind == "quotient":
            dividend, divisor = self.bounds(symbol.parts[0]), self.value(symbol.parts[1])
            if dividend is None or divisor is None or divisor <= 0 or dividend[0] < 0:
                return None
            return dividend[0] // divisor, dividend[1] // divisor
        dimension = int(symbol.name)
        size = self.global_size[dimension]
        if kind == "offset":
            return self.global_offset[dimension], self.global_offset[dimension]
        if kind == "global_size":
            return size, size
        if kind == "id":
            return 0, max(0, size - 1)
        if self.local_size is None:
            # a group has at most all items, and there are at most as many groups as items
            return (1, size) if kind in ("local_size", "groups") else (0, max(0, size - 1))
        local = self.local_size[dimension]
        groups = -(-size // local)
        if kind in ("local_size", "groups"):
            return (local, local) if kind == "local_size" else (groups, groups)
        return 0, max(0, (local if kind == "local" else groups) - 1)


class Condition(Protocol):
    """What must be true of a launch."""

    def holds(self, values: LaunchValues) -> bool:
        """Say whether it is true."""
        ...


@dataclass(frozen=True)
class Fits:
    """A value does not wrap: it is never outside of its type, though calculated in it."""

    value: Polynomial
    least: int
    greatest: int

    def holds(self, values: LaunchValues) -> bool:
        """Say whether all values are inside."""
        bounds = values.bounds(self.value)
        return bounds is not None and self.least <= bounds[0] and bounds[1] <= self.greatest


@dataclass(frozen=True)
class UniformGroups:
    """All groups have the same size. OpenCL 2.0 lets the last one be smaller."""

    def holds(self, values: LaunchValues) -> bool:
        """Say whether the group size divides the range."""
        sizes = values.local_size
        return sizes is not None and not any(
            size % local for size, local in zip(values.global_size, sizes, strict=True)
        )


@dataclass(frozen=True)
class OneDimension:
    """The launch has one item in the second and third dimension."""

    def holds(self, values: LaunchValues) -> bool:
        """Say whether it is so."""
        return values.global_size[1:] == (1, 1)


@dataclass(frozen=True)
class GroupSize:
    """The groups have the size that the source assumes."""

    dimension: int
    size: int

    def holds(self, values: LaunchValues) -> bool:
        """Say whether it is so."""
        return values.local_size is not None and values.local_size[self.dimension] == self.size


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
        for symbol in self.offset.symbols:
            if not symbol.varies:
                continue
            factor = self.offset.coefficient(symbol)
            stride = factor and values.value(factor)
            count = values.count(symbol)
            if stride is None or count is None:
                return False
            unused -= {"0", "1", "2"} if symbol.kind == "item" else {symbol.name}
            if count > 1:
                strides.append((abs(stride), count))
        reach = self.width
        for stride, count in sorted(strides):
            if stride < reach:
                return False
            reach += stride * (count - 1)
        return not unused
