"""What is counted on each queue over time: commands in flight, and bytes that transfers moved.

The curves are made of a trace's events. So processes that wrote events of one queue share a curve.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

Event = Mapping[str, Any]


class Counter(NamedTuple):
    """A step curve.

    Attributes:
        pid, tid: the row of the queue.
        unit: what it counts.
        points: since when (µs) it has which value. Before the first one it is 0.
    """

    pid: int
    tid: int
    name: str
    unit: str
    points: list[tuple[float, int]]


def find_counters(events: Iterable[Event]) -> Iterator[Counter]:
    """Yield the curves of each queue.

    A command is in flight from when it was queued until it ended. Its bytes are moved when it
    ended. A queue without bytes has no curve of them.

    Args:
        events: a trace, of the Chrome trace format.
    """
    flights: dict[tuple[int, int], dict[float, int]] = defaultdict(lambda: defaultdict(int))
    moved: dict[tuple[int, int], dict[float, int]] = defaultdict(lambda: defaultdict(int))
    for one in events:
        if one["ph"] == "X" and one.get("cat") == "device":
            key, args = (one["pid"], one["tid"]), one["args"]
            flights[key][args["queued"]] += 1
            flights[key][args["ended"]] -= 1
            moved[key][args["ended"]] += args.get("bytes", 0)
    for key, changes in flights.items():
        yield Counter(*key, "commands in flight", "commands", _add_up(changes))
        if points := _add_up(moved[key]):
            yield Counter(*key, "bytes moved", "bytes", points)


def _add_up(changes: Mapping[float, int]) -> list[tuple[float, int]]:
    value, points = 0, []
    for time, change in sorted(changes.items()):
        if change:
            value += change
            points.append((time, value))
    return points


def make_counter_events(events: Iterable[Event]) -> Iterator[dict[str, Any]]:
    """Yield the curves as events of the Chrome trace format.

    Viewers have a counter for each name in a process, so the name has the queue's.
    """
    events = list(events)
    queues = {
        (one["pid"], one["tid"]): one["args"]["queue"].removeprefix("device: ")
        for one in events
        if one["ph"] == "M" and "queue" in one.get("args", {})
    }
    for pid, tid, name, unit, points in find_counters(events):
        where = {"name": f"{queues.get((pid, tid), tid)}: {name}", "pid": pid, "tid": tid}
        yield from (
            {"ph": "C", "ts": time, "args": {unit: value}, **where} for time, value in points
        )
