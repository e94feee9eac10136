"""Events: what a submission returns, to be waited for, asked, and depended on.

An event is *deferred* while its command cannot be given to the adapter. The command then comes
after a host task, an open host accessor, or something of another context. `deferred` is the
scheduler's entry then. Once the adapter has the command, `handle` is its event. A host task's event
has no handle. The event of a graph's submission stands for several: all of `others` must be
complete too. An event that was recorded into a graph has a `node`, and cannot be waited for.
"""

from __future__ import annotations

import ctypes
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final

from ..loader.base.never_copied import NeverCopied
from ..loader.ur.abi import UR
from .checks import make_type_error
from .errors import Errc, SYCLError, make_invalid_error
from .handles import RuntimeAdapter, make_handle_array

if TYPE_CHECKING:
    from .context import Context
    from .scheduler import Deferred

_STATUS: Final = {
    UR["UR_EVENT_STATUS_COMPLETE"]: "complete",
    UR["UR_EVENT_STATUS_RUNNING"]: "running",
    UR["UR_EVENT_STATUS_SUBMITTED"]: "submitted",
    UR["UR_EVENT_STATUS_QUEUED"]: "submitted",
}
_UNFINISHED: Final = frozenset(value for value, name in _STATUS.items() if name != "complete")
_ASK_STATUS: Final = UR["UR_EVENT_INFO_COMMAND_EXECUTION_STATUS"]

#: What `profiling` can be asked for: nanoseconds of the device's clock.
PROFILING: Final = {
    "queued": "UR_PROFILING_INFO_COMMAND_QUEUED",
    "submit": "UR_PROFILING_INFO_COMMAND_SUBMIT",
    "start": "UR_PROFILING_INFO_COMMAND_START",
    "end": "UR_PROFILING_INFO_COMMAND_END",
}
_REMEDY_RECORDED: Final = "wait for the event of the submission of the executable graph"
#: Makes a C function of a callback.
_CALLED_BY_C: Final = ctypes.CFUNCTYPE(None)


class Event(NeverCopied):
    """The end of a submission. `Event()` is complete from the start.

    Attributes:
        context: where its command runs, None for a complete one.
        handle: the adapter's event, 0 if there is none.
        deferred: the scheduler's entry until the adapter has the command, then None.
        others: events of the same submission.
        error: why the command failed or was not run, None if nothing has gone wrong so far.
        node: the graph's node that it was recorded as, else None.
        held: host memory that its command uses, which must live until it has ended.
        profiled: the events whose times count as its own, () for itself; or a text that says why it
            has none.
    """

    __slots__ = (
        "__weakref__",
        "context",
        "deferred",
        "error",
        "handle",
        "held",
        "node",
        "others",
        "profiled",
    )

    def __init__(self, context: Context | None = None, handle: int = 0) -> None:
        self.context = context
        self.handle = handle
        self.deferred: Deferred | None = None
        self.others: tuple[Event, ...] = ()
        self.error: BaseException | None = None
        self.node: Any = None
        self.held: Any = None
        self.profiled: Sequence[Event] | str = ()

    def parts(self) -> Iterator[Event]:
        """Yield the event and all that it stands for."""
        yield self
        for other in self.others:
            yield from other.parts()

    def wait(self) -> None:
        """Wait until the command, and everything that the event stands for, is complete.

        Raises:
            SYCLError: invalid, for an event of a graph's recording, where nothing runs.
            BaseException: what went wrong in the command, the first error of several.
        """
        if self.node is not None:
            raise make_invalid_error(
                "wait method cannot be used for an event associated with a command graph",
                routine="Event.wait",
                remedy=_REMEDY_RECORDED,
            )
        parts = tuple(self.parts())
        raise_any(wait_for_each(parts, lambda part: part._wait_alone()))
        for part in parts:  # one of them may hold what the others use
            part.held = None

    def _wait_alone(self) -> None:
        deferred = self.deferred
        if deferred is not None:
            if self.context is not None:
                self.context.adapter.check_open("Event.wait")
            deferred.wait()
        if self.error is not None:
            raise self.error
        if self.handle and self.context is not None:
            self.context.adapter.wait(
                "urEventWait",
                1,
                make_handle_array((self.handle,)),
                holder=self,
                detail="A command before this point has failed.",
            )

    @staticmethod
    def wait_all(events: Iterable[Any] | Event) -> None:
        """Wait for several events. PyOpenCL's are accepted too. Raises the first error."""

        def check(event: Any) -> Any:
            if not hasattr(event, "wait"):
                raise make_type_error(event, "Event", "Event.wait_all", "give events")
            return event

        listed = events if isinstance(events, Iterable) else (events,)
        raise_any(wait_for_each(map(check, listed), lambda event: event.wait()))

    @property
    def status(self) -> str:
        """ "submitted", "running" or "complete". Raises SYCLError (invalid) for an event of a
        graph's recording, or what went wrong."""
        if self.node is not None:
            raise make_invalid_error(
                "the status of an event associated with a command graph cannot be asked",
                routine="Event.status",
                remedy=_REMEDY_RECORDED,
            )
        found = {part._query_status() for part in self.parts()}
        return (
            found.pop()
            if len(found) == 1
            else "submitted"
            if found == {"submitted", "complete"} and not self.others
            else "running"
        )

    @property
    def done(self) -> bool:
        """Whether the command, and everything that the event stands for, is complete or has failed.

        Raises:
            SYCLError: invalid, for an event of a graph's recording; runtime, if the adapter was
                closed, or opened before this process was forked.
        """
        if self.node is not None:
            raise make_invalid_error(
                "whether an event associated with a command graph is complete cannot be asked",
                routine="Event.done",
                remedy=_REMEDY_RECORDED,
            )
        return all(part._is_done_alone() for part in self.parts())

    def _is_done_alone(self) -> bool:
        if self.deferred is not None:
            return False
        if self.error is not None or not self.handle or self.context is None:
            return True
        status, adapter = ctypes.c_int32(), self.context.adapter
        if not adapter.open:
            adapter.check_open("Event.done")
        ask = adapter.ur.urEventGetInfo
        return (
            ask(self.handle, _ASK_STATUS, 4, ctypes.byref(status), None) != 0
            or status.value not in _UNFINISHED
        )

    def _query_status(self) -> str:
        if self.deferred is not None:
            return self.deferred.status
        if self.error is not None:
            raise self.error
        if not self.handle or self.context is None:
            return "complete"
        value = self.context.adapter.info(
            "urEventGetInfo", self.handle, "UR_EVENT_INFO_COMMAND_EXECUTION_STATUS"
        )
        if value not in _STATUS:
            raise SYCLError(
                Errc.runtime,
                "its command has failed",
                routine="Event.status",
                remedy="wait for the event: it says why",
            )
        return _STATUS[value]

    def profiling(self, what: str) -> int:
        """Return a time of its command in ns of the device's clock. Of a graph's submission: the
        first start and the last end.

        Args:
            what: "queued", "submit", "start" or "end".

        Raises:
            SYCLError: invalid, for an event of a graph's recording; profiling, if its queue or its
                graph does not profile.
        """
        if what not in PROFILING:
            raise make_invalid_error(
                f"there is no profiling information {what!r}",
                routine="Event.profiling",
                remedy=f"one of {', '.join(PROFILING)}",
            )
        if self.node is not None:
            raise make_invalid_error(
                "Profiling information is unavailable for events returned from a submission to a "
                "queue in the recording state",
                routine="Event.profiling",
                remedy=_REMEDY_RECORDED,
            )
        if isinstance(self.profiled, str):
            raise SYCLError(
                Errc.profiling,
                self.profiled,
                routine="Event.profiling",
                remedy="finalize(enable_profiling=True), and a queue with profiling=True",
            )
        self.wait()
        parts = [part for part in (self.profiled or self.parts()) if part.handle]
        if not parts:
            raise SYCLError(
                Errc.profiling,
                "a host task has no profiling information",
                routine="Event.profiling",
                remedy="measure in the host task",
            )
        times = [part._query_time(PROFILING[what]) for part in parts]
        return max(times) if what == "end" else min(times)

    def _query_time(self, name: str) -> int:
        assert self.context is not None
        value = ctypes.c_uint64()
        adapter = self.context.adapter
        code = adapter.ur.urEventGetProfilingInfo(
            self.handle, UR[name], 8, ctypes.byref(value), None
        )
        adapter.check(code, "urEventGetProfilingInfo", remedy="make the queue with profiling=True")
        return value.value

    def add_callback(self, callback: Callable[[Event], object]) -> None:
        """Call `callback(event)` in another thread when the event is complete or has failed.

        What it raises goes to `sys.unraisablehook`, which prints it.
        """
        if not callable(callback):
            raise make_type_error(
                callback, "function", "Event.add_callback", "add_callback(lambda event: …)"
            )
        if self.node is not None:
            raise make_invalid_error(
                "an event associated with a command graph never completes",
                routine="Event.add_callback",
                remedy=_REMEDY_RECORDED,
            )
        from .scheduler import run_on_host

        # An exception that leaves a function which C calls goes to the hook.
        run_on_host(None, _CALLED_BY_C(lambda: callback(self)), (), [self])

    def to_pyopencl(self) -> Any:
        """Return a pyopencl.Event. Raises SYCLError (invalid) for no native event, or several."""
        import pyopencl

        if not self.handle or self.others or self.context is None:
            raise make_invalid_error(
                "it stands for no single event of the driver",
                routine="Event.to_pyopencl",
                remedy="wait for it instead",
            )
        native = self.context.adapter.obtain("urEventGetNativeHandle", self.handle)
        return pyopencl.Event.from_int_ptr(native, True)

    def __del__(self) -> None:
        if getattr(self, "handle", 0) and self.context is not None:
            adapter: RuntimeAdapter = self.context.adapter
            if adapter.open:
                adapter.ur.urEventRelease(self.handle)

    def __repr__(self) -> str:
        if self.node is not None:
            return f"<Event of {self.node}>"
        state = (
            "failed"
            if self.error
            else "waiting"
            if self.deferred
            else f"{self.handle:#x}"
            if self.handle
            else "done"
        )
        return f"<Event {state}>"


def is_interrupt(error: BaseException, event: Any) -> bool:
    """Whether a wait for an event has raised Ctrl-C, and not the error of a host task."""
    parts = event.parts() if isinstance(event, Event) else ()
    return isinstance(error, KeyboardInterrupt) and all(part.error is not error for part in parts)


def wait_for_each(events: Iterable[Any], wait: Callable[[Any], object]) -> BaseException | None:
    """Wait for each event. Returns the first error.

    Raises:
        KeyboardInterrupt: Ctrl-C, which ends the waits at once.
    """
    failed = None
    for event in events:
        try:
            wait(event)
        except BaseException as error:
            if is_interrupt(error, event):
                raise
            failed = failed or error
    return failed


def raise_any(error: BaseException | None) -> None:
    """Raise the error that a wait has returned, unless it is None."""
    if error is not None:
        raise error


class Unfinished:
    """Events that may be unfinished. Finished ones are dropped with the memory that they hold, at a
    constant cost for each.

    Attributes:
        error: the first error among those that were dropped.
    """

    def __init__(self) -> None:
        self._events: deque[Event] = deque()
        self._most = 64
        self.error: BaseException | None = None

    def add(self, event: Event) -> None:
        """Add an event."""
        if len(self._events) >= self._most:
            self.drop_done()
        self._events.append(event)

    def drop_first_done(self) -> None:
        """Drop finished events up to the first unfinished one."""
        while self._events:
            event = self._events.popleft()  # first: a finalizer may come here, too
            if not event.done:
                self._events.appendleft(event)
                return
            self._drop(event)

    def drop_done(self) -> None:
        """Drop all finished events."""
        for _ in range(len(self._events)):
            if not self._events:  # a finalizer has dropped the others
                break
            event = self._events.popleft()
            if event.done:
                self._drop(event)
            else:
                self._events.append(event)
        self._most = max(64, 2 * len(self._events))

    def _drop(self, event: Event) -> None:
        event.held = None
        self.error = self.error or next(
            (part.error for part in event.parts() if part.error is not None), None
        )

    def __iter__(self) -> Iterator[Event]:
        return iter(tuple(self._events))
