"""Ends of what was enqueued, and how long a caller waits for one."""

from __future__ import annotations

import time
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

from ...icd._native import ffi as icd_ffi
from ...icd._native import lib as icd_lib
from ...icd.calls import call, query_status
from ...icd.command_buffer.waiting import wait as wait_for_event
from ...icd.errors import OpenCLError
from ...loader.base.interrupts import mark_stoppable, stop_if_interrupted
from .core import make_failure

if TYPE_CHECKING:
    from .streams import Stream

#: The timeout that never ends.
FOREVER: Final = (1 << 64) - 1
#: Nanoseconds between two checks whether the process was interrupted.
CHECK_INTERVAL: Final = 50_000_000
_UNIT: Final = 1_000_000  # nanoseconds; fl_go_on_waiting counts milliseconds


def find_deadline(timeout: int) -> int | None:
    """Return when a timeout (nanoseconds) ends, None for never."""
    return None if timeout == FOREVER else time.monotonic_ns() + timeout


class Completion:
    """The end of something that was enqueued: an OpenCL event, a reference to which is ours.

    Args:
        stream: the stream that it was enqueued on, None if C has enqueued it.
        in_turn: whether threads wait for it one at a time.
    """

    __slots__ = ("_done", "cl", "in_turn", "stream")

    def __init__(self, cl: int, stream: Stream | None, in_turn: bool) -> None:
        self.cl, self.stream, self.in_turn, self._done = cl, stream, in_turn, False

    @property
    def is_done(self) -> bool:
        """Return whether the work has ended. Raises LevelZeroError (DEVICE_LOST) if it failed."""
        if not self._done:
            status = query_status(self.cl)
            if status < 0:
                raise make_failure("DEVICE_LOST", f"a command has failed with {status}")
            self._done = status == 0
        return self._done

    @property
    def is_pending(self) -> bool:
        """Return whether the work has not ended, well or badly."""
        with suppress(Exception):
            return not self.is_done
        return False

    def wait(self, deadline: int | None) -> bool:
        """Wait for the end of the work, and return whether it has ended.

        Args:
            deadline: the time (time.monotonic_ns) until which to wait, None for ever.

        Raises:
            LevelZeroError: DEVICE_LOST if it has failed.
        """
        if self.is_done:
            return True
        if deadline is None:
            with suppress(OpenCLError):  # `is_done` says what became of it
                wait_for_event(self.cl, True, self.in_turn)
            return self.is_done
        return _wait_until(self, deadline)

    def __del__(self) -> None:
        if call is not None and hasattr(self, "cl"):  # Python is not taking modules down
            call(self.cl, "clReleaseEvent")


@mark_stoppable
def _wait_until(completion: Completion, deadline: int) -> bool:
    stop_if_interrupted()
    left = deadline - time.monotonic_ns()
    if left <= 0:
        return completion.is_done
    waiting: Any = icd_ffi.new("fl_waiting **")
    cl = icd_ffi.cast("void *", completion.cl)
    code = icd_lib.fl_begin_wait(cl, completion.in_turn, waiting)
    if waiting[0] == icd_ffi.NULL:
        return completion.is_done
    try:
        while code == icd_lib.FL_STILL_WAITING and left >= _UNIT:
            code = icd_lib.fl_go_on_waiting(waiting[0], min(left, CHECK_INTERVAL) // _UNIT)
            left = deadline - time.monotonic_ns()
        if code == icd_lib.FL_STILL_WAITING and left > 0:
            time.sleep(left / 1e9)  # the rest is shorter than what `fl_go_on_waiting` can wait
    finally:
        icd_lib.fl_end_wait(waiting[0])
    return completion.is_done
