"""The commands of a command-buffer: what every append has in common (`Append`), and those that move nothing and launch nothing.

| Unified Runtime | operation of the replay engine | where |
|---|---|---|
| KernelLaunch, KernelLaunchWithArgs | kernel: a copy of it, and the arguments of this moment | command_launches.py |
| MemBuffer{Copy,Read,Write}[Rect] | the same; host memory is used when the command runs | command_transfers.py |
| MemBufferFill, USMFill | fill, or a write of what OpenCL has no pattern for | command_transfers.py |
| USMMemcpy | what usm.as_copy says | command_transfers.py |
| USMPrefetch, USMAdvise | nothing but their place in the order | here |
| NativeCommand | what the native function adds to the driver's own command-buffer | here |
"""

from __future__ import annotations

import ctypes
import weakref
from collections.abc import Sequence
from typing import Any, Final

from ....loader.ur.abi import UR
from ..core import adapter, failure
from ..events import URCommandEvent, UREvent
from ..usm.registry import find
from .command_buffers import URCommand, URCommandBuffer

#: What every append gives back: sync-point, event, command.
Appended = tuple[int, "URCommandEvent | None", "URCommand | None"]

_NativeCommand: Final = ctypes.CFUNCTYPE(None, ctypes.c_void_p)


def split_waits(
    buffer: URCommandBuffer, events: Sequence[UREvent]
) -> tuple[list[URCommandEvent], list[UREvent]]:
    """The events of a wait list that commands of this command-buffer signal, and the others."""
    inside: list[URCommandEvent] = []
    outside: list[UREvent] = []
    for event in events:
        if isinstance(event, URCommandEvent) and event.buffer() is buffer:
            inside.append(event)
        else:
            outside.append(event)
    return inside, outside


class Append:
    """What all appends have in common: where the command stands, and what the caller wants of it. Checked before anything is
    appended."""

    __slots__ = ("after", "buffer", "command", "event", "inside", "outside")

    def __init__(
        self,
        buffer: URCommandBuffer,
        sync_points: Sequence[int],
        events: Sequence[UREvent],
        event: bool,
        command: bool,
    ) -> None:
        buffer.check_open()
        if command and not buffer.updatable:
            raise failure(
                "INVALID_OPERATION",
                "the command-buffer is not updatable, so that it has no command handles",
            )
        if events:
            buffer.context.check_same("an event of the wait list", *events)
        self.inside, self.outside = split_waits(buffer, events)
        self.buffer, self.after = buffer, buffer.after(sync_points)
        if self.inside and not buffer.in_order:
            self.after = tuple(dict.fromkeys((*self.after, *(one.index for one in self.inside))))
        self.event, self.command = event, command

    def add(
        self,
        op: str,
        command: str,
        numbers: Sequence[int] = (),
        keep: Sequence[Any] = (),
        **fields: Any,
    ) -> Appended:
        """Append an operation; `command` is its ur_command_t after UR_COMMAND_, `keep` the objects that it uses."""
        commands = self.buffer.commands
        index = commands.add(op, self.after, numbers, order_only=op == "hint", **fields)
        commands.keep += keep
        return self.finish(index, command)

    def finish(self, index: int, command: str) -> Appended:
        """What the caller is given for the command that was appended under a number."""
        buffer, event, handle = self.buffer, None, None
        if self.outside:
            buffer.waits[index] = self.outside
        if self.inside:
            buffer.inner_waits[index] = [one.index for one in self.inside]
        if self.event:
            event = buffer.signals[index] = URCommandEvent(
                buffer.context, UR[f"UR_COMMAND_{command}"], weakref.ref(buffer), index
            )
        if self.command:
            handle = buffer.updates[index] = URCommand(buffer, index)
        return index + 1, event, handle


def _check_allocation(append: Append, address: int, size: int) -> None:
    """That a hint is about memory that there is. Raises URError (INVALID_SIZE) if it goes beyond an allocation."""
    if not size:
        raise failure("INVALID_SIZE")
    found = find(append.buffer.context, address)
    if found is not None and address + size > found.base + found.size:
        raise failure("INVALID_SIZE", "it goes beyond the allocation")


@adapter.entry
def urCommandBufferAppendUSMPrefetchExp(
    hCommandBuffer: URCommandBuffer,
    pMemory: int,
    size: int,
    flags: int,
    pSyncPointWaitList: list[int],
    phEventWaitList: list[UREvent],
    phEvent: bool,
    phCommand: bool,
) -> Appended:
    append = Append(hCommandBuffer, pSyncPointWaitList, phEventWaitList, phEvent, phCommand)
    _check_allocation(append, pMemory, size)
    return append.add("hint", "USM_PREFETCH")


@adapter.entry
def urCommandBufferAppendUSMAdviseExp(
    hCommandBuffer: URCommandBuffer,
    pMemory: int,
    size: int,
    advice: int,
    pSyncPointWaitList: list[int],
    phEventWaitList: list[UREvent],
    phEvent: bool,
    phCommand: bool,
) -> Appended:
    append = Append(hCommandBuffer, pSyncPointWaitList, phEventWaitList, phEvent, phCommand)
    _check_allocation(append, pMemory, size)
    return append.add("hint", "USM_ADVISE")


@adapter.entry
def urCommandBufferAppendNativeCommandExp(
    hCommandBuffer: URCommandBuffer,
    pfnNativeCommand: int,
    pData: int,
    hChildCommandBuffer: URCommandBuffer | None,
    pSyncPointWaitList: list[int],
) -> int:
    """The function adds commands of its own to the driver's command-buffer; barriers set them off from what comes before and
    after."""
    if hChildCommandBuffer is not None:
        raise failure(
            "UNSUPPORTED_FEATURE",
            "OpenCL's command-buffers have no children, as COMMAND_BUFFER_SUBGRAPH_SUPPORT_EXP says",
        )
    append = Append(hCommandBuffer, pSyncPointWaitList, (), False, False)
    native = hCommandBuffer.open_native()
    native.barrier()
    _NativeCommand(pfnNativeCommand)(pData)
    native.barrier()
    return append.add("barrier", "ENQUEUE_NATIVE_EXP")[0]
