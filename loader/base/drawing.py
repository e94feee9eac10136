"""Drawings of what comes after what, as SVG, and tables, as HTML: for notebooks and pages.

A node is in the row below the last of those that it comes after. What repeats along a chain is one
box, "collide → stream, 40 ×", and so are equal nodes side by side. The colors are those of the text
around a drawing, so it is light or dark as the page is.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import reduce
from html import escape
from operator import or_
from typing import Final, TypeAlias

#: A node: its number, its text, and the numbers of those that come directly after it.
DrawnNode: TypeAlias = tuple[int, str, Sequence[int]]

#: So many boxes are drawn, of so many nodes.
MOST_BOXES: Final = 300
_MOST_NODES: Final = 20_000
_LONGEST_PERIOD: Final = 32  # nodes of a part of a chain that repeats
_FEWEST: Final = 4  # nodes that are worth folding
_LONGEST: Final = 56  # characters in a box
_LETTER, _HEIGHT, _GAP_X, _GAP_Y = 7, 26, 14, 26  # pixels: of a letter, a box, and between boxes
#: The colors of a picture that is a file of its own.
_ALONE: Final = (
    "<style>.fairlead{color:#1c2024;background:#fff}@media (prefers-color-scheme:dark)"
    "{.fairlead{color:#e6e9ec;background:#15181c}}</style>"
)


def draw_graph(
    nodes: Iterable[DrawnNode], groups: Iterable[Sequence[int]] = (), *, alone: bool = False
) -> str:
    """Return a graph as SVG.

    Args:
        nodes: in any order; edges may form circles.
        groups: the numbers of nodes that run as one.
        alone: whether the picture is a file of its own, with colors of its own.
    """
    listed = list(nodes)
    graph = _Folded(listed[:_MOST_NODES])
    for group in groups:
        if graph.texts.keys() >= set(group):
            texts = " + ".join(graph.texts[number] for number in group)
            graph.merge(group, f"one fused kernel: {texts}")
    graph.leave_out_implied_edges()
    graph.fold()
    rows = graph.find_rows()
    boxes, width, height = _lay_out(graph, rows)
    shapes = [
        _draw_arrow(place, boxes[after])
        for number, place in boxes.items()
        for after in sorted(graph.after[number])
        if after in boxes
    ]
    shapes += [_draw_box(graph, number, place) for number, place in boxes.items()]
    if missing := len(listed) - sum(len(graph.members[number]) for number in boxes):
        height += _HEIGHT
        shapes.append(_draw_text(8, height - _GAP_Y, f"and {missing} more nodes"))
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" class="{"fairlead" * alone}" role="img" '
            f'width="{width}" height="{height}" viewBox="0 0 {width} {height}" fill="none" '
            'stroke="currentColor" font-family="system-ui, sans-serif" font-size="12">',
            *([_ALONE] if alone else []),
            *shapes,
            "</svg>",
        ]
    )


def format_table(heads: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """Return a table as HTML."""
    lines = [
        "<tr>" + "".join(f"<td>{escape(str(cell))}</td>" for cell in row) + "</tr>" for row in rows
    ]
    head = "".join(f"<th>{escape(one)}</th>" for one in heads)
    return "\n".join(["<table>", f"<tr>{head}</tr>", *lines, "</table>"])


class _Folded:
    """A graph, of which nodes can become one.

    Attributes:
        texts: the texts of each box, by the number of its first node.
        members: the numbers of all its nodes.
        before, after: the boxes that it comes directly after, and that come directly after it.
    """

    def __init__(self, nodes: Sequence[DrawnNode]) -> None:
        self.texts = {number: text for number, text, _ in nodes}
        self.members = {number: [number] for number in self.texts}
        self.after = {
            number: {one for one in after if one in self.texts and one != number}
            for number, _, after in nodes
        }
        self.before: dict[int, set[int]] = {number: set() for number in self.texts}
        for number, after in self.after.items():
            for one in after:
                self.before[one].add(number)

    def merge(self, numbers: Sequence[int], text: str) -> None:
        """Make one box of several."""
        first, inside = numbers[0], set(numbers)
        self.texts[first] = text
        self.members[first] = [one for number in numbers for one in self.members[number]]
        for here, there in ((self.before, self.after), (self.after, self.before)):
            around = set[int]().union(*(here[number] for number in numbers)) - inside
            for one in around:
                there[one] = there[one] - inside | {first}
            here[first] = around
        for number in inside - {first}:
            for table in (self.texts, self.members, self.before, self.after):
                del table[number]

    def leave_out_implied_edges(self) -> None:
        """Leave out edges that say nothing new, because a longer way leads there, too.

        Each operation of `pyopencl.array` names all events of its arrays that it knows, so a chain
        would be no chain. Circles keep their edges.
        """
        places = {number: place for place, number in enumerate(self.texts)}
        above: dict[int, int] = {}  # a bit for each node that comes before, directly or not
        for number in (one for row in self.find_rows() for one in row):
            before = self.before[number]
            if before <= above.keys():
                implied = reduce(or_, (above[one] for one in before), 0)
                above[number] = reduce(or_, (1 << places[one] for one in before), implied)
                for one in [one for one in before if implied >> places[one] & 1]:
                    before.remove(one)
                    self.after[one].remove(number)

    def fold(self) -> None:
        """Fold what repeats, until nothing does."""
        count = 0
        while count != len(self.texts):
            count = len(self.texts)
            for start in [one for one in self.texts if not self._continues(one)]:
                chain = [start]
                while len(after := self.after[chain[-1]]) == 1 and self._continues(min(after)):
                    chain.append(min(after))
                self._fold_chain(chain)
            self._fold_siblings()

    def _continues(self, number: int) -> bool:
        """Whether it is the only one after the only one before it."""
        before = self.before[number]
        return len(before) == 1 and len(self.after[min(before)]) == 1

    def _fold_chain(self, chain: Sequence[int]) -> None:
        texts = [self.texts[number] for number in chain]
        for begin, period, count in _find_repeats(texts):
            repeated = texts[begin : begin + period]
            text = " → ".join(map(_enclose, repeated))
            self.merge(chain[begin : begin + period * count], f"{text}, {count} ×")

    def _fold_siblings(self) -> None:
        equal: dict[tuple[str, frozenset[int], frozenset[int]], list[int]] = {}
        for number, text in self.texts.items():
            key = text, frozenset(self.before[number]), frozenset(self.after[number])
            equal.setdefault(key, []).append(number)
        for (text, _, _), numbers in equal.items():
            if len(numbers) >= _FEWEST:
                self.merge(numbers, f"{_enclose(text)}, {len(numbers)} × side by side")

    def find_rows(self) -> list[list[int]]:
        """Return the boxes of each row. Those of a circle come last."""
        missing = {number: len(before) for number, before in self.before.items()}
        rows: list[list[int]] = []
        ready = [number for number, count in missing.items() if not count]
        while ready:
            rows.append(ready)
            for number in ready:
                del missing[number]
            for after in (one for number in ready for one in self.after[number]):
                missing[after] -= 1
            found = (one for number in ready for one in self.after[number])
            ready = list(dict.fromkeys(one for one in found if not missing[one]))
        return [*rows, list(missing)] if missing else rows

    def describe_numbers(self, number: int) -> str:
        """Return the numbers of a box's nodes."""
        members = sorted(self.members[number])
        if len(members) == 1:
            return str(number)
        gap = "–" if members[-1] - members[0] == len(members) - 1 else " … "
        return f"{members[0]}{gap}{members[-1]}"


def _enclose(text: str) -> str:
    """Return a text in parentheses if it says how often something is there."""
    return f"({text})" if " × " in f"{text} " else text


def _find_repeats(texts: Sequence[str]) -> Iterator[tuple[int, int, int]]:
    """Yield what repeats in a chain: where it begins, how many nodes it has, and how often."""
    begin = 0
    while begin < len(texts):
        best = 1, 1
        for period in range(1, min(_LONGEST_PERIOD, (len(texts) - begin) // 2) + 1):
            if texts[begin] != texts[begin + period]:
                continue
            first, count = texts[begin : begin + period], 1
            while texts[begin + count * period : begin + (count + 1) * period] == first:
                count += 1
            if count > 1 and count * period > best[0] * best[1]:
                best = period, count
        period, count = best
        if count > 1 and count * period >= _FEWEST:
            yield begin, period, count
        begin += period * count


#: The left edge, the upper edge and the width of a box.
_Place: TypeAlias = tuple[float, float, int]


def _lay_out(
    graph: _Folded, rows: Sequence[Sequence[int]]
) -> tuple[dict[int, _Place], float, float]:
    """Return the place of each box, and the size of all."""
    shown = MOST_BOXES
    chosen: list[list[int]] = []
    for row in rows:
        chosen.append(list(row[:shown]))
        shown -= len(chosen[-1])
    chosen = [row for row in chosen if row]
    widths = {number: _find_width(graph, number) for row in chosen for number in row}
    lengths = [sum(widths[number] + _GAP_X for number in row) for row in chosen]
    whole, boxes = max(lengths, default=0), dict[int, _Place]()
    for level, (row, length) in enumerate(zip(chosen, lengths, strict=True)):
        left = (whole - length + _GAP_X) / 2

        def find_middle(number: int) -> float:
            above = [boxes[one] for one in graph.before[number] if one in boxes]
            return sum(x + width / 2 for x, _, width in above) / max(len(above), 1)

        for number in sorted(row, key=find_middle):
            boxes[number] = left, level * (_HEIGHT + _GAP_Y) + 1, widths[number]
            left += widths[number] + _GAP_X
    return boxes, whole, len(chosen) * (_HEIGHT + _GAP_Y)


def _find_width(graph: _Folded, number: int) -> int:
    return _LETTER * len(_shorten(graph, number)) + 16


def _shorten(graph: _Folded, number: int) -> str:
    text = f"{graph.describe_numbers(number)}: {graph.texts[number]}"
    if len(text) <= _LONGEST:
        return text
    end = text[text.rindex(", ") :] if text.endswith("×") else ""
    return f"{text[: _LONGEST - 1 - len(end)]}…{end}"


def _draw_arrow(start: _Place, to: _Place) -> str:
    (x, y, width), (to_x, to_y, to_width) = start, to
    x, y, to_x = x + width / 2, y + _HEIGHT, to_x + to_width / 2
    middle = (y + to_y) / 2
    return (
        f'<path d="M{x:g} {y:g} C{x:g} {middle:g} {to_x:g} {middle:g} {to_x:g} {to_y:g}" '
        'stroke-opacity=".6"/>'
    )


def _draw_box(graph: _Folded, number: int, place: _Place) -> str:
    x, y, width = place
    waits = ", ".join(map(graph.describe_numbers, sorted(graph.before[number])))
    whole = f"{graph.describe_numbers(number)}: {graph.texts[number]}"
    whole += f"\nafter {waits}" if waits else ""
    return (
        f'<g><title>{escape(whole)}</title><rect x="{x:g}" y="{y:g}" width="{width}" '
        f'height="{_HEIGHT}" rx="4" fill="currentColor" fill-opacity=".08"/>'
        f"{_draw_text(x + 8, y + 17, _shorten(graph, number))}</g>"
    )


def _draw_text(x: float, y: float, text: str) -> str:
    return f'<text x="{x:g}" y="{y:g}" fill="currentColor" stroke="none">{escape(text)}</text>'
