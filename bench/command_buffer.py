"""The engines `replay` and `auto` on 1,000 tiny kernels, against the driver's
cl_khr_command_buffer.

Only functions are used whose parameters are the same in every version of the extension. Copies,
fills and barriers changed with 0.9.5. In every version a command-buffer may be enqueued again once
it has finished.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from statistics import median
from typing import Any

import fairlead

from .measuring import Row, Target, in_turns, ratio
from .work import WORK_ITEMS, Launches, check_same, device, finalize_for, make_queue

_EXTENSION = "cl_khr_command_buffer"
_TRIAL = 20  # replays after which `auto` has chosen
_Pointer, _Count, _Code = ctypes.c_void_p, ctypes.c_uint32, ctypes.c_int32

#: The extension's functions: their results and parameters (cl_khr_command_buffer, "New Commands").
_FUNCTIONS: dict[str, tuple[Any, ...]] = {
    "clCreateCommandBufferKHR": (_Pointer, _Count, _Pointer, _Pointer, _Pointer),
    "clCommandNDRangeKernelKHR": (
        _Code,
        *[_Pointer] * 4,
        _Count,
        *[_Pointer] * 3,
        _Count,
        *[_Pointer] * 3,
    ),
    "clFinalizeCommandBufferKHR": (_Code, _Pointer),
    "clEnqueueCommandBufferKHR": (_Code, _Count, _Pointer, _Pointer, _Count, _Pointer, _Pointer),
    "clReleaseCommandBufferKHR": (_Code, _Pointer),
}


def why_none() -> str:
    """Return why there is no such command-buffer; "" if there is."""
    return "" if _EXTENSION in device().extensions else f"the driver has no {_EXTENSION}"


class DriverCommandBuffer:
    """The launches as a finalized command-buffer of the driver's, `handle`, on their own queue."""

    def __init__(self, launches: Launches) -> None:
        self._queue = launches.queue
        self._functions = {
            name: ctypes.CFUNCTYPE(*types)(self.address(name)) for name, types in _FUNCTIONS.items()
        }
        self._queues = (ctypes.c_void_p * 1)(self._queue.int_ptr)
        code = ctypes.c_int32()
        self.handle = self._functions["clCreateCommandBufferKHR"](
            1, self._queues, None, ctypes.byref(code)
        )
        self._check(code.value, "clCreateCommandBufferKHR")
        self._record(launches)
        self._call("clFinalizeCommandBufferKHR", self.handle)

    @staticmethod
    def address(name: str) -> int:
        """Return the address of a function of the extension."""
        found = device().platform.extension_function(name)
        if not found:
            raise SystemExit(f"the driver lists {_EXTENSION} and has no {name}")
        return found

    def _record(self, launches: Launches) -> None:
        """Append every launch, each with a kernel of its own.

        PoCL 3.1 gives all commands the arguments that one kernel was given last, though the
        extension says that each command takes those of the moment.
        """
        size = (ctypes.c_size_t * 1)(WORK_ITEMS)
        self._clones = launches.clones()
        for kernel in self._clones:
            self._call(
                "clCommandNDRangeKernelKHR",
                self.handle,
                None,
                None,
                kernel.int_ptr,
                1,
                None,
                size,
                size,
                0,
                None,
                None,
                None,
            )

    def _call(self, name: str, *arguments: Any) -> None:
        self._check(self._functions[name](*arguments), name)

    def _check(self, code: int, name: str) -> None:
        if code:
            raise SystemExit(f"{name} failed with OpenCL code {code}")

    def run(self) -> None:
        """Enqueue the command-buffer and wait for its end."""
        self._call("clEnqueueCommandBufferKHR", 0, None, self.handle, 0, None, None)
        self._queue.finish()

    def release(self) -> None:
        self._call("clReleaseCommandBufferKHR", self.handle)


def measure(quick: bool) -> list[Row]:
    """Measure the driver's command-buffer, the replay, and the choice of `auto` after its trial, in
    turns."""
    what = "command-buffer of the driver ÷ replay"
    chosen = "auto ÷ the better of command-buffer and replay"
    if reason := why_none():
        return [Row(name, None, "×", note=reason) for name in (what, chosen)]
    versions = dict(device().info("CL_DEVICE_EXTENSIONS_WITH_VERSION"))
    launches = Launches(make_queue(), 100 if quick else 1000)
    with fairlead.capture(launches.queue) as graph:
        launches.call()
    loops = {name: finalize_for(graph, name) for name in ("replay", "auto")}
    native = DriverCommandBuffer(launches)

    def replayed(name: str) -> Callable[[], None]:
        def run() -> None:
            loops[name].replay(launches.queue)
            launches.queue.finish()

        return run

    actions = {"command-buffer": native.run, "replay": replayed("replay")}
    actions["auto"] = replayed("auto")
    for _ in range(_TRIAL):
        actions["auto"]()
    check_same(launches, **actions)
    samples = in_turns(actions, 5 if quick else 101, launches.count)
    native.release()
    note = f"{_EXTENSION} {'.'.join(map(str, versions[_EXTENSION]))}"
    better = min(("command-buffer", "replay"), key=lambda name: median(samples[name]))
    said = loops["auto"].explain(launches.queue).splitlines()
    taken = next(line for line in said[1:] if "not chosen" not in line)
    return [
        ratio(what, samples, "command-buffer", "replay", Target("≥", 1), note=note),
        ratio(
            chosen,
            samples,
            "auto",
            better,
            Target("≤", 1.05),
            note=f"auto: {' '.join(taken.split())}",
        ),
    ]
