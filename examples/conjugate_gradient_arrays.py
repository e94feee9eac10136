"""Conjugate gradients of `pyopencl.array`, captured as they are: Poisson's equation on a square.

No number comes back to the host: the sums, alpha and beta are arrays of one element. One call
replays the iteration until the residual is small. What follows changes nothing, since alpha is 0.
The matrix is a function. Fused, its product is calculated in the kernel of the sum that reads it.
"""

import sys
from typing import Any

import numpy as np
import pyopencl as cl
import pyopencl.array as cl_array
from comparison import compare, options
from pyopencl.elementwise import ElementwiseKernel

import fairlead
from fairlead.runtime import devices
from fairlead.runtime.interop import to_pyopencl

SMALL, TOLERANCE = 1e-6, 1e-3  # the last residual's norm, of the first; the allowed error
EVERY = 8  # replays from one look at the residual to the next
PRODUCT = """
    int column = i % SIZE, row = i / SIZE;
    float beside = (column > 0 ? p[i - 1] : 0) + (column < SIZE - 1 ? p[i + 1] : 0);
    float above = (row > 0 ? p[i - SIZE] : 0) + (row < SIZE - 1 ? p[i + SIZE] : 0);
    q[i] = 4 * p[i] - beside - above;
"""


def make_problem(size: int) -> tuple[np.ndarray, np.ndarray]:
    """Return a solution on `size`×`size` points, and the right side b of its equations."""
    x, y = np.meshgrid(*[np.linspace(0, 1, size + 2, dtype=np.float32)[1:-1]] * 2)
    solution = np.sin(3 * np.pi * x) * y * (1 - y) + x * (1 - x) * y
    u = np.pad(solution, 1)
    b = 4 * solution - u[1:-1, :-2] - u[1:-1, 2:] - u[:-2, 1:-1] - u[2:, 1:-1]
    return solution.ravel(), b.ravel()


class Solver:
    """The equations for b on a device. `x` solves them when the residual `r` is small."""

    def __init__(self, queue: cl.CommandQueue, b: np.ndarray) -> None:
        context, size = queue.context, round(b.size**0.5)
        self.b: Any = cl_array.to_device(queue, b)
        self.x, self.r, self.p, self.q = (cl_array.empty_like(self.b) for _ in range(4))
        self.rr: Any = cl_array.dot(self.b, self.b)  # of the residual
        self.is_small: Any = cl_array.zeros(queue, 1, np.int32)
        self.product: Any = ElementwiseKernel(
            context, "float *q, const float *p", PRODUCT.replace("SIZE", str(size)), "product"
        )
        end = f"{float(self.rr.get()) * SMALL**2:e}f"
        self.quotient: Any = ElementwiseKernel(
            context,
            "float *q, const float *a, const float *b, const float *rr",
            f"q[i] = rr[i] > {end} ? a[i] / b[i] : 0",
            "quotient",
        )
        self.test: Any = ElementwiseKernel(
            context, "int *is_small, const float *rr", f"is_small[i] = rr[i] <= {end}", "test"
        )

    def reset(self) -> None:
        """Begin with x = 0."""
        self.x.fill(0)
        self.r[:] = self.p[:] = self.b
        self.rr[()] = cl_array.dot(self.b, self.b)

    def divide(self, a: Any, b: Any) -> Any:
        """Return a / b, and 0 when the residual is small."""
        result = cl_array.empty_like(a)
        self.quotient(result, a, b, self.rr)
        return result

    def iterate(self) -> None:
        """Enqueue an iteration."""
        self.product(self.q, self.p)
        alpha = self.divide(self.rr, cl_array.dot(self.p, self.q))
        self.x += alpha * self.p
        self.r -= alpha * self.q
        rr = cl_array.dot(self.r, self.r)
        self.p[:] = self.r + self.divide(rr, self.rr) * self.p
        self.rr[()] = rr
        self.test(self.is_small, self.rr)


def main() -> bool:
    chosen = options(__doc__, size=64)
    device = devices()[0]  # the first that ONEAPI_DEVICE_SELECTOR selects
    context = cl.Context([to_pyopencl(device)])  # kept: Intel's driver forgets a queue's own
    queue = cl.CommandQueue(context)
    solution, b = make_problem(chosen.size)
    solver = Solver(queue, b)
    most = 10 * chosen.size

    with fairlead.capture(queue) as graph:  # nothing runs in here
        solver.iterate()
    loop = graph.finalize(fuse="wait")

    def direct() -> int:
        for number in range(1, most):
            solver.iterate()
            if solver.is_small.get()[0]:
                return number
        raise ArithmeticError("the residual is still large")

    def replayed() -> int:
        done: Any = loop.replay(queue, times=most, until=solver.is_small, every=EVERY)
        return done.replays

    functions = solver.reset, direct, replayed, solver.x.get
    problem = f"{chosen.size}×{chosen.size} unknowns"
    return compare(device, problem, graph, "iteration", *functions, solution, TOLERANCE)


if __name__ == "__main__":
    sys.exit(not main())
