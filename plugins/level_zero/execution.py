"""Execution of command lists, and waits for everything that runs."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final

from .completions import FOREVER
from .contexts import ZeContext
from .core import ZE, driver, make_failure
from .devices import ZeDevice
from .events import ZeEvent
from .lists import ZeCommandList, get_stream
from .queues import SYNCHRONOUS, ZeFence, ZeQueue
from .streams import Stream, StreamStep, get_order_lock

_DEFER: Final = ZE["ZE_DRIVER_MEMORY_FREE_POLICY_EXT_FLAG_DEFER_FREE"]
_PATIENCE: Final = 10_000_000_000  # nanoseconds


def _make_steps(
    lists: Sequence[ZeCommandList], context: ZeContext, device: ZeDevice
) -> list[StreamStep]:
    """Return what runs lists in order.

    Raises:
        LevelZeroError: INVALID_ARGUMENT, INVALID_COMMAND_LIST_TYPE.
    """
    for one in lists:
        if not one.context.shares(context) or one.device is not device:
            raise make_failure("INVALID_ARGUMENT", "a list is of another context or device")
        one.check_executable()
    return [step for one in lists for step in one.recording.list_steps()]


@driver.entry
def zeCommandQueueExecuteCommandLists(
    hCommandQueue: ZeQueue, phCommandLists: list[ZeCommandList], hFence: ZeFence | None
) -> None:
    if hFence is not None and hFence.queue is not hCommandQueue:
        raise make_failure("INVALID_SYNCHRONIZATION_OBJECT", "the fence is of another queue")
    steps = _make_steps(phCommandLists, hCommandQueue.context, hCommandQueue.device)
    if hFence is not None:
        steps.append(StreamStep(effects=[(hFence, True)]))
    hCommandQueue.stream.submit(steps)
    if hCommandQueue.mode == SYNCHRONOUS:
        hCommandQueue.stream.wait(FOREVER)


def append_steps(
    made: ZeCommandList,
    make: Callable[[], list[StreamStep]],
    signal: ZeEvent | None,
    waits: list[ZeEvent],
) -> None:
    """Run what was recorded elsewhere on an immediate list.

    Args:
        make: returns what is run.

    Raises:
        LevelZeroError: INVALID_COMMAND_LIST_TYPE, INVALID_SYNCHRONIZATION_OBJECT,
            INVALID_ARGUMENT for an event that the list does not signal, GRAPH_CAPTURE_UNSUPPORTED,
            GRAPH_INTERNAL_EVENT; what `make` raises.
    """
    stream = get_stream(made)
    made.check_events((signal, *waits))
    made.check_signal(signal)
    if made.capture is not None:
        raise made.capture.refuse("a list runs no other lists or graphs")
    for event in waits:
        event.check_outside()
    is_timed = signal is not None and signal.has_times
    steps = make()
    first = StreamStep(waits, marks=is_timed)
    if waits or is_timed:
        steps.insert(0, first)
    if signal is not None:
        timed, begin = ([signal], first) if is_timed else ([], None)
        steps.append(StreamStep(effects=[(signal, True)], timed=timed, begin=begin))
    stream.submit(steps)
    made.finish_append()


@driver.entry
def zeCommandListImmediateAppendCommandListsExp(
    hCommandListImmediate: ZeCommandList,
    phCommandLists: list[ZeCommandList],
    hSignalEvent: ZeEvent | None,
    phWaitEvents: list[ZeEvent],
) -> None:
    context, device = hCommandListImmediate.context, hCommandListImmediate.device
    get_stream(hCommandListImmediate)
    append_steps(
        hCommandListImmediate,
        lambda: _make_steps(phCommandLists, context, device),
        hSignalEvent,
        phWaitEvents,
    )


driver.declare(
    zeCommandListImmediateAppendCommandListsWithParameters=(
        zeCommandListImmediateAppendCommandListsExp
    )
)


def _list_streams(
    context: ZeContext | None = None, device: ZeDevice | None = None
) -> Iterator[Stream]:
    """Yield the streams of a context, of a device and its sub-devices, or all."""
    is_any = context is None and device is None
    for kind in (ZeQueue, ZeCommandList):
        for owner in list(driver.objects.list_owned(kind.type).values()):
            is_own = is_any or (context is not None and owner.context.shares(context))
            is_own |= device is not None and owner.device.is_part_of(device)
            if is_own and owner.stream is not None:
                yield owner.stream


def _finish() -> None:
    """Wait at the end of the process for what runs: drivers' destructors do not expect it."""
    deadline, ends = time.monotonic_ns() + _PATIENCE, []
    for stream in _list_streams():
        with get_order_lock():
            stream.pending.clear()  # nothing is enqueued any more
            last = stream.find_last_end()
        if last is not None and last.is_pending:
            last.wait(deadline)
            ends.append(last)
    driver.after_queues.append(lambda: any(end.is_pending for end in ends))


driver.on_end.append(_finish)


@driver.entry
def zeDeviceSynchronize(hDevice: ZeDevice) -> None:
    for stream in _list_streams(device=hDevice):
        stream.wait(FOREVER)


def _watch_streams(context: ZeContext) -> Callable[[], bool]:
    """Return a function that says whether something that is enqueued now still runs.

    What waits for an event that is not signaled counts as well.
    """
    marks = [(stream, StreamStep()) for stream in _list_streams(context)]
    for stream, mark in marks:
        stream.submit([mark])

    def runs() -> bool:
        with get_order_lock():
            return any(
                any(mark is step for step in stream.pending)
                or (mark.end is not None and mark.end.is_pending)
                for stream, mark in marks
            )

    return runs


@driver.entry
def zeMemFreeExt(hContext: ZeContext, pMemFreeDesc: Any, ptr: int) -> None:
    """Free memory after everything that is enqueued now, for both policies.

    A list that is executed later must not use it.
    """
    hContext.find_base(ptr)
    if pMemFreeDesc.freePolicy == _DEFER:  # no wait: it may be for the caller
        runs = _watch_streams(hContext)
        if runs():
            hContext.free_later(ptr, runs)
            return
    elif pMemFreeDesc.freePolicy:
        for stream in _list_streams(hContext):
            stream.wait(FOREVER)
    hContext.free(ptr)
