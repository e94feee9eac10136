"""What engines cost on a device, where they do not know it themselves: measured once for a device, with launches of an empty kernel.

The engines take turns, so that a machine that is busy for a while is so for all of them, and the least time of each counts: noise only
adds. The result is kept for the device (its platform, version, name and driver), not for a context or an address.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Final

from ...loader.base.forks import new_lock
from .._native import ffi, lib
from ..calls import address, call, new_queue
from ..errors import OpenCLError, check
from .commands import CommandArray, CommandList
from .engine import Built, Cost, Engine, QueueKind
from .leaving import leave

_LAUNCHES: Final = 64
_ROUNDS: Final = 8

#: A tie goes to the engine that runs everything: it can do more, and a measurement has its chances.
_CLEARLY: Final = 0.95

#: Launches of so many groups are measured; those between cost as the next larger ones do.
_GROUPS: Final = (1, 16, 256, 4096)

#: What a launch is taken to cost (seconds) where it cannot be measured.
_UNKNOWN: Final = 5e-6

#: By device, whether the queue is in order, and the number of groups: what engines cost, or why that could not be measured.
_known: Final[dict[tuple[tuple[str, ...], bool, int], dict[str, Cost | str]]] = {}
_lock: Final = new_lock()


def is_cheaper(engine: Engine, other: Engine, target: QueueKind, count: int) -> tuple[bool, str]:
    """Whether an engine runs so many commands in clearly less time than another one, and the figures.

    It is not where the measurement fails; the text then says why.
    """
    found = costs((engine, other), target)
    for cost in found:
        if isinstance(cost, str):
            return False, cost
    one, two = (cost for cost in found if isinstance(cost, Cost))
    return one.of(count) < _CLEARLY * two.of(count), f"{engine.name} {one}; {other.name} {two}"


def costs(engines: Sequence[Engine], target: QueueKind) -> list[Cost | str]:
    """What each engine costs on a device; a text says why that could not be measured."""
    found = {engine.name: engine.cost(target) for engine in engines}
    unknown = [engine for engine in engines if found[engine.name] is None]
    measured = _measured(unknown, target) if unknown else {}
    return [found[engine.name] or measured[engine.name] for engine in engines]


def launch_seconds(engine: Engine, target: QueueKind, groups: int) -> float:
    """What a launch of so many empty work-groups takes on an engine, in seconds; measured once for a device."""
    size = next((size for size in _GROUPS if size >= groups), _GROUPS[-1])
    found = _measured((engine,), target, size)[engine.name]
    return _UNKNOWN if isinstance(found, str) else found.each * max(1.0, groups / size)


def _measured(
    engines: Sequence[Engine], target: QueueKind, groups: int = 1
) -> dict[str, Cost | str]:
    """What engines cost that do not know it themselves, by name."""
    with _lock:
        known = _known.setdefault((target.identity, target.in_order, groups), {})
        if any(engine.name not in known for engine in engines):  # together: they take turns
            known |= zip(
                [engine.name for engine in engines], _measure(engines, target, groups), strict=True
            )
        return known


def _measure(engines: Sequence[Engine], target: QueueKind, groups: int) -> list[Cost | str]:
    try:
        with _empty_kernel(target.context, target.device) as kernel:
            seconds = _times(engines, _launches(target, kernel, groups), target)
    except OpenCLError as error:
        return [f"the measurement failed, {error}"] * len(engines)
    how = f"measured with {_LAUNCHES} empty launches"
    return [Cost(0, least / _LAUNCHES, how) for least in seconds]


def _times(engines: Sequence[Engine], commands: CommandList, target: QueueKind) -> list[float]:
    """The least time in seconds that each engine takes for the launches and the wait for their end."""
    queue, built = new_queue(target.context, target.device, target.properties), list[Built]()
    try:
        built += [engine.build(commands, target) for engine in engines]
        times: list[list[float]] = [[] for _ in engines]
        for _ in range(_ROUNDS):
            for one, taken in zip(built, times, strict=True):
                start = time.perf_counter()
                _enqueue(one, queue)
                check(call(queue, "clFinish"), "clFinish")
                taken.append(time.perf_counter() - start)
        return [min(taken[1:]) for taken in times]
    finally:
        for one in built:
            one.close()
        leave(queue)


def _enqueue(built: Built, queue: int) -> None:
    """Enqueue what an engine has built once, after nothing. Raises OpenCLError."""
    lanes = ffi.new("void *[]", [ffi.cast("void *", one) for one in (queue, *built.own_queues)])
    failed, native = ffi.new("uint32_t *"), built.native
    code = native.enqueue(native.self, lanes, len(lanes), 1, 0, ffi.NULL, ffi.NULL, failed)
    check(code, "measuring a command-buffer")


def _launches(target: QueueKind, kernel: int, groups: int) -> CommandList:
    """Launches of a kernel without arguments: a path for an in-order queue, independent ones for an out-of-order one."""
    commands = CommandArray()
    for index in range(_LAUNCHES):
        arguments = lib.fl_change_arguments(ffi.NULL, 0, ffi.NULL, 0)
        after = (index - 1,) if target.in_order and index else ()
        commands.add(
            "kernel",
            after,
            (0, 0, 0, groups, 1, 1, 1, 1, 1),
            work_dim=1,
            has_local=groups > 1,
            kernel=kernel,
            arguments=arguments,
        )
    return CommandList(target.context, [target.device], commands.array, commands.order, commands)


@contextmanager
def _empty_kernel(context: int, device: int) -> Iterator[int]:
    """A kernel that does nothing. Raises OpenCLError."""
    source = ffi.new("char[]", b"kernel void fairlead_nothing(void) {}")
    sources, code, devices = (
        ffi.new("char *[]", [source]),
        ffi.new("int32_t *"),
        ffi.new("uintptr_t[]", [device]),
    )
    program = call(context, "clCreateProgramWithSource", 1, address(sources), None, address(code))
    check(code[0], "clCreateProgramWithSource")
    try:
        check(
            call(program, "clBuildProgram", 1, address(devices), None, None, None), "clBuildProgram"
        )
        kernel = call(program, "clCreateKernel", b"fairlead_nothing", address(code))
        check(code[0], "clCreateKernel")
        try:
            yield kernel
        finally:
            call(kernel, "clReleaseKernel")
    finally:
        call(program, "clReleaseProgram")
