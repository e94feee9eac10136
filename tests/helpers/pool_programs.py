"""Random programs that create, use and release buffers on several queues, beside NumPy."""

from __future__ import annotations

import random
from typing import Final

import numpy as np
import pyopencl as cl

from helpers.captures import OUT_OF_ORDER, new_queue

_SOURCE: Final = """
kernel void add(global uint *to, global const uint *from, uint more, uint n, int rounds) {
    uint x = get_global_id(0);
    if (x >= n) return;
    uint value = from[x];
    for (int i = 0; i < rounds; i++) value = value * 1664525u + more;
    to[x] = value;
}
"""
_COUNTS: Final = 64, 1 << 14, (1 << 18) + 3, 1 << 19


def _add(values: np.ndarray, more: int, rounds: int) -> np.ndarray:
    """What the kernel computes: all rounds as one multiplication and one addition."""
    factor, summand = 1, 0
    for _ in range(rounds):
        factor, summand = factor * 1664525 % 2**32, (summand * 1664525 + more) % 2**32
    return values * np.uint32(factor) + np.uint32(summand)


def run_random_program(
    context: cl.Context, seed: int, steps: int = 200, rounds: int = 4
) -> list[str]:
    """Return what differs from NumPy.

    The program has one to three queues, of which some are out of order. It comes and goes with
    queues, holds commands up by user events, and orders them by events alone.

    Args:
        rounds: how long a kernel takes.
    """
    rng = random.Random(seed)
    built = cl.Program(context, _SOURCE).build()
    kernel = built.add
    queues = [_make_queue(context, rng)]
    live: list[tuple[cl.Buffer, np.ndarray, cl.Event]] = []
    held: list[cl.UserEvent] = []
    written: list[cl.Event] = []  # PyOpenCL waits for one of them when it is dropped
    wrong: list[str] = []

    def let_go() -> None:
        while held:
            held.pop().set_status(cl.command_execution_status.COMPLETE)

    for step in range(steps):
        queue, kind = rng.choice(queues), rng.random()
        if kind < 0.2 or not live:
            values = np.random.default_rng(step).integers(
                0, 1 << 32, rng.choice(_COUNTS), np.uint32
            )
            if rng.random() < 0.3:
                flags = cl.mem_flags.READ_WRITE | cl.mem_flags.COPY_HOST_PTR
                buffer = cl.Buffer(context, flags, hostbuf=values)
                event = cl.enqueue_marker(queue)
            else:
                buffer = cl.Buffer(context, cl.mem_flags.READ_WRITE, values.nbytes)
                event = cl.enqueue_copy(queue, buffer, values, is_blocking=False)
                written.append(event)
            live.append((buffer, values, event))
        elif kind < 0.55:
            source, values, event = rng.choice(live)
            target = cl.Buffer(context, cl.mem_flags.READ_WRITE, values.nbytes)
            waits = [event]
            if rng.random() < 0.1 and len(held) < 2:
                held.append(cl.UserEvent(context))
                waits.append(held[-1])
            more, n = rng.randrange(1 << 31), values.size
            event = kernel(
                queue,
                (-(-n // 64) * 64,),
                None,
                target,
                source,
                np.uint32(more),
                np.uint32(n),
                np.int32(rounds),
                wait_for=waits,
            )
            queue.flush()
            live.append((target, _add(values, more, rounds), event))
        elif kind < 0.9:
            live.pop(rng.randrange(len(live)))
        elif kind < 0.95:
            let_go()
            buffer, values, event = live.pop(rng.randrange(len(live)))
            found = np.empty_like(values)
            cl.enqueue_copy(queue, found, buffer, wait_for=[event])
            if not np.array_equal(found, values):
                wrong.append(f"seed {seed}, step {step}: {values.size} numbers")
        elif len(queues) > 1 and rng.random() < 0.5:
            let_go()  # PoCL finishes a queue that ends
            queues.remove(queue)
        elif len(queues) < 3:
            queues.append(_make_queue(context, rng))
    let_go()
    for buffer, values, event in live:
        found = np.empty_like(values)
        cl.enqueue_copy(queues[0], found, buffer, wait_for=[event])
        if not np.array_equal(found, values):
            wrong.append(f"seed {seed}, at the end: {values.size} numbers")
    return wrong


def _make_queue(context: cl.Context, rng: random.Random) -> cl.CommandQueue:
    return new_queue(context, OUT_OF_ORDER if rng.random() < 0.3 else 0)
