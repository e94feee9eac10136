"""What a driver overlaps at most: two chains of kernels of one work-group, in a C program.

The program is overlap.c. It runs the chains in every pattern that OpenCL has: one queue or two, in
order or not, fed by one thread or two, flushed or not, on halves of the device, as native kernels.
No schedule of a graph can overlap more than the best of them. It checks each result.
"""

from __future__ import annotations

import ctypes
import runpy
from functools import cache
from pathlib import Path
from random import Random
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any, Final

from .measuring import Row, ratio, turns_for
from .work import compiled, device, make_queue

_LONG: Final = 25  # µs that a kernel takes
_ABI: Final = Path(__file__).parents[1] / "icd/native/build.py"


def compiled_for_opencl(name: str) -> Any:
    """Return a C file of this folder, compiled, with this process's device."""
    with TemporaryDirectory() as folder:
        header = runpy.run_path(str(_ABI))["emit_header"]()
        Path(folder, "opencl_abi.h").write_text(header, encoding="utf-8")
        library: Any = compiled(name, "-O2", "-pthread", f"-I{folder}")
    handles = make_queue().context.int_ptr, device().to_pyopencl().int_ptr
    if library.prepare(*map(ctypes.c_void_p, handles)):
        raise SystemExit(f"{name} could not prepare")
    return library


@cache
def program() -> Any:
    """Return overlap.c, compiled, with this process's device."""
    library = compiled_for_opencl("overlap.c")
    library.pattern_name.restype, library.run.restype = ctypes.c_char_p, ctypes.c_double
    return library


def patterns() -> dict[str, int]:
    """Return the numbers of the patterns that the device can run, by their names."""
    numbers = [n for n in range(program().pattern_count()) if program().has_pattern(n)]
    return {program().pattern_name(number).decode(): number for number in numbers}


def run(name: str, turns: int) -> float:
    """Return the microseconds of a kernel with so many turns of its loop, in a pattern."""
    taken = program().run(patterns()[name], turns)
    if taken < 0:
        raise SystemExit(f"{name}: a call failed, or the order was not kept")
    return taken


def _turns(name: str) -> int:
    """Return how many turns make a kernel of 25 µs."""
    many, empty = 1 << 14, min(run(name, 0) for _ in range(31))
    taken = min(run(name, many) for _ in range(31)) - empty
    return turns_for(_LONG, many, taken)


def measure(quick: bool) -> list[Row]:
    """Measure each pattern beside one in-order queue with the same kind of kernels."""
    names = list(patterns())
    base = {name: next(n for n in names if n.split(",")[0] == name.split(",")[0]) for name in names}
    plain = names[0]
    base = {name: base[name] if name.startswith("native") else plain for name in names}
    turns = {name: _turns(name) for name in set(base.values())}
    samples: dict[str, list[float]] = {name: [] for name in names}
    lot, order = Random(1), list(names)
    for _ in range(3 if quick else 21):
        lot.shuffle(order)
        for name in order:
            samples[name].append(run(name, turns[base[name]]))
    best = min(names, key=lambda name: median(samples[name]) / median(samples[base[name]]))
    found = []
    for name in names:
        if name != base[name]:
            note = "the best of them" if name == best else ""
            found.append(ratio(f"{base[name]} ÷ {name}", samples, base[name], name, note=note))
    return found
