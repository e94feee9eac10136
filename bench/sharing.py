"""What sharing with CUDA costs PyOpenCL's calls: `python -m bench.sharing [FILE.json]`.

Ten operations of `pyopencl.array` are called in three styles: temporaries of the driver's, those of
PyOpenCL's MemoryPool, and in place. Processes with and without shared memory run by turns, and
each figure is the median of its process. Without NVIDIA's driver nothing is shared.
"""

from __future__ import annotations

import json
import os
import platform
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, Final

_INSIDE: Final = "FAIRLEAD_BENCH_SHARING"
_COUNTS: Final = 1 << 10, 1 << 16, 1 << 18, 1 << 20, 1 << 22, 1 << 24
_TURNS: Final = 4


def measure(run: Callable[[], object], finish: Callable[[], object], times: int) -> float:
    """Return the median of nine runs, in µs.

    Args:
        run: is called `times` times in a run.
        finish: is called at the end of each run.
    """
    took: list[float] = []
    for turn in range(11):
        begin = time.perf_counter()
        for _ in range(times):
            run()
        finish()
        if turn > 1:
            took.append((time.perf_counter() - begin) / times * 1e6)
    return statistics.median(took)


def inside() -> Iterator[tuple[str, Any]]:
    """Yield the device of this process, and its figures, with their names."""
    import numpy as np
    import pyopencl as cl
    import pyopencl.array as cl_array
    from pyopencl.tools import ImmediateAllocator, MemoryPool

    import fairlead

    found = fairlead.platforms()
    chosen = next((one for one in found if "NVIDIA" in one.name), found[0])
    context = cl.Context([chosen.devices[0].to_pyopencl()])
    queue, device = cl.CommandQueue(context), context.devices[0]
    yield "device", f"{device.name}, driver {device.driver_version}"

    def temporaries(x: Any, y: Any) -> Any:
        a = x * y
        b = a + x
        c = b * 2
        d = c - y
        e = d * a
        f = e + b
        g = f * c
        h = g - d
        i = h * x
        return i + e

    def in_place(x: Any, y: Any) -> None:
        for _ in range(5):
            x += y
            x *= np.float32(0.5)

    for count in _COUNTS:
        times = max(3, min(200, (1 << 24) // count))
        host = np.random.default_rng(1).random(count, np.float32)
        for style, allocator, operations in (
            ("temporaries", None, temporaries),
            ("memory pool", MemoryPool(ImmediateAllocator(queue)), temporaries),
            ("in place", None, in_place),
        ):
            x, y = (cl_array.to_device(queue, host, allocator=allocator) for _ in range(2))
            figure = measure(partial(operations, x, y), queue.finish, times)
            yield f"{style}, {count} floats", figure
    for size in (4 << 10, 1 << 20, 64 << 20):
        flags = cl.mem_flags.READ_WRITE
        figure = measure(partial(cl.Buffer, context, flags, size), queue.finish, 300)
        yield f"create and release, {size} bytes", figure


def main() -> None:
    """Measure in processes by turns, print, and write a file if one is named."""
    if os.environ.get(_INSIDE):
        print(json.dumps(dict(inside())))
        return
    figures: dict[str, dict[str, list[float]]] = {}
    device = ""
    for turn in range(_TURNS):
        for shared in ("0", "1") if turn % 2 else ("1", "0"):
            environment = {**os.environ, _INSIDE: "1", "FAIRLEAD_CUDA": shared}
            command = [sys.executable, "-m", "bench.sharing"]
            done = subprocess.run(
                command, env=environment, check=True, stdout=subprocess.PIPE, text=True
            )
            found = json.loads(done.stdout.splitlines()[-1])
            device = found.pop("device")
            for name, value in found.items():
                figures.setdefault(name, {"0": [], "1": []})[shared].append(value)
    rows = {}
    for name, both in figures.items():
        plain, shared = (statistics.median(both[which]) for which in ("0", "1"))
        rows[name] = {"not shared": plain, "shared": shared, "ratio": shared / plain, "all": both}
        print(f"{name}: {plain:.2f} µs, shared {shared:.2f} µs: {shared / plain:.2f}")
    if len(sys.argv) > 1:
        text = json.dumps(
            {"device": device, "machine": platform.platform(), "rows": rows}, indent=1
        )
        Path(sys.argv[1]).write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
