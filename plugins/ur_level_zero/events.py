"""Events of the adapter on Level Zero: a cell each, with the queue and the type of the command."""

from __future__ import annotations

import ctypes
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Final

from ...loader.ur.abi import UR
from ...loader.ze.abi import LevelZeroError
from ..sdk.events import declare_events
from ..sdk.objects import Object
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

    def leave_native(self) -> None:
        self.cell.owned = False

    def check_outside(self) -> None:
        """Raise URError (GRAPH_INTERNAL_EVENT) if its command is in a capture."""
        if self.cell.capture is not None:
            raise failure("GRAPH_INTERNAL_EVENT")

    @property
    def status(self) -> int:
        """Return the event's ur_event_status_t. Raises URError as `check_outside`."""
        self.check_outside()
        try:
            done = self.cell.is_done
        except LevelZeroError:
            return UR["UR_EVENT_STATUS_ERROR"]
        return _COMPLETE if done else UR["UR_EVENT_STATUS_SUBMITTED"]

    @property
    def is_running(self) -> bool:
        """Return whether the event will have times. Raises URError as `check_outside`."""
        self.check_outside()
        return self.queue is not None and self.timed and not self.cell.is_over

    @property
    def times(self) -> tuple[int, int]:
        """Return when the event's command began and ended, in the device's nanoseconds.

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


def _take_native(native: int, context: LZContext, properties: Any) -> LZEvent:
    return LZEvent(EventCell(native, context, None, owned=is_owned(properties)), context)


def _make_completed(context: LZContext) -> LZEvent:
    cell = context.take_cell()
    cell.signal()
    return LZEvent(cell, context)


declare_events(
    adapter,
    take_native=_take_native,
    make_completed=_make_completed,
    times={
        "QUEUED": _find_call_time,
        "SUBMIT": _find_call_time,
        "START": lambda event: event.times[0],
        "END": lambda event: event.times[1],
        "COMPLETE": lambda event: event.times[1],
    },
)
