"""Changes of a command-buffer: all of a change, or nothing.

A change does not affect what was enqueued, because OpenCL takes a kernel's arguments when a launch
is enqueued. Where a driver's command-buffer must not be changed before its end, the change waits.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, suppress
from typing import Any

from ...loader.base.forks import make_lock
from .._native import ffi, lib
from ..calls import call, find_device_profile, get_address, query_device, query_properties
from ..errors import OpenCLError, error
from .builds import Builds
from .cells import Cells
from .choice import Choice, choose
from .commands import CommandList
from .edits import copy_command, put
from .engine import Built, QueueKind
from .lifetimes import Lifetimes
from .routes import Route
from .waiting import wait


class Changeable:
    """Commands that can be changed, what engines have built of them, and the last enqueue.

    Args:
        commands, choice, given: see `CommandBuffer`.
    """

    def __init__(
        self, commands: CommandList, choice: Choice | None = None, given: Built | None = None
    ) -> None:
        self._commands = commands
        #: Held by Python threads that enqueue or change it. C looks at `busy` (native/busy.h).
        self.lock = make_lock()
        self._choice = choice or choose()
        self._builds = Builds(commands, self._choice, given, self.lock)
        self._route: Route | None = None
        self._again: Route | None = None

    @property
    def native(self) -> Any:
        """The command-buffer as C knows it, an `fl_buffer *`, for updates in C."""
        return self._builds.native

    @property
    def last_event(self) -> int:
        """The event of the last enqueue, 0 if there was none. The reference stays here, until the
        next enqueue."""
        return get_address(self.native.last_event)

    @property
    def enqueued(self) -> int:
        """How often it was enqueued, or run until a word was set.

        Ctrl-C may come before that returns, but not before this counts it."""
        return self.native.enqueued

    def keep(self, lifetimes: Lifetimes, things: Any) -> None:
        """Keep things until the last enqueue has ended, although another thread may make the
        next."""
        with self.block_updates():
            event = self.last_event
            if event:
                call(event, "clRetainEvent")
        lifetimes.keep_until(event, things)
        if event:
            call(event, "clReleaseEvent")

    def _find_kind(self, queue: int) -> QueueKind:
        return QueueKind(self._commands.context, query_device(queue), query_properties(queue))

    def block_updates(self) -> AbstractContextManager[None]:
        """Block updates in C and in other threads for the length of a block.

        Nothing is enqueued in it.
        """
        return self._builds.block_updates()

    def change(
        self, numbers: Sequence[int], change: Callable[[], Mapping[int, bool]], routine: str
    ) -> None:
        """Change commands: all of them or, if anything fails, none. What was enqueued does not
        change.

        Args:
            numbers: the commands that may change.
            change: changes them in the array. Returns those that it changed, and whether each
                launches another kernel now.
            routine: the function that an error names.

        Raises:
            OpenCLError: an engine refuses it, and nothing has changed.
        """
        with self.block_updates():
            self._wait_for_updates()
            before = {number: copy_command(self._commands.array + number) for number in numbers}
            changed: Mapping[int, bool] = dict.fromkeys(before, True)
            try:
                changed = change()
                code = self._tell(changed)
                if code:
                    raise error(code, routine, "Nothing has changed.")
            except BaseException:
                for number, command in before.items():
                    put(self._commands.array + number, command)
                self._tell(changed)
                raise

    def set_cells(self, cells: Cells) -> None:
        """Let cells take what was staged in their rows. What was enqueued does not change.

        No other Python thread may change or enqueue it meanwhile.

        Raises:
            OpenCLError: an engine refuses it.
        """
        code = lib.fl_set_cells(self._builds.native, cells.rows, cells.count)
        if code == lib.FL_PYTHON_UPDATES:
            changed = cells.list_pending()
            self._wait_for_updates()
            code = lib.fl_store_cells(self.native, cells.rows, cells.count)
            code = code or self._tell(dict.fromkeys(changed, False))
        if code:
            raise error(code, "set", "An engine refused the new values.")

    def _tell(self, changes: Mapping[int, bool]) -> int:
        if self.native.python_updates:
            with self.block_updates():
                self._route = None  # what it leads to may be gone
                self._again, self.native.again = None, ffi.NULL
        return self._builds.tell(changes)

    def _wait_for_updates(self) -> None:
        """Wait for the last enqueue if a driver's command-buffer must not be updated before its
        end."""
        if self.native.python_updates and self._builds.updates_wait and self.last_event:
            with self.block_updates():  # not by C, which would wait for the end of the changes
                self._again, self.native.again = None, ffi.NULL
            self._wait_for_last()

    def _wait_for_last(self) -> None:
        """Wait for the last enqueue, of which there is one."""
        kind = self._find_kind(get_address(self.native.last_queue))
        profile = find_device_profile(kind.device)
        with suppress(OpenCLError):  # whatever became of its commands
            wait(self.last_event, kind.in_order, profile.waits_one_at_a_time)
