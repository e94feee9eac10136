"""Adapters written in Python, in a program without Python: the cost of a call, and of the start.

It is measured once for the machine. The calls are those of examples/toy_adapter.py, which do almost
nothing. The starts are those of the toy and of the reference adapter, in fresh processes, from
dlopen to the first answer. They do not include the drivers that the reference adapter opens later.
"""

from __future__ import annotations

import json
import os
import subprocess
import tempfile
from pathlib import Path
from typing import Any

from fairlead.plugins import build_adapter, reference_adapter

from .measuring import Row, Target, summary

_HERE = Path(__file__).parent
_CALLS = {
    "references": "an entry point that counts references, called from C",
    "query": "a query, called from C",
    "command": "a command with an event, and its release, called from C",
}


def measure(quick: bool) -> list[Row]:
    """Take all five measures."""
    with tempfile.TemporaryDirectory() as folder:
        program = Path(folder, "entry_call")
        command = [
            *os.environ.get("CC", "cc").split(),
            "-O2",
            str(_HERE / "entry_call.c"),
            "-o",
            str(program),
            "-ldl",
        ]
        subprocess.run(command, check=True)
        toy = build_adapter(_HERE.parent / "examples" / "toy_adapter.py", folder)
        return [
            *_calls(program, toy, quick),
            *(_start(program, name, path, quick) for name, path in _adapters(toy)),
        ]


def _adapters(toy: Path) -> list[tuple[str, str]]:
    return [("the toy", str(toy)), ("the reference adapter", reference_adapter())]


def _run(program: Path, library: str, rounds: int, calls: int) -> dict[str, Any]:
    command = [str(program), library, str(rounds), str(calls)]
    return json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)


def _calls(program: Path, toy: Path, quick: bool) -> list[Row]:
    samples = _run(program, str(toy), 5 if quick else 51, 100 if quick else 20_000)
    rows = []
    for name, what in _CALLS.items():
        series = {"call": summary(samples[name])}
        target = Target("≤", 3) if name != "command" else None
        rows.append(Row(what, series["call"]["median"], "µs", target, series, "µs per call"))
    return rows


def _start(program: Path, name: str, library: str, quick: bool) -> Row:
    """Measure starts.

    The first is not counted: it fills the disk's cache and compiles the modules.
    """
    samples = [_run(program, library, 0, 0)["start"] / 1e6 for _ in range(2 if quick else 16)][1:]
    series = {"start": summary(samples)}
    return Row(
        f"start-up of {name} in a C program",
        series["start"]["median"],
        "s",
        Target("≤", 0.3),
        series,
        "s",
    )
