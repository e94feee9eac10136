"""What is measured on a device to decide how command-buffers run there: whether the driver's own are faster than the replay. Launches of
an empty kernel stand in for the program's commands."""

from __future__ import annotations

import time
from functools import cache
from typing import Final

from .._native import ffi, lib
from ..abi import OPENCL
from ..errors import OpenCLError, check
from .commands import address, call, new_queue
from .leaving import leave
from .order import Order

_LAUNCHES: Final = 64
_RUNS: Final = 6

#: A tie is the replay's: it can do more, and a measurement has its chances.
_CLEARLY: Final = 0.95


@cache
def native_is_faster(context: int, device: int, in_order: bool) -> tuple[bool, str]:
    """Whether a device's own command-buffers run launches faster than the replay, and the figures; measured once with empty
    kernels."""
    try:
        seconds = {mode: _time_of(context, device, in_order, mode) for mode in ("native", "replay")}
    except OpenCLError as error:
        return False, f"the measurement failed, {error}"
    each = ", ".join(f"{mode} {value / _LAUNCHES * 1e6:.1f} µs" for mode, value in seconds.items())
    return seconds["native"] < _CLEARLY * seconds[
        "replay"
    ], f"{each} a launch, measured with {_LAUNCHES} empty ones"


def _time_of(context: int, device: int, in_order: bool, mode: str) -> float:
    """Seconds that a command-buffer of empty launches takes: a path on an in-order queue, independent ones on an out-of-order
    one."""
    from .command_buffer import CommandBuffer, Commands  # which imports this module

    with _EmptyKernel(context, device) as kernel:
        commands = Commands()
        for index in range(_LAUNCHES):
            arguments = lib.fl_change_arguments(ffi.NULL, 0, ffi.NULL, 0)
            after = (index - 1,) if in_order and index else ()
            commands.add(
                "kernel",
                after,
                (0, 0, 0, 1, 1, 1, 1, 1, 1),
                work_dim=1,
                kernel=kernel,
                arguments=arguments,
            )
        order = Order(commands.dependencies, commands.order_only)
        queue = new_queue(
            context, device, 0 if in_order else OPENCL["CL_QUEUE_OUT_OF_ORDER_EXEC_MODE_ENABLE"]
        )
        buffer = CommandBuffer(context, [device], commands.array, order, commands, mode=mode)
        times = []
        try:
            for _ in range(_RUNS):
                start = time.perf_counter()
                code, event, _, _ = buffer.enqueue(queue, device, in_order)
                check(code, "measuring a command-buffer")
                check(call(queue, "clFinish"), "clFinish")
                times.append(time.perf_counter() - start)
                call(event, "clReleaseEvent")
        finally:
            buffer.close()
            leave(queue)
    return sorted(times[1:])[_RUNS // 2 - 1]  # the median


class _EmptyKernel:
    """`with _EmptyKernel(context, device) as kernel:` a kernel that does nothing."""

    def __init__(self, context: int, device: int) -> None:
        source = ffi.new("char[]", b"kernel void fairlead_nothing(void) {}")
        sources, code, devices = (
            ffi.new("char *[]", [source]),
            ffi.new("int32_t *"),
            ffi.new("uintptr_t[]", [device]),
        )
        self._kernel = 0
        self._program = call(
            context, "clCreateProgramWithSource", 1, address(sources), None, address(code)
        )
        check(code[0], "clCreateProgramWithSource")
        check(
            call(self._program, "clBuildProgram", 1, address(devices), None, None, None),
            "clBuildProgram",
        )
        self._kernel = call(self._program, "clCreateKernel", b"fairlead_nothing", address(code))
        check(code[0], "clCreateKernel")

    def __enter__(self) -> int:
        return self._kernel

    def __exit__(self, *_: object) -> None:
        call(self._kernel, "clReleaseKernel")
        call(self._program, "clReleaseProgram")
