"""A two-dimensional wave: computed by ordinary PyOpenCL calls, then by a replay of those same calls.

The grid is small, so most of the time goes into launching. `Wave.step` knows nothing of fairlead: outside a capture block its
five commands run, inside they are recorded. --list shows the devices, --device N chooses one, --all runs on all of them.
"""

import argparse
import sys
import time
from statistics import median

import numpy as np
import pyopencl as cl

import fairlead

SIZE, STEPS, BLOCK = 64, 1000, 25  # grid points in a row; steps in all; steps in the captured block
SPEED2, KEEP = (
    np.float32(0.25),
    np.float32(0.999),
)  # (c·dt/dx)²; what friction leaves of the wave in a step
COSINE, SINE = (
    np.cos(np.float32(0.15)),
    np.sin(np.float32(0.15)),
)  # how far the source turns in a step
PLACE = np.int32(SIZE // 3 * SIZE + SIZE // 2)  # where the source is
TOLERANCE = (
    1e-5  # how far from NumPy, in parts of the largest value: the rounding of a thousand steps
)
KERNELS = """
kernel void laplacian(global const float *u, global float *next) {
    int x = get_global_id(0), y = get_global_id(1), n = get_global_size(0), i = y * n + x, e = n - 1;
    next[i] = (x > 0 ? u[i - 1] : 0) + (x < e ? u[i + 1] : 0) + (y > 0 ? u[i - n] : 0) + (y < e ? u[i + n] : 0) - 4 * u[i];
}
kernel void advance(global const float *u, global float *before, global float *next, float speed2) {
    int i = get_global_id(0);
    next[i] = 2 * u[i] - before[i] + speed2 * next[i];
    before[i] = u[i];
}
kernel void damp(global float *next, float keep) { next[get_global_id(0)] *= keep; }
kernel void drive(global float *next, global float2 *phase, float cosine, float sine, int place) {
    float2 p = *phase;  // the source's clock, which lives on the device
    *phase = (float2)(p.x * cosine - p.y * sine, p.x * sine + p.y * cosine);
    next[place] += p.y;
}"""


class Wave:
    """The wave on a device."""

    def __init__(self, context: cl.Context) -> None:
        program, names = (
            cl.Program(context, KERNELS).build(),
            ("laplacian", "advance", "damp", "drive"),
        )
        self.laplacian, self.advance, self.damp, self.drive = (
            cl.Kernel(program, name) for name in names
        )
        sizes = (4 * SIZE * SIZE, 4 * SIZE * SIZE, 4 * SIZE * SIZE, 8)
        self.now, self.before, self.next, self.phase = (
            cl.Buffer(context, cl.mem_flags.READ_WRITE, size) for size in sizes
        )

    def reset(self, queue: cl.CommandQueue) -> None:
        for buffer in (self.now, self.before):
            cl.enqueue_copy(queue, buffer, np.zeros((SIZE, SIZE), np.float32))
        cl.enqueue_copy(queue, self.phase, np.array([1, 0], np.float32))

    def step(self, queue: cl.CommandQueue) -> None:
        points = (SIZE * SIZE,)
        self.laplacian(queue, (SIZE, SIZE), None, self.now, self.next)
        self.advance(queue, points, None, self.now, self.before, self.next, SPEED2)
        self.damp(queue, points, None, self.next, KEEP)
        self.drive(queue, (1,), None, self.next, self.phase, COSINE, SINE, PLACE)
        cl.enqueue_copy(queue, self.now, self.next)


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
    """Compute the wave both ways and print how they compare. The answer is whether both are right and the same."""
    queue, wave = cl.CommandQueue(context := cl.Context([device.to_pyopencl()])), Wave(context)
    with fairlead.capture(queue) as graph:  # nothing runs in here
        for _ in range(BLOCK):
            wave.step(queue)
    loop = graph.finalize()
    ways = {
        "direct": lambda: [wave.step(queue) for _ in range(STEPS)],
        "replayed": lambda: loop.replay(queue, STEPS // BLOCK),
    }
    results, micros = (
        {way: np.empty((SIZE, SIZE), np.float32) for way in ways},
        {way: [] for way in ways},
    )
    for way in [*ways] * 6:  # in turns, so that both meet whatever else the machine does
        wave.reset(queue)
        start = time.perf_counter()
        ways[way]()
        queue.finish()
        micros[way].append((time.perf_counter() - start) * 1e6 * BLOCK / (len(graph) * STEPS))
        cl.enqueue_copy(queue, results[way], wave.now)

    expected = in_numpy()
    print(f"{device.platform.version.strip()}: {device.name}")
    print(
        f"  {SIZE}×{SIZE} points, {STEPS} steps; the graph has {len(graph)} commands and is replayed {STEPS // BLOCK} times"
    )
    medians = {
        way: median(values[1:]) for way, values in micros.items()
    }  # the first time each kernel is compiled
    errors = {
        way: abs(result - expected).max() / abs(expected).max() for way, result in results.items()
    }
    for way in ways:
        print(
            f"  {way:9}{medians[way]:6.2f} µs per command; off NumPy by {errors[way]:.1e} (allowed: {TOLERANCE:g})"
        )
    print(f"  replaying is {medians['direct'] / medians['replayed']:.1f} times as fast")
    same = results["direct"].tobytes() == results["replayed"].tobytes()
    print(
        "  direct and replayed results agree: bit for bit"
        if same
        else "  direct and replayed results DIFFER"
    )
    return same and bool(max(errors.values()) <= TOLERANCE)


def main() -> bool | None:
    devices = fairlead.devices()
    usual = [
        number for number, device in enumerate(devices) if "PoCL 3.0-rc2" in device.platform.version
    ]  # PyPI's PoCL
    parser = argparse.ArgumentParser()
    parser.add_argument(
        "--device", type=int, choices=range(len(devices)), default=(usual or [0])[0]
    )
    parser.add_argument("--all", action="store_true")
    parser.add_argument("--list", action="store_true")
    options = parser.parse_args()
    if options.list:
        return print(
            *(
                f"{i}: {device.name} ({device.platform.version})"
                for i, device in enumerate(devices)
            ),
            sep="\n",
        )
    return not all(
        run(device) for device in (devices if options.all else [devices[options.device]])
    )


if __name__ == "__main__":
    sys.exit(main())
