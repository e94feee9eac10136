"""Pictures of task levels: the batches as DOT text and as SVG.

A row of the picture is a batch, a column is a queue. Orange arrows are the order of in-order
queues, blue ones are events. What a user event blocks is in the last row. Arrows to one command end
beside each other on its upper edge.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from html import escape
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from .task_levels import ModelCommand, TaskLevels

_QUEUE_COLOR: Final = "#d97706"
_EVENT_COLOR: Final = "#2563eb"

# Sizes in pixels: of a command's box, between boxes, of the margin with the rows' names, between
# the ends of arrows, and of the legend.
_WIDTH, _HEIGHT, _GAP, _ROW_GAP, _MARGIN, _END_GAP, _LEGEND = 64, 30, 16, 40, 110, 16, 230

#: The names and the commands of the rows.
_Rows = list[tuple[str, Sequence["ModelCommand"]]]


def to_dot(model: TaskLevels) -> str:
    """Return the batches in Graphviz's language."""
    rows = _find_rows(model)
    commands = [command for _, row in rows for command in row]
    numbers = {command: number for number, command in enumerate(commands)}
    lines = ["digraph task_levels {", "node [shape=box];"]
    for place, (name, row) in enumerate(rows):
        lines.append(f"subgraph cluster_{place} {{ label={_quote(name)};")
        lines += [
            f"{numbers[one]} [label={_quote(one.name)}, tooltip={_quote(one.queue.name)}];"
            for one in row
        ]
        lines.append("}")
    lines += [
        f'{numbers[before]} -> {numbers[after]} [color="{color}", label={_quote(event)}];'
        for before, after, color, event in _find_arrows(commands)
    ]
    return "\n".join([*lines, "}", ""])


def to_svg(model: TaskLevels) -> str:
    """Return the batches as an SVG picture."""
    rows = _find_rows(model)
    places, columns, width = _lay_out(model, rows)
    height = _ROW_GAP + len(rows) * (_HEIGHT + _ROW_GAP)
    width = max(width, _LEGEND)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:g} {height}" '
        f'width="{width:g}" height="{height}" font-family="sans-serif" font-size="13">',
        *(_draw_arrow_head(color) for color in (_QUEUE_COLOR, _EVENT_COLOR)),
        f'<rect width="{width:g}" height="{height}" fill="white"/>',
    ]
    parts += [
        _draw_text(x, _ROW_GAP / 2, queue.name)
        for queue, x in zip(model.queues, columns, strict=True)
    ]
    for number, (name, _) in enumerate(rows):
        y = _find_top(number)
        parts.append(
            f'<rect x="4" y="{y - 8}" width="{width - 8:g}" height="{_HEIGHT + 16}" rx="6" '
            'fill="#eef2f7"/>'
        )
        parts.append(_draw_text(_MARGIN / 2, y + _HEIGHT / 2, name))
    parts += _draw_lines(places)
    for command, (x, y) in places.items():
        parts.append(
            f'<rect x="{x - _WIDTH / 2:g}" y="{y}" width="{_WIDTH}" height="{_HEIGHT}" rx="4" '
            'fill="white" stroke="#334155"/>'
        )
        parts.append(_draw_text(x, y + _HEIGHT / 2, command.name))
    parts += _draw_legend(height - _ROW_GAP / 2)
    return "\n".join([*parts, "</svg>", ""])


def _draw_lines(places: Mapping[ModelCommand, tuple[float, float]]) -> Iterator[str]:
    """Yield the arrows, with the names of their events."""
    arrows = list(_find_arrows(list(places)))
    ends = _find_ends(places, arrows)
    for number, (before, after, color, event) in enumerate(arrows):
        (x1, y1), (x2, y2) = places[before], places[after]
        if y1 == y2:  # both are blocked
            continue
        x2 += ends[number]
        yield (
            f'<line x1="{x1:g}" y1="{y1 + _HEIGHT}" x2="{x2:g}" y2="{y2 - 1}" stroke="{color}" '
            f'stroke-width="1.5" marker-end="url(#arrow-{color[1:]})"/>'
        )
        if event:
            y = y1 + _HEIGHT + _ROW_GAP / 4  # near its start, where few others are
            x = x1 + (x2 - x1) * _ROW_GAP / 4 / (y2 - y1 - _HEIGHT) + 6
            yield _draw_text(x, y, event, f'font-size="11" fill="{color}"')


def _find_ends(
    places: Mapping[ModelCommand, tuple[float, float]],
    arrows: Sequence[tuple[ModelCommand, ModelCommand, str, str]],
) -> dict[int, float]:
    """Return how far from the middle of a command's upper edge each arrow ends, by its number.

    The arrow of the queue's order ends in the middle. Others do so if it is missing.
    """
    into: dict[ModelCommand, list[int]] = {}
    for number, (_, after, _, _) in enumerate(arrows):
        into.setdefault(after, []).append(number)
    found: dict[int, float] = {}
    for numbers in into.values():
        numbers.sort(key=lambda number: places[arrows[number][0]][0])
        colors = [arrows[number][2] for number in numbers]
        last = len(numbers) - 1
        middle = colors.index(_QUEUE_COLOR) if _QUEUE_COLOR in colors else last / 2
        gap = min(_END_GAP, (_WIDTH / 2 - 4) / max(1, last))
        found |= {number: (place - middle) * gap for place, number in enumerate(numbers)}
    return found


def _draw_legend(y: float) -> Iterator[str]:
    for x, color, text in ((8, _QUEUE_COLOR, "order of a queue"), (160, _EVENT_COLOR, "event")):
        yield f'<path d="M{x} {y:g}h24" stroke="{color}" stroke-width="1.5"/>'
        yield _draw_text(x + 30, y, text, 'font-size="11"')


def _find_rows(model: TaskLevels) -> _Rows:
    rows: _Rows = [(f"level {batch.level}", batch.commands) for batch in model.batches]
    return [*rows, ("blocked", model.blocked)] if model.blocked else rows


def _find_arrows(
    commands: Sequence[ModelCommand],
) -> Iterator[tuple[ModelCommand, ModelCommand, str, str]]:
    """Yield what comes directly after what, with the arrow's color and the event's name."""
    for command in commands:
        if command.previous:
            yield command.previous, command, _QUEUE_COLOR, ""
        for before in command.predecessors[1 if command.previous else 0 :]:
            yield before, command, _EVENT_COLOR, before.returns


def _lay_out(
    model: TaskLevels, rows: _Rows
) -> tuple[dict[ModelCommand, tuple[float, float]], list[float], float]:
    """Return the middle of each command's upper edge, the middle of each queue's column, and the
    width."""
    places: dict[ModelCommand, tuple[float, float]] = {}
    columns: list[float] = []
    left = float(_MARGIN)
    for queue in model.queues:
        own = [[one for one in row if one.queue is queue] for _, row in rows]
        count = max([1, *map(len, own)])
        columns.append(left + (count * (_WIDTH + _GAP) - _GAP) / 2)
        for number, commands in enumerate(own):
            start = columns[-1] - (len(commands) - 1) * (_WIDTH + _GAP) / 2
            for place, command in enumerate(commands):
                places[command] = start + place * (_WIDTH + _GAP), _find_top(number)
        left += count * (_WIDTH + _GAP)
    return places, columns, left


def _find_top(row: int) -> int:
    return _ROW_GAP + row * (_HEIGHT + _ROW_GAP)


def _draw_text(x: float, y: float, text: str, style: str = 'text-anchor="middle"') -> str:
    """Return a text that begins at a place, or has its middle there."""
    return f'<text x="{x:g}" y="{y + 4:g}" {style}>{escape(text)}</text>'


def _draw_arrow_head(color: str) -> str:
    return (
        f'<marker id="arrow-{color[1:]}" viewBox="0 0 8 8" refX="8" refY="4" markerWidth="7" '
        f'markerHeight="7" orient="auto"><path d="M0 0L8 4L0 8z" fill="{color}"/></marker>'
    )


def _quote(text: str) -> str:
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'
