"""A trace as one page of HTML that needs nothing else: timeline, tables, pictures of graphs.

trace_page.html is the page without its contents. The tables and pictures are HTML and SVG that this
module writes. The timeline is drawn from JSON by the page's own script.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from html import escape
from pathlib import Path
from typing import Any, Final

from ..loader.trace.device import KernelTable
from ..loader.trace.summary import Summary
from .output import count_things

#: Spans beyond this number have no arguments in the page, which would be too large.
_MOST_WITH_ARGUMENTS: Final = 20_000
_LONGEST: Final = 200  # characters of an argument

_WIDTH, _HEIGHT, _GAP_X, _GAP_Y = 170, 26, 14, 26  # of a node, and between nodes

Event = Mapping[str, Any]


def make_page(
    title: str, events: Sequence[Event], functions: Summary, kernels: KernelTable, failed: Any
) -> str:
    """Return the page.

    Args:
        title: its title.
        events: the trace, as events of the Chrome trace format.
        functions: the table of the functions.
        kernels: the table of what devices did.
        failed: says of an event whether its call failed.
    """
    spans = [event for event in events if event["ph"] == "X"]
    rows = _make_rows(events, spans, failed)
    length = max((one["ts"] + one["dur"] for one in spans), default=0) - _start(spans)
    graphs = [event["args"] for event in events if event["name"] == "graph"]
    processes = count_things(len({one["pid"] for one in spans}), "process", "es")
    summary = f"{len(spans)} calls and commands of {processes}"
    sections = [
        _format_table(
            "Kernels and transfers on the devices", kernels, _KERNEL_HEADS, _format_kernel
        ),
        *(_draw_graph(graph) for graph in graphs),
        _format_table("Functions", functions, _FUNCTION_HEADS, _format_function),
    ]
    data = json.dumps({"rows": rows, "length": max(length, 0.01)}, separators=(",", ":"))
    parts = {
        "title": escape(title),
        "summary": escape(summary),
        "sections": "\n".join(sections),
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
    time."""
    names = {
        (one["name"], one["pid"], one["tid"]): one["args"].get("name", "")
        for one in events
        if one["ph"] == "M"
    }
    programs = {pid: name for (kind, pid, _), name in names.items() if kind == "process_name"}
    start, rows = _start(spans), {}
    for one in sorted(spans, key=lambda one: (one["ts"], -one["dur"])):
        key = one["pid"], one["tid"]
        if key not in rows:
            name = names.get(("thread_name", *key), f"thread {one['tid']}")
            where = (
                f"{programs.get(one['pid'], 'process')} {one['pid']}: " if len(programs) > 1 else ""
            )
            rows[key] = {"name": where + name, "device": one["cat"] == "device", "spans": []}
        arguments = []
        if len(spans) <= _MOST_WITH_ARGUMENTS:
            arguments = [f"{name} = {str(text)[:_LONGEST]}" for name, text in one["args"].items()]
        times = round(one["ts"] - start, 3), round(one["dur"], 3)
        is_bad = int(one["cat"] != "device" and failed(one))
        rows[key]["spans"].append([one["name"], *times, is_bad, arguments])
    return sorted(rows.values(), key=lambda row: (row["device"], row["name"]))


_KERNEL_HEADS: Final = ("kernel", "calls", "total µs", "mean µs", "min µs", "max µs")
_FUNCTION_HEADS: Final = ("function", "calls", "failed", "total µs", "self µs")


def _format_kernel(row: Any) -> list[str]:
    return [row.name, str(row.calls), *(f"{ns / 1e3:.1f}" for ns in row[2:])]


def _format_function(row: Any) -> list[str]:
    return [row.name, str(row.calls), str(row.failed), *(f"{ns / 1e3:.1f}" for ns in row[3:])]


def _format_table(title: str, rows: Iterable[Any], heads: Sequence[str], cells: Any) -> str:
    """Return a table, or nothing if it has no rows."""
    lines = [
        "<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in cells(row)) + "</tr>"
        for row in rows
    ]
    if not lines:
        return ""
    head = "".join(f"<th>{escape(one)}</th>" for one in heads)
    return f"<h2>{title}</h2>\n<table>\n<tr>{head}</tr>\n" + "\n".join(lines) + "\n</table>"


def _draw_graph(graph: Mapping[str, Any]) -> str:
    """Return a graph: each node is in the row below the last of those that it comes after."""
    nodes, edges = graph["nodes"], [tuple(edge) for edge in graph["edges"]]
    before: dict[int, list[int]] = {}
    for one, other in edges:
        before.setdefault(other, []).append(one)
    levels: dict[int, int] = {}
    for _ in nodes:  # an edge may lead to a node of a smaller number
        changed = False
        for node in range(len(nodes)):
            level = max((levels.get(one, 0) + 1 for one in before.get(node, ())), default=0)
            changed |= levels.get(node) != level
            levels[node] = level
        if not changed:
            break
    places, counts = {}, dict.fromkeys(levels.values(), 0)
    for node in range(len(nodes)):
        level = levels[node]
        places[node] = counts[level] * (_WIDTH + _GAP_X), level * (_HEIGHT + _GAP_Y)
        counts[level] += 1
    width = max(counts.values(), default=0) * (_WIDTH + _GAP_X)
    height = len(counts) * (_HEIGHT + _GAP_Y)
    shapes = [_draw_arrow(places[one], places[other]) for one, other in edges]
    shapes += [_draw_node(text, *places[node]) for node, text in enumerate(nodes)]
    more = f", and {graph['more']} more nodes" if graph["more"] else ""
    return (
        f"<figure>\n<h2>Graph</h2>\n<figcaption>{escape(graph['title'])}{more}</figcaption>\n"
        f'<svg width="{width}" height="{height}" role="img">\n' + "\n".join(shapes) + "\n</svg>\n"
        "</figure>"
    )


def _draw_arrow(start: tuple[int, int], to: tuple[int, int]) -> str:
    (x, y), (to_x, to_y) = start, to
    x, y, to_x = x + _WIDTH // 2, y + _HEIGHT, to_x + _WIDTH // 2
    middle = (y + to_y) // 2
    return f'<path d="M{x} {y} C{x} {middle} {to_x} {middle} {to_x} {to_y}"/>'


def _draw_node(text: str, x: int, y: int) -> str:
    short = text if len(text) <= 24 else f"{text[:23]}…"
    return (
        f'<g><title>{escape(text)}</title><rect x="{x}" y="{y}" width="{_WIDTH}" '
        f'height="{_HEIGHT}" rx="4"/><text x="{x + 8}" y="{y + 17}">{escape(short)}</text></g>'
    )
