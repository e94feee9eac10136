"""Pools of USM: what they keep, and their entry points.

A pool keeps what is freed to it, up to its release threshold. The next allocation of the same kind,
device, size and alignment gets it. The threshold is 0 unless the pool was created with limits:
then the pool keeps everything that is not larger than `maxPoolableSize`. For the pool of a device
(urUSMPoolCreateExp) that limit is the most that it may ever hold, as DPC++ means it.

An adapter has a class of pools that knows its driver, and makes the entry points with it:

    pools = PoolEntryPoints(adapter, CuPool)

(Unified Runtime: USM pools, EXP-ASYNC-ALLOC.)
"""

from __future__ import annotations

import ctypes
import weakref
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, ClassVar, Final

from ...loader.base.forks import make_lock
from ...loader.ur.abi import UR
from ._native import ffi
from .adapter import Adapter
from .answers import list_encoders
from .conversions import failure
from .objects import Object
from .usm import find_chained, remove_known

_LARGEST: Final = (1 << 8 * ctypes.sizeof(ctypes.c_size_t)) - 1
_ZERO: Final = UR["UR_USM_POOL_FLAG_ZERO_INITIALIZE_BLOCK"]


class USMPool(Object):
    """A pool of a context, or of one device of it.

    Allocations have the attributes `size`, `pool` and `key`. Requests have `context`, `kind`,
    `device`, `size` and `align`. Both are the adapter's.

    Args:
        device: its device, None for all.
        flags: ur_usm_pool_flags_t.
        is_default: whether it is a device's default pool, which does not keep its context alive.

    Attributes:
        keeps_context: whether the pools of a device that the program makes keep their context.
        largest: bytes of the largest allocation that it keeps.
        threshold: bytes that it may hold and still keep what is freed.
        maximum: bytes that it may ever hold, 0 for any number.
        reserved: bytes that it holds of the driver; `reserved_high`: the most so far.
        used: bytes of these that are allocated; `used_high`: the most so far.
    """

    type = "ur_usm_pool_handle_t"
    keeps_context: ClassVar[bool] = True

    def __init__(self, context: Any, device: Any, flags: int, *, is_default: bool = False) -> None:
        self._context = weakref.ref(context)
        keeps = not is_default and (device is None or self.keeps_context)
        self._held = context if keeps else None
        self.device, self.flags = device, flags
        self.largest, self.threshold, self.maximum = _LARGEST, 0, 0
        self.used = self.used_high = self.reserved = self.reserved_high = 0
        self._lock = make_lock()
        self._free: dict[Any, list[Any]] = {}

    # what an adapter knows

    def is_of(self, context: Any) -> bool:
        """Return whether the pool can be used in a context. Raises URError (INVALID_CONTEXT)."""
        return context is self.context

    def zero(self, allocation: Any, request: Any) -> None:
        """Fill a new allocation with zeros, and wait for it. Raises what the driver answers."""
        raise NotImplementedError

    def free(self, allocation: Any) -> None:
        """Give memory back to the driver. Raises what the driver answers."""
        raise NotImplementedError

    def get_number(self, name: str) -> int:
        """Return a number of bytes: an attribute, such as "used_high"."""
        return getattr(self, name)

    def set_number(self, name: str, value: int) -> None:
        """Set `threshold` or `maximum`. Raises what the driver answers."""
        setattr(self, name, value)

    def restart(self, high: str, current: str) -> None:
        """Let a high-water mark be what its number is now. Raises what the driver answers."""
        setattr(self, high, getattr(self, current))

    # the same for all

    @property
    def context(self) -> Any:
        """Return the pool's context. Raises URError (INVALID_CONTEXT) if the context is closed."""
        context = self._context()
        if context is None:
            raise failure("INVALID_CONTEXT", "the context of the pool is gone")
        return context

    def close(self) -> None:
        self.trim(0)

    def check(self, context: Any, device: Any) -> None:
        """Raise URError (INVALID_VALUE) if it is for another context, or for another device."""
        if not self.is_of(context) or self.device not in (None, device):
            raise failure("INVALID_VALUE", "the pool is of another context, or of another device")

    def take(self, request: Any, new: Callable[[], Any]) -> Any:
        """Take an allocation that the pool keeps, or else a new one.

        Args:
            new: allocates what is asked for.

        Raises:
            URError: INVALID_VALUE for another context or device, OUT_OF_RESOURCES if the pool may
                not hold so much, and what `new` raises.
        """
        self.check(request.context, request.device)
        size, key = request.size, (request.kind, request.device, request.size, request.align)
        surplus: list[Any] = []
        with self._lock:
            found = self._take_kept(key)
            if found is None and self.maximum and self.reserved + size > self.maximum:
                surplus = self._take_surplus(max(0, self.maximum - size))
            is_full = found is None and bool(self.maximum) and self.reserved + size > self.maximum
            if not is_full:
                if found is None:
                    self.reserved += size
                    self.reserved_high = max(self.reserved_high, self.reserved)
                self.used += size
                self.used_high = max(self.used_high, self.used)
        self._free_all(surplus)
        if is_full:
            raise failure(
                "OUT_OF_RESOURCES",
                f"the pool may hold {self.maximum} bytes, and has {self.reserved}",
            )
        try:
            allocation = found or self._allocate(request, new)
        except BaseException:
            with self._lock:
                self.used -= size
                self.reserved -= size
            raise
        allocation.pool, allocation.key = self, key
        return allocation

    def _take_kept(self, key: Any) -> Any:
        """Remove an allocation that nobody uses, None if there is none. The lock is held."""
        kept = self._free.get(key)
        if kept is None:
            return None
        found = kept.pop()
        if not kept:
            del self._free[key]
        return found

    def _allocate(self, request: Any, new: Callable[[], Any]) -> Any:
        allocation = new()
        if self.flags & _ZERO:
            try:
                self.zero(allocation, request)
            except BaseException:
                self.free(allocation)
                raise
        return allocation

    def give(self, allocation: Any) -> None:
        """Take an allocation back that nothing uses any more. Raises what the driver answers."""
        with self._lock:
            self.used -= allocation.size
            fits = self.reserved <= self.threshold and allocation.size <= self.largest
            if self.references and fits:
                # The pool has no reference to itself, so its last release frees what it keeps.
                allocation.pool = None
                self._free.setdefault(allocation.key, []).append(allocation)
                return
            self.reserved -= allocation.size
        self.free(allocation)

    def trim(self, keep: int) -> None:
        """Free memory that is not used until no more than `keep` bytes are held.

        Raises what the driver answers.
        """
        with self._lock:
            surplus = self._take_surplus(keep)
        self._free_all(surplus)

    def _take_surplus(self, keep: int) -> list[Any]:
        """Remove what is not used until no more than `keep` bytes are held. The lock is held.

        The caller frees it without the lock, because a free may wait for a driver's callback that
        needs the lock.
        """
        surplus: list[Any] = []
        for key in list(self._free):
            while key in self._free and self.reserved > keep:
                surplus.append(self._take_kept(key))
                self.reserved -= surplus[-1].size
        return surplus

    def _free_all(self, allocations: Sequence[Any]) -> None:
        for allocation in allocations:
            self.free(allocation)


_INFO: Final[dict[str, Callable[[USMPool], Any]]] = {
    "UR_USM_POOL_INFO_REFERENCE_COUNT": lambda pool: pool.references,
    "UR_USM_POOL_INFO_CONTEXT": lambda pool: pool.context,
    "UR_USM_POOL_INFO_RELEASE_THRESHOLD_EXP": lambda pool: pool.get_number("threshold"),
    "UR_USM_POOL_INFO_MAXIMUM_SIZE_EXP": lambda pool: pool.get_number("maximum"),
    "UR_USM_POOL_INFO_RESERVED_CURRENT_EXP": lambda pool: pool.get_number("reserved"),
    "UR_USM_POOL_INFO_RESERVED_HIGH_EXP": lambda pool: pool.get_number("reserved_high"),
    "UR_USM_POOL_INFO_USED_CURRENT_EXP": lambda pool: pool.get_number("used"),
    "UR_USM_POOL_INFO_USED_HIGH_EXP": lambda pool: pool.get_number("used_high"),
}
_SETTABLE: Final = {
    "UR_USM_POOL_INFO_RELEASE_THRESHOLD_EXP": "threshold",
    "UR_USM_POOL_INFO_MAXIMUM_SIZE_EXP": "maximum",
}
_RESETTABLE: Final = {
    "UR_USM_POOL_INFO_RESERVED_HIGH_EXP": ("reserved_high", "reserved"),
    "UR_USM_POOL_INFO_USED_HIGH_EXP": ("used_high", "used"),
}


class PoolEntryPoints:
    """The entry points of pools. One object of it declares them.

    Args:
        kind: the class of its pools. `kind(context, device, flags, is_default=False)` makes one.
    """

    def __init__(self, adapter: Adapter, kind: Callable[..., USMPool]) -> None:
        self._adapter, self._kind, self._lock = adapter, kind, make_lock()
        self._defaults: Any = weakref.WeakKeyDictionary()  # context → device → its default pool
        self._current: Any = weakref.WeakKeyDictionary()  # context → device → the one that was set
        adapter.info("urUSMPoolGetInfo", _INFO)
        adapter.declare(
            urUSMPoolCreate=lambda hContext, pPoolDesc: self._create(hContext, None, pPoolDesc),
            urUSMPoolGetInfoExp=self._answer,
            urUSMPoolSetInfoExp=_set,
            urUSMPoolCreateExp=lambda hContext, hDevice, pPoolDesc: self._create(
                hContext, hDevice, pPoolDesc
            ),
            urUSMPoolDestroyExp=self._destroy,
            urUSMPoolGetDefaultDevicePoolExp=self.get_default,
            urUSMPoolSetDevicePoolExp=self._set_current,
            urUSMPoolGetDevicePoolExp=lambda hContext, hDevice: (
                self.find_set(hContext, hDevice) or self.get_default(hContext, hDevice)
            ),
            urUSMPoolTrimToExp=_trim,
        )

    def find_set(self, context: Any, device: Any) -> USMPool | None:
        """Return the pool that was set for a device, None if there is none that is still alive."""
        reference = self._current.get(context, {}).get(device)
        pool = reference() if reference is not None else None
        return pool if pool is not None and pool.references and pool.context is context else None

    def declare_allocations(
        self, declare: Callable[..., None], allocate: Callable[..., tuple[int, Any]]
    ) -> None:
        """Declare the allocations in a queue's order.

        Args:
            declare: `EnqueueFamily.declare`.
            allocate: gets the call, "host", "device" or "shared", a device or None, a pool or None,
                and bytes. It returns an address, and the event if one is wanted. `make_immediate`
                makes such a function.
        """

        def run(
            kind: str, enqueue: Any, pool: USMPool | None, size: int, properties: Any
        ) -> tuple[int, Any]:
            queue = enqueue.queue
            device = None if kind == "host" else queue.device
            if pool is None and device is not None:
                pool = self.find_set(queue.context, device)
            return allocate(enqueue, kind, device, pool, size)

        for kind in ("Device", "Shared", "Host"):
            command = f"ENQUEUE_USM_{kind.upper()}_ALLOC_EXP"
            name = f"urEnqueueUSM{kind}AllocExp"
            declare(name, command, partial(run, kind.lower()), "pPool", "size", "pProperties")

    def _create(self, context: Any, device: Any, descriptor: Any) -> USMPool:
        pool = self._kind(context, device, descriptor.flags)
        limits = find_chained(
            descriptor, "UR_STRUCTURE_TYPE_USM_POOL_LIMITS_DESC", "ur_usm_pool_limits_desc_t"
        )
        if limits is not None and device is not None:
            pool.set_number("maximum", limits.maxPoolableSize)
        elif limits is not None:
            pool.largest = limits.maxPoolableSize
            pool.set_number("threshold", _LARGEST)
        return pool

    def _answer(self, hPool: USMPool, propName: int, pPropValue: int, pPropSizeRet: Any) -> None:
        """Answer a query that has no size: the caller has room for the property's type."""
        registry = self._adapter.objects
        name = UR.groups["ur_usm_pool_info_t"][propName]
        data = list_encoders("ur_usm_pool_info_t")[propName](_INFO[name](hPool), registry.show)
        if pPropValue:
            ffi.memmove(ffi.cast("char *", pPropValue), data, len(data))
        if pPropSizeRet:
            pPropSizeRet[0] = len(data)

    # the pools of a device

    def _destroy(self, hContext: Any, hDevice: Any, hPool: USMPool) -> None:
        hPool.check(hContext, hDevice)
        self._adapter.objects.release(hPool)

    def get_default(self, hContext: Any, hDevice: Any) -> USMPool:
        """Return the default pool of a device."""
        with self._lock:
            pools = self._defaults.setdefault(hContext, {})
            if hDevice not in pools:
                pools[hDevice] = self._kind(hContext, hDevice, 0, is_default=True)
                weakref.finalize(hContext, self._forget_handle, pools[hDevice]).atexit = False
            return pools[hDevice]

    def _forget_handle(self, pool: USMPool) -> None:
        """End the handle of a default pool, because its context is gone."""
        if self._adapter.registry is not None:
            self._adapter.objects.forget(pool)

    def _set_current(self, hContext: Any, hDevice: Any, hPool: USMPool) -> None:
        hPool.check(hContext, hDevice)
        self._current.setdefault(hContext, {})[hDevice] = weakref.ref(hPool)


def make_immediate(
    allocate: Callable[..., int],
    mark: Callable[[Any], Any],
    release: Callable[[Any], None],
    remove: Callable[[Any, int], Any] = remove_known,
) -> Callable[..., tuple[int, Any]]:
    """Return a function that allocates now, and has its place in the queue's order.

    Args:
        allocate: gets a context, "host", "device" or "shared", a device or None, a descriptor, a
            pool or None, and bytes. It returns an address.
        mark: gets the call, and enqueues its place in the order.
        release: releases an allocation that nobody gets to know.
        remove: gets a context and an address, and returns the allocation.
    """

    def run(enqueue: Any, kind: str, device: Any, pool: Any, size: int) -> tuple[int, Any]:
        context = enqueue.queue.context
        address = allocate(context, kind, device, None, pool, size)
        try:
            return address, mark(enqueue)
        except BaseException:
            release(remove(context, address))
            raise

    return run


def _set(hPool: USMPool, propName: int, pPropValue: int, propSize: int) -> None:
    """Set the threshold or the maximum, or restart a high-water mark, by setting it to 0."""
    name = UR.groups["ur_usm_pool_info_t"][propName]
    if name not in _SETTABLE and name not in _RESETTABLE:
        raise failure("UNSUPPORTED_ENUMERATION", name)
    if propSize != ctypes.sizeof(ctypes.c_size_t):
        raise failure("INVALID_SIZE")
    value = ctypes.c_size_t.from_address(pPropValue).value
    if name in _SETTABLE:
        hPool.set_number(_SETTABLE[name], value)
        return
    if value:
        raise failure("INVALID_VALUE", "a high-water mark can only be set to 0")
    hPool.restart(*_RESETTABLE[name])


def _trim(hContext: Any, hDevice: Any, hPool: USMPool, minBytesToKeep: int) -> None:
    hPool.check(hContext, hDevice)
    hPool.trim(minBytesToKeep)
