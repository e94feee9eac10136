"""Command-buffers of the adapter on Level Zero: recorded, finalized, enqueued.

A sync-point is the number of its command plus one; 0 means nothing. A command of a command-buffer
of any order signals an event of Level Zero, and waits for those of its sync-points. The commands of
an in-order command-buffer need none: its list is in-order.

An event that the program gets of a command is that event. If it is counter-based (event_kinds.py),
it stands for the last enqueue. Else the host resets it before each enqueue, and waits for the
enqueue before. (Unified Runtime: EXP-COMMAND-BUFFER 1.12.)
"""

from __future__ import annotations

import ctypes
import weakref
from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from typing import Any, Final

from ....loader.ze.abi import ZE, LevelZeroError
from ...sdk._native import ffi
from ...sdk.command_buffers import CommandBufferObject, declare_command_buffers
from ...sdk.conversions import failure
from ..captures import refuse_capture
from ..contexts import EventCell, LZContext
from ..core import adapter, make_handle_array
from ..device_info import list_updates
from ..devices import LZDevice
from ..event_kinds import EventUse
from ..events import LZEvent, find_span
from ..in_c import LZBufferInC
from ..memory import allocate_plain
from ..queues import LZQueue
from .paths import Submission, choose_path
from .records import CommandRecord, LaunchState, LZCommand, LZCommandList

_ENQUEUE: Final = "ENQUEUE_COMMAND_BUFFER_EXP"
_Times: Final = ZE.get_struct("ze_kernel_timestamp_result_t")


class LZCommandEvent(LZEvent):
    """The event of a command in a command-buffer. Each enqueue signals it anew.

    It does not keep the queue, which keeps the command-buffer while that runs.

    Attributes:
        buffer: a weak reference to the command-buffer.
        index: the number of the command.
    """

    def __init__(self, cell: EventCell, command: int, buffer: LZCommandBuffer, index: int) -> None:
        self._queue: Any = None
        super().__init__(cell, buffer.context, None, command)
        self.buffer, self.index = weakref.ref(buffer), index

    @property
    def queue(self) -> LZQueue | None:
        """Return the queue of the last enqueue, if there is one and it is alive."""
        return self._queue() if self._queue is not None else None

    @queue.setter
    def queue(self, queue: LZQueue | None) -> None:
        self._queue = weakref.ref(queue) if queue is not None else None


@adapter.kind
class LZCommandBuffer(CommandBufferObject):
    """A command-buffer for one device of a context.

    Attributes:
        commands: the handles of those that can be updated.
        lock: held while it is recorded, enqueued or updated.
        path: how it runs.
    """

    def __init__(
        self, context: LZContext, device: LZDevice, updatable: bool, in_order: bool, profiling: bool
    ) -> None:
        if updatable and not list_updates(device):
            raise failure("UNSUPPORTED_FEATURE", "the driver has no mutable command lists")
        super().__init__(context, device, updatable, in_order, profiling)
        self.records: list[CommandRecord] = []
        self.commands: list[LZCommand] = []
        self.signals: dict[int, LZCommandEvent]
        self.in_c = LZBufferInC()
        self.lock = self.in_c.lock
        self._around: LZQueue | None = None
        self._finalized = False
        copy_group = device.copy_group if not in_order else None
        is_plain = copy_group is None and not profiling
        kind, self._why = choose_path(device.platform, plain=is_plain)
        self.path = kind(context, device)
        how = {"in_order": in_order, "mutable": updatable}
        self.main = LZCommandList(context, device, device.compute_group, **how)
        self.path.begin(self.main)
        self.copies: LZCommandList | None = None
        if copy_group is not None:
            self.copies = LZCommandList(context, device, copy_group, **how)
            self.path.begin(self.copies)
        self._submission: Submission | None = None

    def get_native(self) -> int:
        return self.main.ze

    def describe_to_c(self) -> tuple[int, int, int, int]:
        return 0, self.in_c.number, *super().describe_to_c()[2:]

    # recording

    @property
    def length(self) -> int:
        return len(self.records)

    @property
    def is_finalized(self) -> bool:
        return self._finalized

    def find_predecessors(self, sync_points: Sequence[int]) -> tuple[int, ...]:
        return () if self.in_order else super().find_predecessors(sync_points)

    def list_ends(self, index: int) -> list[EventCell]:
        """Return what is signaled when a command has ended."""
        record = self.records[index]
        return [record.cell] if record.cell is not None else self.list_waits(record)

    def list_waits(self, record: CommandRecord) -> list[EventCell]:
        """Return what a command waits for, each once."""
        cells = [cell for index in record.after for cell in self.list_ends(index)]
        return list({cell.ze: cell for cell in (*cells, *record.outside)}.values())

    def take_cell(self) -> EventCell:
        """Return what a command signals. Raises LevelZeroError."""
        use = EventUse.REGULAR_LIST if self.in_order else EventUse.ANY
        return self.context.take_cell(self.profiling, use)

    def add(
        self,
        routine: str,
        arguments: tuple[Any, ...],
        record: CommandRecord,
        *,
        kernels: Sequence[int] = (),
        copies: bool = False,
    ) -> None:
        """Append a command.

        Args:
            routine: the function of Level Zero, "" for a place in the order.
            arguments: what it takes between the list and the event.
            record: the command, which is completed.
            kernels: the kernels that it may launch, if that can be changed.
            copies: whether a queue that only copies can run it.
        """
        if routine:
            made = self.copies if copies and self.copies is not None else self.main
            needs = not self.in_order or record.exported or self.profiling
            record.cell = self.take_cell() if needs else None
            if record.exported and record.cell is not None:
                record.cell.signal()  # it is complete before the first enqueue
            if self.updatable:
                record.identifier = made.identify(kernels, record.launch is not None)
            waits = self.list_waits(record)
            made.append(routine, *arguments, signal=record.cell, waits=waits)
            record.list = made
        self.records.append(record)

    def finalize(self) -> None:
        """Complete the command-buffer: nothing can be appended any more, and it can be enqueued."""
        with self.lock:
            self.check_open()
            if all(record.list is not self.copies for record in self.records):
                self.copies = None
            inner = [record.cell for record in self.records if not record.exported]
            cells = [cell for cell in inner if cell is not None]
            self.path.finish(self.main, self.copies, cells)
            self.in_c.struct.list = self.main.ze
            self._finalized = True

    # running

    def _read_enqueues_of_c(self) -> None:
        """Take over the enqueues that C has made. Raises LevelZeroError."""
        if self._around is not None and self.in_c.struct.pending:
            self.in_c.struct.pending = 0
            end = self._around.get_end_of_c()
            self._submission = Submission(end) if end is not None else None
            self.path.note_end(end)

    def _allow_enqueues_in_c(self, queue: LZQueue) -> None:
        """Let C enqueue the command-buffer again on the queue of its last enqueue, if C can."""
        can = self.path.is_one_append and not self.signals and not queue.profiles
        self._around = queue.helper if can else None
        if self._around is None:
            self.in_c.struct.around = ffi.NULL
        else:
            self.in_c.struct.around = self._around.in_c.struct
            self.context.add_events_for_c()

    def settle(self) -> None:
        """Wait until the last enqueue has ended. Raises LevelZeroError if it has failed."""
        self._read_enqueues_of_c()
        submission, self._submission = self._submission, None
        if submission is not None:
            submission.settle()

    def enqueue(self, queue: LZQueue, waits: Sequence[LZEvent], wanted: bool) -> LZEvent | None:
        self.check_queue(queue)
        refuse_capture(queue, "run a command-buffer", waits)
        before = queue.list_cells(waits)
        with self.lock:
            resets = any(not event.cell.counts for event in self.signals.values())
            if resets or self.path.name == "wait-event":
                self.settle()
            for event in self.signals.values():
                event.queue = queue
                event.cell.reset()
            self._read_enqueues_of_c()
            event = queue.make_event(_ENQUEUE)
            rows, query = self._query(queue)
            self._submission = self.path.enqueue(queue, before, event.cell, query, self)
            self._allow_enqueues_in_c(queue)
            if rows is not None:
                event.span = partial(find_span, rows, self.device)
        return event if wanted else None

    def _query(self, queue: LZQueue) -> tuple[Any, Any]:
        """Return where the times of an execution are written, and how to ask for them."""
        cells = [record.cell for record in self.records if record.cell is not None]
        if not (self.profiling and queue.profiles and cells):
            return None, None
        events = len(cells), make_handle_array([cell.ze for cell in cells])
        rows = self._allocate_times(queue, len(cells))
        return rows, (*events, ctypes.addressof(rows), None)

    def _allocate_times(self, queue: LZQueue, count: int) -> Any:
        """Return room for the times of so many commands, which the driver writes."""
        kind, context = _Times * count, self.context  # which has to live longer than its memory
        if not queue.device.access.hostAllocCapabilities:
            return kind()  # fairlead's driver takes any address of the host
        address = allocate_plain(context, ctypes.sizeof(kind), None)
        rows = kind.from_address(address)

        def free() -> None:
            context.table.zeMemFree(context.ze, address)

        weakref.finalize(rows, free).atexit = False
        return rows

    def explain(self, queue: Any = None) -> str:
        lists = "a list of commands" if self.copies is None else "lists of kernels and of copies"
        order = "in order" if self.in_order else "by events"
        if self.profiling or not self.in_order:
            what = "it is profiled" if self.profiling else "only in-order lists have others"
            events = f"regular events, because {what}"
        else:
            events = str(self.context.events)
        count, why = len(self.records), self._why
        return f"{count} commands: {self.path.name}, because {why}; {lists}, {order}; {events}"

    # updates

    def update_waits(self, record: CommandRecord) -> None:
        """Tell the driver again what a command waits for. Raises URError, LevelZeroError."""
        if record.list is None:
            for other in self.records:
                if record.index in other.after:
                    self.update_waits(other)
            return
        if not record.identifier:
            raise failure("UNSUPPORTED_FEATURE", "the driver cannot change this command's events")
        cells = self.list_waits(record)
        given = record.identifier, len(cells), make_handle_array([cell.ze for cell in cells])
        record.list.change("zeCommandListUpdateMutableCommandWaitEventsExp", *given)

    def close_lists(self) -> None:
        """Make changes. Raises LevelZeroError."""
        for made in (self.main, self.copies):
            if made is not None and made.is_changed:
                made.close()

    def handle_ends(self) -> None:
        """Drop the queue of the last enqueue, which keeps the command-buffer while that runs."""
        around = self._around if self.in_c.struct.pending else None
        if around is not None and around.keep((self.main, self.records, self.path)):
            self.in_c.struct.pending, self._submission = 0, None
        else:
            with suppress(LevelZeroError):  # the queue's next wait says what is wrong
                self._read_enqueues_of_c()
        self.in_c.struct.around, self._around = ffi.NULL, None

    def close(self) -> None:
        registry = adapter.registry
        if registry is not None:
            for command in self.commands:
                registry.forget(command)
        try:
            self.settle()
        except LevelZeroError as error:  # nobody could handle it
            adapter.log("warning", f"a command-buffer was released whose run had failed: {error}")


def get_launch_state(record: CommandRecord) -> LaunchState:
    """Return what a command launches. Raises URError for a command that is not a launch."""
    if record.launch is None:
        raise failure("INVALID_COMMAND_BUFFER_COMMAND_HANDLE_EXP", "the command is not a launch")
    return record.launch


declare_command_buffers(adapter, LZCommandBuffer)
