"""Integers that do not fit in their types, and what a compiler concludes of them.

C leaves signed overflow undefined. So a compiler takes `y > x` for true where it sees that `y` is
`x + 1`, and `x * x` for positive. It takes `i * 1103515245` for positive where it sees that `i` is.
Processors let such numbers wrap around, so results depend on what a compiler sees. Where all
numbers fit, it concludes only what is true. So:

- numbers that follow from an item's number are checked with the launch's values. A launch in which
  one does not fit stays as it is: nobody knows what its compiler concluded there. So does one in
  which an inner loop lets such a number grow in each turn: how far is not known;
- a floating-point number that becomes an integer may not fit in it, either. What it becomes depends
  on the instruction. Processors have several for doubles, so such a launch stays as it is;
- numbers of memory and of arguments are not known. On a CPU, what a launch with such numbers writes
  is hidden from those behind it. It also does not see that two of its arguments are the same.
  Zeros that are arguments of the fused kernel do that: a compiler cannot know that they are 0.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain
from typing import TYPE_CHECKING

from ...kernel_source.reading import KernelAccess, LaunchValues
from .opaque import measure_kind
from .used_bytes import UsedBytes

if TYPE_CHECKING:
    from .launches import RecordedLaunch


def find_overflow(access: KernelAccess, values: LaunchValues) -> tuple[bool, str]:
    """Return whether signed integers of a launch may not fit, and why it stays as it is, or ""."""
    may_overflow = False
    for one in access.signed:
        if one.value is not None and all(need.holds(values) for need in one.needs):
            continue
        may_overflow = True
        if one.refusal:
            return True, f"{one.refusal} (line {one.line})"
        found = values.bounds(one.value) if one.value is not None and one.value.varies else None
        if found and not one.range[0] <= found[0] <= found[1] <= one.range[1]:
            return True, f"a signed integer of an item does not fit in its type (line {one.line})"
    return may_overflow, ""


def list_hidden(launches: Sequence[RecordedLaunch], place: int) -> list[UsedBytes]:
    """Return the memory of a launch whose elements are hidden from those behind it."""
    launch = launches[place]
    if not launch.may_overflow:
        return []
    hidden = set[str]()
    for turn, memory in enumerate(launch.memory):
        later = chain(*(one.memory[turn] for one in launches[place + 1 :]))
        read = {one.root for one in later if one.reads}
        hidden |= {one.argument for one in memory if one.writes and one.root in read}
    return [one for one in launch.memory[0] if one.argument in hidden]


def can_hide(memory: UsedBytes) -> bool:
    """Return whether an item's element of memory can be hidden."""
    return memory.fits and memory.width == measure_kind(memory.kind)


def list_twins(memory: Sequence[Sequence[UsedBytes]]) -> frozenset[str]:
    """Return the arguments that read the same memory as others before them."""
    found = set[str]()
    for turn in memory:
        roots = set[int]()
        for one in filter(lambda one: one.reads, turn):
            if one.root in roots:
                found.add(one.argument)
            roots.add(one.root)
    return frozenset(found)
