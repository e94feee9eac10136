"""How busy each device was in a trace, the longest gaps, and what the host did in them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from html import escape
from itertools import pairwise
from typing import Any, Final, NamedTuple

from ..loader.base.drawing import format_table

_MOST: Final = 10  # gaps
_NAMED: Final = 3  # calls in a gap
_LEAST: Final = 0.005  # share of a gap that is told

Event = Mapping[str, Any]


class Gap(NamedTuple):
    """A time in which a device did nothing between two commands. Times are in µs."""

    device: str
    begin: float
    end: float
    host: str


class Busy(NamedTuple):
    """What a device did between the start of its first command and the end of its last one."""

    device: str
    commands: int
    took: float
    busy: float


def find_busy(devices: Mapping[str, Sequence[Event]]) -> Iterator[Busy]:
    """Yield how busy each device was, by its commands."""
    for device, spans in devices.items():
        parts = _join(spans)
        busy = sum(end - begin for begin, end in parts)
        yield Busy(device, len(spans), parts[-1][1] - parts[0][0], busy)


def find_gaps(devices: Mapping[str, Sequence[Event]], calls: Sequence[Event]) -> list[Gap]:
    """Return the longest gaps of all devices, the longest first.

    Args:
        calls: what the host called.
    """
    found: list[tuple[str, float, float, set[int]]] = []
    for device, spans in devices.items():
        parts, pids = _join(spans), {one["pid"] for one in spans}
        found += ((device, one[1], after[0], pids) for one, after in pairwise(parts))
    found.sort(key=lambda gap: gap[1] - gap[2])
    return [
        Gap(device, begin, end, _describe_host(begin, end, pids, calls))
        for device, begin, end, pids in found[:_MOST]
    ]


def _join(spans: Iterable[Event]) -> list[tuple[float, float]]:
    """Return the times in which there was any of the spans, in order."""
    parts: list[tuple[float, float]] = []
    for one in sorted(spans, key=lambda one: one["ts"]):
        begin, end = one["ts"], one["ts"] + one["dur"]
        if parts and begin <= parts[-1][1]:
            parts[-1] = parts[-1][0], max(end, parts[-1][1])
        else:
            parts.append((begin, end))
    return parts


def _describe_host(begin: float, end: float, pids: set[int], calls: Iterable[Event]) -> str:
    """Return the share of the calls in a time, and of the programs' own work."""
    inside: dict[str, list[Event]] = {}
    for one in calls:
        first, last = max(one["ts"], begin), min(one["ts"] + one["dur"], end)
        if one["pid"] in pids and first < last:
            inside.setdefault(one["name"], []).append({"ts": first, "dur": last - first})
    times = {name: sum(b - a for a, b in _join(spans)) for name, spans in inside.items()}
    called = sum(b - a for a, b in _join(one for spans in inside.values() for one in spans))
    longest = sorted(times, key=lambda name: -times[name])[:_NAMED]
    parts = [(times[name], f"{name} ({len(inside[name])} ×)") for name in longest]
    parts.append((end - begin - called, "no call: the program's own work"))
    return ", ".join(
        f"{took / (end - begin):.0%} {what}"
        for took, what in sorted(parts)[::-1]
        if took >= _LEAST * (end - begin)
    )


def format_gaps(events: Sequence[Event], start: float) -> str:
    """Return the summary of a trace as HTML, "" if no device is in it.

    Args:
        start: the time of the page's beginning.
    """
    rows = {
        (one["pid"], one["tid"]): one["args"].get("device") or one["args"]["name"]
        for one in events
        if one["ph"] == "M" and one["name"] == "thread_name"
    }
    devices: dict[str, list[Event]] = {}
    calls = [one for one in events if one["ph"] == "X" and one["cat"] != "device"]
    for one in events:
        if one["ph"] == "X" and one["cat"] == "device":
            devices.setdefault(rows.get((one["pid"], one["tid"]), "device"), []).append(one)
    if not devices:
        return ""
    busy = [
        (one.device, one.commands, f"{one.took / 1e3:.3f}", f"{one.busy / (one.took or 1):.1%}")
        for one in find_busy(devices)
    ]
    lines = ["<h2>Devices</h2>"]
    lines.append(format_table(("device", "commands", "from first to last, ms", "busy"), busy))
    lines.append("<h2>Longest gaps</h2>\n<table class='text'>")
    lines.append("<tr><th>at, ms</th><th>gap, µs</th><th>what the host did</th></tr>")
    for gap in find_gaps(devices, calls):
        begin, end = gap.begin - start, gap.end - start
        where = f" (on {gap.device})" if len(devices) > 1 else ""
        lines.append(
            f"<tr><td><a href='#{begin:.3f}-{end:.3f}'>{begin / 1e3:.3f}</a></td>"
            f"<td>{end - begin:.1f}</td><td>{escape(gap.host + where)}</td></tr>"
        )
    return "\n".join([*lines, "</table>"])
