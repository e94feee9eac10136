"""Single calls of the Level Zero driver from a C program: where C answers, and by Python alone.

Each sample is a fresh process, and the two ways take turns. The least of each counts. The first is
the start: the library is opened, and its devices are listed. The last two are one execution of a
list of 1,000 kernels.

    OCL_ICD_FILENAMES=… python -m bench.ze_calls [ROUNDS]

OCL_ICD_FILENAMES names the OpenCL driver, whose first device is used.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from fairlead.plugins import level_zero_driver

_SOURCE: Final = Path(__file__).with_name("ze_calls.c")
_BATCHES: Final = "10"


def build(folder: Path) -> Path:
    """Compile ze_calls.c in a folder, and return the program."""
    program = folder / "ze_calls"
    options = ["-std=gnu11", "-O2", "-Wall", "-Wextra", "-Werror"]
    compiler = os.environ.get("CC", "cc").split()
    subprocess.run([*compiler, *options, _SOURCE, "-o", program, "-ldl"], check=True)
    return program


def measure(program: Path, way: str = "c", loader: str = "") -> dict[str, float]:
    """Return what each call took, in nanoseconds.

    Args:
        program: the program.
        way: "c" or "python", for FAIRLEAD_CALLS.
        loader: the library whose exported functions are called, "" for the driver itself. The
            calls after the first that an older one lacks are not measured.
    """
    environ = {**os.environ, "FAIRLEAD_CALLS": way, "ZE_ENABLE_ALT_DRIVERS": level_zero_driver()}
    command = [str(program), loader or level_zero_driver(), _BATCHES]
    check = not loader
    done = subprocess.run(command, env=environ, check=check, capture_output=True, text=True)
    rows = [line.split() for line in done.stdout.splitlines()]
    if done.returncode:
        rows.pop()  # it says which call failed
    return {name: float(value) for name, value in rows}


def main() -> None:
    """Print a line for each call."""
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 3
    least: dict[str, dict[str, float]] = {"c": {}, "python": {}}
    with TemporaryDirectory() as name:
        program = build(Path(name))
        for _ in range(rounds):
            for way, found in least.items():
                for call, took in measure(program, way).items():
                    found[call] = min(took, found.get(call, took))
    print("| call | C, ns | Python, ns | Python ÷ C |\n|---|---|---|---|")
    for call, took in least["c"].items():
        other = least["python"][call]
        print(f"| {call} | {took:.0f} | {other:.0f} | {other / took:.1f} |")


if __name__ == "__main__":
    main()
