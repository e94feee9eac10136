"""Heat that spreads in a plate: two buffers that exchange their roles, and time steps that grow.

Each step reads one buffer and writes the other. Its length is a Parameter, so that all steps are
one call.
"""

import sys
from typing import Any

import numpy as np
import pyopencl as cl
import pyopencl.array as cl_array
from comparison import compare, options

import fairlead
import fairlead.runtime
from fairlead.runtime.interop import to_pyopencl

TOLERANCE = 1e-5  # relative to the largest value: the rounding of some hundred steps
KERNELS = """
kernel void spread(global const float *u, global float *v, float dt) {
    int n = get_global_size(0) + 2, i = (get_global_id(1) + 1) * n + get_global_id(0) + 1;
    v[i] = u[i] + dt * (u[i - 1] + u[i + 1] + u[i - n] + u[i + n] - 4 * u[i]);
}"""


def begin(size: int) -> np.ndarray:
    """The plate: cold, with one hot edge."""
    plate = np.zeros((size + 2, size + 2), np.float32)
    plate[0] = 1
    return plate


def in_numpy(plate: np.ndarray, lengths: np.ndarray) -> np.ndarray:
    """The same without OpenCL."""
    for dt in lengths:
        around = plate[1:-1, :-2] + plate[1:-1, 2:] + plate[:-2, 1:-1] + plate[2:, 1:-1]
        plate[1:-1, 1:-1] += dt * (around - 4 * plate[1:-1, 1:-1])
    return plate


def main() -> bool:
    chosen = options(__doc__, size=64, steps=400)
    device = fairlead.runtime.Queue().device
    context = cl.Context([to_pyopencl(device)])
    queue = cl.CommandQueue(context)
    spread, size = cl.Program(context, KERNELS).build().spread, (chosen.size, chosen.size)
    steps = chosen.steps // 2 * 2  # an even number: the result is in u again
    lengths = np.linspace(0.05, 0.2, steps, dtype=np.float32)
    u: Any = cl_array.to_device(queue, begin(chosen.size))
    v: Any = u.copy()
    dt = fairlead.Parameter(lengths[0])

    with fairlead.capture(queue, swap=(u, v)) as graph:  # one step; nothing runs in here
        spread(queue, size, None, u.data, v.data, dt)
    loop = graph.finalize()

    def reset() -> None:
        u.set(begin(chosen.size))
        v.set(begin(chosen.size))

    def direct() -> int:
        before, after = u.data, v.data
        for length in lengths:
            spread(queue, size, None, before, after, length)
            before, after = after, before
        queue.finish()
        return steps

    def replayed() -> int:
        loop.replay(queue, times=steps, dt=lengths).wait()  # one native call
        return steps

    problem = f"{chosen.size}×{chosen.size} points, {steps} steps"
    right = in_numpy(begin(chosen.size), lengths), TOLERANCE
    return compare(device, problem, graph, "step", reset, direct, replayed, u.get, *right)


if __name__ == "__main__":
    sys.exit(not main())
