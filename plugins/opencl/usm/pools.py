"""Pools of USM, and allocations and frees in a queue's order.

A pool keeps what is freed to it for the next allocation of the same kind, device and size, as long as it holds no more
than its release threshold: that is 0, unless the pool was created with limits, which allow all that is not larger than
`maxPoolableSize`. A pool of one device (urUSMPoolCreateExp) takes that limit for the most that it may ever hold, as DPC++
means it. An enqueued allocation is there at once; an enqueued free happens when its place in the queue's order has come.
(Unified Runtime, USM pools; EXP-ASYNC-ALLOC)
"""

from __future__ import annotations

import ctypes
import weakref
from collections.abc import Callable
from typing import Any, Final

from ....loader.base.forks import new_lock
from ....loader.ur.abi import UR
from ...sdk._native import ffi
from ...sdk.answers import properties
from ...sdk.objects import Object
from ..contexts import URContext
from ..core import adapter, check, failure
from ..devices import URDevice
from ..events import UREvent, call_on_status
from ..extensions import enqueue_marker
from ..queues import URQueue, create_queue
from .allocations import allocate, find_chained, release_memory
from .registry import add, free, remove
from .strategies import Allocation
from .transfers import fill

_LARGEST: Final = (1 << 8 * ctypes.sizeof(ctypes.c_size_t)) - 1
_ZERO: Final = UR["UR_USM_POOL_FLAG_ZERO_INITIALIZE_BLOCK"]

Key = tuple[str, "URDevice | None", int, int]


@adapter.kind
class URPool(Object):
    """A pool of a context, or of one device of it.

    Sizes are in bytes: `reserved` is what it holds of the driver's, `used` what of that is allocated; `…_high` the most so
    far. `maximum` is 0 where there is none. A device's default pool is of a context that does not have to live for it.
    """

    type = "ur_usm_pool_handle_t"

    def __init__(
        self, context: URContext, device: URDevice | None, flags: int, *, default: bool = False
    ) -> None:
        self._context = weakref.ref(context)
        self._held = None if default else context
        self.device, self.flags = device, flags
        self.largest, self.threshold, self.maximum = _LARGEST, 0, 0
        self.used = self.used_high = self.reserved = self.reserved_high = 0
        self._lock = new_lock()
        self._free: dict[Key, list[Allocation]] = {}

    @property
    def context(self) -> URContext:
        """Its context. Raises URError (INVALID_CONTEXT) if that is gone."""
        context = self._context()
        if context is None:
            raise failure("INVALID_CONTEXT", "the context of the pool is gone")
        return context

    def close(self) -> None:
        self.trim(0)

    def take(
        self,
        context: URContext,
        kind: str,
        device: URDevice | None,
        size: int,
        align: int,
        new: Callable[[], Allocation],
    ) -> Allocation:
        """An allocation of the pool's: one that it kept, else what `new` gives. Raises URError (INVALID_VALUE,
        OUT_OF_RESOURCES).
        """
        if context.cl != self.context.cl or (self.device is not None and device is not self.device):
            raise failure("INVALID_VALUE", "the pool is of another context, or of another device")
        key = kind, device, size, align
        surplus: list[Allocation] = []
        with self._lock:
            kept = self._free.get(key)
            found = kept.pop() if kept else None
            if found is None and self.maximum and self.reserved + size > self.maximum:
                surplus = self._surplus(max(0, self.maximum - size))
            is_full = found is None and bool(self.maximum) and self.reserved + size > self.maximum
            if not is_full:
                if found is None:
                    self.reserved += size
                    self.reserved_high = max(self.reserved_high, self.reserved)
                self.used += size
                self.used_high = max(self.used_high, self.used)
        _free_all(surplus)
        if is_full:
            raise failure(
                "OUT_OF_RESOURCES",
                f"the pool may hold {self.maximum} bytes, and has {self.reserved}",
            )
        try:
            allocation = found or self._made(key, new)
        except BaseException:
            with self._lock:
                self.used -= size
                self.reserved -= size
            raise
        allocation.pool, allocation.key = self, key
        return allocation

    def _made(self, key: Key, new: Callable[[], Allocation]) -> Allocation:
        allocation = new()
        if self.flags & _ZERO:
            queue = create_queue(self.context, key[1] or self.context.devices[0], 0)
            fill(
                queue, "USM_FILL", (allocation.base, allocation), b"\0", allocation.size, (), False
            )
            queue.drain()
        return allocation

    def give(self, allocation: Allocation) -> None:
        """Take an allocation of the pool's back, which nothing uses any more. Raises OpenCLError."""
        with self._lock:
            self.used -= allocation.size
            if (
                self.references
                and self.reserved <= self.threshold
                and allocation.size <= self.largest
            ):
                allocation.pool = None  # nothing leads back, so that the pool ends, and frees them, with its last reference
                self._free.setdefault(allocation.key, []).append(allocation)
                return
            self.reserved -= allocation.size
        free(allocation)

    def trim(self, keep: int) -> None:
        """Give memory that is not in use back to the driver until no more than `keep` bytes are held. Raises OpenCLError."""
        with self._lock:
            surplus = self._surplus(keep)
        _free_all(surplus)

    def _surplus(self, keep: int) -> list[Allocation]:
        """Take out what is not in use until no more than `keep` bytes are held. The lock is held.

        The caller frees it after the lock: a free may wait for a driver's callback that wants the lock.
        """
        surplus: list[Allocation] = []
        for kept in self._free.values():
            while kept and self.reserved > keep:
                surplus.append(kept.pop())
                self.reserved -= surplus[-1].size
        return surplus


def _free_all(allocations: list[Allocation]) -> None:
    """Give memory back to the driver."""
    for allocation in allocations:
        free(allocation)


def _create(context: URContext, device: URDevice | None, descriptor: Any) -> URPool:
    if descriptor.flags & ~sum(UR.groups["ur_usm_pool_flags_t"]):
        raise failure("INVALID_ENUMERATION", "ur_usm_pool_flags_t")
    pool = URPool(context, device, descriptor.flags)
    limits = find_chained(
        descriptor, "UR_STRUCTURE_TYPE_USM_POOL_LIMITS_DESC", "ur_usm_pool_limits_desc_t"
    )
    if limits is not None and device is not None:
        pool.maximum = limits.maxPoolableSize
    elif limits is not None:
        pool.largest, pool.threshold = limits.maxPoolableSize, _LARGEST
    return pool


@adapter.entry
def urUSMPoolCreate(hContext: URContext, pPoolDesc: Any) -> URPool:
    return _create(hContext, None, pPoolDesc)


_INFO: Final[dict[str, Callable[[URPool], Any]]] = {
    "UR_USM_POOL_INFO_REFERENCE_COUNT": lambda pool: pool.references,
    "UR_USM_POOL_INFO_CONTEXT": lambda pool: pool.context,
    "UR_USM_POOL_INFO_RELEASE_THRESHOLD_EXP": lambda pool: pool.threshold,
    "UR_USM_POOL_INFO_MAXIMUM_SIZE_EXP": lambda pool: pool.maximum,
    "UR_USM_POOL_INFO_RESERVED_CURRENT_EXP": lambda pool: pool.reserved,
    "UR_USM_POOL_INFO_RESERVED_HIGH_EXP": lambda pool: pool.reserved_high,
    "UR_USM_POOL_INFO_USED_CURRENT_EXP": lambda pool: pool.used,
    "UR_USM_POOL_INFO_USED_HIGH_EXP": lambda pool: pool.used_high,
}
adapter.info("urUSMPoolGetInfo", _INFO)


@adapter.entry
def urUSMPoolGetInfoExp(hPool: URPool, propName: int, pPropValue: int, pPropSizeRet: Any) -> None:
    """The query without a size: the caller has room for the property's type."""
    if not pPropValue and not pPropSizeRet:
        raise failure("INVALID_NULL_POINTER")
    assert adapter.registry is not None
    name = UR.groups["ur_usm_pool_info_t"][propName]
    data = properties("ur_usm_pool_info_t")[propName](_INFO[name](hPool), adapter.registry.show)
    if pPropValue:
        ffi.memmove(ffi.cast("char *", pPropValue), data, len(data))
    if pPropSizeRet:
        pPropSizeRet[0] = len(data)


_SETTABLE: Final = {
    "UR_USM_POOL_INFO_RELEASE_THRESHOLD_EXP": "threshold",
    "UR_USM_POOL_INFO_MAXIMUM_SIZE_EXP": "maximum",
}
_RESETTABLE: Final = {
    "UR_USM_POOL_INFO_RESERVED_HIGH_EXP": ("reserved_high", "reserved"),
    "UR_USM_POOL_INFO_USED_HIGH_EXP": ("used_high", "used"),
}


@adapter.entry
def urUSMPoolSetInfoExp(hPool: URPool, propName: int, pPropValue: int, propSize: int) -> None:
    """The threshold and the maximum; a high-water mark may be set to 0, which begins it anew."""
    name = UR.groups["ur_usm_pool_info_t"][propName]
    if name not in _SETTABLE and name not in _RESETTABLE:
        raise failure("UNSUPPORTED_ENUMERATION", name)
    if propSize != ctypes.sizeof(ctypes.c_size_t):
        raise failure("INVALID_SIZE")
    value = ctypes.c_size_t.from_address(pPropValue).value
    if name in _SETTABLE:
        setattr(hPool, _SETTABLE[name], value)
        return
    if value:
        raise failure("INVALID_VALUE", "a high-water mark can only be set to 0")
    high, current = _RESETTABLE[name]
    setattr(hPool, high, getattr(hPool, current))


# the pools of a device

_defaults: Final[weakref.WeakKeyDictionary[URContext, dict[URDevice, URPool]]] = (
    weakref.WeakKeyDictionary()
)
_current: Final[weakref.WeakValueDictionary[tuple[int, int], URPool]] = (
    weakref.WeakValueDictionary()
)
_lock = new_lock()


def _default(context: URContext, device: URDevice) -> URPool:
    context.check_device(device)
    with _lock:
        pools = _defaults.setdefault(context, {})
        if device not in pools:
            pools[device] = URPool(context, device, 0, default=True)
            weakref.finalize(context, _end, pools[device]).atexit = False
        return pools[device]


def _end(pool: URPool) -> None:
    """The context is gone: so is the handle of its default pool."""
    if adapter.registry is not None:
        adapter.registry.forget(pool)


def _set(context: URContext, device: URDevice) -> URPool | None:
    """The pool that was set for a device, as long as it lives."""
    pool = _current.get((id(context), id(device)))
    return pool if pool is not None and pool.references and pool.context is context else None


def _check(context: URContext, device: URDevice, pool: URPool) -> None:
    context.check_device(device)
    if pool.context.cl != context.cl or (pool.device is not None and pool.device is not device):
        raise failure("INVALID_VALUE", "the pool is of another context, or of another device")


@adapter.entry
def urUSMPoolCreateExp(hContext: URContext, hDevice: URDevice, pPoolDesc: Any) -> URPool:
    hContext.check_device(hDevice)
    return _create(hContext, hDevice, pPoolDesc)


@adapter.entry
def urUSMPoolDestroyExp(hContext: URContext, hDevice: URDevice, hPool: URPool) -> None:
    _check(hContext, hDevice, hPool)
    assert adapter.registry is not None
    adapter.registry.release(hPool)


@adapter.entry
def urUSMPoolGetDefaultDevicePoolExp(hContext: URContext, hDevice: URDevice) -> URPool:
    return _default(hContext, hDevice)


@adapter.entry
def urUSMPoolSetDevicePoolExp(hContext: URContext, hDevice: URDevice, hPool: URPool) -> None:
    _check(hContext, hDevice, hPool)
    _current[id(hContext), id(hDevice)] = hPool


@adapter.entry
def urUSMPoolGetDevicePoolExp(hContext: URContext, hDevice: URDevice) -> URPool:
    return _set(hContext, hDevice) or _default(hContext, hDevice)


@adapter.entry
def urUSMPoolTrimToExp(
    hContext: URContext, hDevice: URDevice, hPool: URPool, minBytesToKeep: int
) -> None:
    _check(hContext, hDevice, hPool)
    hPool.trim(minBytesToKeep)


# in a queue's order


def _enqueue_allocation(
    queue: URQueue,
    kind: str,
    pool: URPool | None,
    size: int,
    wishes: Any,
    waits: list[UREvent],
    wanted: bool,
) -> tuple[int, UREvent | None]:
    if wishes and wishes.flags & ~sum(UR.groups["ur_exp_async_usm_alloc_flags_t"]):
        raise failure("INVALID_ENUMERATION", "ur_exp_async_usm_alloc_flags_t")
    device = None if kind == "host" else queue.device
    if pool is None and device is not None:
        pool = _set(queue.context, device)
    address = allocate(queue.context, kind, device, None, pool, size)
    try:
        return address, enqueue_marker(
            queue, f"ENQUEUE_USM_{kind.upper()}_ALLOC_EXP", waits, wanted
        )
    except BaseException:
        release_memory(remove(queue.context, address))
        raise


@adapter.entry
def urEnqueueUSMDeviceAllocExp(
    hQueue: URQueue,
    pPool: URPool | None,
    size: int,
    pProperties: Any,
    phEventWaitList: list[UREvent],
    phEvent: bool,
) -> tuple[int, UREvent | None]:
    return _enqueue_allocation(hQueue, "device", pPool, size, pProperties, phEventWaitList, phEvent)


@adapter.entry
def urEnqueueUSMSharedAllocExp(
    hQueue: URQueue,
    pPool: URPool | None,
    size: int,
    pProperties: Any,
    phEventWaitList: list[UREvent],
    phEvent: bool,
) -> tuple[int, UREvent | None]:
    return _enqueue_allocation(hQueue, "shared", pPool, size, pProperties, phEventWaitList, phEvent)


@adapter.entry
def urEnqueueUSMHostAllocExp(
    hQueue: URQueue,
    pPool: URPool | None,
    size: int,
    pProperties: Any,
    phEventWaitList: list[UREvent],
    phEvent: bool,
) -> tuple[int, UREvent | None]:
    return _enqueue_allocation(hQueue, "host", pPool, size, pProperties, phEventWaitList, phEvent)


@adapter.entry
def urEnqueueUSMFreeExp(
    hQueue: URQueue, pPool: URPool | None, pMem: int, phEventWaitList: list[UREvent], phEvent: bool
) -> UREvent | None:
    allocation = remove(hQueue.context, pMem)
    try:
        if pPool is not None and allocation.pool is not pPool:
            raise failure("INVALID_VALUE", "the memory is of another pool")
        event = enqueue_marker(hQueue, "ENQUEUE_USM_FREE_EXP", phEventWaitList, True)
        assert event is not None
        call_on_status(event.cl, hQueue.table, 0, lambda status: release_memory(allocation))
    except BaseException:
        add(allocation)
        raise
    check(
        hQueue.table.clFlush(hQueue.cl), "clFlush"
    )  # a callback is no flush (SPEC clSetEventCallback)
    return event if phEvent else None
