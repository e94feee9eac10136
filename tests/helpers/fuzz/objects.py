"""Rules that make, retain and release objects in any order, and wait for them."""

from __future__ import annotations

import ctypes
import threading
from typing import Any, Final

from hypothesis import strategies as st
from hypothesis.stateful import rule

from fairlead.loader.ur.abi import UR
from helpers.fuzz.library import Failure, array, sizes
from helpers.fuzz.memory import MemoryRules
from helpers.fuzz.model import (
    KERNELS,
    SOURCE,
    Buffer,
    CommandBuffer,
    Context,
    Device,
    Event,
    Kernel,
    Program,
    Queue,
    Span,
    Thing,
)
from helpers.fuzz.world import OUT_OF_ORDER, PROFILING
from helpers.memory_calls import struct

_Notify: Final = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_uint32, ctypes.c_void_p)
_Task: Final = ctypes.CFUNCTYPE(None, ctypes.c_void_p)


class ObjectRules(MemoryRules):
    """Rules about objects."""

    # making

    @rule(data=st.data())
    def make_context(self, data: Any) -> None:
        self.data = data
        if self.room_for(Context):
            self.new_context()

    def new_context(self) -> None:
        """A context of the device, of parts of it, or of both."""
        parts = [device.handle for device in self.of(Device)]
        devices = self.pick(
            ([self.session.device], [self.session.device, *parts], parts or [self.session.device])
        )
        made = self.library.make(
            "urContextCreate", "phContext", DeviceCount=len(devices), phDevices=array(*devices)
        )
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
        one = UR.get_struct("ur_device_partition_property_t")(
            type=UR["UR_DEVICE_PARTITION_EQUALLY"]
        )
        one.value.equally = 1
        given = {"pProperties": ctypes.addressof(one), "PropCount": 1}
        properties = struct(
            "ur_device_partition_properties_t", "DEVICE_PARTITION_PROPERTIES", **given
        )
        count, made = ctypes.c_uint32(), (ctypes.c_void_p * 2)()
        asked = {
            "hDevice": self.session.device,
            "pProperties": properties,
            "pNumDevicesRet": ctypes.byref(count),
        }
        code = self.library("urDevicePartition", **asked)
        if code == "SUCCESS" and self.room_for(Device):
            self.library.ok("urDevicePartition", **asked, NumDevices=2, phSubDevices=made)
            for handle in made[: min(count.value, 2)]:
                self.add(Device(handle or 0))

    @rule(data=st.data())
    def make_program(self, data: Any) -> None:
        """Built from source, or from another one's binary."""
        self.data = data
        if not self.room_for(Program) or not self.chance(20):
            return
        context = self.pick(self.of(Context))
        il = ctypes.create_string_buffer(SOURCE, len(SOURCE))
        made = self.library.make(
            "urProgramCreateWithIL",
            "phProgram",
            hContext=context.handle,
            pIL=il,
            length=len(SOURCE),
        )
        self.library.ok("urProgramBuild", hContext=context.handle, hProgram=made)
        self.add(Program(made, context))

    @rule(data=st.data())
    def make_kernel(self, data: Any) -> None:
        self.data = data
        programs = self.of(Program)
        if programs and self.room_for(Kernel):
            self.kernel_of(self.pick(programs), self.pick(list(KERNELS)))

    def kernel_of(self, program: Program, name: str) -> Kernel:
        """One of KERNELS."""
        made = self.library.make(
            "urKernelCreate", "phKernel", hProgram=program.handle, pKernelName=name.encode()
        )
        return self.add(Kernel(made, program.context, name=name))

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
        things = [
            one
            for one in self.of(Thing, foreign=True)
            if not (self.is_base(one) and one.references == 1)
        ]
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
                found = self.library.number(
                    f"{thing.stem}GetInfo", f"{thing.query}_CONTEXT", **{first: thing.handle}
                )
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
                self.becomes(
                    lambda: self.library.number(*asked, hQueue=queue.handle) == 1,
                    "the queue is empty",
                )
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
            self.event_of(
                queue,
                self.pick(("urEnqueueEventsWait", "urEnqueueEventsWaitWithBarrier")),
                self.some_events(queue),
            )

    @rule(data=st.data())
    def call_back(self, data: Any) -> None:
        """A callback on an event, or a task of the host's in a queue."""
        self.data = data
        events = [event for event in self.of(Event) if event.signals]
        queues = self.of(Queue)
        called = threading.Event()
        if events and self.chance(60):
            function: Any = _Notify(lambda event, status, data: called.set())
            status = UR["UR_EXECUTION_INFO_COMPLETE"]
            address, event = ctypes.cast(function, ctypes.c_void_p), self.pick(events)
            event.called_back += 1
            self.library.ok(
                "urEventSetCallback", hEvent=event.handle, execStatus=status, pfnNotify=address
            )
        elif queues:
            queue = self.pick(queues)
            function, waits = _Task(lambda data: called.set()), self.some_events(queue)
            made = ctypes.c_void_p()
            given = {
                "numEventsInWaitList": len(waits),
                "phEventWaitList": array(*(event.handle for event in waits)),
            }
            address = ctypes.cast(function, ctypes.c_void_p)
            self.library.ok(
                "urEnqueueHostTaskExp",
                hQueue=queue.handle,
                pfnHostTask=address,
                **given,
                phEvent=ctypes.byref(made),
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
        if usable := [kernel for kernel in self.of(Kernel) if self._is_set(kernel)]:
            self.launch_again(self.pick(usable))

    def _is_set(self, kernel: Kernel) -> bool:
        """Whether all of its arguments were set, and are still there."""
        spans = [one for one in kernel.arguments.values() if isinstance(one, Span)]
        return (
            bool(kernel.name)
            and len(kernel.arguments) == len(KERNELS[kernel.name])
            and all(map(self._is_there, spans))
        )

    def launch_again(self, kernel: Kernel) -> None:
        """Launch a kernel with the arguments that were last set, if it can be."""
        queues = [queue for queue in self.of(Queue) if queue.context is kernel.context]
        if not queues or not self._is_set(kernel):
            return
        queue = self.pick(queues)
        arguments = [kernel.arguments[index] for index in range(len(kernel.arguments))]
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
        if span.storage.freed or span.storage in [
            buffer.storage for buffer in self.of(Buffer) if buffer.mapped
        ]:
            return False
        return span.buffer is None or span.buffer.alive

    @rule(data=st.data())
    def launch_without_memory(self, data: Any) -> None:
        """Launch a kernel whose argument was released.

        A kernel keeps no memory alive, so the argument is unset.
        """
        self.data = data
        for kernel in self.of(Kernel):
            spans = [one for one in kernel.arguments.values() if isinstance(one, Span)]
            queues = [queue for queue in self.of(Queue) if queue.context is kernel.context]
            gone = [
                one
                for one in spans
                if one.buffer is not None and not one.buffer.alive and not one.storage.kept
            ]
            if queues and any(
                not any(buffer.storage is one.storage for buffer in self.of(Buffer)) for one in gone
            ):
                given = {"hKernel": kernel.handle, "workDim": 1, "pGlobalWorkSize": sizes(1)}
                code = self.library("urEnqueueKernelLaunch", hQueue=queues[0].handle, **given)
                self.library.expect(code, "INVALID_KERNEL_ARGS")
                return
