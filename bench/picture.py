"""Draws a result as a picture: microseconds a command, called by PyOpenCL and replayed.

`python -m bench.picture bench/results/NAME.json docs/images/replay.svg` writes the README's
picture. It fits light and dark pages.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping
from html import escape
from pathlib import Path
from typing import Any, NamedTuple

#: The measures that are drawn: the row's name, the series of calls, and the label.
MEASURES = (
    ("PyOpenCL ÷ replay, 1,000 tiny kernels", "PyOpenCL", "1,000 tiny kernels"),
    ("pyopencl.array ÷ replay, 1,024 floats", "arrays", "pyopencl.array"),
)
WIDTH, LABELS, BAR = 680, 210, 14  # pixels: the picture, the column of labels, the height of a bar
STYLE = """\
text { font: 13px sans-serif; fill: #24292f } .called { fill: #d0743c } .replayed { fill: #2a78b5 }
@media (prefers-color-scheme: dark) { text { fill: #e6edf3 } }"""


class Pair(NamedTuple):
    """Two bars: microseconds a command, called and replayed."""

    label: str
    called: float
    replayed: float


def pairs(data: Mapping[str, Any]) -> Iterator[Pair]:
    """Return the bars of a result, in the order of its rows."""
    for what, series, label in MEASURES:
        for row in data["rows"]:
            if row["what"] == what and row["series"]:
                medians = {name: values["median"] for name, values in row["series"].items()}
                driver = row["driver"].replace("Portable Computing Language", "PoCL")
                driver = driver.replace("(R) OpenCL", "").split("+")[0].split("-")[0]
                name = " ".join(word[:7] for word in driver.split())
                yield Pair(f"{label}, {name}", medians[series], medians["replay"])


def svg(data: Mapping[str, Any]) -> str:
    """Return the picture of a result, as the text of an SVG file."""
    found = list(pairs(data))
    scale = (WIDTH - LABELS - 70) / max(pair.called for pair in found)
    lines = []
    for number, pair in enumerate(found):
        top = 34 + number * 44
        lines.append(
            f'<text x="{LABELS - 8}" y="{top + 19}" text-anchor="end">{escape(pair.label)}</text>'
        )
        for offset, kind, value in (
            (0, "called", pair.called),
            (BAR + 2, "replayed", pair.replayed),
        ):
            width = value * scale
            lines.append(
                f'<rect class="{kind}" x="{LABELS}" y="{top + offset}" width="{width:.1f}" '
                f'height="{BAR}" rx="2"/>'
            )
            end = LABELS + width + 5
            lines.append(f'<text x="{end:.1f}" y="{top + offset + 11}">{value:.1f} µs</text>')
    height = 34 + len(found) * 44
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{height}" '
            f'viewBox="0 0 {WIDTH} {height}" role="img">',
            "<title>Microseconds a command: called by PyOpenCL, and replayed</title>",
            f"<style>{STYLE}</style>",
            f'<rect class="called" x="{LABELS}" y="8" width="14" height="14" rx="2"/>',
            f'<text x="{LABELS + 20}" y="20">called by PyOpenCL</text>',
            f'<rect class="replayed" x="{LABELS + 160}" y="8" width="14" height="14" rx="2"/>',
            f'<text x="{LABELS + 180}" y="20">replayed</text>',
            *lines,
            "</svg>",
            "",
        ]
    )


if __name__ == "__main__":
    source, target = map(Path, sys.argv[1:])
    target.write_text(svg(json.loads(source.read_text(encoding="utf-8"))), encoding="utf-8")
