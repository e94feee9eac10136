"""A trace as one page of HTML that needs nothing else: timeline, tables, pictures of graphs.

trace_page.html is the page without its contents. The tables and pictures are those that notebooks
show. The timeline is drawn from JSON by the page's own script.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from html import escape
from pathlib import Path
from typing import Any, Final

from ..loader.trace.counters import find_counters
from ..loader.trace.device import KernelTable
from ..loader.trace.summary import Summary, format_sections
from .output import count_things
from .trace_gaps import format_gaps

#: Spans beyond this number have no arguments in the page, which would be too large.
_MOST_WITH_ARGUMENTS: Final = 20_000
_LONGEST: Final = 200  # characters of an argument

Event = Mapping[str, Any]


def make_page(
    title: str, events: Sequence[Event], functions: Summary, kernels: KernelTable, failed: Any
) -> str:
    """Return the page.

    Args:
        events: the trace, as events of the Chrome trace format.
        failed: says of an event whether its call failed.
    """
    spans = [event for event in events if event["ph"] == "X"]
    rows = _make_rows(events, spans, failed)
    length = max((one["ts"] + one["dur"] for one in spans), default=0) - _start(spans)
    graphs = [event["args"] for event in events if event["ph"] == "M" and event["name"] == "graph"]
    processes = count_things(len({one["pid"] for one in spans}), "process", "es")
    summary = f"{len(spans)} calls and commands of {processes}"
    sections = format_sections(functions, kernels, graphs)
    data = json.dumps({"rows": rows, "length": max(length, 0.01)}, separators=(",", ":"))
    parts = {
        "title": escape(title),
        "gaps": format_gaps(events, _start(spans)),
        "summary": escape(summary),
        "sections": sections,
        "data": data.replace("<", "\\u003c"),  # nothing in it ends the script
    }
    text = Path(__file__).with_suffix(".html").read_text(encoding="utf-8")
    return re.sub(f"@({'|'.join(parts)})@", lambda found: parts[found[1]], text)


def _start(spans: Iterable[Event]) -> float:
    return min((one["ts"] for one in spans), default=0.0)


def _make_rows(
    events: Iterable[Event], spans: Sequence[Event], failed: Any
) -> list[dict[str, Any]]:
    """Return the rows of the timeline: a thread or a queue each, with its spans in the order of
    time. Above a queue are its counters."""
    named = {
        (one["name"], one["pid"], one["tid"]): one["args"] for one in events if one["ph"] == "M"
    }
    programs = {
        pid: args["name"] for (kind, pid, _), args in named.items() if kind == "process_name"
    }
    start, rows = _start(spans), {}
    for one in sorted(spans, key=lambda one: (one["ts"], -one["dur"])):
        key = one["pid"], one["tid"]
        if key not in rows:
            args = named.get(("thread_name", *key), {"name": f"thread {one['tid']}"})
            name = args.get("queue") or args["name"]
            where = (
                f"{programs.get(one['pid'], 'process')} {one['pid']}: " if len(programs) > 1 else ""
            )
            rows[key] = {
                "name": where + name,
                "on": args.get("device", ""),
                "device": one["cat"] == "device",
                "spans": [],
            }
        arguments = []
        if len(spans) <= _MOST_WITH_ARGUMENTS:
            arguments = [f"{name} = {str(text)[:_LONGEST]}" for name, text in one["args"].items()]
        times = round(one["ts"] - start, 3), round(one["dur"], 3)
        is_bad = int(one["cat"] != "device" and failed(one))
        rows[key]["spans"].append([one["name"], *times, is_bad, arguments])
    for counter in find_counters(spans):
        row = rows[counter.pid, counter.tid]
        points = [(round(time - start, 3), value) for time, value in counter.points]
        curve = {"name": counter.name, "unit": counter.unit, "points": points, "spans": []}
        row.setdefault("counters", []).append(curve)
    found = sorted(rows.values(), key=lambda row: (row["device"], row["name"]))
    return [one for row in found for one in (*row.pop("counters", ()), row)]
