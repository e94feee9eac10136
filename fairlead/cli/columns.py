"""Tables of text that fit a terminal: cells that are too long continue on further lines."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from itertools import zip_longest

from ..loader.base.query import escape_text

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Final

#: Columns of a table that goes to a file or a pipe.
COLUMNS: Final = 80
_GAP: Final = "  "


def find_terminal_width() -> int:
    """Return the columns of the terminal, `COLUMNS` if standard output is none."""
    if not sys.stdout.isatty():
        return COLUMNS
    import shutil  # which imports every kind of archive

    return shutil.get_terminal_size().columns


def format_table(rows: Sequence[Sequence[str]], width: int = COLUMNS) -> list[str]:
    """Return the lines of a table.

    Args:
        rows: the cells of each row, the headings first. Runs of blanks become one.
        width: columns of the whole table; the widest columns are narrowed to it.
    """
    cells = [[escape_text(" ".join(cell.split())) for cell in row] for row in rows]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    room = width - len(_GAP) * (len(widths) - 1)
    while sum(widths) > room and max(widths) > 8:
        widths[widths.index(max(widths))] -= 1
    return [line for row in cells for line in _format_row(row, widths)]


def _format_row(row: Sequence[str], widths: Sequence[int]) -> list[str]:
    parts = [_wrap(cell, width) for cell, width in zip(row, widths, strict=True)]
    return [
        _GAP.join(part.ljust(width) for part, width in zip(line, widths, strict=True)).rstrip()
        for line in zip_longest(*parts, fillvalue="")
    ]


def _wrap(cell: str, width: int) -> list[str]:
    """Return the lines of a cell, of whose words only those are cut that are longer than a line.

    `textwrap` would take milliseconds for its regular expressions.
    """
    lines = [""]
    for word in cell.split():
        line = f"{lines[-1]} {word}".lstrip()
        if len(line) > width and lines[-1]:
            lines.append("")
            line = word
        while len(line) > width:
            lines[-1], line = line[:width], line[width:]
            lines.append("")
        lines[-1] = line
    return lines
