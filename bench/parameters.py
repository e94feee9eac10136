"""Parameters of captured graphs, and loops that end by themselves."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import numpy as np
import pyopencl as cl

import fairlead

from .measuring import Row, Target, in_turns, ratio, summary
from .work import WORK_ITEMS, Launches, make_queue

_LAUNCHES: Final = 100
_CALLS: Final = 1000
_SIDE: Final = 64
#: PoCL makes vector code of `relax`. With a second result, or a flag that items set, it would not.
#: `judge` compares the bits of magnitudes, which have their order: the largest whole number of a
#: row is found by vector code, the largest float is not.
_JACOBI: Final = """
kernel void relax(global const float *u, global float *v) {
    int x = get_global_id(0) + 1, y = get_global_id(1) + 1, row = SIDE + 2, at = y * row + x;
    v[at] = 0.25f * (u[at - 1] + u[at + 1] + u[at - row] + u[at + row]);
}
kernel void judge(global const float *u, global const float *v, global int *flag, float tolerance) {
    local int most[SIDE];
    int own = 0, row = (get_local_id(0) + 1) * (SIDE + 2);
    for (int at = row + 1; at <= row + SIDE; at++) {
        int bits = as_int(v[at] - u[at]) & 0x7fffffff;
        own = bits > own ? bits : own;
    }
    most[get_local_id(0)] = own;
    barrier(CLK_LOCAL_MEM_FENCE);
    if (get_local_id(0) == 0) {
        for (int i = 1; i < SIDE; i++)
            own = most[i] > own ? most[i] : own;
        flag[0] = as_float(own) <= tolerance;
    }
}
"""


def measure(quick: bool) -> list[Row]:
    """Take all of it, on the first device."""
    rounds = 5 if quick else 301
    return [*_changed(rounds), _one_argument(rounds), _until(3 if quick else 11)]


def _repeated(action: Callable[[int], object]) -> Callable[[], None]:
    def run() -> None:
        for turn in range(_CALLS):
            action(turn)

    return run


def _changed(rounds: int) -> list[Row]:
    """One number of 100 launches: set, replayed, and another one for each of many replays."""
    launches = Launches(make_queue(), _LAUNCHES)
    queue, kernel, size = launches.queue, launches.kernel, (WORK_ITEMS,)
    s = fairlead.Parameter(np.float32(1e-3))
    with fairlead.capture(queue) as graph:
        for a, b, _ in launches.arguments:
            kernel(queue, size, size, a, b, s)
    loop = graph.finalize()
    with fairlead.capture(queue) as graph:
        for a, b, _ in launches.arguments[:1]:
            kernel(queue, size, size, a, b, s)
    one = graph.finalize()
    values = np.linspace(1e-6, 1e-3, _CALLS, dtype=np.float32)
    numbers = values.tolist()

    def changed() -> None:
        loop.replay(queue, s=numbers[_LAUNCHES])
        queue.finish()

    def same() -> None:
        loop.replay(queue)
        queue.finish()

    replays = in_turns({"changed": changed, "the same": same}, rounds)
    sets = in_turns({"set": _repeated(lambda turn: loop.set(s=numbers[turn]))}, rounds // 5, _CALLS)
    steps = in_turns(
        {
            "an array": lambda: one.replay(queue, times=_CALLS, s=values),
            "one number": lambda: one.replay(queue, times=_CALLS),
        },
        rounds // 5,
        _CALLS,
        queue.finish,
    )
    series = {name: summary(taken) for name, taken in steps.items()}
    more = series["an array"]["median"] - series["one number"]["median"]
    return [
        ratio(
            "100 launches: replay with a changed Parameter ÷ replay",
            replays,
            "changed",
            "the same",
            Target("≤", 1.1),
            unit="µs per replay",
        ),
        Row(
            "setting a Parameter of 100 launches",
            summary(sets["set"])["median"],
            "µs",
            Target("≤", 1 + 0.05 * _LAUNCHES),
            {"set": summary(sets["set"])},
            "µs",
        ),
        Row(
            "a Parameter's number for each replay: more for a replay",
            more,
            "µs",
            Target("≤", 0.3),
            series,
            "µs per replay",
        ),
    ]


def _one_argument(rounds: int) -> Row:
    launches = Launches(make_queue(), _LAUNCHES)
    with fairlead.capture(launches.queue) as graph:
        launches.call()
    loop, node = graph.finalize(updatable=True), graph[_LAUNCHES // 2]
    loop.replay(launches.queue)
    numbers = np.linspace(0, 1, _CALLS, dtype=np.float32)
    action = _repeated(lambda turn: loop.set(node, 2, numbers[turn]))
    series = {"set": summary(in_turns({"set": action}, rounds // 5, _CALLS)["set"])}
    value = series["set"]["median"]
    return Row("setting an argument of a launch", value, "µs", Target("≤", 3), series, "µs")


def _until(rounds: int) -> Row:
    """Jacobi's method until it has converged: a check in each step, and a loop that ends itself."""
    queue = make_queue()
    program = cl.Program(queue.context, _JACOBI).build([f"-DSIDE={_SIDE}"])
    relax, judge, size = program.relax, program.judge, (_SIDE, _SIDE)
    host = np.zeros((_SIDE + 2, _SIDE + 2), np.float32)
    host[0] = 1
    flags = cl.mem_flags.READ_WRITE
    u, v = (cl.Buffer(queue.context, flags, host.nbytes) for _ in range(2))
    flag, word = cl.Buffer(queue.context, flags, 4), np.zeros(1, np.int32)
    judge.set_scalar_arg_dtypes([None, None, None, np.float32])
    tolerance: Any = np.float32(1e-5)

    def begin() -> None:
        for buffer in (u, v):
            cl.enqueue_copy(queue, buffer, host)
        cl.enqueue_copy(queue, flag, np.zeros(1, np.int32))

    def step(before: cl.Buffer, after: cl.Buffer) -> None:
        relax(queue, size, None, before, after)
        judge(queue, (_SIDE,), (_SIDE,), before, after, flag, tolerance)

    def checked() -> None:
        begin()
        before, after = u, v
        word[0] = 0
        while not word[0]:
            step(before, after)
            cl.enqueue_copy(queue, word, flag)
            before, after = after, before

    with fairlead.capture(queue, swap=(u, v)) as graph:
        step(u, v)
    loop = graph.finalize()

    def until() -> None:
        begin()
        loop.replay(queue, times=100_000, until=flag, every=32)

    samples = in_turns({"PyOpenCL": checked, "until": until}, rounds)
    name = (
        "Jacobi's method until it has converged, 64×64: PyOpenCL with a check in each step ÷ until="
    )
    return ratio(name, samples, "PyOpenCL", "until", Target("≥", 20), unit="µs")
