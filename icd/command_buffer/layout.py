"""How the replay lays out commands on queues: a schedule (order.py), and queues of our own."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from ...loader.base.frozen_value import Value
from ..abi import OPENCL
from ..calls import find_device_profile, make_queue, query_compute_units
from .commands import CommandList
from .engine import QueueKind
from .order import Order, Schedule, schedule_by_events, schedule_by_level, spread_over_queues
from .order import schedule_in_order as in_order_only

if TYPE_CHECKING:
    from ..driver_profiles import DriverProfile

#: So many unordered commands run sooner by events on the caller's queue than on queues of our own.
#: Switching to another queue and back takes Intel's driver as long as enqueueing them: a single
#: launch took 120 µs and takes 40.
_FEW: Final = 64

#: By events a command waits for so many others, on average. More of them were never faster.
_EVENTS: Final = 4

#: Helper queues for the branches of a graph. More of them made nothing faster.
_MOST_QUEUES: Final = 4


class Layout(Value):
    """A schedule, the queues of our own that it needs (handles), and why it was chosen.

    `in_order` says that the caller's queue is. `helps` says that a program which waits for a replay
    waits for these queues first. `profile` is the driver's.
    """

    schedule: Schedule
    own_queues: Sequence[int]
    why: str
    in_order: bool
    helps: bool
    profile: DriverProfile

    def explain(self) -> str:
        """Return the layout in a few words."""
        count = len(self.own_queues)
        kind = self.schedule.kind
        noun = "" if kind == "queues" else " queues" if count > 1 else " queue"
        own = f" ({count}{noun} of its own)" if count else ""
        helps = ", a wait for the replay runs one of them" * self.helps
        return f"{kind}{own}, {self.schedule.events} events in one pass{helps}: {self.why}"


def lay_out(commands: CommandList, target: QueueKind, variant: str = "") -> Layout:
    """Return the layout for a kind of queue. Raises OpenCLError if a queue cannot be made.

    Queue 0 is the caller's queue. The others are in-order helper queues: one for each other
    device, or as many as a schedule needs.

    Args:
        variant: one of `list_other_schedules`, or "".
    """
    queues, others = _group_by_device(commands, target.device)
    helps, profile = False, find_device_profile(target.device)
    if others:
        ordered = frozenset(range(0 if target.in_order else 1, len(others) + 1))
        schedule = _schedule_by_events(commands, queues, ordered)
        why = "commands of several devices wait for each other by events"
    else:
        kind, why = _choose(commands, target)
        if variant:
            kind, why = variant, "one of the schedules that take turns"
        schedule = _schedule(commands, kind, target)
        others = [target.device] * schedule.own_queues
        helps = profile.waits_run_commands and not target.in_order and len(others) > 1
    properties = (
        OPENCL["CL_QUEUE_PROFILING_ENABLE"] if commands.wanted_events else 0
    )  # somebody sees events of its commands
    if schedule.kind == "levels":
        properties |= OPENCL["CL_QUEUE_OUT_OF_ORDER_EXEC_MODE_ENABLE"]
    own = [make_queue(commands.context, other, properties) for other in others]
    return Layout(schedule, own, why, target.in_order, helps, profile)


def list_other_schedules(commands: CommandList, target: QueueKind) -> list[str]:
    """Return the schedules besides that of `lay_out` that may run a branching graph faster.

    Which one is the fastest depends on how long the kernels take, which only replays tell.
    """
    order, profile = commands.order, find_device_profile(target.device)
    if (
        commands.schedule != "auto"
        or len(set(commands.devices)) > 1
        or commands.externals
        or commands.wanted_events
        or order.is_path
    ):
        return []
    if target.in_order:
        return ["queues"] * (profile.waits_run_commands and _count_queues(order, target) > 1)
    chosen, _ = _choose(commands, target)
    markers_wait = profile.events_per_command >= 0
    names = {
        "in-order": True,
        "levels": not markers_wait,
        "events": _suits_events(order),
        "queues": True,
    }
    return [name for name, is_variant in names.items() if is_variant and name != chosen]


def _suits_events(order: Order) -> bool:
    """Whether no command of a graph waits for many others."""
    return sum(map(len, order.dependencies)) <= _EVENTS * len(order) and not any(order.order_only)


def _group_by_device(commands: CommandList, device: int) -> tuple[list[int], list[int]]:
    """The queue of each command by its device, and the devices of the queues from 1 on."""
    order, devices, array = commands.order, commands.devices, commands.array
    if len(devices) == 1:
        return [0] * len(order), []
    used = {array[node].queue for node in range(len(order)) if not order.order_only[node]}
    others = list(
        dict.fromkeys(devices[number] for number in sorted(used) if devices[number] != device)
    )
    queue_of = {device: 0, **{other: number for number, other in enumerate(others, 1)}}
    return [queue_of.get(devices[array[node].queue], 0) for node in range(len(order))], others


def _choose(commands: CommandList, target: QueueKind) -> tuple[str, str]:
    """The kind of schedule for one queue, and why."""
    order = commands.order
    if target.in_order:
        return "in-order", "the queue keeps the order"
    if commands.schedule != "auto":
        return commands.schedule, "asked for"
    waits, any_order_only = sum(map(len, order.dependencies)), any(order.order_only)
    if not waits and len(order) <= _FEW and not any_order_only:
        return "events", "so few commands without an order are not worth queues of its own"
    if order.is_path:
        return (
            "in-order",
            "the graph is a single path, so an in-order queue of its own needs no events",
        )
    most = find_device_profile(target.device).events_per_command * len(order)
    if waits <= most and not any_order_only:
        return "events", "events cost less on this platform than in-order queues"
    return "queues", "in-order queues of its own need few events"


def _count_queues(order: Order, target: QueueKind) -> int:
    """How many branches may run at the same time."""
    return max(1, min(_MOST_QUEUES, query_compute_units(target.device), order.width))


def _schedule(commands: CommandList, kind: str, target: QueueKind) -> Schedule:
    """A schedule of the kind for one queue, and in-order queues of our own.

    A caller's queue that is in order has one branch.
    """
    order = commands.order
    if kind == "in-order" and target.in_order:
        return in_order_only(order)
    if kind == "levels":
        return schedule_by_level(order, commands.fenced)
    if kind == "events":
        return _schedule_by_events(commands, [0] * len(order), frozenset({1}))
    count = 1 if kind == "in-order" else _count_queues(order, target)
    first = 0 if target.in_order else 1
    queues = frozenset(range(first, first + count))
    return _schedule_by_events(commands, spread_over_queues(order, queues), queues, "queues")


def _schedule_by_events(
    commands: CommandList, queues: Sequence[int], in_order: frozenset[int], kind: str = "events"
) -> Schedule:
    seen = frozenset([*commands.externals, *commands.wanted_events])
    return schedule_by_events(commands.order, queues, in_order, kind, commands.fenced, seen)
