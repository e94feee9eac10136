"""Appends to a command-buffer of the adapter on Level Zero: transfers, fills, launches, hints,
native commands.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Final

from ....loader.base.operations import TransferCommand
from ....loader.ur.abi import UR
from ...sdk.command_buffers import AppendCall, declare_launch_appends, declare_native_appends
from ...sdk.conversions import failure
from ...sdk.families import AppendFamily
from ...sdk.kernel_arguments import read_arguments
from ...sdk.kernels import check_local_size
from ...sdk.transfers import Transfers
from ..allocations import locate
from ..core import adapter
from ..kernels import GroupCount, LaunchSizes, LZKernel
from ..launches import LAUNCH
from ..transfers import convert
from .command_buffers import LZCommandEvent
from .records import CommandRecord, LaunchState, LZCommand

#: What every append returns: sync-point, event, command.
Appended = tuple[int, "LZCommandEvent | None", "LZCommand | None"]

_BARRIER: Final = "zeCommandListAppendBarrier"


class LZAppend(AppendCall):
    """A call that appends a command to a command-buffer."""

    __slots__ = ()

    def add(
        self,
        routine: str,
        arguments: tuple[Any, ...],
        command: str,
        *,
        keep: Any = (),
        launch: LaunchState | None = None,
        others: Sequence[LZKernel] = (),
        copies: bool = False,
    ) -> Appended:
        """Append a command, and return what the caller is given.

        Args:
            routine: see `LZCommandBuffer.add`.
            arguments: see `LZCommandBuffer.add`.
            command: the name of its ur_command_t after UR_COMMAND_.
            keep: the objects that live as long as the command.
            others: the kernels that an update may choose instead.
            copies: see `LZCommandBuffer.add`.
        """
        buffer = self.buffer
        for event in self.outside:
            event.check_outside()
        kernels = [launch.kernel, *others] if launch is not None else []
        handles = [kernel.get_handle(buffer.device) for kernel in kernels] if others else ()
        with buffer.lock:
            record = CommandRecord(
                len(buffer.records),
                None,
                None,
                self.after,
                [event.cell for event in self.outside],
                tuple(self.inside),
                launch=launch,
                exported=self.event,
                keep=(keep, arguments, kernels),
            )
            buffer.add(routine, arguments, record, kernels=handles, copies=copies)
            event = handle = None
            if self.event:
                assert record.cell is not None
                number = UR[f"UR_COMMAND_{command}"]
                event = LZCommandEvent(record.cell, number, buffer, record.index)
                buffer.signals[record.index] = event
            if self.command:
                handle = LZCommand(buffer, record, kernels)
                buffer.commands.append(handle)
            return record.index + 1, event, handle

    def mark(self, command: str) -> Appended:
        """Append a place in the order: a command only if the program needs an event of it."""
        needed = self.event or self.outside or self.buffer.in_order
        return self.add(_BARRIER if needed else "", (), command)


appends: Final = AppendFamily(adapter, LZAppend)


def _append_transfer(append: LZAppend, transfer: TransferCommand, command: str) -> Appended:
    """Append a transfer (sdk/transfers.py)."""
    operation = convert(append.buffer.device, transfer)
    call = operation.make_call("ze")
    return append.add(*call, command, keep=operation.keep, copies=True)


Transfers(appends, locate, _append_transfer).declare_hints()


# launches


def _append_launch(
    append: LZAppend,
    kernel: LZKernel,
    dim: int,
    offset: Sequence[int] | None,
    size: Sequence[int],
    local: Sequence[int] | None,
    others: list[LZKernel],
    rows: Any = None,
    count: int = 0,
    given: bool = False,
) -> Appended:
    """Append a launch, with the arguments in `rows` or those that were set before.

    Args:
        offset: the global work offset, or None.
        size: the global work size.
        local: the local work size, or None.
        others: the kernels that an update may choose instead.
        rows: the arguments, ur_exp_kernel_arg_properties_t.
        given: whether all arguments have to be in `rows`.
    """
    buffer = append.buffer
    append.check_kernels(kernel, others)
    if local is not None:
        check_local_size(local)
    sizes = LaunchSizes.from_program(dim, offset, size, local)
    arguments = read_arguments(adapter, rows, count)
    if given and sorted(index for index, _ in arguments) != list(range(kernel.argument_count)):
        raise failure(
            "INVALID_KERNEL_ARGUMENT_INDEX",
            f"an argument of {kernel.argument_count} does not exist, is missing, or is given twice",
        )
    with kernel.lock:
        kernel.set(arguments)
        kernel.check_complete()
        if 0 in size and not append.command:  # an update may make it launch something
            return append.mark("KERNEL_LAUNCH")
        shape = kernel.find_shape(buffer.device, sizes)
        handle, groups = kernel.apply(buffer.device, shape), GroupCount(*shape.counts)
        state = LaunchState(kernel, dict(kernel.arguments), sizes, shape)
        numbers = handle, ctypes.byref(groups)
        return append.add(LAUNCH, numbers, "KERNEL_LAUNCH", launch=state, others=others)


declare_launch_appends(appends, _append_launch, partial(_append_launch, given=True))


# native commands


def _append_native(append: LZAppend, child: None, function: Callable[[], None]) -> Appended:
    append.add(_BARRIER, (), "ENQUEUE_NATIVE_EXP")
    function()
    return append.add(_BARRIER, (), "ENQUEUE_NATIVE_EXP")


declare_native_appends(appends, _append_native)
