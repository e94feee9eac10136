"""Waits for drivers that allow only one thread at a time in their own wait.

The habit `waits-one-at-a-time` (icd/driver_profiles.py) says which drivers these are. There a thread
that waits also runs commands, and two such threads can wait for each other for ever. So one thread
at a time is in the driver's wait, and the others wait for a callback.

Which wait is faster depends on the queue. For an in-order queue it is the driver's. For an
out-of-order queue that takes 100 µs more than a callback, so a thread enters the driver's wait only
after that time; then the command is long enough to be worth another core. A thread that a driver
calls back uses the driver's wait in any case, because it may have to run what it waits for.
"""

from __future__ import annotations

from ...loader.base.forks import in_child
from .._native import ffi, lib
from ..errors import check


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
