"""Rules that make, retain and release objects in any order, and wait for them."""

from __future__ import annotations

import ctypes
import threading
from typing import Any, Final

from fuzz_library import Failure, array, sizes, struct
from fuzz_model import (
    KERNELS,
    SOURCE,
    Buffer,
    CommandBuffer,
    Context,
    Device,
    Event,
    Kernel,
    Pool,
    Program,
    Queue,
    Sampler,
    Span,
    Storage,
    Thing,
    Usm,
)  # fmt: skip
from fuzz_operations import Operations
from fuzz_world import OUT_OF_ORDER, PROFILING
from hypothesis import strategies as st
from hypothesis.stateful import rule

from fairlead.loader.ur import UR

_MOST: Final = {Context: 3, Queue: 4, Buffer: 8, Program: 3, Kernel: 8, CommandBuffer: 4, Pool: 2, Sampler: 1, Device: 4}
_ALIGN: Final = 128  # bytes; no device wants sub-buffers to begin at larger multiples (CL_DEVICE_MEM_BASE_ADDR_ALIGN)
_Notify: Final = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_uint32, ctypes.c_void_p)
_Task: Final = ctypes.CFUNCTYPE(None, ctypes.c_void_p)


class ObjectRules(Operations):
    """Rules about objects."""

    def room_for(self, kind: type[Thing]) -> bool:
        """Whether there are not too many already."""
        return len(self.of(kind, foreign=True)) < _MOST[kind]

    # making

    @rule(data=st.data())
    def make_context(self, data: Any) -> None:
        self.data = data
        if self.room_for(Context):
            parts = [device.handle for device in self.of(Device)]
            devices = self.pick(([self.session.device], [self.session.device, *parts], parts or [self.session.device]))
            made = self.library.made("urContextCreate", "phContext", DeviceCount=len(devices), phDevices=array(*devices))
            self.add(Context(made, devices=devices))

    @rule(data=st.data())
    def make_queue(self, data: Any) -> None:
        self.data = data
        if self.room_for(Queue):
            flags = self.pick((0, OUT_OF_ORDER, PROFILING, OUT_OF_ORDER | PROFILING))
            context = self.pick(self.of(Context))
            if devices := self.devices_of(context):
                self.queue_of(context, flags, self.pick(devices))

    @rule(data=st.data())
    def divide_device(self, data: Any) -> None:
        """Sub-devices of one compute unit, where the driver divides devices."""
        self.data = data
        one = UR.struct("ur_device_partition_property_t")(type=UR["UR_DEVICE_PARTITION_EQUALLY"])
        one.value.equally = 1
        given = {"pProperties": ctypes.addressof(one), "PropCount": 1}
        properties = struct("ur_device_partition_properties_t", "DEVICE_PARTITION_PROPERTIES", **given)
        count, made = ctypes.c_uint32(), (ctypes.c_void_p * 2)()
        asked = {"hDevice": self.session.device, "pProperties": properties, "pNumDevicesRet": ctypes.byref(count)}
        code = self.library("urDevicePartition", **asked)
        if code == "SUCCESS" and self.room_for(Device):
            self.library.ok("urDevicePartition", **asked, NumDevices=2, phSubDevices=made)
            for handle in made[: min(count.value, 2)]:
                self.add(Device(handle or 0))

    @rule(data=st.data())
    def make_buffer(self, data: Any) -> None:
        self.data = data
        if not self.room_for(Buffer):
            return
        context, size = self.pick(self.of(Context)), self.pick((64, 256, 1024, 4, 1, 1000))
        how = self.pick(("", "ALLOC_COPY_HOST_POINTER", "USE_HOST_POINTER", "ALLOC_HOST_POINTER"))
        content, properties = self.new_content(size), None
        flags = UR["UR_MEM_FLAG_READ_WRITE"] | (UR[f"UR_MEM_FLAG_{how}"] if how else 0)
        if how in ("ALLOC_COPY_HOST_POINTER", "USE_HOST_POINTER"):
            properties = struct("ur_buffer_properties_t", "BUFFER_PROPERTIES", pHost=self.host.take(size, content))
        given = {"flags": flags, "size": size, "pProperties": properties}
        made = self.library.made("urMemBufferCreate", "phBuffer", hContext=context.handle, **given)
        buffer = self.add(Buffer(made, context, storage=Storage("buffer", bytearray(content)), size=size))
        self.storages.append(buffer.storage)
        if properties is None:
            self.fill_in(buffer, content)

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
            given = {"hBuffer": thing.handle, "blockingWrite": True, "size": thing.size, "pSrc": host}
            self.library.ok("urEnqueueMemBufferWrite", hQueue=queue.handle, **given)
        else:
            given = {"blocking": True, "pDst": thing.address, "pSrc": host, "size": thing.size}
            self.library.ok("urEnqueueUSMMemcpy", hQueue=queue.handle, **given)

    @rule(data=st.data())
    def make_sub_buffer(self, data: Any) -> None:
        self.data = data
        parents = [buffer for buffer in self.of(Buffer) if buffer.parent is None and buffer.size >= 2 * _ALIGN]
        if not parents or not self.room_for(Buffer):
            return
        parent = self.pick(parents)
        origin = _ALIGN * self.number(0, parent.size // _ALIGN - 1)
        size = self.number(1, parent.size - origin)
        region = struct("ur_buffer_region_t", "BUFFER_REGION", origin=origin, size=size)
        kind = UR["UR_BUFFER_CREATE_TYPE_REGION"]
        given = {"flags": UR["UR_MEM_FLAG_READ_WRITE"], "bufferCreateType": kind, "pRegion": region}
        made = self.library.made("urMemBufferPartition", "phMem", hBuffer=parent.handle, **given)
        self.add(Buffer(made, parent.context, storage=parent.storage, origin=origin, size=size, parent=parent))

    @rule(data=st.data())
    def allocate(self, data: Any) -> None:
        """USM, from a pool or not."""
        self.data = data
        if len(self.allocations) >= 8 or not self.kinds:
            return
        context, kind, size = self.pick(self.of(Context)), self.pick(self.kinds), self.pick((256, 64, 1000, 1, 4096))
        where = self.pick([*self.devices_of(context), 0])
        if kind != "host" and not where:
            return
        pools = [pool for pool in self.of(Pool, context) if pool.device in (0, where if kind != "host" else -1)]
        pool = self.pick(pools) if pools and self.chance(60) else None
        align = self.pick((0, 1, 16, 64))
        given = {"hContext": context.handle, "pUSMDesc": struct("ur_usm_desc_t", "USM_DESC", align=align), "size": size}
        device = {} if kind == "host" else {"hDevice": where}
        routine = f"urUSM{kind.title()}Alloc"
        address = self.library.made(routine, "ppMem", pool=pool.handle if pool else 0, **given, **device)
        content = self.new_content(size)
        usm = Usm(address, context, Storage(kind, bytearray(content), address), pool)
        self.allocations.append(usm)
        self.storages.append(usm.storage)
        self.fill_in(usm, content)

    @rule(data=st.data())
    def free_usm(self, data: Any) -> None:
        """While it is used, too: the free has to wait. Twice is once too often."""
        self.data = data
        if self.allocations:
            usm = self.pick(self.allocations)
            used = any(usm.storage in buffer.touches for buffer in self.of(CommandBuffer) if buffer.enqueued)
            if used:
                self.settle(usm.storage)
            self.free(usm)
            self.library.expect(self.library("urUSMFree", hContext=usm.context.handle, pMem=usm.address), "INVALID_MEM_OBJECT")

    @rule(data=st.data())
    def make_pool(self, data: Any) -> None:
        self.data = data
        if self.room_for(Pool):
            context = self.pick(self.of(Context))
            limits = struct("ur_usm_pool_limits_desc_t", "USM_POOL_LIMITS_DESC", maxPoolableSize=1 << 20)
            chain = ctypes.addressof(limits) if self.chance(50) else None
            desc = struct("ur_usm_pool_desc_t", "USM_POOL_DESC", pNext=chain)
            given = {"hContext": context.handle, "pPoolDesc": desc}
            if self.chance(50):
                self.add(Pool(self.library.made("urUSMPoolCreate", "ppPool", **given), context))
            elif devices := self.devices_of(context):
                device = self.pick(devices)
                made = self.library.made("urUSMPoolCreateExp", "pPool", hDevice=device, **given)
                self.add(Pool(made, context, device=device))

    @rule(data=st.data())
    def make_program(self, data: Any) -> None:
        """Built from source, or from another one's binary."""
        self.data = data
        if not self.room_for(Program) or not self.chance(20):
            return
        context = self.pick(self.of(Context))
        il = ctypes.create_string_buffer(SOURCE, len(SOURCE))
        made = self.library.made("urProgramCreateWithIL", "phProgram", hContext=context.handle, pIL=il, length=len(SOURCE))
        self.library.ok("urProgramBuild", hContext=context.handle, hProgram=made)
        self.add(Program(made, context))

    @rule(data=st.data())
    def make_kernel(self, data: Any) -> None:
        self.data = data
        programs = self.of(Program)
        if programs and self.room_for(Kernel):
            program, name = self.pick(programs), self.pick(list(KERNELS))
            made = self.library.made("urKernelCreate", "phKernel", hProgram=program.handle, pKernelName=name.encode())
            self.add(Kernel(made, program.context, name=name))

    # references

    @rule(data=st.data())
    def retain(self, data: Any) -> None:
        self.data = data
        thing = self.pick(self.of(Thing, foreign=True))
        first = UR.functions[f"{thing.stem}Retain{thing.end}"].parameters[0].name
        for _ in range(self.pick((1, 1, 1, 2, 200))):
            self.library.ok(f"{thing.stem}Retain{thing.end}", **{first: thing.handle})
            thing.references += 1

    @rule(data=st.data())
    def release_one(self, data: Any) -> None:
        """With everything that it is used by still alive, and running."""
        self.data = data
        things = [one for one in self.of(Thing, foreign=True) if not (self.is_base(one) and one.references == 1)]
        if things:
            thing = self.pick(things)
            for _ in range(self.pick((1, thing.references - self.is_base(thing)))):
                self.release(thing)

    @rule(data=st.data())
    def ask(self, data: Any) -> None:
        """The count of references, and the context."""
        self.data = data
        thing = self.pick(self.of(Thing, foreign=True))
        self.check_references(thing)
        if thing.context is not None and not thing.foreign:
            handle = self.revive(thing).handle
            if not isinstance(thing, CommandBuffer):
                first = UR.functions[f"{thing.stem}GetInfo"].parameters[0].name
                found = self.library.number(f"{thing.stem}GetInfo", f"{thing.query}_CONTEXT", **{first: thing.handle})
                if found != handle:
                    raise Failure(f"the context of {thing} is {found:#x}, not {handle:#x}")

    # waiting

    @rule(data=st.data())
    def wait_for_queue(self, data: Any) -> None:
        self.data = data
        queues = self.of(Queue)
        if queues:
            queue = self.pick(queues)
            if self.chance(70):
                self.finish(queue)
                asked = "urQueueGetInfo", "UR_QUEUE_INFO_EMPTY"
                self.becomes(lambda: self.library.number(*asked, hQueue=queue.handle) == 1, "the queue is empty")
            else:
                self.library.ok("urQueueFlush", hQueue=queue.handle)

    @rule(data=st.data())
    def wait_for_events(self, data: Any) -> None:
        self.data = data
        events = [event for event in self.of(Event) if event.signals]
        if events:
            chosen = list(dict.fromkeys(self.pick(events) for _ in range(self.number(1, 3))))
            self.wait(chosen)
            name = UR["UR_EVENT_STATUS_COMPLETE"]
            asked = "urEventGetInfo", "UR_EVENT_INFO_COMMAND_EXECUTION_STATUS"
            if any(self.library.number(*asked, hEvent=event.handle) != name for event in chosen):
                raise Failure("an event is not complete when it was waited for")

    @rule(data=st.data())
    def mark(self, data: Any) -> None:
        """A command that does nothing, with an event."""
        self.data = data
        queues = self.of(Queue)
        if queues and len(self.of(Event)) < 20:
            queue = self.pick(queues)
            self.event_of(queue, self.pick(("urEnqueueEventsWait", "urEnqueueEventsWaitWithBarrier")), self.some_events(queue))

    @rule(data=st.data())
    def call_back(self, data: Any) -> None:
        """A callback on an event, or a task of the host's in a queue."""
        self.data = data
        events, queues, called = [event for event in self.of(Event) if event.signals], self.of(Queue), threading.Event()
        if events and self.chance(60):
            function: Any = _Notify(lambda event, status, data: called.set())
            status = UR["UR_EXECUTION_INFO_COMPLETE"]
            address, event = ctypes.cast(function, ctypes.c_void_p), self.pick(events)
            event.called_back += 1
            self.library.ok("urEventSetCallback", hEvent=event.handle, execStatus=status, pfnNotify=address)
        elif queues:
            queue = self.pick(queues)
            function, waits = _Task(lambda data: called.set()), self.some_events(queue)
            made = ctypes.c_void_p()
            given = {"numEventsInWaitList": len(waits), "phEventWaitList": array(*(event.handle for event in waits))}
            address = ctypes.cast(function, ctypes.c_void_p)
            self.library.ok(
                "urEnqueueHostTaskExp", hQueue=queue.handle, pfnHostTask=address, **given, phEvent=ctypes.byref(made)
            )
            self.add(Event(made.value or 0, queue.context, queue=queue))
        else:
            return
        self.callbacks.append((function, called))

    # commands

    @rule(data=st.data())
    def command(self, data: Any) -> None:
        """A transfer, a fill, a launch."""
        self.data = data
        self.a_command()

    def a_command(self) -> None:
        """Enqueue one."""
        queues = self.of(Queue)
        if queues:
            queue = self.pick(queues)
            assert queue.context
            operation = self.operation(queue.context)
            if operation is not None:
                self.enqueue(queue, operation)

    @rule(data=st.data())
    def commands(self, data: Any) -> None:
        """Some commands in a row."""
        self.data = data
        for _ in range(self.number(2, 6)):
            self.a_command()

    @rule(data=st.data())
    def launch_as_set(self, data: Any) -> None:
        """A launch with the arguments that were last set, after another one of them was set."""
        self.data = data
        kernels = [kernel for kernel in self.of(Kernel) if len(kernel.arguments) == len(KERNELS[kernel.name])]
        spans = [[one for one in kernel.arguments.values() if isinstance(one, Span)] for kernel in kernels]
        usable = [
            kernel
            for kernel, memory in zip(kernels, spans, strict=True)
            if kernel.name and all(self._is_there(one) for one in memory)
        ]
        if not usable:
            return
        kernel = self.pick(usable)
        queues = [queue for queue in self.of(Queue) if queue.context is kernel.context]
        if not queues:
            return
        queue, arguments = self.pick(queues), [kernel.arguments[index] for index in range(len(kernel.arguments))]
        if kernel.name in ("store", "add"):
            value = ctypes.c_uint32(self.number(0, 99))
            arguments[1] = value.value
            given = {"argIndex": 1, "argSize": 4, "pArgValue": ctypes.addressof(value)}
            self.library.ok("urKernelSetArgValue", hKernel=kernel.handle, **given)
        launch = self.sized(kernel, arguments)
        if kernel.name == "sums":
            given = {"argIndex": 1, "argSize": launch.arguments[1]}
            self.library.ok("urKernelSetArgLocal", hKernel=kernel.handle, **given)
        operation = self.launched(launch)
        operation.enqueue = "urEnqueueKernelLaunch"
        self.enqueue(queue, operation)

    def _is_there(self, span: Span) -> bool:
        if span.storage.freed or span.storage in [buffer.storage for buffer in self.of(Buffer) if buffer.mapped]:
            return False
        return span.buffer is None or span.buffer.alive

    @rule(data=st.data())
    def launch_without_memory(self, data: Any) -> None:
        """A kernel keeps no memory alive: once that is released the argument is not set any more."""
        self.data = data
        for kernel in self.of(Kernel):
            spans = [one for one in kernel.arguments.values() if isinstance(one, Span)]
            queues = [queue for queue in self.of(Queue) if queue.context is kernel.context]
            gone = [one for one in spans if one.buffer is not None and not one.buffer.alive and not one.storage.kept]
            if queues and any(not any(buffer.storage is one.storage for buffer in self.of(Buffer)) for one in gone):
                given = {"hKernel": kernel.handle, "workDim": 1, "pGlobalWorkSize": sizes(1)}
                code = self.library("urEnqueueKernelLaunch", hQueue=queues[0].handle, **given)
                self.library.expect(code, "INVALID_KERNEL_ARGS")
                return

    # mappings

    @rule(data=st.data())
    def map_buffer(self, data: Any) -> None:
        self.data = data
        buffers = [buffer for buffer in self.of(Buffer) if buffer in self.buffers(self.revive(buffer))]
        if not buffers:
            return
        buffer = self.pick(buffers)
        assert buffer.context
        queue = self.queue_for(buffer.context)
        self.settle(buffer.storage)
        self.unblock()
        part, writes = self.part(buffer), self.chance(50)
        place, flags = ctypes.c_void_p(), UR["UR_MAP_FLAG_READ"] | (UR["UR_MAP_FLAG_WRITE"] if writes else 0)
        given = {
            "blockingMap": True,
            "mapFlags": flags,
            "offset": part.offset,
            "size": part.size,
            "ppRetMap": ctypes.byref(place),
        }
        self.library.ok("urEnqueueMemBufferMap", hQueue=queue.handle, hBuffer=buffer.handle, **given)
        address = place.value or 0
        self.compare(Storage("buffer", bytearray(part.get())), ctypes.string_at(address, part.size))
        buffer.mapped = address, part.offset, part.size, writes

    @rule(data=st.data())
    def unmap_buffer(self, data: Any) -> None:
        self.data = data
        mapped = [buffer for buffer in self.of(Buffer) if buffer.mapped]
        if mapped:
            self.unmap(self.pick(mapped))
