"""Rules of calls whose objects belong to two contexts of one driver. Each call is refused.

The contexts have the same device, or parts of it. A refused call changes nothing: references and
memory are compared as ever, and arguments of kernels by launching them.

OpenCL lists CL_INVALID_CONTEXT for what belongs to another context. Unified Runtime lists that
code, too, but seldom says when. The code follows from what does not fit:

- INVALID_CONTEXT: a handle that names its context,
- INVALID_MEM_OBJECT: device memory, whose address says nothing,
- INVALID_VALUE: a pool,
- INVALID_DEVICE: a device that is not in the context.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any, Final

from hypothesis import strategies as st
from hypothesis.stateful import rule

from fairlead.loader.ur.abi import UR
from helpers.fuzz.command_buffers import UPDATE, CommandBufferRules
from helpers.fuzz.library import Failure, array, sizes
from helpers.fuzz.model import (
    KERNELS,
    Buffer,
    CommandBuffer,
    Context,
    Event,
    Kernel,
    Launch,
    Operation,
    Pool,
    Program,
    Queue,
    Thing,
    Usm,
)
from helpers.fuzz.operations import given_of
from helpers.memory_calls import struct

_NATIVE: Final[dict[type[Thing], str]] = {
    Queue: "urQueueCreateWithNativeHandle",
    Event: "urEventCreateWithNativeHandle",
    Buffer: "urMemBufferCreateWithNativeHandle",
    Program: "urProgramCreateWithNativeHandle",
    Kernel: "urKernelCreateWithNativeHandle",
}
_NOTHING: Final = ctypes.cast(ctypes.CFUNCTYPE(None)(lambda: None), ctypes.c_void_p)

#: Commands that need nothing but a queue, and what they have to be given besides.
_PLAIN: Final[dict[str, dict[str, Any]]] = {
    "urEnqueueEventsWait": {},
    "urEnqueueEventsWaitWithBarrier": {},
    "urEnqueueEventsWaitWithBarrierExt": {},
    "urEnqueueTimestampRecordingExp": {},
    "urEnqueueHostTaskExp": {"pfnHostTask": _NOTHING},
    "urEnqueueNativeCommandExp": {"pfnNativeEnqueue": _NOTHING},
    "urEnqueueUSMDeviceAllocExp": {"size": 64, "ppMem": ctypes.byref(ctypes.c_void_p())},
}


class MixingRules(CommandBufferRules):
    """Rules about objects of two contexts."""

    @rule(data=st.data())
    def mix(self, data: Any) -> None:
        """Some calls about what is `here` with something from `there`."""
        self.data = data
        if len(self.of(Context)) < 2:
            self.new_context()
        here = (
            self.context if self.chance(50) else self.pick(self.of(Context))
        )  # where there always is a program
        there = self.pick([context for context in self.of(Context) if context is not here])
        for _ in range(self.number(1, 4)):
            self.pick(_MIXES)(self, here, there)

    def refuse(self, code: str, routine: str, given: dict[str, Any], *things: Thing) -> None:
        """Make a call that has to answer a code.

        No event is made, and reference counts do not change.
        """
        made = ctypes.c_void_p()
        self.library.expect(
            self.library.fitting(routine, {"phEvent": ctypes.byref(made), **given}), code
        )
        if made.value:
            raise Failure(f"a call that was refused has made something\n{self.library.lines[-1]}")
        for thing in things:
            self.check_references(thing)

    # objects of a context

    def a_buffer(self, context: Context) -> Buffer | None:
        found = self.buffers(context)
        return (
            self.pick(found)
            if found
            else self.new_buffer(context, 64)
            if self.room_for(Buffer)
            else None
        )

    def an_event(self, context: Context) -> Event:
        found = [event for event in self.of(Event, context) if event.signals]
        return (
            self.pick(found)
            if found
            else self.event_of(self.queue_for(context), "urEnqueueEventsWait")
        )

    def device_memory(self, context: Context) -> Usm | None:
        """Return USM that the host cannot access.

        The address of any other USM could be the host's own memory.
        """
        found = [one for one in self.usm(context) if one.storage.kind == "device"]
        return self.pick(found) if found else self.new_usm(context, "device", 64)

    def a_kernel(self, context: Context) -> Kernel | None:
        found = [kernel for kernel in self.of(Kernel, context) if kernel.name]
        if found or not (programs := self.of(Program, context)) or not self.room_for(Kernel):
            return self.pick(found) if found else None
        return self.kernel_of(self.pick(programs), "move")

    def an_open_one(self, context: Context) -> CommandBuffer | None:
        """A command-buffer that commands can be appended to."""
        found = [one for one in self.recording() if one.context is context]
        return self.pick(found) if found else self.command_buffer_of(context)

    def a_ready_one(self, context: Context) -> CommandBuffer | None:
        """A command-buffer that can be enqueued."""
        if found := [one for one in self.of(CommandBuffer, context) if one.finalized]:
            return self.pick(found)
        buffer = self.an_open_one(context)
        if buffer is not None:
            self.append_to(buffer)
            self.finish_recording(buffer)
        return buffer

    def an_operation(self, context: Context) -> tuple[Operation, str] | None:
        """Return a command on objects of a context, and the code that it answers in another one.

        The code is None if the command is allowed there.
        """
        if not self.buffers(context) and not self.usm(context) and self.a_buffer(context) is None:
            return None
        operation = self.operation(context)
        if operation is None or "USM" not in operation.enqueue:
            return (operation, "INVALID_CONTEXT") if operation is not None else None
        there = any(storage.kind == "device" for storage in operation.touches)
        return (operation, "INVALID_MEM_OBJECT") if there else None

    # commands

    def mix_command(self, here: Context, there: Context) -> None:
        """On a queue of the other context."""
        if found := self.an_operation(here):
            operation, code = found
            queue = self.queue_for(there)
            self.refuse(code, operation.enqueue, {**operation.given, "hQueue": queue.handle}, queue)

    def mix_waits(self, here: Context, there: Context) -> None:
        """After an event of the other context, among others."""
        queue, event = self.queue_for(here), self.an_event(there)
        events = [*([self.an_event(here)] if self.chance(50) else []), event]
        waits = {
            "hQueue": queue.handle,
            "numEventsInWaitList": len(events),
            "phEventWaitList": array(*(one.handle for one in events)),
        }
        found = self.an_operation(here) if self.chance(50) else None
        if found is not None and found[0].enqueue != "urEnqueueUSMAdvise":
            self.refuse(
                "INVALID_CONTEXT", found[0].enqueue, {**found[0].given, **waits}, queue, *events
            )
            return
        routine = self.pick(list(_PLAIN))
        if "USM" not in routine or "device" in self.kinds:
            self.refuse("INVALID_CONTEXT", routine, {**_PLAIN[routine], **waits}, queue, *events)

    def mix_copy(self, here: Context, there: Context) -> None:
        """From a buffer to one of the other context."""
        ours, theirs = self.a_buffer(here), self.a_buffer(there)
        if ours is not None and theirs is not None:
            pair = (ours, theirs) if self.chance(50) else (theirs, ours)
            given = {
                "hQueue": self.queue_for(here).handle,
                "hBufferSrc": pair[0].handle,
                "hBufferDst": pair[1].handle,
                "size": 1,
            }
            self.refuse("INVALID_CONTEXT", "urEnqueueMemBufferCopy", given, ours, theirs)

    def mix_native_command(self, here: Context, there: Context) -> None:
        """A native command that says it uses a buffer of the other context."""
        if (buffer := self.a_buffer(there)) is not None:
            given = {
                **_PLAIN["urEnqueueNativeCommandExp"],
                "numMemsInMemList": 1,
                "phMemList": array(buffer.handle),
            }
            self.refuse(
                "INVALID_CONTEXT",
                "urEnqueueNativeCommandExp",
                {**given, "hQueue": self.queue_for(here).handle},
                buffer,
            )

    # kernels

    def mix_arguments(self, here: Context, there: Context) -> None:
        """Pass a buffer of the other context as the last argument: those before it are not set
        either."""
        kernel, buffer = self.a_kernel(here), self.a_buffer(there)
        if (
            kernel is None
            or buffer is None
            or buffer.size < 16
            or "memory" not in KERNELS[kernel.name]
        ):
            return
        launch = self.launch(kernel, [*self.buffers(here), *self.usm(here)])
        if launch is None:
            return
        if self.chance(50):
            self.enqueue(self.queue_for(here), self.launched(launch))
            launch = Launch(
                kernel, [], list(launch.arguments), launch.offset, launch.size, launch.local
            )
        last = max(index for index, kind in enumerate(KERNELS[kernel.name]) if kind == "memory")
        launch.arguments[last] = self.argument(buffer)
        queue, suggested = self.queue_for(here), sizes(0, 0, 0)
        given = {
            **given_of(launch),
            "hQueue": queue.handle,
            "numWorkDim": 1,
            "pSuggestedLocalWorkSize": suggested,
        }
        given["pGlobalWorkOffset"] = given["pGlobalWorkOffset"] or sizes(0, 0, 0)
        routine = self.pick(
            (
                "urEnqueueKernelLaunchWithArgsExp",
                "urKernelGetSuggestedLocalWorkSizeWithArgs",
                "urKernelSetArgMemObj",
            )
        )
        given |= {"argIndex": last, "hArgValue": buffer.handle}
        self.refuse("INVALID_CONTEXT", routine, given, kernel, buffer, queue)
        self.launch_again(kernel)

    def mix_suggestion(self, here: Context, there: Context) -> None:
        """The local size that suits a queue of the other context."""
        if (kernel := self.a_kernel(here)) is not None:
            given = {
                "hKernel": kernel.handle,
                "hQueue": self.queue_for(there).handle,
                "numWorkDim": 1,
                "pGlobalWorkSize": sizes(4),
            }
            given |= {"pGlobalWorkOffset": sizes(0), "pSuggestedLocalWorkSize": sizes(0)}
            self.refuse("INVALID_CONTEXT", "urKernelGetSuggestedLocalWorkSize", given, kernel)

    # command-buffers

    def mix_append(self, here: Context, there: Context) -> None:
        """To a command-buffer of the other context; hints about any memory are allowed."""
        found, buffer = self.an_operation(here), self.an_open_one(there)
        if (
            found is None
            or buffer is None
            or not found[0].append
            or found[0].append.endswith(("PrefetchExp", "AdviseExp"))
        ):
            return
        operation, code = found
        self.refuse(
            code, operation.append, {**operation.given, "hCommandBuffer": buffer.handle}, buffer
        )

    def mix_appended_waits(self, here: Context, there: Context) -> None:
        """A command that waits for an event of the other context."""
        found, buffer, event = self.an_operation(here), self.an_open_one(here), self.an_event(there)
        if found is not None and buffer is not None and found[0].append:
            given = {
                "hCommandBuffer": buffer.handle,
                "numEventsInWaitList": 1,
                "phEventWaitList": array(event.handle),
            }
            self.refuse(
                "INVALID_CONTEXT", found[0].append, {**found[0].given, **given}, buffer, event
            )

    def mix_alternatives(self, here: Context, there: Context) -> None:
        """A kernel of the other context as an alternative."""
        kernel, other, buffer = self.a_kernel(here), self.a_kernel(there), self.an_open_one(here)
        if kernel is not None and other is not None and buffer is not None:
            launch = self.launch(kernel, [*self.buffers(here), *self.usm(here)])
            if launch is not None:
                launch.alternatives = [other]
                given = {**given_of(launch), "hCommandBuffer": buffer.handle}
                self.refuse(
                    "INVALID_CONTEXT",
                    "urCommandBufferAppendKernelLaunchWithArgsExp",
                    given,
                    buffer,
                    kernel,
                    other,
                )

    def mix_run(self, here: Context, there: Context) -> None:
        """Enqueue a command-buffer on a queue of the other context, or after an event of it."""
        if (buffer := self.a_ready_one(here)) is None:
            return
        given = {"hCommandBuffer": buffer.handle, "hQueue": self.queue_for(there).handle}
        self.refuse("INVALID_CONTEXT", "urEnqueueCommandBufferExp", given, buffer)
        if queues := [queue for queue in self.of(Queue, here) if queue.device == buffer.device]:
            event = self.an_event(there)
            given |= {
                "hQueue": self.pick(queues).handle,
                "numEventsInWaitList": 1,
                "phEventWaitList": array(event.handle),
            }
            self.refuse("INVALID_CONTEXT", "urEnqueueCommandBufferExp", given, buffer, event)

    def mix_update(self, here: Context, there: Context) -> None:
        """A launch that shall have memory of the other context, or wait for an event of it."""
        launches = [(one, command) for one, command in self.updatable() if one.context is here]
        if not launches:
            return
        buffer, command = self.pick(launches)
        launch, other = command.operation.launch, self.a_buffer(there)
        assert launch is not None
        if "memory" in KERNELS[launch.kernel.name] and other is not None:
            row = struct(
                UPDATE.format("memobj_arg"), "EXP_COMMAND_BUFFER_UPDATE_MEMOBJ_ARG_DESC", argIndex=0
            )
            row.hNewMemObjArg = other.handle
            fields = {
                "hCommand": command.handle,
                "newWorkDim": len(launch.size),
                "numNewMemObjArgs": 1,
            }
            fields["pNewMemObjArgList"] = ctypes.addressof(row)
            desc = struct(
                UPDATE.format("kernel_launch"),
                "EXP_COMMAND_BUFFER_UPDATE_KERNEL_LAUNCH_DESC",
                **fields,
            )
            given = {
                "hCommandBuffer": buffer.handle,
                "numKernelUpdates": 1,
                "pUpdateKernelLaunch": desc,
            }
            self.refuse(
                "INVALID_CONTEXT", "urCommandBufferUpdateKernelLaunchExp", given, buffer, other
            )
        if command.waits:
            events = [self.an_event(there) for _ in command.waits]
            given = {"hCommand": command.handle, "numEventsInWaitList": len(events)}
            given["phEventWaitList"] = array(*(event.handle for event in events))
            self.refuse("INVALID_CONTEXT", "urCommandBufferUpdateWaitEventsExp", given, *events)

    # programs

    def mix_programs(self, here: Context, there: Context) -> None:
        """A program that is built for the other context, or linked with one of it."""
        ours, theirs = self.of(Program, here), self.of(Program, there)
        if not theirs:
            return
        program = self.pick(theirs)
        given: dict[str, Any] = {"hContext": here.handle, "hProgram": program.handle}
        self.refuse(
            "INVALID_CONTEXT", self.pick(("urProgramBuild", "urProgramCompile")), given, program
        )
        linked = [*([self.pick(ours)] if ours else []), program]
        made = ctypes.c_void_p(1)
        given = {
            "hContext": here.handle,
            "count": len(linked),
            "phPrograms": array(*(one.handle for one in linked)),
        }
        self.refuse(
            "INVALID_CONTEXT", "urProgramLink", {**given, "phProgram": ctypes.byref(made)}, *linked
        )
        if made.value:
            raise Failure("a program was linked of those of two contexts")

    # memory by address

    def mix_usm(self, here: Context, there: Context) -> None:
        """Memory of one context that the other one is to free, or tells of."""
        if not (found := self.usm(here)):
            return
        usm = self.pick(found)
        given = {
            "hContext": there.handle,
            "hQueue": self.queue_for(there).handle,
            "pMem": usm.address,
        }
        self.refuse("INVALID_MEM_OBJECT", self.pick(("urUSMFree", "urEnqueueUSMFreeExp")), given)
        asked = "urUSMGetMemAllocInfo", "UR_USM_ALLOC_INFO_TYPE"
        found_there = self.library.number(*asked, hContext=there.handle, pMem=usm.address)
        if found_there != UR["UR_USM_TYPE_UNKNOWN"] or not self.library.number(
            *asked, hContext=here.handle, pMem=usm.address
        ):
            raise Failure(f"{usm} is of the type {found_there} in another context")

    def mix_import(self, here: Context, there: Context) -> None:
        """Host memory that both contexts are told of: what ends in the one goes on in the other."""
        if not self.kinds or self.kinds == ["device"]:
            return
        size = 64
        address, end = self.host.take(size), "urUSMReleaseExp"
        given = {"pMem": address, "size": size}
        known = []
        for context in (here, there):
            if (
                code := self.library("urUSMImportExp", hContext=context.handle, **given)
            ) == "SUCCESS":
                known.append(context)
            else:
                self.library.expect(code, "UNSUPPORTED_FEATURE")
        if self.chance(50):
            known.reverse()
        for context in known:
            self.library.expect(
                self.library("urUSMImportExp", hContext=context.handle, **given), "INVALID_VALUE"
            )
            self.unblock()
            self.library.ok(end, hContext=context.handle, pMem=address)
            self.library.expect(
                self.library(end, hContext=context.handle, pMem=address), "INVALID_VALUE"
            )

    def mix_pools(self, here: Context, there: Context) -> None:
        """A pool of the other context."""
        found = self.of(Pool, there)
        pool = self.pick(found) if found else self.new_pool(there) if self.room_for(Pool) else None
        devices = self.devices_of(here)
        if pool is None or not devices or "device" not in self.kinds:
            return
        queue, room = self.queue_for(here), ctypes.byref(ctypes.c_void_p())
        device = self.pick(devices)
        given = {
            "hContext": here.handle,
            "hDevice": device,
            "pool": pool.handle,
            "hPool": pool.handle,
            "pPool": pool.handle,
        }
        given |= {"hQueue": queue.handle, "size": 64, "ppMem": room}
        names = (
            "urUSMDeviceAlloc",
            "urEnqueueUSMDeviceAllocExp",
            "urUSMPoolSetDevicePoolExp",
            "urUSMPoolTrimToExp",
        )
        self.refuse("INVALID_VALUE", self.pick((*names, "urUSMPoolDestroyExp")), given, pool)
        if memory := self.usm(here):
            given["pMem"] = self.pick(memory).address
            self.refuse("INVALID_VALUE", "urEnqueueUSMFreeExp", given, pool)

    # handles of OpenCL's, and devices

    def mix_native(self, here: Context, there: Context) -> None:
        """OpenCL's handle of an object that is of the other context."""
        things = [one for one in self.of(Thing) if one.context is there and type(one) in _NATIVE]
        things = [one for one in things if not (isinstance(one, Event) and not one.signals)]
        if things:
            thing = self.pick(things)
            routine, made = _NATIVE[type(thing)], ctypes.c_void_p()
            function = UR.functions[routine]
            ask = UR.functions[f"{thing.stem}GetNativeHandle"].parameters
            native = self.library.make(
                f"{thing.stem}GetNativeHandle", ask[-1].name, **{ask[0].name: thing.handle}
            )
            given = {
                function.parameters[0].name: native,
                "hContext": here.handle,
                function.parameters[-1].name: ctypes.byref(made),
            }
            self.refuse("INVALID_CONTEXT", routine, given, thing)

    def mix_devices(self, here: Context, there: Context) -> None:
        """Pass a device of the other context.

        If it is a part of one here, the driver may allow it.
        """
        whole = self.session.device
        strangers = [device for device in self.devices_of(there) if device not in here.devices]
        if not strangers:
            return
        device = self.pick(strangers)
        desc = struct("ur_exp_command_buffer_desc_t", "EXP_COMMAND_BUFFER_DESC")
        given = {"hContext": here.handle, "hDevice": device, "size": 64, "pCommandBufferDesc": desc}
        out = ctypes.c_void_p()
        given |= dict.fromkeys(("phQueue", "ppMem", "phCommandBuffer"), ctypes.byref(out))
        is_part = whole in here.devices and device != whole
        routine = self.pick(
            ("urQueueCreate",)
            if is_part
            else ("urQueueCreate", "urUSMDeviceAlloc", "urCommandBufferCreateExp")
        )
        code = self.library.fitting(routine, given)
        if is_part and code == "SUCCESS":
            self.add(Queue(out.value or 0, here, device=device))
        else:
            self.library.expect(code, "INVALID_DEVICE")


_MIXES: Final[tuple[Callable[[MixingRules, Context, Context], None], ...]] = tuple(
    member for name, member in vars(MixingRules).items() if name.startswith("mix_")
)
