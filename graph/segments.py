"""Segments: the partitions of an executable graph, ready to be run.

A partition of host code is a `HostSegment`; one of commands for a device is a `BufferSegment`, which is a command-buffer of the adapter;
one of nothing but empty nodes is an `EmptySegment`. Commands of other kinds, such as captured OpenCL calls, name what makes the segments
of theirs (`Command.engine`).
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, Protocol, cast

from ..runtime.arguments import MEMORY, POINTER, Argument
from ..runtime.command_buffer import CommandBuffer
from ..runtime.commands import Barrier, Command, Empty, HostTask, KernelLaunch
from ..runtime.context import Context
from ..runtime.errors import check
from ..runtime.handles import struct
from ..runtime.platform import Device
from ..runtime.queue import Queue

if TYPE_CHECKING:
    from .executable import ExecutableGraph
    from .partition import Partition

#: Commands that are there for their dependencies alone: nothing is enqueued for them.
ORDER_ONLY: Final = (Empty, Barrier)


class Segment(Protocol):
    """A partition that can be enqueued: `enqueue(queue, count, waits)` gives the handle of its event."""

    def enqueue(self, queue: Queue, count: int, waits: Any) -> int: ...
    def update(self, changes: Mapping[int, tuple[Command, Command]]) -> None: ...


class Engine(Protocol):
    """What runs commands of another kind than the adapter's: commands of equal ones can be in one partition, for which it makes a
    segment of its own."""

    def segment(self, graph: ExecutableGraph, part: Partition) -> Segment: ...


class EmptySegment:
    """Nothing to run: its event is complete when what it waits for is."""

    def enqueue(self, queue: Queue, count: int, waits: Any) -> int:
        event = ctypes.c_void_p()
        check(queue.adapter.ur.urEnqueueEventsWait(queue.handle, count, waits, ctypes.byref(event)), "urEnqueueEventsWait")
        return event.value or 0

    def update(self, changes: Mapping[int, tuple[Command, Command]]) -> None:
        pass


class HostSegment:
    """A host task: `function` is the one that runs next time."""

    def __init__(self, command: HostTask) -> None:
        self.function: Callable[[], object] = command.function

    def enqueue(self, queue: Queue, count: int, waits: Any) -> int:
        raise AssertionError("the scheduler runs it")

    def update(self, changes: Mapping[int, tuple[Command, Command]]) -> None:
        for _, new in changes.values():
            assert isinstance(new, HostTask)
            self.function = new.function


class BufferSegment:
    """Commands for a device as a command-buffer.

    Args:
        nodes: their numbers in the graph, in execution order.
        commands: the commands of all the graph's nodes.
        predecessors: of all the graph's nodes.
        in_order: they are a single path: no sync-points are needed.
    """

    def __init__(
        self,
        context: Context,
        device: Device,
        nodes: Sequence[int],
        commands: Sequence[Command],
        predecessors: Sequence[Sequence[int]],
        *,
        in_order: bool,
        updatable: bool,
        profiling: bool,
    ) -> None:
        self._context = context
        self.buffer = CommandBuffer(
            context, device, updatable=updatable, in_order=in_order and not profiling, profiling=profiling
        )
        self._handles: dict[int, int] = {}
        points: dict[int, tuple[int, ...]] = {}  # of each node, what a follower waits for
        inside = set(nodes)
        for node in nodes:
            waits: tuple[int, ...] = ()
            if not in_order:
                waits = tuple(
                    dict.fromkeys(point for before in predecessors[node] if before in inside for point in points[before])
                )
            command = commands[node]
            if isinstance(command, ORDER_ONLY):
                points[node] = waits
                continue
            point, handle = command.append(self.buffer, len(waits), (ctypes.c_uint32 * len(waits))(*waits) if waits else None)
            points[node] = (point,)
            if handle:
                self._handles[node] = handle
        self.buffer.finalize()

    def enqueue(self, queue: Queue, count: int, waits: Any) -> int:
        return self.buffer.enqueue(queue.handle, count, waits)

    def update(self, changes: Mapping[int, tuple[Command, Command]]) -> None:
        """Put launches in the place of others; all of them or, if the adapter refuses one, none."""
        kept: list[Any] = []
        updates = []
        for node, (old, new) in changes.items():
            assert isinstance(old, KernelLaunch) and isinstance(new, KernelLaunch)
            described = describe_update(self._handles[node], old, new, self._context, kept)
            if described is not None:
                updates.append(described)
        self.buffer.update(updates)


_LISTS: Final = {
    MEMORY: ("MemObj", "ur_exp_command_buffer_update_memobj_arg_desc_t"),
    POINTER: ("Pointer", "ur_exp_command_buffer_update_pointer_arg_desc_t"),
}
_VALUES: Final = ("Value", "ur_exp_command_buffer_update_value_arg_desc_t")


def describe_update(handle: int, old: KernelLaunch, new: KernelLaunch, context: Context, kept: list[Any]) -> Any:
    """The adapter's description of the difference between two launches, None if there is none; `kept` holds what it points to.

    (ur_exp_command_buffer_update_kernel_launch_desc_t)
    """
    other_kernel = new.kernel.handle != old.kernel.handle
    lists: dict[str, list[Any]] = {}
    for index, (before, after) in enumerate(
        zip(old.arguments, new.arguments, strict=True) if not other_kernel else _fresh(new)
    ):
        if after is not None and (before is None or differs(before, after)):
            name, kind = _LISTS.get(after.type, _VALUES)
            lists.setdefault(name, []).append(struct(kind, argIndex=index, **_fields(after, context, kept)))
    # an adapter that is given another kernel, or another dimension, takes nothing from the old one
    sizes = other_kernel or (old.global_size, old.local_size, old.offset) != (new.global_size, new.local_size, new.offset)
    if not lists and not sizes:
        return None
    made = struct("ur_exp_command_buffer_update_kernel_launch_desc_t", hCommand=handle, newWorkDim=len(new.global_size))
    made.hNewKernel = new.kernel.handle if other_kernel else None
    for name, items in lists.items():
        block: Any = (cast("Any", type(items[0])) * len(items))(*items)
        kept.append(block)
        setattr(made, f"numNew{name}Args", len(items))
        setattr(made, f"pNew{name}ArgList", ctypes.addressof(block))
    if sizes:
        zeros = (0,) * len(new.global_size)
        for name, numbers in (
            ("Offset", new.offset or (zeros if old.offset else ())), ("Size", new.global_size), ("Local", new.local_size),
        ):  # fmt: skip
            if numbers:
                block = (ctypes.c_size_t * len(numbers))(*numbers)
                kept.append(block)
                setattr(made, "pNewLocalWorkSize" if name == "Local" else f"pNewGlobalWork{name}", ctypes.addressof(block))
    kept.append(made)
    return made


def _fresh(new: KernelLaunch) -> list[tuple[Argument | None, Argument | None]]:
    return [(None, one) for one in new.arguments]


def differs(before: Argument, after: Argument) -> bool:
    """Whether two arguments are not the same for a kernel."""
    if before is after:
        return False
    if before[:2] != after[:2] or before.buffer is not after.buffer or before.flags != after.flags:
        return True
    if before.type == MEMORY:
        return False
    if before.word and after.word and before.type != POINTER:
        return ctypes.string_at(before.word, before.size) != ctypes.string_at(after.word, after.size)
    return before.word != after.word


def _fields(one: Argument, context: Context, kept: list[Any]) -> dict[str, Any]:
    if one.type == MEMORY:
        assert one.buffer is not None
        return {"hNewMemObjArg": one.buffer.memory(context)}
    if one.type == POINTER:
        kept.append(ctypes.c_void_p(one.word))  # SPEC: what is given is the address of the pointer
        return {"pNewPointerArg": ctypes.addressof(kept[-1])}
    return {"argSize": one.size, "pNewValueArg": one.word or None}
