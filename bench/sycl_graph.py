"""Submissions of a SYCL graph through the reference adapter and the one on Level Zero.

Both end at the same OpenCL driver, each in a process of its own. Ours on Level Zero goes through
fairlead's Level Zero driver. The processes take turns, and the least of each counts.

    SYCL_CLIENTS=… OCL_ICD_FILENAMES=… python -m bench.sycl_graph [TURNS]

SYCL_CLIENTS has today's DPC++, as the tests have it (CONTRIBUTING.md). A C++ compiler compiles
sycl_graph.cpp. The times are CPU time of the thread that submits.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from fairlead.loader.base.search import python_libraries
from fairlead.plugins import level_zero_adapter, reference_adapter

_HOME: Final = Path(os.environ["SYCL_CLIENTS"], "now")
_SOURCE: Final = Path(__file__).with_suffix(".cpp")
_ADAPTERS: Final = {"OpenCL": reference_adapter(), "Level Zero": level_zero_adapter()}
_TARGET: Final = 1.3


def build(folder: Path) -> Path:
    """Compile sycl_graph.cpp in a folder, and return the program."""
    program = folder / "sycl_graph"
    compiler = os.environ.get("CXX", "c++").split()
    options = ["-std=c++17", "-w", "-O1", "-isystem", str(_HOME / "include"), "-o", str(program)]
    linked = [str(_HOME / "lib/libsycl.so.9"), "-Wl,--allow-shlib-undefined"]
    subprocess.run([*compiler, *options, str(_SOURCE), *linked], check=True)
    return program


def measure(program: Path, adapter: str) -> dict[str, float]:
    """Return nanoseconds of a submission by what was measured, from one process."""
    libraries = [str(_HOME / "lib"), *map(str, python_libraries())]
    environ = {
        **os.environ,
        "UR_ADAPTERS_FORCE_LOAD": adapter,
        "LD_LIBRARY_PATH": ":".join([*libraries, os.environ.get("LD_LIBRARY_PATH", "")]),
    }
    done = subprocess.run([program], check=True, stdout=subprocess.PIPE, text=True, env=environ)
    rows = (line.split("\t") for line in done.stdout.splitlines())
    return {name: float(value) for name, value in rows}


def compare(turns: int) -> Iterator[str]:
    """Yield the lines of a table in Markdown."""
    least: dict[str, dict[str, float]] = {name: {} for name in _ADAPTERS}
    with TemporaryDirectory() as folder:
        program = build(Path(folder))
        for _ in range(turns):
            for name, adapter in _ADAPTERS.items():
                for what, took in measure(program, adapter).items():
                    least[name][what] = min(took, least[name].get(what, took))
    yield "| a graph of ten copies | Level Zero, µs | OpenCL, µs | ratio | target |"
    yield "|---|---|---|---|---|"
    for what, reference in least["OpenCL"].items():
        ours = least["Level Zero"][what]
        row = f"{ours / 1e3:.1f} | {reference / 1e3:.1f} | {ours / reference:.2f} | ≤ {_TARGET}"
        yield f"| {what} | {row} |"


if __name__ == "__main__":
    for line in compare(int(sys.argv[1]) if len(sys.argv) > 1 else 5):
        print(line)
