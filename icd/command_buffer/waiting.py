"""Waits for events and queues: the main thread's can be interrupted, and on some drivers one thread at a time is in the driver's wait.

Python runs signal handlers between two of its instructions, so a wait in the driver would put Ctrl-C off until its end. The main
thread therefore waits in steps. It asks for the event's status for some microseconds, and then has the driver call it back.

In Intel's CPU driver (2026.22.10) a thread that waits runs commands meanwhile. Two of them, each for an out-of-order queue of its own, can
wait for each other without end: in a C program, with three launches in a row and a blocking read, over and over, after some 10,000 rounds;
one of them with others for in-order queues as well. So one thread at a time is in the driver's wait, and the others are called back.

A thread enters the driver's wait at once for an in-order queue, where that is the fastest. For an out-of-order queue it takes 100 µs
more than a callback, so a thread enters it after that time, for kernels that are worth another core. The main thread never enters it:
it begins another thread for that. A thread that a driver calls back waits as the driver does, whoever else waits: it may be the one
that is to run what it waits for.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from ...loader.base.forks import in_child
from ...loader.base.interrupts import in_main_thread, stop_if_interrupted, stoppable
from .._native import ffi, lib
from ..errors import OpenCLError, check

#: Platforms, by CL_PLATFORM_NAME.
_ONE_AT_A_TIME: Final = frozenset({"Intel(R) OpenCL"})

_STEP: Final = 50  # milliseconds after which signals are looked for
_FAILED: Final = "CL_EXEC_STATUS_ERROR_FOR_EVENTS_IN_WAIT_LIST"


def in_turns(platform: str) -> bool:
    """Whether the waits for a platform's queues are those of this module, and no command is to block in the driver."""
    return platform in _ONE_AT_A_TIME


@in_child
def _forget() -> None:
    """The thread that waited is the parent's."""
    lib.fl_forget_waits()


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
    code = (
        _wait_in_steps(lib.fl_begin_wait, event, turns)
        if in_main_thread()
        else lib.fl_wait(ffi.cast("void *", event), in_order)
    )
    check(code, "clWaitForEvents")


def finish(queue: int, in_order: bool, turns: bool = True) -> None:
    """Wait for all commands of a queue, as clFinish does. See `wait`."""
    if not in_main_thread():
        check(lib.fl_finish(ffi.cast("void *", queue), in_order), "clFinish")
        return
    try:
        check(_wait_in_steps(lib.fl_begin_finish, queue, turns), "clFinish")
    except OpenCLError as error:
        if error.code != _FAILED:  # SPEC clFinish: it succeeds, whatever became of commands
            raise


@stoppable
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
