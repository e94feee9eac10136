"""Appends to immediate lists that are enqueued at once, by one call of the OpenCL driver.

Where a command has to wait for an event that nobody has signaled yet, or earlier commands do,
nothing is done here: the append makes a recording, which keeps its arguments (recording.py). So it
does while the list is captured."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import Any, Final

from ...icd.command_buffer.lifetimes import Lifetimes
from ...loader.base.operations import TransferCommand
from .core import driver
from .enqueues import COPIES, enqueue, make_copy
from .events import ZeEvent
from .kernels import LaunchShape, ZeKernel
from .lists import ZeCommandList
from .streams import StepRun, Stream, StreamStep, get_order_lock, run_now

_Sizes: Final = ctypes.c_size_t * 3

#: Host memory that commands use, until they have ended.
_unfinished: Final = Lifetimes()
driver.after_queues.append(_unfinished.release_finished)


def _run(
    made: ZeCommandList,
    run: StepRun | None,
    waits: Sequence[ZeEvent],
    effects: Sequence[tuple[ZeEvent, bool]],
) -> bool:
    """Enqueue a command at once. Returns whether that is possible."""
    stream = made.stream
    assert stream is not None
    if made.capture is not None:
        return False
    timed = [event for event, signaled in effects if signaled and event.has_times]
    with get_order_lock():
        if not stream.can_run(waits):
            return False
        run_now(stream, StreamStep(waits, run, effects, timed))
    made.finish_append()
    return True


def _list_effects(signal: ZeEvent | None) -> Sequence[tuple[ZeEvent, bool]]:
    return [(signal, True)] if signal is not None else ()


def launch_at_once(
    made: ZeCommandList,
    kernel: ZeKernel,
    shape: LaunchShape,
    signal: ZeEvent | None,
    waits: Sequence[ZeEvent],
) -> bool:
    """Enqueue a launch. Returns whether that is possible."""
    numbers, table = shape.numbers, kernel.ur.table

    def run(stream: Stream, _: StreamStep, before: Sequence[int]) -> int:
        offsets = _Sizes(*numbers[0:3]) if any(shape.offsets) else None
        given = shape.dim, offsets, _Sizes(*numbers[3:6]), _Sizes(*numbers[6:9])
        with kernel.ur.lock:
            function, routine = table.clEnqueueNDRangeKernel, "clEnqueueNDRangeKernel"
            return enqueue(function, routine, before, stream.cl, kernel.ur.cl, *given)

    return _run(made, run, waits, _list_effects(signal))


def transfer_at_once(
    made: ZeCommandList,
    transfer: TransferCommand,
    signal: ZeEvent | None,
    waits: Sequence[ZeEvent],
    keep: Any = None,
) -> bool:
    """Enqueue a copy. Returns whether that is possible."""
    if transfer.operation not in COPIES:
        return False
    copy = make_copy(made.context.ur, transfer)

    def run(stream: Stream, _: StreamStep, before: Sequence[int]) -> int:
        end = copy(stream.cl, before)
        if keep is not None:
            _unfinished.keep_until(end, keep)
        return end

    return _run(made, run, waits, _list_effects(signal))


def order_at_once(
    made: ZeCommandList, role: str, signal: ZeEvent | None, waits: Sequence[ZeEvent]
) -> bool:
    """Wait for events, signal or reset one. Returns whether that is possible."""
    effects = [(signal, role != "reset")] if signal is not None else []
    return _run(made, None, waits, effects)
