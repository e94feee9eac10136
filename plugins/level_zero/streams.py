"""Streams: what a queue or an immediate command list runs, in order, and what is waited for.

A stream is an in-order queue of OpenCL, and steps that are not enqueued yet. A step waits for
events, runs commands, and then signals and resets events.

Level Zero's events are flags that anybody sets and clears. OpenCL's belong to a command and end
once. So an event here has two parts: whether it is signaled in the order of the enqueues, and the
OpenCL event that has to end until then. A step whose events are all signaled in this sense is
enqueued at once, after those OpenCL events. A step that waits for an event that nobody has signaled
yet stays in its stream, which the event then knows. Whoever signals the event enqueues the step:
the host, or the thread that enqueues what signals it. So nothing polls, no thread is blocked, and
other streams go on.

Each enqueue is one point of this order. It is a valid order of all that happens, because a step
comes after whatever signaled what it waits for."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

from ...icd.abi import OPENCL
from ...icd.calls import call, enqueue_barrier, enqueue_marker, make_queue
from ...loader.base.forks import make_lock
from ...loader.base.interrupts import mark_stoppable, stop_if_interrupted
from ..sdk.objects import Object
from .completions import CHECK_INTERVAL, Completion, find_deadline
from .contexts import ZeContext
from .core import ZE, driver, make_failure
from .devices import ZeDevice
from .in_c import QueueInC

NOT_READY: Final = ZE.codes["ZE_RESULT_NOT_READY"]
_PROFILING: Final = OPENCL["CL_QUEUE_PROFILING_ENABLE"]

#: Held while the order of enqueues changes. Nothing that a driver's callback needs is under it.
_lock: Final = make_lock()
_changed: Final = threading.Condition(_lock)


class Signal(Object):
    """What can be signaled and waited for: an event or a fence.

    Attributes:
        signaled: whether the event or fence is signaled, in the order of enqueues.
        completion: what has to end until the device signals it, None for nothing.
        timing: the first and the last command whose times it has, None for none.
        error: why what should have signaled it could not be enqueued, None if it could.
        waiters: the streams whose next step waits for it.
    """

    completion: Completion | None = None
    timing: tuple[Completion, Completion] | None = None
    error: Exception | None = None

    def __init__(self) -> None:
        self._signaled = False
        self.waiters: list[Stream] = []

    @property
    def signaled(self) -> bool:
        """Ask C what it has signaled, then return whether this is signaled. The lock is held."""
        self.update_from_c()
        return self._signaled

    @property
    def latest(self) -> Signal:
        """Return the signal that a step submitted now waits for. The lock is held."""
        return self

    def begin(self) -> Signal:
        """Return the signal that a step submitted now gives. The lock is held."""
        return self

    def update_from_c(self) -> None:
        """Learn whether C has signaled it. From now on only Python does. The lock is held."""

    def allow_signals_in_c(self) -> None:
        """Let C signal it again: it is reset, and nothing waits for it. The lock is held."""

    def put(self, signaled: bool, completion: Completion | None) -> list[Stream]:
        """Signal or reset this for all steps that are submitted later. The lock is held.

        Returns:
            The streams that can go on.
        """
        self.update_from_c()
        self._signaled, self.completion = signaled, completion if signaled else None
        self.error = None
        if not signaled:
            self.timing = None
            if not self.waiters:
                self.allow_signals_in_c()
            return []
        ready, self.waiters = self.waiters, []
        return ready

    def signal_by_host(self) -> None:
        """Signal the event now."""
        with _changed:
            self.timing = None
            report(_advance(self.put(True, None)))
            _changed.notify_all()

    def reset_by_host(self) -> None:
        """Reset the event now."""
        with _lock:
            self.put(False, None)

    def query(self) -> int:
        """Return 0 if it is signaled, else NOT_READY.

        Raises:
            LevelZeroError: DEVICE_LOST if what should signal it has failed.
        """
        with _lock:
            signaled, completion = self.signaled, self.completion
            self._raise_error()
        if not signaled or (completion is not None and not completion.is_done):
            return NOT_READY
        return 0

    def wait(self, timeout: int) -> int:
        """Wait until it is signaled, and return 0, or NOT_READY after that time.

        Args:
            timeout: nanoseconds; FOREVER for no end.

        Raises:
            LevelZeroError: DEVICE_LOST if what should signal it has failed.
        """
        if not timeout:
            return self.query()
        deadline = find_deadline(timeout)
        if not _wait_for(lambda: self.signaled, deadline):
            return NOT_READY
        with _lock:
            completion = self.completion
            self._raise_error()
        return 0 if completion is None or completion.wait(deadline) else NOT_READY

    def _raise_error(self) -> None:
        if self.error is not None:
            raise make_failure("DEVICE_LOST", f"a command was not enqueued: {self.error}")


@mark_stoppable
def _wait_for(is_true: Callable[[], bool], deadline: int | None) -> bool:
    """Wait until something is true that only changes under the lock. Returns whether it is."""
    with _changed:
        while not is_true():
            stop_if_interrupted()
            left = (
                CHECK_INTERVAL
                if deadline is None
                else min(CHECK_INTERVAL, deadline - time.monotonic_ns())
            )
            if left <= 0:
                return False
            _changed.wait(left / 1e9)
    return True


@dataclass
class StreamStep:
    """A step of a stream: commands between two points where events are waited for or signaled.

    Attributes:
        run: enqueues its commands on a stream after OpenCL events, and returns the event of their
            end, a reference. It is also given the step. None: there are no commands.
        effects: the events that it signals (True) and resets (False), in order.
        timed: those of them that have times of its commands.
        times: the commands whose times the first of `timed` have, which `run` sets. The others
            have those of its end.
        begin: the step that their times begin with; None: this one.
        marks: whether its end is the begin of such times.
        end: the end of its commands, None before it is enqueued.
        reads: the events whose times its commands read.
    """

    waits: Sequence[Signal] = ()
    run: StepRun | None = None
    effects: Sequence[tuple[Signal, bool]] = ()
    timed: Sequence[Signal] = ()
    times: Sequence[Completion] = ()
    reads: Sequence[Signal] = ()
    begin: StreamStep | None = None
    marks: bool = False
    end: Completion | None = None

    def bind(self) -> None:
        """Replace events by the signals that they mean when the step is submitted.

        The lock is held.
        """
        self.waits = [event.latest for event in self.waits]
        self.reads = [event.latest for event in self.reads]
        self.effects = [
            (event.begin() if signaled else event, signaled) for event, signaled in self.effects
        ]
        self.timed = [event.latest for event in self.timed]

    def note_times(self, end: Completion) -> None:
        """Give the step's events their times, after its enqueue. The lock is held."""
        first = self.begin.end if self.begin is not None else None
        for number, event in enumerate(self.timed):
            own = self.times[number] if number < len(self.times) else end
            event.timing = (first or own, own)


#: What enqueues the commands of a step.
StepRun: TypeAlias = "Callable[[Stream, StreamStep, Sequence[int]], int]"


class Stream:
    """An in-order queue of OpenCL, and the steps that cannot be enqueued yet.

    Args:
        synchronous: whether every submission is waited for.

    Attributes:
        cl: the queue. From the first command on whose times an event has, it is one that profiles.
        in_c: what C knows of it. C enqueues lists, too, if no step is pending.
        pending: the steps that are not enqueued.
        last: the end of what was enqueued last.
        on_close: what is called when it is closed.
    """

    def __init__(self, context: ZeContext, device: ZeDevice, synchronous: bool = False) -> None:
        self.context, self.device, self.synchronous = context, device, synchronous
        self.cl, self._profiles = make_queue(context.ur.cl, device.ur.cl), False
        self.in_c = QueueInC(context.ur, device.ur.cl, self.cl)
        self.in_c.struct.in_python = synchronous
        self.waits_one_at_a_time = context.ur.platform.profile.waits_one_at_a_time
        self.pending: deque[StreamStep] = deque()
        self.last: Completion | None = None
        self.on_close: list[Callable[[], None]] = []

    def submit(self, steps: Iterable[StreamStep]) -> None:
        """Enqueue steps after all earlier ones, as far as their events are signaled.

        Raises:
            LevelZeroError, OpenCLError, URError: a step could not be enqueued. The steps behind it
                are left out.
        """
        with _changed:
            steps = list(steps)
            self.in_c.struct.in_python = 1
            for step in steps:
                step.bind()
            self.pending.extend(steps)
            failed = _advance([self])
            _changed.notify_all()
        own = [error for step, error in failed if any(step is one for one in steps)]
        report((step, error) for step, error in failed if error not in own)
        if own:
            raise own[0]

    def can_run(self, waits: Sequence[Signal]) -> bool:
        """Return whether a step with these events would be enqueued at once. The lock is held."""
        return not self.pending and all(event.signaled for event in waits)

    def wait(self, timeout: int) -> int:
        """Wait for all steps, and return 0, or NOT_READY after that time.

        Args:
            timeout: nanoseconds; FOREVER for no end.

        Raises:
            LevelZeroError: DEVICE_LOST if one has failed.
        """
        deadline = find_deadline(timeout)
        if not _wait_for(lambda: not self.pending, deadline):
            return NOT_READY
        with _lock:
            last = self.find_last_end()
        if last is not None and not last.wait(deadline):
            return NOT_READY
        with _lock:
            if last is self.last:
                self.in_c.struct.pending = 0
        return 0

    def find_last_end(self) -> Completion | None:
        """Return the end of what was enqueued last, by Python or by C. The lock is held."""
        event = self.in_c.take_last()
        if event:
            before, self.last = self.last, self.make_end(event)
            if before is not None and before.is_pending:  # nobody knows which of them is later
                end = enqueue_marker(self.cl, ())
                self.last = self.make_end(end)
        return self.last

    def begin_times(self) -> None:
        """Run on a queue that profiles from now on, after what was enqueued. The lock is held.

        Raises:
            OpenCLError: there can be no such queue.
        """
        if self._profiles:
            return
        cl = make_queue(self.context.ur.cl, self.device.ur.cl, _PROFILING)
        with self.in_c.pause():
            try:
                last = self.find_last_end()
                if last is not None and last.is_pending:
                    call(self.cl, "clFlush")
                    begin = enqueue_barrier(cl, [last.cl])
                    call(begin, "clReleaseEvent")
            except BaseException:
                call(cl, "clReleaseCommandQueue")
                raise
            call(self.cl, "clReleaseCommandQueue")
            self.cl = self.in_c.struct.cl = cl
        self._profiles = True

    def make_end(self, cl: int) -> Completion:
        """Return the end of a command of this stream: its event, a reference."""
        return Completion(cl, self, self.waits_one_at_a_time)

    def close(self) -> None:
        """Drop what is not enqueued, and release the queue. What is enqueued runs to its end."""
        with _lock:
            self.pending.clear()
            self.find_last_end()
            self.last = None
        for function in self.on_close:
            function()
        call(self.cl, "clReleaseCommandQueue")


def get_order_lock() -> Any:
    """Return the lock of the order of enqueues, for a step that is made and enqueued at once."""
    return _lock


def _advance(streams: Iterable[Stream]) -> list[tuple[StreamStep, Exception]]:
    """Enqueue the next steps of streams as far as possible. The lock is held.

    Returns:
        The steps that could not be enqueued, and why.
    """
    ready, failed = deque(streams), list[tuple[StreamStep, Exception]]()
    while ready:
        stream = ready.popleft()
        while stream.pending:
            step = stream.pending[0]
            missing = next((event for event in step.waits if not event.signaled), None)
            if missing is not None:
                if all(stream is not one for one in missing.waiters):
                    missing.waiters.append(stream)
                break
            stream.pending.popleft()
            try:
                ready.extend(settle(step, run_step(stream, step)))
            except Exception as error:
                failed.append((step, error))
                ready.extend(settle(step, None))
                for event, _ in step.effects:
                    event.error = error
        stream.in_c.struct.in_python = bool(stream.pending) or stream.synchronous
    return failed


def report(failed: Iterable[tuple[StreamStep, Exception]]) -> None:
    """Log the steps that could not be enqueued after the call that submitted them returned."""
    for _, error in failed:
        driver.log("error", f"a command that had to wait could not be enqueued: {error}")


def list_unfinished(stream: Stream, waits: Sequence[Signal]) -> list[int]:
    """Return the OpenCL events that a step on a stream has to wait for."""
    found: dict[int, None] = {}
    for event in waits:
        completion = event.completion
        if completion is not None and completion.stream is not stream and completion.is_pending:
            found[completion.cl] = None
    return list(found)


def run_step(stream: Stream, step: StreamStep) -> Completion | None:
    """Enqueue a step whose events are signaled. The lock is held.

    Returns:
        Its end, None if it has ended.

    Raises:
        LevelZeroError, OpenCLError, URError: it could not be enqueued.
    """
    has_times = bool(step.timed) or step.marks
    if has_times:
        stream.begin_times()
    waits = list_unfinished(stream, step.waits)
    stream.in_c.struct.pending = 1
    if step.run is not None:
        stream.last = stream.make_end(step.run(stream, step, waits))
        step.note_times(stream.last)
        return stream.last
    stream.find_last_end()
    if waits or has_times:  # a marker has times of its own
        end = enqueue_marker(stream.cl, waits)
        stream.last = stream.make_end(end)
    step.end = stream.last
    if stream.last is not None:
        step.note_times(stream.last)
    return stream.last


def settle(step: StreamStep, completion: Completion | None) -> list[Stream]:
    """Signal and reset the events of an enqueued step. The lock is held.

    Returns:
        The streams that can go on.
    """
    ready: list[Stream] = []
    for event, signaled in step.effects:
        ready += event.put(signaled, completion)
    return ready


def run_now(stream: Stream, step: StreamStep) -> None:
    """Enqueue a step that `Stream.can_run`. The lock is held.

    Raises:
        LevelZeroError, OpenCLError, URError: it could not be enqueued.
    """
    step.bind()
    ready = settle(step, run_step(stream, step))
    if ready:
        report(_advance(ready))
    if step.effects:
        _changed.notify_all()
