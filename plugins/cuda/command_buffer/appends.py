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
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Final

from ....loader.ur.abi import UR
from ...sdk.command_buffers import AppendCall, declare_native_appends
from ...sdk.families import AppendFamily
from ..core import adapter
from ..events import CuEvent
from .command_buffers import CuCommand, CuCommandBuffer, CuCommandEvent

#: What every append returns: sync-point, event, command.
Appended = tuple[int, "CuCommandEvent | None", "CuCommand | None"]


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
        """Append a command, and return what the caller is given.

        Args:
            command: the name of its ur_command_t after UR_COMMAND_.
            build: adds its nodes after some nodes, and returns the last one.
            keep: the objects that live as long as the command.
            waits: whether it is a launch that waits for the one before it (`in_c.does_wait`).
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


def _append_native(
    append: CuAppend, child: CuCommandBuffer | None, function: Callable[[], None]
) -> Appended:
    """Append a graph to which a function adds nodes: that of the child.

    Without a child it is what the function gets as the native handle of the command-buffer itself.
    """
    buffer = append.buffer
    with (
        contextlib.nullcontext(child.get_native()) if child else buffer.make_inner_graph() as graph
    ):
        function()
        build = partial(buffer.add_node, "ChildGraphNode")
        return append.add("ENQUEUE_NATIVE_EXP", lambda after: build(after, graph), child)


declare_native_appends(appends, _append_native, has_children=True)
