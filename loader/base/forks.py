"""Locks that work in a forked child, although their owner thread does not exist there.

`make_lock` returns re-entrant locks, because a finalizer or a signal handler may run in a thread
that already owns the lock.
"""

from __future__ import annotations

import os
import threading
import weakref
from collections.abc import Callable

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


_locks: weakref.WeakSet[Any] = weakref.WeakSet()


def make_lock() -> Any:
    """Return a re-entrant lock that is free in every forked child."""
    lock = threading.RLock()
    _locks.add(lock)
    return lock


def call_in_child(action: Callable[[], None]) -> Callable[[], None]:
    """Call `action` in every forked child, after the locks are free. Usable as a decorator."""
    os.register_at_fork(after_in_child=action)
    return action


_forks = 0


def count_forks() -> int:
    """Return the number of forks between this process and the one that imported fairlead.

    If it changes, the process that made an object is not the running one.
    """
    return _forks


def _free_all() -> None:
    """Free all locks in the child, in which no thread exists that could release them."""
    global _forks
    _forks += 1
    for lock in list(_locks):
        lock._at_fork_reinit()


os.register_at_fork(after_in_child=_free_all)
