"""Contexts of the adapter on Level Zero, and the events of Level Zero that belong to them.

An event of Level Zero is signaled any number of times, and reset before it is used again unless it
is counter-based (event_kinds.py). An event of Unified Runtime is complete once. So each command
that needs one takes a *cell*: an event that nothing else uses. A cell returns to its supply when
nothing needs it any more: neither the program's event, nor a queue whose commands signal it or wait
for it.
"""

from __future__ import annotations

import ctypes
from collections import deque
from collections.abc import Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

from ...loader.base.forks import make_lock
from ..sdk.contexts import ContextObject, declare_contexts
from ..sdk.usm import AllocationList
from .core import (
    ZE,
    LevelZeroError,
    LZObject,
    adapter,
    call,
    check,
    create,
    failure,
    is_owned,
    make_handle_array,
    make_struct,
    wait_until_ready,
)
from .devices import LZDevice
from .event_kinds import EventSource, EventUse, choose_events
from .in_c import LZEventsInC
from .platforms import LZPlatform, make_context

if TYPE_CHECKING:
    from .captures import LZCapture

_POOL: Final = 64  # events of a pool
_VISIBLE: Final = ZE["ZE_EVENT_POOL_FLAG_HOST_VISIBLE"]
_TIMED: Final = ZE["ZE_EVENT_POOL_FLAG_KERNEL_TIMESTAMP"]
_HOST: Final = ZE["ZE_EVENT_SCOPE_FLAG_HOST"]
_COUNTER_VISIBLE: Final = ZE["ZE_EVENT_COUNTER_BASED_FLAG_HOST_VISIBLE"]
_COUNTED: Final = ((False, EventUse.IMMEDIATE), (False, EventUse.REGULAR_LIST))


class EventCell:
    """An event of Level Zero that somebody uses.

    Args:
        context: its context, which it keeps: queues of other contexts may wait for it.
        supply: where it returns to, None if nobody uses it again.
        counts: whether it is counter-based.
        owned: whether it is destroyed at the end: the program gave it.

    Attributes:
        capture: the capture that its command is a part of, or None.
    """

    __slots__ = ("capture", "context", "counts", "owned", "supply", "table", "ze")

    def __init__(
        self,
        ze: int,
        context: LZContext,
        supply: EventSupply | LZEventsInC | None,
        counts: bool = False,
        owned: bool = False,
    ) -> None:
        self.ze, self.context, self.supply, self.counts = ze, context, supply, counts
        self.table, self.owned = context.table, owned
        self.capture: LZCapture | None = None

    @property
    def is_done(self) -> bool:
        """Return whether the event is signaled. Raises LevelZeroError if its command has failed."""
        code = self.table.zeEventQueryStatus(self.ze)
        if code == ZE.codes["ZE_RESULT_NOT_READY"]:
            return False
        check(code, "zeEventQueryStatus")
        return True

    @property
    def is_over(self) -> bool:
        """Return whether the event's command has ended, well or badly."""
        with suppress(LevelZeroError):
            return self.is_done
        return True

    def wait(self) -> None:
        """Wait until it is signaled. Raises LevelZeroError if its command has failed."""
        wait_until_ready(
            lambda timeout: self.table.zeEventHostSynchronize(self.ze, timeout),
            "zeEventHostSynchronize",
        )

    def signal(self) -> None:
        """Signal the event by the host, unless it is counter-based. Raises LevelZeroError."""
        if not self.counts:
            call(self.table, "zeEventHostSignal", self.ze)

    def reset(self) -> None:
        """Reset the event by the host, unless it is counter-based. Raises LevelZeroError."""
        if not self.counts:
            call(self.table, "zeEventHostReset", self.ze)

    def __del__(self) -> None:
        supply = getattr(self, "supply", None)
        if supply is not None:
            supply.returned.append(self.ze)
        elif getattr(self, "owned", False):
            self.table.zeEventDestroy(self.ze)


class EventSupply:
    """The events of a context of one kind.

    Args:
        context: the context's handle.
        timed: whether they have the times of their commands.
        use: which lists signal them, if they are counter-based.
        source: how they are made.
    """

    def __init__(
        self,
        context: int,
        table: Any,
        devices: Sequence[LZDevice],
        timed: bool,
        use: EventUse,
        source: EventSource,
    ) -> None:
        self._context, self._table, self._use, self._source = context, table, use, source
        self._flags = _VISIBLE | (_TIMED if timed else 0)
        self._device = devices[0].ze
        self._devices = make_handle_array([device.ze for device in devices])
        self._count = len(devices)
        self._lock = make_lock()
        self._fresh: list[int] = []
        self._made: list[int] = []
        self._pools: list[int] = []
        #: Events whose cells are gone. They may be signaled.
        self.returned: deque[int] = deque()

    def take(self, context: LZContext) -> EventCell:
        """Return a cell of the context that is not signaled, or counter-based."""
        with self._lock:
            if self.returned:
                ze = self.returned.popleft()
                if not self._use:
                    call(self._table, "zeEventHostReset", ze)
            else:
                if not self._fresh:
                    self._add()
                ze = self._fresh.pop()
        return EventCell(ze, context, self, bool(self._use))

    def _add(self) -> None:
        if self._source is EventSource.COUNTERS and self._use:
            self._made.append(self._make_counter())
            self._fresh.append(self._made[-1])
        else:
            self._add_pool()

    def _make_counter(self) -> int:
        flags = int(self._use) | _COUNTER_VISIBLE
        desc = make_struct("event_counter_based_desc", flags=flags, signal=_HOST, wait=_HOST)
        given = self._context, self._device, ctypes.byref(desc)
        return create(self._table, "zeEventCounterBasedCreate", *given)

    def _add_pool(self) -> None:
        tag = "COUNTER_BASED_EVENT_POOL_EXP_DESC"
        name = "event_pool_counter_based_exp_desc"
        counter_based = make_struct(name, tag=tag, flags=int(self._use)) if self._use else None
        desc = make_struct("event_pool_desc", flags=self._flags, count=_POOL, pNext=counter_based)
        arguments = ctypes.byref(desc), self._count, self._devices
        pool = create(self._table, "zeEventPoolCreate", self._context, *arguments)
        self._pools.append(pool)
        for index in range(_POOL):
            one = make_struct("event_desc", index=index, signal=_HOST, wait=_HOST)
            self._made.append(create(self._table, "zeEventCreate", pool, ctypes.byref(one)))
            self._fresh.insert(0, self._made[-1])

    def close(self) -> None:
        """Destroy all events. Raises LevelZeroError."""
        for ze in self._made:
            call(self._table, "zeEventDestroy", ze)
        for pool in self._pools:
            call(self._table, "zeEventPoolDestroy", pool)
        self._made.clear()
        self._pools.clear()


@adapter.kind
class LZContext(ContextObject, LZObject):
    """A ze_context_handle_t.

    Args:
        devices: its devices, in the order of the program.
        owned: whether it is destroyed at the end.

    Attributes:
        events: what events in-order lists signal.
    """

    type = "ur_context_handle_t"
    destroy = "zeContextDestroy"

    def __init__(self, ze: int, devices: Sequence[LZDevice], owned: bool = True) -> None:
        super().__init__(ze, devices[0].table, owned)
        self.devices = tuple(devices)
        self.deleters: list[tuple[int, int]] = []
        self.allocations = AllocationList()
        self.events = choose_events(self.platform, len(devices))
        self.events_in_c = LZEventsInC(self.table, self.events.counts)
        made = ze, self.table, devices
        self._supplies = {
            (timed, use): EventSupply(*made, timed, use, self.events.source)
            for timed, use in ((False, EventUse.ANY), (True, EventUse.ANY), *_COUNTED)
        }

    @property
    def platform(self) -> LZPlatform:
        """Return the platform of its devices."""
        return self.devices[0].platform

    def take_cell(self, timed: bool = False, use: EventUse = EventUse.ANY) -> EventCell:
        """Return an event that is not signaled, or counter-based.

        Args:
            timed: whether it has the times of its command.
            use: the in-order lists that signal it, which have counter-based events where there are
                such events. Other lists have regular ones.
        """
        return self._supplies[
            timed, use if self.events.counts and not timed else EventUse.ANY
        ].take(self)

    def add_events_for_c(self) -> None:
        """Give C more events, if it lacks some and the driver has them."""
        if self.events_in_c.are_short:
            with suppress(LevelZeroError, MemoryError):
                cells = [self.take_cell(use=EventUse.IMMEDIATE) for _ in range(_POOL)]
                self.events_in_c.add(cells)

    def is_same(self, other: LZContext) -> bool:
        return other.ze == self.ze

    def shares(self, other: LZContext) -> bool:
        """Drivers take events and memory of any context of the same devices, as ours does."""
        return set(other.devices) == set(self.devices)

    def close(self) -> None:
        self.call_deleters()
        for supply in self._supplies.values():
            supply.close()
        super().close()


declare_contexts(
    adapter, lambda devices: LZContext(make_context(devices[0].platform, devices), devices)
)


@adapter.entry
def urContextCreateWithNativeHandle(
    hNativeContext: int, phDevices: list[LZDevice], pProperties: Any
) -> LZContext:
    if not phDevices:
        raise failure("INVALID_VALUE", "a context of Level Zero does not tell its devices")
    return LZContext(hNativeContext, phDevices, is_owned(pProperties))
