"""The paths by which a command-buffer runs on Level Zero.

A command-buffer is a regular command list, and a second one for copies where the device has queues
that only copy. Level Zero executes lists without a wait list and without an event. So events stand
around them: WaitEvent begins them, ExecutionFinished ends them, AllReset says that the events of
the commands are ready for the next execution.

- *wait-event*: zeCommandQueueExecuteCommandLists. A prefix signals WaitEvent. A list of its own
  resets events before. A suffix waits for ExecutionFinished and signals the caller's event. The
  next enqueue waits on the host until this one has ended.
- *immediate-append*: zeCommandListImmediateAppendCommandListsExp has a wait list and an event. The
  list that resets events is appended behind. Nobody waits on the host, because AllReset divides one
  execution from the next.
- *one-append*: the same function, once. One list without times resets its events at its own end.
  Executions come after each other, so that nothing stands around them.

FAIRLEAD_ZE_COMMAND_BUFFER chooses one of the first two, which are those of the design. By default
it is the last one that the driver and the command-buffer allow.

(The design of SYCL-Graph: "Level Zero"; docs/level_zero_adapter.md.)
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple, Protocol

from ....loader.base.search import filter_environ
from ....loader.ze.abi import ZE
from ...sdk.conversions import failure
from ..contexts import EventCell, LZContext
from ..core import call, make_handle_array
from ..devices import LZDevice
from ..platforms import LZPlatform
from ..queues import BARRIER, LZQueue
from ..regular_queues import Fence
from .records import LZCommandList

VARIABLE: Final = "FAIRLEAD_ZE_COMMAND_BUFFER"
_APPEND: Final = "zeCommandListImmediateAppendCommandListsExp"
_RESET: Final = "zeCommandListAppendEventReset"


class Submission(NamedTuple):
    """An execution that may run.

    Attributes:
        end: what is signaled at its end.
        fences: what the queues signal after the lists.
    """

    end: EventCell
    fences: tuple[Fence, ...] = ()

    def settle(self) -> None:
        """Wait for the submission's end. Raises LevelZeroError if it has failed."""
        self.end.wait()
        for fence in self.fences:
            fence.wait()


class CommandBufferPath(Protocol):
    """A path by which a command-buffer runs.

    Attributes:
        name: its name in `VARIABLE`.
        is_one_append: whether an execution is one append, without events around it.
    """

    name: str
    is_one_append: bool

    def begin(self, made: LZCommandList) -> None:
        """Append what comes before the first command of a list."""
        ...

    def finish(
        self, main: LZCommandList, copies: LZCommandList | None, cells: Sequence[EventCell]
    ) -> None:
        """Append what comes behind the last commands, and close the lists.

        Args:
            main: the list of kernels, or of everything.
            copies: the list of copies, if there is one.
            cells: what the commands signal, except for the program's own events.
        """
        ...

    def enqueue(
        self, queue: LZQueue, waits: Sequence[EventCell], end: EventCell, query: Any, keep: Any
    ) -> Submission:
        """Execute the lists, and return the execution.

        Args:
            end: what is signaled at its end.
            query: arguments of zeCommandListAppendQueryKernelTimestamps, None without profiling.
            keep: what has to live until then.
        """
        ...

    def note_end(self, end: EventCell | None) -> None:
        """Keep the event that is signaled after all executions by C, None if they have ended."""
        ...


class _Path:
    """What two paths have in common: the events around the lists."""

    name, is_one_append = "", False

    def __init__(self, context: LZContext, device: LZDevice) -> None:
        self.finished, self.all_reset, self.copied = (context.take_cell() for _ in range(3))
        self.main: LZCommandList | None = None
        self.copies: LZCommandList | None = None
        self.resets = LZCommandList(context, device, device.compute_group)

    def note_end(self, end: EventCell | None) -> None:
        """Do nothing: C executes no lists of this path."""

    def _end_copies(self) -> list[EventCell]:
        """End the list of copies. Returns what the main list waits for."""
        if self.copies is None:
            return []
        self.copies.append_barrier()
        self.copies.append_barrier(signal=self.copied)
        self.copies.close()
        return [self.copied]

    def _reset(self, cells: Sequence[EventCell]) -> None:
        """Append the resets of the events that an execution signals."""
        own = [self.finished, *([self.copied] if self.copies is not None else [])]
        self.resets.reset(*own, *cells)


class WaitEventPath(_Path):
    """The path by zeCommandQueueExecuteCommandLists."""

    name = "wait-event"

    def __init__(self, context: LZContext, device: LZDevice) -> None:
        super().__init__(context, device)
        self.wait = context.take_cell()

    def begin(self, made: LZCommandList) -> None:
        """Append the barrier that waits for the prefix and for the resets."""
        made.append_barrier(waits=[self.all_reset, self.wait])

    def finish(
        self, main: LZCommandList, copies: LZCommandList | None, cells: Sequence[EventCell]
    ) -> None:
        """Append the signal of ExecutionFinished, and make the list that resets events."""
        self.main, self.copies = main, copies
        self._reset(cells)
        call(self.resets.table, "zeCommandListAppendSignalEvent", self.resets.ze, self.all_reset.ze)
        waits = self._end_copies()
        main.append_barrier()
        main.append_barrier(signal=self.finished, waits=waits)
        self.resets.close()
        main.close()

    def enqueue(
        self, queue: LZQueue, waits: Sequence[EventCell], end: EventCell, query: Any, keep: Any
    ) -> Submission:
        """Execute the lists between prefix and suffix."""
        assert self.main is not None
        around = queue.helper
        with around.lock:
            if waits or (queue.in_order and not queue.is_idle):
                around.append(BARRIER, waits=waits, cell=self.wait, reset_later=True)
            else:
                self.wait.signal()
            fences = [self._execute(queue, self.resets), self._execute(queue, self.main)]
            if self.copies is not None:
                fences.append(self._execute(queue, self.copies))
            around.append(BARRIER, waits=[self.all_reset])
            around.append(BARRIER, waits=[self.finished])
            for cell in (self.wait, self.all_reset):
                call(around.table, _RESET, around.ze, cell.ze)
            if query is not None:
                around.append("zeCommandListAppendQueryKernelTimestamps", *query)
            around.append(BARRIER, cell=end, keep=keep)
        return Submission(end, tuple(fences))

    def _execute(self, queue: LZQueue, made: LZCommandList) -> Fence:
        """Execute a list, and return the fence that is signaled after it."""
        return queue.get_regular(made.group).execute(made.ze)


class ImmediateAppendPath(_Path):
    """The path by zeCommandListImmediateAppendCommandListsExp."""

    name = "immediate-append"

    def begin(self, made: LZCommandList) -> None:
        """Append the barrier that waits until the execution before has reset its events."""
        made.append_barrier(waits=[self.all_reset])

    def finish(
        self, main: LZCommandList, copies: LZCommandList | None, cells: Sequence[EventCell]
    ) -> None:
        """Append the reset of AllReset, and make the list that resets the other events."""
        self.main, self.copies = main, copies
        self.resets.append_barrier(waits=[self.finished])
        self._reset(cells)
        self.resets.append_barrier(signal=self.all_reset)
        waits = self._end_copies()
        main.append_barrier(waits=waits)
        main.reset(self.all_reset)
        self.resets.close()
        main.close()
        self.all_reset.signal()

    def enqueue(
        self, queue: LZQueue, waits: Sequence[EventCell], end: EventCell, query: Any, keep: Any
    ) -> Submission:
        """Append the lists to the queue."""
        assert self.main is not None
        around = queue.helper
        with around.lock:
            if self.copies is not None:
                begun = queue.context.take_cell()
                around.append(BARRIER, waits=waits, cell=begun)
                queue.get_copy_queue(self.copies.group.ordinal).append(
                    _APPEND, 1, make_handle_array([self.copies.ze]), waits=[begun], keep=keep
                )
            last = end if query is None else None
            around.append(_APPEND, 1, make_handle_array([self.main.ze]), waits=waits, cell=last)
            if query is not None:
                around.append("zeCommandListAppendQueryKernelTimestamps", *query, cell=end)
            around.append(BARRIER, cell=self.finished, reset_later=True)
            around.append(_APPEND, 1, make_handle_array([self.resets.ze]), keep=keep)
        return Submission(end)


class OneAppendPath:
    """The path by one zeCommandListImmediateAppendCommandListsExp.

    It is for one list. Nobody asks for the times of its commands, which would be gone at its end.
    """

    name, is_one_append = "one-append", True

    def __init__(self, context: LZContext, device: LZDevice) -> None:
        self.main: LZCommandList | None = None
        self._before: EventCell | None = None
        self._around: Callable[[], LZQueue | None] = lambda: None

    def begin(self, made: LZCommandList) -> None:
        """Append nothing."""

    def finish(
        self, main: LZCommandList, copies: LZCommandList | None, cells: Sequence[EventCell]
    ) -> None:
        """Append the resets, and close the list."""
        assert copies is None
        self.main = main
        if cells:
            main.append_barrier()
            main.reset(*cells)
            main.append_barrier()
        main.close()

    def enqueue(
        self, queue: LZQueue, waits: Sequence[EventCell], end: EventCell, query: Any, keep: Any
    ) -> Submission:
        """Append the list to the queue, behind the execution before."""
        assert self.main is not None
        around = queue.helper
        if self._before is not None and self._around() is not around:
            waits = [*waits, self._before]
        around.append(
            _APPEND, 1, make_handle_array([self.main.ze]), waits=waits, cell=end, keep=keep
        )
        self._before, self._around = end, weakref.ref(around)
        return Submission(end)

    def note_end(self, end: EventCell | None) -> None:
        """Keep the end of what C has enqueued on the last queue."""
        self._before = end


def choose_path(
    platform: LZPlatform, *, plain: bool = False
) -> tuple[Callable[[LZContext, LZDevice], CommandBufferPath], str]:
    """Return how command-buffers run on a platform, and why.

    Args:
        plain: whether there is one list, and nobody asks for the times of its commands.

    Raises:
        URError: INVALID_VALUE for an unknown value of `VARIABLE`, UNSUPPORTED_FEATURE for a path
            that the driver does not have.
    """
    wanted = filter_environ().get(VARIABLE, "").strip().lower()
    can = ZE.strings["ZE_IMMEDIATE_COMMAND_LIST_APPEND_EXP_NAME"] in platform.extensions
    if wanted == WaitEventPath.name:
        return WaitEventPath, f"{VARIABLE} says so"
    if wanted == ImmediateAppendPath.name:
        if not can:
            raise failure("UNSUPPORTED_FEATURE", f"the driver has no {_APPEND}")
        return ImmediateAppendPath, f"{VARIABLE} says so"
    if wanted not in ("", "auto"):
        raise failure(
            "INVALID_VALUE", f"{VARIABLE}={wanted}: it may be auto, wait-event, immediate-append"
        )
    if can:
        append = OneAppendPath if plain else ImmediateAppendPath
        return append, f"the driver has {_APPEND}"
    return WaitEventPath, f"the driver has no {_APPEND}"
