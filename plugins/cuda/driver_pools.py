"""Pools of the driver's: device memory that is allocated and freed in a stream's order.

A driver without these functions, and a device without pools, has none. Then pools.py keeps what is
freed.
"""

from __future__ import annotations

import ctypes
from functools import cache
from typing import Final
from weakref import WeakSet

from ...loader.base.forks import make_lock
from .allocations import CuAllocation, CuRequest, make_allocation
from .core import API, get_constant
from .devices import CuDevice

_FUNCTIONS: Final = (
    *("DeviceGetDefaultMemPool", "MemPoolCreate", "MemPoolDestroy", "MemPoolTrimTo"),
    *("MemPoolSetAttribute", "MemPoolGetAttribute", "MemPoolSetAccess"),
    *("MemAllocFromPoolAsync", "MemFreeAsync"),
)
#: The attributes of a pool (CU_MEMPOOL_ATTR_…) by the names of `USMPool`'s numbers.
ATTRIBUTES: Final = {
    "threshold": "RELEASE_THRESHOLD",
    "reserved": "RESERVED_MEM_CURRENT",
    "reserved_high": "RESERVED_MEM_HIGH",
    "used": "USED_MEM_CURRENT",
    "used_high": "USED_MEM_HIGH",
}
_NONE, _ALL = (get_constant(f"CU_MEM_ACCESS_FLAGS_PROT_{name}") for name in ("NONE", "READWRITE"))

_lock = make_lock()
_pools: Final[WeakSet[DriverPool]] = WeakSet()
#: The devices that may access another one's memory: the other one and the device.
_readers: Final[set[tuple[CuDevice, CuDevice]]] = set()


class DriverPool:
    """A pool of the driver's.

    Args:
        is_default: whether it is the device's own, which all libraries of the process share.
    """

    def __init__(self, device: CuDevice, *, is_default: bool) -> None:
        self.device, self.is_default = device, is_default
        if is_default:
            self.handle = device.make("DeviceGetDefaultMemPool", device.native)
        else:
            self.handle = device.make(
                "MemPoolCreate", ctypes.byref(API.make_pool_properties(device))
            )
        with _lock:
            _pools.add(self)
            readers = [reader for owner, reader in _readers if owner is device]
        for reader in readers:
            self.set_access(reader, _ALL)

    def allocate(self, request: CuRequest, stream: int) -> CuAllocation:
        """Allocate memory that a stream may use from here on. Raises DriverError."""
        given = request.room, self.handle, stream
        made = make_allocation(self.device.make("MemAllocFromPoolAsync", *given), request)
        made.in_driver_pool = True
        return made

    def free(self, allocation: CuAllocation, stream: int) -> None:
        """Free memory when a stream has come here. Raises DriverError."""
        self.device.call("MemFreeAsync", allocation.base - allocation.padding, stream)

    def query_number(self, name: str) -> int:
        """Return a number of bytes, a key of `ATTRIBUTES`. Raises DriverError."""
        value = ctypes.c_uint64()
        attribute = get_constant(f"CU_MEMPOOL_ATTR_{ATTRIBUTES[name]}")
        self.device.call("MemPoolGetAttribute", self.handle, attribute, ctypes.byref(value))
        return value.value

    def set_number(self, name: str, value: int) -> None:
        """Set the threshold, or let a high-water mark begin anew with 0. Raises DriverError."""
        given = (
            get_constant(f"CU_MEMPOOL_ATTR_{ATTRIBUTES[name]}"),
            ctypes.byref(ctypes.c_uint64(value)),
        )
        self.device.call("MemPoolSetAttribute", self.handle, *given)

    def trim(self, keep: int) -> None:
        """Give unused memory back until no more than `keep` bytes are held. Raises DriverError."""
        self.device.call("MemPoolTrimTo", self.handle, keep)

    def close(self) -> None:
        """Destroy the pool. What is allocated stays until it is freed. Raises DriverError."""
        if not self.is_default:
            with _lock:
                _pools.discard(self)
            self.device.call("MemPoolDestroy", self.handle)

    def set_access(self, reader: CuDevice, flags: int) -> None:
        """Set what a device may do with its memory, CUmemAccess_flags. Raises DriverError."""
        access = ctypes.byref(API.make_access(reader, flags))
        self.device.call("MemPoolSetAccess", self.handle, access, 1)


@cache
def has_pools(device: CuDevice) -> bool:
    """Return whether the driver has pools for a device."""
    return bool(device.query_attribute("MEMORY_POOLS_SUPPORTED")) and all(
        map(device.has, _FUNCTIONS)
    )


def grant_access(owner: CuDevice, reader: CuDevice) -> None:
    """Let a device use another one's pools, those that come later too. Raises DriverError."""
    with _lock:
        _readers.add((owner, reader))
    _set_all_access(owner, reader, _ALL)


def revoke_access(owner: CuDevice, reader: CuDevice) -> None:
    """Take back what `grant_access` has given. Raises DriverError."""
    with _lock:
        _readers.discard((owner, reader))
    _set_all_access(owner, reader, _NONE)


def _set_all_access(owner: CuDevice, reader: CuDevice, flags: int) -> None:
    with _lock:
        found = [pool for pool in _pools if pool.device is owner]
    for pool in found:
        pool.set_access(reader, flags)
