"""Summarizes a trace: how often each function was called, how often it failed, how long it took."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from html import escape
from itertools import count
from typing import Any, ClassVar, NamedTuple, TypeVar

from ..base.drawing import draw_graph, format_table


class Span(NamedTuple):
    """A call that has returned: its thread, and when it began and ended, in ns."""

    name: str
    thread: Hashable
    begin: int
    end: int
    failed: bool


class SummaryRow(NamedTuple):
    """One function in a summary. Times are in ns.

    Attributes:
        calls: the number of calls.
        failed: the number of calls that failed.
        total_ns: the time of all calls.
        self_ns: the same without the traced calls that the same thread made meanwhile.
    """

    name: str
    calls: int
    failed: int
    total_ns: int
    self_ns: int


_Row = TypeVar("_Row", bound=tuple[Any, ...])


class Table(tuple[_Row, ...]):
    """Rows, of which a name comes first. As text and in notebooks, a table with times in µs."""

    __slots__ = ()
    heads: ClassVar[Sequence[str]] = ()

    @property
    def cells(self) -> list[list[str]]:
        """The texts of each row."""
        return [
            [
                f"{one / 1e3:.1f}" if head.endswith(" us") else str(one)
                for head, one in zip(self.heads, row, strict=True)
            ]
            for row in self
        ]

    def __str__(self) -> str:
        cells = [self.heads, *self.cells]
        widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
        lines = (
            "  ".join([row[0].ljust(widths[0]), *map(str.rjust, row[1:], widths[1:])])
            for row in cells
        )
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        return format_table([head.replace(" us", " µs") for head in self.heads], self.cells)


class Summary(Table[SummaryRow]):
    """The functions that were called, the longest total time first."""

    __slots__ = ()
    heads = ("function", "calls", "failed", "total us", "self us")


def summarize(calls: Iterable[Span]) -> Summary:
    """Return the summary of calls, which may be in any order."""
    rows: dict[str, list[int]] = {}
    open_calls: dict[Hashable, list[Span]] = {}
    for call in sorted(calls, key=lambda call: (call.begin, -call.end)):
        stack, took = open_calls.setdefault(call.thread, []), call.end - call.begin
        while stack and stack[-1].end < call.end:
            stack.pop()
        if stack:  # the call that this one was made in
            rows[stack[-1].name][3] -= took
        stack.append(call)
        row = rows.setdefault(call.name, [0, 0, 0, 0])
        for place, number in enumerate((1, call.failed, took, took)):
            row[place] += number
    found = (SummaryRow(name, *numbers) for name, numbers in rows.items())
    return Summary(sorted(found, key=lambda row: (-row.total_ns, row.name)))


def format_sections(
    functions: Table[Any], kernels: Table[Any], graphs: Iterable[Mapping[str, Any]]
) -> str:
    """Return what a trace has, as HTML: its tables, and pictures of its graphs.

    Args:
        graphs: what pictures.py made of each.
    """
    parts = [_format_table("Kernels and transfers on the devices", kernels)]
    parts += map(_format_drawing, graphs)
    return "\n".join(filter(None, [*parts, _format_table("Functions", functions)]))


def _format_table(title: str, table: Table[Any]) -> str:
    return f"<h2>{title}</h2>\n{table._repr_html_()}" if table else ""


def _format_drawing(graph: Mapping[str, Any]) -> str:
    after: list[list[int]] = [[] for _ in graph["nodes"]]
    for one, other in graph["edges"]:
        after[one].append(other)
    more = f", and {graph['more']} more nodes" if graph["more"] else ""
    return (
        f"<figure>\n<h2>Graph</h2>\n<figcaption>{escape(graph['title'])}{more}</figcaption>\n"
        f"{draw_graph(zip(count(), graph['nodes'], after, strict=False))}\n</figure>"
    )
