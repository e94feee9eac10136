"""What the programs of examples/ gain: calls ÷ replay, on every driver, as a table in Markdown.

`python -m bench.examples 3` runs each program three times. The program itself compares its calls
with its replays, in turns, and checks that both compute the same bits. A gain is the median of the
runs. The line before the table says how busy the machine was.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from statistics import median
from typing import Final

from . import machine
from .__main__ import list_drivers

_EXAMPLES: Final = Path(__file__).parents[1] / "examples"
#: What each line of the table is called, and the program with its arguments.
_PROGRAMS: Final = {
    "wave, 64²": "wave",
    "epidemic, 1,024 countries": "array_program",
    "epidemic, 1 Mi countries": "array_program --countries 1048576 --days 10",
    "heat, 64²": "heat",
    "heat, 2,048²": "heat --size 2048 --steps 10",
    "tissue (a class), 64²": "tissue",
    "tissue (a class), 1,024²": "tissue --size 1024 --steps 10",
    "conjugate gradient": "conjugate_gradient",
    "conjugate gradient, with arrays": "conjugate_gradient_arrays",
    "wave in three dimensions": "wave_3d",
    "pictures, with NumPy in between": "image_pipeline",
}
_LINE: Final = re.compile(r"(called|replayed|at once) +([\d.]+) µs per (\w+)")


def run_program(command: str, driver: str) -> tuple[float, float, str]:
    """Run a program on the driver of a library.

    Returns:
        Microseconds of a step when called, and replayed by the fastest way; and the unit.
    """
    name, *arguments = command.split()
    environ = {"OCL_ICD_VENDORS": driver, "ONEAPI_DEVICE_SELECTOR": "opencl:0"}
    done = subprocess.run(
        [sys.executable, f"{name}.py", *arguments],
        cwd=_EXAMPLES,
        env={**os.environ, **environ},
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        check=True,
    )
    taken = {kind: (float(micros), unit) for kind, micros, unit in _LINE.findall(done.stdout)}
    called, unit = taken.pop("called")
    return called, min(micros for micros, _ in taken.values()), unit


def main(turns: int) -> None:
    """Print the table.

    Args:
        turns: how often each program runs.
    """
    facts, drivers = machine.facts(), list_drivers()
    print(f"{facts['cores']} cores of {facts['cpu']}; load before {facts['load_before']}\n")
    columns = [f"{one['name']}: µs called, replayed | gain" for one in drivers]
    print(f"| program | {' | '.join(columns)} |\n{'|---' * (2 * len(drivers) + 1)}|", flush=True)
    for name, command in _PROGRAMS.items():
        cells: list[str] = []
        for driver in drivers:
            runs = [run_program(command, driver["path"]) for _ in range(turns)]
            called, replayed = median(run[0] for run in runs), median(run[1] for run in runs)
            gain = median(run[0] / run[1] for run in runs)
            cells += [f"{called:.1f}, {replayed:.1f} a {runs[0][2]}", f"{gain:.1f}"]
        print(f"| {name} | {' | '.join(cells)} |", flush=True)
    print(f"\nload after {machine.load()}")


if __name__ == "__main__":
    main(int(sys.argv[1]) if sys.argv[1:] else 3)
