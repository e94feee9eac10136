"""Segments: the partitions of an executable graph, ready to run.

A partition of host code is a `HostSegment`. One of commands for a device is a `BufferSegment`, a
command-buffer of the adapter. One of commands that no command-buffer has is a `QueueSegment`. One
of empty nodes is an `EmptySegment`. Commands of other kinds, such as captured OpenCL calls, name
what makes their segments (`Command.segment_maker`, whose `segment` takes the graph and the
partition). Those with equal makers can be in one partition.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, Final, Protocol

from ..runtime.coherent_memory import CoherentMemory
from ..runtime.command_buffer import AdapterCommandBuffer
from ..runtime.commands import Barrier, Command, Empty, HostTask, enqueue_wait
from ..runtime.context import Context
from ..runtime.event import Event
from ..runtime.handles import make_handle_array
from ..runtime.launch_updates import Change
from ..runtime.launches import KernelLaunch
from ..runtime.memory import MODES
from ..runtime.platform import Device
from ..runtime.queue import Queue

#: Commands that are there for their dependencies alone: nothing is enqueued for them.
ORDER_ONLY: Final = (Empty, Barrier)


#: Runs a segment on a queue after `count` events (handles) and returns the handle of its own event:
#: `enqueue(queue, count, waits, times)`. `times` gets other events whose times count, if its own
#: does not cover all of it.
Enqueue = Callable[[Queue, int, Any, list[Event]], int]


class Segment(Protocol):
    """A partition that can be enqueued."""

    def enqueue(self, queue: Queue, count: int, waits: Any, times: list[Event]) -> int: ...
    def update(self, changes: Mapping[int, tuple[Command, Command]]) -> None: ...

    def take(self) -> Enqueue:
        """Return what enqueues the segment with the Parameters that it has now."""
        return self.enqueue


class EmptySegment(Segment):
    """No operation. Its event is complete when what it waits for is."""

    def enqueue(self, queue: Queue, count: int, waits: Any, times: list[Event]) -> int:
        return enqueue_wait(queue, count, waits)

    def update(self, changes: Mapping[int, tuple[Command, Command]]) -> None:
        pass


class HostSegment(Segment):
    """A host task. `function` is what runs next time. The buffers that it uses are on the host
    meanwhile."""

    def __init__(self, command: HostTask, context: Context) -> None:
        self._context = context
        self.function: Callable[[], object] = partial(_run, command, context)

    def enqueue(self, queue: Queue, count: int, waits: Any, times: list[Event]) -> int:
        raise AssertionError("the scheduler runs it")

    def update(self, changes: Mapping[int, tuple[Command, Command]]) -> None:
        for _, new in changes.values():
            assert isinstance(new, HostTask)
            self.function = partial(_run, new, self._context)


def _run(task: HostTask, context: Context) -> None:
    for accessor in task.requirements:
        if MODES[accessor.mode][2]:
            _transfer("Read", accessor.buffer, context)
    task.run()
    for accessor in task.requirements:
        if accessor.writes:
            _transfer("Write", accessor.buffer, context)


def _transfer(direction: str, memory: CoherentMemory, context: Context) -> None:
    """Bring contents to the host's copy or back, and wait. What comes before and after in the graph
    waits too.

    It waits for an event, because some drivers return from a blocking write before it is complete.
    """
    address = memory.host_copy(writable=direction == "Read").ctypes.data
    event = memory.transfer(direction, context, context.transfer_queue(), address, 0, None)
    Event(context, event).wait()


class QueueSegment(Segment):
    """Commands for a device that command-buffers do not have, such as copies of images. Each one is
    enqueued by itself, after the one before it."""

    def __init__(self, commands: Sequence[Command]) -> None:
        self._commands = [one for one in commands if not isinstance(one, ORDER_ONLY)]

    def enqueue(self, queue: Queue, count: int, waits: Any, times: list[Event]) -> int:
        event = 0
        for command in self._commands:
            if event:
                times.append(Event(queue.context, event))
                count, waits = 1, make_handle_array([event])
            event = command.enqueue(queue, count, waits)
        return event

    def update(self, changes: Mapping[int, tuple[Command, Command]]) -> None:
        raise AssertionError("updates leave such commands as they are")


class BufferSegment(Segment):
    """Commands for a device as a command-buffer.

    Args:
        context, device: where it runs.
        nodes: their numbers in the graph, in execution order.
        commands: the commands of all the graph's nodes.
        predecessors: the predecessors of all the graph's nodes.
        in_order: whether they are a single path, which needs no sync-points.
        updatable: whether launches can be replaced.
        profiling: whether its commands can be asked for times.

    Raises:
        SYCLError: a command is refused; the message names its node.
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
        in_order = in_order and not profiling  # SPEC: profiling disables the hint
        self.buffer = AdapterCommandBuffer(
            context, device, updatable=updatable, in_order=in_order, profiling=profiling
        )
        after = None if in_order else _find_waits(nodes, commands, predecessors)
        own = [commands[node] for node in nodes]
        if any(issubclass(kind, ORDER_ONLY) for kind in set(map(type, own))):
            nodes = [node for node in nodes if not isinstance(commands[node], ORDER_ONLY)]
            own = [commands[node] for node in nodes]
        self.buffer.append_all(own, after, nodes)
        self._handles = dict(zip(nodes, self.buffer.handles, strict=False))
        self.buffer.finalize()

    def enqueue(self, queue: Queue, count: int, waits: Any, times: list[Event]) -> int:
        return self.buffer.enqueue(queue.handle, count, waits)

    def update(self, changes: Mapping[int, tuple[Command, Command]]) -> None:
        """Replace launches. If the adapter refuses one, none is replaced."""
        launches: list[Change] = []
        for node, (old, new) in changes.items():
            assert isinstance(old, KernelLaunch) and isinstance(new, KernelLaunch)
            launches.append((self._handles[node], old, new))
        self.buffer.update(launches)


def _find_waits(
    nodes: Sequence[int], commands: Sequence[Command], predecessors: Sequence[Sequence[int]]
) -> list[Sequence[int]]:
    """Return what each command comes after, as numbers of commands. Nodes that are there for their
    order alone have none: who comes after one waits for what that waits for."""
    found: list[Sequence[int]] = []
    ends: dict[int, Sequence[int]] = {}  # of each node, what a follower waits for
    for node in nodes:
        before = predecessors[node]  # who comes before it in another partition has no end here
        waits = (
            ends.get(before[0], ())
            if len(before) == 1
            else tuple(dict.fromkeys([end for one in before for end in ends.get(one, ())]))
        )
        if isinstance(commands[node], ORDER_ONLY):
            ends[node] = waits
        else:
            ends[node] = (len(found),)
            found.append(waits)
    return found
