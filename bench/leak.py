"""Ten thousand rounds of capture, finalize, replay and drop: the process must not grow."""

from __future__ import annotations

import gc
import os

import numpy as np
import psutil
import pyopencl.array as cl_array

import fairlead

from .measuring import Row, Target
from .work import Launches, make_queue

_MIB = 1 << 20


def measure(quick: bool) -> list[Row]:
    """Measure the resident memory after a tenth of the rounds, and after all of them."""
    rounds = 200 if quick else 10_000
    queue = make_queue()
    launches = Launches(queue, 3)
    x, y = (cl_array.to_device(queue, np.ones(1024, np.float32)) for _ in range(2))
    process, memory = psutil.Process(os.getpid()), []
    for done in range(1, rounds + 1):
        with fairlead.capture(queue) as graph:
            launches.call()
            y[:] = 2 * x + y * x  # three temporaries
        graph.finalize().replay(queue)
        queue.finish()
        del graph
        if done % (rounds // 10) == 0:
            gc.collect()
            memory.append(process.memory_info().rss / _MIB)
    series = {
        f"after {(i + 1) * rounds // 10:,} rounds": {"median": size}
        for i, size in enumerate(memory)
    }
    value = memory[-1] / memory[0]
    what = f"memory after {rounds:,} rounds ÷ after {rounds // 10:,}"
    target = (
        None if quick else Target("≤", 1.01)
    )  # memory still grows in the first rounds of a short run
    return [
        Row(what, value, "×", target, series, "MiB", note=f"{memory[0]:.1f} → {memory[-1]:.1f} MiB")
    ]
