"""Buffers and sub-buffers of CUDA and HIP.

A buffer is device memory. If the program asks for host memory, it is host memory that devices
reach. In a context of several devices it is managed memory. Memory of the program
(USE_HOST_POINTER) is copied into it, and back when the buffer is mapped.
"""

from __future__ import annotations

from typing import Any

from ..sdk.buffers import MappableBuffer, declare_buffers
from ..sdk.conversions import is_owned
from ..sdk.rules import ALLOC, USE
from .allocations import CuAllocation, CuRequest, allocate, find_foreign, free
from .contexts import CuContext
from .core import Object, adapter, failure
from .device_info import BASE_ALIGNMENT


class _HostBlock:
    """Host memory for a map, which is freed when nothing uses it any more."""

    def __init__(self, block: CuAllocation) -> None:
        self._block = block

    def __del__(self) -> None:
        # Python is not taking modules down, and it was made to its end
        if free is not None and "_block" in self.__dict__:
            free(self._block)


@adapter.kind
class CuBuffer(MappableBuffer, Object):
    """A buffer.

    Args:
        memory: its memory, None for a sub-buffer and for the program's memory.
        address: its first byte for devices.
        size: bytes.
        host: the address of the program's memory that it uses, or 0.
    """

    type = "ur_mem_handle_t"

    def __init__(
        self,
        context: CuContext,
        memory: CuAllocation | None,
        address: int,
        size: int,
        *,
        parent: CuBuffer | None = None,
        host: int = 0,
        flags: int = 0,
    ) -> None:
        self.context, self.address, self.size = context, address, size
        self.memory, self.parent, self.host, self.flags = memory, parent, host, flags
        self.is_host: bool = memory.kind == "host" if memory else bool(parent and parent.is_host)
        self.maps = []

    def close(self) -> None:
        self.maps.clear()
        if self.owned and self.memory is not None and not self.memory.imported:
            free(self.memory)

    def get_native(self) -> int:
        """Return the buffer's native handle."""
        return self.address

    def make_host_memory(self, size: int) -> tuple[int, Any]:
        block = allocate(CuRequest(self.context, "host", None, size))
        return block.base, _HostBlock(block)


def _create(context: CuContext, flags: int, size: int, host: int) -> CuBuffer:
    if any(size > device.found.memory for device in context.devices):
        raise failure("INVALID_BUFFER_SIZE", f"{size} bytes are more than a device has")
    several = len(context.devices) > 1
    kind = "host" if flags & ALLOC else "shared" if several else "device"
    device = None if kind == "host" else context.device
    memory = allocate(CuRequest(context, kind, device, size))
    used = host if flags & USE else 0
    made = CuBuffer(context, memory, memory.base, size, host=used, flags=flags)
    if host:
        context.device.copy(memory.base, host, size)
    return made


def _divide(buffer: CuBuffer, flags: int, origin: int, size: int, host: int) -> CuBuffer:
    address = buffer.address + origin
    return CuBuffer(buffer.context, None, address, size, parent=buffer, host=host)


def _take_native(native: int, context: CuContext, properties: Any) -> CuBuffer | None:
    """Make a buffer of a CUdeviceptr, which ends where its allocation does."""
    found = find_foreign(context, native)
    if found is None:
        return None
    made = CuBuffer(context, found, native, found.end - native)
    made.owned = is_owned(properties)
    return made


declare_buffers(adapter, _create, _divide, _take_native, BASE_ALIGNMENT)
