"""The thread of a stream that calls functions of the host when the stream's commands have ended."""

from __future__ import annotations

import _thread
from collections.abc import Callable
from queue import SimpleQueue
from typing import Any, Final
from weakref import WeakKeyDictionary

from ...icd.calls import call
from ...icd.command_buffer.waiting import wait as wait_for_event
from ...icd.errors import OpenCLError
from .core import driver
from .streams import Stream

#: What each stream's thread does next: an event, and the function that comes after it.
_works: Final[WeakKeyDictionary[Stream, SimpleQueue[Any]]] = WeakKeyDictionary()


def call_after(stream: Stream, event: int, function: Callable[[Exception | None], None]) -> None:
    """Let a stream's thread call a function when an event has ended.

    Args:
        stream: the stream. Its thread calls one function after the other.
        event: an event of OpenCL, a reference that the thread releases.
        function: is given why the event's command has failed, None if it has not.
    """
    _work_of(stream).put((event, function))


def _work_of(stream: Stream) -> SimpleQueue[Any]:
    """Return what a stream's thread does. The first call starts the thread.

    The caller may hold the lock of streams. So it does not wait until the thread runs, as
    `threading.Thread.start` does: garbage that the thread collects first may need that lock.
    """
    if stream not in _works:
        work: SimpleQueue[Any] = SimpleQueue()
        _works[stream] = work
        stream.on_close.append(lambda: work.put(None))
        _thread.start_new_thread(_serve, (work, stream.waits_one_at_a_time))
    return _works[stream]


def _serve(work: SimpleQueue[Any], one_at_a_time: bool) -> None:
    while (item := work.get()) is not None:
        event, function = item
        failed: Exception | None = None
        try:
            wait_for_event(event, True, one_at_a_time)
        except OpenCLError as error:
            failed = error
        try:
            function(failed)
        except Exception as error:
            driver.log("error", f"a step on the host failed: {error}")
        call(event, "clReleaseEvent")
