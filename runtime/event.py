"""Events: what a submission gives, to be waited for, asked, and depended on.

An event is at first *deferred* if its command cannot be given to the adapter yet, because it comes after a host task, an open host
accessor, or something of another context; `deferred` is then the scheduler's entry for it. Once the command is with the adapter,
`handle` is its event there. A host task's event has no handle. The event of a graph's submission stands for several: `others`
must be complete too. An event that was recorded into a graph has a `node`, and nothing can be waited for.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

from ..loader.ur import UR
from .errors import Errc, SYCLError, check, invalid
from .handles import Adapter, array

if TYPE_CHECKING:
    from .context import Context
    from .scheduler import Deferred

_STATUS: Final = {
    UR["UR_EVENT_STATUS_COMPLETE"]: "complete",
    UR["UR_EVENT_STATUS_RUNNING"]: "running",
    UR["UR_EVENT_STATUS_SUBMITTED"]: "submitted",
    UR["UR_EVENT_STATUS_QUEUED"]: "submitted",
}
#: What `profiling` can be asked for: nanoseconds of the device's clock.
PROFILING: Final = {
    "queued": "UR_PROFILING_INFO_COMMAND_QUEUED",
    "submit": "UR_PROFILING_INFO_COMMAND_SUBMIT",
    "start": "UR_PROFILING_INFO_COMMAND_START",
    "end": "UR_PROFILING_INFO_COMMAND_END",
}
_REMEDY_RECORDED: Final = "wait for the event of the submission of the executable graph"


class Event:
    """The end of a submission. `Event()` is one that is complete from the start.

    Attributes:
        context: where its command runs, None for a complete one.
        handle: the adapter's event, 0 if there is none (yet).
        deferred: the scheduler's entry while the command waits to be given to the adapter, None otherwise.
        others: events that belong to the same submission.
        error: why the command was not run, or failed; None if all is well so far.
        node: the graph's node that it was recorded as, None otherwise.
        profiled: the events whose times count as its own, () for itself; or why it has none.
    """

    __slots__ = ("__weakref__", "context", "deferred", "error", "handle", "node", "others", "profiled")

    def __init__(self, context: Context | None = None, handle: int = 0) -> None:
        self.context = context
        self.handle = handle
        self.deferred: Deferred | None = None
        self.others: tuple[Event, ...] = ()
        self.error: BaseException | None = None
        self.node: Any = None
        self.profiled: tuple[Event, ...] | str = ()

    def parts(self) -> Iterator[Event]:
        """Itself and all that it stands for."""
        yield self
        for other in self.others:
            yield from other.parts()

    def wait(self) -> None:
        """Wait until its command, and everything that it stands for, is complete. Raises what went wrong in it.

        Raises SYCLError (invalid) for an event of a graph's recording: nothing has run.
        """
        if self.node is not None:
            raise invalid(
                "wait method cannot be used for an event associated with a command graph",
                routine="Event.wait",
                remedy=_REMEDY_RECORDED,
            )
        for part in self.parts():
            part._settle()

    def _settle(self) -> None:
        deferred = self.deferred
        if deferred is not None:
            deferred.wait()
        if self.error is not None:
            raise self.error
        if self.handle and self.context is not None:
            self.context.adapter.call("urEventWait", 1, array((self.handle,)), detail="A command before this point has failed.")

    @staticmethod
    def wait_all(events: Iterable[Event]) -> None:
        """Wait for several events."""
        for event in events:
            event.wait()

    @property
    def status(self) -> str:
        """ "submitted", "running" or "complete". Raises SYCLError (invalid) for an event of a graph's recording, or what went wrong."""
        if self.node is not None:
            raise invalid(
                "the status of an event associated with a command graph cannot be asked",
                routine="Event.status",
                remedy=_REMEDY_RECORDED,
            )
        found = {part._own_status() for part in self.parts()}
        return (
            found.pop()
            if len(found) == 1
            else "submitted"
            if found == {"submitted", "complete"} and not self.others
            else "running"
        )

    def _own_status(self) -> str:
        if self.deferred is not None:
            return self.deferred.status
        if self.error is not None:
            raise self.error
        if not self.handle or self.context is None:
            return "complete"
        value = self.context.adapter.info("urEventGetInfo", self.handle, "UR_EVENT_INFO_COMMAND_EXECUTION_STATUS")
        if value not in _STATUS:
            raise SYCLError(
                Errc.runtime, "its command has failed", routine="Event.status", remedy="wait for the event: it says why"
            )
        return _STATUS[value]

    def profiling(self, what: str) -> int:
        """When its command was "queued", submitted ("submit"), began ("start") and ended ("end"), in ns of the device's clock.

        Of a graph's submission: the first start and the last end of its commands. Raises SYCLError (invalid) for an event of a graph's
        recording, (profiling) if its queue, or the graph, does not profile.
        """
        if what not in PROFILING:
            raise invalid(
                f"there is no profiling information {what!r}",
                routine="Event.profiling",
                remedy=f"one of {', '.join(PROFILING)}",
            )
        if self.node is not None:
            raise invalid(
                "Profiling information is unavailable for events returned from a submission to a queue in the recording state",
                routine="Event.profiling", remedy=_REMEDY_RECORDED,
            )  # fmt: skip
        if isinstance(self.profiled, str):
            raise SYCLError(Errc.profiling, self.profiled, routine="Event.profiling",
                            remedy="finalize(enable_profiling=True), and a queue with profiling=True")  # fmt: skip
        self.wait()
        parts = [part for part in (self.profiled or tuple(self.parts())) if part.handle]
        if not parts:
            raise SYCLError(
                Errc.profiling,
                "a host task has no profiling information",
                routine="Event.profiling",
                remedy="measure in the host task",
            )
        times = [part._time(PROFILING[what]) for part in parts]
        return max(times) if what == "end" else min(times)

    def _time(self, name: str) -> int:
        assert self.context is not None
        value = ctypes.c_uint64()
        adapter = self.context.adapter
        code = adapter.ur.urEventGetProfilingInfo(self.handle, UR[name], 8, ctypes.byref(value), None)
        check(code, "urEventGetProfilingInfo", remedy="make the queue with profiling=True")
        return value.value

    def add_callback(self, callback: Callable[[Event], object]) -> None:
        """Have `callback(event)` called, in another thread, when it is complete or has failed."""
        if self.node is not None:
            raise invalid(
                "an event associated with a command graph never completes",
                routine="Event.add_callback",
                remedy=_REMEDY_RECORDED,
            )
        from .scheduler import in_worker

        in_worker(lambda: self._tell(callback))

    def _tell(self, callback: Callable[[Event], object]) -> None:
        with suppress(Exception):  # whoever waits is told; a callback is called all the same, as OpenCL's are
            self.wait()
        callback(self)

    def to_pyopencl(self) -> Any:
        """As a pyopencl.Event. Raises SYCLError (invalid) if there is no native event (yet)."""
        import pyopencl

        if not self.handle or self.others or self.context is None:
            raise invalid(
                "it stands for no single event of the driver", routine="Event.to_pyopencl", remedy="wait for it instead"
            )
        native = self.context.adapter.made("urEventGetNativeHandle", self.handle)
        return pyopencl.Event.from_int_ptr(native, True)

    def __del__(self) -> None:
        if self.handle and self.context is not None:
            adapter: Adapter = self.context.adapter
            if adapter.open:
                adapter.ur.urEventRelease(self.handle)

    def __repr__(self) -> str:
        if self.node is not None:
            return f"<Event of {self.node}>"
        state = "failed" if self.error else "waiting" if self.deferred else f"{self.handle:#x}" if self.handle else "done"
        return f"<Event {state}>"
