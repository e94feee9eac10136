"""Which nodes of a command graph make a command-buffer together: its *partitions*, what each waits for, and when it is enqueued.

A host task cannot be in a command-buffer, and a command-buffer is of one device: there the graph is cut. Partitions are numbered so
that enqueueing them by number is right, but each waits only for its own predecessors, so that branches run at the same time. Nodes
are numbers, in the order in which they were added; edges may lead from any node to any other, as long as there is no cycle.

A *policy* gives every node a label; the nodes of a label are a partition, and the order of labels is the order of partitions.

- "seed" is the procedure of SYCL-Graph's design document (spec B3): it makes few partitions, and it labels some graphs so that a node
  would run before one that it comes after. Its labels are therefore checked.
- "rank" cuts a graph wherever a path through it changes from kernels to a host task, or from one device to another, and keeps apart
  what only some later partition waits for. It is right for every graph, and used where the other one is not.

Both take time in proportion to nodes and edges, and no recursion.
"""

from __future__ import annotations

import sys
from collections.abc import Collection, Hashable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Final, NamedTuple

from .execution_order import Neighbours, execution_order, execution_orders

POLICIES: Final = ("seed", "rank")

#: So many nodes and edges `_turns` may look at, besides twice those of the graph, where edges lead back to earlier host tasks.
_PATIENCE: Final = 10_000
_NEVER: Final = sys.maxsize


class Partition(NamedTuple):
    """Nodes that are enqueued as one.

    Attributes:
        nodes: in the order of execution (spec B2).
        host: whether it is one host task, which the runtime runs itself.
        device: what its nodes have in common, None for a host task.
        predecessors: numbers of the partitions that have to be complete before it, ascending; all of them smaller than its own.
        successors: numbers of the partitions that wait for it, ascending.
        in_order: whether it is a single path that nothing branches off, inside or to another partition (spec B6).
    """

    nodes: tuple[int, ...]
    host: bool
    device: Hashable
    predecessors: tuple[int, ...]
    successors: tuple[int, ...]
    in_order: bool


@dataclass(frozen=True)
class Partitions:
    """All partitions of a graph.

    Attributes:
        partitions: in the order in which they are enqueued; an empty graph has one, which is empty.
        of: the number of each node's partition.
        policy: the one that was used.
        reason: why "seed" was asked for and not used, else "".
        exits: numbers of the partitions that none waits for; when they are complete, the graph is.
    """

    partitions: tuple[Partition, ...]
    of: Sequence[int]
    policy: str
    reason: str
    exits: tuple[int, ...]


def partition(
    successors: Neighbours,
    predecessors: Neighbours,
    *,
    host: Sequence[bool],
    devices: Sequence[Hashable] | None = None,
    not_in_order: Collection[int] = (),
    policy: str = "seed",
) -> Partitions:
    """The partitions of a graph.

    `successors` and `predecessors` of each node say the same from both sides, each neighbour once. `host` says of each node whether it
    is a host task, `devices` where it runs otherwise (equal for all if left out); a partition with a node of `not_in_order` is not
    called in-order.

    Raises ValueError for an unknown policy, SYCLError (invalid) if the graph has a cycle.
    """
    if policy not in POLICIES:
        raise ValueError(f"there is no policy {policy!r}, only {' and '.join(POLICIES)}")
    order = execution_order(range(len(successors)), successors, predecessors)
    numbers: dict[Hashable, int] = {}
    # Where a node runs, as a number: one for each device, and one for each host task, which shares its partition with nothing.
    places = [
        -1 - node
        if is_host
        else numbers.setdefault(devices[node] if devices else None, len(numbers))
        for node, is_host in enumerate(host)
    ]
    of, reason, cut = [0] * len(order), "", len(set(places)) > 1
    if cut and policy == "seed":
        of, reason = _seed(successors, predecessors, host, order, len(numbers))
    if cut and (policy == "rank" or reason):
        policy, of = "rank", _numbered(_ranks(successors, predecessors, places, order))
    members = execution_orders(_members(of), of, successors, predecessors) if cut else [order]
    before: list[tuple[int, ...]] = []
    after: list[list[int]] = [[] for _ in members]
    for number, nodes in enumerate(members):
        if len(nodes) == 1:
            earlier = {of[node] for node in predecessors[nodes[0]]}
        else:
            earlier = {of[node] for later in nodes for node in predecessors[later]}
            earlier.discard(number)
        before.append(tuple(sorted(earlier)))
        for other in earlier:
            after[other].append(number)
    apart = frozenset(not_in_order)
    partitions = []
    for nodes, earlier, later in zip(members, before, after, strict=True):
        is_host = bool(nodes) and host[nodes[0]]
        device = devices[nodes[0]] if devices and nodes and not is_host else None
        in_order = _is_path(nodes, successors) and apart.isdisjoint(nodes)
        partitions.append(Partition(tuple(nodes), is_host, device, earlier, tuple(later), in_order))
    exits = tuple(number for number, later in enumerate(after) if not later)
    return Partitions(tuple(partitions), of, policy, reason, exits)


def _members(of: Sequence[int]) -> list[list[int]]:
    """The nodes of each partition, in the order in which they were added."""
    members: list[list[int]] = [[] for _ in range(max(of) + 1)]
    for node, number in enumerate(of):
        members[number].append(node)
    return members


def _is_path(nodes: Sequence[int], successors: Neighbours) -> bool:
    """Whether each of them has the next one as its only successor, and the last one at most one, wherever that is."""
    for node, after in pairwise(nodes):
        if len(successors[node]) != 1 or successors[node][0] != after:
            return False
    return not nodes or len(successors[nodes[-1]]) <= 1


def _numbered(labels: Sequence[int]) -> list[int]:
    """Partition numbers: those of the labels that occur, in order, from 0 on."""
    number_of = {label: number for number, label in enumerate(sorted(set(labels)))}
    return [number_of[label] for label in labels]


def _ranks(
    successors: Neighbours, predecessors: Neighbours, places: Sequence[int], order: Sequence[int]
) -> list[int]:
    """A label for each node that is right for every graph.

    The rank of a node is how often a path to it changes its place, at most. Nodes of a rank and a place that edges connect stay
    together; so do groups of them that wait for the same and are waited for by the same, since nothing is lost by that.
    """
    rank = [0] * len(order)
    for node in order:
        here, highest = places[node], 0
        for before in predecessors[node]:
            at_least = rank[before] + (places[before] != here)
            if at_least > highest:
                highest = at_least
        rank[node] = highest
    group = [-1] * len(order)  # the first of the nodes that it is connected with
    for first, place in enumerate(places):
        if group[first] >= 0:
            continue
        group[first] = first
        if place < 0:  # a host task, which shares its place with nothing
            continue
        connected, own = [first], rank[first]
        for node in connected:  # grows
            for neighbours in (successors[node], predecessors[node]):
                for near in neighbours:
                    if group[near] < 0 and places[near] == place and rank[near] == own:
                        group[near] = first
                        connected.append(near)
    # Groups around a group: those before it are of a lower rank, those after it of a higher one, so that one set tells them apart.
    around: dict[int, set[int]] = {
        first: set() for node, first in enumerate(group) if node == first and places[node] >= 0
    }
    for node, own in enumerate(group):
        if places[node] >= 0:
            around[own].update(
                map(group.__getitem__, successors[node]), map(group.__getitem__, predecessors[node])
            )
    joined, alike = list(range(len(order))), {}
    for first, groups in around.items():
        groups.discard(first)
        joined[first] = alike.setdefault((rank[first], places[first], frozenset(groups)), first)
    return [rank[node] * len(order) + joined[group[node]] for node in range(len(order))]


def _seed(
    successors: Neighbours,
    predecessors: Neighbours,
    host: Sequence[bool],
    order: Sequence[int],
    devices: int,
) -> tuple[list[int], str]:
    """Each node's partition by "seed", or else why that policy does not do."""
    if devices > 1:
        return [], f"its nodes are of {devices} devices"
    turns = _turns(successors, host, order)
    if turns is None:
        return [], "too many host tasks lead to host tasks that were added before them"
    of = _numbered(_annotations(successors, predecessors, host, order, turns))
    for node, number in enumerate(of):
        for before in predecessors[node]:
            if of[before] > number:
                return [], f"node {node} would run before node {before}, which it comes after"
    return of, ""


@dataclass
class _Turns:
    """The turns that host tasks take in "seed", from 0 on.

    `first` and `last` are each one's; `merged` says of a turn whose group above it was merged into another which turn's that was.
    """

    first: dict[int, int] = field(default_factory=dict)
    last: dict[int, int] = field(default_factory=dict)
    merged: dict[int, int] = field(default_factory=dict)


def _turns(successors: Neighbours, host: Sequence[bool], order: Sequence[int]) -> _Turns | None:
    """Host tasks take turns in the order in which they were added; one that leads to others that had theirs gives them another.

    The group above it is then merged into the group above the one that is next. Only edges from `make_edge` bring that about. Where
    there are so many that it would take long, the answer is None.
    """
    # Of a host task itself; of a kernel the first added host task that it leads to through kernels alone.
    entry = list(range(len(order)))
    for node in reversed(order):
        if not host[node]:
            first = len(order)
            for after in successors[node]:
                if entry[after] < first:
                    first = entry[after]
            entry[node] = first
    patience = _PATIENCE + 2 * (len(order) + sum(map(len, successors)))
    turns, turn = _Turns(), 0
    for task in (node for node in range(len(order)) if host[node]):
        turns.first[task] = turns.last[task] = turn
        if any(entry[after] < task for after in successors[task]):
            again, edges = _again(task, successors, host, entry)
            patience -= edges
            if patience < 0:
                return None
            turns.merged[turn] = turns.last[_next(task, successors, host, entry)]
            turns.last.update({other: turn + behind for behind, other in enumerate(again, 1)})
            turn += len(again)
        turn += 1
    return turns


def _again(
    task: int, successors: Neighbours, host: Sequence[bool], entry: Sequence[int]
) -> tuple[list[int], int]:
    """The host tasks below `task` that had a turn, each behind those that lead to it, and how many edges were looked at.

    The seed puts each that it meets at the front of a queue, and again when it meets it again; the last of its turns is what counts,
    and those are in reversed postorder.
    """
    seen, found, edges = {task}, [], 0
    path = [(task, iter(successors[task]))]
    while path:
        node, rest = path[-1]
        after = next((after for after in rest if entry[after] < task and after not in seen), None)
        if after is not None:
            seen.add(after)
            path.append((after, iter(successors[after])))
        else:
            path.pop()
            edges += 1 + len(successors[node])
            if host[node] and node != task:
                found.append(node)
    return found[::-1], edges


def _next(task: int, successors: Neighbours, host: Sequence[bool], entry: Sequence[int]) -> int:
    """The host task at the front of the queue after the turn of `task`: the last that a walk down from there meets."""
    node = task
    while node == task or not host[node]:
        node = next(after for after in reversed(successors[node]) if entry[after] < task)
    return node


def _annotations(
    successors: Neighbours,
    predecessors: Neighbours,
    host: Sequence[bool],
    order: Sequence[int],
    turns: _Turns,
) -> list[int]:
    """The number that "seed" leaves in each node, found without writing it over and over.

    In turn t the kernels above the host task, as far up as they have no number yet, get 3t, it gets 3t + 1, and all kernels below
    it get 3t + 2, whatever they had; both ways end at other host tasks. So a kernel that is below some keeps the number from the last of
    their turns; one that is below none, the number from the first turn that came up to it, unless that group was merged; and
    one that no turn came to has -1. A turn does not come up through a kernel that an earlier one had come down to.
    """
    begins = [
        turns.first.get(node, _NEVER) for node in range(len(order))
    ]  # the first turn that comes down to a node
    ends = [turns.last.get(node, -1) for node in range(len(order))]  # the last one
    for node in order:
        if not host[node]:
            begin, end = _NEVER, -1
            for before in predecessors[node]:
                if begins[before] < begin:
                    begin = begins[before]
                if ends[before] > end:
                    end = ends[before]
            begins[node], ends[node] = begin, end
    labels = [-1] * len(order)
    rises = begins.copy()  # the first turn that comes up to a node and goes on
    for node in reversed(order):
        if host[node]:
            labels[node] = 3 * ends[node] + 1
            continue
        turn = _NEVER
        for after in successors[node]:
            if rises[after] < turn:
                turn = rises[after]
        rises[node] = turn if turn < begins[node] else _NEVER
        if ends[node] >= 0:
            labels[node] = 3 * ends[node] + 2
        elif turn < _NEVER:
            labels[node] = 3 * turns.merged.get(turn, turn)
    return labels
