"""The end of a replay with host tasks: an event of PyOpenCL that completes after the last host
task.

Only an OpenCL user event can stand for what Python does. There are two. The caller's queue waits
for `released`, which completes even if the replay fails: some drivers never end a command that
waits for a failed event. The returned event fails if the replay does.
"""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, Any, Final

import pyopencl

from ..icd.calls import call
from ..runtime.event import Event
from .segment import make_event

if TYPE_CHECKING:
    from ..runtime.context import Context

_FAILED: Final = pyopencl.status_code.EXEC_STATUS_ERROR_FOR_EVENTS_IN_WAIT_LIST
_COMPLETE: Final = pyopencl.command_execution_status.COMPLETE
_BEGINS: Final = {
    getattr(pyopencl.profiling_info, name.upper()): name for name in ("queued", "submit", "start")
}
_ENDS: Final = (pyopencl.profiling_info.END, pyopencl.profiling_info.COMPLETE)


class _ReplayOutcome:
    """The result of a replay, for the code that ends it.

    It does not refer to the event, which may be dropped before.
    """

    def __init__(self, ended: int, released: Any) -> None:
        self._ended, self._released = ended, released
        call(ended, "clRetainEvent")
        self.error: BaseException | None = None
        self.is_known = False  # the program has seen the error, or been warned
        self.is_dropped = False

    def end(self, event: Event) -> None:
        """Complete the OpenCL events after the runtime's event, which has completed or failed."""
        try:
            event.wait()
        except BaseException as error:
            self.error = error
        call(self._ended, "clSetUserEventStatus", _COMPLETE if self.error is None else _FAILED)
        call(self._ended, "clReleaseEvent")
        self._released.set_status(_COMPLETE)
        if self.is_dropped:
            self.warn()

    def warn(self) -> None:
        """Warn of an error that nobody will see any more."""
        if self.error is not None and not self.is_known:
            self.is_known = True
            warnings.warn(
                f"a replay failed, and nobody waited for its event: {self.error!r}",
                RuntimeWarning,
                stacklevel=3,
            )


class ReplayedEvent(pyopencl.UserEvent):
    """Completes when a runtime event does. `wait` raises what went wrong before it.

    `released` completes at the same time, also after a failure. `profile.start` is that of the
    first command, by the runtime event `first`, and `profile.end` that of the last one.
    """

    def __init__(self, context: Any, event: Event, first: Event | None = None) -> None:
        super().__init__(context)
        self.released = pyopencl.UserEvent(context)
        self._times = None if first is None else (first, event)
        self._outcome = _ReplayOutcome(self.int_ptr, self.released)
        event.add_callback(self._outcome.end)

    def wait(self) -> None:
        """Wait until the replay has ended. Raises what a host task raised."""
        outcome = self._outcome
        try:
            super().wait()
        except pyopencl.Error:
            if outcome.error is None:
                raise
        if outcome.error is not None:
            outcome.is_known = True
            raise outcome.error

    def get_profiling_info(self, param: Any) -> Any:
        """Return a time in ns, as of any pyopencl.Event, after waiting for the replay."""
        if self._times is None:
            return super().get_profiling_info(param)
        self.wait()
        first, last = self._times
        return last.profiling("end") if param in _ENDS else first.profiling(_BEGINS[param])

    def __del__(self) -> None:
        if "_outcome" in self.__dict__:  # it was made to its end
            self._outcome.is_dropped = True
            self._outcome.warn()


class EndedLoop(pyopencl.UserEvent):
    """The event of a loop that has ended by itself or by its number of replays.

    Attributes:
        replays: how often the graph was replayed.
        has_stopped: whether its flag was set.
    """

    def __init__(self, context: Any, replays: int, has_stopped: bool) -> None:
        super().__init__(context)
        self.replays, self.has_stopped = replays, has_stopped
        self.set_status(_COMPLETE)


def make_end(queue: Any, ends: tuple[int, int], context: Context | None = None) -> Any:
    """Return the event of a replay.

    Args:
        queue: a pyopencl.CommandQueue.
        ends: the native events of its end and of its first command (0: none), references.
        context: the runtime's, if the event is to have the times of both.
    """
    end, first = ends
    if first and context is not None:
        began, ended = (Event(context, make_event(one, context)) for one in (first, end))
        return ReplayedEvent(queue.context, ended, began)
    if first:
        call(first, "clReleaseEvent")
    return pyopencl.Event.from_int_ptr(end, False)
