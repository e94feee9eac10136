"""`pyopencl.array` arithmetic on 1,024 floats with temporaries: called, against captured and
replayed."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, Final

import numpy as np
import pyopencl.array as cl_array

import fairlead

from .measuring import Row, Target, in_turns, ratio, summary
from .work import make_queue

#: Calls between two `finish`. Drivers queue so many.
_CALLS: Final = 100


def measure(quick: bool) -> list[Row]:
    """Take all of it, on the first device."""
    return [_expressions(quick), *_graphed(quick)]


def _graphed(quick: bool) -> list[Row]:
    """Small functions: called, replayed, and graphed; until the call returns."""
    queue, rows, more = make_queue(), list[Row](), dict[str, Any]()
    x, number = cl_array.zeros(queue, 64, np.float32), np.float32(1)
    for count in (1, 4, 16):

        def add(x: Any, number: Any, count: int = count) -> None:
            for _ in range(count):
                x += number

        graphed, p = fairlead.graphed(add), fairlead.Parameter(number)
        with fairlead.capture(queue) as graph:
            add(x, p)
        loop = graph.finalize()

        def called(add: Callable[[Any, Any], None] = add) -> None:
            for _ in range(_CALLS):
                add(x, number)

        def replay(loop: Any = loop) -> None:
            for _ in range(_CALLS):
                loop.replay(queue, p=number)

        actions = {"called": called, "replay": replay, "graphed": partial(called, graphed)}
        taken = in_turns(actions, 5 if quick else 101, _CALLS, queue.finish)
        series = {name: summary(one) for name, one in taken.items()}
        more[f"{count} operations"] = series["graphed"]["median"] - series["replay"]["median"]
        name = f"a function of {count} array operations ÷ the same, graphed"
        rows.append(ratio(name, taken, "called", "graphed", unit="µs per call"))
    most = max(more.values())
    rows.append(
        Row("a graphed function: more than a replay", most, "µs", Target("≤", 20), {}, "µs")
    )
    return rows


def _expressions(quick: bool) -> Row:
    """The same function, called and replayed in turns."""
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
    return ratio(
        "pyopencl.array ÷ replay, 1,024 floats",
        samples,
        "arrays",
        "replay",
        Target("≥", 15 if is_direct else 7),
        note=note,
    )
