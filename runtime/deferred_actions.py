"""A thread that does what must come after commands have ended.

It starts when there is work, and ends when there is none for a while. The garbage collector runs at
any moment, also while its thread holds what commands wait for. So a finalizer must not wait. It
hands the memory and the queues that commands may still use to this thread, which waits for the
commands.
"""

from __future__ import annotations

import _thread
import gc
from collections.abc import Callable
from queue import Empty, SimpleQueue
from typing import Any, Final

from ..loader.base.interrupts import mark_uninterrupted
from .workers import mark_adapter_call

_PATIENCE: Final = 0.5  # seconds


_collector: int | None = None  # the thread in which the garbage collector runs


@mark_uninterrupted
def _note_collection(phase: str, details: dict[str, Any]) -> None:
    global _collector
    _collector = _thread.get_ident() if phase == "start" else None


gc.callbacks.append(_note_collection)


def is_collecting() -> bool:
    """Whether the garbage collector has called the caller, a finalizer, in this thread."""
    return _collector == _thread.get_ident()


class DeferredActions:
    """Actions that are called in a thread of their own, one after the other. They raise nothing."""

    def __init__(self) -> None:
        self._actions: SimpleQueue[Callable[[], object]] = SimpleQueue()
        self._runs = False

    def add(self, action: Callable[[], object]) -> None:
        """Add an action. A finalizer may call this, whatever its thread is doing: it takes no lock
        of Python's.

        If no thread can be started now, the next call tries again. At the end of the process none
        can be, and the action is dropped.
        """
        self._actions.put(action)
        if not self._runs:
            self._runs = True
            try:
                _thread.start_new_thread(self._run, ())
            except RuntimeError:
                self._runs = False

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
            with mark_adapter_call() as go:
                if go:
                    action()
            del action  # and what it holds
