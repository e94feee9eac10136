"""Waits of which a driver can stand only one at a time.

In Intel's CPU driver (2026.22.10) a thread that waits runs commands meanwhile. Two of them, each for an out-of-order queue of its own, can
wait for each other without end: in a C program, with three launches in a row and a blocking read, over and over, after some 10,000 rounds;
one of them with others for in-order queues as well. So one thread at a time is in the driver's wait, and the others are called back.

Whether a thread that could be in it should be at once: for an in-order queue yes, it is the fastest. For an out-of-order one it takes
100 µs more than a callback, so that it comes after that time only, for kernels that are worth another core. A thread that a driver calls
back waits as the driver does, whoever else waits: it may be the one that is to run what it waits for.
"""

from __future__ import annotations

from typing import Final

from ...loader.base.forks import in_child
from .._native import ffi, lib
from ..errors import check

#: Platforms, by CL_PLATFORM_NAME.
_ONE_AT_A_TIME: Final = frozenset({"Intel(R) OpenCL"})


def in_turns(platform: str) -> bool:
    """Whether the waits for a platform's queues are those of this module, and no command is to block in the driver."""
    return platform in _ONE_AT_A_TIME


@in_child
def _forget() -> None:
    """The thread that waited is the parent's."""
    lib.fl_forget_waits()


def wait(event: int, in_order: bool) -> None:
    """clWaitForEvents of one event, of a queue of that kind. Raises OpenCLError."""
    check(lib.fl_wait(ffi.cast("void *", event), in_order), "clWaitForEvents")


def finish(queue: int, in_order: bool) -> None:
    """clFinish. Raises OpenCLError."""
    check(lib.fl_finish(ffi.cast("void *", queue), in_order), "clFinish")
