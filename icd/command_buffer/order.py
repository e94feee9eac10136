"""From an order to steps: which command is enqueued when, on which queue, after which events.

A queue is a number here: 0 is the caller's queue, the others are *helper queues* of our own. On an
in-order queue the steps need no events. Elsewhere there are two ways. *Level by level*, a barrier
lies between two task levels. *By events*, a command waits for the events of its direct
predecessors; `spread_over_queues` puts branches on several in-order queues, so that few events are
needed.

What a replay comes after are events: the steps that *begin* wait for them. A replay on an
out-of-order queue is one command beside the caller's own: it comes after earlier barriers of the
queue, and holds nothing else up. Where commands are on helper queues, a marker on queue 0 begins,
for which they wait. If barriers of the graph order the queue's other commands, too, the graph is
*fenced*: it begins and ends with a barrier.

No barrier waits for many events: what PoCL does for one grows with the square of its incomplete
events. They are *joined*, some at a time, by barriers on an in-order queue. The last of these is
the end of all.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Final

#: A step's `command` if it is a barrier of the schedule and not of the order.
BARRIER: Final = -1

#: A barrier at the end waits for so many events. With 16, the end of 1,000 launches cost least on
#: PoCL, busy and idle.
_JOINED: Final = 16

#: What an event between two queues takes, by assumption, as a part of what a command takes.
_EVENT: Final = 0.25


class Order:
    """The direct predecessors of each command: only earlier ones, so the order of recording is
    valid.

    `order_only` says of each command whether it only orders others (a barrier, a marker).
    """

    def __init__(self, dependencies: Sequence[Sequence[int]], order_only: Sequence[bool]) -> None:
        self.dependencies = dependencies
        self.order_only = order_only

    def __len__(self) -> int:
        return len(self.dependencies)

    def part(self, first: int, end: int) -> Order:
        """Return the order of the commands from `first` up to `end` among themselves, numbered from
        0."""
        before = [
            [number - first for number in self.dependencies[node] if number >= first]
            for node in range(first, end)
        ]
        return Order(before, self.order_only[first:end])

    @property
    def first(self) -> int | None:
        """The first command that does something, None if there is none."""
        return next((node for node, only in enumerate(self.order_only) if not only), None)

    @cached_property
    def levels(self) -> list[int]:
        """The task level of each node: the number of commands before it on the longest path.

        Order-only nodes do not count.
        """
        levels: list[int] = []
        after: list[int] = []
        for predecessors, order_only in zip(self.dependencies, self.order_only, strict=True):
            level = max((after[before] for before in predecessors), default=0)
            levels.append(level)
            after.append(level if order_only else level + 1)
        return levels

    @cached_property
    def is_path(self) -> bool:
        """Whether every command comes after the one before it, so that none can run at the same
        time."""
        commands = [
            level
            for level, order_only in zip(self.levels, self.order_only, strict=True)
            if not order_only
        ]
        return len(set(commands)) == len(commands)

    @cached_property
    def width(self) -> int:
        """The number of commands in the widest task level: so many can run at the same time."""
        counts = Counter(
            level
            for level, order_only in zip(self.levels, self.order_only, strict=True)
            if not order_only
        )
        return max(counts.values(), default=0)


@dataclass
class ScheduleStep:
    """Enqueue node `command` (or a barrier) on `queue`, after the steps in `waits`.

    `signals` says that a later step waits for this one, `begins` that it also waits for what the
    replay comes after.
    """

    command: int
    queue: int = 0
    waits: list[int] = field(default_factory=list)
    signals: bool = False
    begins: bool = False


@dataclass(frozen=True)
class Schedule:
    """Steps in the order of enqueuing.

    `final_waits` are the steps that a last step on queue 0 waits for. If there are none, the last
    step of `steps` is the end.
    """

    kind: str
    steps: list[ScheduleStep]
    final_waits: list[int] = field(default_factory=list)

    @property
    def events(self) -> int:
        """The number of events that one pass makes."""
        return sum(step.signals for step in self.steps)

    @property
    def own_queues(self) -> int:
        """The number of helper queues."""
        return max((step.queue for step in self.steps), default=0)


def schedule_in_order(order: Order) -> Schedule:
    """Return all commands on one in-order queue, in the order of recording."""
    steps = [ScheduleStep(node) for node in range(len(order)) if not order.order_only[node]]
    for first in steps[:1]:
        first.begins = True
    return Schedule("in-order", steps)


def schedule_by_level(order: Order, fenced: bool) -> Schedule:
    """Return all commands on one out-of-order queue, with a barrier between two task levels.

    The barriers are on a queue of our own, which holds nothing else up, or the graph is `fenced`.
    """
    levels: dict[int, list[int]] = {}
    for node, level in enumerate(order.levels):
        if not order.order_only[node]:
            levels.setdefault(level, []).append(node)
    queue = 0 if fenced else 1
    steps = [ScheduleStep(BARRIER, begins=True, signals=not fenced)]
    for level in sorted(levels):
        waits = [0] if level == 0 and not fenced else []
        steps += [ScheduleStep(node, queue, list(waits)) for node in levels[level]]
        steps.append(ScheduleStep(BARRIER, queue))
    steps[-1].signals = not fenced
    return Schedule("levels", steps, [] if fenced else [len(steps) - 1])


def reduce_edges(order: Order) -> list[list[int]]:
    """Return each node's predecessors, without those that another predecessor comes directly
    after."""
    result = []
    for predecessors in order.dependencies:
        if len(predecessors) > 1:
            implied = {earlier for before in predecessors for earlier in order.dependencies[before]}
            result.append([before for before in predecessors if before not in implied])
        else:
            result.append(list(predecessors))
    return result


def schedule_by_events(
    order: Order,
    queues: Sequence[int],
    in_order_queues: frozenset[int],
    kind: str = "events",
    fenced: bool = False,
    seen: frozenset[int] = frozenset(),
) -> Schedule:
    """Return the schedule with node n on queue `queues[n]`, and events between queues.

    Order-only nodes become steps that wait and signal.

    Args:
        in_order_queues: the numbers of in-order queues.
        kind: what `explain` calls it.
        fenced: whether an out-of-order queue 0 begins and ends with a barrier.
        seen: the nodes that wait for outside events, or whose events somebody wants.
    """
    has_head = fenced or 0 in in_order_queues or any(queues)
    steps = [ScheduleStep(BARRIER, begins=True)] if has_head else []
    step_of: list[int | None] = []
    last_on: dict[int, int] = {0: 0} if has_head else {}
    followed: set[int] = set()
    for node, predecessors in enumerate(reduce_edges(order)):
        queue, here = queues[node], len(steps)
        before = [(step_of[p], queues[p]) for p in predecessors]
        comes_after = [(step, on) for step, on in before if step is not None]
        if not has_head and not comes_after and order.order_only[node] and node not in seen:
            step_of.append(None)  # it comes after nothing, and so do those after it
            continue
        waits = [step for step, on in comes_after if on != queue or queue not in in_order_queues]
        is_root = not comes_after and queue not in in_order_queues
        if has_head and (queue not in last_on or (queue and is_root)):
            waits.append(0)
        followed.update(step for step, _ in comes_after)
        for wait in waits:
            steps[wait].signals = True
        begins = is_root and not queue and not fenced
        steps.append(ScheduleStep(node, queue, waits, begins=begins))
        step_of.append(here)
        last_on[queue] = here
    ends = [step for queue, step in last_on.items() if queue in in_order_queues and queue != 0]
    ends += [
        step
        for node, step in enumerate(step_of)
        if step is not None and queues[node] not in in_order_queues and step not in followed
    ]
    if not has_head and len(ends) == 1 and ends[0] == len(steps) - 1 and not steps[-1].queue:
        return Schedule(kind, steps)  # its event is the replay's
    for step in ends:
        steps[step].signals = True
    return Schedule(kind, steps, _join_ends(steps, ends, max(in_order_queues, default=None)))


def _join_ends(steps: list[ScheduleStep], ends: list[int], queue: int | None) -> list[int]:
    """Return what the last step waits for instead of many `ends`.

    It is the last of the barriers on an in-order queue that are appended to `steps`.
    """
    if queue is None or len(ends) <= _JOINED:
        return ends
    steps += [
        ScheduleStep(BARRIER, queue, ends[first : first + _JOINED])
        for first in range(0, len(ends), _JOINED)
    ]
    steps[-1].signals = True
    return [len(steps) - 1]


def spread_over_queues(order: Order, queues: Iterable[int]) -> list[int]:
    """Return one of `queues` for each node: where it can begin first, then where it needs fewest
    events.

    All commands take as long, by assumption. A command begins later by what an event takes if it
    is on another queue than one before it.
    """
    result: list[int] = []
    ends: list[float] = []
    free = dict.fromkeys(sorted(queues), 0.0)
    for predecessors, order_only in zip(order.dependencies, order.order_only, strict=True):
        begins: dict[int, tuple[float, int]] = {}
        for queue, end in free.items():
            after = [ends[p] + _EVENT * (result[p] != queue) for p in predecessors]
            begins[queue] = max([end, *after]), sum(result[p] != queue for p in predecessors)
        queue = min(begins, key=begins.__getitem__)
        result.append(queue)
        free[queue] = begins[queue][0] + (not order_only)
        ends.append(free[queue])
    return result
