"""Events: a cell each, with the queue and the type of the command."""

from __future__ import annotations

import ctypes
from collections.abc import Iterable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

from ...loader.ur.abi import UR
from ...loader.ze.abi import LevelZeroError
from ..sdk.event_callbacks import call_at_status
from ..sdk.objects import Object
from ..sdk.queries import EVENT_INFO
from .contexts import EventCell, LZContext
from .core import ZE, adapter, call, failure, is_owned
from .devices import LZDevice

if TYPE_CHECKING:
    from .queues import LZQueue

_COMPLETE: Final = UR["UR_EVENT_STATUS_COMPLETE"]
_Times: Final = ZE.get_struct("ze_kernel_timestamp_result_t")


@adapter.kind
class LZEvent(Object):
    """The event of a command.

    Args:
        cell: what its command signals.
        context: its context.
        queue: the queue of the command, None for an event of elsewhere.
        command: its ur_command_t.
        first: what the first command signals, if several commands are one to the caller.
        timed: whether the cells have the times of their commands.
        queued: the device's time of the call in nanoseconds, 0 if nobody asked for it.

    Attributes:
        is_time_stamp: whether its command only records the device's time.
        span: returns the times instead of the cells, for a command-buffer that is profiled.
    """

    type = "ur_event_handle_t"
    is_time_stamp = False
    span: Any = None

    def __init__(
        self,
        cell: EventCell,
        context: LZContext,
        queue: LZQueue | None = None,
        command: int = 0,
        *,
        first: EventCell | None = None,
        timed: bool = False,
        queued: int = 0,
    ) -> None:
        self.cell, self.context, self.queue, self.command = cell, context, queue, command
        self.first, self.timed, self.queued = first or cell, timed, queued

    def get_native(self) -> int:
        self.cell.supply = None  # the program may use it longer than we do
        return self.cell.ze

    def check_outside(self) -> None:
        """Raise URError (GRAPH_INTERNAL_EVENT) if its command is in a capture."""
        if self.cell.capture is not None:
            raise failure("GRAPH_INTERNAL_EVENT")

    @property
    def status(self) -> int:
        """Return its ur_event_status_t. Raises URError as `check_outside`."""
        self.check_outside()
        try:
            done = self.cell.is_done
        except LevelZeroError:
            return UR["UR_EVENT_STATUS_ERROR"]
        return _COMPLETE if done else UR["UR_EVENT_STATUS_SUBMITTED"]

    @property
    def is_running(self) -> bool:
        """Return whether it will have times. Raises URError as `check_outside`."""
        self.check_outside()
        return self.queue is not None and self.timed and not self.cell.is_over

    @property
    def times(self) -> tuple[int, int]:
        """Return when its command began and ended, in the device's nanoseconds.

        Raises:
            URError: PROFILING_INFO_NOT_AVAILABLE if it has no times, or not yet; what
                `check_outside` raises.
        """
        if self.queue is None or not self.timed:
            raise failure("PROFILING_INFO_NOT_AVAILABLE", "the queue was created without profiling")
        self.check_outside()
        if not self.cell.is_over:
            raise failure("PROFILING_INFO_NOT_AVAILABLE", "the command is not complete")
        if self.span is not None:
            return self.span()
        device = self.queue.device
        end = read_times(self.cell, device)[1]
        return (end if self.is_time_stamp else read_times(self.first, device)[0]), end

    def wait(self) -> None:
        """Wait until it is complete.

        Raises:
            URError: see `check_outside`.
            LevelZeroError: its command failed.
        """
        self.check_outside()
        self.cell.wait()


def read_times(cell: EventCell, device: LZDevice) -> tuple[int, int]:
    """Return when the command of a cell began and ended, in nanoseconds. Raises LevelZeroError."""
    row = _Times()
    call(cell.table, "zeEventQueryKernelTimestamp", cell.ze, ctypes.byref(row))
    return find_span([row], device)


def find_span(rows: Iterable[Any], device: LZDevice) -> tuple[int, int]:
    """Return the first start and the last end of ze_kernel_timestamp_result_t, in nanoseconds."""
    wrap = 1 << (device.properties.kernelTimestampValidBits or 64)
    found = []
    for row in rows:
        times = getattr(row, "global")
        start, end = times.kernelStart, times.kernelEnd
        found.append((start, end if end >= start else end + wrap))
    start, end = min(pair[0] for pair in found), max(pair[1] for pair in found)
    return device.convert_to_nanoseconds(start), device.convert_to_nanoseconds(end)


def wait_for(events: Sequence[LZEvent]) -> None:
    """Wait until all events are complete. Raises LevelZeroError if a command failed."""
    failed: LevelZeroError | None = None
    for event in events:
        try:
            event.wait()
        except LevelZeroError as error:
            failed = failed or error
    if failed is not None:
        raise failed


@adapter.entry
def urEventWait(phEventWaitList: list[LZEvent]) -> None:
    wait_for(phEventWaitList)


@adapter.entry
def urEventSetCallback(hEvent: LZEvent, execStatus: int, pfnNotify: int, pUserData: int) -> None:
    hEvent.check_outside()

    def wait() -> None:
        with suppress(LevelZeroError):  # the command has failed, so it has ended
            hEvent.wait()

    call_at_status(adapter, hEvent, execStatus, pfnNotify, pUserData, wait)


adapter.info("urEventGetInfo", EVENT_INFO)


def _find_call_time(event: LZEvent) -> int:
    """Return when the call was made, but not later than its command began.

    The clocks of a driver's events and of its devices may differ. It is known while the command
    runs.
    """
    if event.is_running and event.queued:
        return event.queued
    start, end = event.times
    latest = end if event.is_time_stamp else start
    return min(event.queued or latest, latest)


adapter.info(
    "urEventGetProfilingInfo",
    {
        "UR_PROFILING_INFO_COMMAND_QUEUED": _find_call_time,
        "UR_PROFILING_INFO_COMMAND_SUBMIT": _find_call_time,
        "UR_PROFILING_INFO_COMMAND_START": lambda event: event.times[0],
        "UR_PROFILING_INFO_COMMAND_END": lambda event: event.times[1],
        "UR_PROFILING_INFO_COMMAND_COMPLETE": lambda event: event.times[1],
    },
)


class _OwnedCell(EventCell):
    """A native event that the program gave to us."""

    __slots__ = ()

    def __del__(self) -> None:
        if hasattr(self, "table"):  # it was made to its end
            self.table.zeEventDestroy(self.ze)


@adapter.entry
def urEventCreateWithNativeHandle(
    hNativeEvent: int, hContext: LZContext, pProperties: Any
) -> LZEvent:
    """Make the event of a native handle. NULL gives a complete event, as in other adapters."""
    if not hNativeEvent:
        cell = hContext.take_cell()
        cell.signal()
    else:
        kind = _OwnedCell if is_owned(pProperties) else EventCell
        cell = kind(hNativeEvent, hContext.table, None)
    return LZEvent(cell, hContext)
