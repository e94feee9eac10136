"""The engine `direct` beside the same calls in a C loop, and a graph's finalize."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any, Final

import numpy as np
import pyopencl as cl

import fairlead

from .measuring import Row, Target, in_turns, ratio, summary
from .replay import Arguments
from .work import c_loop, driver_function, finalize_for, make_queue, two_threads

_SOURCE: Final = """
kernel void add(global float *a, global const float *b, float s) {
    size_t i = get_global_id(0);
    a[i] += s * b[i];
}
"""


class Chain:
    """`count` launches of so many work-items, each after the one before it."""

    def __init__(self, count: int, items: int, local: int) -> None:
        self.queue, self.count = make_queue(), count
        self.context, self.size, self.local = self.queue.context, (items,), (local,)
        self.program = cl.Program(self.context, _SOURCE).build()
        self.kernel = cl.Kernel(self.program, "add")
        flags = cl.mem_flags.READ_WRITE | cl.mem_flags.COPY_HOST_PTR
        self.start = np.random.default_rng(1).random(items, np.float32)
        self.a, self.b = (cl.Buffer(self.context, flags, hostbuf=self.start) for _ in range(2))
        self.values = [np.float32(1e-3 * (1 + number % 97)) for number in range(count)]
        self._native = (Arguments * count)(
            *((self.a.int_ptr, self.b.int_ptr, value) for value in self.values)
        )
        names = "clEnqueueNDRangeKernel", "clSetKernelArg", "clFinish"
        self._functions = *map(driver_function, names), None, None

    def capture(self) -> Any:
        """The launches as a graph."""
        with fairlead.capture(self.queue) as graph:
            for value in self.values:
                self.kernel(self.queue, self.size, self.local, self.a, self.b, value)
        return graph

    def in_c(self) -> None:
        """The launches in a C loop."""
        handles = (
            ctypes.c_void_p(self.queue.int_ptr),
            ctypes.c_void_p(self.kernel.int_ptr),
            self._native,
        )
        numbers = map(ctypes.c_size_t, (self.count, *self.size, *self.local))
        if c_loop().set_and_launch(*self._functions, *handles, *numbers):
            raise SystemExit("the C loop failed")

    def result_of(self, action: Callable[[], object]) -> bytes:
        """What an action leaves in the buffer, bit for bit."""
        cl.enqueue_copy(self.queue, self.a, self.start)
        action()
        found = np.empty_like(self.start)
        cl.enqueue_copy(self.queue, found, self.a)
        return found.tobytes()


def _rows(what: str, chain: Chain, quick: bool, waited: Target, queued: Target) -> list[Row]:
    graph, queue = chain.capture(), chain.queue
    # with "auto" the compiler of fused kernels would run beside the first rounds
    auto, replay = graph.finalize(fuse="wait"), finalize_for(graph, "replay")
    for _ in range(50):  # by then it is known whether the fused kernels are faster
        auto.replay(queue, wait=True)

    def enqueued(loop: Any) -> Callable[[], None]:
        def run() -> None:
            loop.replay(queue)
            queue.finish()

        return run

    actions = {
        "C loop": chain.in_c,
        "replay": enqueued(replay),
        "auto": enqueued(auto),
        "auto, waited for": lambda: auto.replay(queue, wait=True),
    }
    expected = chain.result_of(chain.in_c)
    for name, action in actions.items():
        for _ in range(4):  # by then it is known which launches are left to the driver
            if chain.result_of(action) != expected:
                raise SystemExit(f"{name} does not compute what the C loop computes")
    samples = in_turns(actions, 5 if quick else 51, chain.count)
    return [
        ratio(f"{what}: C loop ÷ auto, waited for", samples, "C loop", "auto, waited for", waited),
        ratio(f"{what}: C loop ÷ auto, in the queue", samples, "C loop", "auto", queued),
        ratio(f"{what}: auto ÷ replay", samples, "auto", "replay", Target("≤", 1.05)),
    ]


def _bound(what: str, chain: Chain, quick: bool) -> Row:
    """What no engine can beat on two processors: the least time of two threads of plain C."""
    a, b, times = chain.start.copy(), chain.start, 3 * chain.count
    sizes = ctypes.c_size_t(a.size), ctypes.c_size_t(times)

    def in_plain_c() -> None:
        pointers = ctypes.c_void_p(a.ctypes.data), ctypes.c_void_p(b.ctypes.data)
        if two_threads().add_by_two(*pointers, *sizes):
            raise SystemExit("two threads of plain C failed")

    in_plain_c()
    if not np.allclose(a, b * (1 + 1e-6 * times), rtol=1e-4):
        raise SystemExit("two threads of plain C do not compute what the launches compute")
    taken = in_turns({"two threads": in_plain_c}, 5 if quick else 51, times)["two threads"]
    series = {"two threads": summary(taken)}
    name = f"{what}: two threads of plain C, the least time of a launch"
    return Row(name, min(taken), "µs", None, series, "µs per launch")


def _finalize(chain: Chain, quick: bool) -> Row:
    """A graph's finalize and first replay. The kernel's library is in PoCL's cache."""
    graph, queue = chain.capture(), chain.queue
    kept = finalize_for(graph, "direct")  # what is known of the program and the device stays known
    kept.replay(queue).wait()
    actions = {
        name: lambda name=name: finalize_for(graph, name).replay(queue).wait()
        for name in ("direct", "replay")
    }
    samples = in_turns(actions, 3 if quick else 21, chain.count)
    what = "finalize and first replay, 1,000 kernels: direct ÷ replay"
    return ratio(what, samples, "direct", "replay", Target("≤", 1.5))


def measure(quick: bool) -> list[Row]:
    """Measure chains of several sizes; nothing where the engine is off."""
    count = 1000
    small = Chain(count, 64, 64)
    probe = finalize_for(small.capture(), "direct").explain(small.queue)
    if "one native kernel" not in probe:
        return [Row("the engine direct", None, "", note="it is off on this driver")]
    at_least = [Target("≥", bound) for bound in (100, 12, 30, 10, 2, 1.3)]
    middle, large = Chain(100, 65536, 256), Chain(50, 1 << 20, 256)
    return [
        *_rows("1,000 kernels of one group", small, quick, *at_least[:2]),
        *_rows("1,000 kernels of 16 groups", Chain(count, 1024, 64), quick, *at_least[2:4]),
        *_rows("100 kernels of 256 groups", middle, quick, *[at_least[4]] * 2),
        _bound("100 kernels of 256 groups", middle, quick),
        *_rows("50 kernels of 4,096 groups", large, quick, *[at_least[5]] * 2),
        _bound("50 kernels of 4,096 groups", large, quick),
        _finalize(small, quick),
    ]
