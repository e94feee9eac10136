"""Locks that a forked child can take: the thread that held one at the time of the fork is not in the child.

`new_lock` makes them all re-entrant, because a finalizer or a signal handler may come back to what its own thread is doing.
"""

from __future__ import annotations

import os
import threading
import weakref
from collections.abc import Callable
from typing import Any

_locks: weakref.WeakSet[Any] = weakref.WeakSet()


def new_lock() -> Any:
    """A re-entrant lock that nobody holds in a forked child."""
    lock = threading.RLock()
    _locks.add(lock)
    return lock


def in_child(action: Callable[[], None]) -> Callable[[], None]:
    """Have `action` called in every forked child, after the locks were freed. A decorator, too."""
    os.register_at_fork(after_in_child=action)
    return action


_forks = 0


def forks() -> int:
    """How many forks led to this process since fairlead was imported: what two answers differ by was made in another process."""
    return _forks


def _free_all() -> None:
    global _forks
    _forks += 1
    for lock in list(_locks):
        lock._at_fork_reinit()


os.register_at_fork(after_in_child=_free_all)
