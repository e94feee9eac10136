"""Events: a cl_event each, with the queue and the kind of command that it came from.

The numbers of execution states are the same in both interfaces (UR_EVENT_STATUS_COMPLETE is CL_COMPLETE, and so on).
"""

from __future__ import annotations

import ctypes
import itertools
import threading
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, Final
from weakref import ref

from ...icd.abi import OPENCL
from ...icd.command_buffer.waiting import wait as wait_for_event
from ...icd.errors import OpenCLError
from ...loader.base.forks import new_lock
from ...loader.base.interrupts import in_main_thread
from ...loader.ur.abi import UR
from .contexts import URContext
from .core import CLObject, adapter, check, create, failure, handles

if TYPE_CHECKING:
    from .platforms import URPlatform
    from .queues import URQueue

_Notify: Final = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int32, ctypes.c_size_t)
_UserNotify: Final = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_uint32, ctypes.c_void_p)
_STATUS: Final = OPENCL["CL_EVENT_COMMAND_EXECUTION_STATUS"]
_HostFunction: Final = ctypes.CFUNCTYPE(None, ctypes.c_void_p)


@adapter.kind
class UREvent(CLObject):
    """The event of a command. `command` is a ur_command_t; `first` is the event of the first of several commands that are one to
    the caller. `is_time_stamp`: its command records the device's time and does nothing else."""

    type = "ur_event_handle_t"
    release, retain_function = "clReleaseEvent", "clRetainEvent"
    is_time_stamp = False

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

    def current_object(self) -> UREvent:
        return self

    def check_usable(self) -> None:
        """Raise URError if it cannot be waited for: IN_EVENT_LIST_EXEC_STATUS if its command has failed.

        A command that waits for such an event never ends on PoCL 3.0.
        """
        status = ctypes.c_int32()
        code = self.table.clGetEventInfo(self.cl, _STATUS, 4, ctypes.byref(status), None)
        if code or status.value < 0:
            raise failure("IN_EVENT_LIST_EXEC_STATUS" if not code else "INVALID_EVENT")

    def wait(self) -> None:
        """Wait until it is complete. Raises OpenCLError if its command has failed."""
        wait([self])

    @property
    def status(self) -> int:
        """Its execution status; negative: the OpenCL code of what failed."""
        return ctypes.c_int32.from_buffer_copy(
            self.query("CL_EVENT_COMMAND_EXECUTION_STATUS")
        ).value


def completed_event(context: URContext) -> int:
    """A new cl_event that is complete. Raises OpenCLError."""
    made = create(context.table, "clCreateUserEvent", context.cl)
    check(context.table.clSetUserEventStatus(made, 0), "clSetUserEventStatus")
    return made


class URCommandEvent(UREvent):
    """The event of a command in a command-buffer. Each enqueue gives it another cl_event; before the first it is complete.

    `buffer` (a weak reference) and `index` say which command it is of.
    """

    def __init__(self, context: URContext, command: int, buffer: ref[Any], index: int) -> None:
        self.current = UREvent(completed_event(context), context)
        super().__init__(self.current.cl, context, None, command, owned=False)
        self.buffer, self.index = buffer, index

    def set_enqueued(self, cl: int, queue: URQueue) -> None:
        """The command has been enqueued again: this is its event, a reference of which is given here."""
        self.current = UREvent(cl, self.context, queue, self.command)
        self.cl, self.queue = cl, queue

    def current_object(self) -> UREvent:
        """The event that it is now, which lives as long as somebody holds it."""
        return self.current

    def check_usable(self) -> None:
        self.current.check_usable()


class _Callback(threading.local):
    """Whether this thread is in a callback of a driver's. Then it may be the one that is to run what is waited for."""

    runs = False


_callback: Final = _Callback()


def waits_itself(platform: URPlatform) -> bool:
    """Whether this thread waits by icd/command_buffer/waiting.py, so that no call may block in the driver."""
    one_at_a_time = platform.profile.waits_one_at_a_time
    return not _callback.runs and (one_at_a_time or in_main_thread())


def wait(events: Iterable[UREvent]) -> None:
    """Wait until all are complete. Raises OpenCLError if one of their commands has failed."""
    groups: dict[URContext, list[UREvent]] = {}  # SPEC clWaitForEvents: of one context
    for event in events:
        groups.setdefault(event.context, []).append(event)
    failed: OpenCLError | None = None
    for context, group in groups.items():
        try:
            if waits_itself(context.platform):
                _wait_for_each([event.current_object() for event in group])
            else:
                check(group[0].table.clWaitForEvents(len(group), handles(group)), "clWaitForEvents")
        except OpenCLError as error:
            failed = failed or error
    if failed is not None:
        raise failed


def _wait_for_each(events: Sequence[UREvent]) -> None:
    """clWaitForEvents, by icd/command_buffer/waiting.py."""
    failed: OpenCLError | None = None
    for queue in (
        {event.queue for event in events if event.queue is not None} if len(events) > 1 else ()
    ):
        check(queue.table.clFlush(queue.cl), "clFlush")  # one may wait for another
    for event in events:
        try:
            wait_for_event(
                event.cl,
                event.queue is not None and event.queue.in_order,
                event.context.platform.profile.waits_one_at_a_time,
            )
        except OpenCLError as error:
            failed = failed or error
    if failed is not None:
        raise failed


@adapter.entry
def urEventWait(phEventWaitList: Sequence[UREvent]) -> None:
    if not phEventWaitList:
        raise failure("INVALID_VALUE", "there is no event to wait for")
    for event in phEventWaitList:
        event.check_usable()
    wait(phEventWaitList)


# callbacks

_lock = new_lock()
_numbers = itertools.count(1)
_waiting: Final[dict[int, Any]] = {}


@_Notify
def _completed(cl: int, status: int, number: int) -> None:
    """Called by a driver, in whatever thread: one function for all, since a callback cannot free itself."""
    with _lock:
        action = _waiting.pop(number, None)
    if action is not None:
        before, _callback.runs = _callback.runs, True
        try:
            action(status)
        except Exception as error:
            adapter.fail(error, "an event's callback")
        finally:
            _callback.runs = before


def call_on_status(event: int, table: Any, status: int, action: Any) -> None:
    """Call `action(status)` when a cl_event has reached an execution status. Raises OpenCLError."""
    number = next(_numbers)
    with _lock:
        _waiting[number] = action
    code = table.clSetEventCallback(event, status, ctypes.cast(_completed, ctypes.c_void_p), number)
    if code:
        with _lock:
            _waiting.pop(number, None)
        check(code, "clSetEventCallback")


@adapter.entry
def urEventSetCallback(hEvent: UREvent, execStatus: int, pfnNotify: int, pUserData: int) -> None:
    if (
        execStatus == UR["UR_EXECUTION_INFO_QUEUED"]
    ):  # OpenCL has no callback for a state that is reached at once
        raise failure("UNSUPPORTED_ENUMERATION", "an event is queued from the start")
    present = hEvent.current_object()
    registry = adapter.registry
    assert registry is not None
    registry.retain(hEvent)  # the callback is given its handle

    def action(status: int) -> None:
        try:
            _UserNotify(pfnNotify)(hEvent.handle, execStatus, pUserData)
        finally:
            registry.release(hEvent)

    try:
        call_on_status(present.cl, present.table, execStatus, action)
    except BaseException:
        registry.release(hEvent)
        raise


def call_host_function(function: int, data: int) -> None:
    """Call a function of the host's that takes a pointer."""
    _HostFunction(function)(data)
