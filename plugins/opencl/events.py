"""Events of the OpenCL adapter: a cl_event each, with the queue and the type of the command.

Execution states have the same numbers in both interfaces (UR_EVENT_STATUS_COMPLETE is CL_COMPLETE).
"""

from __future__ import annotations

import ctypes
import itertools
import threading
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, Final
from weakref import ref

from ...icd.abi import OPENCL
from ...icd.calls import query_status
from ...icd.command_buffer.waiting import wait as wait_for_event
from ...icd.errors import OpenCLError
from ...loader.base.forks import make_lock
from ...loader.base.interrupts import is_main_thread
from ..sdk._native import lib
from .contexts import URContext
from .core import CLObject, adapter, check, create, failure, get_address, make_handle_array

if TYPE_CHECKING:
    from .platforms import URPlatform
    from .queues import URQueue

# void (cl_event, cl_int status, void *data), for clSetEventCallback
_Notify: Final = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int32, ctypes.c_size_t)
_FAILED: Final = OPENCL.codes["CL_EXEC_STATUS_ERROR_FOR_EVENTS_IN_WAIT_LIST"]
# void (void *data), of urEnqueueHostTaskExp
_HostFunction: Final = ctypes.CFUNCTYPE(None, ctypes.c_void_p)


@adapter.kind
class UREvent(CLObject):
    """The event of a command.

    Args:
        queue: the queue of the command, None for a user event.
        command: its ur_command_t.
        first: the event of the first command, if several commands are one to the caller.
        owned: whether it has a reference to `cl`, which it releases at the end.

    Attributes:
        is_time_stamp: whether its command only records the device's time.
        place: how many commands of its queue are complete when it is, 0 if that is not known.
    """

    type = "ur_event_handle_t"
    release, retain_function = "clReleaseEvent", "clRetainEvent"
    is_time_stamp, place = False, 0

    def __init__(
        self,
        cl: int,
        context: URContext,
        queue: URQueue | None = None,
        command: int = 0,
        *,
        first: UREvent | None = None,
        owned: bool = True,
    ) -> None:
        super().__init__(cl, context.table, owned)
        self.context, self.queue, self.command, self.first = context, queue, command, first

    def describe_to_c(self) -> tuple[int, int, int, int]:
        queue = get_address(self.queue.struct) if self.queue is not None else 0
        alone = lib.FL_ALONE | self.place << lib.FL_PLACE if self.place else 0
        return self.cl, get_address(self.context.platform.struct), queue, self.command | alone

    def get_current(self) -> UREvent:
        return self

    def check_usable(self) -> None:
        """Check that a command can wait for the event.

        On PoCL 3.0 a command that waits for a failed event never ends.

        Raises:
            URError: IN_EVENT_LIST_EXEC_STATUS if its command has failed.
        """
        if self.status < 0:
            raise failure("IN_EVENT_LIST_EXEC_STATUS")

    def wait(self) -> None:
        """Wait until it is complete. Raises OpenCLError if its command failed."""
        wait([self])

    @property
    def status(self) -> int:
        """Return the execution status. A negative number is the OpenCL code of a failure."""
        return query_status(self.cl)


def create_completed_event(context: URContext) -> int:
    """Return a new cl_event that is complete. Raises OpenCLError."""
    made = create(context.table, "clCreateUserEvent", context.cl)
    code = context.table.clSetUserEventStatus(made, 0)
    if code:
        context.table.clReleaseEvent(made)
    check(code, "clSetUserEventStatus")
    return made


class URCommandEvent(UREvent):
    """The event of a command in a command-buffer.

    It is complete before the first enqueue. Each enqueue gives it another cl_event.

    Args:
        command: its ur_command_t.
        buffer: a weak reference to the command-buffer.
        index: the number of the command.
    """

    def __init__(self, context: URContext, command: int, buffer: ref[Any], index: int) -> None:
        self.current = UREvent(create_completed_event(context), context)
        super().__init__(self.current.cl, context, None, command, owned=False)
        self.buffer, self.index = buffer, index

    def describe_to_c(self) -> tuple[int, int, int, int]:
        """Return nothing, because its cl_event changes."""
        return 0, 0, 0, 0

    def set_enqueued(self, cl: int, queue: URQueue) -> None:
        """Note the cl_event of an enqueue. A reference to it is given to us."""
        self.current = UREvent(cl, self.context, queue, self.command)
        self.cl, self.queue = cl, queue

    def get_current(self) -> UREvent:
        """Return the event of the last enqueue."""
        return self.current

    def check_usable(self) -> None:
        self.current.check_usable()


class _Callback(threading.local):
    """Whether this thread runs a callback of a driver.

    Then it may be the thread that has to run what is waited for.
    """

    runs = False


_callback: Final = _Callback()


def waits_itself(platform: URPlatform) -> bool:
    """Return whether this thread waits by icd/command_buffer/waiting.py.

    Then no call may block in the driver.
    """
    one_at_a_time = platform.profile.waits_one_at_a_time
    return not _callback.runs and (one_at_a_time or is_main_thread())


def wait(events: Iterable[UREvent]) -> None:
    """Wait until all events are complete. Raises OpenCLError if a command failed."""
    groups: dict[URContext, list[UREvent]] = {}  # clWaitForEvents takes events of one context
    for event in events:
        groups.setdefault(event.context, []).append(event)
    failed: OpenCLError | None = None
    for context, group in groups.items():
        try:
            if waits_itself(context.platform):
                _wait_for_each([event.get_current() for event in group])
            else:
                check(
                    group[0].table.clWaitForEvents(len(group), make_handle_array(group)),
                    "clWaitForEvents",
                )
            # NVIDIA's driver takes a wait for a failed user event for a success.
            if any(event.queue is None and event.status < 0 for event in group):
                check(_FAILED, "clWaitForEvents")
        except OpenCLError as error:
            failed = failed or error
    if failed is not None:
        raise failed


def _wait_for_each(events: Sequence[UREvent]) -> None:
    """Do what clWaitForEvents does by icd/command_buffer/waiting.py."""
    failed: OpenCLError | None = None
    if len(events) > 1:  # one may wait for another
        for queue in {event.queue for event in events if event.queue is not None}:
            queue.flush()
    for event in events:
        in_order = event.queue is not None and event.queue.in_order
        try:
            wait_for_event(event.cl, in_order, event.context.platform.profile.waits_one_at_a_time)
        except OpenCLError as error:
            failed = failed or error
    if failed is not None:
        raise failed


def wait_for_usable(events: Sequence[UREvent]) -> None:
    """Wait until all events are complete. Raises URError or OpenCLError if one cannot be."""
    for event in events:
        event.check_usable()
    wait(events)


# callbacks

_lock = make_lock()
_numbers = itertools.count(1)
_waiting: Final[dict[int, Any]] = {}


@_Notify
def _handle_completion(cl: int, status: int, number: int) -> None:
    """Run an action. Drivers call this function in any thread.

    It is one function for all actions, because a callback cannot free itself.
    """
    with _lock:
        action = _waiting.pop(number, None)
    if action is not None:
        before, _callback.runs = _callback.runs, True
        lib.fl_in_callback(True)
        try:
            action(status)
        except Exception as error:
            adapter.fail(error, "an event's callback")
        finally:
            _callback.runs = before
            lib.fl_in_callback(before)


def call_on_status(event: int, table: Any, status: int, action: Any) -> None:
    """Call a function when a cl_event has reached an execution status.

    Args:
        event: the cl_event.
        action: the function. It gets the status, which is negative after a failure.

    Raises:
        OpenCLError: what the driver answers. Then the function is not called.
    """
    number = next(_numbers)
    with _lock:
        _waiting[number] = action
    code = table.clSetEventCallback(
        event, status, ctypes.cast(_handle_completion, ctypes.c_void_p), number
    )
    if code:
        with _lock:
            _waiting.pop(number, None)
        check(code, "clSetEventCallback")


def call_host_function(function: int, data: int) -> None:
    """Call a C function of the program that takes a pointer."""
    _HostFunction(function)(data)
