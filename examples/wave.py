"""A wave in two dimensions: computed by ordinary PyOpenCL calls, and by a replay of those calls.

The grid is small, so launches take most of the time. `Wave.step` is ordinary PyOpenCL code: outside
a capture block its five commands run, inside they are recorded.
"""

import argparse
import sys
from typing import Any

import numpy as np
import pyopencl as cl
import pyopencl.array as cl_array
from comparison import compare, finalize_for

import fairlead

SIZE, STEPS, BLOCK = 64, 1000, 25  # grid points in a row; steps; steps in the captured block
SPEED2, KEEP = np.float32(0.25), np.float32(0.999)  # (c·dt/dx)²; what is left after friction
COSINE, SINE = np.cos(np.float32(0.15)), np.sin(np.float32(0.15))  # the source turns by this
PLACE = np.int32(SIZE // 3 * SIZE + SIZE // 2)  # the grid point of the source
TOLERANCE = 1e-5  # relative to the largest value: the rounding of a thousand steps
KERNELS = """
kernel void laplacian(global const float *u, global float *next) {
    int x = get_global_id(0), y = get_global_id(1), n = get_global_size(0), i = y * n + x, e = n-1;
    float left = x > 0 ? u[i - 1] : 0, right = x < e ? u[i + 1] : 0;
    float above = y > 0 ? u[i - n] : 0, below = y < e ? u[i + n] : 0;
    next[i] = left + right + above + below - 4 * u[i];
}
kernel void advance(global const float *u, global float *before, global float *next, float speed2) {
    int i = get_global_id(0);
    next[i] = 2 * u[i] - before[i] + speed2 * next[i];
    before[i] = u[i];
}
kernel void damp(global float *next, float keep) { next[get_global_id(0)] *= keep; }
kernel void drive(global float *next, global float2 *phase, float cosine, float sine, int place) {
    float2 p = *phase;  // the phase of the source, which lives on the device
    *phase = (float2)(p.x * cosine - p.y * sine, p.x * sine + p.y * cosine), next[place] += p.y;
}"""


class Wave:
    """The wave on the device of a queue."""

    def __init__(self, queue: cl.CommandQueue) -> None:
        program = cl.Program(queue.context, KERNELS).build()
        self.laplacian, self.advance = program.laplacian, program.advance
        self.damp, self.drive = program.damp, program.drive
        grid: Any = cl_array.zeros(queue, (SIZE, SIZE), np.float32)
        self.now, self.before, self.next = grid, grid.copy(), grid.copy()
        self.phase: Any = cl_array.zeros(queue, 2, np.float32)
        self.buffers = [array.data for array in (self.now, self.before, self.next, self.phase)]

    def reset(self) -> None:
        self.now.fill(0)
        self.before.fill(0)
        self.phase.set(np.array([1, 0], np.float32))

    def step(self, queue: cl.CommandQueue) -> None:
        now, before, following, phase = self.buffers
        self.laplacian(queue, (SIZE, SIZE), None, now, following)
        self.advance(queue, (SIZE * SIZE,), None, now, before, following, SPEED2)
        self.damp(queue, (SIZE * SIZE,), None, following, KEEP)
        self.drive(queue, (1,), None, following, phase, COSINE, SINE, PLACE)
        cl.enqueue_copy(queue, now, following)


def in_numpy() -> np.ndarray:
    """The same wave without OpenCL."""
    now, before, x, y = *np.zeros((2, SIZE, SIZE), np.float32), np.float32(1), np.float32(0)
    for _ in range(STEPS):
        u = np.pad(now, 1)
        laplacian = u[1:-1, :-2] + u[1:-1, 2:] + u[:-2, 1:-1] + u[2:, 1:-1] - 4 * now
        now, before = (2 * now - before + SPEED2 * laplacian) * KEEP, now
        now.flat[PLACE] += y
        x, y = x * COSINE - y * SINE, x * SINE + y * COSINE
    return now


def run(device: fairlead.Device) -> bool:
    """Compute the wave directly and by replays, and print all. Return whether all is right."""
    context = cl.Context([device.to_pyopencl()])  # Intel's driver drops it with its last reference
    wave = Wave(queue := cl.CommandQueue(context))
    with fairlead.capture(queue) as graph:  # nothing runs in here
        for _ in range(BLOCK):
            wave.step(queue)
    loop, by_driver = graph.finalize(), finalize_for(graph, "replay")
    commands = len(graph) * (replays := STEPS // BLOCK)

    def direct() -> int:
        for _ in range(STEPS):
            wave.step(queue)
        queue.finish()
        return commands

    def replayed() -> int:
        return by_driver.replay(queue, replays).wait() or commands  # one native call

    problem = f"{SIZE}×{SIZE} points, {STEPS} steps in {replays} replays"
    functions = wave.reset, direct, replayed, wave.now.get, in_numpy(), TOLERANCE

    waited = {"at_once": lambda: loop.replay(queue, replays, wait=True).wait() or commands}
    return compare(device, problem, graph, "command", *functions, **waited)


def main() -> bool:
    devices = fairlead.devices()
    pocl = next((n for n, d in enumerate(devices) if "PoCL 3.0-rc2" in d.platform.version), 0)
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", type=int, default=pocl, help="its number in the list")
    parser.add_argument("--list", action="store_true", help="list the devices")
    options = parser.parse_args()
    for number, device in enumerate(devices if options.list else ()):
        print(f"{number}: {device.name} ({device.platform.version})")
    return options.list or run(devices[options.device])


if __name__ == "__main__":
    sys.exit(not main())
