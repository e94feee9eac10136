"""Events and their pools of the Level Zero driver."""

from __future__ import annotations

import ctypes
from typing import Any, Final

from ...icd.abi import OPENCL
from ...icd.calls import call
from ..sdk._native_ze import ffi
from ..sdk.objects import Object
from .completions import Completion
from .contexts import ZeContext
from .core import ZE, driver, find_struct, make_failure
from .devices import ZeDevice, read_clocks
from .in_c import EventInC, get_address
from .streams import NOT_READY, Signal, Stream, get_order_lock

_TIMES: Final = (
    ZE["ZE_EVENT_POOL_FLAG_KERNEL_TIMESTAMP"] | ZE["ZE_EVENT_POOL_FLAG_KERNEL_MAPPED_TIMESTAMP"]
)
#: The flag of a counter-based event with times, and that of a pool of such events.
_TIMED_COUNTER: Final = ZE["ZE_EVENT_COUNTER_BASED_FLAG_DEVICE_TIMESTAMP"]
_COUNTER_TIMES: Final = ZE["ZE_EVENT_POOL_FLAG_KERNEL_TIMESTAMP"]
_START, _END = (OPENCL[f"CL_PROFILING_COMMAND_{name}"] for name in ("START", "END"))


@driver.kind
class ZeEventPool(Object):
    """A pool of events: so many, of one kind.

    Args:
        flags: ze_event_pool_flags_t.
        counter_based: ze_event_pool_counter_based_exp_flags_t, 0 for plain events.
    """

    type = "ze_event_pool_handle_t"

    def __init__(self, context: ZeContext, flags: int, count: int, counter_based: int = 0) -> None:
        self.context, self.flags, self.count = context, flags, count
        self.counter_based = counter_based


@driver.kind
class ZeEvent(Signal):
    """An event of a pool.

    Args:
        signal: its ze_event_scope_flags_t when it is signaled.
        wait: the same when it is waited for.

    Attributes:
        capture: the capture that lasts and has a command that signals it (graphs.py), or None.
    """

    type = "ze_event_handle_t"
    capture: Any = None

    def __init__(self, pool: ZeEventPool, signal: int, wait: int) -> None:
        super().__init__()
        self.pool, self.context = pool, pool.context
        self.signal_scope, self.wait_scope = signal, wait
        self.in_c = EventInC(pool.context.ur, self.is_counter_based)
        if not self.may_be_c_s:
            self.in_c.take()

    def describe_to_c(self) -> tuple[int, int, int, int]:
        return get_address(self.in_c.struct), 0, 0, 0

    @property
    def may_be_c_s(self) -> bool:
        """Return whether C can do all with it: it has no times, and is in no capture."""
        return not (self.has_times or self.capture is not None)

    def update_from_c(self) -> None:
        """Learn whether C has signaled it. From now on only Python does."""
        cl = self.in_c.take()
        if cl:
            self._signaled, self.error, self.timing = True, None, None
            self.completion = self.make_end_in_c(cl)

    def make_end_in_c(self, cl: int) -> Completion:
        """Return the end of what C has enqueued: its event, a reference."""
        return Completion(cl, None, self.context.ur.platform.profile.waits_one_at_a_time)

    def allow_signals_in_c(self) -> None:
        """Let C signal it again, if it can."""
        if self.may_be_c_s:
            self.in_c.give()

    def close(self) -> None:
        self.update_from_c()

    @property
    def has_times(self) -> bool:
        """Return whether the event has the times of the command that signals it."""
        return bool(self.pool.flags & _TIMES)

    @property
    def is_counter_based(self) -> bool:
        """Return whether the event stands for its last signaling call, so nobody resets it."""
        return bool(self.pool.counter_based)

    def check_outside(self) -> None:
        """Raise LevelZeroError (GRAPH_INTERNAL_EVENT) if a capture is to signal it."""
        if self.capture is not None:
            raise make_failure("GRAPH_INTERNAL_EVENT", "a capture that lasts signals the event")

    def is_interchangeable_with(self, other: ZeEvent) -> bool:
        """Return whether another event can take its place in a mutable command."""
        return (
            self.context.shares(other.context)
            and self.pool.flags == other.pool.flags
            and self.is_counter_based == other.is_counter_based
            and self.signal_scope == other.signal_scope
            and self.wait_scope == other.wait_scope
        )


class _CountedCall(Signal):
    """What one call signals, of all that signal a counter-based event.

    Args:
        signaled: whether it is complete.
    """

    def __init__(self, event: ZeCounterEvent, signaled: bool = False) -> None:
        super().__init__()
        self._event, self._signaled = event, signaled

    def put(self, signaled: bool, completion: Completion | None) -> list[Stream]:
        ready = super().put(signaled, completion)
        self._event.note_end(self)
        return ready


class ZeCounterEvent(ZeEvent):
    """A counter-based event: it stands for the last call that signals it, and begins complete.

    Who waits for it waits for the call that was the last one then. (Level Zero: "Counter-Based
    Events".)
    """

    def __init__(self, pool: ZeEventPool, signal: int, wait: int) -> None:
        super().__init__(pool, signal, wait)
        self._latest = _CountedCall(self, signaled=True)

    @property
    def latest(self) -> Signal:
        self.update_from_c()
        return self._latest

    def begin(self) -> Signal:
        self.update_from_c()
        self._latest = _CountedCall(self)
        return self._latest

    def update_from_c(self) -> None:
        cl = self.in_c.take()
        if cl:
            end, known = self.make_end_in_c(cl), self._latest.completion
            if known is None or known.cl != cl:  # C has signaled it again
                self._latest = _CountedCall(self, signaled=True)
                self._latest.completion = end

    def note_end(self, call_: Signal) -> None:
        """Let C answer for it when its last call is enqueued. The lock is held."""
        if call_ is self._latest and call_.completion is not None and self.may_be_c_s:
            self.in_c.put(call_.completion.cl)

    @property
    def signaled(self) -> bool:
        return self.latest.signaled

    def query(self) -> int:
        with get_order_lock():
            latest = self.latest
        return latest.query()

    def wait(self, timeout: int) -> int:
        with get_order_lock():
            latest = self.latest
        return latest.wait(timeout)


def _make_event(pool: ZeEventPool, desc: Any) -> ZeEvent:
    kind = ZeCounterEvent if pool.counter_based else ZeEvent
    return kind(pool, desc.signal, desc.wait)


@driver.entry
def zeEventPoolCreate(
    hContext: ZeContext, desc: Any, numDevices: int, phDevices: list[ZeDevice]
) -> ZeEventPool:
    for device in phDevices:
        hContext.check(device)
    counter_based = find_struct(
        desc.pNext,
        "ZE_STRUCTURE_TYPE_COUNTER_BASED_EVENT_POOL_EXP_DESC",
        "ze_event_pool_counter_based_exp_desc_t",
    )
    flags = (counter_based.flags or 1) if counter_based is not None else 0
    return ZeEventPool(hContext, desc.flags, desc.count, flags)


@driver.entry
def zeEventCreate(hEventPool: ZeEventPool, desc: Any) -> ZeEvent:
    if desc.index >= hEventPool.count:
        raise make_failure("INVALID_ARGUMENT", f"the pool has {hEventPool.count} events")
    return _make_event(hEventPool, desc)


@driver.entry
def zeEventCounterBasedCreate(hContext: ZeContext, hDevice: ZeDevice, desc: Any) -> ZeEvent:
    hContext.check(hDevice)
    timed = _COUNTER_TIMES if desc.flags & _TIMED_COUNTER else 0
    pool = ZeEventPool(hContext, timed, 1, desc.flags & ~_TIMED_COUNTER or 1)
    return _make_event(pool, desc)


@driver.entry
def zeEventGetCounterBasedFlags(hEvent: ZeEvent) -> int:
    if not hEvent.is_counter_based:
        raise make_failure("INVALID_ARGUMENT", "the event is not counter-based")
    return hEvent.pool.counter_based


driver.declare(
    zeEventPoolGetContextHandle=lambda hEventPool: hEventPool.context,
    zeEventPoolGetFlags=lambda hEventPool: hEventPool.flags,
    zeEventGetEventPool=lambda hEvent: hEvent.pool,
    zeEventGetSignalScope=lambda hEvent: hEvent.signal_scope,
    zeEventGetWaitScope=lambda hEvent: hEvent.wait_scope,
)


@driver.entry
def zeEventHostSignal(hEvent: ZeEvent) -> None:
    if hEvent.is_counter_based:
        raise make_failure("INVALID_ARGUMENT", "the host does not signal a counter-based event")
    hEvent.check_outside()
    hEvent.signal_by_host()


@driver.entry
def zeEventHostReset(hEvent: ZeEvent) -> None:
    if hEvent.is_counter_based:
        raise make_failure("INVALID_ARGUMENT", "nobody resets a counter-based event")
    hEvent.check_outside()
    hEvent.reset_by_host()


@driver.entry
def zeEventQueryStatus(hEvent: ZeEvent) -> int:
    hEvent.check_outside()
    return hEvent.query()


@driver.entry
def zeEventHostSynchronize(hEvent: ZeEvent, timeout: int) -> int:
    hEvent.check_outside()
    return hEvent.wait(timeout)


def query_times(timing: tuple[Completion, Completion] | None) -> tuple[int, int]:
    """Return when commands began and ended, in nanoseconds of the OpenCL driver's clock."""
    if timing is None:
        return 0, 0
    value, found = ctypes.c_uint64(), []
    for completion, name in zip(timing, (_START, _END), strict=True):
        code = call(
            completion.cl, "clGetEventProfilingInfo", name, 8, ctypes.addressof(value), None
        )
        found.append(value.value if code == 0 else 0)
    return found[0], found[1]


@driver.entry
def zeEventQueryKernelTimestamp(hEvent: ZeEvent, dstptr: Any) -> int:
    if not hEvent.has_times:
        raise make_failure("INVALID_ARGUMENT", "the event's pool has no timestamps")
    with get_order_lock():
        latest = hEvent.latest
    if latest.query() == NOT_READY:
        return NOT_READY
    _write_times(query_times(latest.timing), dstptr)
    return 0


def _write_times(found: tuple[int, int], row: Any) -> None:
    """Write times to a ze_kernel_timestamp_result_t, or to a synchronized one."""
    for times in (getattr(row, "global"), row.context):
        times.kernelStart, times.kernelEnd = found


@driver.entry
def zeEventQueryTimestampsExp(
    hEvent: ZeEvent, hDevice: ZeDevice, pCount: Any, pTimestamps: Any
) -> int:
    with get_order_lock():
        latest = hEvent.latest
    if latest.query() == NOT_READY:
        return NOT_READY
    room, pCount[0] = pCount[0], 1
    if pTimestamps is not None and room:
        row = ffi.cast("ze_kernel_timestamp_result_t *", pTimestamps)
        _write_times(query_times(latest.timing), row)
    return 0


@driver.entry
def zeEventQueryKernelTimestampsExt(
    hEvent: ZeEvent, hDevice: ZeDevice, pCount: Any, pResults: Any
) -> int:
    """Write the times of one command, in the driver's clock and in that of the host."""
    if pResults is None or not pCount[0]:
        pCount[0] = 1
        return 0
    found = ffi.new("ze_kernel_timestamp_result_t *")
    code = zeEventQueryKernelTimestamp(hEvent, found)
    if code:
        return code
    pCount[0], rows = 1, pResults[0]
    if rows.pKernelTimestampsBuffer:
        rows.pKernelTimestampsBuffer[0] = found[0]
    if rows.pSynchronizedTimestampsBuffer:
        host, own = read_clocks(hDevice)
        begin, end = found.context.kernelStart, found.context.kernelEnd
        times = begin + host - own, end + host - own
        _write_times(times, rows.pSynchronizedTimestampsBuffer)
    return 0
