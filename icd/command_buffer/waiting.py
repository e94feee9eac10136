"""Waits for events and queues. Ctrl-C interrupts the main thread's; some drivers allow one at a
time.

Python runs signal handlers between two of its instructions. A wait in the driver would delay Ctrl-C
until its end. So the main thread waits in steps: it polls the event's status for some microseconds,
then asks the driver for a callback.

The habit `waits-one-at-a-time` (icd/driver_profiles.py) says which drivers must not have two
threads in their own wait. There a thread that waits also runs commands, and two such threads can
wait for each other for ever. So one thread at a time is in the driver's wait. The others try to get
there for some microseconds, and then wait for a callback.

Which wait is faster depends on the queue. For an in-order queue it is the driver's. For an
out-of-order queue that takes 100 µs more than a callback, so a thread enters the driver's wait only
after that time. Then the command is long enough to be worth another core. The main thread never
enters it, but starts another thread for that. A thread that a driver calls back uses the driver's
wait in any case, because it may have to run what it waits for.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from ...loader.base.forks import call_in_child
from ...loader.base.interrupts import is_main_thread, mark_stoppable, stop_if_interrupted
from .._native import ffi, lib
from ..errors import check

_STEP: Final = 50  # milliseconds between two checks for signals


@call_in_child
def _forget() -> None:
    """Forget the thread that waited, which is the parent's."""
    lib.fl_give_wait_back()


def wait(event: int, in_order: bool, turns: bool = True) -> None:
    """Wait for one event, as clWaitForEvents does.

    Args:
        event: a cl_event.
        in_order: whether its queue is in order.
        turns: whether one thread at a time may be in the driver's own wait.

    Raises:
        OpenCLError: Its command failed.
        KeyboardInterrupt: Ctrl-C came, and this is the main thread.
    """
    if not is_main_thread():
        check(lib.fl_wait(ffi.cast("void *", event), in_order), "clWaitForEvents")
        return
    check(_wait_in_steps(lib.fl_begin_wait, event, turns), "clWaitForEvents")


def finish(queue: int, in_order: bool, turns: bool = True) -> None:
    """Wait for all commands of a queue, as clFinish does. See `wait`."""
    if not is_main_thread():
        check(lib.fl_finish(ffi.cast("void *", queue), in_order), "clFinish")
        return
    check(_wait_in_steps(lib.fl_begin_finish, queue, turns), "clFinish")


@mark_stoppable
def _wait_in_steps(begin: Callable[..., int], handle: int, turns: bool) -> int:
    stop_if_interrupted()
    waiting: Any = ffi.new("fl_waiting **")
    code = begin(ffi.cast("void *", handle), turns, waiting)
    if waiting[0] == ffi.NULL:
        return code
    try:
        while code == lib.FL_STILL_WAITING:
            code = lib.fl_go_on_waiting(waiting[0], _STEP)
    finally:
        lib.fl_end_wait(waiting[0])
    return code
