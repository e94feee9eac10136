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


_PF_FORKNOEXEC = 0x40  # of the kernel: a fork that has run no other program


def is_fork() -> bool:
    """Return whether this process is a fork, also of one that had not imported fairlead."""
    if _forks:
        return True
    try:
        with open("/proc/self/stat", "rb") as file:
            after_name = file.read().rpartition(b")")[2].split()
        return bool(int(after_name[6]) & _PF_FORKNOEXEC)
    except (OSError, ValueError, IndexError):
        return False


def _free_all() -> None:
    """Free all locks in the child, in which no thread exists that could release them."""
    global _forks
    _forks += 1
    for lock in list(_locks):
        lock._at_fork_reinit()


os.register_at_fork(after_in_child=_free_all)
