"""Which nodes of a command graph make one command-buffer: its *partitions*, what each waits for,
and when it is enqueued.

A command-buffer has no host task, and one device. The graph is cut there. Partitions can be
enqueued in the order of their numbers. But each waits only for its own predecessors, so that
branches run at the same time. Nodes are numbers, in the order in which they were added. Edges may
lead from any node to any other, without a cycle.

A *policy* gives every node a label. The nodes of one label are a partition, and the order of labels
is the order of partitions.

- "seed" is the procedure of SYCL-Graph's design document (spec B3). It makes few partitions. For
  some graphs its labels would run a node before one that it comes after, so they are checked.
- "rank" cuts a graph wherever a path changes from kernels to a host task, or from one device to
  another. It separates what only some later partition waits for. It is right for every graph, and
  is used where "seed" is not.

Both take time in proportion to nodes and edges, without recursion.
"""

from __future__ import annotations

import sys
from collections.abc import Collection, Hashable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Final, NamedTuple

from ..loader.base.frozen_value import Value
from .execution_order import Neighbours, find_execution_order, find_execution_orders

POLICIES: Final = ("seed", "rank")

#: So many nodes and edges `_assign_turns` may look at, besides twice those of the graph. Edges that
#: lead back to earlier host tasks take so long.
_PATIENCE: Final = 10_000
_NEVER: Final = sys.maxsize


class Partition(NamedTuple):
    """Nodes that are enqueued as one.

    Attributes:
        nodes: in the order of execution (spec B2).
        host: whether it is one host task, which the runtime calls itself.
        device: what its nodes have in common, None for a host task.
        predecessors: the numbers of the partitions that must be complete before it, ascending. All
            are smaller than its own.
        successors: the numbers of the partitions that wait for it, ascending.
        in_order: whether it is a single path without a branch, inside or to another partition (spec
            B6).
    """

    nodes: tuple[int, ...]
    host: bool
    device: Hashable
    predecessors: tuple[int, ...]
    successors: tuple[int, ...]
    in_order: bool


class Partitions(Value):
    """All partitions of a graph.

    Attributes:
        partitions: in the order in which they are enqueued. An empty graph has one, which is empty.
        of: the number of each node's partition.
        policy: the one that was used.
        reason: why "seed" was asked for and not used, else "".
        exits: the numbers of the partitions without successors. When they are complete, the graph
            is.
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
    """Divide a graph into partitions.

    Args:
        successors, predecessors: the neighbours of each node, each once.
        host: whether each node is a host task.
        devices: where each other node runs; by default all on one device.
        not_in_order: nodes whose partition is not called in-order.
        policy: "seed" or "rank".

    Raises:
        ValueError: for an unknown policy.
        SYCLError: invalid, if the graph has a cycle.
    """
    if policy not in POLICIES:
        raise ValueError(f"there is no policy {policy!r}, only {' and '.join(POLICIES)}")
    order = find_execution_order(range(len(successors)), successors, predecessors)
    if devices is None and True not in host:
        return _keep_whole(order, successors, not_in_order, policy)
    numbers: dict[Hashable, int] = {}
    # Where a node runs, as a number: one for each device, and one for each host task, which shares
    # its partition with nothing.
    places = [
        -1 - node
        if is_host
        else numbers.setdefault(devices[node] if devices else None, len(numbers))
        for node, is_host in enumerate(host)
    ]
    of, reason, cut = [0] * len(order), "", len(set(places)) > 1
    if cut and policy == "seed":
        of, reason = _follow_seed(successors, predecessors, host, order, len(numbers))
    if cut and (policy == "rank" or reason):
        policy, of = "rank", _renumber(_compute_ranks(successors, predecessors, places, order))
    members = [order]
    if cut:
        members = find_execution_orders(_group_by_partition(of), of, successors, predecessors)
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


def _keep_whole(
    order: Sequence[int], successors: Neighbours, not_in_order: Collection[int], policy: str
) -> Partitions:
    """Return a graph as one partition."""
    in_order = _is_path(order, successors) and frozenset(not_in_order).isdisjoint(order)
    only = Partition(tuple(order), False, None, (), (), in_order)
    return Partitions((only,), [0] * len(order), policy, "", (0,))


def _group_by_partition(partition_of: Sequence[int]) -> list[list[int]]:
    """Return the nodes of each partition, in the order in which they were added."""
    members: list[list[int]] = [[] for _ in range(max(partition_of) + 1)]
    for node, number in enumerate(partition_of):
        members[number].append(node)
    return members


def _is_path(nodes: Sequence[int], successors: Neighbours) -> bool:
    """Whether each node has only the next one as its successor, and the last one at most one,
    wherever that is."""
    for node, after in pairwise(nodes):
        if len(successors[node]) != 1 or successors[node][0] != after:
            return False
    return not nodes or len(successors[nodes[-1]]) <= 1


def _renumber(labels: Sequence[int]) -> list[int]:
    """Return partition numbers, from 0 on, in the order of the labels that occur."""
    number_of = {label: number for number, label in enumerate(sorted(set(labels)))}
    return [number_of[label] for label in labels]


def _compute_ranks(
    successors: Neighbours, predecessors: Neighbours, places: Sequence[int], order: Sequence[int]
) -> list[int]:
    """Return a label for each node that is right for every graph.

    The rank of a node is the largest number of changes of place on a path to it. Nodes with the
    same rank and place that edges connect stay together. Groups of them that have the same
    neighbours are joined too, because nothing is lost by that.
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
    # Groups around a group: those before it are of a lower rank, those after it of a higher one, so
    # that one set tells them apart.
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


def _follow_seed(
    successors: Neighbours,
    predecessors: Neighbours,
    host: Sequence[bool],
    order: Sequence[int],
    devices: int,
) -> tuple[list[int], str]:
    """Return each node's partition by "seed", or else the reason why that policy cannot be used."""
    if devices > 1:
        return [], f"its nodes run in {devices} places: on devices, or outside of command-buffers"
    turns = _assign_turns(successors, host, order)
    if turns is None:
        return [], "too many host tasks lead to host tasks that were added before them"
    of = _renumber(_mark_seeds(successors, predecessors, host, order, turns))
    for node, number in enumerate(of):
        for before in predecessors[node]:
            if of[before] > number:
                return [], f"node {node} would run before node {before}, which it comes after"
    return of, ""


@dataclass
class _Turns:
    """The turns of host tasks in "seed", from 0 on. A host task may have several.

    Attributes:
        first, last: the first and the last turn of each host task.
        merged: for a turn whose group of earlier kernels was merged into another group, the turn of
            that group.
    """

    first: dict[int, int] = field(default_factory=dict)
    last: dict[int, int] = field(default_factory=dict)
    merged: dict[int, int] = field(default_factory=dict)


def _assign_turns(
    successors: Neighbours, host: Sequence[bool], order: Sequence[int]
) -> _Turns | None:
    """Give host tasks turns in the order in which they were added. A task that leads to tasks with
    earlier turns gives these another turn.

    The group above it is then merged into the group above the next one. Only edges of `make_edge`
    cause this.

    Returns:
        The turns, or None where it would take too long.
    """
    # Of a host task itself; of a kernel the first added host task that it leads to through kernels
    # alone.
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
            again, edges = _find_hosts_below(task, successors, host, entry)
            patience -= edges
            if patience < 0:
                return None
            turns.merged[turn] = turns.last[_find_last_host(task, successors, host, entry)]
            turns.last.update({other: turn + behind for behind, other in enumerate(again, 1)})
            turn += len(again)
        turn += 1
    return turns


def _find_hosts_below(
    task: int, successors: Neighbours, host: Sequence[bool], entry: Sequence[int]
) -> tuple[list[int], int]:
    """Return the host tasks below `task` that had a turn, each behind those that lead to it, and
    how many edges were looked at.

    The seed puts each task that it meets at the front of a queue, each time that it meets it. Only
    the last turn counts. These are in reversed postorder.
    """
    seen, found, edges = {task}, [], 0
    path = [(task, iter(successors[task]))]
    while path:
        node, others = path[-1]
        after = next((after for after in others if entry[after] < task and after not in seen), None)
        if after is not None:
            seen.add(after)
            path.append((after, iter(successors[after])))
        else:
            path.pop()
            edges += 1 + len(successors[node])
            if host[node] and node != task:
                found.append(node)
    return found[::-1], edges


def _find_last_host(
    task: int, successors: Neighbours, host: Sequence[bool], entry: Sequence[int]
) -> int:
    """Return the host task at the front of the queue after the turn of `task`: the last one that a
    walk down from there meets."""
    node = task
    while node == task or not host[node]:
        node = next(after for after in reversed(successors[node]) if entry[after] < task)
    return node


def _mark_seeds(
    successors: Neighbours,
    predecessors: Neighbours,
    host: Sequence[bool],
    order: Sequence[int],
    turns: _Turns,
) -> list[int]:
    """Return the number that "seed" leaves in each node. It is computed once, not overwritten many
    times.

    In turn t, kernels above the host task without a number get 3t. The host task gets 3t + 1. All
    kernels below it get 3t + 2, whatever they had. Both walks end at other host tasks. So a kernel
    below some tasks has the number of their last turn. A kernel below none has the number of the
    first turn that came up to it, unless that group was merged. A kernel that no turn reached has
    -1. A turn does not come up through a kernel that an earlier turn came down to.
    """
    # the first turn that comes down to a node, and the last one
    begins = [turns.first.get(node, _NEVER) for node in range(len(order))]
    ends = [turns.last.get(node, -1) for node in range(len(order))]
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
