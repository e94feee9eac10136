"""What is allocated: every USM allocation of the adapter, found by any address in it. Addresses are the process's, so that
there is one list for all contexts.
"""

from __future__ import annotations

import bisect
from typing import Final

from ...loader.forks import new_lock
from .contexts import Context
from .core import adapter, failure
from .usm_strategies import Allocation, Strategy

_lock = new_lock()
_bases: Final[list[int]] = []
_allocations: Final[dict[int, Allocation]] = {}
_ours: Final[set[int]] = set()  # the bases of these, and of what is given up but not freed yet


def add(allocation: Allocation) -> Allocation:
    """Have `find` know it."""
    with _lock:
        bisect.insort(_bases, allocation.base)
        _allocations[allocation.base] = allocation
        _ours.add(allocation.base)
    return allocation


def remove(context: Context, address: int) -> Allocation:
    """Have `find` forget the allocation that begins at an address. Raises URError (INVALID_MEM_OBJECT) if none of the
    context does.
    """
    with _lock:
        allocation = _allocations.get(address)
        if allocation is None or allocation.context.cl != context.cl:
            raise failure("INVALID_MEM_OBJECT", "no USM memory of the context begins there")
        del _allocations[address]
        del _bases[bisect.bisect_left(_bases, address)]
    return allocation


def find(context: Context, address: int) -> Allocation | None:
    """The allocation of the context, or of another object for the same cl_context, that contains an address."""
    with _lock:
        index = bisect.bisect_right(_bases, address)
        allocation = _allocations[_bases[index - 1]] if index else None
    return allocation if allocation is not None and address < allocation.end and allocation.context.cl == context.cl else None


def foreign(context: Context, strategy: type[Strategy] | None, address: int) -> Allocation | None:
    """What the driver knows of an address that is not ours, and never was."""
    found = strategy.foreign(context, address) if strategy is not None else None
    return found if found is not None and found.base not in _ours else None


def free(allocation: Allocation, *, wait: bool = False) -> None:
    """Give memory back to the driver, after `remove`. Raises OpenCLError."""
    with _lock:
        _ours.discard(allocation.base)
    allocation.strategy.free(allocation, wait=wait)


def allocations(context: Context) -> list[Allocation]:
    """All that is allocated in a context."""
    with _lock:
        return [allocation for allocation in _allocations.values() if allocation.context.cl == context.cl]


def _forget_all() -> None:
    """At the adapter's end: the contexts are gone, and what they had with them."""
    with _lock:
        _bases.clear()
        _allocations.clear()
        _ours.clear()


adapter.on_close.append(_forget_all)
