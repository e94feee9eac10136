"""CUDA and HIP: command-buffers of Unified Runtime as the driver's graphs: recorded, made
executable, launched.

A command is a node, or a few nodes of which the last one stands for it. A sync-point is the number
of its command plus one, and becomes edges. One executable graph is launched again and again. CUDA
lets a launch come after the one before it, and changes nothing of what was launched by updates.

A command's event is a CUevent that a node behind the command records. It is complete until the
first launch, as CUDA's events are. A command waits for outside events by nodes before it, and for
the event of another command of the same command-buffer by an edge.

(Unified Runtime: EXP-COMMAND-BUFFER 1.12. The other files of this folder have the rest.)
"""

from __future__ import annotations

import ctypes
import weakref
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any, Final

from ....icd.command_buffer.cuda_order import MOST_EARLY_CHAINS
from ...sdk._native import ffi
from ...sdk.command_buffers import (
    CommandBufferObject,
    CommandObject,
    RecordingLock,
    declare_command_buffers,
)
from ..clocks import make_base, make_event
from ..contexts import CuContext
from ..core import API, NOT_READY, DriverError, adapter, failure
from ..devices import CuDevice
from ..enqueue import CuEnqueue
from ..events import CuEvent
from ..launches import CuLaunch
from ..queues import CuQueue
from .in_c import CommandInC, GraphInC


class CuCommandEvent(CuEvent):
    """The event of a command in a command-buffer.

    Args:
        command: its ur_command_t.
        index: the number of the command.
    """

    def __init__(self, buffer: CuCommandBuffer, command: int, index: int) -> None:
        device, timed = buffer.device, buffer.profiling
        with device.make_current():
            begin = make_event(device, True) if timed else 0
            end = make_event(device, timed)
        super().__init__(buffer.context, device, end, None, command, begin=begin)
        self.buffer, self.index = weakref.ref(buffer), index


@adapter.kind
class CuCommand(CommandObject):
    """A command that can be updated. It lives as long as its command-buffer.

    Args:
        made: the `fl_gpu_command` of a launch that C has made.

    Attributes:
        state: what it launches (`updates.CuLaunchState`), None if it is not a launch.
    """

    def __init__(self, buffer: CuCommandBuffer, index: int, made: Any = None) -> None:
        super().__init__(buffer, index)
        plans = buffer.in_c.plans
        self.state: Any = plans[made.launch.plan].copy_alone(made.node) if made else None
        self._in_c = CommandInC(buffer.in_c, made)

    def describe_to_c(self) -> tuple[int, int, int, int]:
        return 0, self._in_c.address, 0, 0

    def set_launch(self, state: Any, launch: CuLaunch) -> None:
        """Set what the command launches. C does not use the command-buffer meanwhile.

        Args:
            state: an `updates.CuLaunchState`.
            launch: the same as the driver takes it, or the first part of it.
        """
        self.state = state
        self._in_c.take(state, launch)

    def read_state(self) -> Any:
        """Return what the command launches now. C does not use the command-buffer meanwhile."""
        self._in_c.update_from_c(self.state)
        return self.state

    @property
    def is_launch(self) -> bool:
        return self.state is not None


@adapter.kind
class CuCommandBuffer(CommandBufferObject):
    """A command-buffer for one device of a context.

    Attributes:
        native: its native handle: the graph, or in a native command that command's own one.
        executable: the CUgraphExec, 0 before finalize.
        in_c: what C knows of it: the node that stands for each command, and launches to repeat.
        waits: the nodes that wait for events of elsewhere, and these events, by the command.
        records: the nodes that record them: before the command (0 without profiling) and behind it.
        has_new_events: whether an update has changed an event.
        first_signals: the events that updates have replaced first. The CUgraph has them.
        ended: a CUevent behind each launch since an update has replaced an event, 0 before.
        early: how many launches start before the one before them has ended.
    """

    def __init__(
        self, context: CuContext, device: CuDevice, updatable: bool, in_order: bool, profiling: bool
    ) -> None:
        super().__init__(context, device, updatable, in_order, profiling)
        self.graph = self.native = device.make("GraphCreate", 0)
        self.executable = 0
        self.in_c = GraphInC(context, device, self.graph, in_order, updatable)
        _by_struct[self.in_c.address] = self
        self.recording = RecordingLock(self.in_c.struct)
        self._nodes = 0  # that Python has added
        self.signals: dict[int, CuCommandEvent]
        self.records: dict[int, tuple[int, int]] = {}
        self.updates: dict[int, CuCommand] = {}
        self.has_new_events = False
        self.first_signals: dict[int, CuCommandEvent] = {}
        self.ended = 0
        self._replaced: list[CuCommandEvent] = []
        self.early = 0
        self.keep: list[Any] = []

    def describe_to_c(self) -> tuple[int, int, int, int]:
        return 0, self.in_c.address, *super().describe_to_c()[2:]

    # recording

    @property
    def length(self) -> int:
        return self.in_c.struct.count

    @property
    def count(self) -> int:
        """Return how many nodes the graph has."""
        return self._nodes + self.in_c.struct.appended

    @property
    def is_finalized(self) -> bool:
        return bool(self.executable)

    def add_node(self, name: str, after: Sequence[int], *parameters: Any) -> int:
        """Add a node.

        Args:
            name: the driver's function after "GraphAdd", such as "KernelNode".
            parameters: what the function takes after the dependencies.
        """
        before = (ctypes.c_void_p * max(len(after), 1))(*after)
        made = self.device.make(f"GraphAdd{name}", self.graph, before, len(after), *parameters)
        self._nodes += 1
        return made

    def get_native(self) -> int:
        """Return the native handle, a graph that has all edges. Raises DriverError."""
        with self.recording:
            self.in_c.add_late_edges()
        return self.native

    @contextmanager
    def make_inner_graph(self) -> Iterator[int]:
        """Make a graph, and let it be the native handle in a block. The driver copies it."""
        self.native = made = self.device.make("GraphCreate", 0)
        try:
            yield made
        finally:
            self.native = self.graph
            self.device.ask("GraphDestroy", made)

    def finalize(self) -> None:
        """Complete the command-buffer: nothing can be appended any more, and it can be enqueued."""
        with self.recording:
            self.check_open()
            self.executable = self._instantiate()
            self.in_c.close(self.executable)

    def _instantiate(self) -> int:
        """Return the executable graph. Where the driver refuses early launches there are none."""
        make = partial(self.device.make, "GraphInstantiateWithFlags", self.graph, 0)
        if self.device.early_threads and self.in_c.chains <= MOST_EARLY_CHAINS:
            self.early = self.in_c.start_early(True)
        self.in_c.add_late_edges()
        try:
            return make()
        except DriverError:
            if not self.early or not self.in_c.start_early(False):
                raise
            self.early = 0
            return make()

    # running

    def enqueue(self, queue: CuQueue, waits: Sequence[CuEvent], wanted: bool) -> CuEvent | None:
        self.check_queue(queue)
        enqueue = CuEnqueue(queue, "ENQUEUE_COMMAND_BUFFER_EXP", waits, wanted)
        with self.recording:
            base = make_base(self.device) if self.profiling and self.signals else None
            event = enqueue.run_graph(self.executable, self._make_child, self, self.ended)
            for signal in self.signals.values():
                signal.queue, signal.base = queue, base
            self.in_c.struct.is_plain = not self.signals
        return event

    def keep_signal(self, index: int) -> None:
        """Keep the present event of a command until the launches so far have ended.

        Args:
            index: the command's number.
        """
        with self.device.make_current():
            self.ended = self.ended or make_event(self.device, False)
        if self.device.ask("EventQuery", self.ended) != NOT_READY:
            self._replaced.clear()
        old = self.signals[index]
        if self.first_signals.setdefault(index, old) is not old:
            self._replaced.append(old)

    def _make_child(self) -> int:
        """Return the graph for a capture, with what updates have changed in the executable graph.

        Raises:
            URError: GRAPH_CAPTURE_UNSUPPORTED if events were updated, or a launch has lost parts.
        """
        if self.has_new_events:
            raise failure("GRAPH_CAPTURE_UNSUPPORTED", "events of its commands were updated")
        registry = adapter.objects
        for handle in registry.list_made_in_c(CuCommand.type, self.in_c.address):
            registry.adopt(CuCommand.type, handle)
        for command in self.updates.values():
            if command.is_launch:
                state = command.read_state()
                parts = state.plan()
                if len(parts) < len(state.nodes):
                    raise failure("GRAPH_CAPTURE_UNSUPPORTED", "an update has taken parts away")
                for node, part in zip(state.nodes, parts, strict=True):
                    parameters = ctypes.byref(part.parameters)
                    self.device.call_here("GraphKernelNodeSetParams", node, parameters)
        return self.graph

    def explain(self, queue: Any = None) -> str:
        chains = self.in_c.chains
        shape = "a chain" if chains == 1 else f"{chains} chains"
        text = f"{self.length} commands: a {API.name} Graph of {self.count} nodes in {shape}"
        if self.early:
            text += f", {self.early} of which start early (programmatic dependent launch)"
        events = sum(map(len, self.waits.values())) + len(self.signals)
        return f"{text}, {events} of them for events" if events else text

    def close(self) -> None:
        registry = adapter.registry
        if registry is not None:
            for command in self.updates.values():
                registry.forget(command)
        self.in_c.end()
        # The driver ends an executable graph after its launches.
        if self.executable:
            self.device.ask("GraphExecDestroy", self.executable)
        if self.ended:
            self.device.ask("EventDestroy", self.ended)
        self.device.ask("GraphDestroy", self.graph)


#: The command-buffers by the addresses of what C knows of them.
_by_struct: Final[weakref.WeakValueDictionary[int, CuCommandBuffer]] = weakref.WeakValueDictionary()


def _adopt_command(words: Any) -> CuCommand:
    """Return the object of a launch that C has appended."""
    made, buffer = ffi.cast("fl_gpu_command *", words[1]), _by_struct[words[2]]
    command = buffer.updates[made.number] = CuCommand(buffer, made.number, made)
    return command


adapter.adopters[CuCommand.type] = _adopt_command
declare_command_buffers(adapter, CuCommandBuffer)
