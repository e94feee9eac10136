"""The engine `replay`: each command by the driver's own function, from a C loop without the GIL.

The loop is icd/native/replay.c. It runs every command on every driver. The commands are laid out on
queues (../layout.py), and the layout becomes a `ReplaySequence`: a flat C array that the loop
walks. A sequence has kernels of its own and sets their arguments as it goes. So one thread at a
time replays it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from ..._native import ffi, lib
from ...calls import find_device_profile, get_address
from ..commands import CommandList
from ..engine import BuiltCommands, Cost, Engine, QueueKind, Use
from ..layout import Layout, lay_out, list_other_schedules
from ..order import BARRIER, Schedule
from ..queue_release import release_queue

_BARRIER: Final = 0xFFFFFFFF


class Replay(Engine):
    """Enqueues each command separately, in a C loop.

    Args:
        schedule: how it lays out a branching graph for an out-of-order queue; "" for what is known
            to be good on a driver.
    """

    name, divides = "replay", True

    def __init__(self, schedule: str = "") -> None:
        self._schedule = schedule

    def why_not(self, commands: CommandList, target: QueueKind) -> str | None:
        return None

    def cost(self, target: QueueKind) -> Cost | None:
        profile = find_device_profile(target.device)
        if profile.launch_seconds is None:
            return None
        wait = profile.wait_seconds if target.use is Use.WAITED else 0.0
        return Cost(wait, profile.launch_seconds, "measured on such a driver")

    def list_variants(self, commands: CommandList, target: QueueKind) -> Mapping[str, Engine]:
        return {name: Replay(name) for name in list_other_schedules(commands, target)}

    def build(self, commands: CommandList, target: QueueKind) -> BuiltCommands:
        return ReplaySequence(commands, lay_out(commands, target, self._schedule))


class ReplaySequence(BuiltCommands):
    """Commands as the C loop takes them.

    Args:
        commands: the commands; their memory is kept.
        layout: their steps, and the queues that these need.
    """

    def __init__(self, commands: CommandList, layout: Layout) -> None:
        self._layout, self.own_queues = layout, layout.own_queues
        step_of = _find_steps(layout.schedule, len(commands))
        # a table that cannot be written is left as it is
        self._helps = layout.helps and not lib.fl_begin_help(_wrap_handle(self.own_queues[0]))
        exports = [step_of[number] for number in commands.wanted_events]
        for step in exports:
            layout.schedule.steps[step].signals = True
        parts = _make_steps(commands, layout.schedule, step_of)
        parts |= {
            "commands": commands.array,
            "updatable": commands.updatable,
            "beside": not layout.in_order and not commands.fenced,
            "fenced": not layout.in_order and commands.fenced,
            "by_transfer": layout.profile.markers_have_no_place,
            "in_parents": layout.profile.copies_rects_of_parents,
            "helps": self._helps,
            "step_of": ffi.new("uint32_t[]", step_of) if commands.updatable else ffi.NULL,
            "export_count": len(exports),
            "exports": ffi.new("uint32_t[]", exports),
            "exported": ffi.new("void *[]", max(1, len(exports))),
            "other_count": len(commands.alternatives),
            "others": ffi.new(
                "void *[]", [_wrap_handle(kernel) for kernel in commands.alternatives]
            ),
            "set_pointer": _wrap_handle(commands.memory.set_pointer),
            "copy_memory": _wrap_handle(commands.memory.copy),
            "fill_memory": _wrap_handle(commands.memory.fill),
        }
        self._kept: Any = commands.owner, parts
        self._sequence = ffi.gc(ffi.new("fl_sequence *", parts), lib.fl_release)
        self.native = ffi.new(
            "fl_built *",
            {
                "enqueue": ffi.addressof(lib, "fl_enqueue_sequence"),
                "update": ffi.addressof(lib, "fl_update_sequence"),
                "self": self._sequence,
                "count": len(commands),
                "set_cell": ffi.addressof(lib, "fl_set_cell_of_sequence"),
            },
        )

    def give_externals(self, events: Sequence[int]) -> None:
        self._outside = ffi.new("void *[]", [_wrap_handle(event) for event in events])
        self._sequence.externals = self._outside

    def take_events(self) -> list[int]:
        return [
            get_address(self._sequence.exported[place])
            for place in range(self._sequence.export_count)
        ]

    def explain(self) -> str:
        return self._layout.explain()

    def close(self) -> None:
        if self._helps:
            lib.fl_end_help(self._sequence, _wrap_handle(self.own_queues[0]))
            self._helps = False
        for queue in self.own_queues:
            release_queue(queue)  # that of levels is out of order, and may still be at work
        self.own_queues = ()
        ffi.release(self._sequence)


def _wrap_handle(number: int) -> Any:
    return ffi.cast("void *", number)


def _find_steps(schedule: Schedule, count: int) -> list[int]:
    """The step of each command; 0 for one that has none."""
    steps = [0] * count
    for number, step in enumerate(schedule.steps):
        if step.command != BARRIER:
            steps[step.command] = number
    return steps


def _make_steps(
    commands: CommandList, schedule: Schedule, step_of: Sequence[int]
) -> dict[str, Any]:
    """Return the steps of an `fl_sequence`, and what they wait for, as its members."""
    slots: dict[int, range] = {}  # of steps: their outside events
    external_count = 0
    for command, count in commands.externals.items():
        slots[step_of[command]] = range(external_count, external_count + count)
        external_count += count
    waits: list[int] = []
    steps = schedule.steps
    array = ffi.new("fl_step[]", max(1, len(steps)))
    for number, (target, step) in enumerate(zip(array, steps, strict=False)):
        all_waits = (
            [*step.waits, *(len(steps) + slot for slot in slots[number])]
            if number in slots
            else step.waits
        )
        target.command = _BARRIER if step.command == BARRIER else step.command
        target.queue, target.signals, target.begins = step.queue, step.signals, step.begins
        target.first_wait, target.wait_count = len(waits), len(all_waits)
        waits += all_waits
    return {
        "steps": array,
        "step_count": len(steps),
        "waits": ffi.new("uint32_t[]", waits),
        "final_wait_count": len(schedule.final_waits),
        "final_waits": ffi.new("uint32_t[]", schedule.final_waits),
        "external_count": external_count,
    }
