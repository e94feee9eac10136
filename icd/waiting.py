"""Where an event is waited for by its callback, because the driver's own wait can hang.

In Intel's CPU driver (2026.22.10) a thread that waits runs commands meanwhile. Threads that do so for out-of-order queues, each for one of
its own, can wait for each other without end: in a C program two of them, with three launches in a row and a blocking read, over and over,
stood still after some 10,000 rounds. A thread that is called back runs nothing and cannot; the same rounds take a third of the time. For
in-order queues the driver's wait is the faster one.
"""

from __future__ import annotations

from typing import Final

from ._native import ffi, lib
from .abi import CL_EXEC_STATUS_ERROR_FOR_EVENTS_IN_WAIT_LIST, CL_SUCCESS
from .commands import call, enqueue_marker
from .errors import check

#: Platforms, by CL_PLATFORM_NAME.
_CALLED_BACK: Final = frozenset({"Intel(R) OpenCL"})


def driver_waits(platform: str, in_order: bool) -> bool:
    """Whether waits for a queue of a platform are the driver's: blocking commands, clFinish, clWaitForEvents."""
    return in_order or platform not in _CALLED_BACK


def wait_by_callback(event: int) -> None:
    """Wait for an event. Raises OpenCLError as clWaitForEvents does."""
    check(_wait(event), "clWaitForEvents")


def finish_by_callback(queue: int) -> None:
    """Wait for all that is enqueued, whatever becomes of it. Raises OpenCLError as clFinish does."""
    marker = enqueue_marker(queue, (), "clEnqueueMarkerWithWaitList")
    code = _wait(marker)
    call(marker, "clReleaseEvent")
    check(CL_SUCCESS if code == CL_EXEC_STATUS_ERROR_FOR_EVENTS_IN_WAIT_LIST else code, "clFinish")


def _wait(event: int) -> int:
    return lib.fl_await(ffi.cast("void *", event))
