"""A wave in three dimensions: two buffers swap their roles in each step of one command graph.

A step computes the next state and overwrites the state before. So `now` and `other` swap after each
step. Each order of the two is one command group of a `DynamicCommandGroup`. One group is active; an
update changes the executable graph to the other one. A microphone listens in the same graph.
"""

import sys
from collections.abc import Callable

import numpy as np
from comparison import compare, options

from fairlead.graph import CommandGraph, DynamicCommandGroup
from fairlead.runtime import USM, Handler, Program, Queue, malloc_shared

SPEED2 = np.float32(0.25)  # (c·dt/dx)²
TOLERANCE = 1e-4  # relative to the largest value: the rounding of all steps
KERNELS = """
kernel void advance(global const float *now, global float *other, float speed2) {
    // `other` holds the state before, and then the next one
    int x = get_global_id(0), y = get_global_id(1), z = get_global_id(2), n = get_global_size(0);
    int e = n - 1, row = n, layer = n * n, i = z * layer + y * row + x;
    float around = (x > 0 ? now[i - 1] : 0) + (x < e ? now[i + 1] : 0);
    around += (y > 0 ? now[i - row] : 0) + (y < e ? now[i + row] : 0);
    around += (z > 0 ? now[i - layer] : 0) + (z < e ? now[i + layer] : 0);
    other[i] = 2 * now[i] - other[i] + speed2 * (around - 6 * now[i]);
}
kernel void listen(global const float *next, int place, global float *heard, global int *time) {
    heard[(*time)++] = next[place];
}"""


class Wave:
    """The wave in a cube of `size`³ points on a device, and what the microphone heard."""

    def __init__(self, queue: Queue, size: int, steps: int) -> None:
        self.queue, self.size, self.steps = queue, size, steps
        self.program = Program(queue.context, KERNELS)
        self.points = [malloc_shared(size**3, np.float32, queue) for _ in range(2)]
        self.heard = malloc_shared(steps, np.float32, queue)
        self.time = malloc_shared(1, np.int32, queue)
        self.place = np.int32((size // 4 * size + size // 2) * size + size // 3)

    def reset(self) -> None:
        for points in self.points:
            points.array[:] = pulse(self.size).ravel()
        self.time.array[:] = 0

    def advance(self, now: USM, other: USM) -> Callable[[Handler], None]:
        """Return a command group: a step of the wave."""
        return lambda h: h.parallel_for((self.size,) * 3, self.program.advance, now, other, SPEED2)

    def listen(self, now: USM, other: USM) -> Callable[[Handler], None]:
        """Return a command group: the microphone after that step."""
        arguments = other, self.place, self.heard, self.time
        return lambda h: h.single_task(self.program.listen, *arguments)

    def direct(self) -> int:
        now, other = self.points
        for _ in range(self.steps):
            self.queue.submit(self.advance(now, other))
            self.queue.submit(self.listen(now, other))
            now, other = other, now
        self.queue.wait()
        return self.steps

    def record(self) -> None:
        """Make the graph of a step: two nodes, of two command groups each."""
        now, other = self.points
        self.graph = CommandGraph(self.queue)
        self.groups = []
        for group in (self.advance, self.listen):
            both = [group(now, other), group(other, now)]
            self.groups.append(DynamicCommandGroup(self.graph, both))
        advance = self.graph.add(self.groups[0])
        self.nodes = advance, self.graph.add(self.groups[1], depends_on=advance)
        self.loop = self.graph.finalize(updatable=True)

    def replayed(self) -> int:
        for step in range(self.steps):
            for group in self.groups:
                group.active_index = step % 2
            self.loop.update(self.nodes)  # changes nothing of the earlier submissions
            self.queue.graph(self.loop)
        self.queue.wait()
        return self.steps


def pulse(size: int) -> np.ndarray:
    """Return the first state: a bump in the middle of the cube, at rest."""
    x, y, z = np.meshgrid(*[np.linspace(-1, 1, size, dtype=np.float32)] * 3)
    return np.exp(-20 * (x * x + y * y + z * z))


def in_numpy(size: int, steps: int, place: int) -> np.ndarray:
    """Return what the microphone hears, without OpenCL."""
    now, before, heard = pulse(size), pulse(size), np.empty(steps, np.float32)
    for step in range(steps):
        u = np.pad(now, 1)
        around = u[1:-1, 1:-1, :-2] + u[1:-1, 1:-1, 2:] + u[1:-1, :-2, 1:-1]
        around = around + u[1:-1, 2:, 1:-1] + u[:-2, 1:-1, 1:-1] + u[2:, 1:-1, 1:-1]
        now, before = 2 * now - before + SPEED2 * (around - 6 * now), now
        heard[step] = now.flat[place]
    return heard


def main() -> bool:
    chosen = options(__doc__, size=16, steps=300)
    queue = Queue(in_order=True)  # on the device that ONEAPI_DEVICE_SELECTOR selects
    wave = Wave(queue, chosen.size, chosen.steps)
    wave.record()
    expected = in_numpy(chosen.size, chosen.steps, int(wave.place))
    problem = f"{chosen.size}³ points, {chosen.steps} steps"
    functions = wave.reset, wave.direct, wave.replayed, lambda: wave.heard.array
    return compare(queue.device, problem, wave.graph, "step", *functions, expected, TOLERANCE)


if __name__ == "__main__":
    sys.exit(not main())
