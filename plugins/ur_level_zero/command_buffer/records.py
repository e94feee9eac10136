"""What a command-buffer knows of its commands, and how it records them in a command list."""

from __future__ import annotations

import ctypes
import weakref
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from ...sdk.command_buffers import CommandObject
from ...sdk.kernel_arguments import URKernelArgument
from ..contexts import EventCell, LZContext
from ..core import ZE, LevelZeroError, adapter, call, create, make_handle_array, make_struct
from ..devices import LZDevice, QueueGroup
from ..kernels import LaunchSizes, LZKernel, LZLaunchShape

if TYPE_CHECKING:
    from .command_buffers import LZCommandBuffer

_FLAGS: Final = {
    name: ZE[f"ZE_MUTABLE_COMMAND_EXP_FLAG_{name}"]
    for name in (
        *("KERNEL_ARGUMENTS", "GROUP_COUNT", "GROUP_SIZE", "GLOBAL_OFFSET", "KERNEL_INSTRUCTION"),
        *("SIGNAL_EVENT", "WAIT_EVENTS"),
    )
}
_EVENTS: Final = _FLAGS["SIGNAL_EVENT"] | _FLAGS["WAIT_EVENTS"]
_LAUNCH: Final = sum(_FLAGS.values()) & ~_FLAGS["KERNEL_INSTRUCTION"]
_IN_ORDER: Final = ZE["ZE_COMMAND_LIST_FLAG_IN_ORDER"]
_ANY_ORDER: Final = ZE["ZE_COMMAND_LIST_FLAG_RELAXED_ORDERING"]


class LaunchState(NamedTuple):
    """What a launch is: its kernel, all its arguments, and its sizes."""

    kernel: LZKernel
    arguments: dict[int, URKernelArgument]
    sizes: LaunchSizes
    shape: LZLaunchShape


class LZCommandList:
    """A regular command list, which is destroyed when nobody holds it.

    Args:
        in_order: whether its commands run in their order.
        mutable: whether its commands can be changed.

    Attributes:
        is_changed: whether commands were changed since it was closed.
    """

    def __init__(
        self,
        context: LZContext,
        device: LZDevice,
        group: QueueGroup,
        *,
        in_order: bool = True,
        mutable: bool = False,
    ) -> None:
        self.table, self.group, self.device = context.table, group, device
        self.is_changed = False
        desc = make_struct(
            "command_list_desc",
            commandQueueGroupOrdinal=group.ordinal,
            flags=_IN_ORDER if in_order else _ANY_ORDER,
            pNext=make_struct("mutable_command_list_exp_desc") if mutable else None,
        )
        given = context.ze, device.ze, ctypes.byref(desc)
        self.ze = create(self.table, "zeCommandListCreate", *given)
        weakref.finalize(self, self.table.zeCommandListDestroy, self.ze).atexit = False

    def append(
        self,
        routine: str,
        *arguments: Any,
        signal: EventCell | None = None,
        waits: Sequence[EventCell] = (),
    ) -> None:
        """Append a command. Raises LevelZeroError."""
        listed = len(waits), make_handle_array([cell.ze for cell in waits])
        handle = signal.ze if signal is not None else None
        call(self.table, routine, self.ze, *arguments, handle, *listed)

    def append_barrier(
        self, signal: EventCell | None = None, waits: Sequence[EventCell] = ()
    ) -> None:
        """Append a barrier. Raises LevelZeroError."""
        self.append("zeCommandListAppendBarrier", signal=signal, waits=waits)

    def reset(self, *cells: EventCell) -> None:
        """Append the resets of events. Raises LevelZeroError."""
        for cell in cells:
            call(self.table, "zeCommandListAppendEventReset", self.ze, cell.ze)

    def close(self) -> None:
        """Close the list, so that changes are made and it can run. Raises LevelZeroError."""
        self.is_changed = False
        call(self.table, "zeCommandListClose", self.ze)

    def change(self, routine: str, *arguments: Any) -> None:
        """Call a function that changes commands of the list, which has to be closed after that."""
        call(self.table, routine, self.ze, *arguments)
        self.is_changed = True

    def identify(self, kernels: Sequence[int], launches: bool) -> int:
        """Return an identifier for the next command, 0 if the driver gives it none.

        Args:
            kernels: the kernels that it may launch, if that can be changed.

        Raises:
            LevelZeroError: the driver gives a launch none.
        """
        has = self.device.mutable_flags
        flags = (_LAUNCH if launches else _EVENTS) & has
        made = ctypes.c_uint64()
        if kernels:
            flags |= _FLAGS["KERNEL_INSTRUCTION"]
            desc = make_struct("mutable_command_id_exp_desc", flags=flags)
            given = ctypes.byref(desc), len(kernels), make_handle_array(kernels), ctypes.byref(made)
            call(self.table, "zeCommandListGetNextCommandIdWithKernelsExp", self.ze, *given)
            return made.value
        desc = make_struct("mutable_command_id_exp_desc", flags=flags)
        given = self.ze, ctypes.byref(desc), ctypes.byref(made)
        if launches:
            call(self.table, "zeCommandListGetNextCommandIdExp", *given)
        elif flags:
            with suppress(LevelZeroError):
                call(self.table, "zeCommandListGetNextCommandIdExp", *given)
        return made.value


@dataclass
class CommandRecord:
    """A command.

    Attributes:
        index: its number, one less than its sync-point.
        list: the list that it is in, None if it is only a place in the order.
        cell: what it signals, None if nobody needs that.
        after: the commands that it waits for, in a command-buffer of any order.
        outside: the events of elsewhere that it waits for.
        inside: the commands whose events are in its wait list.
        identifier: by which it can be changed, 0 if it cannot.
        launch: what it launches, None if it is not a launch.
        exported: whether the program has an event of it.
    """

    index: int
    list: LZCommandList | None
    cell: EventCell | None
    after: tuple[int, ...]
    outside: list[EventCell]
    inside: tuple[int, ...] = ()
    identifier: int = 0
    launch: LaunchState | None = None
    exported: bool = False
    keep: Any = field(default=(), repr=False)


@adapter.kind
class LZCommand(CommandObject):
    """A command that can be updated. It lives as long as its command-buffer.

    Attributes:
        before: the arguments that it launched other kernels with, for an update back to them.
    """

    def __init__(
        self, buffer: LZCommandBuffer, record: CommandRecord, kernels: Sequence[LZKernel]
    ) -> None:
        super().__init__(buffer, record.index)
        self.record, self.kernels = record, tuple(kernels)
        self.before: dict[LZKernel, dict[int, URKernelArgument]] = {}

    def find_waits(self) -> tuple[Sequence[int], int]:
        return self.record.inside, len(self.record.outside)

    @property
    def is_launch(self) -> bool:
        return self.record.launch is not None
