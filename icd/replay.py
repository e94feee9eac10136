"""Replay: a schedule becomes a `Program`, a flat C array that the native engine walks without the GIL.

A program refers to the commands in its recording's memory, which it keeps alive. It has kernels of its own, on which it sets
arguments as it goes, so one thread at a time replays it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from ._native import ffi, lib

_BARRIER: Final = 0xFFFFFFFF

#: (command or -1 for a barrier of the schedule, lane, the steps that are waited for, whether a later step waits for this one)
Step = tuple[int, int, Sequence[int], bool]


class Program:
    """`steps` over an array of `fl_command`; a last barrier on lane 0 waits for the steps in `final_waits`, if there are any.

    `owner` is whatever the array's memory belongs to. `externals` says for steps which slots of the outside events they wait for,
    `exports` which steps' events a replay gives. An `updatable` one can be told of changes in its commands; `others` are kernels
    (handles) that these may then name. `memory` are the addresses of the functions that the driver has for memory by address, if
    they are not SVM's (command_buffer.Memory).
    """

    def __init__(
        self,
        commands: Any,
        owner: Any,
        steps: Sequence[Step],
        final_waits: Sequence[int] = (),
        *,
        externals: Mapping[int, range] | None = None,
        exports: Sequence[int] = (),
        updatable: bool = False,
        others: Sequence[int] = (),
        memory: tuple[int, int, int] = (0, 0, 0),
    ) -> None:
        waits: list[int] = []
        slots = externals or {}
        array = ffi.new("fl_step[]", max(1, len(steps)))
        for number, (target, (command, lane, step_waits, signals)) in enumerate(zip(array, steps, strict=False)):
            all_waits = [*step_waits, *(len(steps) + slot for slot in slots[number])] if number in slots else step_waits
            target.command = _BARRIER if command < 0 else command
            target.lane, target.signals = lane, signals
            target.first_wait, target.wait_count = len(waits), len(all_waits)
            waits += all_waits
        program = {
            "commands": commands,
            "steps": array,
            "step_count": len(steps),
            "waits": ffi.new("uint32_t[]", waits),
            "final_wait_count": len(final_waits),
            "final_waits": ffi.new("uint32_t[]", list(final_waits)),
            "updatable": updatable,
            "external_count": sum(map(len, slots.values())),
            "export_count": len(exports),
            "exports": ffi.new("uint32_t[]", list(exports)),
            "exported": ffi.new("void *[]", max(1, len(exports))),
            "other_count": len(others),
            "others": ffi.new("void *[]", [ffi.cast("void *", kernel) for kernel in others]),
            **dict(zip(("set_pointer", "copy_memory", "fill_memory"), (ffi.cast("void *", f) for f in memory), strict=True)),
        }
        self._kept = owner, program
        self.native = ffi.gc(ffi.new("fl_program *", program), lib.fl_release)

    def replay(
        self, lanes: Sequence[int], times: int, wait_list: Sequence[int], externals: Sequence[int] = ()
    ) -> tuple[int, int, int, list[int]]:
        """Enqueue the program on `lanes` (queue handles).

        Returns the OpenCL code, the event's handle (the caller owns the reference), after a failure the number of the command
        that failed (-1: a barrier of the schedule), and the events of the exported steps (a reference each).
        """
        event, failed, native = ffi.new("void **"), ffi.new("uint32_t *"), self.native
        outside = ffi.new("void *[]", [ffi.cast("void *", one) for one in externals]) if externals else ffi.NULL
        native.externals = outside
        code = lib.fl_replay(
            native,
            [ffi.cast("void *", lane) for lane in lanes],
            len(lanes),
            times,
            len(wait_list),
            [ffi.cast("void *", one) for one in wait_list] if wait_list else ffi.NULL,
            event,
            failed,
        )
        exported = [int(ffi.cast("uintptr_t", native.exported[i])) for i in range(native.export_count if code == 0 else 0)]
        return code, int(ffi.cast("uintptr_t", event[0])), -1 if failed[0] == _BARRIER else failed[0], exported

    def update(self, step: int, relaunched: bool) -> int:
        """The command of a step has other arguments than before, or, `relaunched`, another kernel. Returns the OpenCL code."""
        return lib.fl_update(self.native, step, relaunched)

    def close(self) -> None:
        """Give up its kernels."""
        ffi.release(self.native)
