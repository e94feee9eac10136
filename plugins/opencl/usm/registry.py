"""The allocations of USM, found by any address in them.

Each cl_context has a list of its own, because host memory may be imported into several contexts.

C knows the allocations, too, and makes plain ones itself (native/allocations.c). Python learns of
such an allocation when it looks for its address.
"""

from __future__ import annotations

from typing import Final

from ....loader.base.forks import make_lock
from ...sdk._native import ffi, lib
from ...sdk.usm import USM_KINDS, AllocationList
from ..contexts import URContext
from ..core import adapter
from ..devices import get_device
from .strategies import SVM, Intel
from .strategy import Allocation, Strategy

_lock = make_lock()


#: By the cl_context, which lives as long as anything is allocated in it.
_lists: Final[dict[int, AllocationList]] = {}
#: The driver's addresses of these allocations, and of those that are removed but not freed yet.
_ours: Final[set[int]] = set()
#: Those that the driver is freeing: it may give an address to another allocation before it returns.
_freeing: Final[list[int]] = []


def add(allocation: Allocation) -> Allocation:
    """Register an allocation, and return it."""
    with _lock:
        _insert(allocation)
        if not _is_told(allocation) or not lib.fl_add_memory(
            allocation.base, allocation.size, allocation.context.cl, USM_KINDS[allocation.kind]
        ):
            lib.fl_add_hidden(1)
    return allocation


def _is_told(allocation: Allocation) -> bool:
    """Return whether C knows an allocation. Memory of the program may be in several contexts."""
    return not allocation.imported


def _insert(allocation: Allocation) -> None:
    cl = allocation.context.cl
    known = _lists[cl] = _lists.get(cl) or AllocationList()
    known.add(allocation)
    if not allocation.imported:
        _ours.add(allocation.driver_base)


def _adopt(context: URContext, address: int) -> Allocation | None:
    """Return the memory at an address that C has allocated, which is Python's from now on.

    The lock is held.
    """
    found = ffi.new("fl_memory *")
    if not lib.fl_adopt_memory(address, context.cl, found):
        return None
    kind = next(name for name, number in USM_KINDS.items() if number == found.kind)
    device = get_device(found.device) if found.device else None
    strategy = Intel if context.struct.usm == lib.FL_USM_INTEL else SVM
    allocation = Allocation(found.base, found.size, kind, context, device, strategy)
    _insert(allocation)
    return allocation


def remove(context: URContext, address: int) -> Allocation:
    """Forget an allocation, and return it. It is not freed.

    Raises:
        URError: INVALID_MEM_OBJECT if no allocation of the context begins there.
    """
    with _lock:
        known = _lists.get(context.cl)
        if known is None or known.find(address) is None:
            _adopt(context, address)
            known = _lists.get(context.cl) or AllocationList()
        allocation = known.remove(address)
        if _is_told(allocation):
            lib.fl_remove_memory(address)
        else:
            lib.fl_add_hidden(-1)
        if not known:
            del _lists[context.cl]
    return allocation


def find(context: URContext, address: int) -> Allocation | None:
    """Find the allocation of a cl_context that contains an address."""
    with _lock:
        known = _lists.get(context.cl)
        found = known.find(address) if known is not None else None
        return found or _adopt(context, address)


def is_unreachable(address: int) -> bool:
    """Return whether an address lies in device memory of any context.

    The host must not touch the device memory of another context either.
    """
    return lib.fl_kind_of_memory(address) == USM_KINDS["device"]


def find_foreign(
    context: URContext, strategy: type[Strategy] | None, address: int
) -> Allocation | None:
    """Ask the driver about an address that we did not allocate."""
    found = strategy.foreign(context, address) if strategy is not None else None
    if strategy is None or found is None:
        return None
    if found.base in _ours or found.base in _freeing or lib.fl_kind_of_memory(found.base):
        return None
    return strategy.foreign(context, address)  # again: it may have been ours, and freed since


def free(allocation: Allocation, *, wait: bool = False) -> None:
    """Give memory back to the driver, after `remove`.

    Args:
        wait: whether the driver may wait until it knows that nothing uses it.
    """
    with _lock:
        _freeing.append(allocation.driver_base)
        _ours.discard(allocation.driver_base)
    try:
        allocation.strategy.free(allocation, wait=wait)
    finally:
        with _lock:
            _freeing.remove(allocation.driver_base)


def list_allocations(context: URContext) -> list[Allocation]:
    """Return everything that is allocated in a context."""
    with _lock:
        while address := lib.fl_find_memory(context.cl):
            _adopt(context, address)
        known = _lists.get(context.cl)
        return list(known or ())


def _forget_all() -> None:
    """Forget everything at the adapter's end, after its contexts."""
    with _lock:
        for known in _lists.values():
            for allocation in known:
                lib.fl_remove_memory(allocation.base)
        _lists.clear()
        _ours.clear()


adapter.on_close.append(_forget_all)
