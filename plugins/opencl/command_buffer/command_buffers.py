"""Command-buffers of Unified Runtime: recorded here, run by icd/command_buffer/command_buffer.py.

A command-buffer is an array of commands (`CommandArray`) with what each comes after. A sync-point is the number of its command plus one;
0 is none. It keeps what its commands need, also after its release, until the device is done (`_unfinished`).

A command's event is complete before the first enqueue. Every enqueue gives it another cl_event, which is what "reset" means here, and
the events that a command waits for are looked at anew. A wait for the event of a command of the same command-buffer is an edge, like a
sync-point. (Unified Runtime, EXP-COMMAND-BUFFER 1.12; appends.py and updates.py have the rest.)
"""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Final

from ....icd.abi import OPENCL
from ....icd.calls import address
from ....icd.command_buffer.command_buffer import CommandBuffer
from ....icd.command_buffer.commands import CommandArray, CommandList
from ....icd.command_buffer.driver_command_buffer import (
    DriverCommandBuffer,
    support_of,
    why_not,
)
from ....icd.command_buffer.engines import Choice, UnknownEngineError, choose
from ....icd.command_buffer.engines.native import Native, RecordedByProgram
from ....icd.command_buffer.lifetimes import Lifetimes
from ....icd.errors import error as opencl_error
from ....loader.ur.abi import UR
from ...sdk._native import ffi
from ...sdk.objects import Object
from ..contexts import URContext
from ..core import CLObject, adapter, failure
from ..devices import URDevice
from ..events import URCommandEvent, UREvent
from ..queues import URQueue
from ..usm.addresses import memory_functions
from .arguments import launches_of

_ENQUEUE: Final = UR["UR_COMMAND_ENQUEUE_COMMAND_BUFFER_EXP"]
_Descriptor: Final = UR.struct("ur_exp_command_buffer_desc_t")


@adapter.kind
class URCommand(Object):
    """A command that can be updated; it belongs to its command-buffer and lives as long.

    `index` is its place in the array. `kernels` are those that it may launch, with our copies; the first is the one of its creation.
    `arguments` are those that it launched another kernel with before (fl_arguments), for an update back to that kernel.
    """

    type, counted = "ur_exp_command_buffer_command_handle_t", False

    def __init__(self, buffer: URCommandBuffer, index: int) -> None:
        self._buffer = weakref.ref(buffer)
        self.index = index
        self.kernels: dict[Any, Any] = {}
        self.kernel: Any = None
        self.arguments: dict[Any, Any] = {}
        self.dim = 0  # of its work size

    @property
    def words(self) -> tuple[int, int, int, int]:  # pyright: ignore[reportIncompatibleVariableOverride]
        """As C knows it (plugins/sdk/native/launches.c)."""
        kernel = self.kernel
        return self.index, self.buffer.handle, kernel.handle if kernel else 0, kernel is not None

    @property
    def present(self) -> Any:
        """The command as it is now."""
        return self.buffer.commands.array[self.index]

    @property
    def buffer(self) -> URCommandBuffer:
        """The command-buffer that it is a command of. Raises URError if that is gone."""
        buffer = self._buffer()
        if buffer is None:
            raise failure("INVALID_COMMAND_BUFFER_COMMAND_HANDLE_EXP")
        return buffer


@adapter.kind
class URCommandBuffer(Object):
    """A command-buffer for one device of a context."""

    type = "ur_exp_command_buffer_handle_t"

    def __init__(
        self, context: URContext, device: URDevice, updatable: bool, in_order: bool, profiling: bool
    ) -> None:
        self.context, self.device = context, device
        self.updatable, self.in_order, self.profiling = updatable, in_order, profiling
        self.commands = CommandArray()
        self.waits: dict[int, list[UREvent]] = {}  # for events of elsewhere
        self.inner_waits: dict[int, list[int]] = {}  # for the events of these commands
        self.signals: dict[int, URCommandEvent] = {}
        self.updates: dict[int, URCommand] = {}
        self.launches = launches_of(context, self.commands)  # as C reads them
        #: a kernel and what was set on it besides arguments → a copy of ours
        self.copies: dict[Any, Any] = {}
        #: the driver's own, where the program has asked for that
        self.native: DriverCommandBuffer | None = None
        self.runner: CommandBuffer | None = None
        self._explained = False

    @property
    def words(self) -> tuple[int, int, int, int]:  # pyright: ignore[reportIncompatibleVariableOverride]
        """As C knows it (plugins/sdk/native/launches.c), for updates."""
        return address(self.launches) if self.updatable else 0, 0, 0, 0

    # recording

    def check_open(self) -> None:
        """Raise URError (INVALID_OPERATION) after finalize."""
        if self.runner is not None:
            raise failure("INVALID_OPERATION", "the command-buffer is finalized")

    def after(self, sync_points: Sequence[int]) -> Sequence[int]:
        """The commands that the next one comes after. Raises URError for a sync-point that there is not."""
        count = len(self.commands.dependencies)
        if self.in_order:
            return (count - 1,) if count else ()
        if not sync_points:
            return ()
        if len(sync_points) == 1 and 0 < sync_points[0] <= count:
            return (sync_points[0] - 1,)
        if not 0 < min(sync_points) <= max(sync_points) <= count:
            raise failure("INVALID_COMMAND_BUFFER_SYNC_POINT_EXP")
        return tuple(dict.fromkeys([point - 1 for point in sync_points]))

    def open_native(self) -> DriverCommandBuffer:
        """The driver's own command-buffer with what is recorded so far; from now on nothing else will do.

        Raises URError (UNSUPPORTED_FEATURE) if the driver has none, or none for what is recorded.
        """
        if self.native is None and self.runner is not None:
            raise failure(
                "INVALID_OPERATION", "a native command-buffer is asked for before it is finalized"
            )
        is_allowed = any(isinstance(engine, Native) for engine in _choice().engines)
        support = support_of(self.device.cl) if is_allowed else None
        commands = self._command_list()
        reason = why_not(support, commands, self.in_order)
        if commands.externals or commands.exports or commands.alternatives:
            reason = reason or "it has events or kernel alternatives"
        if reason:
            raise failure("UNSUPPORTED_FEATURE", f"there is no native command-buffer: {reason}")
        if self.native is None:
            assert support is not None
            properties = 0 if self.in_order else OPENCL["CL_QUEUE_OUT_OF_ORDER_EXEC_MODE_ENABLE"]
            properties |= OPENCL["CL_QUEUE_PROFILING_ENABLE"] if self.profiling else 0
            self.native = DriverCommandBuffer(
                support, self.context.cl, self.device.cl, properties, updatable=self.updatable
            )
        if self.runner is None:
            self.native.record(commands)
        return self.native

    def finalize(self) -> None:
        """No more commands; it can be enqueued."""
        self.check_open()
        commands = self.commands
        for index in (*self.waits, *self.signals):  # these have something to do
            commands.order_only[index] = False
        if self.native is not None:
            self.open_native().finalize()
        commands = self._command_list()
        if self.native is not None:  # the driver gives no event of a command in it
            commands = replace(commands, first=None)
            given = RecordedByProgram(self.native, len(commands))
            choice = Choice([Native()], why="it has native commands")
            self.runner = CommandBuffer(commands, choice, given)
        else:
            self.runner = CommandBuffer(commands, _choice())
        self.launches.handle = self.handle
        self.launches.buffer = ffi.cast("void *", address(self.runner.native))

    def _command_list(self) -> CommandList:
        """The commands that there are now, and what is wanted of them."""
        kernels = [
            address(copy)
            for command in self.updates.values()
            if len(command.kernels) > 1
            for copy in command.kernels.values()
        ]
        order = self.commands.order
        return CommandList(
            self.context.cl,
            [self.device.cl],
            self.commands.array,
            order,
            self.commands,
            updatable=self.updatable,
            alternatives=list(dict.fromkeys(kernels)),
            memory=memory_functions(self.context),
            externals={index: len(events) for index, events in self.waits.items()},
            exports=list(self.signals),
            first=order.first if self.profiling else None,
        )

    # running

    def enqueue(self, queue: URQueue, waits: Sequence[UREvent], wanted: bool) -> UREvent | None:
        """Enqueue it; the event is that of its end. Raises URError, OpenCLError."""
        runner = self.runner
        if runner is None:
            raise failure("INVALID_OPERATION", "the command-buffer is not finalized")
        self.context.check_same("the queue", queue)
        if queue.device is not self.device:
            raise failure("INVALID_DEVICE", "the queue is of another device")
        outside = (
            [event for events in self.waits.values() for event in events] if self.waits else ()
        )
        queue.check_waits((*waits, *outside))
        with runner.lock:
            before, beside = _present(waits), _present(outside)  # held until it is enqueued
            code, end, failed, events = runner.enqueue(
                queue.cl, 1, _native(before), _native(beside), wanted
            )
            # after a failure too: what comes before the command that failed is enqueued
            queue.enqueued += 1
            if code:
                raise opencl_error(
                    code,
                    "urEnqueueCommandBufferExp",
                    f"Command {failed} could not be enqueued." if failed >= 0 else "",
                )
            first = None
            if events:
                for event, cl in zip(self.signals.values(), events, strict=False):
                    event.set_enqueued(cl, queue)
                first = (
                    UREvent(events[-1], self.context) if len(events) > len(self.signals) else None
                )
            made = UREvent(end, self.context, queue, _ENQUEUE, first=first) if wanted else None
        if not self._explained:
            self._explained = True
            adapter.log("info", f"a command-buffer of {self.explain(queue)}")
        return made

    def explain(self, queue: URQueue) -> str:
        """How an enqueue on this queue runs, and why so."""
        if self.runner is None:
            raise failure("INVALID_OPERATION", "the command-buffer is not finalized")
        return self.runner.explain(queue.cl)

    def close(self) -> None:
        registry = adapter.registry
        if registry is not None:
            for command in self.updates.values():
                registry.forget(command)
        copies = [_Copy(address(copy), self.context) for copy in self.copies.values()]
        held = [self.commands, copies]
        if self.runner is not None:
            _unfinished.keep_until(self.runner.last_event, (self.runner, held))


def _present(events: Sequence[UREvent]) -> Sequence[CLObject]:
    """What events are now."""
    return [event.current_object() for event in events] if events else ()


def _native(things: Sequence[CLObject]) -> Sequence[int]:
    return [thing.cl for thing in things] if things else ()


class _Copy:
    """A copy of a kernel, released when it is dropped."""

    def __init__(self, cl: int, context: URContext) -> None:
        self._cl, self._table = cl, context.table

    def __del__(self) -> None:
        self._table.clReleaseKernel(self._cl)


def _choice() -> Choice:
    """The engines that FAIRLEAD_COMMAND_BUFFER names. Raises URError for a name that there is not."""
    try:
        return choose()
    except UnknownEngineError as error:
        raise failure("INVALID_VALUE", str(error)) from error


#: What released command-buffers hold while an enqueue of them is under way.
_unfinished: Final = Lifetimes()
adapter.on_close.append(_unfinished.release_all)


@adapter.entry
def urCommandBufferCreateExp(
    hContext: URContext, hDevice: URDevice, pCommandBufferDesc: Any
) -> URCommandBuffer:
    hContext.check_device(hDevice)
    desc = pCommandBufferDesc
    _unfinished.release_finished()
    return URCommandBuffer(
        hContext, hDevice, bool(desc.isUpdatable), bool(desc.isInOrder), bool(desc.enableProfiling)
    )


@adapter.entry
def urCommandBufferFinalizeExp(hCommandBuffer: URCommandBuffer) -> None:
    hCommandBuffer.finalize()


@adapter.entry
def urCommandBufferGetNativeHandleExp(hCommandBuffer: URCommandBuffer) -> int:
    if hCommandBuffer.native is not None:
        return hCommandBuffer.native.cl
    return hCommandBuffer.open_native().cl


@adapter.entry
def urEnqueueCommandBufferExp(
    hQueue: URQueue, hCommandBuffer: URCommandBuffer, phEventWaitList: list[UREvent], phEvent: bool
) -> UREvent | None:
    return hCommandBuffer.enqueue(hQueue, phEventWaitList, phEvent)


def _descriptor(buffer: URCommandBuffer) -> bytes:
    stype = UR["UR_STRUCTURE_TYPE_EXP_COMMAND_BUFFER_DESC"]
    return bytes(_Descriptor(stype, None, buffer.updatable, buffer.in_order, buffer.profiling))


adapter.info(
    "urCommandBufferGetInfoExp",
    {
        "UR_EXP_COMMAND_BUFFER_INFO_REFERENCE_COUNT": lambda buffer: buffer.references,
        "UR_EXP_COMMAND_BUFFER_INFO_DESCRIPTOR": _descriptor,
    },
)
