"""How a plan is enqueued on one queue.

A route has the arguments of an enqueue that do not change, in C's memory. So an enqueue passes only
what changes: how often, the events before it, and values.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from .._native import ffi, lib
from ..calls import get_address
from .cells import Cells
from .engine import BuiltCommands, QueueKind, Use
from .planning import ExecutionPlan

#: OpenCL's code; the event of the end (a reference for the caller, 0 if not wanted); the number of
#: the command that failed (-1: none, or an engine's own barrier); and the events that the command
#: list asks for, a reference each.
Enqueued = tuple[int, int, int, list[int]]

#: What follows when a part is lost.
GOES_ON: Final = "The driver runs all graphs from now on"

#: The number that C gives where no command has failed.
_NO_COMMAND: Final = 0xFFFFFFFF


class Route:
    """How a plan is enqueued repeatedly on one queue. An enqueue passes only what changes.

    One thread at a time uses the routes of a command-buffer.

    Args:
        buffer: the command-buffer as C knows it, an `fl_buffer *`.
        queue: a handle.
        learns: whether its first runs may teach an engine to leave commands to others.
    """

    def __init__(
        self,
        buffer: Any,
        queue: int,
        kind: QueueKind,
        plan: ExecutionPlan,
        learns: bool,
    ) -> None:
        self.queue, self.kind, self.plan = queue, kind, plan
        self.in_order = in_order = kind.in_order
        self.built, self.learns = [part.built for part in plan.parts], learns
        #: Whether the caller's thread can run it, once the queue is idle.
        self.runs_here = in_order and all(one.native.run for one in self.built)
        #: Whether an enqueue may end with the event of the one before it.
        self.joins = in_order and len(self.built) == 1 and self.built[0].joins
        explain_loss = BuiltCommands.explain_loss
        #: Whether a failure may end a part for good.
        self.may_be_lost = any(type(one).explain_loss is not explain_loss for one in self.built)
        #: Whether the driver may refuse an enqueue as a whole. Another engine then runs it.
        self.may_refuse = any(one.may_refuse for one in self.built)
        externals: list[int] = []  # the command of each outside event
        for number, count in plan.commands.externals.items():
            externals += [number] * count
        self._externals = _group_by_part(plan, externals)
        self._exports = _group_by_part(plan, plan.commands.wanted_events)
        queues = [_make_array([queue, *one.own_queues]) for one in self.built]
        rows = [
            (one.native, handles, len(handles))
            for one, handles in zip(self.built, queues, strict=True)
        ]
        self._kept = buffer, queues, ffi.new("fl_part[]", rows)
        #: Whether an enqueue has no events except that of its end, and always takes the same path.
        self.is_plain = not (
            self.may_refuse or learns or plan.is_temporary or self._externals or self._exports
        )
        self.native = ffi.new(
            "fl_route *", (buffer, ffi.cast("void *", queue), in_order, len(rows), self._kept[2])
        )
        self._event, self._failed = ffi.new("void **"), ffi.new("uint32_t *")

    def leads_to(self, queue: int) -> bool:
        """Return whether the route enqueues on a queue, and what it enqueues is there."""
        return queue == self.queue and not self.plan.is_closed

    def serves(self, use: Use) -> bool:
        """Return whether replays of a use are to take it."""
        return self.kind.use in (None, use)

    def enqueue(
        self,
        times: int = 1,
        waits: Sequence[int] = (),
        externals: Sequence[int] = (),
        wanted: bool = True,
        series: Cells | None = None,
    ) -> Enqueued:
        """Enqueue all parts `times` times, after the events `waits` and the command-buffer's last
        enqueue.

        Args:
            times: at least 1.
            waits: events, handles.
            externals: the outside events that commands wait for (CommandList.externals).
            wanted: whether to return the event of the end.
            series: cells with rows that have values for each of the times.
        """
        for one, places in self._externals:
            one.give_externals([externals[place] for place in places])
        wait_list = _make_array(waits) if waits else ffi.NULL
        event = self._event if wanted else ffi.NULL
        if series is None:
            code = lib.fl_enqueue(self.native, times, len(waits), wait_list, event, self._failed)
        else:
            code = lib.fl_enqueue_series(
                self.native,
                times,
                series.rows,
                series.count,
                len(waits),
                wait_list,
                event,
                self._failed,
            )
        if code:
            return code, 0, self.find_command(self._failed[0]), []
        return (
            0,
            get_address(self._event[0]) if wanted else 0,
            -1,
            self._list_exported() if self._exports else [],
        )

    def enqueue_until(
        self, times: int, every: int, flag: tuple[int, int], waits: Sequence[int]
    ) -> tuple[int, int, bool, int]:
        """See `CommandBuffer.enqueue_until`."""
        counts = ffi.new("uint32_t[2]")
        code = lib.fl_enqueue_until(
            self.native,
            times,
            every,
            ffi.cast("void *", flag[0]),
            flag[1],
            len(waits),
            _make_array(waits) if waits else ffi.NULL,
            counts,
            counts + 1,
            self._failed,
        )
        return code, counts[0], bool(counts[1]), self.find_command(self._failed[0])

    def find_command(self, failed: int) -> int:
        """Return the number of a command in the command-buffer, -1 for none.

        Args:
            failed: its number among those that are run, as C gives it.
        """
        if failed == _NO_COMMAND:
            return -1
        return failed if self.plan.numbers is None else self.plan.numbers[failed]

    def _list_exported(self) -> list[int]:
        events: dict[int, int] = {}
        for one, places in self._exports:
            events |= zip(places, one.take_events(), strict=True)
        return [events[place] for place in sorted(events)]


def _make_array(handles: Sequence[int]) -> Any:
    return ffi.new("void *[]", [ffi.cast("void *", handle) for handle in handles])


def _group_by_part(
    plan: ExecutionPlan, commands: Sequence[int]
) -> list[tuple[BuiltCommands, list[int]]]:
    """Return the parts that have some of these commands, with their places in the list."""
    found: list[tuple[BuiltCommands, list[int]]] = []
    for part in plan.parts:
        places = [place for place, number in enumerate(commands) if part.first <= number < part.end]
        if places:
            found.append((part.built, places))
    return found


def find_loss(route: Route) -> tuple[str, str]:
    """Why a part of a route can never run again, and what to do: two parts of an error.

    They are empty if each part can.
    """
    why = explain_lost_part(route)
    remedy = "look for the access with FAIRLEAD_COMMAND_BUFFER=replay, or with compute-sanitizer"
    return (f"{why} {GOES_ON}.", remedy) if why else ("", "")


def explain_lost_part(route: Route) -> str | None:
    """Why a part of a route can never run again, None if each can or all are closed."""
    if route.plan.is_closed:
        return None
    return next(filter(None, (one.explain_loss() for one in route.built)), None)
