"""Device memory that other APIs and processes can import, by a file descriptor.

It is physical memory that is mapped to addresses of its own, and registered like USM.
"""

from __future__ import annotations

import ctypes

from ...loader.ur.abi import UR
from .allocations import CuAllocation, CuRequest
from .contexts import CuContext
from .core import API, adapter, failure, get_constant
from .devices import CuDevice
from .virtual_memory import map_physical, query_granularity

_OPAQUE_FD = UR["UR_EXP_EXTERNAL_MEM_TYPE_OPAQUE_FD"]
_READ_WRITE = UR["UR_VIRTUAL_MEM_ACCESS_FLAG_READ_WRITE"]
_HANDLE_TYPE = get_constant("CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR")


class CuExportable(CuAllocation):
    """Memory that can be exported.

    Args:
        native: the driver's handle of the physical memory.
    """

    def __init__(self, base: int, request: CuRequest, native: int, room: int) -> None:
        super().__init__(base, request, imported=True)
        self.native, self.room, self.access = native, room, _READ_WRITE


def _check_type(device: CuDevice, kind: int) -> None:
    """Raise URError (UNSUPPORTED_FEATURE) unless memory is exported as a type of handles."""
    has = device.query_attribute("HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED")
    if kind != _OPAQUE_FD or not has:
        raise failure("UNSUPPORTED_FEATURE", "memory is exported as a file descriptor, or not")


def _map(device: CuDevice, native: int, room: int, align: int) -> int:
    """Return addresses at which physical memory is mapped. Raises DriverError."""
    base = device.make("MemAddressReserve", room, align, 0, 0)
    try:
        map_physical(device, native, 0, base, room, _READ_WRITE)
    except BaseException:
        device.ask("MemAddressFree", base, room)
        raise
    return base


@adapter.entry
def urMemoryExportAllocExportableMemoryExp(
    hContext: CuContext, hDevice: CuDevice, alignment: int, size: int, handleTypeToExport: int
) -> int:
    if size > hDevice.found.memory:
        raise failure("UNSUPPORTED_SIZE", f"{size} bytes are more than the device has")
    _check_type(hDevice, handleTypeToExport)
    step = query_granularity(hDevice, "MINIMUM")
    room = (size + step - 1) // step * step
    properties = API.make_physical_properties(hDevice)
    properties.requestedHandleTypes = _HANDLE_TYPE
    native = hDevice.make("MemCreate", room, ctypes.byref(properties), 0)
    try:
        base = _map(hDevice, native, room, alignment if alignment > step else 0)
    except BaseException:
        hDevice.ask("MemRelease", native)
        raise
    made = CuExportable(base, CuRequest(hContext, "device", hDevice, size), native, room)
    return hContext.allocations.add(made).base


def _find_exportable(context: CuContext, address: int) -> CuExportable:
    """Return memory by its address. Raises URError (INVALID_VALUE) for other memory."""
    found = context.allocations.find(address)
    if not isinstance(found, CuExportable) or found.base != address:
        raise failure("INVALID_VALUE", "no exportable memory begins there")
    return found


@adapter.entry
def urMemoryExportFreeExportableMemoryExp(
    hContext: CuContext, hDevice: CuDevice, pMem: int
) -> None:
    found = _find_exportable(hContext, pMem)
    hContext.drain()
    hContext.allocations.remove(pMem)
    device = found.owner
    device.call("MemUnmap", found.base, found.room)
    device.call("MemAddressFree", found.base, found.room)
    device.call("MemRelease", found.native)


@adapter.entry
def urMemoryExportExportMemoryHandleExp(
    hContext: CuContext, hDevice: CuDevice, handleTypeToExport: int, pMem: int, pMemHandleRet: int
) -> None:
    """Write a file descriptor, an int. It belongs to the program."""
    _check_type(hDevice, handleTypeToExport)
    native = _find_exportable(hContext, pMem).native
    hDevice.call("MemExportToShareableHandle", pMemHandleRet, native, _HANDLE_TYPE, 0)
