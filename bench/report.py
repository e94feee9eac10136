"""The results as a Markdown table. `python -m bench.report bench/results/NAME.json` prints it.

With `--summary` it prints the README's table.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

_MET = {True: "yes", False: "**no**", None: ""}


def _number(value: float) -> str:
    """Return a number with three significant digits and no exponent."""
    return f"{value:.0f}" if value >= 100 else f"{value:.3g}"


def _series(row: Mapping[str, Any]) -> str:
    """Return each median, with the quartiles where there are some."""
    parts = []
    for name, values in row["series"].items():
        spread = f" ({_number(values['q1'])}–{_number(values['q3'])})" if "q1" in values else ""
        parts.append(f"{name} {_number(values['median'])}{spread}")
    if len(parts) > 3:  # the ends of a course of time are enough
        parts = [parts[0], parts[-1]]
    return "; ".join(parts) + (f" {row['series_unit']}" if parts else "")


def _measured(row: Mapping[str, Any]) -> str:
    if row["value"] is None:
        return "–"
    # The third decimal shows whether a ratio close to 1 meets its target.
    value = (
        f"{row['value']:.3f}" if row["unit"] == "×" and row["value"] < 10 else _number(row["value"])
    )
    rounds = (
        f" ({row['ratio_of_rounds']:.3f} by rounds)" if row["ratio_of_rounds"] is not None else ""
    )
    return f"{value} {row['unit']}{rounds}"


def line(row: Mapping[str, Any]) -> str:
    """Return a row as one line of text."""
    target = row["target"] and f"({row['target']})"
    return " ".join(filter(None, (f"{row['what']}:", _measured(row), target, row["note"])))


def summary(data: Mapping[str, Any]) -> str:
    """Return the README's table: a line for each measure and a column for each driver.

    Missed targets are bold.
    """
    drivers = list(dict.fromkeys(row["driver"] for row in data["rows"]))
    lines: dict[str, dict[str, str]] = {}
    targets: dict[str, str] = {}
    for row in data["rows"]:
        value = "" if row["value"] is None else f"{_number(row['value'])} {row['unit']}"
        lines.setdefault(row["what"], {})[row["driver"]] = (
            f"**{value}**" if row["met"] is False else value
        )
        targets[row["what"]] = row["target"] or targets.get(row["what"], "")
    table = [f"| measure | target | {' | '.join(drivers)} |", "|---" * (len(drivers) + 2) + "|"]
    for what, values in lines.items():
        cells = " | ".join(values.get(driver, "") for driver in drivers)
        table.append(f"| {what} | {targets[what]} | {cells} |")
    return "\n".join(table) + "\n"


def markdown(data: Mapping[str, Any]) -> str:
    """Return the facts of the run in a sentence each, and a line for every row."""
    machine = data["machine"]
    packages = ", ".join(f"{name} {version}" for name, version in machine["packages"].items())
    lines = [
        f"{machine['cpu']}, {machine['cores']} cores, Linux {machine['kernel']}, Python "
        f"{machine['python']}; {packages}; fairlead at {machine['revision'] or 'no revision'}.",
        f"{machine['date']}, load average {machine['load_before'][0]} before and "
        f"{machine['load_after'][0]} after.",
        "Shortened for a smoke test: these figures mean nothing." if data["quick"] else "",
        "",
        "| measure | driver | measured | target | met | medians (quartiles) |",
        "|---|---|---|---|---|---|",
    ]
    for row in data["rows"]:
        details = "; ".join(filter(None, (_series(row), row["note"])))
        cells = (
            row["what"],
            row["driver"],
            _measured(row),
            row["target"] or "",
            _MET[row["met"]],
            details,
        )
        lines.append("| " + " | ".join(cells) + " |")
    judged = [row["met"] for row in data["rows"] if row["met"] is not None]
    lines += ["", f"{sum(judged)} of {len(judged)} targets met.", ""]
    for one in data.get("tables", ()):  # older results have none
        lines += [f"## {one['measure']}: {one['driver']}", ""]
        lines += [one["why_not"] or one["table"].rstrip(), ""]
    return "\n".join(lines)


if __name__ == "__main__":
    render = summary if "--summary" in sys.argv else markdown
    print(render(json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))), end="")
