"""A wave in three dimensions, which is damped after half of the time.

A step overwrites the state before it, so `now` and `other` swap after each step. One graph has ten
steps, with a microphone after each. Its steps are nodes of two `DynamicCommandGroup`s, one for each
order of the buffers: the free wave or the damped one. One update exchanges them in all ten nodes.
"""

import sys
from collections.abc import Callable

import numpy as np
from comparison import compare, options

from fairlead.graph import CommandGraph, DynamicCommandGroup
from fairlead.runtime import USM, Handler, Program, Queue, malloc_shared

BLOCK = 10  # steps in the graph. After an even number the buffers are where they began
SPEED2, FREE, DAMPED = map(np.float32, (0.25, 1, 0.99))  # (c·dt/dx)²; what a step keeps of a wave
TOLERANCE = 1e-4  # relative to the largest value: the rounding of all steps
KERNELS = """
kernel void advance(global const float *now, global float *other, float speed2, float kept) {
    // `other` holds the state before, and then the next one
    int x = get_global_id(0), y = get_global_id(1), z = get_global_id(2), n = get_global_size(0);
    int e = n - 1, row = n, layer = n * n, i = z * layer + y * row + x;
    float around = (x > 0 ? now[i - 1] : 0) + (x < e ? now[i + 1] : 0);
    around += (y > 0 ? now[i - row] : 0) + (y < e ? now[i + row] : 0);
    around += (z > 0 ? now[i - layer] : 0) + (z < e ? now[i + layer] : 0);
    other[i] = kept * (2 * now[i] - other[i] + speed2 * (around - 6 * now[i]));
}
kernel void listen(global const float *next, int place, global float *heard, global int *time) {
    heard[(*time)++] = next[place];
}"""


class Wave:
    """The wave in a cube of `size`³ points on a device, and what the microphone heard."""

    def __init__(self, queue: Queue, size: int, steps: int) -> None:
        self.queue, self.size, self.steps = queue, size, steps
        self.free_steps, self.program = steps // 2 // BLOCK * BLOCK, Program(queue.context, KERNELS)
        now, other = (malloc_shared(size**3, np.float32, queue) for _ in range(2))
        self.orders = (now, other), (other, now)
        self.heard, self.time = (malloc_shared(*a, queue) for a in ((steps, "f4"), (1, "i4")))
        self.place = np.int32((size // 4 * size + size // 2) * size + size // 3)

    def reset(self) -> None:
        for points in self.orders[0]:
            points.array[:] = pulse(self.size).ravel()
        self.time.array[:] = 0

    def advance(self, kept: np.float32, now: USM, other: USM) -> Callable[[Handler], None]:
        """Return a command group: a step of the wave."""
        arguments = (self.size,) * 3, self.program.advance, now, other, SPEED2, kept
        return lambda h: h.parallel_for(*arguments)

    def listen(self, now: USM, other: USM) -> Callable[[Handler], None]:
        """Return a command group: the microphone after that step."""
        arguments = other, self.place, self.heard, self.time
        return lambda h: h.single_task(self.program.listen, *arguments)

    def direct(self) -> int:
        for step in range(self.steps):
            kept = FREE if step < self.free_steps else DAMPED
            self.queue.submit(self.advance(kept, *self.orders[step % 2]))
            self.queue.submit(self.listen(*self.orders[step % 2]))
        self.queue.wait()
        return self.steps

    def record(self) -> None:
        """Make the graph of ten steps."""
        self.graph, self.nodes, last = CommandGraph(self.queue), [], []
        both = [[self.advance(kept, *pair) for kept in (FREE, DAMPED)] for pair in self.orders]
        self.groups = [DynamicCommandGroup(self.graph, one) for one in both]
        for step in range(BLOCK):
            self.nodes.append(self.graph.add(self.groups[step % 2], depends_on=last))
            last = self.graph.add(self.listen(*self.orders[step % 2]), depends_on=self.nodes[-1])
        self.loop = self.graph.finalize(updatable=True)

    def replayed(self) -> int:
        for step in range(0, self.steps, BLOCK):
            if step in (0, self.free_steps):
                for group in self.groups:
                    group.active_index = int(step >= self.free_steps)
                self.loop.update(self.nodes)  # changes nothing of the earlier submissions
            self.queue.graph(self.loop)
        self.queue.wait()
        return self.steps


def pulse(size: int) -> np.ndarray:
    """Return the first state: a bump in the middle of the cube, at rest."""
    x, y, z = np.meshgrid(*[np.linspace(-1, 1, size, dtype=np.float32)] * 3)
    return np.exp(-20 * (x * x + y * y + z * z))


def in_numpy(size: int, steps: int, free_steps: int, place: int) -> np.ndarray:
    """Return what the microphone hears, without OpenCL."""
    now, before, heard = pulse(size), pulse(size), np.empty(steps, np.float32)
    for step in range(steps):
        u = np.pad(now, 1)
        around = sum(np.roll(u, by, axis)[1:-1, 1:-1, 1:-1] for by in (1, -1) for axis in range(3))
        kept = FREE if step < free_steps else DAMPED
        now, before = kept * (2 * now - before + SPEED2 * (around - 6 * now)), now
        heard[step] = now.flat[place]
    return heard


def main() -> bool:
    chosen = options(__doc__, size=16, steps=300)
    queue = Queue(in_order=True)  # on the device that ONEAPI_DEVICE_SELECTOR selects
    wave = Wave(queue, chosen.size, chosen.steps // BLOCK * BLOCK or BLOCK)
    wave.record()
    expected = in_numpy(chosen.size, wave.steps, wave.free_steps, int(wave.place))
    problem = queue.device, f"{wave.size}³ points, {wave.steps} steps", wave.graph, "step"
    functions = wave.reset, wave.direct, wave.replayed, lambda: wave.heard.array
    return compare(*problem, *functions, expected, TOLERANCE)


if __name__ == "__main__":
    sys.exit(not main())
