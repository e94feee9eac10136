"""Replay: a schedule becomes a `Program`, a flat C array that the native engine walks without the GIL.

A program refers to the commands in its recording's memory, which it keeps alive. It has kernels of its own, on which it sets
arguments as it goes, so one thread at a time replays it. A `Route` is the way on which a command-buffer is enqueued over and over
on one queue: then only what changes from one enqueue to the next is handed over.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from ..._native import ffi, lib
from ..order import BARRIER, Schedule

_BARRIER: Final = 0xFFFFFFFF


class Program:
    """A schedule over an array of `fl_command`.

    `owner` is whatever the array's memory belongs to. `externals` says for steps which slots of the outside events they wait for,
    `exports` which steps' events a replay gives. An `updatable` one can be told of changes in its commands; `others` are kernels
    (handles) that these may then name. `memory` are the addresses of the functions that the driver has for memory by address, if
    they are not SVM's (command_buffer.Memory).
    """

    def __init__(
        self,
        commands: Any,
        owner: Any,
        schedule: Schedule,
        *,
        externals: Mapping[int, range] | None = None,
        exports: Sequence[int] = (),
        updatable: bool = False,
        others: Sequence[int] = (),
        memory: tuple[int, int, int] = (0, 0, 0),
    ) -> None:
        waits: list[int] = []
        steps, slots = schedule.steps, externals or {}
        array = ffi.new("fl_step[]", max(1, len(steps)))
        for number, (target, step) in enumerate(zip(array, steps, strict=False)):
            all_waits = (
                [*step.waits, *(len(steps) + slot for slot in slots[number])]
                if number in slots
                else step.waits
            )
            target.command = _BARRIER if step.command == BARRIER else step.command
            target.lane, target.signals = step.lane, step.signals
            target.first_wait, target.wait_count = len(waits), len(all_waits)
            waits += all_waits
        program = {
            "commands": commands,
            "steps": array,
            "step_count": len(steps),
            "waits": ffi.new("uint32_t[]", waits),
            "final_wait_count": len(schedule.final_waits),
            "final_waits": ffi.new("uint32_t[]", schedule.final_waits),
            "updatable": updatable,
            "external_count": sum(map(len, slots.values())),
            "export_count": len(exports),
            "exports": ffi.new("uint32_t[]", list(exports)),
            "exported": ffi.new("void *[]", max(1, len(exports))),
            "other_count": len(others),
            "others": ffi.new("void *[]", [ffi.cast("void *", kernel) for kernel in others]),
            **dict(
                zip(
                    ("set_pointer", "copy_memory", "fill_memory"),
                    (ffi.cast("void *", f) for f in memory),
                    strict=True,
                )
            ),
        }
        self._kept = owner, program
        self.native = ffi.gc(ffi.new("fl_program *", program), lib.fl_release)

    def give_externals(self, events: Sequence[int]) -> None:
        """The outside events (handles) that the next replay waits for."""
        self._outside = _handles(events)
        self.native.externals = self._outside

    def exported(self) -> list[int]:
        """The events of the exported steps of the last replay, a reference each."""
        native = self.native
        return [int(ffi.cast("uintptr_t", native.exported[i])) for i in range(native.export_count)]

    def close(self) -> None:
        """Give up its kernels."""
        ffi.release(self.native)


class Route:
    """How a command-buffer is enqueued on a queue, which is the first of `lanes` (handles).

    `program` is replayed; or, if there is none, `native` enqueued: the driver's command-buffer and the function that does it
    (addresses). `ways` and `last` are the same on all routes of a command-buffer: its lock is held. `owner` keeps what the addresses
    lead to.
    """

    def __init__(
        self,
        ways: Any,
        last: Any,
        lanes: Sequence[int],
        in_order: bool,
        program: Program | None = None,
        native: tuple[int, int] = (0, 0),
        owner: Any = None,
    ) -> None:
        self.program, self._lanes = program, _handles(lanes)
        self._kept = ways, last, owner
        self._event, self._failed = ffi.new("void **"), ffi.new("uint32_t *")
        self._exports = program is not None and bool(program.native.export_count)
        self._native = ffi.new(
            "fl_route *",
            {
                "ways": ways,
                "last": last,
                "in_order": in_order,
                "lanes": self._lanes,
                "lane_count": len(lanes),
                "program": program.native if program is not None else ffi.NULL,
                "native": ffi.cast("void *", native[0]),
                "enqueue_native": ffi.cast("void *", native[1]),
            },
        )

    def enqueue(
        self,
        times: int = 1,
        waits: Sequence[int] = (),
        externals: Sequence[int] = (),
        wanted: bool = True,
    ) -> tuple[int, int, int, list[int]]:
        """Enqueue it `times` times, the driver's once, after `waits` and after the last enqueue.

        Returns the OpenCL code, the event's handle (the caller owns the reference; 0 if it is not `wanted`), after a failure the number
        of the command that failed (-1: a barrier of the schedule), and the events of the exported steps (a reference each).
        """
        if externals and self.program is not None:
            self.program.give_externals(externals)
        wait_list = _handles(waits) if waits else ffi.NULL
        code = lib.fl_enqueue(
            self._native,
            times,
            len(waits),
            wait_list,
            self._event if wanted else ffi.NULL,
            self._failed,
        )
        if code:
            return code, 0, _command(self._failed[0]), []
        event = int(ffi.cast("uintptr_t", self._event[0])) if wanted else 0
        return (
            0,
            event,
            -1,
            self.program.exported() if self._exports and self.program is not None else [],
        )


def _handles(handles: Sequence[int]) -> Any:
    return ffi.new("void *[]", [ffi.cast("void *", handle) for handle in handles])


def _command(failed: int) -> int:
    """The number of the command that failed, -1 for a barrier of the schedule."""
    return -1 if failed == _BARRIER else failed
