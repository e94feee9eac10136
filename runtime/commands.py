"""Commands: the operation of a command group, given to a queue (`enqueue`) or recorded into a
command-buffer (`append`).

A handler makes a command. Only updates change it afterwards. A command knows nothing of order: the
scheduler knows the events that it comes after, a graph the nodes. `TRANSFERS` is the table of
everything that moves bytes. A host task, a native command, a barrier and a kernel's launch
(launches.py) are classes of their own.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Final

from ..loader.base.forks import make_lock
from ..loader.base.frozen_value import Value
from ..loader.ur.abi import UR, UR_RESULT_SUCCESS
from .accessor import Accessor
from .errors import make_unsupported_error
from .event import Event
from .scheduler import run_on_host, submit

if TYPE_CHECKING:
    from .command_buffer import AdapterCommandBuffer
    from .context import Context
    from .queue import Queue

UNSUPPORTED: Final = UR.codes["UR_RESULT_ERROR_UNSUPPORTED_FEATURE"]
_byref = ctypes.byref
_lock: Final = make_lock()  # of `Accessor.host_tasks`


class Command:
    """The operation of a command group.

    Attributes:
        node_type: the type of a graph's node with this command (SYCL-Graph, node_type).
        title: its name in messages, "USM copy".
        keep: what must live as long as the command.
        segment_maker: makes what runs the command in a graph, instead of the adapter's
            command-buffers (graph/segments.py). None for these.
        in_command_buffers: whether the adapters' command-buffers have such a command. A graph
            enqueues others by themselves.
        beyond_queue: whether some of it runs elsewhere than on its queue, so that events must say
            its order.
        host_memory: whether it uses memory that `keep` alone keeps alive.
    """

    # None of its own: before Python 3.11 two classes made of one with slots cannot be the bases of
    # a third.
    __slots__ = ()

    node_type: str = "empty"
    title: str = "empty command"
    requirements: Sequence[Accessor] = ()
    keep: Any = None
    segment_maker: Any = None
    in_command_buffers: bool = True
    beyond_queue: bool = False
    host_memory: bool = False

    def execute(self, queue: Queue, dependencies: Sequence[Event]) -> Event:
        """Run the command on a queue after events, now or when the adapter can wait for them.

        Returns:
            The event of the command's end.
        """
        if not dependencies:
            return Event(queue.context, self.enqueue(queue, 0, None))
        return submit(
            queue.context, lambda count, waits: self.enqueue(queue, count, waits), dependencies
        )

    def enqueue(self, queue: Queue, count: int, waits: Any) -> int:
        """Give the command to a queue after `count` events. Returns the handle of its own event."""
        raise NotImplementedError

    def append(self, buffer: AdapterCommandBuffer, count: int, sync_points: Any) -> int:
        """Record the command into a command-buffer after `count` sync-points. Returns its own.

        Raises:
            SYCLError: feature_not_supported, if the adapter's command-buffers do not have such
                commands.
        """
        raise NotImplementedError

    def check_appended(self, buffer: AdapterCommandBuffer, code: int, routine: str) -> None:
        """Raise SYCLError unless it was appended."""
        if code == UNSUPPORTED:
            raise make_unsupported_error(
                f"{self.title} command not supported by graph backend",
                routine=routine,
                remedy="use an adapter whose command-buffers have it (`fairlead adapter`), or "
                "another kind of command",
            )
        if code:  # what it says of itself costs more than the call
            buffer.adapter.check(code, routine, f"({self})")

    def copy(self) -> Command:
        """Return a command that later changes of this one do not reach. It is the command itself if
        it never changes."""
        return self

    def is_like(self, other: Command) -> bool:
        """Return whether the command does the same as another one, with the same memory."""
        return False

    @property
    def label(self) -> str:
        """A few words for people, such as "step(64×64)"."""
        return self.title

    def describe(self) -> list[str]:
        """Return lines for people that say what the command was given."""
        return []

    def __repr__(self) -> str:
        return ", ".join([self.title, *self.describe()])


# what is run by the host, or not at all


class HostTask(Command):
    """A Python function that a thread of the scheduler calls."""

    node_type = "host_task"
    title = "host task"
    beyond_queue = True

    def __init__(self, function: Callable[[], object]) -> None:
        self.function = function

    def execute(self, queue: Queue, dependencies: Sequence[Event]) -> Event:
        return run_on_host(queue.context, self.run, dependencies)

    def run(self) -> None:
        """Call the function. Whoever holds this method holds the command, and so its buffers."""
        self._count_run(1)
        try:
            self.function()
        finally:
            self._count_run(-1)

    def _count_run(self, change: int) -> None:
        """Count a run more or less. Two graphs that have the task may run it at the same time."""
        with _lock:
            for accessor in self.requirements:
                accessor.host_tasks += change

    def describe(self) -> list[str]:
        return [f"function: {getattr(self.function, '__qualname__', repr(self.function))}"]


def enqueue_wait(queue: Queue, count: int, waits: Any, routine: str = "urEnqueueEventsWait") -> int:
    """Enqueue a wait for events, and return the handle of its event."""
    event = ctypes.c_void_p()
    code = getattr(queue.adapter.ur, routine)(queue.handle, count, waits, _byref(event))
    queue.adapter.check(code, routine)
    return event.value or 0


class Empty(Command):
    """No operation. The command is there for its dependencies."""

    def enqueue(self, queue: Queue, count: int, waits: Any) -> int:
        return enqueue_wait(queue, count, waits)


class Barrier(Command):
    """Later commands of the queue come after what it waits for: some events, or everything before
    it in the queue."""

    node_type = "ext_oneapi_barrier"
    title = "barrier"

    def enqueue(self, queue: Queue, count: int, waits: Any) -> int:
        return enqueue_wait(queue, count, waits, "urEnqueueEventsWaitWithBarrier")


class NativeCommand(Command):
    """A function that gives commands to the native queue, or records them into the native
    command-buffer.

    It is called once, with an `InteropHandle`, while the command is enqueued or appended.
    """

    node_type = "native_command"
    title = "native command"

    def __init__(self, function: Callable[[InteropHandle], object]) -> None:
        self.function = function

    def enqueue(self, queue: Queue, count: int, waits: Any) -> int:
        event = ctypes.c_void_p()
        call = _Call(self.function, InteropHandle(queue.context, queue=queue))
        code = queue.adapter.ur.urEnqueueNativeCommandExp(
            queue.handle,
            ctypes.cast(call.of_queue, ctypes.c_void_p),
            None,
            0,
            None,
            None,
            count,
            waits,
            _byref(event),
        )
        call.check()
        queue.adapter.check(code, "urEnqueueNativeCommandExp", f"({self})")
        return event.value or 0

    def append(self, buffer: AdapterCommandBuffer, count: int, sync_points: Any) -> int:
        point = ctypes.c_uint32()
        call = _Call(self.function, InteropHandle(buffer.context, buffer=buffer))
        code = buffer.adapter.ur.urCommandBufferAppendNativeCommandExp(
            buffer.handle,
            ctypes.cast(call.of_buffer, ctypes.c_void_p),
            None,
            None,
            count,
            sync_points,
            _byref(point),
        )
        call.check()
        self.check_appended(buffer, code, "urCommandBufferAppendNativeCommandExp")
        return point.value


class InteropHandle(Value):
    """What a native command may use: the native handles of a queue or a command-buffer, and of
    memory."""

    context: Context
    queue: Queue | None = None
    buffer: AdapterCommandBuffer | None = None

    def native_queue(self) -> int:
        """Return the native queue (OpenCL: cl_command_queue), 0 while a command-buffer is
        recorded."""
        return self.queue.native() if self.queue is not None else 0

    def native_command_buffer(self) -> int:
        """Return the native command-buffer (OpenCL: cl_command_buffer_khr), 0 while a queue is
        given commands."""
        return self.buffer.native() if self.buffer is not None else 0

    def native_memory(self, accessor: Accessor) -> int:
        """Return the native memory object of an accessor's buffer (OpenCL: cl_mem)."""
        handle = accessor.buffer.memory(self.context)
        return self.context.adapter.obtain(
            "urMemGetNativeHandle", handle, self.context.devices[0].handle
        )


class _Call:
    """A Python function as the callback of a native command. `check` raises what it raised."""

    def __init__(self, function: Callable[[InteropHandle], object], interop: InteropHandle) -> None:
        self._function, self._interop = function, interop
        self._error: BaseException | None = None
        # void (ur_queue_handle_t, void *data), of urEnqueueNativeCommandExp
        self.of_queue = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p)(self._run)
        # void (void *data), of urCommandBufferAppendNativeCommandExp; the result is ignored
        self.of_buffer = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p)(self._run)

    def _run(self, *_: Any) -> int:
        try:
            self._function(self._interop)
        except BaseException as error:  # it must not cross the C function that called
            self._error = error
        return UR_RESULT_SUCCESS

    def check(self) -> None:
        if self._error is not None:
            raise self._error
