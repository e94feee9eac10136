"""Calls of dpctl and a SYCL graph, through the reference adapter and Intel's.

Both run on Intel's OpenCL driver behind the same loader, that of DPC++, each in a process of its
own. The processes take turns, and the median of their medians counts.

    SYCL_CLIENTS=… OCL_ICD_FILENAMES=… python -m bench.dpctl_calls [ROUNDS]

SYCL_CLIENTS has today's DPC++ and dpctl, as the tests have it (CONTRIBUTING.md). OCL_ICD_FILENAMES
names Intel's driver. A C++ compiler compiles dpctl_graph.cpp; without one there is no graph.
"""

from __future__ import annotations

import os
import shutil
import statistics
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from fairlead.loader.base.search import find_python_libraries
from fairlead.plugins import reference_adapter

_HOME: Final = Path(os.environ["SYCL_CLIENTS"], "now")
_HERE: Final = Path(__file__).parent
#: Intel's adapter is linked into the loader. Another one is named.
_ADAPTERS: Final = {
    "Intel's": {},
    "ours": {"UR_ADAPTERS_FORCE_LOAD": reference_adapter()},
}
_TURNS: Final = 5
#: What may cost twice as much as Intel's. Everything else may cost 1.5 times as much.
_HEAVY: Final = ("malloc", "first USM", "a context")


def _libraries() -> list[str]:
    return [str(_HOME / "lib"), *find_python_libraries()]


def build(folder: Path) -> list[str] | None:
    """Compile dpctl_graph.cpp in a folder. Return its command, None without a compiler."""
    compiler = os.environ.get("CXX", "c++").split()
    if not shutil.which(compiler[0]):
        return None
    program = folder / "dpctl_graph"
    opencl = next(
        Path(one, "libOpenCL.so.1") for one in _libraries() if Path(one, "libOpenCL.so.1").exists()
    )
    options = ["-std=c++17", "-w", "-O1", "-isystem", str(_HOME / "include"), "-o", str(program)]
    linked = [str(_HOME / "lib/libsycl.so.9"), str(opencl), "-Wl,--allow-shlib-undefined"]
    subprocess.run([*compiler, *options, str(_HERE / "dpctl_graph.cpp"), *linked], check=True)
    return [str(program)]


def run(command: list[str], adapter: dict[str, str]) -> dict[str, float]:
    """Return nanoseconds by the name of the call, from one process."""
    libraries = [*_libraries(), os.environ.get("LD_LIBRARY_PATH", "")]
    environ = {
        **os.environ,
        **adapter,
        "PYTHONPATH": str(_HOME),
        "LD_LIBRARY_PATH": ":".join(filter(None, libraries)),
    }
    done = subprocess.run(
        command, check=True, stdout=subprocess.PIPE, text=True, env=environ, cwd=_HOME
    )
    rows = (line.split("\t") for line in done.stdout.splitlines())
    return {name: float(value) for name, value in rows}


def compare(rounds: int) -> Iterator[str]:
    """Yield the lines of a table in Markdown."""
    with TemporaryDirectory() as folder:
        commands = [[sys.executable, str(_HERE / "dpctl_work.py"), str(rounds)]]
        if graph := build(Path(folder)):
            commands.append(graph)
        runs: dict[str, list[dict[str, float]]] = {name: [] for name in _ADAPTERS}
        for _ in range(_TURNS):
            for name, adapter in _ADAPTERS.items():
                found = [run(command, adapter) for command in commands]
                runs[name].append({call: value for one in found for call, value in one.items()})
    yield "| call | Intel's, µs | ours, µs | ours ÷ Intel's | target |"
    yield "|---|---|---|---|---|"
    for call in runs["ours"][0]:
        theirs, ours = (statistics.median(one[call] for one in runs[name]) for name in _ADAPTERS)
        target = 2 if call.startswith(_HEAVY) else 1.5
        ratio = f"{ours / theirs:.2f}"
        shown = ratio if ours <= target * theirs else f"**{ratio}**"
        yield f"| {call} | {theirs / 1e3:.2f} | {ours / 1e3:.2f} | {shown} | ≤ {target} |"


if __name__ == "__main__":
    for line in compare(int(sys.argv[1]) if len(sys.argv) > 1 else 21):
        print(line)
