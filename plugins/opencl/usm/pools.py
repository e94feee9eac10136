"""Pools of USM, and allocations and frees in a queue's order.

A pool keeps what is freed to it, up to its release threshold. The next allocation of the same kind,
device, size and alignment gets it. The threshold is 0 unless the pool was created with limits:
then the pool keeps everything that is not larger than `maxPoolableSize`. For the pool of a device
(urUSMPoolCreateExp) that limit is the most that it may ever hold, as DPC++ means it.

An enqueued allocation is made at once. An enqueued free happens in the queue's order.

(Unified Runtime: USM pools, EXP-ASYNC-ALLOC.)
"""

from __future__ import annotations

import ctypes
import weakref
from collections.abc import Callable
from functools import partial
from typing import Any, Final

from ....loader.base.forks import new_lock
from ....loader.ur.abi import UR
from ...sdk._native import ffi
from ...sdk.answers import encoders_of
from ...sdk.objects import Object
from ...sdk.rules import check_flags
from ...sdk.usm import find_chained
from ..contexts import URContext
from ..core import adapter, failure
from ..devices import URDevice
from ..enqueue import Enqueue, declare_enqueue, enqueues
from ..events import UREvent, call_on_status
from ..queues import create_queue
from .allocations import allocate, release_memory
from .registry import add, free, remove
from .strategy import Allocation, AllocationRequest, Location
from .transfers import fill

_LARGEST: Final = (1 << 8 * ctypes.sizeof(ctypes.c_size_t)) - 1
_ZERO: Final = UR["UR_USM_POOL_FLAG_ZERO_INITIALIZE_BLOCK"]

Key = tuple[str, "URDevice | None", int, int]


@adapter.kind
class URPool(Object):
    """A pool of a context, or of one device of it.

    Args:
        context: its context.
        device: its device, None for all.
        flags: ur_usm_pool_flags_t.
        default: whether it is a device's default pool, which does not keep its context alive.

    Attributes:
        largest: bytes of the largest allocation that it keeps.
        threshold: bytes that it may hold and still keep what is freed.
        maximum: bytes that it may ever hold, 0 for any number.
        reserved: bytes that it holds of the driver; `reserved_high`: the most so far.
        used: bytes of these that are allocated; `used_high`: the most so far.
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
        """Return its context. Raises URError (INVALID_CONTEXT) if the context is closed."""
        context = self._context()
        if context is None:
            raise failure("INVALID_CONTEXT", "the context of the pool is gone")
        return context

    def close(self) -> None:
        self.trim(0)

    def check(self, context: URContext, device: URDevice | None) -> None:
        """Raise URError (INVALID_VALUE) if it is for another context, or for another device."""
        if context.cl != self.context.cl or self.device not in (None, device):
            raise failure("INVALID_VALUE", "the pool is of another context, or of another device")

    def take(self, request: AllocationRequest, new: Callable[[], Allocation]) -> Allocation:
        """Take an allocation that it keeps, or else a new one.

        Args:
            request: what is asked for.
            new: allocates what is asked for.

        Raises:
            URError: INVALID_VALUE for another context or device, OUT_OF_RESOURCES if the pool may
                not hold so much, and what `new` raises.
        """
        self.check(request.context, request.device)
        size, key = request.size, (request.kind, request.device, request.size, request.align)
        surplus: list[Allocation] = []
        with self._lock:
            kept = self._free.get(key)
            found = kept.pop() if kept else None
            if found is None and self.maximum and self.reserved + size > self.maximum:
                surplus = self._take_surplus(max(0, self.maximum - size))
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
            allocation = found or self._allocate(request, new)
        except BaseException:
            with self._lock:
                self.used -= size
                self.reserved -= size
            raise
        allocation.pool, allocation.key = self, key
        return allocation

    def _allocate(self, request: AllocationRequest, new: Callable[[], Allocation]) -> Allocation:
        allocation = new()
        if self.flags & _ZERO:
            device = request.device or self.context.devices[0]
            queue = create_queue(self.context, device, 0)
            place = Location(allocation.base, allocation)
            fill(Enqueue(queue, "USM_FILL"), place, b"\0", allocation.size)
            queue.drain()
        return allocation

    def give(self, allocation: Allocation) -> None:
        """Take an allocation back that nothing uses any more. Raises OpenCLError."""
        with self._lock:
            self.used -= allocation.size
            if (
                self.references
                and self.reserved <= self.threshold
                and allocation.size <= self.largest
            ):
                # The pool has no reference to itself, so its last release frees what it keeps.
                allocation.pool = None
                self._free.setdefault(allocation.key, []).append(allocation)
                return
            self.reserved -= allocation.size
        free(allocation)

    def trim(self, keep: int) -> None:
        """Free memory that is not used until no more than `keep` bytes are held.

        Raises:
            OpenCLError: what the driver answers.
        """
        with self._lock:
            surplus = self._take_surplus(keep)
        _free_all(surplus)

    def _take_surplus(self, keep: int) -> list[Allocation]:
        """Remove what is not used until no more than `keep` bytes are held. The lock is held.

        The caller frees it without the lock, because a free may wait for a driver's callback that
        needs the lock.
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
    check_flags(descriptor.flags, "ur_usm_pool_flags_t")
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
    """Answer a query that has no size: the caller has room for the property's type."""
    if not pPropValue and not pPropSizeRet:
        raise failure("INVALID_NULL_POINTER")
    assert adapter.registry is not None
    name = UR.groups["ur_usm_pool_info_t"][propName]
    data = encoders_of("ur_usm_pool_info_t")[propName](_INFO[name](hPool), adapter.registry.show)
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
    """Set the threshold or the maximum, or restart a high-water mark, by setting it to 0."""
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


def _default_pool(context: URContext, device: URDevice) -> URPool:
    context.check_device(device)
    with _lock:
        pools = _defaults.setdefault(context, {})
        if device not in pools:
            pools[device] = URPool(context, device, 0, default=True)
            weakref.finalize(context, _forget_handle, pools[device]).atexit = False
        return pools[device]


def _forget_handle(pool: URPool) -> None:
    """End the handle of a default pool, because its context is gone."""
    if adapter.registry is not None:
        adapter.registry.forget(pool)


def _pool_of(context: URContext, device: URDevice) -> URPool | None:
    """Return the pool that was set for a device, None if there is none that is still alive."""
    pool = _current.get((id(context), id(device)))
    return pool if pool is not None and pool.references and pool.context is context else None


def _check(context: URContext, device: URDevice, pool: URPool) -> None:
    """Raise URError unless the device is one of the context, and the pool is for both."""
    context.check_device(device)
    pool.check(context, device)


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
    return _default_pool(hContext, hDevice)


@adapter.entry
def urUSMPoolSetDevicePoolExp(hContext: URContext, hDevice: URDevice, hPool: URPool) -> None:
    _check(hContext, hDevice, hPool)
    _current[id(hContext), id(hDevice)] = hPool


@adapter.entry
def urUSMPoolGetDevicePoolExp(hContext: URContext, hDevice: URDevice) -> URPool:
    return _pool_of(hContext, hDevice) or _default_pool(hContext, hDevice)


@adapter.entry
def urUSMPoolTrimToExp(
    hContext: URContext, hDevice: URDevice, hPool: URPool, minBytesToKeep: int
) -> None:
    _check(hContext, hDevice, hPool)
    hPool.trim(minBytesToKeep)


# in a queue's order


def _enqueue_allocation(
    kind: str, enqueue: Enqueue, pool: URPool | None, size: int, properties: Any
) -> tuple[int, UREvent | None]:
    if properties:
        check_flags(properties.flags, "ur_exp_async_usm_alloc_flags_t")
    queue = enqueue.queue
    device = None if kind == "host" else queue.device
    if pool is None and device is not None:
        pool = _pool_of(queue.context, device)
    address = allocate(queue.context, kind, device, None, pool, size)
    try:
        return address, enqueue.mark()
    except BaseException:
        release_memory(remove(queue.context, address))
        raise


for _name, _kind in (
    ("urEnqueueUSMDeviceAllocExp", "device"),
    ("urEnqueueUSMSharedAllocExp", "shared"),
    ("urEnqueueUSMHostAllocExp", "host"),
):
    _function = partial(_enqueue_allocation, _kind)
    _command = f"ENQUEUE_USM_{_kind.upper()}_ALLOC_EXP"
    declare_enqueue(_name, _command, _function, "pPool", "size", "pProperties")


@enqueues("ENQUEUE_USM_FREE_EXP")
def urEnqueueUSMFreeExp(enqueue: Enqueue, pPool: URPool | None, pMem: int) -> UREvent | None:
    queue = enqueue.queue
    allocation = remove(queue.context, pMem)
    try:
        if pPool is not None and allocation.pool is not pPool:
            raise failure("INVALID_VALUE", "the memory is of another pool")
        event = queue.mark(enqueue.waits, enqueue.command)
        call_on_status(event.cl, queue.table, 0, lambda status: release_memory(allocation))
    except BaseException:
        add(allocation)
        raise
    queue.flush()  # a callback does not flush (SPEC clSetEventCallback)
    return event
