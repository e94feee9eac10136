"""Polynomials with integer coefficients: the values of integers that the analysis knows.

A symbol is a number that is not known before a launch: an id, an argument, a counter. Addition,
subtraction and multiplication of polynomials are exact, also modulo 2 to the 64th. So an address
that a kernel calculates is its polynomial, whatever wraps on the way.

Two identities of OpenCL hold for each dimension, where the groups have the same size. `group *
local_size` is `id - local`, and `groups * local_size` is `global_size`. Products apply them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True)
class Symbol:
    """A number that a launch gives.

    Attributes:
        kind: `id` is get_global_id without the offset. `local`, `group`, `local_size`,
            `global_size`, `groups` and `offset` are the other ids and sizes. `rest` is the
            size of a smaller last group, or 0. `argument`, `item` (the counter of the loop over
            items), `turn` (that of another loop), `quotient` and `bits` (of `&`, `|` and `^`) are
            the others.
        name: Its dimension, or its name.
        parts: A counter's first value and the value behind its last. A quotient's dividend and
            divisor. What an operator of bits has on both sides.
    """

    kind: str
    name: str
    parts: tuple[Polynomial, ...] = ()

    def __str__(self) -> str:
        if self.kind == "quotient":
            return f"({self.parts[0]}) / ({self.parts[1]})"
        if self.kind == "bits":
            return f"({self.parts[0]}) {self.name} ({self.parts[1]})"
        return self.name if self.kind in ("argument", "item") else self.kind + self.name

    @property
    def varies(self) -> bool:
        """Whether items of one launch have different numbers."""
        if self.kind in ("quotient", "bits"):
            return any(part.varies for part in self.parts)
        return self.kind in ("id", "local", "group", "item", "turn")


_Product = tuple[Symbol, ...]
_ORDER: Final = str


@dataclass(frozen=True)
class Polynomial:
    """A sum of products of symbols. Equal polynomials are equal objects."""

    terms: tuple[tuple[_Product, int], ...] = ()

    def __add__(self, other: Polynomial) -> Polynomial:
        return _sum([*self.terms, *other.terms])

    def __sub__(self, other: Polynomial) -> Polynomial:
        return self + other * number(-1)

    def __mul__(self, other: Polynomial) -> Polynomial:
        return _sum(
            term
            for product, factor in self.terms
            for other_product, other_factor in other.terms
            for term in _rewrite(product + other_product, factor * other_factor)
        )

    def __str__(self) -> str:
        texts: list[str] = []
        for product, factor in self.terms:
            words = [str(symbol) for symbol in product]
            texts.append(" * ".join([str(factor), *words] if factor != 1 or not words else words))
        return " + ".join(texts) or "0"

    @property
    def constant(self) -> int | None:
        """Its value, if it has no symbols."""
        if not self.terms:
            return 0
        return self.terms[0][1] if len(self.terms) == 1 and not self.terms[0][0] else None

    @property
    def symbols(self) -> frozenset[Symbol]:
        """The symbols that occur in it."""
        return frozenset(symbol for product, _ in self.terms for symbol in product)

    @property
    def varies(self) -> bool:
        """Whether items of one launch have different values."""
        return any(symbol.varies for symbol in self.symbols)

    @property
    def has_arguments(self) -> bool:
        """Whether it has an argument of the kernel, also in a quotient or in bits."""
        return any(
            one.kind == "argument"
            or (one.kind in ("quotient", "bits") and any(part.has_arguments for part in one.parts))
            for one in self.symbols
        )

    def split(self) -> tuple[Polynomial, Polynomial]:
        """Divide it into the terms that vary and those that do not."""
        varying = [term for term in self.terms if any(symbol.varies for symbol in term[0])]
        fixed = [term for term in self.terms if term not in varying]
        return Polynomial(tuple(varying)), Polynomial(tuple(fixed))

    def coefficient(self, symbol: Symbol) -> Polynomial | None:
        """Return what a symbol is multiplied by; None if that is not the same everywhere."""
        factors: list[tuple[_Product, int]] = []
        for product, factor in self.terms:
            if symbol in product:
                rest = list(product)
                rest.remove(symbol)
                factors.append((tuple(rest), factor))
        found = _sum(factors)
        return None if found.varies else found

    def find_remainder(self, quotient: Symbol) -> tuple[Polynomial, Polynomial] | None:
        """Return a and b, so that it is `a + b * (dividend - divisor * quotient)`; None if it is
        not such a sum."""
        dividend, divisor = quotient.parts
        if len(divisor.terms) != 1:
            return None
        ((symbols, number_of),) = divisor.terms
        found: list[tuple[_Product, int]] = []
        for product, factor in self.terms:
            if quotient not in product:
                continue
            rest = list(product)
            for one in (quotient, *symbols):
                if one not in rest:
                    return None
                rest.remove(one)
            if factor % number_of:
                return None
            found.append((tuple(rest), -factor // number_of))
        times = _sum(found)
        remainder = dividend - divisor * Polynomial((((quotient,), 1),))
        return self - times * remainder, times


def number(value: int) -> Polynomial:
    """Return a constant."""
    return Polynomial((((), value),)) if value else Polynomial()


def symbol(kind: str, name: str | int, *parts: Polynomial) -> Polynomial:
    """Return the polynomial that is one symbol."""
    return Polynomial((((Symbol(kind, str(name), parts),), 1),))


def _sum(terms: Iterable[tuple[_Product, int]]) -> Polynomial:
    sums: dict[_Product, int] = {}
    for product, factor in terms:
        sums[product] = sums.get(product, 0) + factor
    kept = ((product, factor) for product, factor in sums.items() if factor)
    return Polynomial(tuple(sorted(kept, key=lambda term: [str(one) for one in term[0]])))


def _rewrite(product: _Product, factor: int) -> Iterator[tuple[_Product, int]]:
    for one in product:
        size = Symbol("local_size", one.name)
        if one.kind in ("group", "groups") and size in product:
            rest = list(product)
            rest.remove(one)
            rest.remove(size)
            if one.kind == "groups":
                yield from _rewrite((*rest, Symbol("global_size", one.name)), factor)
            else:
                yield from _rewrite((*rest, Symbol("id", one.name)), factor)
                yield from _rewrite((*rest, Symbol("local", one.name)), -factor)
            return
    yield tuple(sorted(product, key=_ORDER)), factor
