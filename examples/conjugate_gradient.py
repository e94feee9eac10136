"""Conjugate gradients: an iteration is a command graph, two of whose arguments are new in each iteration.

The equation is Poisson's on a square: four times a point minus its neighbours is given, the points are wanted. In Chronopoulos' and Gear's
method the host looks at an iteration's sums once: it computes alpha and beta, and gives them to the next iteration through dynamic
parameters. The other two kernels are recorded from the function that runs them directly.
"""

import sys
from collections.abc import Callable

import numpy as np
from comparison import compare, options

from fairlead.graph import CommandGraph, DynamicParameter
from fairlead.runtime import Event, Handler, Program, Queue, malloc_shared

PARTS = 64  # work-items that add up the parts of a sum
SMALL, TOLERANCE = (
    1e-6,
    1e-3,
)  # where the residual's norm ends it, in parts of the first; how far off the solution may be
KERNELS = """
kernel void advance(global float *x, global float *r, global float *w, global float *p, global float *s, float alpha, float beta) {
    size_t i = get_global_id(0);
    p[i] = r[i] + beta * p[i];
    s[i] = w[i] + beta * s[i];
    x[i] += alpha * p[i];
    r[i] -= alpha * s[i];
}
kernel void apply(global const float *u, global float *out) {
    int x = get_global_id(0), y = get_global_id(1), n = get_global_size(0), i = y * n + x, e = n - 1;
    out[i] = 4 * u[i] - (x > 0 ? u[i - 1] : 0) - (x < e ? u[i + 1] : 0) - (y > 0 ? u[i - n] : 0) - (y < e ? u[i + n] : 0);
}
kernel void sums(global const float *r, global const float *w, global float *rr, global float *rw, int count) {
    int part = get_global_id(0), parts = get_global_size(0);
    rr[part] = rw[part] = 0;
    for (int i = part; i < count; i += parts) {
        rr[part] += r[i] * r[i];
        rw[part] += r[i] * w[i];
    }
}"""


class Solver:
    """The equations on a device: `x` solves them when the residual `r` is small."""

    def __init__(self, queue: Queue, b: np.ndarray) -> None:
        self.queue, self.b, self.size = queue, b, len(b)
        self.program = Program(queue.context, KERNELS)
        self.x, self.r, self.w, self.p, self.s = (
            malloc_shared(b.size, np.float32, queue) for _ in range(5)
        )
        self.rr, self.rw = (malloc_shared(PARTS, np.float32, queue) for _ in range(2))

    def reset(self) -> None:
        for memory, values in ((self.x, 0), (self.p, 0), (self.s, 0), (self.r, self.b.ravel())):
            memory.array[:] = values
        self.multiply()
        self.queue.wait()

    def multiply(self, *before: Event) -> Event:
        """Run, or record, the multiplication and the two sums."""
        self.queue.parallel_for(
            (self.size, self.size), self.program.apply, self.r, self.w, depends_on=before
        )
        return self.queue.parallel_for(
            PARTS, self.program.sums, self.r, self.w, self.rr, self.rw, np.int32(self.size**2)
        )

    def advance(
        self, alpha: np.float32 | DynamicParameter, beta: np.float32 | DynamicParameter
    ) -> Callable[[Handler], None]:
        """The command group of the rest."""
        memory = self.x, self.r, self.w, self.p, self.s
        return lambda h: h.parallel_for(self.size**2, self.program.advance, *memory, alpha, beta)

    def direct(self) -> int:
        def iterate(alpha: np.float32, beta: np.float32) -> None:
            self.queue.submit(self.advance(alpha, beta))
            self.multiply().wait()

        return self.solve(iterate)

    def record(self) -> None:
        """Make the graph of an iteration: a node whose arguments change, and what is recorded after it."""
        self.graph = CommandGraph(self.queue)
        self.alpha, self.beta = (DynamicParameter(self.graph, np.float32(0)) for _ in range(2))
        self.node = self.graph.add(self.advance(self.alpha, self.beta))
        with self.graph.recording(self.queue):  # nothing runs in here
            self.multiply(self.node.event())
        self.iteration = self.graph.finalize(updatable=True)

    def replayed(self) -> int:
        def iterate(alpha: np.float32, beta: np.float32) -> None:
            self.alpha.update(alpha)
            self.beta.update(beta)
            self.iteration.update(self.node)
            self.queue.graph(self.iteration).wait()

        return self.solve(iterate)

    def solve(self, iterate: Callable[[np.float32, np.float32], object]) -> int:
        """Iterate until the residual is small; the answer is how often."""
        rr, rw = (memory.array.sum(dtype=float) for memory in (self.rr, self.rw))
        end, alpha, beta = rr * SMALL**2, rr / rw, 0.0
        for number in range(1, 10 * self.size):
            iterate(np.float32(alpha), np.float32(beta))
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
    queue = Queue(in_order=True)  # to the device that ONEAPI_DEVICE_SELECTOR selects
    solver = Solver(queue, b)
    solver.record()
    what = f"{size}×{size} unknowns; the graph of an iteration has {len(solver.graph)} nodes"
    ways = {"direct": solver.direct, "replayed": solver.replayed}
    return compare(
        queue.device,
        what,
        "iteration",
        solver.reset,
        ways,
        lambda: solver.x.array,
        solution.ravel(),
        TOLERANCE,
    )


if __name__ == "__main__":
    sys.exit(main())
