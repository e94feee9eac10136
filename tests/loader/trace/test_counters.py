"""Counters of a trace: commands in flight, and bytes moved, over time."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from fairlead.loader.trace.counters import find_counters, make_counter_events


def command(queued: float, ended: float, tid: int = 9, pid: int = 7, **args: Any) -> dict[str, Any]:
    times = {"queued": queued, "ended": ended}
    return {"ph": "X", "cat": "device", "pid": pid, "tid": tid, "args": times | args}


def test_the_values_of_a_known_trace() -> None:
    events = [
        command(1, 5, bytes=100),
        command(2, 5),
        command(3, 9, bytes=20),
        command(9, 9),  # ends as it is queued
        command(4, 6, tid=10),
        {"ph": "X", "cat": "cl", "name": "clFinish", "pid": 7, "tid": 1, "args": {}},
    ]
    assert [(one.tid, one.name, one.points) for one in find_counters(events)] == [
        (9, "commands in flight", [(1, 1), (2, 2), (3, 3), (5, 1), (9, 0)]),
        (9, "bytes moved", [(5, 100), (9, 120)]),
        (10, "commands in flight", [(4, 1), (6, 0)]),
    ]


def test_counters_of_two_queues_have_two_names() -> None:
    """Viewers know counters by their process and name."""
    rows = [
        {"ph": "M", "name": "thread_name", "pid": 7, "tid": tid, "args": {"queue": queue}}
        for tid, queue in ((9, "device: queue 1"), (10, "device: queue 2"))
    ]
    found = list(make_counter_events([*rows, command(1, 2, bytes=8), command(1, 3, tid=10)]))
    assert [(one["name"], one["ts"], one["args"]) for one in found] == [
        ("queue 1: commands in flight", 1, {"commands": 1}),
        ("queue 1: commands in flight", 2, {"commands": 0}),
        ("queue 1: bytes moved", 2, {"bytes": 8}),
        ("queue 2: commands in flight", 1, {"commands": 1}),
        ("queue 2: commands in flight", 3, {"commands": 0}),
    ]


spans = st.tuples(st.integers(0, 30), st.integers(0, 30), st.integers(0, 99)).map(
    lambda one: (min(one[:2]), max(one[:2]), one[2])
)


@given(st.lists(spans, min_size=1))
def test_a_curve_is_what_counting_gives(commands: list[tuple[int, int, int]]) -> None:
    events = [command(begin, end, bytes=size) for begin, end, size in commands]
    curves = {one.name: one.points for one in find_counters(events)}
    flights = curves["commands in flight"]
    counts = [sum(begin <= time < end for begin, end, _ in commands) for time in range(31)]
    assert max((value for _, value in flights), default=0) == max(counts)
    assert all(value >= 0 for _, value in flights)
    assert not flights or flights[-1][1] == 0
    for time, count in enumerate(counts):
        assert next((value for at, value in reversed(flights) if at <= time), 0) == count
    moved = curves.get("bytes moved", [])
    assert (moved[-1][1] if moved else 0) == sum(size for *_, size in commands)
    assert [value for _, value in moved] == sorted(value for _, value in moved)
