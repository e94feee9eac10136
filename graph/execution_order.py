"""In which order nodes run, and whether an edge would close a cycle. Nodes are numbers, in the order in which they were added.

Unlike an order of recording (loader/schedule.py), the order of adding says nothing here: `make_edge` may lead from a node to one that
was added before it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ..loader.errors import FairleadError

Neighbours = Sequence[Sequence[int]]


def execution_order(nodes: Sequence[int], successors: Neighbours, predecessors: Neighbours) -> list[int]:
    """`nodes` in the order in which they are enqueued (spec B2): reversed depth-first, edges to other nodes apart.

    What becomes ready last runs first, so that a branch is followed to its end before another one begins. Predecessors outside
    of `nodes` do not count: DPC++ counted them until PR #22565, and lost the nodes that have some.

    Raises FairleadError if the nodes have a cycle, which `make_edge` without its check can make.
    """
    inside = frozenset(nodes)
    waiting = {node: len(inside.intersection(predecessors[node])) for node in nodes}
    ready = [node for node in nodes if not waiting[node]]
    order: list[int] = []
    while ready:
        node = ready.pop()
        order.append(node)
        for after in successors[node]:
            if after in inside:
                waiting[after] -= 1
                if not waiting[after]:
                    ready.append(after)
    if len(order) < len(nodes):
        cycle = " → ".join(map(str, _cycle(waiting, predecessors)))
        raise FairleadError(
            f"the graph has a cycle: nodes {cycle}", remedy="leave the check for cycles on, which names the edge"
        )
    return order


def _cycle(waiting: Mapping[int, int], predecessors: Neighbours) -> list[int]:
    """A cycle among the nodes that still wait: each of them comes after another, so that walking up meets a node twice."""
    walked: dict[int, int] = {}
    node = next(node for node, count in waiting.items() if count)
    while node not in walked:
        walked[node] = len(walked)
        node = next(before for before in predecessors[node] if waiting.get(before))
    return [node, *reversed(list(walked)[walked[node] :])]


def has_cycle(successors: Neighbours, predecessors: Neighbours, source: int, destination: int) -> bool:
    """Whether an edge from `source` to `destination` would close a cycle, one node's edge to itself among them.

    Looks down from the destination and up from the source in turns and ends when either side has nothing more, so that an edge at
    the beginning or at the end of a graph costs next to nothing.
    """
    if source == destination:
        return True
    near, far = (successors, [destination], {destination}), (predecessors, [source], {source})
    while near[1]:
        neighbours, frontier, seen = near
        for node in neighbours[frontier.pop()]:
            if node in far[2]:
                return True
            if node not in seen:
                seen.add(node)
                frontier.append(node)
        near, far = far, near
    return False
