"""What is allocated: every USM allocation of the adapter, found by any address in it.

Addresses are the process's, but each cl_context has a list of its own: host memory may be made known to several of them.
"""

from __future__ import annotations

import bisect
from typing import Final

from ....loader.base.forks import new_lock
from ..contexts import URContext
from ..core import adapter, failure
from .strategies import Allocation, Strategy

_lock = new_lock()


class _List:
    """What is allocated in one cl_context: by where it begins, and that in order."""

    def __init__(self) -> None:
        self.bases: list[int] = []
        self.allocations: dict[int, Allocation] = {}

    def find(self, address: int) -> Allocation | None:
        index = bisect.bisect_right(self.bases, address)
        found = self.allocations[self.bases[index - 1]] if index else None
        return found if found is not None and address < found.end else None


_lists: Final[
    dict[int, _List]
] = {}  # by the cl_context, which lives as long as anything is allocated in it
_ours: Final[set[int]] = set()  # the bases of all these, and of what is given up but not freed yet


def add(allocation: Allocation) -> Allocation:
    """Have `find` know it."""
    with _lock:
        known = _lists.setdefault(allocation.context.cl, _List())
        bisect.insort(known.bases, allocation.base)
        known.allocations[allocation.base] = allocation
        if not allocation.imported:
            _ours.add(allocation.driver_base)
    return allocation


def remove(context: URContext, address: int) -> Allocation:
    """Have `find` forget the allocation that begins at an address. Raises URError (INVALID_MEM_OBJECT) if none of the
    context does.
    """
    with _lock:
        known = _lists.get(context.cl)
        allocation = known.allocations.pop(address, None) if known is not None else None
        if known is None or allocation is None:
            raise failure("INVALID_MEM_OBJECT", "no USM memory of the context begins there")
        del known.bases[bisect.bisect_left(known.bases, address)]
        if not known.bases:
            del _lists[context.cl]
    return allocation


def find(context: URContext, address: int) -> Allocation | None:
    """The allocation of the context, or of another object for the same cl_context, that contains an address."""
    with _lock:
        known = _lists.get(context.cl)
        return known.find(address) if known is not None else None


def is_unreachable(address: int) -> bool:
    """Whether an address lies in device memory, of whatever context. That of others is none of the host's either."""
    with _lock:
        return any(
            (found := known.find(address)) is not None and found.kind == "device"
            for known in _lists.values()
        )


def foreign(context: URContext, strategy: type[Strategy] | None, address: int) -> Allocation | None:
    """What the driver knows of an address that is not ours, and never was."""
    found = strategy.foreign(context, address) if strategy is not None else None
    return found if found is not None and found.base not in _ours else None


def free(allocation: Allocation, *, wait: bool = False) -> None:
    """Give memory back to the driver, after `remove`. Raises OpenCLError."""
    with _lock:
        _ours.discard(allocation.driver_base)
    allocation.strategy.free(allocation, wait=wait)


def allocations(context: URContext) -> list[Allocation]:
    """All that is allocated in a context."""
    with _lock:
        known = _lists.get(context.cl)
        return list(known.allocations.values()) if known is not None else []


def _forget_all() -> None:
    """At the adapter's end: the contexts are gone, and what they had with them."""
    with _lock:
        _lists.clear()
        _ours.clear()


adapter.on_close.append(_forget_all)
