"""What a launch of many work-groups costs on the driver's threads.

It is measured once for a device, with an empty kernel. The engine `direct` asks when a launch of
its own took long: then the driver's threads may be faster.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from ...loader.base.forks import make_lock
from .._native import ffi, lib
from ..calls import build_program, call, get_address, make_queue
from ..errors import OpenCLError, check
from .commands import CommandArray, CommandList
from .engine import QueueKind
from .engines.replay import Replay
from .queue_release import release_queue

_LAUNCHES: Final = 64
_ROUNDS: Final = 8

#: Launches of so many groups are measured; those between cost as the next larger ones do.
_GROUPS: Final = (1, 16, 256, 4096)

_EMPTY: Final = b"kernel void fairlead_nothing(void) {}"

#: What a launch is taken to cost (seconds) where it cannot be measured.
_UNKNOWN: Final = 5e-6

#: By device, whether the queue is in order, and the number of groups: seconds for a launch.
_known: Final[dict[tuple[tuple[str, ...], bool, int], float]] = {}
_lock: Final = make_lock()


def measure_launch(target: QueueKind, groups: int) -> float:
    """Return what a launch of so many empty work-groups costs, in seconds."""
    size = next((size for size in _GROUPS if size >= groups), _GROUPS[-1])
    key = target.identity, target.in_order, size
    with _lock:
        if key not in _known:
            _known[key] = _measure(target, size)
        return _known[key] * max(1.0, groups / size)


def _measure(target: QueueKind, groups: int) -> float:
    try:
        with _make_empty_kernel(target.context, target.device) as kernel:
            return _measure_least_time(target, _make_launches(target, kernel, groups)) / _LAUNCHES
    except OpenCLError:
        return _UNKNOWN


def _measure_least_time(target: QueueKind, commands: CommandList) -> float:
    """The least time in seconds for the launches and the wait for their end: noise only adds."""
    queue, built = make_queue(target.context, target.device, target.properties), None
    try:
        built = Replay().build(commands, target)
        handles = [ffi.cast("void *", one) for one in (queue, *built.own_queues)]
        queues, failed = ffi.new("void *[]", handles), ffi.new("uint32_t *")
        times: list[float] = []
        for _ in range(_ROUNDS):
            start, native = time.perf_counter(), built.native
            code = native.enqueue(
                native.self, queues, len(queues), 1, 0, ffi.NULL, ffi.NULL, failed
            )
            check(code, "measuring a command-buffer")
            check(call(queue, "clFinish"), "clFinish")
            times.append(time.perf_counter() - start)
        return min(times[1:])
    finally:
        if built is not None:
            built.close()
        release_queue(queue)


def _make_launches(target: QueueKind, kernel: int, groups: int) -> CommandList:
    """Return launches of a kernel without arguments.

    They are a path for an in-order queue, and independent for an out-of-order one.
    """
    commands = CommandArray()
    for index in range(_LAUNCHES):
        arguments = lib.fl_change_arguments(ffi.NULL, 0, ffi.NULL, 0)
        after = (index - 1,) if target.in_order and index else ()
        commands.add(
            "kernel",
            after,
            global_size=(groups, 1, 1),
            local_size=(1, 1, 1),
            work_dim=1,
            has_local=groups > 1,
            kernel=kernel,
            arguments=arguments,
        )
    return CommandList(target.context, [target.device], commands.array, commands.order, commands)


@contextmanager
def _make_empty_kernel(context: int, device: int) -> Iterator[int]:
    """A kernel that does nothing. Raises OpenCLError."""
    program, code = build_program(context, device, _EMPTY), ffi.new("int32_t *")
    try:
        kernel = call(program, "clCreateKernel", b"fairlead_nothing", get_address(code))
        check(code[0], "clCreateKernel")
        try:
            yield kernel
        finally:
            call(kernel, "clReleaseKernel")
    finally:
        call(program, "clReleaseProgram")
