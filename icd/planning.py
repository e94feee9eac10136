"""How commands are laid out for the replay: for each kind of queue a schedule, as a program, and the queues of our own that it needs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import prod
from typing import Any, Final

from ..loader.schedule import BARRIER, Order, Schedule, plan, spread
from .abi import OPENCL
from .capture import OPS
from .commands import bytes_of, compute_units, new_queue
from .measuring import time_of_order
from .replay import Program

#: How much of a branching order is tried to find out how to run it: barriers and events cost what they cost by its shape.
_MEASURED: Final = 128

_KERNEL: Final = OPS.index("kernel")

#: Queues of our own for the branches of a graph. More of them did not make anything faster.
_MOST_LANES: Final = 4

#: What takes less time than its enqueue, some microseconds, on any device that we know: work-items of a launch, bytes of a transfer.
_FEW_ITEMS: Final = 1024
_FEW_BYTES: Final = 1 << 14


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
            kind, why = "events", "commands of several devices wait for each other by events"
        elif in_order:
            kind, why = "in-order", "the queue keeps the order"
        else:
            kind, why = self._choose(device)
            others = [device] * self._queues(kind, device)
            if others:
                kind, lanes = "lanes", spread(self.order, len(others))
        ordered = frozenset(range(0 if in_order else 1, len(others) + 1))
        return self._as_plan(plan(self.order, lanes, ordered, kind), [self._own_queue(other) for other in others], why)

    def _by_device(self, device: int) -> tuple[list[int], list[int]]:
        """The lane of each command by its device, and the devices of the lanes from 1 on."""
        order, count = self.order, len(self.order)
        if len(self.devices) == 1:
            return [0] * count, []
        used = {self.array[node].queue for node in range(count) if not order.order_only[node]}
        others = list(dict.fromkeys(self.devices[number] for number in sorted(used) if self.devices[number] != device))
        lane_of = {device: 0, **{other: lane for lane, other in enumerate(others, 1)}}
        return [lane_of.get(self.devices[self.array[node].queue], 0) for node in range(count)], others

    def _as_plan(self, schedule: Schedule, own_queues: list[int], why: str) -> Plan:
        step_of = {step.command: number for number, step in enumerate(schedule.steps) if step.command != BARRIER}
        first_slot, externals = 0, dict[int, range]()
        for command, count in self.externals.items():
            externals[step_of[command]] = range(first_slot, first_slot + count)
            first_slot += count
        exports = [step_of[command] for command in self.exports] + ([] if self.first is None else [step_of[self.first]])
        for step in exports:
            schedule.steps[step].signals = True
        program = Program(
            self.array,
            self.owner,
            [(step.command, step.lane, step.waits, step.signals) for step in schedule.steps],
            schedule.final_waits,
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
        if self.order.is_path:
            return "in-order", "the graph is a single path, so an in-order queue of its own needs no events"
        shape, seconds = self.order.beginning(_MEASURED), {}
        for kind in ("lanes", "levels", "events", *(("in-order",) if self._may_follow_each_other(device) else ())):
            count = self._queues(kind, device)
            lanes = spread(shape, count) if count else [0] * len(shape)
            schedule = plan(shape, lanes, frozenset(range(1, count + 1)), "lanes" if count else kind)
            steps = [(step.command, step.lane, step.waits, step.signals) for step in schedule.steps]
            seconds[kind] = time_of_order(self.context, device, len(shape), steps, schedule.final_waits, count)
        figures = ", ".join(f"{kind} {value * 1e6:.0f} µs" for kind, value in seconds.items())
        best = min(seconds, key=seconds.__getitem__)
        return best, f"measured with empty commands in place of its first {len(shape)}: {figures}"

    def _queues(self, kind: str, device: int) -> int:
        """How many in-order queues of our own a schedule for an out-of-order queue wants."""
        if kind == "lanes":
            return max(1, min(_MOST_LANES, compute_units(device), self.order.width))
        return 1 if kind == "in-order" else 0

    def _may_follow_each_other(self, device: int) -> bool:
        """Whether nothing is lost if commands never run at the same time: each has the whole device to do, or so little that it is
        over by the time at which the next one is enqueued. Judged by the first ones."""
        units = compute_units(device)
        first = (self.array[node] for node in range(min(_MEASURED, len(self.order))))
        return all(_is_short(command) or _work_groups(command) >= units for command in first)

    def _own_queue(self, device: int) -> int:
        profiling = self.exports or self.first is not None  # somebody sees events of its commands
        return new_queue(self.context, device, OPENCL["CL_QUEUE_PROFILING_ENABLE"] if profiling else 0)


def _is_short(command: Any) -> bool:
    return _product(command, 3) <= _FEW_ITEMS if command.op == _KERNEL else bytes_of(command) <= _FEW_BYTES


def _work_groups(command: Any) -> int:
    """How many work-groups a launch has, at most if the driver chooses their size; 0 for what is no launch."""
    if command.op != _KERNEL:
        return 0
    return _product(command, 3) // max(_product(command, 6) if command.has_local else 1, 1)


def _product(command: Any, first: int) -> int:
    """Of one of a launch's sizes, which has its place in `fl_command.n`."""
    return prod(command.n[first + dimension] for dimension in range(command.work_dim))
