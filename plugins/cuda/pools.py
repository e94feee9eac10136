"""Pools of USM, and allocations in a queue's order.

A pool keeps what is given back, up to its threshold, and gives it out again.

(Unified Runtime: USM, EXP-USM-POOL, EXP-ASYNC-ALLOC.)
"""

from __future__ import annotations

import ctypes
import weakref
from collections.abc import Callable
from functools import partial
from typing import Any, Final

from ...loader.base.forks import new_lock
from ...loader.ur.abi import UR
from ..sdk._native import ffi
from ..sdk.answers import encoders_of
from ..sdk.rules import check_flags
from ..sdk.usm import find_chained
from .allocations import CuAllocation, CuRequest, add, allocate, free, remove
from .contexts import CuContext
from .core import Object, adapter, failure
from .devices import CuDevice
from .enqueue import CuEnqueue, declare_enqueue, enqueues
from .events import CuEvent
from .usm import allocate_usm, release_memory

_LARGEST: Final = (1 << 64) - 1
_ZERO: Final = UR["UR_USM_POOL_FLAG_ZERO_INITIALIZE_BLOCK"]


@adapter.kind
class CuPool(Object):
    """A pool.

    Args:
        context: its context.
        device: the device whose memory it has, None for any memory.
        flags: ur_usm_pool_flags_t.

    Attributes:
        largest: bytes of the largest allocation that it keeps.
        threshold: it keeps what it is given back while it holds no more bytes than this.
        maximum: the most bytes that it may hold, 0 for any.
        used, used_high: the bytes that are given out, and the most of them so far.
        reserved, reserved_high: the same with what it keeps.
    """

    type = "ur_usm_pool_handle_t"

    def __init__(self, context: CuContext, device: CuDevice | None, flags: int) -> None:
        self._context, self.device, self.flags = weakref.ref(context), device, flags
        self._owner = context if device is None else None
        self.largest, self.threshold, self.maximum = _LARGEST, 0, 0
        self.used = self.used_high = self.reserved = self.reserved_high = 0
        self._lock = new_lock()
        self._free: dict[Any, list[CuAllocation]] = {}

    @property
    def context(self) -> CuContext:
        """Return its context. Raises URError (INVALID_CONTEXT) if the context is closed."""
        context = self._context()
        if context is None:
            raise failure("INVALID_CONTEXT", "the context of the pool is gone")
        return context

    def close(self) -> None:
        self.trim(0)

    def check(self, context: CuContext, device: CuDevice | None) -> None:
        """Raise URError (INVALID_VALUE) if it is for another context, or for another device."""
        if context is not self.context or self.device not in (None, device):
            raise failure("INVALID_VALUE", "the pool is of another context, or of another device")

    def take(self, request: CuRequest) -> CuAllocation:
        """Take an allocation that it keeps, or else a new one.

        Raises:
            URError: INVALID_VALUE for another context or device, OUT_OF_RESOURCES if the pool may
                not hold so much.
            CudaError: what the driver answers.
        """
        self.check(request.context, request.device)
        size, key = request.size, (request.kind, request.device, request.size, request.align)
        surplus: list[CuAllocation] = []
        with self._lock:
            kept = self._free.get(key)
            found = kept.pop() if kept else None
            if found is None and self.maximum and self.reserved + size > self.maximum:
                surplus = self._take_surplus(max(0, self.maximum - size))
            is_full = found is None and bool(self.maximum) and self.reserved + size > self.maximum
            if not is_full:
                self.reserved += size if found is None else 0
                self.reserved_high = max(self.reserved_high, self.reserved)
                self.used += size
                self.used_high = max(self.used_high, self.used)
        for allocation in surplus:
            free(allocation)
        if is_full:
            held = f"the pool may hold {self.maximum} bytes, and has {self.reserved}"
            raise failure("OUT_OF_RESOURCES", held)
        try:
            allocation = found or self._new(request)
        except BaseException:
            with self._lock:
                self.used -= size
                self.reserved -= size
            raise
        allocation.pool, allocation.key = self, key
        return allocation

    def _new(self, request: CuRequest) -> CuAllocation:
        made = allocate(request)
        if self.flags & _ZERO:
            stream = made.owner.clock_stream.handle
            made.owner.call("MemsetD8Async", made.base, 0, made.size, stream)
            made.owner.call("StreamSynchronize", stream)
        return made

    def give(self, allocation: CuAllocation) -> None:
        """Take an allocation back that nothing uses any more. Raises CudaError."""
        with self._lock:
            self.used -= allocation.size
            fits = self.reserved <= self.threshold and allocation.size <= self.largest
            if self.references and fits:
                # The pool has no reference to itself, so its last release frees what it keeps.
                allocation.pool = None
                self._free.setdefault(allocation.key, []).append(allocation)
                return
            self.reserved -= allocation.size
        free(allocation)

    def trim(self, keep: int) -> None:
        """Free memory that is not used until no more than `keep` bytes are held.

        Raises:
            CudaError: what the driver answers.
        """
        with self._lock:
            surplus = self._take_surplus(keep)
        for allocation in surplus:
            free(allocation)

    def _take_surplus(self, keep: int) -> list[CuAllocation]:
        """Remove what is not used until no more than `keep` bytes are held. The lock is held."""
        surplus: list[CuAllocation] = []
        for kept in self._free.values():
            while kept and self.reserved > keep:
                surplus.append(kept.pop())
                self.reserved -= surplus[-1].size
        return surplus


def _create(context: CuContext, device: CuDevice | None, descriptor: Any) -> CuPool:
    check_flags(descriptor.flags, "ur_usm_pool_flags_t")
    pool = CuPool(context, device, descriptor.flags)
    limits = find_chained(
        descriptor, "UR_STRUCTURE_TYPE_USM_POOL_LIMITS_DESC", "ur_usm_pool_limits_desc_t"
    )
    if limits is not None and device is not None:
        pool.maximum = limits.maxPoolableSize
    elif limits is not None:
        pool.largest, pool.threshold = limits.maxPoolableSize, _LARGEST
    return pool


@adapter.entry
def urUSMPoolCreate(hContext: CuContext, pPoolDesc: Any) -> CuPool:
    return _create(hContext, None, pPoolDesc)


_INFO: Final[dict[str, Callable[[CuPool], Any]]] = {
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
def urUSMPoolGetInfoExp(hPool: CuPool, propName: int, pPropValue: int, pPropSizeRet: Any) -> None:
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
def urUSMPoolSetInfoExp(hPool: CuPool, propName: int, pPropValue: int, propSize: int) -> None:
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

_defaults: Final[weakref.WeakKeyDictionary[CuContext, dict[CuDevice, CuPool]]] = (
    weakref.WeakKeyDictionary()
)
_current: Final[weakref.WeakKeyDictionary[CuContext, dict[CuDevice, weakref.ref[CuPool]]]] = (
    weakref.WeakKeyDictionary()
)
_lock = new_lock()


def _default_pool(context: CuContext, device: CuDevice) -> CuPool:
    context.check_device(device)
    with _lock:
        pools = _defaults.setdefault(context, {})
        if device not in pools:
            pools[device] = CuPool(context, device, 0)
            weakref.finalize(context, _forget_handle, pools[device]).atexit = False
        return pools[device]


def _forget_handle(pool: CuPool) -> None:
    """End the handle of a default pool, because its context is gone."""
    if adapter.registry is not None:
        adapter.registry.forget(pool)


def _pool_of(context: CuContext, device: CuDevice) -> CuPool | None:
    """Return the pool that was set for a device, None if there is none that is still alive."""
    reference = _current.get(context, {}).get(device)
    pool = reference() if reference is not None else None
    return pool if pool is not None and pool.references else None


def _check(context: CuContext, device: CuDevice, pool: CuPool) -> None:
    """Raise URError unless the device is one of the context, and the pool is for both."""
    context.check_device(device)
    pool.check(context, device)


@adapter.entry
def urUSMPoolCreateExp(hContext: CuContext, hDevice: CuDevice, pPoolDesc: Any) -> CuPool:
    hContext.check_device(hDevice)
    return _create(hContext, hDevice, pPoolDesc)


@adapter.entry
def urUSMPoolDestroyExp(hContext: CuContext, hDevice: CuDevice, hPool: CuPool) -> None:
    _check(hContext, hDevice, hPool)
    assert adapter.registry is not None
    adapter.registry.release(hPool)


@adapter.entry
def urUSMPoolGetDefaultDevicePoolExp(hContext: CuContext, hDevice: CuDevice) -> CuPool:
    return _default_pool(hContext, hDevice)


@adapter.entry
def urUSMPoolSetDevicePoolExp(hContext: CuContext, hDevice: CuDevice, hPool: CuPool) -> None:
    _check(hContext, hDevice, hPool)
    _current.setdefault(hContext, {})[hDevice] = weakref.ref(hPool)


@adapter.entry
def urUSMPoolGetDevicePoolExp(hContext: CuContext, hDevice: CuDevice) -> CuPool:
    return _pool_of(hContext, hDevice) or _default_pool(hContext, hDevice)


@adapter.entry
def urUSMPoolTrimToExp(
    hContext: CuContext, hDevice: CuDevice, hPool: CuPool, minBytesToKeep: int
) -> None:
    _check(hContext, hDevice, hPool)
    hPool.trim(minBytesToKeep)


# in a queue's order


def _enqueue_allocation(
    kind: str, enqueue: CuEnqueue, pool: CuPool | None, size: int, properties: Any
) -> tuple[int, CuEvent | None]:
    if properties:
        check_flags(properties.flags, "ur_exp_async_usm_alloc_flags_t")
    queue = enqueue.queue
    device = None if kind == "host" else queue.device
    if pool is None and device is not None:
        pool = _pool_of(queue.context, device)
    address = allocate_usm(queue.context, kind, device, None, pool, size)
    try:
        return address, enqueue.run()
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
def urEnqueueUSMFreeExp(enqueue: CuEnqueue, pPool: CuPool | None, pMem: int) -> CuEvent | None:
    """Free memory when the queue has come there. The memory is gone for the program at once.

    The driver's free waits for what is enqueued. So a free that is not for a pool waits here.
    """
    context = enqueue.queue.context
    allocation = remove(context, pMem)
    try:
        if pPool is not None and allocation.pool is not pPool:
            raise failure("INVALID_VALUE", "the memory is of another pool")
        enqueue.wanted, wanted = True, enqueue.wanted
        event = enqueue.run()
        assert event is not None
        event.wait()
    except BaseException:
        add(allocation)
        raise
    release_memory(allocation)
    return event if wanted else None
