"""`pyopencl.array` arithmetic on 1,024 floats with temporaries: called, against captured and
replayed."""

from __future__ import annotations

import numpy as np
import pyopencl.array as cl_array

import fairlead

from .measuring import Row, Target, in_turns, ratio
from .work import make_queue


def measure(quick: bool) -> list[Row]:
    """Measure the same function, called and replayed in turns."""
    queue = make_queue()
    random = np.random.default_rng(1).random((3, 1024), np.float32)
    x, y, z = (cl_array.to_device(queue, row) for row in random)
    out = cl_array.empty_like(x)
    expressions = 2 if quick else 20

    def step() -> None:
        for _ in range(expressions):
            out[:] = 2 * x + y * z - x
            z[:] = (z + out * x) / 4

    with fairlead.capture(queue) as graph:
        step()
    executable = graph.finalize()

    def direct() -> None:
        step()
        queue.finish()

    def replay() -> None:
        executable.replay(queue)
        queue.finish()

    results = []
    for action in (direct, replay):
        z.set(random[2])
        action()
        results.append(out.get().tobytes() + z.get().tobytes())
    if results[0] != results[1]:
        raise SystemExit("the replay does not compute what the arrays compute")
    samples = in_turns({"arrays": direct, "replay": replay}, 5 if quick else 101, len(graph))
    is_direct = "one native kernel" in executable.explain(queue)
    note = f"{len(graph)} commands{', by the engine direct' if is_direct else ''}"
    return [
        ratio(
            "pyopencl.array ÷ replay, 1,024 floats",
            samples,
            "arrays",
            "replay",
            Target("≥", 15 if is_direct else 7),
            note=note,
        )
    ]
