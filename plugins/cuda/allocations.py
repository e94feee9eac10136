"""The allocations of USM of CUDA and HIP, found by any address in them, and host memory that was
imported.
"""

from __future__ import annotations

import ctypes
from typing import Any, Final

from ..sdk.usm import AllocationObject, MemoryRequest, find_bytes
from .contexts import CuContext, list_contexts
from .core import API, failure, get_constant
from .devices import CuDevice

_PORTABLE: Final = get_constant("CU_MEMHOSTALLOC_PORTABLE") | get_constant(
    "CU_MEMHOSTALLOC_DEVICEMAP"
)
_GLOBAL: Final = get_constant("CU_MEM_ATTACH_GLOBAL")
#: Bytes to which the driver aligns memory.
ALIGNMENT: Final = 256


class CuRequest(MemoryRequest):
    """An allocation that is asked for."""

    __slots__ = ()

    @property
    def room(self) -> int:
        """Return the bytes to allocate, so that an aligned part has `size` bytes."""
        return self.size + self.align if self.align > ALIGNMENT else self.size


class CuAllocation(AllocationObject):
    """Memory that is used by its address.

    Args:
        base: its first byte.
        padding: bytes between what the driver has allocated and `base`.
        imported: whether it is the program's own memory.

    Attributes:
        in_driver_pool: whether it is of a pool of the driver, which frees it in a stream's order.
        access: ur_virtual_mem_access_flags_t of mapped memory, None of other memory.
    """

    def __init__(
        self, base: int, request: CuRequest, padding: int = 0, *, imported: bool = False
    ) -> None:
        super().__init__(base, request, imported=imported)
        self.padding, self.in_driver_pool = padding, False
        self.access: int | None = None

    @property
    def owner(self) -> CuDevice:
        """Return the device in whose context it was allocated."""
        return self.device or self.context.device

    def is_for(self, context: CuContext) -> bool:
        """Return whether a context can use it. Contexts of a device have one context of CUDA."""
        return self.kind != "device" or self.owner in context.devices


def allocate(request: CuRequest) -> CuAllocation:
    """Allocate memory of the driver. It is not registered."""
    room, owner = request.room, request.device or request.context.device
    if request.kind == "host":
        base = owner.make("MemHostAlloc", room, _PORTABLE)
    elif request.kind == "device":
        base = owner.make("MemAlloc", room)
    else:
        base = owner.make("MemAllocManaged", room, _GLOBAL)
    return make_allocation(base, request)


def make_allocation(base: int, request: CuRequest) -> CuAllocation:
    """Return the allocation in `request.room` bytes of the driver's from `base` on."""
    padding = -base % request.align if request.align > ALIGNMENT else 0
    return CuAllocation(base + padding, request, padding)


def free(allocation: CuAllocation) -> None:
    """Give memory back to the driver, which waits for what uses it. Raises DriverError."""
    name = "MemFreeHost" if allocation.kind == "host" else "MemFree"
    allocation.owner.call(name, allocation.base - allocation.padding)


def _find_elsewhere(address: int) -> CuAllocation | None:
    """Find the allocation of any context that contains an address."""
    found = (context.allocations.find(address) for context in list_contexts())
    return next((one for one in found if one is not None), None)


def _query_pointer(device: CuDevice, name: str, value: Any, address: int) -> int | None:
    """Return the driver's answer about an address, None if it does not know the address."""
    attribute = get_constant(f"CU_POINTER_ATTRIBUTE_{name}")
    code = device.ask("PointerGetAttribute", ctypes.byref(value), attribute, address)
    return None if code else value.value


def find_foreign(context: CuContext, address: int) -> CuAllocation | None:
    """Return memory that another context or the driver allocated on a device of the context.

    Returns:
        The allocation, None if there is none.
    """
    found = _find_elsewhere(address)
    if found is not None:
        return found if found.is_for(context) else None
    device = context.device
    kind = _query_pointer(device, "MEMORY_TYPE", ctypes.c_uint32(), address)
    base = _query_pointer(device, "RANGE_START_ADDR", ctypes.c_uint64(), address)
    size = _query_pointer(device, "RANGE_SIZE", ctypes.c_size_t(), address)
    if kind is None or not base or not size:
        return None
    if _query_pointer(device, "IS_MANAGED", ctypes.c_uint32(), address):
        name = "shared"
    else:
        name = "host" if API.is_host_memory(device, kind) else "device"
    return CuAllocation(base, CuRequest(context, name, None, size))


def locate(context: CuContext, address: int, size: int) -> CuAllocation | None:
    """Return the allocation of some bytes, None for host memory.

    Args:
        context: the context that the memory has to belong to, if it is not host memory.
        size: how many bytes.

    Raises:
        URError: INVALID_SIZE if an allocation ends before the bytes do. INVALID_MEM_OBJECT if there
            is no memory at the first or the last byte, or if another device has it.
    """
    found = context.allocations.find(address) or _find_elsewhere(address)
    if found is not None and not found.is_for(context):
        raise failure(
            "INVALID_MEM_OBJECT", f"the memory at {address:#x} is of a device of another context"
        )
    return find_bytes(address, size, found, lambda: find_foreign(context, address))
