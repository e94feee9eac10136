"""OpenCL adapter: what all appends to a command-buffer have in common (`Append`), transfers, hints
and native commands.

| Unified Runtime | command in icd/command_buffer | file |
|---|---|---|
| KernelLaunch, KernelLaunchWithArgs | kernel: a copy, and the present arguments | launches.py |
| MemBuffer{Copy,Read,Write}[Rect] | the same; host memory is used when it runs | here |
| MemBufferFill, USMFill | fill; write, if OpenCL does not take the pattern | here |
| USMMemcpy | what `Strategy.copy` returns | here |
| USMPrefetch, USMAdvise | a hint, which only has its place in the order | here |
| NativeCommand | what the native function adds to the driver's command-buffer | here |
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Sequence
from typing import Any, Final

from ....loader.base.operations import TransferCommand
from ....loader.ur.abi import UR
from ...sdk.command_buffers import AppendCall, declare_native_appends
from ...sdk.families import AppendFamily
from ...sdk.transfers import Location, Transfers
from ..core import adapter
from ..events import URCommandEvent
from ..transfers import is_opencl_pattern, name_memory
from ..usm.addresses import fill_location, find_allocation
from ..usm.strategies import require_strategy
from .command_buffers import URCommand

#: What every append returns: sync-point, event, command.
Appended = tuple[int, "URCommandEvent | None", "URCommand | None"]


class Append(AppendCall):
    """A call that appends a command to a command-buffer."""

    __slots__ = ()

    def add(self, op: str, command: str, keep: Sequence[Any] = (), **operands: Any) -> Appended:
        """Append a command, and return what the caller is given.

        Args:
            command: the name of its ur_command_t after UR_COMMAND_.
        """
        commands = self.buffer.commands
        index = commands.add(op, self.after, order_only=op == "hint", **operands)
        commands.keep += keep
        return self.finish(index, command)

    def mark(self, command: str) -> Appended:
        """Append a command that only has its place in the order."""
        return self.add("hint", command)

    def finish(self, index: int, command: str) -> Appended:
        """Return what the caller is given for the command that was appended under a number."""
        buffer, event, handle = self.buffer, None, None
        if self.outside:
            buffer.waits[index] = self.outside
        if self.inside:
            buffer.inner_waits[index] = self.inside
        if self.event:
            event = buffer.signals[index] = URCommandEvent(
                buffer.context, UR[f"UR_COMMAND_{command}"], weakref.ref(buffer), index
            )
        if self.command:
            handle = buffer.updates[index] = URCommand(buffer, index)
        return index + 1, event, handle


appends: Final = AppendFamily(adapter, Append)
#: `appends.declare`, for a function without the name of its entry point.
declare_append: Final = appends.declare


def _append_native(append: Append, child: None, function: Callable[[], None]) -> Appended:
    native = append.buffer.open_native()
    native.barrier()
    function()
    native.barrier()
    return append.add("barrier", "ENQUEUE_NATIVE_EXP")


declare_native_appends(appends, _append_native)


def _append(append: Append, transfer: TransferCommand, command: str) -> Appended:
    """Append a transfer (sdk/transfers.py)."""
    operands, context = name_memory(transfer), append.context
    target, op, keep = operands["target"], transfer.operation, append.buffer.commands.copy_pattern
    if "pattern" in operands:
        pattern, size = operands["pattern"], operands["size"]
        if isinstance(target, Location):
            transfer = fill_location(context, target, pattern, size, keep)
        elif is_opencl_pattern(len(pattern), operands["offset"]):
            operands["pattern"] = keep(pattern)
        else:
            op, operands["source"] = "write", keep(pattern * (size // len(pattern)))
            del operands["pattern"], operands["pattern_size"]
    elif isinstance(target, Location):
        transfer = require_strategy(context).copy(target, operands["source"], operands["size"])
    if isinstance(target, Location):
        op, operands = transfer.operation, dict(transfer.operands)
    return append.add(op, command, transfer.keep, **operands)


Transfers(appends, find_allocation, _append).declare_hints()
