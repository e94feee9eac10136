"""Rules of command-buffers: recorded, finalized, enqueued, updated, released, and misused."""

from __future__ import annotations

import ctypes
import itertools
from collections.abc import Sequence
from typing import Any, Final

from hypothesis import strategies as st
from hypothesis.stateful import rule

from helpers.fuzz.library import array, array_of, sizes
from helpers.fuzz.model import (
    KERNELS,
    Buffer,
    CommandBuffer,
    Context,
    Event,
    Kernel,
    Launch,
    Operation,
    Queue,
    Recorded,
    Span,
)
from helpers.fuzz.objects import ObjectRules
from helpers.memory_calls import struct

_MOST: Final = 12  # commands
UPDATE: Final = "ur_exp_command_buffer_update_{}_desc_t"


class CommandBufferRules(ObjectRules):
    """Rules about command-buffers."""

    @rule(data=st.data())
    def make_command_buffer(self, data: Any) -> None:
        self.data = data
        buffer = self.command_buffer_of(self.pick(self.of(Context)))
        if buffer is not None:
            for _ in range(self.number(0, 3)):
                self.append_to(buffer)

    def command_buffer_of(self, context: Context) -> CommandBuffer | None:
        """A new one; None if the context has no device, or there are too many already."""
        devices = self.devices_of(context)
        if not self.room_for(CommandBuffer) or not devices:
            return None
        device, updatable, in_order = self.pick(devices), self.chance(60), self.chance(30)
        fields = {
            "isUpdatable": updatable,
            "isInOrder": in_order,
            "enableProfiling": self.chance(20),
        }
        desc = struct("ur_exp_command_buffer_desc_t", "EXP_COMMAND_BUFFER_DESC", **fields)
        given = {"hContext": context.handle, "hDevice": device, "pCommandBufferDesc": desc}
        made = self.library.make("urCommandBufferCreateExp", "phCommandBuffer", **given)
        return self.add(
            CommandBuffer(made, context, device=device, updatable=updatable, in_order=in_order)
        )

    @rule(data=st.data())
    def append(self, data: Any) -> None:
        self.data = data
        if buffers := self.recording():
            self.append_to(self.pick(buffers))

    def recording(self) -> list[CommandBuffer]:
        """Those that commands can be appended to."""
        return [
            one for one in self.of(CommandBuffer) if not one.finalized and len(one.commands) < _MOST
        ]

    @rule(data=st.data())
    def finalize(self, data: Any) -> None:
        self.data = data
        if buffers := [one for one in self.of(CommandBuffer) if not one.finalized]:
            buffer = self.pick(buffers)
            self.finish_recording(buffer)
            self.run_somewhere(buffer)

    def finish_recording(self, buffer: CommandBuffer) -> None:
        """Finalize it."""
        self.library.ok("urCommandBufferFinalizeExp", hCommandBuffer=buffer.handle)
        buffer.finalized = True

    @rule(data=st.data())
    def run(self, data: Any) -> None:
        """Enqueue some of them, which need not have ended since the last time."""
        self.data = data
        if buffers := [one for one in self.of(CommandBuffer) if one.finalized]:
            for _ in range(self.number(1, 3)):
                self.run_somewhere(self.pick(buffers))

    # recording

    def append_to(self, buffer: CommandBuffer) -> None:
        """Append a command, after those that use the same memory."""
        assert buffer.context
        operation = self.operation(buffer.context)
        if operation is None or not operation.append or not self._fits(operation):
            return
        before = self._ordered(buffer, operation)
        if before is None:
            return
        points = [command.sync_point for command in before]
        if others := [command.sync_point for command in buffer.commands if command.sync_point]:
            points += [self.pick(others)] if self.chance(30) else []
        launch, point, handle = operation.launch, ctypes.c_uint32(), ctypes.c_void_p()
        wants_point = self.chance(85)
        wants_handle = buffer.updatable and launch is not None and self.chance(80)
        if launch is not None and wants_handle and self.chance(40):
            launch.alternatives = self._alternatives(launch)
            operation.given["numKernelAlternatives"] = len(launch.alternatives)
            operation.given["phKernelAlternatives"] = array(
                *(kernel.handle for kernel in launch.alternatives)
            )
        signal = ctypes.c_void_p() if self.chance(10) else None
        waits = [
            event
            for event in self.of(Event, buffer.context)
            if event.complete is None and event.signals and event.queue
        ]
        waits = [self.pick(waits)] if waits and self.chance(10) else []
        given = {
            "hCommandBuffer": buffer.handle,
            "numSyncPointsInWaitList": len(points),
            "pSyncPointWaitList": (ctypes.c_uint32 * len(points))(*points) if points else None,
            "pSyncPoint": ctypes.byref(point) if wants_point else None,
            "phCommand": ctypes.byref(handle) if wants_handle else None,
            "numEventsInWaitList": len(waits),
            "phEventWaitList": array(*(event.handle for event in waits)),
            "phEvent": ctypes.byref(signal) if signal is not None else None,
        }
        self.library.expect(
            self.library.fitting(operation.append, {**operation.given, **given}), "SUCCESS"
        )
        for storage in operation.touches:
            storage.kept = True
        command = Recorded(operation, point.value, handle.value or 0, waits=waits)
        command.kernels = [launch.kernel, *launch.alternatives] if launch is not None else []
        if handle.value:
            self.library.labels[handle.value] = (
                f"command{len(buffer.commands) + 1} of {self.library.labels[buffer.handle]}"
            )
        if signal is not None:
            command.event = self.add(Event(signal.value or 0, buffer.context, signals=False))
        buffer.commands.append(command)

    def _fits(self, operation: Operation) -> bool:
        """Plain host memory is nothing that a driver with buffers alone can copy to itself."""
        return (
            self.way != "buffer"
            or any(storage.kind != "host" for storage in operation.touches)
            or not operation.touches
        )

    def _ordered(self, buffer: CommandBuffer, operation: Operation) -> list[Recorded] | None:
        """The commands that it has to come after; None if one of them has no sync-point."""
        if buffer.in_order:
            return []
        last = []
        for storage in operation.touches:
            users = [command for command in buffer.commands if storage in command.operation.touches]
            last += users[-1:]
        last = list(dict.fromkeys(last))
        return last if all(command.sync_point for command in last) else None

    def _alternatives(self, launch: Launch) -> list[Kernel]:
        shape = KERNELS[launch.kernel.name]
        kernels = self.of(Kernel, launch.kernel.context)
        return [
            one
            for one in kernels
            if one.name and one is not launch.kernel and KERNELS[one.name] == shape
        ][:2]

    # running

    def run_somewhere(self, buffer: CommandBuffer) -> None:
        """Enqueue it on some queue that it can be enqueued on."""
        queues = [
            queue
            for queue in self.of(Queue)
            if queue.context is buffer.context and queue.device == buffer.device
        ]
        touches = buffer.touches
        if not queues or any(storage.freed for storage in touches) or self._is_mapped(touches):
            return
        queue = self.pick(queues)
        waits = [*self.before(queue, touches), *self.some_events(queue)]
        made = ctypes.c_void_p() if self.chance(60) else None
        given = {
            "numEventsInWaitList": len(waits),
            "phEventWaitList": array(*(event.handle for event in waits)),
        }
        given["phEvent"] = ctypes.byref(made) if made is not None else None
        self.library.ok(
            "urEnqueueCommandBufferExp", hQueue=queue.handle, hCommandBuffer=buffer.handle, **given
        )
        buffer.enqueued = True
        for command in buffer.commands:
            command.operation.apply()
            if command.event:
                command.event.signals, command.event.done, command.event.queue = True, False, queue
        event = (
            self.add(Event(made.value or 0, queue.context, queue=queue))
            if made is not None
            else None
        )
        self.after(queue, touches, event, False)

    def _is_mapped(self, touches: Sequence[Any]) -> bool:
        return any(buffer.mapped and buffer.storage in touches for buffer in self.of(Buffer))

    # updating

    def updatable(self) -> list[tuple[CommandBuffer, Recorded]]:
        """The launches that can be updated."""
        return [
            (one, c)
            for one in self.of(CommandBuffer)
            if one.finalized
            for c in one.commands
            if c.handle
        ]

    @rule(data=st.data())
    def update(self, data: Any) -> None:
        """Change arguments, sizes and kernels of launches of one command-buffer in one call.

        If one change is wrong, none is made.
        """
        self.data = data
        if not (launches := self.updatable()):
            return
        buffer, _ = self.pick(launches)
        mine = [command for one, command in launches if one is buffer]
        chosen = list(dict.fromkeys(self.pick(mine) for _ in range(self.number(1, 2))))
        rows, news, kept = [], [], []
        for command in chosen:
            new = self._changed(buffer, command, [n for c, n in zip(chosen, news, strict=False)])
            news.append(new)
            rows.append(self._description(command, new, kept))
        if buffer.enqueued:
            self.unblock()
        spoilt = self.chance(20)
        if spoilt:
            rows.append(
                struct(
                    UPDATE.format("kernel_launch"),
                    "EXP_COMMAND_BUFFER_UPDATE_KERNEL_LAUNCH_DESC",
                    hCommand=buffer.handle,
                )
            )
        descriptions = array_of(rows)
        given = {"numKernelUpdates": len(rows), "pUpdateKernelLaunch": descriptions}
        code = self.library(
            "urCommandBufferUpdateKernelLaunchExp", hCommandBuffer=buffer.handle, **given
        )
        self.library.expect(
            code, "INVALID_COMMAND_BUFFER_COMMAND_HANDLE_EXP" if spoilt else "SUCCESS"
        )
        if spoilt:
            return
        for command, new in zip(chosen, news, strict=True):
            command.operation = self.launched(new)
            for storage in command.operation.touches:
                storage.kept = True

    def _changed(self, buffer: CommandBuffer, command: Recorded, others: list[Launch]) -> Launch:
        """Return a new launch.

        Memory that other commands use does not change, because of the order.
        """
        old = command.operation.launch
        assert old is not None and buffer.context
        arguments, kernel = list(old.arguments), old.kernel
        used = [
            storage
            for other in buffer.commands
            if other is not command
            for storage in other.operation.touches
        ]
        used += [
            one.storage for launch in others for one in launch.arguments if isinstance(one, Span)
        ]
        for index, kind in enumerate(KERNELS[kernel.name]):
            mine = [argument.storage for argument in arguments if isinstance(argument, Span)]
            memory = [
                one
                for one in (*self.buffers(buffer.context), *self.usm(buffer.context))
                if one.size >= 64 and one.storage not in used and one.storage not in mine
            ]
            if kind == "value" and self.chance(60):
                arguments[index] = self.number(0, 99)
            elif kind == "memory" and memory and self.chance(40):
                arguments[index] = self.argument(self.pick(memory))
        there = all(self._is_there(one) for one in arguments if isinstance(one, Span))
        if old.alternatives and there and self.chance(40):
            kernel = self.pick([one for one in command.kernels if one.alive] or [kernel])
        rooms = [argument.size // 4 for argument in arguments if isinstance(argument, Span)]
        fits = all(old.offset + old.count <= room for room in rooms)
        if kernel.name == "sums" or (fits and self.chance(60)):
            if fits:
                return Launch(kernel, old.alternatives, arguments, old.offset, old.size, old.local)
            return Launch(
                old.kernel, old.alternatives, old.arguments, old.offset, old.size, old.local
            )
        new = self.sized(kernel, arguments)
        new.alternatives = old.alternatives
        return new

    def _description(self, command: Recorded, new: Launch, kept: list[Any]) -> Any:
        """A ur_exp_command_buffer_update_kernel_launch_desc_t."""
        old = command.operation.launch
        assert old is not None
        values, pointers, memory = [], [], []
        other = new.kernel is not old.kernel
        for index, (kind, argument) in enumerate(
            zip(KERNELS[new.kernel.name], new.arguments, strict=True)
        ):
            if not other and argument is old.arguments[index]:
                continue
            if isinstance(argument, Span) and argument.buffer is not None:
                row = struct(
                    UPDATE.format("memobj_arg"),
                    "EXP_COMMAND_BUFFER_UPDATE_MEMOBJ_ARG_DESC",
                    argIndex=index,
                )
                row.hNewMemObjArg = argument.buffer.handle
                memory.append(row)
            elif isinstance(argument, Span):
                kept.append(ctypes.c_void_p(argument.address))
                row = struct(
                    UPDATE.format("pointer_arg"),
                    "EXP_COMMAND_BUFFER_UPDATE_POINTER_ARG_DESC",
                    argIndex=index,
                )
                row.pNewPointerArg = ctypes.addressof(kept[-1])
                pointers.append(row)
            else:
                kept.append(ctypes.c_uint32(argument))
                row = struct(
                    UPDATE.format("value_arg"),
                    "EXP_COMMAND_BUFFER_UPDATE_VALUE_ARG_DESC",
                    argIndex=index,
                )
                row.argSize, row.pNewValueArg = (
                    (argument, None) if kind == "local" else (4, ctypes.addressof(kept[-1]))
                )
                values.append(row)
        fields: dict[str, Any] = {
            "hCommand": command.handle,
            "hNewKernel": new.kernel.handle if other else None,
        }
        fields["newWorkDim"] = dimensions = len(new.size)
        for name, rows in (("Value", values), ("Pointer", pointers), ("MemObj", memory)):
            if rows:
                kept.append(array_of(rows))
                fields |= {
                    f"numNew{name}Args": len(rows),
                    f"pNew{name}ArgList": ctypes.addressof(kept[-1]),
                }
        if (new.offset, new.size, new.local) != (old.offset, old.size, old.local):
            shapes = [[new.offset, 0, 0][:dimensions], new.size, new.local]
            kept += [sizes(*shape) if shape else None for shape in shapes]
            names = ("pNewGlobalWorkOffset", "pNewGlobalWorkSize", "pNewLocalWorkSize")
            fields |= {
                name: ctypes.addressof(one) if one else None
                for name, one in zip(names, kept[-3:], strict=True)
            }
        return struct(
            UPDATE.format("kernel_launch"), "EXP_COMMAND_BUFFER_UPDATE_KERNEL_LAUNCH_DESC", **fields
        )

    @rule(data=st.data())
    def update_events(self, data: Any) -> None:
        """Another event to signal, other events to wait for: as many as there were."""
        self.data = data
        if not (launches := self.updatable()):
            return
        buffer, command = self.pick(launches)
        assert buffer.context
        if command.event is not None and self.chance(50):
            made = self.library.make(
                "urCommandBufferUpdateSignalEventExp", "phSignalEvent", hCommand=command.handle
            )
            command.event = self.add(Event(made, buffer.context, signals=False))
            return
        events = [
            event
            for event in self.of(Event, buffer.context)
            if event.complete is None and event.signals and event.queue
        ]
        count = self.number(0, 2)
        chosen = [self.pick(events) for _ in range(count)] if events else []
        given = {
            "numEventsInWaitList": len(chosen),
            "phEventWaitList": array(*(event.handle for event in chosen)),
        }
        code = self.library("urCommandBufferUpdateWaitEventsExp", hCommand=command.handle, **given)
        self.library.expect(
            code, "SUCCESS" if len(chosen) == len(command.waits) else "INVALID_EVENT_WAIT_LIST"
        )
        if code == "SUCCESS":
            command.waits = chosen

    # misuse

    @rule(data=st.data())
    def misuse(self, data: Any) -> None:
        """What a command-buffer does not allow in the state that it is in."""
        self.data = data
        if not (buffers := self.of(CommandBuffer)):
            return
        buffer = self.pick(buffers)
        call = {"hCommandBuffer": buffer.handle}
        if buffer.finalized:
            self.library.expect(
                self.library("urCommandBufferFinalizeExp", **call), "INVALID_OPERATION"
            )
        else:
            queues = self.of(Queue)
            if queues:
                code = self.library(
                    "urEnqueueCommandBufferExp", hQueue=self.pick(queues).handle, **call
                )
                self.library.expect(code, "INVALID_OPERATION")
        assert buffer.context
        operation = self.operation(buffer.context)
        if operation is not None and operation.append:
            self._misuse_append(buffer, operation)
        self._misuse_update(buffer)

    def _misuse_append(self, buffer: CommandBuffer, operation: Operation) -> None:
        command = ctypes.c_void_p()
        point = (ctypes.c_uint32 * 1)(self.pick((0, len(buffer.commands) + 1, 0xFFFFFFFF)))
        given = {**operation.given, "hCommandBuffer": buffer.handle}
        code = ""
        if not buffer.updatable:
            given["phCommand"], code = ctypes.byref(command), "INVALID_OPERATION"
        elif not buffer.in_order:
            given["numSyncPointsInWaitList"], given["pSyncPointWaitList"] = 1, point
            code = "INVALID_COMMAND_BUFFER_SYNC_POINT_EXP"
        if buffer.finalized:
            code = "INVALID_OPERATION"
        if code:
            self.library.expect(self.library.fitting(operation.append, given), code)

    def _misuse_update(self, buffer: CommandBuffer) -> None:
        """Update something that is not a launch of this command-buffer, or a command-buffer that
        does not allow it."""
        handles = [
            command.handle
            for one in self.of(CommandBuffer)
            if one is not buffer
            for command in one.commands
            if command.handle
        ]
        mine = [command.handle for command in buffer.commands if command.handle]
        ready = buffer.finalized and buffer.updatable
        if not (chosen := handles if ready else [*handles, *mine]):
            return
        desc = struct(
            UPDATE.format("kernel_launch"),
            "EXP_COMMAND_BUFFER_UPDATE_KERNEL_LAUNCH_DESC",
            hCommand=self.pick(chosen),
        )
        giant = self.chance(20)
        given = {"numKernelUpdates": 0xFFFFFFFF if giant else 1, "pUpdateKernelLaunch": desc}
        code = self.library(
            "urCommandBufferUpdateKernelLaunchExp", hCommandBuffer=buffer.handle, **given
        )
        refusal = "INVALID_SIZE" if giant else "INVALID_COMMAND_BUFFER_COMMAND_HANDLE_EXP"
        self.library.expect(code, refusal if ready else "INVALID_OPERATION")

    @rule(data=st.data())
    def run_elsewhere(self, data: Any) -> None:
        """On a queue of another context, or of another device of the context."""
        self.data = data
        pairs = itertools.product(self.of(CommandBuffer), self.of(Queue))
        wrong = [
            (one, queue)
            for one, queue in pairs
            if queue.context is not one.context or queue.device != one.device
        ]
        if wrong := [pair for pair in wrong if pair[0].finalized]:
            buffer, queue = self.pick(wrong)
            code = self.library(
                "urEnqueueCommandBufferExp", hQueue=queue.handle, hCommandBuffer=buffer.handle
            )
            self.library.expect(
                code, "INVALID_CONTEXT" if queue.context is not buffer.context else "INVALID_DEVICE"
            )
