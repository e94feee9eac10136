"""Rules that make memory, divide, map and free it: buffers, USM, and its pools."""

from __future__ import annotations

import ctypes
from typing import Any, Final

from hypothesis import strategies as st
from hypothesis.stateful import rule

from fairlead.loader.ur.abi import UR
from helpers.fuzz.model import (
    Buffer,
    CommandBuffer,
    Context,
    Device,
    Kernel,
    Pool,
    Program,
    Queue,
    Sampler,
    Storage,
    Thing,
    Usm,
)
from helpers.fuzz.operations import Operations
from helpers.memory_calls import struct

_MOST: Final = {
    Context: 3,
    Queue: 4,
    Buffer: 8,
    Program: 3,
    Kernel: 8,
    CommandBuffer: 4,
    Pool: 2,
    Sampler: 1,
    Device: 4,
}
_MOST_USM: Final = 8
# bytes; no device wants a larger alignment of sub-buffers (CL_DEVICE_MEM_BASE_ADDR_ALIGN)
_ALIGN: Final = 128


class MemoryRules(Operations):
    """Rules about memory."""

    def room_for(self, kind: type[Thing]) -> bool:
        """Whether there are not too many already."""
        return len(self.of(kind, foreign=True)) < _MOST[kind]

    def devices_of(self, context: Context) -> list[int]:
        """Those of a context whose handles are alive."""
        return [device for device in context.devices if device in self.live("ur_device_handle_t")]

    def new_content(self, size: int) -> bytes:
        """What new memory is to hold."""
        first = self.number(0, 255)
        return bytes((first + 7 * index) & 255 for index in range(size))

    def fill_in(self, thing: Buffer | Usm, content: bytes) -> None:
        """Put something into new memory, so that it is known."""
        assert thing.context
        queue = self.queue_for(thing.context)
        self.unblock()
        host = self.host.take(len(content), content)
        if isinstance(thing, Buffer):
            given = {
                "hBuffer": thing.handle,
                "blockingWrite": True,
                "size": thing.size,
                "pSrc": host,
            }
            self.library.ok("urEnqueueMemBufferWrite", hQueue=queue.handle, **given)
            self.finish(queue)  # other queues do not come after it else
        else:
            given = {"blocking": True, "pDst": thing.address, "pSrc": host, "size": thing.size}
            self.library.ok("urEnqueueUSMMemcpy", hQueue=queue.handle, **given)

    # buffers

    @rule(data=st.data())
    def make_buffer(self, data: Any) -> None:
        self.data = data
        if self.room_for(Buffer):
            how = self.pick(
                ("", "ALLOC_COPY_HOST_POINTER", "USE_HOST_POINTER", "ALLOC_HOST_POINTER")
            )
            self.new_buffer(
                self.pick(self.of(Context)), self.pick((64, 256, 1024, 4, 1, 1000)), how
            )

    def new_buffer(self, context: Context, size: int, how: str = "") -> Buffer:
        """A buffer of a context; `how` is a flag after UR_MEM_FLAG_, or none."""
        content, properties = self.new_content(size), None
        flags = UR["UR_MEM_FLAG_READ_WRITE"] | (UR[f"UR_MEM_FLAG_{how}"] if how else 0)
        if how in ("ALLOC_COPY_HOST_POINTER", "USE_HOST_POINTER"):
            properties = struct(
                "ur_buffer_properties_t", "BUFFER_PROPERTIES", pHost=self.host.take(size, content)
            )
        given = {"flags": flags, "size": size, "pProperties": properties}
        made = self.library.make("urMemBufferCreate", "phBuffer", hContext=context.handle, **given)
        buffer = self.add(
            Buffer(made, context, storage=Storage("buffer", bytearray(content)), size=size)
        )
        self.storages.append(buffer.storage)
        if properties is None:
            self.fill_in(buffer, content)
        return buffer

    @rule(data=st.data())
    def make_sub_buffer(self, data: Any) -> None:
        self.data = data
        parents = [
            buffer
            for buffer in self.of(Buffer)
            if buffer.parent is None and buffer.size >= 2 * _ALIGN
        ]
        if not parents or not self.room_for(Buffer):
            return
        parent = self.pick(parents)
        origin = _ALIGN * self.number(0, parent.size // _ALIGN - 1)
        size = self.number(1, parent.size - origin)
        region = struct("ur_buffer_region_t", "BUFFER_REGION", origin=origin, size=size)
        kind = UR["UR_BUFFER_CREATE_TYPE_REGION"]
        given = {"flags": UR["UR_MEM_FLAG_READ_WRITE"], "bufferCreateType": kind, "pRegion": region}
        made = self.library.make("urMemBufferPartition", "phMem", hBuffer=parent.handle, **given)
        self.add(
            Buffer(
                made,
                parent.context,
                storage=parent.storage,
                origin=origin,
                size=size,
                parent=parent,
            )
        )

    @rule(data=st.data())
    def map_buffer(self, data: Any) -> None:
        self.data = data
        buffers = [
            buffer for buffer in self.of(Buffer) if buffer in self.buffers(self.revive(buffer))
        ]
        if not buffers:
            return
        buffer = self.pick(buffers)
        assert buffer.context
        queue = self.queue_for(buffer.context)
        self.settle(buffer.storage)
        self.unblock()
        part, writes = self.part(buffer), self.chance(50)
        place = ctypes.c_void_p()
        flags = UR["UR_MAP_FLAG_READ"] | (UR["UR_MAP_FLAG_WRITE"] if writes else 0)
        given = {
            "blockingMap": True,
            "mapFlags": flags,
            "offset": part.offset,
            "size": part.size,
            "ppRetMap": ctypes.byref(place),
        }
        self.library.ok(
            "urEnqueueMemBufferMap", hQueue=queue.handle, hBuffer=buffer.handle, **given
        )
        address = place.value or 0
        self.compare(Storage("buffer", bytearray(part.get())), ctypes.string_at(address, part.size))
        buffer.mapped = address, part.offset, part.size, writes

    @rule(data=st.data())
    def unmap_buffer(self, data: Any) -> None:
        self.data = data
        mapped = [buffer for buffer in self.of(Buffer) if buffer.mapped]
        if mapped:
            self.unmap(self.pick(mapped))

    # USM

    @rule(data=st.data())
    def allocate(self, data: Any) -> None:
        """USM, from a pool or not."""
        self.data = data
        if self.kinds:
            self.new_usm(
                self.pick(self.of(Context)),
                self.pick(self.kinds),
                self.pick((256, 64, 1000, 1, 4096)),
            )

    def new_usm(self, context: Context, kind: str, size: int) -> Usm | None:
        """An allocation in a context; None if it has no device, or there are too many already."""
        where = self.pick([*self.devices_of(context), 0])
        if (kind != "host" and not where) or len(self.allocations) >= _MOST_USM:
            return None
        pools = [
            pool
            for pool in self.of(Pool, context)
            if pool.device in (0, where if kind != "host" else -1)
        ]
        pool = self.pick(pools) if pools and self.chance(60) else None
        align = self.pick((0, 1, 16, 64))
        given = {
            "hContext": context.handle,
            "pUSMDesc": struct("ur_usm_desc_t", "USM_DESC", align=align),
            "size": size,
        }
        device = {} if kind == "host" else {"hDevice": where}
        routine = f"urUSM{kind.title()}Alloc"
        address = self.library.make(
            routine, "ppMem", pool=pool.handle if pool else 0, **given, **device
        )
        content = self.new_content(size)
        usm = Usm(address, context, Storage(kind, bytearray(content), address), pool)
        self.allocations.append(usm)
        self.storages.append(usm.storage)
        self.fill_in(usm, content)
        return usm

    @rule(data=st.data())
    def free_usm(self, data: Any) -> None:
        """While it is used, too: the free has to wait. Twice is once too often."""
        self.data = data
        if self.allocations:
            usm = self.pick(self.allocations)
            used = any(
                usm.storage in buffer.touches
                for buffer in self.of(CommandBuffer)
                if buffer.enqueued
            )
            if used:
                self.settle(usm.storage)
            self.free(usm)
            self.library.expect(
                self.library("urUSMFree", hContext=usm.context.handle, pMem=usm.address),
                "INVALID_MEM_OBJECT",
            )

    @rule(data=st.data())
    def make_pool(self, data: Any) -> None:
        self.data = data
        if self.room_for(Pool):
            self.new_pool(self.pick(self.of(Context)))

    def new_pool(self, context: Context) -> Pool | None:
        """A pool of a context, or of one of its devices; None if there is no such device."""
        limits = struct(
            "ur_usm_pool_limits_desc_t", "USM_POOL_LIMITS_DESC", maxPoolableSize=1 << 20
        )
        chain = ctypes.addressof(limits) if self.chance(50) else None
        desc = struct("ur_usm_pool_desc_t", "USM_POOL_DESC", pNext=chain)
        given = {"hContext": context.handle, "pPoolDesc": desc}
        if self.chance(50):
            return self.add(Pool(self.library.make("urUSMPoolCreate", "ppPool", **given), context))
        if not (devices := self.devices_of(context)):
            return None
        device = self.pick(devices)
        return self.add(
            Pool(
                self.library.make("urUSMPoolCreateExp", "pPool", hDevice=device, **given),
                context,
                device=device,
            )
        )
