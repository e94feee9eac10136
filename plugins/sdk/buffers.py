"""Buffers of all adapters: what creates, divides and maps them is checked here.

declare_buffers(adapter, create, divide)
declare_maps(enqueues, copy)  # where buffers have an `address`, and a map is a copy
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Final, NamedTuple

from ...loader.base.forks import make_lock
from ...loader.ur.abi import UR
from .adapter import Adapter
from .conversions import failure
from .families import EnqueueFamily
from .rectangles import check_range
from .rules import check_part

_INVALIDATES: Final = UR["UR_MAP_FLAG_WRITE_INVALIDATE_REGION"]
_WRITES: Final = UR["UR_MAP_FLAG_WRITE"] | _INVALIDATES
_lock: Final = make_lock()

_INFO: Final = {
    "UR_MEM_INFO_SIZE": lambda memory: memory.size,
    "UR_MEM_INFO_CONTEXT": lambda memory: memory.context,
    "UR_MEM_INFO_REFERENCE_COUNT": lambda memory: memory.references,
}


class BufferObject:
    """What a buffer of an adapter is, besides an `Object`.

    Attributes:
        size: bytes.
        host: the address of the program's memory that it uses, or 0.
        flags: how it was created, ur_mem_flags_t; 0 if the driver checks those of parts.
    """

    context: Any
    size: int
    parent: Any = None
    host: int = 0
    flags: int = 0


def check_buffers(context: Any, *memory: Any) -> None:
    """Check that memory objects are buffers of a context.

    Raises:
        URError: INVALID_MEM_OBJECT for an image, INVALID_CONTEXT.
    """
    for one in memory:
        if not isinstance(one, BufferObject):
            raise failure("INVALID_MEM_OBJECT", "an image is not a buffer")
        if one.context is not context:
            context.check_shared("a buffer", one)


def declare_buffers(
    adapter: Adapter,
    create: Callable[[Any, int, int, int], Any],
    divide: Callable[[Any, int, int, int, int], Any],
    take_native: Callable[[int, Any, Any], Any],
    alignment: int = 1,
) -> None:
    """Declare how buffers are made, and the queries of memory objects.

    Args:
        create: gets a context, flags, bytes, and the address of host memory or 0.
        divide: gets a buffer, flags, the first byte of the part, its bytes, and where the program's
            memory for them is, or 0.
        take_native: gets a native handle, a context and properties. It returns None if the driver
            has no memory there.
        alignment: what the first byte of a part is a multiple of, 1 if the driver checks that.
    """

    def create_buffer(hContext: Any, flags: int, size: int, pProperties: Any) -> Any:
        return create(hContext, flags, size, pProperties.pHost if pProperties else 0)

    def partition(hBuffer: Any, flags: int, pRegion: Any) -> Any:
        check_buffers(hBuffer.context, hBuffer)
        check_part(hBuffer, flags, pRegion, hBuffer.flags)
        origin, host = pRegion.origin, hBuffer.host
        if origin % alignment:
            reason = f"a sub-buffer begins at a multiple of {alignment}"
            raise failure("MISALIGNED_SUB_BUFFER_OFFSET", reason)
        return divide(hBuffer, flags, origin, pRegion.size, host + origin if host else 0)

    def take_buffer(hNativeMem: int, hContext: Any, pProperties: Any) -> Any:
        made = take_native(hNativeMem, hContext, pProperties) if hNativeMem else None
        if made is None:
            code = "INVALID_VALUE" if hNativeMem else "INVALID_NULL_HANDLE"
            raise failure(code, "the driver has no memory of this native handle")
        return made

    adapter.declare(
        urMemBufferCreate=create_buffer,
        urMemBufferPartition=partition,
        urMemBufferCreateWithNativeHandle=take_buffer,
    )
    adapter.info("urMemGetInfo", _INFO)


# maps


def check_map(context: Any, buffer: Any, offset: int, size: int) -> None:
    """Check the arguments of urEnqueueMemBufferMap.

    Raises:
        URError: as `check_buffers`, and INVALID_SIZE.
    """
    check_buffers(context, buffer)
    check_range(buffer.size, offset, size)


class MappedRange(NamedTuple):
    """A range of a buffer that is mapped.

    Attributes:
        address: where the host has it.
        offset: its first byte in the buffer.
        size: bytes.
        writes: whether it is copied back.
        memory: the copy of it, None if it has a place already.
    """

    address: int
    offset: int
    size: int
    writes: bool
    memory: Any


class MappableBuffer(BufferObject):
    """A buffer that is mapped by copies.

    Attributes:
        address: its first byte for devices.
        is_host: whether the host reaches that byte, too.
        maps: the ranges that are mapped. Several may have the same address.
    """

    address: Any
    is_host = False
    maps: list[MappedRange]

    def make_host_memory(self, size: int) -> tuple[int, Any]:
        """Return the address of new host memory for a copy, and what frees it when it goes."""
        memory = ctypes.create_string_buffer(size)
        return ctypes.addressof(memory), memory

    def map(self, offset: int, size: int, writes: bool) -> MappedRange:
        """Return a new map of a range. Raises what `make_host_memory` raises."""
        place, memory = self.address if self.is_host else self.host, None
        address = place + offset
        if not place:
            address, memory = self.make_host_memory(size)
        mapped = MappedRange(address, offset, size, writes, memory)
        with _lock:
            self.maps.append(mapped)
        return mapped

    def find_map(self, address: int) -> MappedRange:
        """Return the last map at an address. Raises URError (INVALID_VALUE) if there is none."""
        with _lock:
            found = [one for one in self.maps if one.address == address]
        if not found:
            raise failure("INVALID_VALUE", "the buffer is not mapped there")
        return found[-1]

    def forget_map(self, mapped: MappedRange) -> None:
        """Forget a map, unless another thread has."""
        with _lock, suppress(ValueError):
            self.maps.remove(mapped)


def declare_maps(enqueues: EnqueueFamily, copy: Callable[[Any, int, int, int, Any], Any]) -> None:
    """Declare maps of the buffers of an adapter that are `MappableBuffer`.

    Args:
        enqueues: the family of the adapter's entry points. Its calls have `mark`, which gets what
            is used.
        copy: copies bytes. It gets the call, the two addresses, bytes, and what is used.
    """

    def map_buffer(call: Any, buffer: Any, flags: int, offset: int, size: int) -> tuple[Any, int]:
        check_map(call.context, buffer, offset, size)
        mapped = buffer.map(offset, size, bool(flags & _WRITES))
        keep = buffer, mapped.memory
        try:
            if buffer.is_host or flags & _INVALIDATES:
                return call.mark(keep), mapped.address
            source = buffer.address + offset
            return copy(call, mapped.address, source, size, keep), mapped.address
        except BaseException:
            buffer.forget_map(mapped)
            raise

    def unmap(call: Any, buffer: Any, address: int) -> Any:
        check_buffers(call.context, buffer)
        mapped = buffer.find_map(address)
        keep = buffer, mapped.memory
        if buffer.is_host or not mapped.writes:
            event = call.mark(keep)
        else:
            event = copy(call, buffer.address + mapped.offset, address, mapped.size, keep)
        buffer.forget_map(mapped)
        return event

    parameters = "hBuffer", "mapFlags", "offset", "size"
    enqueues.declare("urEnqueueMemBufferMap", "MEM_BUFFER_MAP", map_buffer, *parameters)
    enqueues.declare("urEnqueueMemUnmap", "MEM_UNMAP", unmap, "hMem", "pMappedPtr")
