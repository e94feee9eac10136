"""Keeps what a device may still use until it is done.

OpenCL keeps nothing that a kernel's argument or a transfer names. Code that drops such a thing
while commands may use it gives it to a `Lifetimes`, with the event after which nothing uses it.
Nothing is waited for: each call checks the list. What is still in use when Python ends is never
freed.

Queues are released differently: queue_release.py.
"""

from __future__ import annotations

import ctypes
import itertools
from typing import Any, Final

from ...loader.base.ends import call_at_end
from ...loader.base.forks import call_in_child, make_lock
from ...loader.base.snapshots import list_items
from ..calls import call, query_status

_all: Final[list[Lifetimes]] = []
_abandoned: Final[list[Any]] = []  # of the parent, in a forked child: not released there


class Lifetimes:
    """Keeps things until events are complete. Thread-safe; it lives as long as the process."""

    def __init__(self) -> None:
        self._kept: dict[int, tuple[int, Any]] = {}  # an event, a reference to which is ours
        self._numbers = itertools.count()
        self._lock = make_lock()
        _all.append(self)

    def keep_until(self, event: int, things: Any) -> None:
        """Keep things until an event is complete or has failed.

        Args:
            event: a handle; it is retained. 0: nothing has to be kept.
        """
        if event and not _is_done(event):
            call(event, "clRetainEvent")
            with self._lock:
                self._kept[next(self._numbers)] = event, things
        if self._kept:
            self.release_finished()

    def release_finished(self) -> bool:
        """Release the things whose events are complete. Returns whether others are kept."""
        with self._lock:
            done = [number for number, (event, _) in list_items(self._kept) if _is_done(event)]
            # A finalizer may have come in between, and taken some.
            finished = [self._kept.pop(number) for number in done if number in self._kept]
        for event, _ in finished:  # without the lock: a driver may call back
            call(event, "clReleaseEvent")
        return bool(self._kept)

    def _keep_for_good(self) -> None:
        self.release_finished()
        with self._lock:
            in_use = list(self._kept.values())
        for event_and_things in in_use:
            ctypes.pythonapi.Py_IncRef(ctypes.py_object(event_and_things))

    def _forget(self) -> None:
        _abandoned.extend(self._kept.values())
        self._kept.clear()


def _is_done(event: int) -> bool:
    return query_status(event) <= 0  # below 0, too, if the driver does not know it any more


@call_at_end("memory")
def _keep_all_for_good() -> None:
    """Keep what devices still use when Python ends: its objects end before drivers' threads."""
    for lifetimes in _all:
        lifetimes._keep_for_good()


@call_in_child
def _forget_all() -> None:
    """Forget what is kept. It belongs to the parent, whose driver uses it."""
    for lifetimes in _all:
        lifetimes._forget()
