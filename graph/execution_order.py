"""The order in which nodes run, and whether an edge would close a cycle. Nodes are numbers, in the
order in which they were added.

The order of adding does not count, unlike that of recording (icd/command_buffer/order.py):
`make_edge` may lead to an earlier node.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Sequence, Set
from typing import TypeAlias, TypeVar

from ..runtime.errors import SYCLError, make_invalid_error

Neighbours = Sequence[Sequence[int]]
_Place = TypeVar("_Place", bound=Hashable)
_FindNeighbours: TypeAlias = Callable[[_Place], Iterable[_Place]]


def find_execution_order(
    nodes: Sequence[int], successors: Neighbours, predecessors: Neighbours
) -> list[int]:
    """Return `nodes` in the order in which they are enqueued (spec B2): reversed depth-first.

    The node that became ready last runs first. So one branch ends before another one begins.
    Predecessors outside of `nodes` do not count. (DPC++ counted them until PR #22565, and
    lost the nodes that have some.)

    Args:
        successors, predecessors: those of each node of the graph.

    Raises:
        SYCLError: invalid, if the nodes have a cycle, which `make_edge` can make without its check.
    """
    of = None
    if len(nodes) < len(successors):
        of = [-1] * len(successors)
        for node in nodes:
            of[node] = 0
    return find_execution_orders([nodes], of, successors, predecessors)[0]


def find_execution_orders(
    groups: Sequence[Sequence[int]],
    of: Sequence[int] | None,
    successors: Neighbours,
    predecessors: Neighbours,
) -> list[list[int]]:
    """Return the order of each of several groups of nodes. See `find_execution_order`.

    Args:
        groups: the nodes of each group.
        of: the number of each node's group, negative for none. None: one group has all nodes.
        successors, predecessors: those of each node of the graph.
    """
    waiting = list(map(len, predecessors)) if of is None else [0] * len(of)
    for node, own in enumerate(of or ()):
        for before in predecessors[node]:
            if of and of[before] == own:
                waiting[node] += 1
    orders: list[list[int]] = []
    for own, group in enumerate(groups):
        ready = [node for node in group if not waiting[node]]
        order: list[int] = []
        while ready:
            node = ready.pop()
            order.append(node)
            for after in successors[node]:
                if of is None or of[after] == own:
                    waiting[after] -= 1
                    if not waiting[after]:
                        ready.append(after)
        if len(order) < len(group):
            raise _make_cycle_error({node for node in group if waiting[node]}, predecessors)
        orders.append(order)
    return orders


def _make_cycle_error(waiting: Set[int], predecessors: Neighbours) -> SYCLError:
    """Return the error for nodes that wait for each other. Each has a predecessor among them, so
    walking up meets one twice."""
    node, walked = min(waiting), {}
    while node not in walked:
        walked[node] = len(walked)
        node = next(before for before in predecessors[node] if before in waiting)
    cycle = [node, *reversed(list(walked)[walked[node] :])]
    return make_invalid_error(
        f"Command graphs cannot contain cycles: nodes {' → '.join(map(str, cycle))}",
        routine="finalize",
        remedy="leave the check for cycles on, which names the edge",
    )


def leads_to(
    start: _Place, goal: _Place, after: _FindNeighbours[_Place], before: _FindNeighbours[_Place]
) -> bool:
    """Whether a path leads from `start` to `goal`.

    It searches down from the one and up from the other alternately, and ends when either side has
    nothing more. So an edge near the beginning or the end of a graph costs little.

    Args:
        start, goal: nodes, or their numbers.
        after, before: the neighbours of a node.
    """
    if start == goal:
        return True
    near, far = (after, [start], {start}), (before, [goal], {goal})
    while near[1]:
        neighbours, waiting, seen = near
        for place in neighbours(waiting.pop()):
            if place in far[2]:
                return True
            if place not in seen:
                seen.add(place)
                waiting.append(place)
        near, far = far, near
    return False
