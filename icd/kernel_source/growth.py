"""Which variables a loop lets grow in each turn, in one statement or in several.

Each assignment is a row: a variable, and what flows to it. A product has a variable often, a sum
once, and the mean of two a half. So a variable grows if what it is made of has itself more than
once, or once and something else. What comes from memory does not count there: a compiler knows
nothing of it. Nor does a step of a counter, nor what no operator of signed integers made.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from typing import Final

from .c_types import CType

#: A variable: its name, and a number of its own.
Root = tuple[str, int]
#: What stands for variables behind pointers, for memory and values of arguments, for numbers that
#: are known, and for an operator of signed integers. No variable has such a name.
BEHIND, MEMORY, KNOWN, SIGNED = ((word, 0) for word in ("*", "[]", "#", "+-"))
#: The variables that a number is made of, and how many times it has each.
Flows = Mapping[Root, float]
#: A variable that is assigned, what flows to it, and the line.
Row = tuple[Root, Flows, int]
#: Operators of integers whose result may not fit in the type. OpenCL C defines what shifts do.
GROWING: Final = frozenset({"+", "-", "*", "/", "%"})
#: How many times a product has each of its factors: more than any sum has a number.
_OFTEN: Final = 1 << 32
#: Halves and thirds of a variable add up to the whole, but for rounding.
_NEARLY: Final = 0.999


def unite(one: Flows, other: Flows) -> Flows:
    """Return what a number is made of that is one of two, or made of both in an unknown way."""
    return {key: max(one.get(key, 0), other.get(key, 0), key=abs) for key in {**one, **other}}


def combine(
    name: str, one: Flows, other: Flows, constant: int | None, type_: CType | None
) -> Flows:
    """Return what the result of an operator is made of.

    Args:
        constant: Its right side, if that is known.
        type_: Of the result, or of a vector's component.
    """
    flows = dict(unite(one, other))
    if name in ("*", "<<"):
        flows = dict.fromkeys(flows, _OFTEN)
    elif name in ("+", "-"):
        sign = 1 if name == "+" else -1
        flows = {key: one.get(key, 0) + sign * other.get(key, 0) for key in flows}
    elif constant and name in ("/", ">>"):
        by = constant if name == "/" else 1 << constant
        flows = {key: times / by for key, times in one.items()}
    if name in GROWING and (type_ is None or type_.signed):
        flows[SIGNED] = 1
    return flows


def find_growing(rows: Sequence[Row], first: int) -> int:
    """Return the line where a loop lets a variable grow, 0 if it lets none.

    Args:
        rows: The assignments so far. Those of the loop begin with the first one.
    """
    origins, looped = _find_origins(rows), _find_origins(rows[first:])
    for root, flows, line in rows[first:]:
        if SIGNED not in flows:
            continue
        again = {one for one in flows if one == root or root in looped.get(one, ())}
        added = flows.keys() - again - {SIGNED}
        times = sum(abs(flows[one]) for one in again)
        is_free = MEMORY in added.union(*(origins.get(one, ()) for one in added))
        if times > 1 or (times > _NEARLY and added and not is_free):
            return line
    return 0


def _find_origins(rows: Sequence[Row]) -> Mapping[Root, Set[Root]]:
    """Return what flows to each variable, directly or through others."""
    origins = {root: set[Root]() for root, _, _ in rows}
    while True:
        before = sum(map(len, origins.values()))
        for root, flows, _ in rows:
            origins[root].update(flows, *(origins.get(one, ()) for one in flows))
        if sum(map(len, origins.values())) == before:
            return origins
