"""Graphs that run for minutes as CUDA Graphs: `python -m bench.cuda_soak [SECONDS]`.

Eight threads capture random chains and branches of kernels, copies and fills on buffers of random
sizes, replay them, some without waiting and some in a loop, change a Parameter, and drop them. The
numbers are compared with NumPy's. The lines say how much memory the process and the GPU have in
use after each tenth of the time.
"""

from __future__ import annotations

import ctypes
import os
import random
import sys
import threading
import time
from collections import Counter
from typing import Any, Final

import numpy as np
import psutil
import pyopencl as cl

import fairlead
import fairlead.cuda_sharing
from fairlead.loader.cuda.abi import check

_THREADS: Final = 8
_MIB: Final = 1 << 20
_SOURCE: Final = """
kernel void fold(global uint *to, global const uint *from, uint by) {
    size_t i = get_global_id(0);
    to[i] = 3 * to[i] + from[i] + by;
}
"""


class Worker:
    """A thread's queue and its numbers: buffers, and what they must hold."""

    def __init__(self, context: cl.Context, seed: int, counts: Counter[str]) -> None:
        self.random, self.counts = random.Random(seed), counts
        self.context = context
        out_of_order = cl.command_queue_properties.OUT_OF_ORDER_EXEC_MODE_ENABLE
        self.queue = cl.CommandQueue(context)
        if seed % 2:
            self.queue = cl.CommandQueue(context, properties=out_of_order)
        self.kernel = cl.Program(context, _SOURCE).build().fold

    def round(self) -> None:
        """Make a graph, replay it, and compare."""
        size = self.random.choice([64, 1000, 5000, 300_000])
        hosts = [np.full(size, number, np.uint32) for number in range(4)]
        flags = cl.mem_flags.READ_WRITE | cl.mem_flags.COPY_HOST_PTR
        buffers = [cl.Buffer(self.context, flags, hostbuf=host) for host in hosts]
        steps = [self._step() for _ in range(self.random.randrange(1, 40))]
        by = fairlead.Parameter(np.uint32(1), name="by")
        has_parameter = any(kind == "fold" and not value for kind, _, _, value in steps)
        with fairlead.capture(self.queue, name="soak") as graph:
            last: Any = None
            for kind, to, source, value in steps:
                last = self._enqueue(kind, buffers[to], buffers[source], value or by, size, last)
        loop = graph.finalize()
        for _ in range(self.random.randrange(1, 6)):
            value, times = self.random.randrange(1 << 16), self.random.randrange(1, 4)
            if has_parameter:
                loop.set(by=value)
            if self.random.random() < 0.5:
                loop.replay(self.queue, times=times)
            else:
                loop.replay(self.queue, times=times, wait=True)
            for _ in range(times):
                for kind, to, source, given in steps:
                    _do(kind, hosts[to], hosts[source], given or np.uint32(value))
            self.counts["replays"] += times
        self.counts["as CUDA Graphs"] += "a CUDA Graph" in loop.explain(self.queue)
        self.counts["graphs"] += 1
        for host, buffer in zip(hosts, buffers, strict=True):
            found = np.empty_like(host)
            self.queue.finish()
            cl.enqueue_copy(self.queue, found, buffer)
            self.counts["wrong"] += not np.array_equal(found, host)

    def _step(self) -> tuple[str, int, int, Any]:
        to, source = self.random.sample(range(4), 2)
        value = np.uint32(self.random.randrange(1, 1 << 16)) if self.random.random() < 0.7 else None
        return self.random.choice(["fold", "fold", "fold", "copy", "fill"]), to, source, value

    def _enqueue(
        self, kind: str, to: cl.Buffer, source: cl.Buffer, value: Any, size: int, last: Any
    ) -> Any:
        waits = [last] if last is not None else None
        if kind == "fold":
            return self.kernel(self.queue, (size,), None, to, source, value, wait_for=waits)
        if kind == "copy":
            return cl.enqueue_copy(self.queue, to, source, byte_count=4 * size, wait_for=waits)
        pattern = np.full(1, 7, np.uint32)
        return cl.enqueue_fill_buffer(self.queue, to, pattern, 0, 4 * size, wait_for=waits)


def _do(kind: str, to: Any, source: Any, value: Any) -> None:
    if kind == "fold":
        to *= np.uint32(3)
        to += source
        to += value
    elif kind == "copy":
        to[:] = source
    else:
        to[:] = 7


def _used() -> tuple[float, float]:
    """MiB that the process and the GPU have in use."""
    process = psutil.Process(os.getpid()).memory_info().rss / _MIB
    free, total = ctypes.c_size_t(), ctypes.c_size_t()
    with fairlead.cuda_sharing.SHARED.devices[0]:
        code = fairlead.cuda().table.cuMemGetInfo_v2(ctypes.byref(free), ctypes.byref(total))
    check(code, "cuMemGetInfo")
    return process, (total.value - free.value) / _MIB


def main() -> None:
    """Run for the seconds of the first argument, 240 without one, and print lines."""
    seconds = float(sys.argv[1]) if len(sys.argv) > 1 else 240.0
    os.environ["FAIRLEAD_COMMAND_BUFFER"] = "cuda"
    device = next(one for one in fairlead.platforms() if "NVIDIA" in one.name).devices[0]
    context, counts, failures = cl.Context([device.to_pyopencl()]), Counter[str](), list[str]()
    end = time.monotonic() + seconds

    def work(seed: int) -> None:
        try:
            worker = Worker(context, seed, counts)
            while time.monotonic() < end:
                worker.round()
        except BaseException as error:
            failures.append(repr(error))
            raise

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(_THREADS)]
    for thread in threads:
        thread.start()
    for part in range(1, 11):
        while time.monotonic() < end - seconds * (1 - part / 10):
            time.sleep(0.1)
        print(f"{part} of 10:", "{:.0f} MiB, of the GPU {:.0f} MiB".format(*_used()), dict(counts))
    for thread in threads:
        thread.join()
    print(device.name, "failures:", failures, "numbers that are wrong:", counts["wrong"])
    sys.exit(bool(failures or counts["wrong"]))


if __name__ == "__main__":
    main()
