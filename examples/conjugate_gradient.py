"""Conjugate gradients: an iteration is a command graph with two arguments that change.

The equation is Poisson's on a square. The host looks at two sums once in an iteration and computes
alpha and beta. The next iteration takes them as dynamic parameters. The other two kernels are
recorded from the function that runs them directly. (The method of Chronopoulos and Gear.)
"""

import sys
from collections.abc import Callable
from functools import partial

import numpy as np
from comparison import compare, options

from fairlead.graph import CommandGraph, DynamicParameter
from fairlead.runtime import Event, Handler, Program, Queue, malloc_shared

PARTS = 64  # work-items that add up the parts of a sum
SMALL, TOLERANCE = 1e-6, 1e-3  # the final residual's norm, of the first; the allowed error
KERNELS = """
typedef global float *Vector;
kernel void advance(Vector x, Vector r, Vector w, Vector p, Vector s, float alpha, float beta) {
    size_t i = get_global_id(0);
    p[i] = r[i] + beta * p[i];
    s[i] = w[i] + beta * s[i];
    x[i] += alpha * p[i];
    r[i] -= alpha * s[i];
}
kernel void apply(Vector u, Vector out) {
    int x = get_global_id(0), y = get_global_id(1), n = get_global_size(0), i = y * n + x, e = n-1;
    float around = (x > 0 ? u[i - 1] : 0) + (x < e ? u[i + 1] : 0);
    out[i] = 4 * u[i] - around - (y > 0 ? u[i - n] : 0) - (y < e ? u[i + n] : 0);
}
kernel void sums(Vector r, Vector w, Vector rr, Vector rw, int count) {
    int part = get_global_id(0), parts = get_global_size(0);
    rr[part] = rw[part] = 0;
    for (int i = part; i < count; i += parts)
        rr[part] += r[i] * r[i], rw[part] += r[i] * w[i];
}"""


class Solver:
    """The equations on a device. `x` solves them when the residual `r` is small."""

    def __init__(self, queue: Queue, b: np.ndarray) -> None:
        self.queue, self.b, self.count = queue, b, np.int32(b.size)
        self.program = Program(queue.context, KERNELS)
        self.vectors = [malloc_shared(b.size, np.float32, queue) for _ in range(5)]
        self.x, self.r, self.w, self.p, self.s = self.vectors
        self.rr, self.rw = (malloc_shared(PARTS, np.float32, queue) for _ in range(2))

    def reset(self) -> None:
        self.x.array[:] = self.p.array[:] = self.s.array[:] = 0
        self.r.array[:] = self.b.ravel()
        self.multiply()
        self.queue.wait()

    def multiply(self, *before: Event) -> None:
        """Run, or record, the multiplication and the two sums."""
        vectors = self.r, self.w, self.rr, self.rw
        self.queue.parallel_for(self.b.shape, self.program.apply, *vectors[:2], depends_on=before)
        self.queue.parallel_for(PARTS, self.program.sums, *vectors, self.count)

    def advance(self, *numbers: np.float32 | DynamicParameter) -> Callable[[Handler], None]:
        """Return the command group of the other kernel, whose numbers are alpha and beta."""
        return lambda h: h.parallel_for(self.b.size, self.program.advance, *self.vectors, *numbers)

    def submit(self, alpha: np.float32, beta: np.float32) -> None:
        """Submit an iteration directly."""
        self.queue.submit(self.advance(alpha, beta))
        self.multiply()

    def record(self) -> None:
        """Make the graph of an iteration: an added node with parameters, and two recorded nodes."""
        self.graph = CommandGraph(self.queue)
        self.alpha, self.beta = (DynamicParameter(self.graph, np.float32(0)) for _ in range(2))
        self.node = self.graph.add(self.advance(self.alpha, self.beta))
        with self.graph.recording(self.queue):  # nothing runs in here
            self.multiply(self.node.event())
        self.iteration = self.graph.finalize(updatable=True)

    def replay(self, alpha: np.float32, beta: np.float32) -> None:
        """Submit the graph of an iteration, with new parameters."""
        self.alpha.update(alpha)
        self.beta.update(beta)
        self.iteration.update(self.node)
        self.queue.graph(self.iteration)

    def solve(self, iterate: Callable[[np.float32, np.float32], None]) -> int:
        """Iterate until the residual is small, and return the number of iterations."""
        rr, rw = (memory.array.sum(dtype=float) for memory in (self.rr, self.rw))
        end, alpha, beta = rr * SMALL**2, rr / rw, 0.0
        for number in range(1, 10 * len(self.b)):
            iterate(np.float32(alpha), np.float32(beta))
            self.queue.wait()
            before, rr, rw = rr, self.rr.array.sum(dtype=float), self.rw.array.sum(dtype=float)
            if rr <= end:
                return number
            beta = rr / before
            alpha = rr / (rw - beta * rr / alpha)
        raise ArithmeticError(f"the residual is still {rr:g}")


def main() -> bool:
    size = options(__doc__, size=64).size
    x, y = np.meshgrid(*[np.linspace(0, 1, size + 2, dtype=np.float32)[1:-1]] * 2)
    solution = np.sin(3 * np.pi * x) * y * (1 - y) + x * (1 - x) * y
    u = np.pad(solution, 1)
    b = 4 * solution - u[1:-1, :-2] - u[1:-1, 2:] - u[:-2, 1:-1] - u[2:, 1:-1]
    queue = Queue(in_order=True)  # on the device that ONEAPI_DEVICE_SELECTOR selects
    solver = Solver(queue, b)
    solver.record()
    direct, replayed = partial(solver.solve, solver.submit), partial(solver.solve, solver.replay)
    functions = solver.reset, direct, replayed, lambda: solver.x.array
    problem, right = f"{size}×{size} unknowns", (solution.ravel(), TOLERANCE)
    return compare(queue.device, problem, solver.graph, "iteration", *functions, *right)


if __name__ == "__main__":
    sys.exit(not main())
