"""Buffers and sub-buffers of the adapter on Level Zero: memory that the device allocates.

A buffer of a context with one device is device memory. With several devices it is host memory,
which all of them reach. A mapped buffer is a copy in host memory. Unmapping copies it back.
"""

from __future__ import annotations

import ctypes
from typing import Any, Final

from ..sdk.buffers import MappableBuffer, declare_buffers, declare_maps
from ..sdk.rules import USE
from .contexts import LZContext
from .core import LZObject, adapter, call, create, failure, is_owned, make_struct
from .device_info import BUFFER_ALIGNMENT
from .devices import LZDevice
from .enqueue import LZEnqueue, enqueues
from .queues import create_queue

COPY_MEMORY: Final = "zeCommandListAppendMemoryCopy"


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
        size: bytes.
        owned: whether it is destroyed at the end.
    """

    type = "ur_mem_handle_t"

    def __init__(self, ze: int, context: LZContext, size: int, *, owned: bool = True) -> None:
        super().__init__(ze, context.table, owned)
        self.context, self.size = context, size


class LZBuffer(MappableBuffer, LZMemory):
    """A buffer.

    Args:
        address: where it is in the device's memory.
        size: bytes.
        parent: the buffer that a sub-buffer is a part of.
        host: the address of the program's memory that it uses, or 0.
        flags: how it was created, ur_mem_flags_t.
        owned: whether the memory is freed at the end.
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
        self.maps = []

    @property
    def address(self) -> int:
        """Return where the buffer is."""
        return self.ze

    def close(self) -> None:
        if self.owned:
            call(self.table, "zeMemFree", self.context.ze, self.ze)


def _create(context: LZContext, flags: int, size: int, host: int) -> LZBuffer:
    devices = context.devices
    largest = min(device.properties.maxMemAllocSize for device in devices)
    if size > largest:
        raise failure("INVALID_BUFFER_SIZE", f"{size} bytes, of at most {largest}")
    address = allocate_plain(context, size, devices[0] if len(devices) == 1 else None)
    made = LZBuffer(address, context, size, host=host if flags & USE else 0, flags=flags)
    if host:
        queue = create_queue(context, devices[0], 0)
        queue.append(COPY_MEMORY, address, host, size)
        queue.drain()
    return made


def _divide(buffer: LZBuffer, flags: int, origin: int, size: int, host: int) -> LZBuffer:
    address = buffer.address + origin
    return LZBuffer(address, buffer.context, size, parent=buffer, host=host, owned=False)


def _take_native(native: int, context: LZContext, properties: Any) -> LZBuffer | None:
    """Make the buffer of memory that the driver knows."""
    base, size = ctypes.c_void_p(), ctypes.c_size_t()
    given = native, ctypes.byref(base), ctypes.byref(size)
    if context.table.zeMemGetAddressRange(context.ze, *given):
        return None
    room = size.value - (native - (base.value or 0))
    return LZBuffer(native, context, room, owned=is_owned(properties))


declare_buffers(adapter, _create, _divide, _take_native, BUFFER_ALIGNMENT)


def copy_memory(enqueue: LZEnqueue, target: int, source: int, size: int, keep: Any) -> Any:
    """Enqueue a copy of bytes between addresses. Arguments and errors are those of `call`."""
    return enqueue.call(COPY_MEMORY, target, source, size, keep=keep)


declare_maps(enqueues, copy_memory)
