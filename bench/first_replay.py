"""A program of many launches, for bench/saved.py: it captures them, loads them, or runs them.

`python -m bench.first_replay WHAT FILE COUNT`, where WHAT is "capture", "load" or "launch". It
prints the seconds since its imports, and a sum of what was computed.
"""

from __future__ import annotations

import sys
import time
from typing import Any

import numpy as np
import pyopencl as cl

import fairlead

from .work import WORK_ITEMS, device, make_queue

_BUFFERS = 8
_SOURCE = """
kernel void add(global float *a, global const float *b, float s) {
    size_t i = get_global_id(0);
    a[i] += s * b[i];
}
"""


class Program:
    """Launches of `a[i] += s * b[i]`, no two in a row with the same arguments."""

    def __init__(self) -> None:
        self.queue = make_queue()
        self.program = cl.Program(self.queue.context, _SOURCE).build()
        self.kernel = self.program.add
        ones, flags = np.ones(WORK_ITEMS, np.float32), cl.mem_flags
        self.buffers = [
            cl.Buffer(self.queue.context, flags.READ_WRITE | flags.COPY_HOST_PTR, hostbuf=ones)
            for _ in range(_BUFFERS)
        ]

    def launch(self, count: int) -> None:
        """Enqueue them."""
        for number in range(count):
            a, b = (self.buffers[(number + one) % _BUFFERS] for one in (0, 3))
            self.kernel(self.queue, (WORK_ITEMS,), (WORK_ITEMS,), a, b, np.float32(number % 3))

    def capture(self, count: int) -> fairlead.CapturedGraph:
        """A graph of them."""
        with fairlead.capture(self.queue) as graph:
            self.launch(count)
        return graph


def _bytes_of(queue: Any, buffer: Any) -> bytes:
    found = np.empty(WORK_ITEMS, np.float32)
    cl.enqueue_copy(queue, found, buffer)
    return found.tobytes()


def main(what: str, path: str, count: int) -> None:
    """Run the program, and print its seconds and what the first buffer holds."""
    start = time.perf_counter()
    if what == "load":
        graph = fairlead.load(path, device())
        queue, (name, *_) = graph.new_queue(), graph.outputs
        first: Any = graph.memory[name]
        graph.finalize().replay(queue)
    else:
        program = Program()
        queue, first = program.queue, program.buffers[0]
        if what == "capture":
            program.capture(count).finalize().replay(queue)
        else:
            program.launch(count)
    queue.finish()
    seconds = time.perf_counter() - start
    print(seconds, _bytes_of(queue, first).hex())


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]))
