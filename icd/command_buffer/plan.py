"""How commands are laid out for the replay: for each kind of queue a schedule, as a program, and the queues of our own that it needs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from ..abi import OPENCL
from .commands import compute_units, new_queue, profile_of_device
from .engines.replay import Program
from .order import BARRIER, Order, Schedule, by_events, by_level, spread
from .order import in_order as in_order_only

#: So many commands without an order run sooner by events on the caller's queue than on queues of our own: to hand over from one queue to
#: another and back takes Intel's driver as long as enqueueing them (a single launch took 120 µs and takes 40).
_FEW: Final = 64

#: Queues of our own for the branches of a graph. More of them did not make anything faster.
_MOST_LANES: Final = 4


@dataclass(frozen=True)
class Memory:
    """The functions that a driver has for memory by address instead of SVM's (cl_intel_unified_shared_memory); 0: SVM's own."""

    set_pointer: int = 0
    copy: int = 0
    fill: int = 0


@dataclass
class Plan:
    """How a command-buffer is replayed on a kind of queue: its schedule as a program, the queues of our own that it needs besides
    the caller's, and why so. `step_of` says where a command is."""

    schedule: Schedule
    program: Program
    own_queues: list[int]
    why: str
    step_of: dict[int, int] = field(default_factory=dict)


@dataclass
class Planner:
    """Lays out the commands of a command-buffer, whose parameters its members are. `first` is the command whose event is given
    besides those of `exports`, None for none."""

    context: int
    devices: Sequence[int]
    array: Any
    order: Order
    owner: Any
    schedule: str
    updatable: bool
    others: Sequence[int]
    memory: Memory
    externals: Mapping[int, int]
    exports: Sequence[int]
    first: int | None

    def plan(self, device: int, in_order: bool) -> Plan:
        """The plan for a kind of queue. Lane 0 is the caller's queue; the others are in-order queues of our own: one for each other
        device that commands are for, or as many as a schedule for an out-of-order queue wants."""
        lanes, others = self._by_device(device)
        if others:
            ordered = frozenset(range(0 if in_order else 1, len(others) + 1))
            schedule, why = (
                by_events(self.order, lanes, ordered),
                "commands of several devices wait for each other by events",
            )
        elif in_order:
            schedule, why = in_order_only(self.order), "the queue keeps the order"
        else:
            kind, why = self._choose(device)
            schedule = self._schedule(kind, device)
            others = [device] * schedule.own_lanes
        return self._as_plan(schedule, [self._own_queue(other) for other in others], why)

    def _by_device(self, device: int) -> tuple[list[int], list[int]]:
        """The lane of each command by its device, and the devices of the lanes from 1 on."""
        order, count = self.order, len(self.order)
        if len(self.devices) == 1:
            return [0] * count, []
        used = {self.array[node].queue for node in range(count) if not order.order_only[node]}
        others = list(
            dict.fromkeys(
                self.devices[number] for number in sorted(used) if self.devices[number] != device
            )
        )
        lane_of = {device: 0, **{other: lane for lane, other in enumerate(others, 1)}}
        return [
            lane_of.get(self.devices[self.array[node].queue], 0) for node in range(count)
        ], others

    def _as_plan(self, schedule: Schedule, own_queues: list[int], why: str) -> Plan:
        step_of = {
            step.command: number
            for number, step in enumerate(schedule.steps)
            if step.command != BARRIER
        }
        first_slot, externals = 0, dict[int, range]()
        for command, count in self.externals.items():
            externals[step_of[command]] = range(first_slot, first_slot + count)
            first_slot += count
        exports = [step_of[command] for command in self.exports] + (
            [] if self.first is None else [step_of[self.first]]
        )
        for step in exports:
            schedule.steps[step].signals = True
        program = Program(
            self.array,
            self.owner,
            schedule,
            externals=externals,
            exports=exports,
            updatable=self.updatable,
            others=self.others,
            memory=(self.memory.set_pointer, self.memory.copy, self.memory.fill),
        )
        return Plan(schedule, program, own_queues, why, step_of)

    def _choose(self, device: int) -> tuple[str, str]:
        """How to run on one out-of-order queue."""
        if self.schedule != "auto":
            return self.schedule, "asked for"
        waits, any_order_only = sum(map(len, self.order.dependencies)), any(self.order.order_only)
        if not waits and len(self.order) <= _FEW and not any_order_only:
            return "events", "so few commands without an order are not worth queues of its own"
        if self.order.is_path:
            return (
                "in-order",
                "the graph is a single path, so an in-order queue of its own needs no events",
            )
        if (
            waits <= profile_of_device(device).events_per_command * len(self.order)
            and not any_order_only
        ):
            return "events", "events cost less on this platform than in-order queues"
        return "lanes", "in-order queues of its own need few events"

    def _schedule(self, kind: str, device: int) -> Schedule:
        """A schedule of the kind for one out-of-order queue, and in-order queues of our own."""
        order = self.order
        if kind == "levels":
            return by_level(order)
        if kind == "events":
            return by_events(order, [0] * len(order), frozenset({1}))
        count = (
            1
            if kind == "in-order"
            else max(1, min(_MOST_LANES, compute_units(device), order.width))
        )
        return by_events(order, spread(order, count), frozenset(range(1, count + 1)), "lanes")

    def _own_queue(self, device: int) -> int:
        profiling = self.exports or self.first is not None  # somebody sees events of its commands
        return new_queue(
            self.context, device, OPENCL["CL_QUEUE_PROFILING_ENABLE"] if profiling else 0
        )
