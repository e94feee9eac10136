"""Captured commands in executable graphs: partitions of them are command-buffers of icd's, whatever the graph's adapter is.

A `CapturedSegment` runs on native queues: on that of a runtime queue, as part of a graph, or on a pyopencl queue (`run`). Events go from
one side to the other as native handles.
"""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cache, cached_property
from typing import TYPE_CHECKING, Any, Final, cast

from ..icd.capture.recording import OPS, ORDER_ONLY
from ..icd.command_buffer.command_buffer import CommandBuffer, Commands
from ..icd.command_buffer.commands import call, wait_for
from ..icd.command_buffer.edits import copy_of, has_all_arguments, put, same_function
from ..icd.command_buffer.order import Order
from ..icd.errors import OpenCLError, describe, error
from ..loader.base.forks import new_lock
from ..loader.base.interrupts import slices
from ..runtime.event import Event
from ..runtime.handles import struct
from .block import Block

if TYPE_CHECKING:
    from ..graph.executable import ExecutableGraph
    from ..graph.partition import Partition
    from ..runtime.commands import Command
    from ..runtime.context import Context
    from ..runtime.queue import Queue
    from .nodes import Captured

_OWNED: Final = struct("ur_event_native_properties_t", isNativeHandleOwned=True)


class ReplayError(OpenCLError):
    """A command failed while it was enqueued. `node` is its number in the graph, -1 for a barrier of the schedule.

    What was enqueued before it runs; the graph is as it was and can be replayed again.
    """

    def __init__(self, message: str, *, node: int, **parts: Any) -> None:
        super().__init__(message, **parts)
        self.node = node


@dataclass(frozen=True)
class Replays:
    """Who runs captured commands of a context (a handle). Those of several captures of it can be one segment."""

    context: int

    def segment(self, graph: ExecutableGraph, part: Partition) -> CapturedSegment:
        """A partition of them, with empty nodes and barriers of the graph's own."""
        commands, predecessors = graph.snapshot.commands, graph.snapshot.predecessors
        nodes = _in_order_of_recording(part.nodes, predecessors)
        place = {node: number for number, node in enumerate(nodes)}
        array, numbers, blocks = Commands(), dict[int, int](), dict[Block, None]()
        for number, node in enumerate(nodes):
            command, before = (
                commands[node],
                [place[one] for one in predecessors[node] if one in place],
            )
            native = getattr(command, "native", None)
            if native is None:
                array.add("marker", before, order_only=True)
                continue
            array.add(OPS[native.op], before, order_only=OPS[native.op] in ORDER_ONLY)
            block = command.block  # pyright: ignore[reportAttributeAccessIssue]
            blocks[block] = None
            put(
                array.array + number,
                native,
                numbers.setdefault(block.devices[native.queue], len(numbers)),
            )
        order = Order(array.dependencies, array.order_only)
        return CapturedSegment(
            self.context,
            list(numbers),
            array.array,
            order,
            list(blocks),
            commands.__getitem__,
            nodes,
            owner=array,
            schedule=getattr(graph, "schedule", "auto"),
            updatable=graph.updatable,
            profiled=graph.profiling,
        )


def _in_order_of_recording(
    nodes: Sequence[int], predecessors: Sequence[Sequence[int]]
) -> Sequence[int]:
    """Nodes as they were added; in the order of execution that is given if edges lead back to earlier ones."""
    inside = frozenset(nodes)
    if any(before > node and before in inside for node in nodes for before in predecessors[node]):
        return nodes
    return sorted(nodes)


#: What dropped segments used, with the event after which nothing of it is used any more. Looked through now and then.
_unfinished: Final[list[tuple[Any, Any]]] = []


def keep_until(event: int, things: Any) -> None:
    """Keep things as long as an event (a handle, 0: none) is not complete."""
    import pyopencl

    if event:
        _unfinished.append((pyopencl.Event.from_int_ptr(event, True), things))
    done = pyopencl.command_execution_status.COMPLETE
    for item in list(_unfinished):
        if item[0].command_execution_status <= done:
            with suppress(ValueError):  # another thread was faster
                _unfinished.remove(item)


class CapturedSegment:
    """Captured commands that are enqueued as one. Thread-safe: what is enqueued comes after what was enqueued before.

    Args:
        context: a handle.
        devices: handles; `fl_command.queue` is a number in it.
        array, order: the commands and their order.
        blocks: where they were captured.
        command_at: gives the command of a number in the graph; `nodes` are the numbers of those in the array, by place.
        owner: of the array.
        schedule: as `CapturedGraph.finalize` takes it.
        updatable: commands can be put in the place of others, by `update`.
        profiled: a run can be asked for times.
    """

    def __init__(
        self,
        context: int,
        devices: Sequence[int],
        array: Any,
        order: Order,
        blocks: Sequence[Block],
        command_at: Callable[[int], Command],
        nodes: Sequence[int],
        *,
        owner: Any = None,
        schedule: str = "auto",
        updatable: bool = False,
        profiled: bool = False,
    ) -> None:
        self._array, self._blocks, self._command_at, self._nodes = array, blocks, command_at, nodes
        self._make = lambda: CommandBuffer(
            context,
            devices,
            array,
            order,
            (owner, blocks),
            schedule=schedule,
            updatable=updatable,
            profiled=profiled,
        )
        self._profiled = profiled
        self._pending = list(
            dict.fromkeys(event for block in blocks for event in block.recording.pending)
        )
        self._lock = new_lock()
        self.buffer = self._make()
        keep_until(0, None)

    @classmethod
    def whole(
        cls,
        block: Block,
        command_at: Callable[[int], Command],
        schedule: str,
        *,
        profiled: bool = False,
    ) -> CapturedSegment:
        """All commands of a block, as they lie in its recording."""
        recording, nodes = block.recording, range(len(block))
        return cls(
            recording.context,
            block.devices,
            recording.commands,
            block.order,
            (block,),
            command_at,
            nodes,
            schedule=schedule,
            profiled=profiled,
        )

    @cached_property
    def _place(self) -> dict[int, int]:
        return {node: number for number, node in enumerate(self._nodes)}

    # running

    def run(
        self, queue: int, device: int, in_order: bool, times: int, waits: list[int]
    ) -> tuple[int, int]:
        """Enqueue it `times` times on a native queue after events.

        Returns the events of its end and, if it is profiled, of its first command; 0 where that of the end tells both times. References
        are for the caller. Raises ReplayError, OpenCLError.
        """
        with self._lock:
            if self._pending:
                waits += self._still_pending()
            if not self._profiled or times == 1:
                return self._run(queue, device, in_order, times, waits)
            end, first = self._run(queue, device, in_order, 1, waits)
            last, again = self._run(queue, device, in_order, times - 1, ())
        for event in (end, again) if first else ():
            call(event, "clReleaseEvent")
        return last, first or end

    def _run(
        self, queue: int, device: int, in_order: bool, times: int, waits: Sequence[int]
    ) -> tuple[int, int]:
        event, exported = 0, []
        for count in slices(times):
            for one in exported:  # of the replays before these
                call(one, "clReleaseEvent")
            times -= count
            code, event, failed, exported = self.buffer.enqueue(
                queue, device, in_order, count, waits, wanted=not times
            )
            if code:
                raise self._failure(code, failed)
            waits = ()
        return event, exported[0] if exported else 0

    def enqueue(self, queue: Queue, count: int, waits: Any, times: list[Event]) -> int:
        """Enqueue it on a runtime queue after `count` events; the handle of its event."""
        adapter, native = queue.adapter, queue.native()
        before = [adapter.made("urEventGetNativeHandle", waits[number]) for number in range(count)]
        end, first = self.run(native, queue.device.native(), queue.in_order, 1, before)
        call(native, "clFlush")  # SPEC clFlush: a queue whose events are waited for elsewhere
        made = event_from(end, queue.context)
        if first:
            call(end, "clRetainEvent")
            times += [Event(queue.context, event_from(one, queue.context)) for one in (first, end)]
        return made

    def _still_pending(self) -> list[int]:
        """The events from before the capture that have still not completed."""
        import pyopencl

        done = pyopencl.command_execution_status.COMPLETE
        waits = []
        for handle in list(self._pending):
            status = pyopencl.Event.from_int_ptr(handle, True).command_execution_status
            if status < done:
                name, sentence = describe(status)
                raise OpenCLError(
                    f"A command from before the capture block, which the graph waits for, failed. {sentence}",
                    routine="replay",
                    code=name,
                    value=status,
                    remedy="capture again once the earlier command has succeeded",
                )
            if status == done:
                self._pending.remove(handle)
            else:
                waits.append(handle)
        return waits

    def _failure(self, code: int, failed: int) -> ReplayError:
        name, sentence = describe(code)
        node, what = -1, "a barrier"
        if failed >= 0:
            node = self._nodes[failed]
            command = cast("Captured", self._command_at(node))
            what = f"node {node}, {command.label}" + (
                f", recorded at {command.where}" if command.where else ""
            )
        return ReplayError(
            f"{what}, could not be enqueued. {sentence}",
            routine="replay",
            code=name,
            value=code,
            node=node,
            remedy="the commands before it are enqueued: finish the queue, mend the cause and replay again",
        )

    # updating

    def update(self, changes: Mapping[int, tuple[Command, Command]]) -> None:
        """Put commands in the place of others: all of them or, if the driver refuses one (OpenCLError), none. What has been enqueued
        already keeps what it was enqueued with."""
        new = {
            self._place[node]: cast("Captured", after).native
            for node, (_, after) in changes.items()
        }
        with self._lock:
            old = {number: copy_of(self._array + number) for number in new}
            code = self._exchange(new)
            if code:
                self._exchange(old)
                raise error(code, "update", "The driver refused it, and nothing has changed.")
            used = [old for old, _ in changes.values() if cast("Captured", old).uses_host_memory]
            if used:
                keep_until(self.buffer.last_event, used)

    def _exchange(self, commands: Mapping[int, Any]) -> int:
        """Change the array, and what was made of it. Returns OpenCL's code."""
        changed, anew = dict[int, bool](), False
        same_kernel = cache(same_function)
        for number, native in commands.items():
            row = self._array + number
            kernel, queue = row.kernel, row.queue
            same = kernel == native.kernel or (
                has_all_arguments(native) and same_kernel(kernel, native.kernel)
            )
            put(row, native, queue)
            if same:
                row.kernel, changed[number] = kernel, False
            anew |= not same
        if not anew:
            return self.buffer.update(changed)
        if (
            self.buffer.last_event
        ):  # it is made anew, and the new one would not come after the old one
            wait_for(self.buffer.last_event)
        self.buffer = self._make()
        return 0

    def explain(self, queue: int, device: int, in_order: bool) -> str:
        """How it is run on a native queue, and why so."""
        with self._lock:
            return self.buffer.explain(queue, device, in_order)

    def __del__(self) -> None:
        """Host memory and SVM go with the block: what may still be using them keeps it."""
        buffer = getattr(self, "buffer", None)
        if buffer is None or sys is None or sys.is_finalizing():  # it was not made, or Python ends
            return
        if buffer.last_event and any(block.uses_host_memory for block in self._blocks):
            keep_until(buffer.last_event, (self._blocks, self._command_at))


def event_from(event: int, context: Context) -> int:
    """A runtime event's handle for a native event, whose reference is taken over."""
    made = context.adapter.made
    return made("urEventCreateWithNativeHandle", event, context.handle, ctypes.byref(_OWNED))
