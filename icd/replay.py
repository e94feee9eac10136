"""Replay: a schedule becomes a `Program`, a flat C array that the native engine walks without the GIL.

A program refers to the commands in its recording's memory, which it keeps alive. It has kernels of its own, on which it sets arguments as
it goes, so one thread at a time replays it.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from statistics import median
from typing import Any, Final

from ._native import ffi, lib
from .abi import OPENCL
from .capture import OPS
from .commands import call
from .errors import check

_BARRIER: Final = 0xFFFFFFFF

#: (command or -1 for a barrier of the schedule, lane, the steps that are waited for, whether a later step waits for this one)
Step = tuple[int, int, Sequence[int], bool]


class Program:
    """`steps` over an array of `fl_command`; a last barrier on lane 0 waits for the steps in `final_waits`, if there are any.

    `owner` is whatever the array's memory belongs to.
    """

    def __init__(self, commands: Any, owner: Any, steps: Sequence[Step], final_waits: Sequence[int] = ()) -> None:
        waits: list[int] = []
        self._steps = ffi.new("fl_step[]", max(1, len(steps)))
        for target, (command, lane, step_waits, signals) in zip(self._steps, steps, strict=False):
            target.command = _BARRIER if command < 0 else command
            target.lane, target.signals = lane, signals
            target.first_wait, target.wait_count = len(waits), len(step_waits)
            waits += step_waits
        self._waits = ffi.new("uint32_t[]", waits)
        self._final = ffi.new("uint32_t[]", list(final_waits))
        self._owner = owner
        program = ffi.new(
            "fl_program *",
            {
                "commands": commands,
                "steps": self._steps,
                "step_count": len(steps),
                "waits": self._waits,
                "final_wait_count": len(final_waits),
                "final_waits": self._final,
            },
        )
        self.native = ffi.gc(program, lib.fl_release)

    def replay(self, lanes: Sequence[int], times: int, wait_list: Sequence[int]) -> tuple[int, int, int]:
        """Enqueue the program on `lanes` (queue handles).

        Returns the OpenCL code, the event's handle (the caller owns the reference), and after a failure the number of the command
        that failed (-1: a barrier of the schedule).
        """
        event, failed = ffi.new("void **"), ffi.new("uint32_t *")
        code = lib.fl_replay(
            self.native,
            [ffi.cast("void *", lane) for lane in lanes],
            len(lanes),
            times,
            len(wait_list),
            [ffi.cast("void *", one) for one in wait_list] if wait_list else ffi.NULL,
            event,
            failed,
        )
        return code, int(ffi.cast("uintptr_t", event[0])), -1 if failed[0] == _BARRIER else failed[0]


def time_of_order(
    context: int, device: int, commands: int, steps: Sequence[Step], final_waits: Sequence[int], runs: int = 3
) -> float:
    """Seconds that `steps` take on an out-of-order queue of the device when each command is an empty one: the median of some runs.

    What is measured is what the order alone costs: the barriers or the events of a schedule, in the numbers that the graph has.
    """
    code = ffi.new("int32_t *")
    flags = OPENCL["CL_QUEUE_OUT_OF_ORDER_EXEC_MODE_ENABLE"]
    queue = call(context, "clCreateCommandQueue", device, flags, int(ffi.cast("uintptr_t", code)))
    check(code[0], "clCreateCommandQueue")
    markers = ffi.new("fl_command[]", [{"op": OPS.index("marker")}] * max(1, commands))
    program = Program(markers, None, steps, final_waits)
    times = []
    try:
        for _ in range(runs):
            start = time.perf_counter()
            failed, event, _node = program.replay([queue], 1, ())
            check(failed, "measuring the order")
            check(call(queue, "clFinish"), "clFinish")
            times.append(time.perf_counter() - start)
            call(event, "clReleaseEvent")
    finally:
        call(queue, "clReleaseCommandQueue")
    return median(times)
