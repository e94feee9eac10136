"""The edges of a CUDA Graph: the order of commands on a few chains.

CUDA launches a chain of nodes fastest, and several chains at the same time. Eight are the best
shape on an H200: a graph of 1,000 independent kernels takes 0.74 µs for each kernel, and 0.2 µs on
eight chains. So every command becomes a part of a chain. It needs an edge from another chain only
where nothing before it implies that order.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate, chain, pairwise
from typing import Final

from .._native import ffi, lib
from .order import Order

#: The most chains. More of them make the launch of a graph slower.
CHAINS: Final = 8

#: Kernels start early in graphs of so few chains. More of them are as fast without it.
MOST_EARLY_CHAINS: Final = 4
#: The first GPU on which kernels can start early.
EARLY_SINCE: Final = 9, 0


@dataclass(frozen=True)
class Edges:
    """What each command of a graph comes after.

    Attributes:
        first: where the commands before each command begin in `flat`, and its length.
        flat: the commands that each command comes after directly, one list after the other.
    """

    first: Sequence[int]
    flat: Sequence[int]
    chains: int

    @property
    def before(self) -> list[list[int]]:
        """The commands that a command comes after directly, by its number."""
        return [list(self.flat[begin:end]) for begin, end in pairwise(self.first)]


def chain_commands(
    order: Order, most: int = CHAINS, places: Sequence[int] = (), device_count: int = 1
) -> Edges:
    """Return the edges of commands on at most `most` chains (icd/native/chains.h).

    A command continues the chain whose end it comes after, or else the shortest one. Commands that
    only order others have no edges, because the ones after them have theirs.

    Args:
        order: what each command comes after.
        most: from 1 to 8.
        places: the number of each command's device. Each device has chains of its own.

    Raises:
        MemoryError: there is no memory.
    """
    count, before = len(order), list(order.dependencies)
    first_after, after = ffi.new("uint32_t[]", count + 1), ffi.new("uint32_t[]", CHAINS * count + 1)
    chains = lib.fl_chain(
        count,
        ffi.new("uint32_t[]", [0, *accumulate(map(len, before))]),
        ffi.new("uint32_t[]", [*chain.from_iterable(before), 0]),
        ffi.new("uint8_t[]", bytes(order.order_only)),
        ffi.new("uint32_t[]", places or count + 1),
        device_count,
        most,
        first_after,
        after,
    )
    if chains > CHAINS:
        raise MemoryError
    ends = ffi.unpack(first_after, count + 1)
    return Edges(ends, ffi.unpack(after, ends[-1]), chains)
