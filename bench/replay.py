"""A replay of 1,000 tiny kernels against the same calls in a C loop, and against PyOpenCL's
calls."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any, Final

import fairlead

from .measuring import Row, Target, in_turns, ratio
from .work import WORK_ITEMS, Launches, c_loop, check_same, driver_function, make_queue

_CALLS: Final = 20


class Arguments(ctypes.Structure):
    _fields_ = [("a", ctypes.c_void_p), ("b", ctypes.c_void_p), ("s", ctypes.c_float)]


class Loops:
    """The launches in C.

    `launch` has a kernel for each, `set_and_launch` one kernel whose arguments are set each time.
    `set_launch_and_mark` adds an event of the end.
    """

    def __init__(self, launches: Launches) -> None:
        self._enqueue, self._set, self._finish = map(
            driver_function, ("clEnqueueNDRangeKernel", "clSetKernelArg", "clFinish")
        )
        self._mark = (
            driver_function("clEnqueueMarkerWithWaitList"),
            driver_function("clReleaseEvent"),
        )
        self._queue, self._kernel = (
            ctypes.c_void_p(launches.queue.int_ptr),
            ctypes.c_void_p(launches.kernel.int_ptr),
        )
        self._end = (
            ctypes.c_size_t(launches.count),
            ctypes.c_size_t(WORK_ITEMS),
            ctypes.c_size_t(WORK_ITEMS),
        )
        self._clones = launches.clones()
        self._kernels = (ctypes.c_void_p * launches.count)(
            *(kernel.int_ptr for kernel in self._clones)
        )
        self._values = (Arguments * launches.count)(
            *((a.int_ptr, b.int_ptr, s) for a, b, s in launches.arguments)
        )

    def launch(self) -> None:
        self._check(
            c_loop().launch(self._enqueue, self._finish, self._queue, self._kernels, *self._end)
        )

    def set_and_launch(self) -> None:
        self._set_and_launch(None, None)

    def set_launch_and_mark(self) -> None:
        self._set_and_launch(*self._mark)

    def _set_and_launch(self, mark: Any, release: Any) -> None:
        functions = self._enqueue, self._set, self._finish, mark, release
        self._check(
            c_loop().set_and_launch(*functions, self._queue, self._kernel, self._values, *self._end)
        )

    def _check(self, code: int) -> None:
        if code:
            raise SystemExit(f"the C loop failed with OpenCL code {code}")


def _one_kernel(quick: bool) -> list[Row]:
    """Measure how long calls take to return, and to the end of the kernel: a replay of one kernel,
    and PyOpenCL's call, types declared."""
    launches = Launches(make_queue(), 1)
    with fairlead.capture(launches.queue) as graph:
        launches.call()
    executable = graph.finalize()

    def repeated(action: Callable[[], object]) -> Callable[[], None]:
        def run() -> None:
            for _ in range(_CALLS):
                action()

        return run

    queue, kernel, size = launches.queue, launches.typed_kernel, (WORK_ITEMS,)
    ((a, b, s),) = launches.arguments

    def finished() -> None:
        kernel(queue, size, size, a, b, s)
        queue.finish()

    actions = {
        "replay": repeated(lambda: executable.replay(queue)),
        "PyOpenCL": repeated(lambda: kernel(queue, size, size, a, b, s)),
        "replay, waited for": repeated(lambda: executable.replay(queue, wait=True)),
        "PyOpenCL, finish": repeated(finished),
    }
    samples = in_turns(actions, 5 if quick else 1001, _CALLS, queue.finish)
    what, unit, bound = "a graph of one kernel: replay", "µs per call", Target("≤", 0.8)
    waited = "replay, waited for", "PyOpenCL, finish"
    return [
        ratio(f"{what} ÷ PyOpenCL call", samples, "replay", "PyOpenCL", bound, unit=unit),
        ratio(f"{what}, waited for ÷ call and finish", samples, *waited, bound, unit=unit),
    ]


def measure(quick: bool) -> list[Row]:
    """Measure replay, C loops and PyOpenCL calls, in turns."""
    launches = Launches(make_queue(), 100 if quick else 1000)
    with fairlead.capture(launches.queue) as graph:
        launches.call()
    executable, loops = graph.finalize(), Loops(launches)

    def replay() -> None:
        executable.replay(launches.queue)
        launches.queue.finish()

    actions: dict[str, Any] = {
        "replay": replay,
        "C loop": loops.launch,
        "C loop, clSetKernelArg": loops.set_and_launch,
        "PyOpenCL": launches.call_and_finish,
        "PyOpenCL, types declared": launches.call_typed,
    }
    check_same(launches, **actions)
    samples = in_turns(actions, 5 if quick else 101, launches.count)
    return [
        ratio(
            "replay ÷ C loop, 1,000 tiny kernels", samples, "replay", "C loop", Target("≤", 1.05)
        ),
        ratio(
            "replay ÷ C loop that sets the arguments", samples, "replay", "C loop, clSetKernelArg"
        ),
        ratio(
            "PyOpenCL ÷ replay, 1,000 tiny kernels", samples, "PyOpenCL", "replay", Target("≥", 6)
        ),
        ratio("PyOpenCL ÷ C loop: the bound of the engine replay", samples, "PyOpenCL", "C loop"),
        ratio(
            "PyOpenCL with argument types declared ÷ replay",
            samples,
            "PyOpenCL, types declared",
            "replay",
        ),
        *_one_kernel(quick),
    ]
