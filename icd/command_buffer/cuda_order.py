"""The edges of a CUDA Graph: the order of commands on a few chains.

CUDA launches a chain of nodes fastest, and several chains at the same time. Eight are the best
shape on an H200: a graph of 1,000 independent kernels takes 0.74 µs for each kernel, and 0.2 µs on
eight chains. So every command becomes a part of a chain. It needs an edge from another chain only
where nothing before it implies that order.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from .order import Order

#: The most chains. More of them make the launch of a graph slower.
CHAINS: Final = 8


@dataclass(frozen=True)
class Edges:
    """What each command of a graph comes after.

    Attributes:
        before: the commands that a command comes after directly, by its number.
        chains: how many chains there are.
    """

    before: Sequence[Sequence[int]]
    chains: int

    @property
    def first(self) -> list[int]:
        """Where the commands before each command begin in `flat`, and its length."""
        places = [0]
        for numbers in self.before:
            places.append(places[-1] + len(numbers))
        return places

    @property
    def flat(self) -> list[int]:
        """All members of `before`, one list after the other."""
        return [number for numbers in self.before for number in numbers]


def chained(order: Order, most: int = CHAINS) -> Edges:
    """Return the edges of commands on at most `most` chains.

    A command continues the chain whose end it comes after, or else the shortest one. Commands that
    only order others have no edges, because the ones after them have theirs.

    Args:
        order: what each command comes after.
        most: at least 1.
    """
    dependencies = [*map(list, order.dependencies)]
    chain = [[], *([number] for number in range(len(dependencies) - 1))]
    if dependencies == chain and not any(order.order_only):  # as most graphs are
        return Edges(dependencies, 1)
    nothing = [-1] * most
    chains: list[list[int]] = [[] for _ in range(most)]  # the commands of each
    clocks: list[list[int]] = []  # of a command: the last place in each chain that it comes after
    before: list[list[int]] = []
    chain_of: list[int] = []  # of a command; -1 if it only orders others
    for number, predecessors in enumerate(dependencies):
        if len(predecessors) == 1 and not order.order_only[number]:
            last = predecessors[0]
            own = chain_of[last]
            if own >= 0 and chains[own][-1] == last:  # most commands: one after the end of a chain
                clock = clocks[last].copy()
                clock[own] += 1
                clocks.append(clock)
                before.append([last])
                chain_of.append(own)
                chains[own].append(number)
                continue
        needs = [clocks[one] for one in predecessors]
        clock = [max(places) for places in zip(*needs, strict=True)] if needs else list(nothing)
        if order.order_only[number]:
            clocks.append(clock)
            before.append([])
            chain_of.append(-1)
            continue
        ends = [len(chain) - 1 for chain in chains]
        followed = [one for one in range(most) if clock[one] == ends[one] >= 0]
        own = max(followed, key=ends.__getitem__) if followed else ends.index(min(ends))
        wanted = [chains[one][clock[one]] for one in range(most) if clock[one] >= 0 and one != own]
        if chains[own]:
            wanted.append(chains[own][-1])
        places = {chains[one][clock[one]]: one for one in range(most) if clock[one] >= 0}
        before.append(
            [
                one
                for one in wanted
                if not any(
                    other != one
                    and one in places
                    and clocks[other][places[one]] >= clock[places[one]]
                    for other in wanted
                )
            ]
        )
        if chains[own]:
            clock = [max(pair) for pair in zip(clock, clocks[chains[own][-1]], strict=True)]
        clock[own] = len(chains[own])
        chains[own].append(number)
        chain_of.append(own)
        clocks.append(clock)
    return Edges(before, sum(map(bool, chains)))
