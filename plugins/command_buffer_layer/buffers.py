"""Command-buffers and their commands, as the layer knows them, and how one is enqueued.

A command comes after the sync-points that it names, and after the last barrier of its queue. On an
in-order queue it also comes after the command before it. (cl_khr_command_buffer, "Command
Synchronization")
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from typing import Any, Final

from ...icd._native import ffi, lib
from ...icd.abi import OPENCL
from ...icd.calls import (
    call,
    enqueue_barrier,
    enqueue_place,
    get_address,
    is_in_order,
    query_device,
    query_properties,
)
from ...icd.command_buffer.command_buffer import CommandBuffer
from ...icd.command_buffer.commands import CommandArray, CommandList
from ...icd.command_buffer.edits import has_all_arguments
from ...icd.command_buffer.lifetimes import Lifetimes
from ...icd.errors import check, error
from ...loader.base.forks import make_lock
from .entries import ask, check_bits, make_error, pair_properties, read_numbers, write
from .facts import DeviceFacts, KernelFacts


class LayerQueueOrder:
    """What has been recorded for one queue, as far as later commands come after it."""

    def __init__(self, in_order: bool) -> None:
        self._in_order = in_order
        self._own: set[int] = set()
        self._last: int | None = None  # of an in-order queue, or the last barrier
        self._open: list[int] = []  # since that barrier

    def find_predecessors(self, sync_points: Sequence[int], barrier: bool) -> list[int]:
        """Return what the next command comes directly after.

        Args:
            sync_points: the numbers of the commands that it waits for.
        """
        last = [] if self._last is None else [self._last]
        if self._in_order:  # the last one comes after all others of this queue
            return [*last, *(one for one in dict.fromkeys(sync_points) if one not in self._own)]
        rest = self._open if barrier and not sync_points else sync_points
        return list(dict.fromkeys([*last, *rest]))

    def add(self, number: int, barrier: bool, waits: bool) -> None:
        """Note a command that was recorded."""
        if self._in_order:
            self._own.add(number)
        if self._in_order or barrier:
            self._last = number
        if not self._in_order:
            self._open = [] if barrier and not waits else [*self._open, number]


_FREE, _BUFFER, _COMMAND = range(3)  # kinds of handles: native/layer.h
_FLAGS: Final = "CL_COMMAND_BUFFER_FLAGS_KHR"
_ASSERTS: Final = "CL_COMMAND_BUFFER_MUTABLE_DISPATCH_ASSERTS_KHR"
_SIMULTANEOUS: Final = OPENCL["CL_COMMAND_BUFFER_SIMULTANEOUS_USE_KHR"]
_MUTABLE: Final = OPENCL["CL_COMMAND_BUFFER_MUTABLE_KHR"]
_DEVICE_SIDE: Final = OPENCL["CL_COMMAND_BUFFER_DEVICE_SIDE_SYNC_KHR"]
#: CL_MUTABLE_DISPATCH_ASSERT_NO_ADDITIONAL_WORK_GROUPS_KHR.
ALL_ASSERTS: Final = 1
_PROFILING: Final = OPENCL["CL_QUEUE_PROFILING_ENABLE"]

_state: Any = None
_buffers: Final[dict[int, LayerCommandBuffer]] = {}
_commands: Final[dict[int, LayerCommand]] = {}
#: What is kept until the device is done with it.
unfinished: Final = Lifetimes()


def bind(state: Any) -> None:
    """Use a layer's functions (start.LayerState)."""
    global _state
    _state = state


def get_layer() -> Any:
    """The layer's functions."""
    return _state


class LayerQueue:
    """A queue that a command-buffer was made with, and what it says of itself.

    Raises:
        OpenCLError: CL_INVALID_COMMAND_QUEUE.
    """

    def __init__(self, handle: int | None) -> None:
        if not handle:
            raise make_error("CL_INVALID_COMMAND_QUEUE", "a command-queue is NULL")
        self.handle = handle
        self.context = ask(
            *(handle, "clGetCommandQueueInfo", "CL_QUEUE_CONTEXT", "uintptr_t"),
            "CL_INVALID_COMMAND_QUEUE",
        )
        self.device, self.properties = query_device(handle), query_properties(handle)
        self.in_order = is_in_order(self.properties)


class LayerCommand:
    """A recorded command.

    Attributes:
        number: its place in the array.
        type: its name after CL_COMMAND_, such as "NDRANGE_KERNEL".
        properties: those it was recorded with, or None.
        kernel: the program's kernel, 0 if it is not a launch.
        fields: what of a launch can be updated.
        asserts: what updates promise to keep.
        groups: the work-groups that it was recorded with, None if the driver chooses their size.
        handle: what the program knows it by, 0 if it did not ask.
    """

    def __init__(
        self,
        buffer: LayerCommandBuffer,
        number: int,
        type_name: str,
        queue: int,
        properties: tuple[int, ...] | None,
    ) -> None:
        self.buffer, self.number, self.type = buffer, number, type_name
        self.queue, self.properties = queue, properties
        self.kernel = self.fields = self.asserts = self.handle = 0
        self.groups: int | None = None

    @property
    def native(self) -> Any:
        """Its `fl_command` in the array."""
        return self.buffer.commands.array[self.number]

    def give_handle(self, where: int | None) -> None:
        """Write the command's handle to where the program wants it. Raises MemoryError."""
        if where:
            self.handle = _make_handle(_COMMAND, self.buffer.queues[0].handle)
            _commands[self.handle] = self
            write(where, "uintptr_t", self.handle)


class LayerCommandBuffer:
    """A command-buffer.

    Args:
        queues: those that commands may be recorded for.
        properties: those it was made with, or None.

    Attributes:
        commands: the array that engines run.
        recorded: what else is known of each command.
        orders: what commands come after, by the number of their queue.
        copies: our copies of kernels, by what they were made from (launches.py).
        deferred: launches that lacked arguments when they were last looked at.
        runner: what runs it, once it is finalized.
        lock: held by whoever records, enqueues or changes it.

    Raises:
        OpenCLError: what clCreateCommandBufferKHR answers.
    """

    def __init__(self, queues: Sequence[LayerQueue], properties: tuple[int, ...] | None) -> None:
        given = pair_properties(properties, (_FLAGS, _ASSERTS))
        self.flags, self.asserts = given.get(_FLAGS, 0), given.get(_ASSERTS, 0)
        check_bits(self.flags, _SIMULTANEOUS | _MUTABLE | _DEVICE_SIDE, "CL_COMMAND_BUFFER_FLAGS")
        check_bits(self.asserts, ALL_ASSERTS, "the asserts")
        if any(queue.context != queues[0].context for queue in queues):
            raise make_error("CL_INVALID_CONTEXT", "the queues are of several contexts")
        self.devices = list(dict.fromkeys(queue.device for queue in queues))
        if self.flags & _DEVICE_SIDE and len(self.devices) > 1:
            raise make_error(
                "CL_INCOMPATIBLE_COMMAND_QUEUE_KHR",
                "the devices of the queues do not synchronize without the host",
            )
        self.queues, self.properties = tuple(queues), properties
        self.context, self.mutable = queues[0].context, bool(self.flags & _MUTABLE)
        self.lock = make_lock()
        self.commands = CommandArray()
        self.recorded: list[LayerCommand] = []
        self.orders = [LayerQueueOrder(queue.in_order) for queue in queues]
        self.copies: dict[Any, Any] = {}
        self.deferred: list[LayerCommand] = []
        self.runner: CommandBuffer | None = None
        self._held: dict[tuple[str, int], HeldObject] = {}
        self._devices: dict[int, DeviceFacts] = {}
        self._kernels: dict[tuple[int, int], KernelFacts] = {}
        self._route: Any = None
        self._profiles = any(queue.properties & _PROFILING for queue in queues)
        for queue in queues:
            self.hold("CommandQueue", queue.handle)
        self.handle = _make_handle(_BUFFER, queues[0].handle)
        _buffers[self.handle] = self

    def hold(self, kind: str, handle: int) -> None:
        """Keep an object of the driver, such as a "MemObject", as long as this lives."""
        if (kind, handle) not in self._held:
            check(call(handle, f"clRetain{kind}"), f"clRetain{kind}")
            self._held[kind, handle] = HeldObject(kind, handle)

    def get_device(self, handle: int) -> DeviceFacts:
        """What is known of a device."""
        if handle not in self._devices:
            self._devices[handle] = DeviceFacts(handle)
        return self._devices[handle]

    def get_kernel(self, handle: int | None, device: int) -> KernelFacts:
        """What is known of a kernel, which this keeps, for a device.

        Raises:
            OpenCLError: CL_INVALID_KERNEL, CL_INVALID_CONTEXT, CL_INVALID_PROGRAM_EXECUTABLE.
        """
        if not handle:
            raise make_error("CL_INVALID_KERNEL", "the kernel is NULL")
        found = self._kernels.get((handle, device))
        if found is None:
            found = KernelFacts(handle, device)
            if found.context != self.context:
                raise make_error("CL_INVALID_CONTEXT", "the kernel is of another context")
            if not found.is_built:
                raise make_error(
                    "CL_INVALID_PROGRAM_EXECUTABLE", "the program is not built for the device"
                )
            self.hold("Kernel", handle)
            self._kernels[handle, device] = found
        return found

    def check_recording(self) -> None:
        """Raise OpenCLError (CL_INVALID_OPERATION) if it is finalized."""
        if self.runner is not None:
            raise make_error("CL_INVALID_OPERATION", "the command-buffer is finalized")

    @property
    def held(self) -> list[tuple[str, int]]:
        """The objects that the command-buffer keeps, with their kinds."""
        return list(self._held)

    def finalize(self) -> None:
        """Complete the command-buffer. Nothing can be recorded any more."""
        self.check_recording()
        self.runner = CommandBuffer(self._list())

    def _list(self) -> CommandList:
        order = self.commands.order
        return CommandList(
            self.context,
            self.devices,
            self.commands.array,
            order,
            self.commands,
            updatable=self.mutable,
            first=order.first if self._profiles else None,
        )

    @property
    def is_executable(self) -> bool:
        """Whether the command-buffer is finalized, and each launch has all of its arguments."""
        self.deferred = [one for one in self.deferred if not has_all_arguments(one.native)]
        return self.runner is not None and not self.deferred

    def run_anew(self) -> None:
        """Let everything be built anew, because kernels are others now. Held by its lock."""
        assert self.runner is not None
        self._publish(None)
        before, self.runner = self.runner, CommandBuffer(self._list(), after=self.runner)
        before.close()

    def enqueue(
        self, queues: Sequence[LayerQueue], waits: Sequence[int], wanted: bool
    ) -> tuple[int, int]:
        """Enqueue the command-buffer.

        Args:
            queues: the queues, or none for those that it was made with.
            wanted: whether to return the event of its end.

        Returns:
            The event of its end and that of its first command, references; 0 for none.

        Raises:
            OpenCLError: what clEnqueueCommandBufferKHR answers.
        """
        if not self.is_executable:
            raise make_error(
                "CL_INVALID_OPERATION",
                "a launch lacks arguments: set them by clUpdateMutableCommandsKHR"
                if self.deferred
                else "the command-buffer is not finalized",
            )
        for queue, own in zip(queues, self.queues, strict=False):
            self._check_substitute(queue, own)
        # Only with profiling does the runner give the event of the first command.
        if not self._profiles and any(queue.properties & _PROFILING for queue in queues):
            self._profiles = True
            self.run_anew()
        runner = self.runner
        assert runner is not None
        first, *others = {queue.handle: queue for queue in queues or self.queues}.values()
        with ExitStack() as releases:
            before = [self._mark(other, (), releases) for other in others]
            code, end, failed, exported = runner.enqueue(
                first.handle, 1, [*waits, *before], wanted=wanted or bool(others)
            )
            if code:
                detail = f"Command {failed} could not be enqueued." if failed >= 0 else ""
                raise error(code, "clEnqueueCommandBufferKHR", detail)
            begin = exported[-1] if exported else 0
            with ExitStack() as unwanted:
                for event in filter(None, (end, begin)):
                    unwanted.callback(call, event, "clReleaseEvent")
                for other in others:
                    self._mark(other, [end], releases)
                if wanted:
                    unwanted.pop_all()
        is_default = len(self.queues) == 1 and first.handle == self.queues[0].handle
        self._publish(runner.again if is_default else None)
        return (end, begin) if wanted else (0, 0)

    def _check_substitute(self, queue: LayerQueue, own: LayerQueue) -> None:
        """Check a queue that is to run the commands of another one. Raises OpenCLError."""
        if queue.context != own.context:
            raise make_error("CL_INVALID_CONTEXT", "a queue is of another context")
        if queue.device != own.device:
            raise make_error(
                "CL_INVALID_DEVICE",
                "a queue is of another device than the one at its place when the command-buffer "
                "was made: clRemapCommandBufferKHR makes a copy for other devices",
            )
        if queue.properties & ~self.get_device(queue.device).queue_properties:
            raise make_error(
                "CL_INCOMPATIBLE_COMMAND_QUEUE_KHR",
                "a queue has properties that "
                "CL_DEVICE_COMMAND_BUFFER_SUPPORTED_QUEUE_PROPERTIES_KHR does not have",
            )

    def _mark(self, queue: LayerQueue, waits: Sequence[int], releases: ExitStack) -> int:
        """Enqueue a barrier or marker, so that later commands of another queue come after this."""
        assert self.runner is not None
        enqueue = enqueue_barrier if queue.in_order else enqueue_place
        made = enqueue(queue.handle, waits)
        if self.runner.native.holds_events:  # it may fail, with an event that the program waits for
            releases.callback(lib.fl_hold_event, ffi.cast("void *", made))
        else:
            releases.callback(call, made, "clReleaseEvent")
        return made

    def _publish(self, route: Any) -> None:
        """Let C enqueue by a route from now on, or not (None)."""
        if route is not self._route:
            _state.set_route(self.handle, get_address(route.native) if route is not None else None)
            self._route = route

    def explain(self) -> str:
        """Return how an enqueue on its own queue runs, and why."""
        if not self.is_executable:
            return "not executable"
        assert self.runner is not None
        return self.runner.explain(self.queues[0].handle)

    def close(self) -> None:
        """Give the command-buffer up. What was enqueued runs to its end, with all that it needs."""
        self._publish(None)
        for command in self.recorded:
            if command.handle:
                del _commands[command.handle]
                _state.free_handle(command.handle)
        del _buffers[self.handle]
        _state.free_handle(self.handle)
        held = list(self._held.values())
        copies = [HeldObject("Kernel", get_address(copy)) for copy in self.copies.values()]
        event = self.runner.last_event if self.runner else 0
        unfinished.keep_until(event, (self.runner, self.commands, copies, held))
        self._held, self.copies = {}, {}


class HeldObject:
    """A reference to an object of the driver, released with this.

    Args:
        kind: such as "MemObject".
        handle: the object. The reference is taken over.
    """

    def __init__(self, kind: str, handle: int) -> None:
        self._kind, self._handle = kind, handle

    def __del__(self) -> None:
        if call is not None and hasattr(self, "_kind"):  # Python is not taking modules down
            call(self._handle, f"clRelease{self._kind}")


def _make_handle(kind: int, like: int) -> int:
    made = _state.new_handle(kind, like)
    if not made:
        raise MemoryError("no memory for a handle")
    return made


def get_buffer(handle: int | None) -> LayerCommandBuffer:
    """Return a command-buffer. Raises OpenCLError (CL_INVALID_COMMAND_BUFFER_KHR)."""
    found = _buffers.get(handle or 0)
    if found is None:
        raise make_error(
            "CL_INVALID_COMMAND_BUFFER_KHR", f"{handle or 0:#x} is not a command-buffer"
        )
    return found


def get_command(handle: int | None) -> LayerCommand:
    """Return a command. Raises OpenCLError (CL_INVALID_MUTABLE_COMMAND_KHR)."""
    found = _commands.get(handle or 0)
    if found is None:
        raise make_error("CL_INVALID_MUTABLE_COMMAND_KHR", f"{handle or 0:#x} is not a command")
    return found


def close_all() -> None:
    """Give up all command-buffers, at the end."""
    for buffer in list(_buffers.values()):
        buffer.close()


def read_queues(count: int, where: int | None) -> list[LayerQueue]:
    """Read a list of queues of the program. Raises OpenCLError (CL_INVALID_COMMAND_QUEUE)."""
    return [LayerQueue(handle) for handle in read_numbers(where, "uintptr_t", count)]
