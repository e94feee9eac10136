"""Graphs as files: saving, loading, what a node takes, the first replay in a new process, and what
recording costs a program."""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from random import Random
from typing import Final

import fairlead

from .first_replay import Program
from .measuring import Row, Target, ratio, summary
from .work import device

_ROOT: Final = Path(__file__).resolve().parent.parent
_COUNT: Final = 10_000
_PYTHON: Final = (sys.executable, "-W", "ignore", "-m")


def measure(quick: bool) -> list[Row]:
    """Measure files of many launches."""
    count, rounds = (100, 1) if quick else (_COUNT, 5)
    program = Program()
    graph = program.capture(count)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "graph.flg")
        rows = [
            _seconds("saving", count, 1, rounds, lambda: graph.save(path)),
            _seconds("loading", count, 0.5, rounds, lambda: fairlead.load(path, device())),
            Row(
                f"a file of {count:,} launches: bytes of a launch",
                path.stat().st_size / count,
                "bytes",
                Target("≤", 200),
            ),
        ]
        graph.save(path, contents="inputs")
        rows += _first_replays(path, count, rounds)
        return [*rows, _recording(path, count, rounds)]


def _seconds(
    what: str, count: int, target: float, rounds: int, action: Callable[[], object]
) -> Row:
    taken: list[float] = []
    for _ in range(rounds + 1):
        start = time.perf_counter()
        action()
        taken.append(time.perf_counter() - start)
    series = {what: summary(taken[1:])}  # the first one imports and builds
    title = f"{what} {count:,} launches"
    return Row(title, series[what]["median"], "s", Target("≤", target), series, "s")


def _run(*command: str) -> tuple[float, float, str]:
    """Run a command. Returns its seconds, those since its imports, and what it computed."""
    start = time.perf_counter()
    done = subprocess.run(command, check=True, capture_output=True, text=True, cwd=_ROOT)
    whole = time.perf_counter() - start
    seconds, result = done.stdout.split()
    return whole, float(seconds), result


def _in_turns(
    commands: Mapping[str, Sequence[str]], rounds: int
) -> tuple[dict[str, list[float]], dict[str, list[float]]]:
    """The seconds of whole processes, and those since their imports."""
    whole: dict[str, list[float]] = {name: [] for name in commands}
    since: dict[str, list[float]] = {name: [] for name in commands}
    names, lot, results = list(commands), Random(1), set[str]()
    for number in range(rounds + 1):
        lot.shuffle(names)
        for name in names:
            one, other, result = _run(*commands[name])
            results.add(result)
            if number:  # the first ones fill caches
                whole[name].append(one)
                since[name].append(other)
    if len(results) > 1:
        raise SystemExit("the programs do not compute the same")
    return whole, since


def _first_replays(path: Path, count: int, rounds: int) -> list[Row]:
    child = "bench.first_replay"
    commands = {
        name: (*_PYTHON, child, name, str(path), str(count)) for name in ("load", "capture")
    }
    whole, since = _in_turns(commands, rounds)
    title, target = f"first replay of {count:,} launches: load ÷ capture", Target("≤", 1.2)
    return [
        ratio(f"{title}, since the imports", since, "load", "capture", target, "s"),
        ratio(f"{title}, whole processes", whole, "load", "capture", target, "s"),
    ]


def _recording(path: Path, count: int, rounds: int) -> Row:
    program = (*_PYTHON, "bench.first_replay", "launch", str(path), str(count))
    fairlead_ = (sys.executable, "-m", "fairlead")
    commands = {
        "recorded": (*fairlead_, "record", "-o", f"{path}.recorded", "--", *program),
        "run": (*fairlead_, "run", "--", *program),
    }
    _, since = _in_turns(commands, rounds)
    title = f"{count:,} launches of PyOpenCL's: recorded ÷ run"
    return ratio(title, since, "recorded", "run", Target("≤", 3), "s")
