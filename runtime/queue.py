"""Queues: command groups are submitted to them. While a graph records a queue, its commands go to
the graph.

    queue = Queue(devices()[0])
    event = queue.submit(lambda h: h.parallel_for(1024, kernel, memory, numpy.int32(3)))
    event.wait()

The command (commands.py) says what a submission does. The queue, its events and its accessors
(scheduler.py, buffer.py) say in which order it runs. A queue that is being recorded gives the
command to its `recorder` instead.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterable
from threading import RLock
from typing import TYPE_CHECKING, Any, Final, Protocol, cast

from ..loader.base.forks import call_in_child
from ..loader.ur.abi import UR
from .checks import check_executable, check_group, expect
from .commands import Barrier, Command, HostTask
from .context import Context, get_default_context, is_empty, list_contexts
from .errors import make_invalid_error
from .event import Event, Unfinished, raise_any, wait_for_each
from .handler import Handler
from .handles import URObject, make_struct
from .launches import NDRange
from .memory import lock as buffers
from .platform import Device, devices
from .queue_order import QueueOrder
from .scheduler import check_no_deadlock

if TYPE_CHECKING:
    from collections.abc import Sequence


class Recorder(Protocol):
    """Takes the commands of a queue that is being recorded (graph/recording.py)."""

    graph: Any

    def make_handler(self, queue: Queue) -> Handler: ...
    def record(self, queue: Queue, handler: Handler) -> Event: ...


def find_recorder(queue: Queue, handler: Handler) -> Recorder | None:
    """Return the recorder of an event that the command depends on.

    It begins to record the queue, too. (SYCL-Graph, transitive queue recording)

    Raises:
        SYCLError: invalid, for an event of a graph that records no queue.
    """
    for event in handler.dependencies:
        if event.node is not None:
            recorder = event.node.recorder
            if recorder is not None:
                recorder.join(queue)
                return queue.recorder
            raise make_invalid_error(
                "an event of a graph cannot be depended on outside of the graph",
                routine="submit",
                remedy="depend on the event of the submission of the executable graph",
            )
    return None


_OUT_OF_ORDER: Final = UR["UR_QUEUE_FLAG_OUT_OF_ORDER_EXEC_MODE_ENABLE"]
_PROFILING: Final = UR["UR_QUEUE_FLAG_PROFILING_ENABLE"]


class Queue(URObject):
    """A queue to a device.

    Args:
        of: a device, or a context; by default the first device that the environment selects.
        device: of the context; by default its first one.
        in_order: whether each command comes after the one before it. By default only events and
            accessors make an order.
        profiling: whether events can be asked for times.
        handle: the adapter's queue, if it exists already. The reference is taken over.
        keep: what the handle was made of.

    Raises:
        SYCLError: invalid.
    """

    _release = "urQueueRelease"

    def __init__(
        self,
        of: Device | Context | None = None,
        device: Device | None = None,
        *,
        in_order: bool = False,
        profiling: bool = False,
        handle: int = 0,
        keep: Any = None,
    ) -> None:
        if of is not None:
            expect(
                of,
                (Device, Context),
                "Queue",
                "Queue(devices()[0]); Queue() takes what ONEAPI_DEVICE_SELECTOR selects",
            )
        if device is not None:
            expect(device, Device, "Queue", "Queue(context, device)")
        if isinstance(of, Context):
            self.context, self.device = of, device or of.devices[0]
        else:
            self.device = device or of or devices()[0]
            self.context = get_default_context(self.device)
        if self.device not in self.context:
            raise make_invalid_error(
                "the device is not one of the context's",
                routine="Queue",
                remedy="make a context of this device",
            )
        self.context.adapter.check_open("Queue")
        self.in_order, self.profiling = in_order, profiling
        self._busy = False  # whether something was submitted since `wait`; `__del__` asks
        flags = (0 if in_order else _OUT_OF_ORDER) | (_PROFILING if profiling else 0)
        made = handle or self.context.adapter.obtain(
            "urQueueCreate",
            self.context.handle,
            self.device.handle,
            ctypes.byref(make_struct("ur_queue_properties_t", flags=flags)),
        )
        super().__init__(self.context.adapter, made)
        self.context.add_queue(self)
        self.keep = keep  # what its handle was made of
        self.recorder: Recorder | None = None
        self.lock = RLock()
        self._order: QueueOrder[Event] = QueueOrder()
        #: Host tasks, and what the adapter did not have when it was submitted.
        self._unsettled = Unfinished()

    # submissions

    def submit(self, function: Callable[[Handler], object]) -> Event:
        """Call a command-group function, and submit or record the command that it names. Returns
        the event of its end.

        Raises:
            SYCLError: the command is wrong. What goes wrong while it runs is raised by `wait`.
            BaseException: what the function raises.
        """
        with self.lock:
            recorder = self.recorder
            handler = (
                Handler(self.context, device=self.device)
                if recorder is None
                else recorder.make_handler(self)
            )
            try:
                function(handler)
            except TypeError as error:
                check_group(error, function, "submit")
                raise
            if recorder is None and (recorder := find_recorder(self, handler)) is None:
                return self.run(handler.take_command(), handler.dependencies)
            return recorder.record(self, handler)

    def run(self, command: Command, dependencies: Sequence[Event]) -> Event:
        """Submit a command that is complete. It is never recorded."""
        with self.lock:
            if command.requirements:
                with buffers:
                    return self._run_with_buffers(command, dependencies)
            return self._run(command, dependencies)

    def _run_with_buffers(self, command: Command, dependencies: Sequence[Event]) -> Event:
        before = list(dependencies)
        where = None if isinstance(command, HostTask) else self.context
        for accessor in command.requirements:
            accessor.buffer.prepare(where, accessor.mode)
            before += accessor.buffer.dependencies(accessor.mode)
        event = self._run(command, before)
        for accessor in sorted(command.requirements, key=lambda accessor: accessor.writes):
            accessor.buffer.record_use(where, accessor.mode, event)
        return event

    def _run(self, command: Command, dependencies: Sequence[Event]) -> Event:
        of_all = isinstance(command, Barrier) and not dependencies
        last = self._order.last
        if last is not None and (
            command.beyond_queue
            or last.deferred is not None
            or last.error is not None
            or last.others
        ):
            dependencies = [*dependencies, last]
        if of_all:
            dependencies = [*dependencies, *self._unsettled]
        self._busy = True
        event = command.execute(self, dependencies)
        self._order.follow(event, self.in_order, isinstance(command, Barrier))
        if event.deferred is not None or event.error is not None or event.others:
            self._unsettled.add(event)
        if command.host_memory:
            self.context.keep_until_done(event, command.keep)
        return event

    # shortcuts

    def parallel_for(
        self,
        range: NDRange | Sequence[int] | int,
        kernel: Any,
        *arguments: Any,
        depends_on: Event | Iterable[Any] = (),
    ) -> Event:
        """Launch a kernel. See `Handler.parallel_for`."""
        return self._submit_one(depends_on, "parallel_for", range, kernel, *arguments)

    def memcpy(
        self,
        destination: Any,
        source: Any,
        nbytes: int | None = None,
        *,
        depends_on: Event | Iterable[Any] = (),
    ) -> Event:
        """Copy bytes. See `Handler.memcpy`."""
        return self._submit_one(depends_on, "memcpy", destination, source, nbytes)

    def memset(
        self,
        destination: Any,
        value: int,
        nbytes: int | None = None,
        *,
        depends_on: Event | Iterable[Any] = (),
    ) -> Event:
        """Set bytes. See `Handler.memset`."""
        return self._submit_one(depends_on, "memset", destination, value, nbytes)

    def fill(
        self,
        destination: Any,
        pattern: Any,
        count: int | None = None,
        *,
        depends_on: Event | Iterable[Any] = (),
    ) -> Event:
        """Fill with a pattern. See `Handler.fill`."""
        return self._submit_one(depends_on, "fill", destination, pattern, count)

    def copy(
        self,
        source: Any,
        destination: Any,
        count: int | None = None,
        *,
        depends_on: Event | Iterable[Any] = (),
    ) -> Event:
        """Copy elements. See `Handler.copy`."""
        return self._submit_one(depends_on, "copy", source, destination, count)

    def prefetch(
        self, memory: Any, nbytes: int | None = None, *, depends_on: Event | Iterable[Any] = ()
    ) -> Event:
        """Tell the device that it will need memory. See `Handler.prefetch`."""
        return self._submit_one(depends_on, "prefetch", memory, nbytes)

    def mem_advise(
        self,
        memory: Any,
        advice: str | int = "DEFAULT",
        nbytes: int | None = None,
        *,
        depends_on: Event | Iterable[Any] = (),
    ) -> Event:
        """Tell the device how memory will be used. See `Handler.mem_advise`."""
        return self._submit_one(depends_on, "mem_advise", memory, advice, nbytes)

    def host_task(
        self, function: Callable[[], object], *, depends_on: Event | Iterable[Any] = ()
    ) -> Event:
        """Run a Python function. See `Handler.host_task`."""
        return self._submit_one(depends_on, "host_task", function)

    def barrier(self, events: Event | Iterable[Any] = ()) -> Event:
        """Let later commands of this queue come after these events, or after everything before. See
        `Handler.barrier`."""
        return self._submit_one(events, "barrier")

    def graph(self, executable: Any, *, depends_on: Event | Iterable[Any] = ()) -> Event:
        """Run an executable graph. While the queue is recorded, it becomes a sub-graph.
        (ext_oneapi_graph)"""
        if depends_on or self.recorder is not None:
            return self._submit_one(depends_on, "graph_execution", executable)
        try:
            command = executable.find_executable(self.context)
        except AttributeError:
            check_executable(executable, "graph")
            raise
        return self.run(command, ())

    def add_waits(self, events: Iterable[Event]) -> None:
        """Let `wait` wait for events on other queues too, those of a submission that was refused
        after some of it had begun."""
        with self.lock:
            for event in events:
                self._unsettled.add(event)

    def _submit_one(
        self, depends_on: Event | Iterable[Any], operation: str, *arguments: Any
    ) -> Event:
        def call_handler(handler: Handler) -> None:
            if depends_on != ():
                handler.depends_on(
                    *(depends_on if isinstance(depends_on, Iterable) else (depends_on,))
                )
            getattr(handler, operation)(*arguments)

        return self.submit(call_handler)

    # state

    @property
    def state(self) -> str:
        """ "executing" or "recording" (ext_oneapi_get_state)."""
        return "executing" if self.recorder is None else "recording"

    def get_graph(self) -> Any:
        """Return the graph that it is recording to. Raises SYCLError (invalid) if it is not
        recording. (ext_oneapi_get_graph)"""
        if self.recorder is None:
            raise make_invalid_error(
                "ext_oneapi_get_graph() can only be called on recording queues",
                routine="Queue.get_graph",
                remedy="begin a recording first",
            )
        return self.recorder.graph

    def wait(self) -> None:
        """Wait until everything that was submitted is complete.

        Raises:
            SYCLError: invalid, while it is recording, or if the queue waits for the calling thread:
                for a host accessor that it has open, or the host task that it runs.
            BaseException: the first error of a host task or a command.
        """
        self.adapter.check_open("Queue.wait")
        if self.recorder is not None:
            raise make_invalid_error(
                "wait cannot be called for a queue which is recording to a command graph",
                routine="Queue.wait",
                remedy="end the recording first",
            )
        with self.lock:
            check_no_deadlock(self._unsettled, "Queue.wait")
            unsettled, self._unsettled, self._busy = self._unsettled, Unfinished(), False
        try:
            failed = wait_for_each(unsettled, lambda event: event.wait())
        except KeyboardInterrupt:
            with self.lock:  # everything is still to be waited for
                for other in self._unsettled:
                    unsettled.add(other)
                self._unsettled, self._busy = unsettled, True
            raise
        try:
            self.adapter.wait("urQueueFinish", self.handle, holder=self)
        except KeyboardInterrupt:
            self._busy = True
            raise
        self.context.drop_ended()
        with self.lock:
            last = self._order.last
            if last is not None and last.deferred is None:
                self._order.last = None
        raise_any(unsettled.error or failed)

    def __del__(self) -> None:
        handle = getattr(self, "handle", 0)
        if handle and self._busy and self.adapter.open:
            self.handle = 0
            self.context.release_later(handle)
        else:
            super().__del__()

    @property
    def is_empty(self) -> bool:
        """Whether nothing runs in it that the adapter knows, as far as that is known without a
        wait. (ext_oneapi_empty)"""
        return is_empty(self.adapter, self.handle)

    def native(self) -> int:
        """Return the native queue behind it (OpenCL: cl_command_queue). The reference stays the
        queue's."""
        return self.adapter.obtain("urQueueGetNativeHandle", self.handle, None)

    def __repr__(self) -> str:
        order = ", in order" if self.in_order else ""
        return f"<Queue to {self.device.name}{order}{', recording' if self.recorder else ''}>"


class _Forked:
    """Refuses the commands of a parent's queue in a forked child."""

    graph = None

    def make_handler(self, queue: Queue) -> Handler:
        queue.adapter.check_open("submit")
        raise AssertionError("its adapter is closed in a child")


@call_in_child
def _refuse_all() -> None:
    for context in list_contexts():
        for queue in context.queues():
            queue.recorder = cast("Recorder", _Forked())
