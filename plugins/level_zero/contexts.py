"""Contexts of the Level Zero driver, and memory that is used by its address."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from typing import Any, Final

from ...icd.abi import OPENCL
from ...loader.base.forks import make_lock
from ...loader.base.snapshots import list_items
from ..opencl.contexts import URContext
from ..opencl.core import create, make_handle_array
from ..opencl.devices import URDevice
from ..opencl.usm.allocations import allocate, release_memory
from ..opencl.usm.registry import find, list_allocations, remove
from ..opencl.usm.strategy import Allocation
from ..sdk.objects import Object
from .core import ZE, driver, make_failure
from .devices import ZeDevice, ZePlatform

#: Held while a default context is chosen, and while contexts come and go.
_lock: Final = make_lock()
_PAGE: Final = 4096
_TYPES: Final = {
    kind: ZE[f"ZE_MEMORY_TYPE_{kind.upper()}"] for kind in ("host", "device", "shared")
}


class _SharedContext:
    """A cl_context, and how many contexts of Level Zero have it.

    Attributes:
        freed_later: the addresses that the program has freed, and for each a function that says
            whether something that was enqueued before still runs.
    """

    def __init__(self, ur: URContext) -> None:
        self.ur, self.users = ur, 0
        self.freed_later: dict[int, Callable[[], bool]] = {}


#: Contexts of the same devices have one cl_context, by the devices: drivers of Level Zero run a
#: module of one context in a list of another. OpenCL does not.
_shared: Final[dict[tuple[URDevice, ...], _SharedContext]] = {}


@driver.kind
class ZeContext(Object):
    """A context of all devices of a driver, or of some.

    Args:
        devices: the devices. Their sub-devices belong to it, too.

    Attributes:
        ur: the context of the reference adapter, which all contexts of these devices share.
    """

    type = "ze_context_handle_t"

    def __init__(self, platform: ZePlatform, devices: Sequence[ZeDevice]) -> None:
        self.platform = platform
        parts = (one for device in devices for one in (device, *device.parts))
        self.devices = tuple(dict.fromkeys(parts))
        # Intel's driver refuses queues of a sub-device in a context that lacks it or its device.
        self._key = tuple(dict.fromkeys(one for device in devices for one in device.family))
        with _lock:
            shared = _shared.get(self._key)
            if shared is None:
                shared = _SharedContext(_make_context(platform, self._key))
                _shared[self._key] = shared
            shared.users += 1
            self._own, self.ur = shared, shared.ur

    def shares(self, other: ZeContext) -> bool:
        """Return whether what belongs to another context can be used in this one."""
        return self.ur is other.ur

    def check(self, device: ZeDevice | None) -> None:
        """Check that a device is in the context.

        Raises:
            LevelZeroError: INVALID_ARGUMENT if it is not.
        """
        if device is not None and device not in self.devices:
            raise make_failure("INVALID_ARGUMENT", "the device is not one of the context")

    def free(self, address: int) -> None:
        """Free memory that nothing uses any more."""
        release_memory(remove(self.ur, address), wait=False)

    def free_later(self, address: int, runs: Callable[[], bool]) -> None:
        """Free memory in a later call, when a function says that nothing runs any more."""
        self._own.freed_later[address] = runs

    def free_ended(self) -> None:
        """Free the memory that had to wait and need not any more."""
        for address, runs in list_items(self._own.freed_later):
            if not runs() and self._own.freed_later.pop(address, None) is not None:
                self.free(address)

    def find_base(self, address: int) -> Allocation:
        """Return the allocation that begins at an address.

        Raises:
            LevelZeroError: INVALID_ARGUMENT if no allocation of the context begins there.
        """
        self.free_ended()
        found = None if address in self._own.freed_later else find(self.ur, address)
        if found is None or found.base != address or found.imported:
            raise make_failure("INVALID_ARGUMENT", "no memory of the context begins there")
        return found

    def close(self) -> None:
        """Free the memory that nobody has freed, with the last context that has it."""
        with _lock:
            self._own.users -= 1
            if self._own.users:
                return
            if _shared.get(self._key) is self._own:
                del _shared[self._key]
        for allocation in list_allocations(self.ur):
            if not allocation.imported:
                release_memory(remove(self.ur, allocation.base), wait=True)
        self.ur.finish()


def _make_context(platform: ZePlatform, devices: Sequence[URDevice]) -> URContext:
    properties = (ctypes.c_ssize_t * 3)(OPENCL["CL_CONTEXT_PLATFORM"], platform.ur.cl, 0)
    arguments = properties, len(devices), make_handle_array(devices), None, None
    return URContext(create(platform.ur.table, "clCreateContext", *arguments), devices)


@driver.entry
def zeContextCreate(hDriver: ZePlatform, desc: Any) -> ZeContext:
    return ZeContext(hDriver, hDriver.all_devices)


@driver.entry
def zeContextCreateEx(
    hDriver: ZePlatform, desc: Any, numDevices: int, phDevices: list[ZeDevice]
) -> ZeContext:
    if any(device.platform is not hDriver for device in phDevices):
        raise make_failure("INVALID_ARGUMENT", "a device is of another driver")
    return ZeContext(hDriver, phDevices or hDriver.all_devices)


@driver.entry
def zeDriverGetDefaultContext(hDriver: ZePlatform) -> ZeContext:
    """Return the context that a driver makes itself. The first call makes it."""
    if hDriver.default_context is None:
        made = ZeContext(hDriver, hDriver.all_devices)
        with _lock:
            if hDriver.default_context is None:  # no other thread was quicker
                driver.objects.retain(made)
                hDriver.default_context = made
    return hDriver.default_context


@driver.entry
def zeContextGetStatus(hContext: ZeContext) -> None:
    pass


@driver.entry
def zeContextSystemBarrier(hContext: ZeContext, hDevice: ZeDevice) -> None:
    hContext.check(hDevice)


@driver.entry
def zeContextMakeMemoryResident(hContext: ZeContext, hDevice: ZeDevice) -> None:
    """Do nothing: an OpenCL driver keeps all memory where its device reaches it."""
    hContext.check(hDevice)


@driver.entry
def zeContextEvictMemory(hContext: ZeContext, hDevice: ZeDevice) -> None:
    hContext.check(hDevice)


# memory


#: Bytes that no process of a 64-bit machine can have: addresses have 47 bits there.
_MOST_MEMORY: Final = 1 << 47


def _allocate(
    context: ZeContext, kind: str, device: ZeDevice | None, size: int, alignment: int
) -> int:
    context.check(device)
    context.free_ended()
    # Other drivers refuse no alignment. The next power of two suits, too.
    align = 1 << (alignment - 1).bit_length() if alignment else 0
    if align > _MOST_MEMORY:  # of the size the driver says so
        raise make_failure("OUT_OF_DEVICE_MEMORY", f"{size} bytes aligned to {alignment} bytes")
    ur = device.ur if device is not None else None
    return allocate(context.ur, kind, ur, None, None, size, align)


@driver.entry
def zeMemAllocHost(hContext: ZeContext, host_desc: Any, size: int, alignment: int) -> int:
    return _allocate(hContext, "host", None, size, alignment)


@driver.entry
def zeMemAllocDevice(
    hContext: ZeContext, device_desc: Any, size: int, alignment: int, hDevice: ZeDevice
) -> int:
    return _allocate(hContext, "device", hDevice, size, alignment)


@driver.entry
def zeMemAllocShared(
    hContext: ZeContext,
    device_desc: Any,
    host_desc: Any,
    size: int,
    alignment: int,
    hDevice: ZeDevice | None,
) -> int:
    return _allocate(hContext, "shared", hDevice or hContext.devices[0], size, alignment)


@driver.entry
def zeMemFree(hContext: ZeContext, ptr: int) -> None:
    hContext.find_base(ptr)
    hContext.free(ptr)


@driver.entry
def zeMemGetAllocProperties(
    hContext: ZeContext, ptr: int, pMemAllocProperties: Any, phDevice: Any
) -> None:
    found, row = find(hContext.ur, ptr), pMemAllocProperties
    row.type = _TYPES[found.kind] if found is not None else ZE["ZE_MEMORY_TYPE_UNKNOWN"]
    row.id, row.pageSize = (found.base, _PAGE) if found is not None else (0, 0)
    if not phDevice:
        return
    phDevice[0] = 0
    if found is not None and found.device is not None:
        owner = next(one for one in hContext.devices if one.ur is found.device)
        phDevice[0] = driver.objects.show(owner)


@driver.entry
def zeMemGetAddressRange(hContext: ZeContext, ptr: int, pBase: Any, pSize: Any) -> None:
    found = find(hContext.ur, ptr)
    if found is None:
        raise make_failure("ADDRESS_NOT_FOUND", "the address is in no memory of the context")
    if pBase:
        pBase[0] = found.base
    if pSize:
        pSize[0] = found.size
