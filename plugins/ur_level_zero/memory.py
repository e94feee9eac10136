"""Buffers and sub-buffers: memory that the device allocates.

A buffer of a context with one device is device memory. With several devices it is host memory,
which all of them reach. A mapped buffer is a copy in host memory. Unmapping copies it back.
"""

from __future__ import annotations

import ctypes
from typing import Any, Final, NamedTuple

from ...loader.ur.abi import UR
from ..sdk.queries import MEMORY_INFO
from ..sdk.rectangles import check_range
from ..sdk.rules import COPY, USE, check_memory_flags, check_part
from ..sdk.transfers import BufferObject, check_buffers
from .contexts import LZContext
from .core import LZObject, adapter, call, create, failure, is_owned, make_struct
from .device_info import BUFFER_ALIGNMENT
from .devices import LZDevice
from .enqueue import LZEnqueue, enqueues
from .events import LZEvent
from .queues import create_queue

COPY_MEMORY: Final = "zeCommandListAppendMemoryCopy"
_WRITES: Final = UR["UR_MAP_FLAG_WRITE"] | UR["UR_MAP_FLAG_WRITE_INVALIDATE_REGION"]
_INVALIDATES: Final = UR["UR_MAP_FLAG_WRITE_INVALIDATE_REGION"]


def allocate_plain(context: LZContext, size: int, device: LZDevice | None) -> int:
    """Return memory of a context: of a device, or of the host for None. Raises LevelZeroError."""
    if device is None:
        how = ctypes.byref(make_struct("host_mem_alloc_desc")), size, BUFFER_ALIGNMENT
        return create(context.table, "zeMemAllocHost", context.ze, *how)
    how = ctypes.byref(make_struct("device_mem_alloc_desc")), size, BUFFER_ALIGNMENT, device.ze
    return create(context.table, "zeMemAllocDevice", context.ze, *how)


@adapter.kind
class LZMemory(LZObject):
    """A memory object: a buffer, or an image (images.py).

    Args:
        ze: the address of a buffer's memory, or the handle of an image.
        context: its context.
        size: bytes.
        owned: whether it is destroyed at the end.
    """

    type = "ur_mem_handle_t"

    def __init__(self, ze: int, context: LZContext, size: int, *, owned: bool = True) -> None:
        super().__init__(ze, context.table, owned)
        self.context, self.size = context, size


class MappedRange(NamedTuple):
    """A range of a buffer that is mapped.

    Attributes:
        address: where the host has it.
        offset: its first byte in the buffer.
        size: bytes.
        writes: whether it is copied back.
        memory: the copy of it, None if the program's memory is used.
    """

    address: int
    offset: int
    size: int
    writes: bool
    memory: Any


class LZBuffer(BufferObject, LZMemory):
    """A buffer.

    Args:
        address: where it is in the device's memory.
        context: its context.
        size: bytes.
        parent: the buffer that a sub-buffer is a part of.
        host: the address of the program's memory that it uses, or 0.
        flags: how it was created, ur_mem_flags_t.
        owned: whether the memory is freed at the end.

    Attributes:
        mapped: the ranges that are mapped. Several may have the same address.
    """

    destroy = "zeMemFree"

    def __init__(
        self,
        address: int,
        context: LZContext,
        size: int,
        *,
        parent: LZBuffer | None = None,
        host: int = 0,
        flags: int = 0,
        owned: bool = True,
    ) -> None:
        super().__init__(address, context, size, owned=owned)
        self.parent, self.host, self.flags = parent, host, flags
        self.mapped: list[MappedRange] = []

    @property
    def address(self) -> int:
        """Return where it is."""
        return self.ze

    def find_map(self, address: int) -> MappedRange:
        """Return the last map at an address. Raises URError (INVALID_VALUE) if there is none."""
        for mapped in reversed(list(self.mapped)):
            if mapped.address == address:
                return mapped
        raise failure("INVALID_VALUE", "the buffer is not mapped there")

    def close(self) -> None:
        if self.owned:
            call(self.table, "zeMemFree", self.context.ze, self.ze)


@adapter.entry
def urMemBufferCreate(hContext: LZContext, flags: int, size: int, pProperties: Any) -> LZBuffer:
    if not size:
        raise failure("INVALID_BUFFER_SIZE", "a buffer has one byte at least")
    host = pProperties.pHost if pProperties else 0
    check_memory_flags(flags, host)
    largest = min(device.properties.maxMemAllocSize for device in hContext.devices)
    if size > largest:
        raise failure("INVALID_BUFFER_SIZE", f"{size} bytes, of at most {largest}")
    devices = hContext.devices
    address = allocate_plain(hContext, size, devices[0] if len(devices) == 1 else None)
    made = LZBuffer(address, hContext, size, host=host if flags & USE else 0, flags=flags)
    if host and flags & (USE | COPY):
        queue = create_queue(hContext, devices[0], 0)
        queue.append(COPY_MEMORY, address, host, size)
        queue.drain()
    return made


@adapter.entry
def urMemBufferPartition(hBuffer: LZBuffer, flags: int, pRegion: Any) -> LZBuffer:
    check_buffers(hBuffer.context, hBuffer)
    check_part(hBuffer, flags, pRegion, hBuffer.flags)
    if pRegion.origin % BUFFER_ALIGNMENT:
        raise failure(
            "MISALIGNED_SUB_BUFFER_OFFSET", f"sub-buffers begin at {BUFFER_ALIGNMENT} bytes"
        )
    origin, host = pRegion.origin, hBuffer.host
    return LZBuffer(
        hBuffer.address + origin,
        hBuffer.context,
        pRegion.size,
        parent=hBuffer,
        host=host + origin if host else 0,
        owned=False,
    )


adapter.info("urMemGetInfo", MEMORY_INFO)


@adapter.entry
def urMemGetNativeHandle(hMem: LZMemory, hDevice: LZDevice | None) -> int:
    if hDevice is not None:
        hMem.context.check_device(hDevice)
    return hMem.ze


@adapter.entry
def urMemBufferCreateWithNativeHandle(
    hNativeMem: int, hContext: LZContext, pProperties: Any
) -> LZBuffer:
    """Make the buffer of memory that the driver knows."""
    if not hNativeMem:
        raise failure("INVALID_NULL_HANDLE")
    base, size = ctypes.c_void_p(), ctypes.c_size_t()
    given = hNativeMem, ctypes.byref(base), ctypes.byref(size)
    if hContext.table.zeMemGetAddressRange(hContext.ze, *given):
        raise failure("INVALID_VALUE", "no memory of the context is there")
    room = size.value - (hNativeMem - (base.value or 0))
    return LZBuffer(hNativeMem, hContext, room, owned=is_owned(pProperties))


# maps


@enqueues("MEM_BUFFER_MAP")
def urEnqueueMemBufferMap(
    enqueue: LZEnqueue, hBuffer: LZBuffer, mapFlags: int, offset: int, size: int
) -> tuple[LZEvent | None, int]:
    check_buffers(enqueue.queue.context, hBuffer)
    check_range(hBuffer.size, offset, size)
    if not size:
        raise failure("INVALID_SIZE", "there is nothing to map")
    memory = None if hBuffer.host else ctypes.create_string_buffer(size)
    place = hBuffer.host + offset if memory is None else ctypes.addressof(memory)
    if mapFlags & _INVALIDATES:
        event = enqueue.mark()
    else:
        source, keep = hBuffer.address + offset, (hBuffer, memory)
        event = enqueue.call(COPY_MEMORY, place, source, size, keep=keep)
    writes = bool(mapFlags & _WRITES)
    hBuffer.mapped.append(MappedRange(place, offset, size, writes, memory))
    return event, place


@enqueues("MEM_UNMAP")
def urEnqueueMemUnmap(enqueue: LZEnqueue, hMem: LZBuffer, pMappedPtr: int) -> LZEvent | None:
    check_buffers(enqueue.queue.context, hMem)
    mapped = hMem.find_map(pMappedPtr)
    if mapped.writes:
        target, keep = hMem.address + mapped.offset, (hMem, mapped.memory)
        event = enqueue.call(COPY_MEMORY, target, pMappedPtr, mapped.size, keep=keep)
    else:
        event = enqueue.mark()
    hMem.mapped.remove(mapped)
    return event
