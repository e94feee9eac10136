"""Command-buffers of Unified Runtime of the OpenCL adapter: recorded here, run by
icd/command_buffer/command_buffer.py.

A command-buffer is an array of commands (`CommandArray`), with what each comes after. A sync-point
is the number of its command plus one; 0 means nothing. The command-buffer keeps what its commands
need until the device is done, also after its release (`_unfinished`).

A command's event is complete before the first enqueue. Every enqueue gives it another cl_event;
that is what the specification's "reset" means here. A command waits for what the events of its wait
list are at the enqueue. A wait for the event of another command of the command-buffer is an edge,
like a sync-point.

(Unified Runtime: EXP-COMMAND-BUFFER 1.12. appends.py and updates.py have the rest.)
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Final

from ....icd.abi import OPENCL
from ....icd.calls import get_address
from ....icd.command_buffer.choice import Choice, UnknownEngineError, choose
from ....icd.command_buffer.command_buffer import CommandBuffer
from ....icd.command_buffer.commands import CommandArray, CommandList
from ....icd.command_buffer.driver_command_buffer import DriverCommandBuffer, find_support, why_not
from ....icd.command_buffer.engines.native import Native, RecordedByProgram
from ....icd.command_buffer.lifetimes import Lifetimes
from ....icd.errors import error as opencl_error
from ....loader.ur.abi import UR
from ...sdk._native import ffi
from ...sdk.command_buffers import (
    CommandBufferObject,
    CommandObject,
    RecordingLock,
    declare_command_buffers,
)
from ..contexts import URContext
from ..core import CLObject, adapter, failure
from ..devices import URDevice
from ..events import URCommandEvent, UREvent
from ..queues import URQueue
from ..usm.addresses import get_memory_functions
from .arguments import make_launches

_ENQUEUE: Final = UR["UR_COMMAND_ENQUEUE_COMMAND_BUFFER_EXP"]


@adapter.kind
class URCommand(CommandObject):
    """A command that can be updated. It lives as long as its command-buffer.

    Args:
        index: its place in the array.

    Attributes:
        kernels: the kernels that it may launch, with our copies. The first is that of the append.
        arguments: the arguments (fl_arguments) that it launched other kernels with before, for an
            update back to such a kernel.
    """

    def __init__(self, buffer: URCommandBuffer, index: int) -> None:
        super().__init__(buffer, index)
        self.kernels: dict[Any, Any] = {}
        self.kernel: Any = None
        self.arguments: dict[Any, Any] = {}
        self.dim = 0

    def describe_to_c(self) -> tuple[int, int, int, int]:
        """Return what C knows of the command (plugins/sdk/native/launches.c)."""
        kernel = self.kernel
        return self.index, self.buffer.handle, kernel.handle if kernel else 0, kernel is not None

    @property
    def present(self) -> Any:
        """Return the command's `fl_command` in the array."""
        return self.buffer.commands.array[self.index]

    @property
    def is_launch(self) -> bool:
        return self.kernel is not None


@adapter.kind
class URCommandBuffer(CommandBufferObject):
    """A command-buffer for one device of a context.

    Attributes:
        launches: what C reads of it (`fl_launches *`).
        copies: our copies of kernels, by the kernel and what was set on it besides arguments.
        native: the driver's own command-buffer, if the program has asked for it.
        runner: what runs it, after finalize.
    """

    def __init__(
        self, context: URContext, device: URDevice, updatable: bool, in_order: bool, profiling: bool
    ) -> None:
        super().__init__(context, device, updatable, in_order, profiling)
        self.commands = CommandArray()
        self.signals: dict[int, URCommandEvent]
        self.updates: dict[int, URCommand] = {}
        self.launches = make_launches(context, device, self.commands, updatable, in_order)
        self.recording = RecordingLock(self.launches, self.update_from_c)
        self.copies: dict[Any, Any] = {}
        self.native: DriverCommandBuffer | None = None
        self.runner: CommandBuffer | None = None
        _unfinished.release_finished()

    def get_native(self) -> int:
        return (self.native or self.open_native()).cl

    def describe_to_c(self) -> tuple[int, int, int, int]:
        return (get_address(self.launches), *super().describe_to_c()[1:])

    # recording

    def update_from_c(self) -> None:
        """Learn which commands C has appended. The lock is held."""
        launches, at = self.launches, 0
        if not launches.appended:
            return
        numbers = ffi.unpack(launches.after, launches.after_count)
        while at < len(numbers):
            end = at + 1 + numbers[at]
            self.commands.count_added(tuple(numbers[at + 1 : end]))
            at = end
        launches.appended = launches.after_count = 0

    @property
    def length(self) -> int:
        return len(self.commands.dependencies)

    @property
    def is_finalized(self) -> bool:
        return self.runner is not None

    def open_native(self) -> DriverCommandBuffer:
        """Return the driver's own command-buffer with what is recorded so far.

        From now on no other engine can run this command-buffer.

        Raises:
            URError: UNSUPPORTED_FEATURE if the driver cannot run what is recorded,
                INVALID_OPERATION if it is finalized without the driver's command-buffer.
        """
        with self.recording:
            return self._open_native()

    def _open_native(self) -> DriverCommandBuffer:
        if self.native is None and self.runner is not None:
            raise failure(
                "INVALID_OPERATION", "a native command-buffer is asked for before it is finalized"
            )
        engines = _read_choice(self.context.cl).engines
        is_allowed = any(isinstance(engine, Native) for engine in engines)
        support = find_support(self.device.cl) if is_allowed else None
        commands = self._make_command_list()
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
        """Complete the command-buffer: nothing can be appended any more, and it can be enqueued."""
        self.check_open()
        commands = self.commands
        for index in (*self.waits, *self.signals):  # these need commands of the driver
            commands.order_only[index] = False
        if self.native is not None:
            self.open_native().finalize()
        commands = self._make_command_list()
        if self.native is not None:  # the driver has no events of its commands
            commands = replace(commands, first=None)
            given = RecordedByProgram(self.native, len(commands))
            choice = Choice([Native()], why="it has native commands")
            self.runner = CommandBuffer(commands, choice, given)
        else:
            self.runner = CommandBuffer(commands, _read_choice(self.context.cl))
        self.launches.handle = self.handle
        self.launches.buffer = ffi.cast("void *", get_address(self.runner.native))

    def _make_command_list(self) -> CommandList:
        """Return the commands that there are now, and what they have to do."""
        kernels = [
            get_address(copy)
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
            memory=get_memory_functions(self.context),
            externals={index: len(events) for index, events in self.waits.items()},
            exports=list(self.signals),
            first=order.first if self.profiling else None,
        )

    # running

    def enqueue(self, queue: URQueue, waits: Sequence[UREvent], wanted: bool) -> UREvent | None:
        self.check_queue(queue)
        runner = self.runner
        assert runner is not None
        outside = (
            [event for events in self.waits.values() for event in events] if self.waits else ()
        )
        queue.check_waits((*waits, *outside))
        with runner.lock:
            # The objects of events are held until everything is enqueued.
            before, beside = _list_current_events(waits), _list_current_events(outside)
            code, end, failed, events = runner.enqueue(
                queue.cl, 1, _list_handles(before), _list_handles(beside), wanted
            )
            # Also after a failure, because what comes before the failed command is enqueued.
            queue.count()
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
            return UREvent(end, self.context, queue, _ENQUEUE, first=first) if wanted else None

    def explain(self, queue: URQueue | None) -> str:
        if self.runner is None or queue is None:
            return f"{self.length} commands: an enqueue on a queue chooses the engine"
        return self.runner.explain(queue.cl)

    def close(self) -> None:
        registry = adapter.registry
        if registry is not None:
            for command in self.updates.values():
                registry.forget(command)
        copies = [_Copy(get_address(copy), self.context) for copy in self.copies.values()]
        held = [self.commands, copies]
        if self.runner is not None:
            _unfinished.keep_until(self.runner.last_event, (self.runner, held))


def _list_current_events(events: Sequence[UREvent]) -> Sequence[CLObject]:
    """Return what events are now."""
    return [event.get_current() for event in events] if events else ()


def _list_handles(things: Sequence[CLObject]) -> Sequence[int]:
    return [thing.cl for thing in things] if things else ()


class _Copy:
    """A copy of a kernel, released when it is dropped."""

    def __init__(self, cl: int, context: URContext) -> None:
        self._cl, self._table = cl, context.table

    def __del__(self) -> None:
        if "_table" in self.__dict__:  # it was made to its end
            self._table.clReleaseKernel(self._cl)


def _read_choice(context: int) -> Choice:
    """Return the engines that FAIRLEAD_COMMAND_BUFFER names. Raises URError for others."""
    try:
        return choose(context)
    except UnknownEngineError as error:
        raise failure("INVALID_VALUE", str(error)) from error


#: What released command-buffers hold while an enqueue of them runs.
_unfinished: Final = Lifetimes()
adapter.after_queues.append(_unfinished.release_finished)


declare_command_buffers(adapter, URCommandBuffer)
