"""The thread of a stream that calls functions of the host when the stream's commands have ended."""

from __future__ import annotations

import _thread
from collections.abc import Callable
from queue import SimpleQueue
from typing import Any, Final
from weakref import WeakKeyDictionary

from ...icd.calls import call
from ...icd.command_buffer.waiting import wait as wait_for_event
from .core import driver
from .streams import Stream

#: What each stream's thread does next: an event, and the function that comes after it.
_works: Final[WeakKeyDictionary[Stream, SimpleQueue[Any]]] = WeakKeyDictionary()


def call_after(stream: Stream, event: int, function: Callable[[Exception | None], None]) -> None:
    """Let a stream's thread call a function when an event has ended.

    `start_thread` comes before it.

    Args:
        stream: the stream. Its thread calls one function after the other.
        event: an event of OpenCL, a reference that the thread releases.
        function: is given why the event's command has failed, None if it has not.
    """
    _works[stream].put((event, function))


def start_thread(stream: Stream) -> None:
    """Start a stream's thread if it does not run yet.

    What needs the thread starts it before it enqueues anything that waits for the thread.

    The caller may hold the lock of streams. So it does not wait until the thread runs, as
    `threading.Thread.start` does: garbage that the thread collects first may need that lock.

    Raises:
        RuntimeError: the system has no more threads.
    """
    if stream not in _works:
        work: SimpleQueue[Any] = SimpleQueue()
        _thread.start_new_thread(_serve, (work, stream.waits_one_at_a_time))
        _works[stream] = work
        stream.on_close.append(lambda: work.put(None))


def _serve(work: SimpleQueue[Any], one_at_a_time: bool) -> None:
    while (item := work.get()) is not None:
        event, function = item
        failed: Exception | None = None
        try:
            wait_for_event(event, True, one_at_a_time)
        except Exception as error:
            failed = error
        try:
            try:
                function(failed)
            finally:
                call(event, "clReleaseEvent")
        except Exception as error:  # the next steps need the thread
            driver.log("error", f"a step on the host failed: {error}")
