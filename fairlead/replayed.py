"""The end of a replay in which Python takes part: an event of PyOpenCL's that completes after the last host task.

Nothing but an OpenCL user event can stand for what Python does. There are two: the caller's queue goes on after `released` whatever becomes
of the replay, since some drivers never end a command that waits for a failed event; the event itself fails if the replay does.
"""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, Any, Final

import pyopencl

if TYPE_CHECKING:
    from .runtime.event import Event

_FAILED: Final = pyopencl.status_code.EXEC_STATUS_ERROR_FOR_EVENTS_IN_WAIT_LIST
_COMPLETE: Final = pyopencl.command_execution_status.COMPLETE


class ReplayedEvent(pyopencl.UserEvent):
    """Completes when a runtime event does; `wait` raises what went wrong before it. `released` completes at the same time in any case."""

    def __init__(self, context: Any, event: Event) -> None:
        super().__init__(context)
        self.released = pyopencl.UserEvent(context)
        self._error: BaseException | None = None
        self._raised = False
        event.add_callback(self._end)

    def _end(self, event: Event) -> None:
        try:
            event.wait()
        except BaseException as error:
            self._error = error
        self.set_status(_COMPLETE if self._error is None else _FAILED)
        self.released.set_status(_COMPLETE)

    def wait(self) -> None:
        """Wait until the replay has ended. Raises what a host task raised."""
        try:
            super().wait()
        except pyopencl.Error:
            if self._error is None:
                raise
        if self._error is not None:
            self._raised = True
            raise self._error

    def __del__(self) -> None:
        if self._error is not None and not self._raised:
            warnings.warn(f"a replay failed, and nobody waited for its event: {self._error!r}", RuntimeWarning, stacklevel=2)
