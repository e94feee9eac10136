"""Events of CUDA and HIP: a CUevent behind a command, and one before it if its queue profiles.

CUDA's events have no user events among them: a command that is enqueued runs. A failed command
ends the context, so every event of the context fails then.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from ...loader.ur.abi import UR
from ..sdk.conversions import is_owned
from ..sdk.events import declare_events
from .clocks import TimeBase, make_base, make_event, measure
from .contexts import CuContext
from .core import NOT_READY, Object, adapter, failure
from .devices import CuDevice, CuStream

if TYPE_CHECKING:
    from .captures import CuCapture
    from .queues import CuQueue

_COMPLETE, _RUNNING, _SUBMITTED, _ERROR = (
    UR[f"UR_EVENT_STATUS_{name}"] for name in ("COMPLETE", "RUNNING", "SUBMITTED", "ERROR")
)


@adapter.kind
class CuEvent(Object):
    """The event of a command.

    Args:
        end: the CUevent behind the command.
        queue: the queue of the command, None for a native handle.
        command: its ur_command_t.
        begin: the CUevent before it, 0 if its queue does not profile.
        base: the base of its times, if its queue profiles.
        owned: whether the CUevents are ours.

    Attributes:
        queued: the host's time of the call.
        capture: the capture that its command is in, or None.
        nodes: the nodes that it stands for in a capture of an out-of-order queue.
    """

    type, reusable = "ur_event_handle_t", False

    def __init__(
        self,
        context: CuContext,
        device: CuDevice,
        end: int,
        queue: CuQueue | None = None,
        command: int = 0,
        *,
        begin: int = 0,
        base: TimeBase | None = None,
        owned: bool = True,
    ) -> None:
        self.context, self.device, self.queue, self.command = context, device, queue, command
        self.begin, self.end, self.base, self.owned = begin, end, base, owned
        self.stream: CuStream | None = None
        self.queued = time.monotonic_ns() if base is not None else 0
        self.keep: Any = None
        self.capture: CuCapture | None = None
        self.nodes: tuple[int, ...] = ()

    def get_native(self) -> int:
        return self.end

    def close(self) -> None:
        if self.owned:
            for event in filter(None, (self.begin, self.end)):
                self.device.ask("EventDestroy", event)

    @property
    def status(self) -> int:
        """Return the event's ur_event_status_t. Raises URError as `check_outside`."""
        self.check_outside()
        code = self.device.ask("EventQuery", self.end)
        return _SUBMITTED if code == NOT_READY else _ERROR if code else _COMPLETE

    def wait(self) -> None:
        """Wait until it is complete.

        Raises:
            URError: see `check_outside`.
            DriverError: its command failed.
        """
        self.check_outside()
        self.device.call("EventSynchronize", self.end)

    def check_outside(self) -> None:
        """Raise URError (GRAPH_INTERNAL_EVENT) if its command is in a capture."""
        if self.capture is not None:
            raise failure("GRAPH_INTERNAL_EVENT")

    @property
    def times(self) -> tuple[int, int]:
        """Return when the event's command began and ended.

        Raises:
            URError: PROFILING_INFO_NOT_AVAILABLE if its queue does not profile, or if its command
                has not ended.
        """
        if self.base is None or self.status != _COMPLETE:
            raise failure("PROFILING_INFO_NOT_AVAILABLE")
        end = self.base.measure_event(self.end)
        begin = end - int(measure(self.device, self.begin, self.end)) if self.begin else end
        return begin, end

    @property
    def call_time(self) -> int:
        """Return when the call was made, but not later than its command began.

        It is known while the command runs. Raises URError as `times`.
        """
        if self.base is not None and self.status == _SUBMITTED:
            return self.queued
        return min(self.queued, self.times[0])


class CuReusableEvent(CuEvent):
    """An event that barriers signal, again and again. Until then it is complete, as CUDA's are.

    Args:
        profiles: whether it has times after every barrier.
        shared: whether other processes may have it, too. Then it has no times.
    """

    reusable = True

    def __init__(
        self, context: CuContext, device: CuDevice, *, profiles: bool, shared: bool
    ) -> None:
        with device.make_current():
            begin = 0 if shared else make_event(device, True)
            end = make_event(device, not shared, shared=shared)
        super().__init__(context, device, end, begin=begin)
        self.profiles, self.shared = profiles, shared

    def signal(self, queue: CuQueue, command: int, timed: bool) -> None:
        """Prepare the event for the barrier that records it next.

        Args:
            command: its ur_command_t.
            timed: whether the queue profiles.

        Raises:
            URError: INVALID_CONTEXT, INVALID_DEVICE for a queue that cannot signal it.
        """
        queue.context.check_same("the event", self)
        if queue.device is not self.device:
            raise failure("INVALID_DEVICE", "the event is of another device than the queue")
        self.queue, self.command, self.capture, self.nodes = queue, command, None, ()
        has_times = (timed or self.profiles) and bool(self.begin) and queue.part is None
        self.base = make_base(self.device) if has_times else None
        self.queued = time.monotonic_ns()


_PROFILES, _SHARED = UR["UR_EXP_EVENT_FLAG_ENABLE_PROFILING"], UR["UR_EXP_EVENT_FLAG_IPC_EXP"]


@adapter.entry
def urEventCreateExp(hContext: CuContext, hDevice: CuDevice, pEventDesc: Any) -> CuEvent:
    flags = pEventDesc.flags
    if flags == _PROFILES | _SHARED:
        raise failure("INVALID_VALUE", "an event of other processes has no times")
    profiles, shared = bool(flags & _PROFILES), bool(flags & _SHARED)
    return CuReusableEvent(hContext, hDevice, profiles=profiles, shared=shared)


def make_completed_event(context: CuContext) -> CuEvent:
    """Return an event that is complete: CUDA's are until they are recorded. Raises DriverError."""
    with context.device.make_current():
        return CuEvent(context, context.device, make_event(context.device, False))


def wait_on(stream: CuStream, events: Sequence[CuEvent]) -> None:
    """Let a stream wait for events. Its device's context is current. Raises DriverError."""
    for event in events:
        if event.stream is not stream:
            event.device.call_here("StreamWaitEvent", stream.handle, event.end, 0)


def _take_native(native: int, context: CuContext, properties: Any) -> CuEvent:
    return CuEvent(context, context.device, native, owned=is_owned(properties))


# A function that CUDA itself calls must not use CUDA, so it cannot be the program's callback.
declare_events(
    adapter,
    take_native=_take_native,
    make_completed=make_completed_event,
    times={
        "QUEUED": lambda event: event.call_time,
        "SUBMIT": lambda event: event.call_time,
        "START": lambda event: event.times[0],
        "END": lambda event: event.times[1],
        "COMPLETE": lambda event: event.times[1],
    },
)
