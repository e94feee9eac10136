"""Work that a thread does in the background: one piece after the other."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable

from ...loader.base.ends import call_at_end
from ...loader.base.forks import call_in_child, make_lock
from ...loader.base.progress import Progress


class Background:
    """Pieces of work for one thread. The thread ends when nothing is left to do.

    A forked child lacks the thread, and forgets what it had to do.

    Args:
        daemon: whether Python ends without waiting for the piece that the thread does. Otherwise
            it waits, whatever Ctrl-C does: a driver that still compiles would crash.
    """

    def __init__(self, name: str, *, daemon: bool) -> None:
        self._name, self._daemon = name, daemon
        self._waiting = deque[Callable[[], None]]()
        self._lock, self._works = make_lock(), False
        self._thread: threading.Thread | None = None
        call_in_child(self._forget)
        if not daemon:
            call_at_end("submissions")(self._wait)

    def add(self, work: Callable[[], None]) -> bool:
        """Add a task to the end of the thread's queue.

        Args:
            work: the piece. It raises nothing.

        Returns:
            Whether a thread does it. None can be started while Python ends.
        """
        with self._lock:
            self._waiting.append(work)
            if not self._works:
                try:
                    thread = threading.Thread(target=self._run, name=self._name)
                    thread.daemon = self._daemon
                    thread.start()
                except RuntimeError:
                    self._waiting.clear()
                    return False
                self._works, self._thread = True, thread
            return True

    def _wait(self) -> None:
        """Wait for the thread. Python has done so, unless a signal's handler ended that."""
        while self._thread is not None and self._thread.is_alive():
            try:
                self._thread.join()
            except BaseException:
                continue

    def _run(self) -> None:
        progress = Progress(self._name.replace("-", " "), "programs")
        while True:
            with self._lock:
                if not self._waiting:
                    self._works = False
                    progress.end()
                    return
                work = self._waiting.popleft()
            try:
                work()
            except BaseException:
                self._works = False  # the next piece gets another thread
                progress.end()
                raise
            progress.add()

    def _forget(self) -> None:
        self._works = False
        self._waiting.clear()
