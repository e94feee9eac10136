"""What is done when commands have ended, by a thread that comes when there is something and goes when there is nothing for a while.

Garbage is collected at any moment, also while its thread holds what commands wait for. So nobody waits there: memory and queues that
commands may still use are given to this thread, which does wait.
"""

from __future__ import annotations

import _thread
from collections.abc import Callable
from contextlib import suppress
from queue import Empty, SimpleQueue
from typing import Final

from .scheduler import in_adapters

_PATIENCE: Final = 0.5  # seconds


class Afterwards:
    """Actions that are called one after the other, in a thread of their own. They raise nothing."""

    def __init__(self) -> None:
        self._actions: SimpleQueue[Callable[[], object]] = SimpleQueue()
        self._runs = False

    def add(self, action: Callable[[], object]) -> None:
        """One more. A finalizer may call this, whatever its thread is doing: no lock of Python's is taken."""
        self._actions.put(action)
        if not self._runs:
            self._runs = True
            with suppress(RuntimeError):  # the process is ending
                _thread.start_new_thread(self._run, ())

    def _run(self) -> None:
        while True:
            try:
                action = self._actions.get(timeout=_PATIENCE)
            except Empty:
                self._runs = False
                if self._actions.empty():
                    return
                self._runs = True  # one was added meanwhile
                continue
            with in_adapters() as go:
                if go:
                    action()
            del action  # and what it holds
