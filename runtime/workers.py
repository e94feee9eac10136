"""The threads of the scheduler, and the end of the process: when adapters may be called."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from queue import SimpleQueue
from typing import Final

from ..loader.base.forks import call_in_child, make_lock
from .errors import Errc, SYCLError

#: More host tasks at a time share these threads. More threads are started if none of them goes on.
_USUAL_WORKERS: Final = 64
_PATIENCE: Final = 0.05  # seconds in which no thread takes work, after which there are more


class _Workers:
    """Threads that are started when there is work and none is idle. The end of the process waits
    for none, because a host task may never end."""

    def __init__(self) -> None:
        self._work: SimpleQueue[Callable[[], object]] = SimpleQueue()
        self._lock = make_lock()
        self._idle = self._count = self._taken = 0
        self._watched = False

    def add(self, work: Callable[[], object]) -> None:
        """Call `work` in a thread. Raises SYCLError (runtime) if there is none and none can be
        started."""
        with self._lock:
            self._work.put(work)
            if self._idle:
                self._idle -= 1
            elif self._count < _USUAL_WORKERS:
                self._count += self._begin(self._run, self._count + 1)
                if not self._count:
                    self._work.get()
                    raise SYCLError(
                        Errc.runtime,
                        "no thread can be started for host tasks and waits",
                        remedy="end other threads, or raise the limit on them (ulimit -u)",
                    )
            elif not self._watched:
                self._watched = self._begin(self._watch, 0)

    @staticmethod
    def _begin(what: Callable[[], object], number: int) -> bool:
        """Start a thread. Returns whether that worked. It fails if there are too many or the
        process is ending; the present threads do the work."""
        try:
            threading.Thread(target=what, name=f"fairlead-{number}", daemon=True).start()
        except RuntimeError:
            return False
        return True

    def _watch(self) -> None:
        """Double the number of threads whenever no thread takes any work: what they are doing may
        be waiting for it."""
        taken = -1
        while True:
            time.sleep(_PATIENCE)
            with self._lock:
                if self._work.empty() or _ended:
                    self._watched = False
                    return
                if taken == self._taken:
                    for _ in range(min(self._work.qsize(), self._count)):
                        self._count += self._begin(self._run, self._count + 1)
                taken = self._taken

    def _run(self) -> None:
        while True:
            work = self._work.get()
            self._taken += 1
            if _ended:
                return
            work()
            del work  # and what it holds
            with self._lock:
                if self._work.empty():
                    self._idle += 1


_workers = _Workers()


@call_in_child
def _forget() -> None:
    """Forget the threads, which are the parent's."""
    global _workers, _changed, _in_adapters
    _workers, _changed, _in_adapters = _Workers(), threading.Condition(), 0


_ended = False
_in_adapters = 0  # threads that call an adapter for a deferred command
_changed = threading.Condition()


@contextmanager
def mark_adapter_call() -> Iterator[bool]:
    """Mark that this thread calls an adapter. Yields False if the process is ending, and nothing
    may be called."""
    global _in_adapters
    with _changed:
        go = not _ended
        _in_adapters += go
    try:
        yield go
    finally:
        with _changed:
            _in_adapters -= go
            _changed.notify_all()


def stop_starting() -> None:
    """Begin no command any more, because the process ends."""
    global _ended
    with _changed:
        _ended = True


def wait_for_adapter_calls() -> None:
    """Wait until no thread of the scheduler calls an adapter. Then adapters can be closed."""
    with _changed:
        _changed.wait_for(lambda: not _in_adapters)


def has_ended() -> bool:
    """Whether the process is ending."""
    return _ended


def run_in_worker(work: Callable[[], object]) -> None:
    """Call `work`, which raises nothing, in a thread of the scheduler. Raises SYCLError (runtime)
    if no thread can be started."""
    _workers.add(work)
