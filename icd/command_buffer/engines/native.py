"""The engine `native`: all commands as one cl_khr_command_buffer of the driver.

It holds all of the commands or none. driver_command_buffer.py calls the extension; this file
decides whether it is used.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import Any, Final

from ..._native import ffi, lib
from ...calls import call, enqueue_marker
from ..commands import CommandList
from ..driver_command_buffer import DriverCommandBuffer, find_support, why_not
from ..engine import BuiltCommands, Engine, QueueKind

_INCOMPATIBLE: Final = -1140  # CL_INCOMPATIBLE_COMMAND_QUEUE_KHR


class Native(Engine):
    """Gives all commands to the driver's own command-buffers."""

    name = "native"

    def why_not(self, commands: CommandList, target: QueueKind) -> str | None:
        if (
            len(set(commands.devices)) > 1
            or commands.externals
            or commands.wanted_events
            or commands.alternatives
        ):
            return (
                "there are events, kernel alternatives or several devices, which "
                "cl_khr_command_buffer does not have"
            )
        if commands.schedule != "auto":
            return "a schedule was asked for"
        return why_not(find_support(target.device), commands, target.in_order)

    def defect(self, target: QueueKind) -> str | None:
        support = find_support(target.device)
        if support is None or support.defect:
            return support.defect if support is not None else None
        if not support.simultaneous:
            return "the driver's command-buffers cannot be enqueued again before they have ended"
        return None

    def build(self, commands: CommandList, target: QueueKind) -> BuiltByDriver:
        support = find_support(target.device)
        assert support is not None  # why_not
        made = DriverCommandBuffer(
            support, target.context, target.device, target.properties, updatable=commands.updatable
        )
        made.record(commands)
        made.finalize()
        return BuiltByDriver(made, len(commands))


class BuiltByDriver(BuiltCommands):
    """A driver's command-buffer that holds all commands."""

    may_refuse = True

    def __init__(self, buffer: DriverCommandBuffer, count: int) -> None:
        self._buffer, self.updates_wait = buffer, not buffer.simultaneous
        self._handles = ffi.new(
            "fl_driver_buffer *",
            (ffi.cast("void *", buffer.cl), ffi.cast("void *", buffer.enqueue_function)),
        )
        self.native: Any = ffi.new(
            "fl_built *",
            {
                "enqueue": ffi.addressof(lib, "fl_enqueue_driver_buffer"),
                "self": self._handles,
                "count": count,
            },
        )

    def update(self, commands: Sequence[int]) -> int:
        return self._buffer.update(commands)

    def explain(self) -> str:
        return "cl_khr_command_buffer"

    def close(self) -> None:
        self._buffer.close()


class RecordedByProgram(BuiltByDriver):
    """A command-buffer to which the program has added commands of its own, for a queue not yet
    known.

    Whoever recorded it closes it.
    """

    @cached_property
    def _elsewhere(self) -> Any:
        """The queue that the program recorded for, as an array of one."""
        return ffi.new("void *[]", [ffi.cast("void *", self._buffer.queue)])

    def recover(self, code: int, queue: int, waits: Sequence[int]) -> tuple[int, int] | None:
        """Enqueue the command-buffer on its own queue if the driver takes it on no other.

        The caller's queue waits for it.
        """
        if code != _INCOMPATIBLE:
            return None
        before = enqueue_marker(queue, waits)
        made, failed = ffi.new("void **"), ffi.new("uint32_t *")
        listed = ffi.new("void *[]", [ffi.cast("void *", before)])
        code = lib.fl_enqueue_driver_buffer(
            self._handles, self._elsewhere, 1, 1, 1, listed, made, failed
        )
        call(queue, "clFlush")
        call(self._buffer.queue, "clFlush")
        call(before, "clReleaseEvent")
        if code:
            return code, 0
        event = int(ffi.cast("uintptr_t", made[0]))
        end = enqueue_marker(queue, [event])
        call(event, "clReleaseEvent")
        return 0, end

    def close(self) -> None:
        pass
