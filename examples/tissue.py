"""Excitable tissue, such as heart muscle: a class that holds PyOpenCL's arrays, captured as it is.

A broken wave turns into a spiral, by the equations of FitzHugh and Nagumo. `Tissue.step` is
ordinary PyOpenCL code of a kernel and of array expressions. It knows nothing of captures.
"""

import sys
from typing import Any

import numpy as np
import pyopencl as cl
import pyopencl.array as cl_array
from comparison import compare, options

import fairlead
from fairlead.runtime import devices
from fairlead.runtime.interop import to_pyopencl

THRESHOLD, RECOVERY, SLOWNESS, DT = map(np.float32, (0.1, 0.5, 0.01, 0.2))
TOLERANCE = 1e-3  # relative to the largest value: the rounding of some hundred steps
KERNELS = """
kernel void diffuse(global const float *u, global float *flow) {  // nothing leaves at the edges
    int x = get_global_id(0), y = get_global_id(1), n = get_global_size(0), e = n - 1;
    float left = u[y * n + max(x - 1, 0)], right = u[y * n + min(x + 1, e)];
    float above = u[max(y - 1, 0) * n + x], below = u[min(y + 1, e) * n + x];
    flow[y * n + x] = left + right + above + below - 4 * u[y * n + x];
}"""


def react(u: Any, w: Any, flow: Any) -> None:
    """Compute a step of the cells, in place. The arrays are of any kind."""
    current = u * (u - THRESHOLD) * (1 - u) - w
    w += DT * SLOWNESS * (RECOVERY * u - w)
    u += DT * (current + flow)


class Tissue:
    """A square sheet of cells on the device of a queue.

    Attributes:
        potential: what excites the neighbours of a cell.
        recovery: what calms a cell that was excited.
    """

    def __init__(self, queue: cl.CommandQueue, size: int) -> None:
        self.queue, self.size = queue, size
        self.diffuse = cl.Program(queue.context, KERNELS).build().diffuse
        self.potential: Any = cl_array.zeros(queue, (size, size), np.float32)
        self.recovery: Any = cl_array.zeros_like(self.potential)
        self.flow: Any = cl_array.empty_like(self.potential)
        self.reset()

    def reset(self) -> None:
        """Begin with a wave that reaches from an edge to the middle."""
        potential, recovery = begin(self.size)
        self.potential.set(potential)
        self.recovery.set(recovery)

    def step(self) -> None:
        """Go on by a step of time."""
        size = self.size, self.size
        self.diffuse(self.queue, size, None, self.potential.data, self.flow.data)
        react(self.potential, self.recovery, self.flow)


def begin(size: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the first potential and recovery."""
    potential, recovery = np.zeros((2, size, size), np.float32)
    potential[: size // 2, size // 3 : size // 2] = 1
    recovery[: size // 2, : size // 3] = 0.3
    return potential, recovery


def in_numpy(size: int, steps: int) -> np.ndarray:
    """Return the potential at the end, without OpenCL."""
    u, w = begin(size)
    for _ in range(steps):
        around = np.pad(u, 1, "edge")
        flow = around[1:-1, :-2] + around[1:-1, 2:] + around[:-2, 1:-1] + around[2:, 1:-1] - 4 * u
        react(u, w, flow)
    return u


def main() -> bool:
    chosen = options(__doc__, size=64, steps=500)
    device = devices()[0]  # the first that ONEAPI_DEVICE_SELECTOR selects
    context = cl.Context([to_pyopencl(device)])
    queue = cl.CommandQueue(context)
    tissue = Tissue(queue, chosen.size)

    with fairlead.capture(queue) as graph:  # nothing runs in here
        tissue.step()
    loop = graph.finalize()

    def called() -> int:
        for _ in range(chosen.steps):
            tissue.step()
        queue.finish()
        return chosen.steps

    def replayed() -> int:
        loop.replay(queue, times=chosen.steps).wait()  # one native call
        return chosen.steps

    problem = f"{chosen.size}×{chosen.size} cells, {chosen.steps} steps"
    right = in_numpy(chosen.size, chosen.steps), TOLERANCE
    functions = tissue.reset, called, replayed, tissue.potential.get
    return compare(device, problem, graph, "step", *functions, *right)


if __name__ == "__main__":
    sys.exit(not main())
