"""Submissions of a SYCL graph through the reference adapter and the one on Level Zero.

Both end at the same OpenCL driver, each in a process of its own. Ours on Level Zero goes through
fairlead's Level Zero driver, and takes each of its paths. The processes take turns, and the least
of each counts.

    SYCL_CLIENTS=… OCL_ICD_FILENAMES=… python -m bench.sycl_graph [TURNS]

SYCL_CLIENTS has today's DPC++, as the tests have it (CONTRIBUTING.md). A C++ compiler compiles
sycl_graph.cpp. The times are CPU time of the thread that submits. Two tables follow: how long a
submission takes by the clock while the one before it runs, and what is made and called in Level
Zero for a command-buffer and ten submissions of it.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Final

from fairlead.loader.base.search import find_python_libraries
from fairlead.plugins import level_zero_adapter, reference_adapter

_HOME: Final = Path(os.environ["SYCL_CLIENTS"], "now")
_SOURCE: Final = Path(__file__).with_suffix(".cpp")
_TARGET: Final = 1.3
_GAIN: Final = 10
#: The paths, and the values of FAIRLEAD_ZE_COMMAND_BUFFER that choose them.
_PATHS: Final = {
    "one-append": "auto",
    **{name: name for name in ("immediate-append", "wait-event")},
}
#: What each path makes for a command-buffer, and calls for a submission.
_COUNTED: Final = (
    *("zeCommandListCreate", "zeCommandListCreateImmediate", "zeCommandQueueCreate"),
    *("zeCommandListImmediateAppendCommandListsExp", "zeCommandQueueExecuteCommandLists"),
    *("zeFenceHostSynchronize", "zeCommandListAppendBarrier", "zeCommandListAppendEventReset"),
)


def _libraries() -> list[str]:
    return [str(_HOME / "lib"), *find_python_libraries()]


def build(folder: Path) -> Path:
    """Compile sycl_graph.cpp in a folder, and return the program."""
    program = folder / "sycl_graph"
    compiler = os.environ.get("CXX", "c++").split()
    options = ["-std=c++17", "-w", "-O1", "-isystem", str(_HOME / "include"), "-o", str(program)]
    places = (Path(one, "libOpenCL.so.1") for one in _libraries())
    opencl = next(str(place) for place in places if place.exists())
    linked = [str(_HOME / "lib/libsycl.so.9"), opencl, "-Wl,--allow-shlib-undefined"]
    subprocess.run([*compiler, *options, str(_SOURCE), *linked], check=True)
    return program


def _run(
    program: Path, adapter: str, what: str = "", **variables: str
) -> subprocess.CompletedProcess[str]:
    environ = {
        **os.environ,
        **variables,
        "UR_ADAPTERS_FORCE_LOAD": adapter,
        "LD_LIBRARY_PATH": ":".join([*_libraries(), os.environ.get("LD_LIBRARY_PATH", "")]),
    }
    command = [str(program), *([what] if what else [])]
    return subprocess.run(command, check=True, capture_output=True, text=True, env=environ)


def measure(program: Path, adapter: str, what: str = "", **variables: str) -> dict[str, float]:
    """Return nanoseconds by what was measured, from one process."""
    done = _run(program, adapter, what, **variables)
    rows = (line.split("\t") for line in done.stdout.splitlines())
    return {name: float(value) for name, value in rows}


def count(program: Path, path: str) -> Counter[str]:
    """Return how often functions of Level Zero are called for ten submissions."""
    variables = {"FAIRLEAD_ZE_COMMAND_BUFFER": path, "FAIRLEAD_TRACE": "ze"}
    done = _run(program, level_zero_adapter(), "count", **variables)
    lines = done.stderr.splitlines()
    return Counter(name for name in _COUNTED for line in lines if f"{name}(" in line)


def compare_kernels(program: Path, turns: int) -> dict[str, list[float]]:
    """Return nanoseconds by the kind of queue: by the engine `replay`, and by all of them."""
    engines = ("replay", "auto")
    taken: dict[str, dict[str, list[float]]] = {}
    for _ in range(turns):
        for name in engines:
            found = measure(program, reference_adapter(), "kernels", FAIRLEAD_COMMAND_BUFFER=name)
            for row, took in found.items():
                taken.setdefault(row, {}).setdefault(name, []).append(took)
    return {row: [median(by[name]) for name in engines] for row, by in taken.items()}


def compare(turns: int) -> Iterator[str]:
    """Yield the lines of four tables in Markdown."""
    ways = {"OpenCL": (reference_adapter(), "auto")}
    ways |= {name: (level_zero_adapter(), path) for name, path in _PATHS.items()}
    fast: dict[str, dict[str, float]] = {name: {} for name in ways}
    slow: dict[str, dict[str, float]] = {name: {} for name in ways}
    with TemporaryDirectory() as folder:
        program = build(Path(folder))
        for _ in range(turns):
            for name, (adapter, path) in ways.items():
                for found, what in ((fast, ""), (slow, "slow")):
                    for row, took in measure(
                        program, adapter, what, FAIRLEAD_ZE_COMMAND_BUFFER=path
                    ).items():
                        found[name][row] = min(took, found[name].get(row, took))
        kernels = compare_kernels(program, turns)
        counted = {name: count(program, path) for name, path in _PATHS.items()}
    yield f"| a graph of ten copies, µs | {' | '.join(ways)} | one-append ÷ OpenCL | target |"
    yield "|---" * (len(ways) + 3) + "|"
    for row, reference in fast["OpenCL"].items():
        times = " | ".join(f"{fast[name][row] / 1e3:.1f}" for name in ways)
        yield f"| {row} | {times} | {fast['one-append'][row] / reference:.2f} | ≤ {_TARGET} |"
    yield ""
    yield f"| five branches of slow copies, µs by the clock | {' | '.join(ways)} |"
    yield "|---" * (len(ways) + 1) + "|"
    for row in slow["OpenCL"]:
        yield f"| {row} | {' | '.join(f'{slow[name][row] / 1e3:.0f}' for name in ways)} |"
    yield ""
    yield f"| ten submissions of five branches | {' | '.join(counted)} |"
    yield "|---" * (len(counted) + 1) + "|"
    for function in _COUNTED:
        yield f"| {function} | {' | '.join(str(one[function]) for one in counted.values())} |"
    yield ""
    yield "| 1,000 kernels, submission to end, µs | replay | auto | replay ÷ auto | target |"
    yield "|---" * 5 + "|"
    for row, (replay, auto) in kernels.items():
        times = f"{replay / 1e3:.0f} | {auto / 1e3:.0f} | {replay / auto:.1f}"
        yield f"| {row} | {times} | ≥ {_GAIN} |"


if __name__ == "__main__":
    for line in compare(int(sys.argv[1]) if len(sys.argv) > 1 else 5):
        print(line)
