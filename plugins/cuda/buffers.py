"""Buffers and sub-buffers.

A buffer is device memory. If the program asks for host memory, it is host memory that devices
reach. In a context of several devices it is managed memory. Memory of the program
(USE_HOST_POINTER) is copied into it, and back when the buffer is mapped.
"""

from __future__ import annotations

from contextlib import suppress
from typing import Any

from ...loader.base.forks import make_lock
from ..sdk.queries import MEMORY_INFO
from ..sdk.rules import ALLOC, COPY, USE, check_memory_flags, check_part
from ..sdk.transfers import BufferObject, check_buffers
from .allocations import CuAllocation, CuRequest, allocate, find_foreign, free
from .contexts import CuContext
from .core import Object, adapter, failure
from .device_info import BASE_ALIGNMENT
from .devices import CuDevice


class MappedPart:
    """A part of a buffer that is mapped.

    Args:
        address: where the host has it.
        offset: its first byte in the buffer.
        size: bytes.
        writes: whether the host may write.
        block: host memory for it, which is freed with it; None if it has a place already.
    """

    def __init__(
        self, address: int, offset: int, size: int, writes: bool, block: CuAllocation | None = None
    ) -> None:
        self.address, self.offset, self.size, self.writes = address, offset, size, writes
        self._block = block

    def __del__(self) -> None:
        block = self.__dict__.get("_block")
        if block is not None and free is not None:  # Python is not taking modules down
            free(block)


@adapter.kind
class CuBuffer(BufferObject, Object):
    """A buffer.

    Args:
        context: its context.
        memory: its memory, None for a sub-buffer and for the program's memory.
        address: its first byte for devices.
        size: bytes.
        parent: the buffer that a sub-buffer is a part of.
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
        self._maps: list[MappedPart] = []
        self._lock = make_lock()

    def close(self) -> None:
        self._maps.clear()
        if self.memory is not None and not self.memory.imported:
            free(self.memory)

    @property
    def native(self) -> int:
        """Return its native handle."""
        return self.address

    def map(self, offset: int, size: int, writes: bool) -> MappedPart:
        """Return a place on the host for a part of it. Raises DriverError."""
        if self.is_host:
            made = MappedPart(self.address + offset, offset, size, writes)
        elif self.host:
            made = MappedPart(self.host + offset, offset, size, writes)
        else:
            block = allocate(CuRequest(self.context, "host", None, size))
            made = MappedPart(block.base, offset, size, writes, block)
        with self._lock:
            self._maps.append(made)
        return made

    def find_map(self, address: int) -> MappedPart:
        """Return the last map at an address. Raises URError (INVALID_VALUE) if there is none."""
        with self._lock:
            found = (one for one in reversed(self._maps) if one.address == address)
            mapped = next(found, None)
        if mapped is None:
            raise failure("INVALID_VALUE", "the buffer is not mapped there")
        return mapped

    def forget_map(self, mapped: MappedPart) -> None:
        """Forget a map, unless another thread has."""
        with self._lock, suppress(ValueError):
            self._maps.remove(mapped)


@adapter.entry
def urMemBufferCreate(hContext: CuContext, flags: int, size: int, pProperties: Any) -> CuBuffer:
    if not size:
        raise failure("INVALID_BUFFER_SIZE", "a buffer has one byte at least")
    host = pProperties.pHost if pProperties else 0
    check_memory_flags(flags, host)
    if any(size > device.found.memory for device in hContext.devices):
        raise failure("INVALID_BUFFER_SIZE", f"{size} bytes are more than a device has")
    several = len(hContext.devices) > 1
    kind = "host" if flags & ALLOC else "shared" if several else "device"
    device = None if kind == "host" else hContext.device
    memory = allocate(CuRequest(hContext, kind, device, size))
    used = host if flags & USE else 0
    made = CuBuffer(hContext, memory, memory.base, size, host=used, flags=flags)
    if flags & (USE | COPY):
        hContext.device.copy(memory.base, host, size)
    return made


@adapter.entry
def urMemBufferPartition(hBuffer: CuBuffer, flags: int, pRegion: Any) -> CuBuffer:
    check_buffers(hBuffer.context, hBuffer)
    check_part(hBuffer, flags, pRegion, hBuffer.flags)
    if pRegion.origin % BASE_ALIGNMENT:
        raise failure(
            "MISALIGNED_SUB_BUFFER_OFFSET", f"a sub-buffer begins at a multiple of {BASE_ALIGNMENT}"
        )
    origin = pRegion.origin
    host = hBuffer.host + origin if hBuffer.host else 0
    address = hBuffer.address + origin
    return CuBuffer(hBuffer.context, None, address, pRegion.size, parent=hBuffer, host=host)


adapter.info("urMemGetInfo", MEMORY_INFO)


@adapter.entry
def urMemGetNativeHandle(hMem: CuBuffer, hDevice: CuDevice | None) -> int:
    """Return its CUdeviceptr, or the CUarray of an image."""
    if hDevice is not None:
        hMem.context.check_device(hDevice)
    return hMem.native


@adapter.entry
def urMemBufferCreateWithNativeHandle(
    hNativeMem: int, hContext: CuContext, pProperties: Any
) -> CuBuffer:
    """Make a buffer of a CUdeviceptr, which ends where its allocation does."""
    if not hNativeMem:
        raise failure("INVALID_NULL_HANDLE")
    found = find_foreign(hContext, hNativeMem)
    if found is None:
        raise failure("INVALID_MEM_OBJECT", "there is no memory of the driver at the address")
    found.imported = not (pProperties and pProperties.isNativeHandleOwned)
    return CuBuffer(hContext, found, hNativeMem, found.end - hNativeMem)
