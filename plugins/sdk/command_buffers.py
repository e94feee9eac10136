"""What command-buffers of all adapters share: sync-points, wait lists, checks, entry points.

A command-buffer has commands with numbers from 0. A sync-point is the number of its command plus
one; 0 means nothing. An adapter derives its classes from those here, and declares them:

    @adapter.kind
    class CuCommandBuffer(CommandBufferObject): ...

    appends = AppendFamily(adapter, CuAppend)
    declare_command_buffers(adapter, CuCommandBuffer)

(Unified Runtime: EXP-COMMAND-BUFFER 1.12.)
"""

from __future__ import annotations

import ctypes
import weakref
from collections.abc import Callable, Sequence
from typing import Any, Final

from ...loader.base.forks import make_lock
from ...loader.ur.abi import UR
from ._native import ffi, lib
from .adapter import Adapter
from .answers import make_answers
from .conversions import failure
from .families import AppendFamily
from .objects import Object

_BAD_COMMAND: Final = "INVALID_COMMAND_BUFFER_COMMAND_HANDLE_EXP"
_DESCRIPTOR: Final = UR["UR_STRUCTURE_TYPE_EXP_COMMAND_BUFFER_DESC"]
#: void (*)(void *data), the function of urCommandBufferAppendNativeCommandExp.
_NativeCommand: Final = ctypes.CFUNCTYPE(None, ctypes.c_void_p)
_Descriptor: Final = UR.get_struct("ur_exp_command_buffer_desc_t")
_LASTING: Final = ffi.new("int64_t[]", [UR["UR_EXP_COMMAND_BUFFER_INFO_DESCRIPTOR"]])
lib.fl_keep_answers(lib.FL_OF_COMMAND_BUFFER, _LASTING, len(_LASTING))


class RecordingLock:
    """The lock of a command-buffer: that of Python's threads, and what keeps C away.

    Args:
        struct: what C knows of the command-buffer (native/launches.cdef.h).
        update: a method of the command-buffer that takes over what C has appended. It is called
            with the lock.
    """

    __slots__ = ("_depth", "_lock", "_struct", "_threads", "_update")

    def __init__(self, struct: Any, update: Callable[[], None] | None = None) -> None:
        self._struct, self._lock = struct, ffi.addressof(struct, "lock")
        self._threads, self._depth = make_lock(), 0
        self._update = weakref.WeakMethod(update) if update is not None else lambda: None

    def __enter__(self) -> None:
        self._threads.acquire()
        self._depth += 1
        if self._depth == 1:
            lib.fl_enter_recording(self._lock)
            update = self._update()
            try:
                if update is not None:
                    update()
            except BaseException:
                self.__exit__()
                raise

    def __exit__(self, *_: object) -> None:
        self._depth -= 1
        if not self._depth:
            lib.fl_leave_recording(self._lock)
        self._threads.release()


class CommandBufferObject(Object):
    """The base of command-buffers.

    Args:
        updatable: whether its commands can be updated.
        in_order: whether each command comes after the one before it.
        profiling: whether its commands have times.

    Attributes:
        last_queue: leads to the queue of the last enqueue that Python made; None before the first.
        recording: the lock that a thread has while it appends or finalizes.
        signals: the events of commands, by the number of the command.
        waits: what stands for the events of elsewhere that a command waits for, by its number.
        inner_waits: the commands of this command-buffer that a command waits for by an event.
    """

    type = "ur_exp_command_buffer_handle_t"

    def __init__(
        self, context: Any, device: Any, updatable: bool, in_order: bool, profiling: bool
    ) -> None:
        self.context, self.device = context, device
        self.updatable, self.in_order, self.profiling = updatable, in_order, profiling
        self.signals: dict[int, Any] = {}
        self.waits: dict[int, list[Any]] = {}
        self.inner_waits: dict[int, list[int]] = {}
        self.recording: Any = make_lock()
        self._answers = make_answers()
        self.last_queue: Callable[[], Any] | None = None

    def describe_to_c(self) -> tuple[int, int, int, int]:
        return 0, 0, 0, int(ffi.cast("uintptr_t", self._answers))

    # what an adapter knows

    @property
    def length(self) -> int:
        """Return the number of commands."""
        raise NotImplementedError

    @property
    def is_finalized(self) -> bool:
        """Return whether the command-buffer can be enqueued."""
        raise NotImplementedError

    def finalize(self) -> None:
        """Complete the command-buffer: nothing can be appended any more, and it can be enqueued."""
        raise NotImplementedError

    def enqueue(self, queue: Any, waits: Sequence[Any], wanted: bool) -> Any:
        """Enqueue the command-buffer, and return the event of its end, None if it is not wanted.

        Args:
            wanted: whether an event is made.

        Raises:
            URError: INVALID_OPERATION, INVALID_CONTEXT, INVALID_DEVICE, or an event that cannot be
                waited for.
            FairleadError: what the driver answers.
        """
        raise NotImplementedError

    def explain(self, queue: Any) -> str:
        """Return how an enqueue on a queue runs, and why.

        Args:
            queue: the queue, or None if it is not known.
        """
        raise NotImplementedError

    # checks

    def check_open(self) -> None:
        """Raise URError (INVALID_OPERATION) if it is finalized."""
        if self.is_finalized:
            raise failure("INVALID_OPERATION", "the command-buffer is finalized")

    def check_updatable(self) -> None:
        """Raise URError (INVALID_OPERATION) if it is not finalized or not updatable."""
        if not (self.is_finalized and self.updatable):
            raise failure(
                "INVALID_OPERATION",
                "only a finalized command-buffer that was made updatable can be updated",
            )

    def check_queue(self, queue: Any) -> None:
        """Raise URError unless it can be enqueued on a queue (see `enqueue`)."""
        if not self.is_finalized:
            raise failure("INVALID_OPERATION", "the command-buffer is not finalized")
        self.context.check_same("the queue", queue)
        if queue.device is not self.device:
            raise failure("INVALID_DEVICE", "the queue is of another device")

    # order

    def find_predecessors(self, sync_points: Sequence[int]) -> tuple[int, ...]:
        """Return the commands that the next one comes after.

        Raises:
            URError: INVALID_COMMAND_BUFFER_SYNC_POINT_EXP for a sync-point that does not exist.
        """
        count = self.length
        if self.in_order:
            return (count - 1,) if count else ()
        if not sync_points:
            return ()
        if len(sync_points) == 1 and 0 < sync_points[0] <= count:
            return (sync_points[0] - 1,)
        if not 0 < min(sync_points) <= max(sync_points) <= count:
            raise failure("INVALID_COMMAND_BUFFER_SYNC_POINT_EXP")
        return tuple(dict.fromkeys([point - 1 for point in sync_points]))

    def split_waits(self, events: Sequence[Any]) -> tuple[list[int], list[Any]]:
        """Divide a wait list.

        Returns:
            The commands of this command-buffer whose events it has, and the other events.
        """
        inside: list[int] = []
        outside: list[Any] = []
        for event in events:
            buffer = getattr(event, "buffer", None)  # only events of commands have it
            if buffer is not None and buffer() is self:
                inside.append(event.index)
            else:
                outside.append(event)
        return inside, outside

    def check_waits(self, events: Sequence[Any], inside: Sequence[int], count: int) -> list[Any]:
        """Check the new wait list of a command.

        The events of commands of the same command-buffer are edges, which cannot be changed.

        Args:
            inside: the commands whose events the old list has.
            count: how many other events the old list has.

        Returns:
            The events of the new list that are of elsewhere.

        Raises:
            URError: INVALID_EVENT_WAIT_LIST, INVALID_CONTEXT, UNSUPPORTED_FEATURE.
        """
        new, outside = self.split_waits(events)
        if len(events) != len(inside) + count:
            raise failure(
                "INVALID_EVENT_WAIT_LIST",
                "a command waits for as many events as it was appended with",
            )
        self.context.check_shared("an event of the wait list", *events)
        if sorted(new) != sorted(inside):
            raise failure(
                "UNSUPPORTED_FEATURE",
                "the order of a command-buffer's own commands cannot be updated",
            )
        return outside


class CommandObject(Object):
    """The base of commands that can be updated. One lives as long as its command-buffer."""

    type, counted = "ur_exp_command_buffer_command_handle_t", False

    def __init__(self, buffer: CommandBufferObject, index: int) -> None:
        self._buffer = weakref.ref(buffer)
        self.index = index

    @property
    def buffer(self) -> Any:
        """Return the command's command-buffer. Raises URError if the command-buffer is closed."""
        buffer = self._buffer()
        if buffer is None:
            raise failure(_BAD_COMMAND)
        return buffer

    def find_waits(self) -> tuple[Sequence[int], int]:
        """Return what it waits for by events: commands of its command-buffer, how many others."""
        buffer, index = self.buffer, self.index
        return buffer.inner_waits.get(index, ()), len(buffer.waits.get(index, ()))

    @property
    def is_launch(self) -> bool:
        """Return whether the command launches a kernel."""
        raise NotImplementedError


class AppendCall:
    """One call of an entry point that appends a command. It is checked before anything is appended.

    Args:
        sync_points: what the command comes after.
        event: whether the caller wants an event of the command.
        command: whether the caller wants a handle of the command.

    Attributes:
        after: the commands that it comes after.
        inside: the commands of the same command-buffer whose events it waits for.
        outside: the other events that it waits for.

    Raises:
        URError: INVALID_OPERATION, INVALID_CONTEXT, INVALID_COMMAND_BUFFER_SYNC_POINT_EXP.
    """

    __slots__ = ("after", "buffer", "command", "event", "inside", "outside")

    def __init__(
        self,
        buffer: Any,
        sync_points: Sequence[int],
        events: Sequence[Any],
        event: bool,
        command: bool,
    ) -> None:
        buffer.check_open()
        if command and not buffer.updatable:
            raise failure(
                "INVALID_OPERATION",
                "the command-buffer is not updatable, so that it has no command handles",
            )
        self.buffer, self.event, self.command = buffer, event, command
        self.after = buffer.find_predecessors(sync_points)
        self.inside: list[int] = []
        self.outside: list[Any] = []
        if events:
            buffer.context.check_shared("an event of the wait list", *events)
            self.inside, self.outside = buffer.split_waits(events)
            if self.inside and not buffer.in_order:
                self.after = tuple(dict.fromkeys((*self.after, *self.inside)))

    @property
    def context(self) -> Any:
        """Return the command-buffer's context."""
        return self.buffer.context

    def check_kernels(self, kernel: Any, others: Sequence[Any]) -> None:
        """Check the kernel of a launch and its alternatives.

        Raises:
            URError: INVALID_CONTEXT, or INVALID_VALUE for a kernel that is its own alternative.
        """
        context = self.buffer.context
        if others or kernel.context is not context:  # most launches have one kernel
            context.check_same("a kernel", kernel, *others)
        if kernel in others:
            raise failure(
                "INVALID_VALUE", "the alternatives to a kernel do not contain the kernel itself"
            )


# entry points


def declare_command_buffers(adapter: Adapter, kind: type[CommandBufferObject]) -> None:
    """Declare creation, finalize, enqueue and the query of an adapter's command-buffers."""

    def create(hContext: Any, hDevice: Any, pCommandBufferDesc: Any) -> CommandBufferObject:
        desc = pCommandBufferDesc
        flags = bool(desc.isUpdatable), bool(desc.isInOrder), bool(desc.enableProfiling)
        return kind(hContext, hDevice, *flags)

    def finalize(hCommandBuffer: CommandBufferObject) -> None:
        with hCommandBuffer.recording:
            hCommandBuffer.finalize()

    def enqueue(hQueue: Any, hCommandBuffer: Any, phEventWaitList: Any, phEvent: bool) -> Any:
        event = hCommandBuffer.enqueue(hQueue, phEventWaitList, phEvent)
        if hCommandBuffer.last_queue is None:
            adapter.log("info", f"a command-buffer of {hCommandBuffer.explain(hQueue)}")
        hCommandBuffer.last_queue = weakref.ref(hQueue)
        return event

    adapter.declare(
        urCommandBufferCreateExp=create,
        urCommandBufferFinalizeExp=finalize,
        urEnqueueCommandBufferExp=enqueue,
    )
    adapter.info(
        "urCommandBufferGetInfoExp",
        {
            "UR_EXP_COMMAND_BUFFER_INFO_REFERENCE_COUNT": lambda buffer: buffer.references,
            "UR_EXP_COMMAND_BUFFER_INFO_DESCRIPTOR": _describe,
            "UR_EXP_COMMAND_BUFFER_INFO_EXPLANATION_FAIRLEAD": _explain,
        },
    )
    adapter.in_c.add("urCommandBufferGetInfoExp")  # runtimes ask before every append


def declare_launch_appends(
    appends: AppendFamily, append_as_set: Callable[..., Any], append_with: Callable[..., Any]
) -> None:
    """Declare the appends of launches.

    Args:
        append_as_set: appends a launch with the arguments that are set on the kernel. It gets the
            call, a kernel, the dimensions, and three sizes: the global work offset or None, the
            global work size, the local work size or None. It also gets the kernels that an update
            may choose instead.
        append_with: gets arguments, too: ur_exp_kernel_arg_properties_t, and how many there are.
    """
    sizes = "workDim", "pGlobalWorkOffset", "pGlobalWorkSize", "pLocalWorkSize"
    parameters = "hKernel", *sizes, "phKernelAlternatives"
    appends.declare("urCommandBufferAppendKernelLaunchExp", append_as_set, *parameters)
    name = "urCommandBufferAppendKernelLaunchWithArgsExp"
    appends.declare(name, append_with, *parameters, "pArgs", "numArgs")


def declare_native_appends(
    appends: AppendFamily,
    append_native: Callable[[Any, Any, Callable[[], None]], Any],
    *,
    has_children: bool = False,
) -> None:
    """Declare the append of what a function of the program adds to the driver's command-buffer.

    Args:
        appends: the family of the adapter's entry points.
        append_native: gets the call, a child or None, and what calls the function. It returns what
            every append returns.
        has_children: whether command-buffers have children.
    """

    def append(
        hCommandBuffer: CommandBufferObject,
        pfnNativeCommand: int,
        pData: int,
        hChildCommandBuffer: CommandBufferObject | None,
        pSyncPointWaitList: list[int],
    ) -> int:
        if hChildCommandBuffer is not None:
            if not has_children:
                raise failure(
                    "UNSUPPORTED_FEATURE",
                    "a command-buffer has no children"
                    " (UR_DEVICE_INFO_COMMAND_BUFFER_SUBGRAPH_SUPPORT_EXP)",
                )
            hChildCommandBuffer.check_open()
        with hCommandBuffer.recording:
            call = appends.make(hCommandBuffer, pSyncPointWaitList, (), False, False)
            function = _NativeCommand(pfnNativeCommand)
            return append_native(call, hChildCommandBuffer, lambda: function(pData))[0]

    appends.adapter.declare(urCommandBufferAppendNativeCommandExp=append)


def _describe(buffer: CommandBufferObject) -> bytes:
    flags = buffer.updatable, buffer.in_order, buffer.profiling
    return bytes(_Descriptor(_DESCRIPTOR, None, *flags))


def _explain(buffer: CommandBufferObject) -> str:
    if not buffer.is_finalized:
        return f"{buffer.length} commands: it is not finalized"
    return buffer.explain(buffer.last_queue and buffer.last_queue())
