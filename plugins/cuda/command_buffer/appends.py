"""CUDA and HIP: what all appends to a command-buffer have in common (`CuAppend`), and native
commands.

| Unified Runtime | node | file |
|---|---|---|
| KernelLaunch, KernelLaunchWithArgs | a kernel | launches.py |
| MemBuffer{Copy,Read,Write}[Rect], USMMemcpy | a copy | transfers.py |
| MemBufferFill, USMFill | sets, one for each column of a pattern | transfers.py |
| USMPrefetch, USMAdvise | an empty node, which only has its place | transfers.py |
| NativeCommand | a child graph, which the native function fills | here |

Copies use host memory when they run. A pattern of more than 128 bytes is copied.
"""

from __future__ import annotations

import contextlib
import ctypes
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Final

from ....loader.ur.abi import UR
from ...sdk.command_buffers import AppendCall
from ...sdk.families import AppendFamily
from ..core import adapter
from ..events import CuEvent
from .command_buffers import CuCommand, CuCommandBuffer, CuCommandEvent

#: What every append returns: sync-point, event, command.
Appended = tuple[int, "CuCommandEvent | None", "CuCommand | None"]

_NativeCommand: Final = ctypes.CFUNCTYPE(None, ctypes.c_void_p)


class CuAppend(AppendCall):
    """A call that appends a command to a command-buffer."""

    __slots__ = ()

    def add(
        self,
        command: str,
        build: Callable[[Sequence[int]], int],
        keep: Any = None,
        waits: bool = False,
    ) -> Appended:
        """Append a command.

        Args:
            command: the name of its ur_command_t after UR_COMMAND_.
            build: adds its nodes after some nodes, and returns the last one.
            keep: what it uses.
            waits: whether it is a launch that waits for the one before it (`in_c.does_wait`).

        Returns:
            What the caller is given.

        Raises:
            DriverError: what the driver answers.
        """
        buffer = self.buffer
        with buffer.recording:
            return self._add(UR[f"UR_COMMAND_{command}"], build, keep, waits)

    def _add(
        self, command: int, build: Callable[[Sequence[int]], int], keep: Any, waits: bool
    ) -> Appended:
        buffer = self.buffer
        index = buffer.length
        after: Sequence[int] = buffer.in_c.plan(self.after)
        waits_for = list[tuple[int, CuEvent]]()
        if self.outside:
            before, after = after, []
            for event in self.outside:
                event.check_outside()
                after.append(buffer.add_node("EventWaitNode", before, event.end))
            waits_for = list(zip(after, self.outside, strict=True))
        signal = CuCommandEvent(buffer, command, index) if self.event else None
        first = 0
        if signal is not None and signal.begin:
            first = buffer.add_node("EventRecordNode", after, signal.begin)
            after = [first]
        last = build(after)
        if signal is not None:
            last = buffer.add_node("EventRecordNode", [last], signal.end)
        buffer.in_c.add(last, waits and not self.outside and signal is None)
        buffer.keep.append(keep)
        if signal is not None:
            buffer.signals[index], buffer.records[index] = signal, (first, last)
        if waits_for:
            buffer.waits[index] = waits_for
        if self.inside:
            buffer.inner_waits[index] = self.inside
        handle = None
        if self.command:
            handle = buffer.updates[index] = CuCommand(buffer, index)
        return index + 1, signal, handle

    def mark(self, command: str) -> Appended:
        """Append a command that only has its place in the order. Raises DriverError."""
        return self.add(command, partial(self.buffer.add_node, "EmptyNode"))


appends: Final = AppendFamily(adapter, CuAppend)
#: `appends.declare`, for a function without the name of its entry point.
declare_append: Final = appends.declare


@adapter.entry
def urCommandBufferAppendNativeCommandExp(
    hCommandBuffer: CuCommandBuffer,
    pfnNativeCommand: int,
    pData: int,
    hChildCommandBuffer: CuCommandBuffer | None,
    pSyncPointWaitList: list[int],
) -> int:
    """Call a function that adds nodes to a graph, which becomes one node.

    It is the graph of the child. Without a child it is what the function gets as the native handle
    of the command-buffer itself.
    """
    append = CuAppend(hCommandBuffer, pSyncPointWaitList, (), False, False)
    child = hChildCommandBuffer
    if child is not None:
        child.check_open()
    with (
        contextlib.nullcontext(child.get_native())
        if child
        else hCommandBuffer.make_inner_graph() as graph
    ):
        _NativeCommand(pfnNativeCommand)(pData)

        def build(after: Sequence[int]) -> int:
            return hCommandBuffer.add_node("ChildGraphNode", after, graph)

        return append.add("ENQUEUE_NATIVE_EXP", build, child)[0]
