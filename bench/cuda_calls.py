"""Calls of command-buffers from a C program, on the adapter for CUDA: `python -m bench.cuda_calls`.

A bare cuGraphLaunch of the same graph is beside them. The adapter starts a Python of its own, as in
any C program.
"""

from __future__ import annotations

import os
import re
import runpy
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

import fairlead
from fairlead.plugins import cuda_adapter

_ROOT: Final = Path(__file__).parents[1]
_SOURCE: Final = Path(__file__).with_name("cuda_calls.c")
#: What a line may cost: so many µs, or so many times another line.
TARGETS: Final = {
    "append of a launch": 3.0,
    "finalize, a node": 4.0,
    "enqueue of 10 nodes": (1.1, "cuGraphLaunch of 10 nodes"),
    "enqueue of 1000 nodes": (1.1, "cuGraphLaunch of 1000 nodes"),
    "update of one argument": 0.6,
}


def _abi(source: str) -> Iterator[str]:
    """Yield the lines of cuda_calls_abi.h: what the source uses. Handles and void * are numbers."""
    build = runpy.run_path(str(_ROOT / "plugins/sdk/native/c_types.py"))
    yield build["emit_ur_types"]() + "typedef int CUdevice; typedef void CUDA_KERNEL_NODE_PARAMS;"
    for api in (build["read_ur"](), build["building"].read_api("cuda")):
        for function in api.functions.values():
            if re.search(rf"\b{function.name}\b", source):
                listed = ", ".join(build["declare_parameters"](function))
                yield f"typedef int32_t fn_{function.name}({listed});"


def run(driver: str) -> dict[str, float]:
    """Compile and run the program, and return µs by the name of the line.

    Args:
        driver: the path of libcuda.
    """
    text = _SOURCE.read_text(encoding="utf-8")
    with TemporaryDirectory() as folder:
        header = Path(folder, "cuda_calls_abi.h")
        header.write_text("\n".join([*_abi(text), ""]), encoding="utf-8")
        program = str(Path(folder, "cuda_calls"))
        options = ["-std=gnu11", "-O2", "-Wall", "-Wextra", "-Werror", f"-I{folder}"]
        compiler = os.environ.get("CC", "cc").split()
        subprocess.run([*compiler, *options, str(_SOURCE), "-o", program, "-ldl"], check=True)
        done = subprocess.run(
            [program, cuda_adapter(), driver], check=True, stdout=subprocess.PIPE, text=True
        )
    rows = (line.split("\t") for line in done.stdout.splitlines())
    return {name: float(value) / 1e3 for name, value in rows}


def table(found: dict[str, float]) -> Iterator[str]:
    """Yield the lines of a table in Markdown."""
    yield "| call | µs | target |"
    yield "|---|---|---|"
    for name, value in found.items():
        target, shown, met = TARGETS.get(name), "", True
        if isinstance(target, tuple):
            factor, other = target
            met, shown = value <= factor * found[other], f"≤ {factor} × {other}"
        elif target is not None:
            met, shown = value <= target, f"≤ {target:g}"
        yield f"| {name} | {f'{value:.2f}' if met else f'**{value:.2f}**'} | {shown} |"


if __name__ == "__main__":
    chosen = sys.argv[1] if len(sys.argv) > 1 else fairlead.cuda().path
    print("\n".join(table(run(chosen))))
