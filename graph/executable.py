"""Executable graphs: a graph as it was when it was finalized, divided into partitions, ready to be
submitted any number of times.

`Snapshot` is the graph with its sub-graphs inlined: commands and edges, by index. Its partitions
become segments (segments.py): command-buffers, and host tasks between them. A submission gives each
segment to the scheduler after those that it comes after, so that branches run at the same time. Its
event is complete when all of them are. Submissions of one executable graph follow each other.
(sycl_ext_oneapi_graph, "Executable Graph"; the seed, "Graph Partitioning", "Multiple Roots
Execution Flow".)
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from threading import RLock
from typing import TYPE_CHECKING, Any

from ..loader.trace import pictures
from ..runtime.accessor import Accessor
from ..runtime.commands import Command, HostTask, enqueue_wait
from ..runtime.context import Context
from ..runtime.errors import make_invalid_error
from ..runtime.event import Event
from ..runtime.platform import Device
from ..runtime.queue import Queue
from ..runtime.scheduler import Enqueue, run_on_host, submit
from ..runtime.transfers import Transfer
from . import update
from .files import Pickles
from .node import Node
from .partition import Partition, partition
from .picture import Drawable, note_submission
from .segments import ORDER_ONLY, BufferSegment, EmptySegment, HostSegment, QueueSegment, Segment
from .snapshot import GraphExecution, Snapshot, find_required_accessors, make_ready

if TYPE_CHECKING:
    from typing_extensions import Self

    from .allocation import Allocations
    from .command_graph import CommandGraph

#: The events that something depends on, and further ones that it comes after, also if they fail.
_After = tuple[Sequence[Event], Sequence[Event]]


class _Version:
    """An executable graph between two updates. Submissions that wait hold the version of their
    call, and nothing else holds those that are over.

    Attributes:
        replaced: what the next update replaced, by partition: the old and the new command of each
            node.
        following: the version after that update, None for the present one.
    """

    __slots__ = ("following", "replaced")

    def __init__(self) -> None:
        self.replaced: Mapping[int, Mapping[int, tuple[Command, Command]]] = {}
        self.following: _Version | None = None

    def list_updates(self, partition: int) -> list[Mapping[int, tuple[Command, Command]]]:
        """Return what later updates replaced in a partition."""
        found, version = list[Mapping[int, tuple[Command, Command]]](), self
        while version.following is not None:
            if partition in version.replaced:
                found.append(version.replaced[partition])
            version = version.following
        return found


class ExecutableGraph(Drawable, Pickles):
    """A graph that can be submitted: `queue.graph(executable)`. It can be updated if it was
    finalized with `updatable=True`.

    Attributes:
        partitions: how it is divided, and by which policy (graph/partition.py).
        snapshot: its commands and edges.
        policy: how it was divided.
        schedule: a hint for the segments of commands that are not the adapter's.
        requirements: an accessor for each buffer that it uses.
        beyond_queue: whether it is more than one command-buffer for one device. A queue asks a
            command for this, `requirements`, `host_memory` and `execute`.
        only: the segment that is the whole graph, None if there are several, or a host task.
    """

    host_memory = False  # `execute` itself keeps it
    remedy_for_copies = "finalize the graph again"

    def __init__(
        self,
        context: Context,
        devices: tuple[Device, ...],
        snapshot: Snapshot,
        *,
        updatable: bool,
        profiling: bool,
        policy: str,
        allocations: Allocations | None = None,
        schedule: str = "auto",
        whole: Segment | None = None,
    ) -> None:
        self.context, self.devices, self.snapshot = context, devices, snapshot
        self.updatable, self.profiling, self.schedule = updatable, profiling, schedule
        self.allocations = allocations.hold(self) if allocations is not None else None
        self.lock, self.policy = RLock(), policy
        #: The last submission, and where it was.
        self._last: Event | None = None
        self._queue: Queue | None = None
        self._version = _Version()
        #: Our own queues, by the device and whether they profile.
        self._queues: dict[tuple[Device, bool], Queue] = {}
        self._not_profiled = "" if profiling else "the graph was finalized without enable_profiling"
        commands, kinds = snapshot.commands, snapshot.kinds
        has_hosts = any(issubclass(kind, HostTask) for kind in kinds)
        self.requirements = find_required_accessors(snapshot)
        self._kept = self._find_kept()
        make_ready(context, self.requirements)
        self.partitions = partition(
            snapshot.successors,
            snapshot.predecessors,
            host=[isinstance(command, HostTask) for command in commands]
            if has_hosts
            else [False] * len(commands),
            devices=snapshot.find_segment_makers() if whole is None else None,
            policy=policy,
            not_in_order=[
                index
                for index, command in enumerate(commands)
                if isinstance(command, Transfer) and "rect" in command.title
            ]
            if any(issubclass(kind, Transfer) for kind in kinds)
            else (),
        )
        parts = self.partitions.partitions
        self._places = [self._find_places(part) for part in parts]
        self._segments = (
            [whole] if whole is not None else list(map(self._make_segment, parts, self._places))
        )
        #: The segment that is the whole graph, None if there are several, or a host task.
        self.only = whole
        if len(self._segments) == 1 and len(devices) == 1:
            only = self._segments[0]
            self.only = None if isinstance(only, HostSegment) else only
        self.beyond_queue = self.only is None

    @property
    def segments(self) -> Sequence[Segment]:
        """What runs the partitions, in their order."""
        return self._segments

    def _find_places(self, part: Partition) -> Sequence[Device]:
        """Return the devices of a partition's nodes, except those that are there for their
        order."""
        commands, devices = self.snapshot.commands, self.snapshot.devices
        if not any(issubclass(kind, ORDER_ONLY) for kind in self.snapshot.kinds):
            return tuple(dict.fromkeys([devices[node] for node in part.nodes]))
        return tuple(
            dict.fromkeys(
                devices[node] for node in part.nodes if not isinstance(commands[node], ORDER_ONLY)
            )
        )

    def _make_segment(self, part: Partition, places: Sequence[Device]) -> Segment:
        commands = self.snapshot.commands
        if part.host:
            command = commands[part.nodes[0]]
            assert isinstance(command, HostTask)
            return HostSegment(command, self.context)
        first = next(
            (commands[node] for node in part.nodes if not isinstance(commands[node], ORDER_ONLY)),
            None,
        )
        if first is None:
            return EmptySegment()
        if first.segment_maker is not None:
            return first.segment_maker.make_segment(self, part)
        if not first.in_command_buffers:
            return QueueSegment([commands[node] for node in part.nodes])
        return BufferSegment(
            self.context,
            places[0],
            part.nodes,
            commands,
            self.snapshot.predecessors,
            in_order=part.in_order,
            updatable=self.updatable,
            profiling=self.profiling,
        )

    # submissions

    def find_executable(self, context: Context) -> Self:
        """Return the graph itself. Raises SYCLError (invalid) for another context than its own."""
        if context is not self.context and context != self.context:
            raise make_invalid_error(
                "the graph was made for another context than this queue or graph",
                routine="ext_oneapi_graph",
                remedy="use its context",
            )
        if pictures.is_wanted():
            note_submission(self)
        return self

    def as_command(self) -> GraphExecution:
        """Return the command for a queue or for another graph."""
        return GraphExecution(self)

    def check_inside(self, graph: CommandGraph) -> None:
        """Raise SYCLError (invalid) if it cannot be a sub-graph of a graph of its context."""
        if self.allocations is not None:
            raise make_invalid_error(
                "Graphs containing allocations cannot be used as sub-graphs.",
                routine="ext_oneapi_graph",
                remedy="allocate outside of the graph",
            )
        if any(device not in graph.devices for device in self.devices):
            raise make_invalid_error(
                "the sub-graph was made for another device than the graph",
                routine="ext_oneapi_graph",
                remedy="make the graph for both devices: CommandGraph(context, [devices])",
            )

    def execute(self, queue: Queue, dependencies: Sequence[Event]) -> Event:
        """Submit the graph to a queue after events. `Queue.graph` calls this. Raises SYCLError."""
        after: _After = dependencies, ()
        with self.lock:
            last = self._last
            if queue is not self._queue:
                self._check_queue(queue)
            if last is not None and (
                queue is not self._queue
                or not queue.in_order
                or last.deferred is not None
                or last.others
            ):
                after = dependencies, (last,)
            only = self.only
            event = (
                self._run_only(only, queue, after) if only else self._run_partitions(queue, after)
            )
            self._last, self._queue = event, queue
        self._keep_memory(event)
        return event

    def _find_kept(self) -> Sequence[Command]:
        """Return the commands with memory that no driver keeps while a submission runs."""
        return [command for command in self.snapshot.commands if command.host_memory]

    def _keep_memory(self, event: Event) -> None:
        """Keep the host memory of the commands until an event is complete, also if the graph is
        dropped or updated."""
        if self._kept:
            self.context.keep_until_done(event, self._kept)

    def _check_queue(self, queue: Queue) -> None:
        if (
            queue.context is not self.context and queue.context != self.context
        ) or queue.device not in self.devices:
            raise make_invalid_error(
                "the graph was made for another device or context than the queue's",
                routine="ext_oneapi_graph",
                remedy="submit it to a queue of its context and device",
            )

    def _run_only(self, only: Segment, queue: Queue, after: _After) -> Event:
        times: list[Event] = []
        if any(after):
            event = submit(self.context, self._make_enqueue(0, queue, times), *after)
        else:
            event = Event(self.context, only.enqueue(queue, 0, None, times))
        event.profiled = self._not_profiled or self._explain_missing_times(queue) or times
        return event

    def _run_partitions(self, queue: Queue, after: _After) -> Event:
        events: list[Event] = []
        try:
            return self._run_each(queue, after, events)
        except BaseException:  # what has begun goes on, also on other devices
            queue.add_waits(events)
            for event in events:
                self._keep_memory(event)
            raise

    def _run_each(self, queue: Queue, after: _After, events: list[Event]) -> Event:
        times: list[Event] = []
        for number, (part, segment) in enumerate(
            zip(self.partitions.partitions, self._segments, strict=True)
        ):
            before = [events[earlier] for earlier in part.predecessors]
            waits = (before, ()) if before else after
            if isinstance(segment, HostSegment):
                events.append(run_on_host(self.context, segment.function, *waits))
            else:
                enqueue = self._make_enqueue(number, self._find_queue(queue, number), times)
                events.append(submit(self.context, enqueue, *waits))
        exits = [events[number] for number in self.partitions.exits]
        if len(self.devices) > 1:  # who waits for the queue waits for what ran on others too
            final = submit(self.context, partial(enqueue_wait, queue), exits)
        else:
            final = events[-1]
            final.others = tuple(end for end in exits if end is not final)
        times += events
        final.profiled = self._explain_missing_times(queue) or times
        return final

    def _make_enqueue(self, number: int, queue: Queue, times: list[Event]) -> Enqueue:
        """Return the function that enqueues a partition after events, as the partition is now.

        It holds the graph, and so the memory of all its commands. Nobody else does while the
        submission is deferred. Once the adapter has the commands, USM waits for their end itself.
        """
        segment, version = self._segments[number], self._version
        enqueue_segment = segment.take()

        def enqueue(count: int, waits: Any) -> int:
            with self.lock:
                if version.following is None:
                    return enqueue_segment(queue, count, waits, times)
                with self._undoing(segment, version.list_updates(number)):
                    return enqueue_segment(queue, count, waits, times)

        return enqueue

    @contextmanager
    def _undoing(
        self, segment: Segment, updates: Sequence[Mapping[int, tuple[Command, Command]]]
    ) -> Iterator[None]:
        """Let a segment be what it was before updates that came after the submission. Waiting for
        it instead could be for ever: this thread may have to complete what the submission waits
        for."""
        for pairs in reversed(updates):
            segment.update({node: (new, old) for node, (old, new) in pairs.items()})
        try:
            yield
        finally:
            for pairs in updates:
                segment.update(pairs)

    def _explain_missing_times(self, queue: Queue) -> str:
        """Return why a submission to a queue has no times, "" if it has. Both the graph and the
        queue must profile."""
        return self._not_profiled or (
            "" if queue.profiling else "the queue was made without profiling=True"
        )

    def _find_queue(self, queue: Queue, number: int) -> Queue:
        """Return the queue for a partition: the caller's, or one of ours if none of its nodes is
        for that device."""
        places = self._places[number]
        if not places or queue.device in places:
            return queue
        key = device, profiling = places[0], queue.profiling
        if key not in self._queues:
            self._queues[key] = Queue(self.context, device, profiling=profiling)
        return self._queues[key]

    # updates

    def update(
        self, what: update.HasCommandGraph | Node | Iterable[Node], *, strict: bool = False
    ) -> None:
        """Take over what has changed. If an error is raised, nothing is. (command_graph::update)

        Earlier submissions are not affected, also those that still wait for something.

        Args:
            what: nodes of the graph that it was made of, or a whole graph of the same topology.
            strict: whether a whole graph must also have the same kinds of node and the same edges.

        Raises:
            SYCLError: invalid.
        """
        changes = update.find_changes(self, what, strict)
        used: list[Accessor] = []
        for command in changes.values():
            used += command.requirements
        if used:
            make_ready(self.context, used)
        with self.lock:
            self._exchange(changes)
            if used:
                self.requirements = find_required_accessors(self.snapshot)

    @property
    def is_waiting(self) -> bool:
        """Whether the adapter does not have the last submission yet, which no update may reach."""
        event = self._last
        return event is not None and any(part.deferred is not None for part in event.parts())

    def _exchange(self, changes: dict[int, Command]) -> None:
        """Replace commands, by index, with one call of the adapter for each partition."""
        commands, of = self.snapshot.commands, self.partitions.of
        by_partition: dict[int, dict[int, tuple[Command, Command]]] = {}
        for node, new in changes.items():
            by_partition.setdefault(of[node], {})[node] = commands[node], new
        done: list[int] = []
        try:
            for number, pairs in by_partition.items():
                self._segments[number].update(pairs)
                done.append(number)
        except BaseException:
            for number in reversed(done):
                self._segments[number].update(
                    {node: (new, old) for node, (old, new) in by_partition[number].items()}
                )
            raise
        for node, new in changes.items():
            commands[node] = new
        before, self._version = self._version, _Version()
        before.replaced, before.following = by_partition, self._version
        if self._kept or any(new.host_memory for new in changes.values()):
            self._kept = self._find_kept()

    # looks

    def required_memory(self) -> int:
        """Return how many bytes its own allocations (async_malloc) need. (get_required_mem_size)"""
        return self.allocations.required if self.allocations is not None else 0

    def __len__(self) -> int:
        return len(self.snapshot.commands)

    def explain(self) -> str:
        """Return how the graph is divided, and why, and how each command-buffer runs.

        What the adapter says of a command-buffer is in the lines below its partition: the engine or
        path of its last submission and why, chains, kernels that start early. Adapters of others do
        not say it.
        """
        parts = self.partitions
        lines = [
            f"{len(self)} nodes in {len(parts.partitions)} partitions, by policy {parts.policy}"
            + (f": {parts.reason}" if parts.reason else "")
        ]
        for number, part in enumerate(parts.partitions):
            what = (
                "host task"
                if part.host
                else f"{len(part.nodes)} nodes{', in order' if part.in_order else ''}"
            )
            after = f", after {', '.join(map(str, part.predecessors))}" if part.predecessors else ""
            lines.append(f"  {number}: {what}{after}")
            segment = self._segments[number]
            if isinstance(segment, BufferSegment):
                text = segment.buffer.explain() or "the adapter does not say how it runs them"
                lines += [f"     {line}" for line in text.splitlines()]
        return "\n".join(lines)

    def __repr__(self) -> str:
        partitions = len(self.partitions.partitions)
        return f"<ExecutableGraph of {len(self)} nodes in {partitions} partitions>"
