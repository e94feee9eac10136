"""From an order to steps: which command is enqueued when, on which lane, and which events it needs.

A lane is a queue. On an in-order lane the steps need no events. Elsewhere there are two ways.
*Level by level*, a barrier lies between two task levels. *By events*, a command waits for the
events of its direct predecessors; `spread` puts branches on several in-order *lanes*, so that few
events are needed. Lane 0 is the caller's queue. An out-of-order one begins and ends with a barrier,
so that a replay is one command among the caller's own.

No barrier waits for many events: what PoCL does for one grows with the square of its incomplete
events. They are *joined*, some at a time, by barriers on an in-order lane. The last of these is the
end of all.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Final

#: A step's `command` if it is a barrier of the schedule and not of the order.
BARRIER: Final = -1

#: A barrier at the end waits for so many events. With 16, the end of 1,000 launches cost least on
#: PoCL, busy and idle.
_JOINED: Final = 16


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
    """Enqueue node `command` (or a barrier) on `lane`, after the steps in `waits`.

    `signals` says that a later step waits for this one.
    """

    command: int
    lane: int = 0
    waits: list[int] = field(default_factory=list)
    signals: bool = False


@dataclass(frozen=True)
class Schedule:
    """Steps in the order of enqueuing.

    `final_waits` are the steps that a last barrier on lane 0 waits for, if there are any.
    """

    kind: str
    steps: list[ScheduleStep]
    final_waits: list[int] = field(default_factory=list)

    @property
    def events(self) -> int:
        """The number of events that one pass makes."""
        return sum(step.signals for step in self.steps)

    @property
    def own_lanes(self) -> int:
        """The number of lanes besides lane 0."""
        return max((step.lane for step in self.steps), default=0)


def in_order(order: Order) -> Schedule:
    """Return all commands on one in-order lane, in the order of recording."""
    return Schedule(
        "in-order", [ScheduleStep(node) for node in range(len(order)) if not order.order_only[node]]
    )


def by_level(order: Order) -> Schedule:
    """Return all commands on one out-of-order lane, with a barrier between two task levels."""
    levels: dict[int, list[int]] = {}
    for node, level in enumerate(order.levels):
        if not order.order_only[node]:
            levels.setdefault(level, []).append(node)
    steps = [ScheduleStep(BARRIER)]
    for level in sorted(levels):
        steps += [ScheduleStep(node) for node in levels[level]]
        steps.append(ScheduleStep(BARRIER))
    return Schedule("levels", steps)


def reduced(order: Order) -> list[list[int]]:
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


def by_events(
    order: Order, lanes: Sequence[int], in_order_lanes: frozenset[int], kind: str = "events"
) -> Schedule:
    """Return the schedule with node n on lane `lanes[n]`, and events between lanes.

    Order-only nodes become steps that wait and signal.
    """
    steps = [ScheduleStep(BARRIER)]
    step_of: list[int] = []
    last_on: dict[int, int] = {0: 0}
    followed: set[int] = set()
    for node, predecessors in enumerate(reduced(order)):
        lane = lanes[node]
        here = len(steps)
        waits = [step_of[p] for p in predecessors if lanes[p] != lane or lane not in in_order_lanes]
        if lane not in last_on:
            waits.append(0)
        followed.update(step_of[p] for p in predecessors)
        for wait in waits:
            steps[wait].signals = True
        steps.append(ScheduleStep(node, lane, waits))
        step_of.append(here)
        last_on[lane] = here
    ends = [step for lane, step in last_on.items() if lane in in_order_lanes and lane != 0]
    ends += [
        step
        for node, step in enumerate(step_of)
        if lanes[node] not in in_order_lanes and step not in followed
    ]
    for step in ends:
        steps[step].signals = True
    return Schedule(kind, steps, _joined(steps, ends, max(in_order_lanes, default=None)))


def _joined(steps: list[ScheduleStep], ends: list[int], lane: int | None) -> list[int]:
    """Return what the last barrier waits for instead of many `ends`.

    It is the last of the barriers on an in-order lane that are appended to `steps`.
    """
    if lane is None or len(ends) <= _JOINED:
        return ends
    steps += [
        ScheduleStep(BARRIER, lane, ends[first : first + _JOINED])
        for first in range(0, len(ends), _JOINED)
    ]
    steps[-1].signals = True
    return [len(steps) - 1]


def spread(order: Order, lanes: int) -> list[int]:
    """Return a lane for each node, from 1 to `lanes`.

    It is the lane where one of its predecessors is the last, so that it needs no event. Otherwise
    it is an empty lane, or the one that follows from its place in the order of recording.
    """
    result: list[int] = []
    last: dict[int, int] = {}
    for node, predecessors in enumerate(order.dependencies):
        followed = [result[before] for before in predecessors if last[result[before]] == before]
        share = 1 + node * lanes // len(order)
        lane = followed[0] if followed else len(last) + 1 if len(last) < lanes else share
        result.append(lane)
        last[lane] = node
    return result
