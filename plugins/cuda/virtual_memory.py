"""Virtual memory: addresses that are reserved, and physical memory that is mapped to them.

Mapped memory is registered like USM, so that copies and fills find it. It is not freed as USM.
"""

from __future__ import annotations

import ctypes
from typing import Any, Final

from ...loader.ur.abi import UR
from .allocations import CuAllocation, CuRequest
from .contexts import CuContext
from .core import API, Object, adapter, failure, get_constant
from .devices import CuDevice

_PhysicalProperties: Any = UR.get_struct("ur_physical_mem_properties_t")

#: The driver's access for that of Unified Runtime.
_ACCESS: Final = {
    UR[f"UR_VIRTUAL_MEM_ACCESS_FLAG_{name}"]: get_constant(f"CU_MEM_ACCESS_FLAGS_PROT_{access}")
    for name, access in (("NONE", "NONE"), ("READ_ONLY", "READ"), ("READ_WRITE", "READWRITE"))
}


def query_granularity(device: CuDevice, name: str) -> int:
    """Return the granularity of a device's memory: "MINIMUM" or "RECOMMENDED"."""
    size, option = ctypes.c_size_t(), get_constant(f"CU_MEM_ALLOC_GRANULARITY_{name}")
    given = ctypes.byref(size), ctypes.byref(API.make_physical_properties(device)), option
    device.call("MemGetAllocationGranularity", *given)
    return size.value


@adapter.kind
class CuPhysicalMemory(Object):
    """Physical memory of a device.

    Args:
        size: bytes.
        flags: ur_physical_mem_flags_t.
    """

    type = "ur_physical_mem_handle_t"

    def __init__(self, context: CuContext, device: CuDevice, size: int, flags: int) -> None:
        self.context, self.device, self.size, self.flags = context, device, size, flags
        properties = ctypes.byref(API.make_physical_properties(device))
        self.native = device.make("MemCreate", size, properties, 0)

    def close(self) -> None:
        self.device.ask("MemRelease", self.native)  # what is mapped stays until it is unmapped


@adapter.entry
def urVirtualMemGranularityGetInfo(
    hContext: CuContext, hDevice: CuDevice | None, propName: int
) -> int:
    name = UR.groups["ur_virtual_mem_granularity_info_t"][propName].rsplit("_", 1)[1]
    return query_granularity(hDevice or hContext.device, name)


@adapter.entry
def urPhysicalMemCreate(
    hContext: CuContext, hDevice: CuDevice, size: int, pProperties: Any
) -> CuPhysicalMemory:
    flags = pProperties.flags if pProperties else 0
    if not size or size % query_granularity(hDevice, "MINIMUM"):
        raise failure("INVALID_SIZE", f"{size} bytes are not a multiple of the granularity")
    if flags:
        raise failure("UNSUPPORTED_FEATURE", "physical memory is not given to other processes")
    return CuPhysicalMemory(hContext, hDevice, size, flags)


def _encode_properties(memory: CuPhysicalMemory) -> bytes:
    stype = UR["UR_STRUCTURE_TYPE_PHYSICAL_MEM_PROPERTIES"]
    return bytes(_PhysicalProperties(stype, None, memory.flags))


adapter.info(
    "urPhysicalMemGetInfo",
    {
        "UR_PHYSICAL_MEM_INFO_CONTEXT": lambda memory: memory.context,
        "UR_PHYSICAL_MEM_INFO_DEVICE": lambda memory: memory.device,
        "UR_PHYSICAL_MEM_INFO_SIZE": lambda memory: memory.size,
        "UR_PHYSICAL_MEM_INFO_PROPERTIES": _encode_properties,
        "UR_PHYSICAL_MEM_INFO_REFERENCE_COUNT": lambda memory: memory.references,
    },
)


@adapter.entry
def urVirtualMemReserve(hContext: CuContext, pStart: int, size: int) -> int:
    if not size or size % query_granularity(hContext.device, "MINIMUM"):
        raise failure("INVALID_SIZE", f"{size} bytes are not a multiple of the granularity")
    return hContext.device.make("MemAddressReserve", size, 0, pStart, 0)


@adapter.entry
def urVirtualMemFree(hContext: CuContext, pStart: int, size: int) -> None:
    hContext.device.call("MemAddressFree", pStart, size)


def _get_mapped(context: CuContext, start: int) -> CuAllocation:
    """Return what is mapped at an address. Raises URError (INVALID_VALUE) if nothing is."""
    found = context.allocations.find(start)
    if found is None or found.access is None:
        raise failure("INVALID_VALUE", f"nothing is mapped at {start:#x}")
    return found


def _set_access(device: CuDevice, start: int, size: int, flags: int) -> None:
    access = ctypes.byref(API.make_access(device, _ACCESS[flags]))
    device.call("MemSetAccess", start, size, access, 1)


def map_physical(
    device: CuDevice, native: int, offset: int, start: int, size: int, flags: int
) -> None:
    """Map physical memory at reserved addresses.

    Args:
        native: the driver's handle of it.
        start: the first address.
        size: bytes.
        flags: the device's access, ur_virtual_mem_access_flags_t.

    Raises:
        DriverError: the driver refuses it, and nothing is mapped.
    """
    device.call("MemMap", start, size, offset, native, 0)
    try:
        _set_access(device, start, size, flags)
    except BaseException:
        device.ask("MemUnmap", start, size)
        raise


@adapter.entry
def urVirtualMemMap(
    hContext: CuContext,
    pStart: int,
    size: int,
    hPhysicalMem: CuPhysicalMemory,
    offset: int,
    flags: int,
) -> None:
    hContext.check_same("the physical memory", hPhysicalMem)
    if not size or offset + size > hPhysicalMem.size:
        raise failure("INVALID_SIZE", f"bytes {offset} to {offset + size} of {hPhysicalMem.size}")
    if flags and flags not in _ACCESS:
        raise failure("INVALID_VALUE", "memory is mapped with one kind of access")
    flags = flags or UR["UR_VIRTUAL_MEM_ACCESS_FLAG_NONE"]
    device = hPhysicalMem.device
    map_physical(device, hPhysicalMem.native, offset, pStart, size, flags)
    made = CuAllocation(pStart, CuRequest(hContext, "device", device, size), imported=True)
    made.access = flags
    hContext.allocations.add(made)


@adapter.entry
def urVirtualMemUnmap(hContext: CuContext, pStart: int, size: int) -> None:
    found = _get_mapped(hContext, pStart)
    if (found.base, found.size) != (pStart, size):
        raise failure("INVALID_VALUE", "memory is unmapped as it was mapped")
    hContext.drain()
    found.owner.call("MemUnmap", pStart, size)
    hContext.allocations.remove(pStart)


@adapter.entry
def urVirtualMemSetAccess(hContext: CuContext, pStart: int, size: int, flags: int) -> None:
    found = _get_mapped(hContext, pStart)
    if flags not in _ACCESS:
        raise failure("INVALID_VALUE", "memory has one kind of access")
    _set_access(found.owner, pStart, size, flags)
    found.access = flags


@adapter.entry
def urVirtualMemGetInfo(hContext: CuContext, pStart: int, size: int, propName: int) -> int:
    """Return the access of mapped memory, NONE of reserved addresses."""
    found = hContext.allocations.find(pStart)
    if found is None or found.access is None:
        return UR["UR_VIRTUAL_MEM_ACCESS_FLAG_NONE"]
    return found.access
