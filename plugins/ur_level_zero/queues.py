"""Queues of the adapter on Level Zero: an immediate command list each.

An in-order queue is an in-order list. In other lists commands have the order of their events and
barriers.

Level Zero wants everything that a command uses to live until the command has ended. Programs may
release it earlier. So a queue keeps what its commands use until it knows that they have ended: an
event that they signal says so (`_InFlight`). A queue that is released before that is kept likewise
(unfinished_queues.py).
"""

from __future__ import annotations

import ctypes
from collections import deque
from collections.abc import Sequence
from typing import Any, Final, NamedTuple
from weakref import WeakValueDictionary

from ...loader.ur.abi import UR
from ..sdk._native import ffi, lib
from ..sdk.captures import find_capture
from ..sdk.queues import declare_queues
from .captures import LZCapture, refuse_capture
from .contexts import EventCell, LZContext
from .core import ZE, LZObject, adapter, call, create, is_owned, make_handle_array, make_struct
from .devices import LZDevice, QueueGroup
from .event_kinds import EventUse
from .events import LZEvent
from .in_c import LZQueueInC
from .regular_queues import ASYNCHRONOUS, RegularQueue
from .unfinished_queues import ALL, UNFINISHED, UnfinishedLZQueue, drain_queues, forget_ended

_OUT_OF_ORDER: Final = UR["UR_QUEUE_FLAG_OUT_OF_ORDER_EXEC_MODE_ENABLE"]
PROFILING: Final = UR["UR_QUEUE_FLAG_PROFILING_ENABLE"]
_IN_ORDER_LIST: Final = ZE["ZE_COMMAND_QUEUE_FLAG_IN_ORDER"]
_PRIORITIES: Final = (
    (UR["UR_QUEUE_FLAG_PRIORITY_LOW"], ZE["ZE_COMMAND_QUEUE_PRIORITY_PRIORITY_LOW"]),
    (UR["UR_QUEUE_FLAG_PRIORITY_HIGH"], ZE["ZE_COMMAND_QUEUE_PRIORITY_PRIORITY_HIGH"]),
)
_WITHOUT_EVENT: Final = 64  # commands of an in-order queue between two that have an event
BARRIER: Final = "zeCommandListAppendBarrier"


class _InFlight(NamedTuple):
    """A command that may run, and what it uses. Its end is known if it has a cell."""

    cell: EventCell | None
    kept: Any


@adapter.kind
class LZQueue(LZObject):
    """An immediate command list.

    Args:
        flags: what it was created with, ur_queue_flags_t.
        owned: whether it is destroyed at the end.

    Attributes:
        lock: what a thread holds while it appends commands that belong together.
        capture: the capture that it is a part of, or None.
    """

    type = "ur_queue_handle_t"
    destroy = "zeCommandListDestroy"

    def __init__(
        self, ze: int, context: LZContext, device: LZDevice, flags: int, owned: bool = True
    ) -> None:
        super().__init__(ze, context.table, owned)
        self.context, self.device, self.flags = context, device, flags
        self.in_order, self.profiles = not flags & _OUT_OF_ORDER, bool(flags & PROFILING)
        self._use = EventUse.IMMEDIATE if self.in_order else EventUse.ANY
        self.in_c = LZQueueInC(context.events_in_c.struct, ze)
        self.lock = self.in_c.lock
        self._shared = not owned
        self._gone, self._end = False, None
        self.capture: LZCapture | None = None
        self._before: EventCell | None = None
        self._adopted: list[EventCell] = []
        self._left: list[Any] = []
        self._in_flight: deque[_InFlight] = deque()
        self._without_event = 0
        self._regular: dict[QueueGroup, RegularQueue] = {}
        self._helper: LZQueue | None = None
        self._copies: LZQueue | None = None
        self._allow_enqueues_in_c()
        self._write_only_c()
        ALL[id(self)] = _by_number[self.in_c.number] = self

    def describe_to_c(self) -> tuple[int, int, int, int]:
        """Return the queue's number, by which native/level_zero.c makes events of it."""
        return 0, self.in_c.number, 0, 0

    def handle_ends(self) -> None:
        """Take over the events that C has made, because they keep the queue."""
        registry = adapter.registry
        if registry is not None:
            for handle in registry.list_made_in_c(LZEvent.type, self.in_c.number):
                registry.adopt(LZEvent.type, handle)

    @property
    def shared(self) -> bool:
        """Return whether the program has its native handle, by which it may append, too."""
        return self._shared

    @shared.setter
    def shared(self, value: bool) -> None:
        self._shared = value
        self._write_only_c()

    def _write_only_c(self) -> None:
        """Write into the struct of C whether C alone has enqueued all that may run."""
        is_simple = not (self._shared or self._copies is not None or self._adopted)
        is_simple = is_simple and self.capture is None
        self.in_c.struct.only_c = is_simple and not self._in_flight

    # commands

    def append(
        self,
        routine: str,
        *arguments: Any,
        waits: Sequence[EventCell] = (),
        cell: EventCell | None = None,
        reset_later: bool = False,
        keep: Any = (),
    ) -> None:
        """Append a command.

        Args:
            routine: the function of Level Zero.
            arguments: what it takes between the list and the event that it signals.
            cell: what it signals, if that is needed.
            reset_later: whether another command resets the cell, so that it does not tell the end.
                The queue is in-order then.
            keep: what has to live until it has ended.

        Raises:
            URError: see `find_capture`.
        """
        with self.lock:
            capture = find_capture(self.capture, [one.capture for one in waits])
            if capture is not None:
                self._capture(capture, routine, arguments, waits, cell, keep)
                return
            self._forget_ended()
            tells = cell is not None and not reset_later
            self._without_event = 0 if tells else self._without_event + 1
            if cell is None and (not self.in_order or self._without_event > _WITHOUT_EVENT):
                cell, self._without_event = self.context.take_cell(use=self._use), 0
            self._append(routine, arguments, waits, cell)
            end = None if reset_later else cell
            left, self._left = self._left, []
            self._in_flight.append(_InFlight(end, (keep, waits, arguments, cell, left)))
            self._write_only_c()

    def _append(
        self,
        routine: str,
        arguments: tuple[Any, ...],
        waits: Sequence[EventCell],
        cell: EventCell | None,
    ) -> None:
        listed = len(waits), make_handle_array([one.ze for one in waits])
        signal = cell.ze if cell is not None else None
        call(self.table, routine, self.ze, *arguments, signal, *listed)

    def _capture(
        self,
        capture: LZCapture,
        routine: str,
        arguments: tuple[Any, ...],
        waits: Sequence[EventCell],
        cell: EventCell | None,
        keep: Any,
    ) -> None:
        """Append a command to a capture, which this queue may join by it."""
        joins = self.capture is None
        if joins:
            capture.join(self)
        try:
            self._append(routine, arguments, waits, cell)
        except BaseException:
            if joins:
                capture.drop(self)
            raise
        if cell is not None:
            cell.capture = capture
        capture.kept.append((keep, waits, arguments, cell))

    def enter(self, capture: LZCapture) -> None:
        """Become a part of a capture. Raises LevelZeroError."""
        with self.lock:
            self._before, self.capture = self._append_end(), capture
            self._allow_enqueues_in_c()
            self._write_only_c()

    def leave(self) -> None:
        """Leave the capture: commands run again when they are appended."""
        with self.lock:
            self._before = self.capture = None
            self._allow_enqueues_in_c()
            self._write_only_c()

    def _allow_enqueues_in_c(self) -> None:
        """Let C enqueue command-buffers on an in-order queue, but not while it is captured."""
        around = self if self.in_order else self._helper
        if self.capture is not None or around is None:
            self.in_c.struct.around = ffi.NULL
        else:
            self.in_c.run_on(around.in_c)

    def append_command(
        self,
        routine: str,
        command: str,
        arguments: tuple[Any, ...],
        waits: Sequence[LZEvent],
        wanted: bool,
        keep: Any = (),
    ) -> LZEvent | None:
        """Append a command of the program's, and return the event, None if it is not wanted.

        Args:
            routine: see `append`.
            command: the name of its ur_command_t after UR_COMMAND_.
            arguments: see `append`.
            wanted: whether an event is made.
            keep: see `append`.

        Raises:
            URError: INVALID_CONTEXT for an event of a context of other devices.
        """
        made = self.make_event(command) if wanted else None
        cells = self.list_cells(waits)
        self.append(routine, *arguments, waits=cells, cell=made.cell if made else None, keep=keep)
        return made

    def take_cell(self) -> EventCell:
        """Return what a command signals, with times if it profiles. Raises LevelZeroError."""
        return self.context.take_cell(self.profiles, self._use)

    def make_event(self, command: str) -> LZEvent:
        """Return the event of a command that is going to be appended. Raises LevelZeroError."""
        return LZEvent(
            self.take_cell(),
            self.context,
            self,
            UR[f"UR_COMMAND_{command}"],
            timed=self.profiles and self.capture is None,
            queued=self.device.read_clocks()[1] if self.profiles else 0,
        )

    def list_cells(self, waits: Sequence[LZEvent]) -> list[EventCell]:
        """Return what a command has to wait for. Raises URError (INVALID_CONTEXT)."""
        if not waits:
            return []
        self.context.check_shared("an event of the wait list", *waits)
        return list({event.cell.ze: event.cell for event in waits}.values())

    @property
    def is_idle(self) -> bool:
        """Return whether everything that was appended here is known to have ended."""
        with self.lock:
            self._forget_ended()
            return not (self._in_flight or self.in_c.struct.pending)

    def _forget_ended(self) -> None:
        """Forget commands that have ended, the first ones first."""
        while self._adopted:  # the events say nothing of other commands
            self._in_flight.appendleft(_InFlight(self._adopted.pop(), ()))
        while self._drop_ended():
            continue
        self._write_only_c()

    def _drop_ended(self) -> bool:
        """Forget the commands up to the first that has an event, if it has ended."""
        flight = self._in_flight
        place = next((at for at, one in enumerate(flight) if one.cell is not None), None)
        cell = flight[place].cell if place is not None else None
        if place is None or cell is None or not cell.is_over:
            return False
        for _ in range(place + 1):
            flight.popleft()
        return True

    def _append_end(self) -> EventCell:
        """Return an event that is signaled after all appended commands that run."""
        if self._before is not None:
            return self._before
        self.in_c.struct.pending = 0
        cell = self.context.take_cell(use=self._use)
        self.append(BARRIER, cell=cell)
        return cell

    # what C does

    def adopt(self, words: Any) -> LZEvent:
        """Return the event that C has made of a command (native/level_zero.c)."""
        context = self.context
        counts = context.events.counts
        cell = EventCell(words[0], context, context.events_in_c, counts)
        around = self._helper or self
        around._adopted.append(cell)  # an append is safe in every thread
        around._write_only_c()
        return LZEvent(cell, context, self, words[3] & lib.FL_COMMAND)

    def get_end_of_c(self) -> EventCell | None:
        """Return the event after all that C has enqueued, None if that has ended."""
        with self.lock:
            return self._end if self._gone else self._append_end()

    def keep(self, thing: Any) -> bool:
        """Keep something until all has ended that was enqueued. Returns whether it can."""
        if not self._gone:
            self._left.append(thing)  # an append is safe in every thread
        return not self._gone

    def drain(self) -> None:
        """Wait until all that was appended has ended. Raises LevelZeroError."""
        for beside in (self._helper, self._copies):
            if beside is not None:
                beside.drain()
        if not self.is_idle or self.shared:
            self._append_end().wait()
            with self.lock:
                self._forget_ended()

    @property
    def is_empty(self) -> bool:
        """Return whether all that was appended has ended, also by the native handle."""
        if self._helper is not None and not self._helper.is_empty:
            return False
        if self.is_idle and not self.shared:
            return True
        return self._append_end().is_over

    # regular lists

    def get_regular(self, group: QueueGroup) -> RegularQueue:
        """Return the queue beside it that runs regular lists."""
        with self.lock:
            if group not in self._regular:
                self._regular[group] = RegularQueue(self.context, self.device, group.ordinal)
            return self._regular[group]

    def get_copy_queue(self, ordinal: int) -> LZQueue:
        """Return an in-order queue of a group that only copies, beside this one."""
        with self.lock:
            if self._copies is None:
                flags = self.flags & ~_OUT_OF_ORDER
                self._copies = create_queue(self.context, self.device, flags, ordinal)
                self._write_only_c()
            return self._copies

    @property
    def helper(self) -> LZQueue:
        """Return an in-order queue for the commands around a command-buffer's.

        An in-order queue is its own. Raises LevelZeroError.
        """
        if self.in_order:
            return self
        with self.lock:
            if self._helper is None:
                flags = self.flags & ~_OUT_OF_ORDER
                self._helper = create_queue(self.context, self.device, flags)
                self._allow_enqueues_in_c()
            return self._helper

    def close(self) -> None:
        for beside in (self._helper, self._copies):
            if beside is not None:
                beside.finish()
        with self.lock:
            if self.owned and not (self.is_idle and not self.shared):
                self._end = end = self._append_end()
                kept = self._in_flight, self._regular
                UNFINISHED.append(UnfinishedLZQueue(end, self.ze, self.context, self.device, kept))
            elif self.owned:
                super().close()
            self._gone = True
        forget_ended()


#: The queues that exist, by C's numbers of them.
_by_number: Final[WeakValueDictionary[int, LZQueue]] = WeakValueDictionary()
adapter.adopters[LZEvent.type] = lambda words: _by_number[words[2]].adopt(words)


def create_queue(
    context: LZContext, device: LZDevice, flags: int, ordinal: int | None = None
) -> LZQueue:
    """Create a queue.

    Args:
        flags: ur_queue_flags_t.
        ordinal: the group of the device's queues, None for the one that runs kernels.
    """
    forget_ended()
    desc = make_struct(
        "command_queue_desc",
        ordinal=device.compute_group.ordinal if ordinal is None else ordinal,
        flags=0 if flags & _OUT_OF_ORDER else _IN_ORDER_LIST,
        mode=ASYNCHRONOUS,
        priority=next((ze for flag, ze in _PRIORITIES if flags & flag), 0),
    )
    given = context.ze, device.ze, ctypes.byref(desc)
    ze = create(context.table, "zeCommandListCreateImmediate", *given)
    return LZQueue(ze, context, device, flags)


def _finish(queue: LZQueue) -> None:
    refuse_capture(queue, "be waited for")
    queue.drain()


@adapter.entry
def urQueueGetNativeHandle(hQueue: LZQueue, pDesc: Any) -> int:
    hQueue.shared = True
    if pDesc and pDesc.pNativeData:  # libsycl asks here whether it is an immediate list
        ctypes.c_int32.from_address(pDesc.pNativeData).value = 1
    return hQueue.ze


def _take_native(
    native: int, context: LZContext, device: LZDevice | None, properties: Any
) -> LZQueue:
    """Make the queue of an immediate command list. Queues that run regular lists are refused."""
    owned = is_owned(properties)
    return LZQueue(native, context, device or context.devices[0], _find_flags(native), owned)


def _find_flags(ze: int) -> int:
    """Return the ur_queue_flags_t of an immediate list: ours, or any order."""
    found = filter(None, (reference() for reference in ALL.valuerefs()))
    known = (one.flags for one in found if one.ze == ze and not one.is_closed)
    return next(known, _OUT_OF_ORDER)


declare_queues(
    adapter,
    create=create_queue,
    take_native=_take_native,
    finish=_finish,
    flush=lambda queue: None,  # an immediate command list submits what is appended
    drain_device=lambda device: drain_queues(device=device),
)
