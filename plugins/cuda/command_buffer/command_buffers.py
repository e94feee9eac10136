"""Command-buffers of Unified Runtime as CUDA Graphs: recorded, made executable, launched.

A command is a node, or a few nodes of which the last one stands for it. A sync-point is the number
of its command plus one, and becomes edges. One executable graph is launched again and again. CUDA
lets a launch come after the one before it, and changes nothing of what was launched by updates.

A command's event is a CUevent that a node behind the command records. It is complete until the
first launch, as CUDA's events are. A command waits for outside events by nodes before it, and for
the event of another command of the same command-buffer by an edge.

(Unified Runtime: EXP-COMMAND-BUFFER 1.12. appends.py, launches.py and updates.py have the rest.)
"""

from __future__ import annotations

import ctypes
import weakref
from collections.abc import Sequence
from typing import Any, Final

from ....loader.base.forks import new_lock
from ....loader.ur.abi import UR
from ..clocks import base_of, new_event
from ..contexts import CuContext
from ..core import Object, adapter, failure
from ..devices import CuDevice
from ..enqueue import CuEnqueue
from ..events import CuEvent
from ..queues import CuQueue

_Descriptor: Final = UR.struct("ur_exp_command_buffer_desc_t")


class CuCommandEvent(CuEvent):
    """The event of a command in a command-buffer.

    Args:
        buffer: its command-buffer.
        command: its ur_command_t.
        index: the number of the command.
    """

    def __init__(self, buffer: CuCommandBuffer, command: int, index: int) -> None:
        device, timed = buffer.device, buffer.profiling
        with device.current():
            begin = new_event(device, True) if timed else 0
            end = new_event(device, timed)
        super().__init__(buffer.context, device, end, None, command, begin=begin)
        self.buffer, self.index = weakref.ref(buffer), index


@adapter.kind
class CuCommand(Object):
    """A command that can be updated. It lives as long as its command-buffer.

    Args:
        buffer: its command-buffer.
        index: its number.

    Attributes:
        node: its node, if it is a launch.
        state: what it launches (`updates.CuLaunchState`), None if it is no launch.
    """

    type, counted = "ur_exp_command_buffer_command_handle_t", False

    def __init__(self, buffer: CuCommandBuffer, index: int) -> None:
        self._buffer = weakref.ref(buffer)
        self.index, self.node = index, 0
        self.state: Any = None

    @property
    def buffer(self) -> CuCommandBuffer:
        """Return its command-buffer. Raises URError if the command-buffer is closed."""
        buffer = self._buffer()
        if buffer is None:
            raise failure("INVALID_COMMAND_BUFFER_COMMAND_HANDLE_EXP")
        return buffer


@adapter.kind
class CuCommandBuffer(Object):
    """A command-buffer for one device of a context.

    Attributes:
        graph: the CUgraph.
        executable: the CUgraphExec, 0 before finalize.
        commands: the node that stands for each command.
        count: how many nodes the graph has.
        waits: the nodes that wait for events of elsewhere, and these events, by the command.
        inner_waits: the commands of this command-buffer that commands wait for by an event.
        signals: the events of commands.
        records: the nodes that record them: before the command (0 without profiling) and behind it.
        updates: the commands that can be updated.
        keep: what the nodes use.
    """

    type = "ur_exp_command_buffer_handle_t"

    def __init__(
        self, context: CuContext, device: CuDevice, updatable: bool, in_order: bool, profiling: bool
    ) -> None:
        self.context, self.device = context, device
        self.updatable, self.in_order, self.profiling = updatable, in_order, profiling
        self.graph = device.make("GraphCreate", 0)
        self.executable = 0
        self.commands: list[int] = []
        self.count = 0
        self.waits: dict[int, list[tuple[int, CuEvent]]] = {}
        self.inner_waits: dict[int, list[int]] = {}
        self.signals: dict[int, CuCommandEvent] = {}
        self.records: dict[int, tuple[int, int]] = {}
        self.updates: dict[int, CuCommand] = {}
        self.keep: list[Any] = []
        self.lock = new_lock()
        self._explained = False

    # recording

    def check_open(self) -> None:
        """Raise URError (INVALID_OPERATION) if it is finalized."""
        if self.executable:
            raise failure("INVALID_OPERATION", "the command-buffer is finalized")

    def predecessors_of(self, sync_points: Sequence[int]) -> tuple[int, ...]:
        """Return the commands that the next one comes after.

        Raises:
            URError: INVALID_COMMAND_BUFFER_SYNC_POINT_EXP for a sync-point that does not exist.
        """
        count = len(self.commands)
        if self.in_order:
            return (count - 1,) if count else ()
        if not sync_points:
            return ()
        if not 0 < min(sync_points) <= max(sync_points) <= count:
            raise failure("INVALID_COMMAND_BUFFER_SYNC_POINT_EXP")
        return tuple(dict.fromkeys(point - 1 for point in sync_points))

    def node(self, name: str, after: Sequence[int], *parameters: Any) -> int:
        """Add a node.

        Args:
            name: the driver's function after "GraphAdd", such as "KernelNode".
            after: the nodes that it comes after.
            parameters: what the function takes after the dependencies.

        Raises:
            CudaError: what the driver answers.
        """
        before = (ctypes.c_void_p * max(len(after), 1))(*after)
        made = self.device.make(f"GraphAdd{name}", self.graph, before, len(after), *parameters)
        self.count += 1
        return made

    def finalize(self) -> None:
        """Complete it: nothing can be appended any more, and it can be enqueued."""
        with self.lock:
            self.check_open()
            self.executable = self.device.make("GraphInstantiateWithFlags", self.graph, 0)

    # running

    def enqueue(self, queue: CuQueue, waits: Sequence[CuEvent], wanted: bool) -> CuEvent | None:
        """Enqueue it.

        Args:
            queue: a queue of its device.
            waits: events that it waits for.
            wanted: whether an event is made.

        Returns:
            The event of its end, None if it is not wanted.

        Raises:
            URError: INVALID_OPERATION, INVALID_CONTEXT, INVALID_DEVICE.
            CudaError: what the driver answers.
        """
        if not self.executable:
            raise failure("INVALID_OPERATION", "the command-buffer is not finalized")
        self.context.check_same("the queue", queue)
        if queue.device is not self.device:
            raise failure("INVALID_DEVICE", "the queue is of another device")
        enqueue = CuEnqueue(queue, "ENQUEUE_COMMAND_BUFFER_EXP", waits, wanted)
        with self.lock:
            base = base_of(self.device) if self.profiling and self.signals else None
            event = enqueue.run(
                lambda stream: enqueue.call("GraphLaunch", self.executable, stream), self
            )
            for signal in self.signals.values():
                signal.queue, signal.base = queue, base
        if not self._explained:
            self._explained = True
            adapter.log("info", f"a command-buffer of {self.explain()}")
        return event

    def explain(self) -> str:
        """Return how an enqueue runs."""
        words = f"{len(self.commands)} commands: a CUDA Graph of {self.count} nodes"
        events = sum(map(len, self.waits.values())) + len(self.signals)
        return f"{words}, {events} of them for events" if events else words

    def close(self) -> None:
        registry = adapter.registry
        if registry is not None:
            for command in self.updates.values():
                registry.forget(command)
        # CUDA ends an executable graph after its launches.
        if self.executable:
            self.device.ask("GraphExecDestroy", self.executable)
        self.device.ask("GraphDestroy", self.graph)


@adapter.entry
def urCommandBufferCreateExp(
    hContext: CuContext, hDevice: CuDevice, pCommandBufferDesc: Any
) -> CuCommandBuffer:
    hContext.check_device(hDevice)
    desc = pCommandBufferDesc
    return CuCommandBuffer(
        hContext, hDevice, bool(desc.isUpdatable), bool(desc.isInOrder), bool(desc.enableProfiling)
    )


@adapter.entry
def urCommandBufferFinalizeExp(hCommandBuffer: CuCommandBuffer) -> None:
    hCommandBuffer.finalize()


@adapter.entry
def urCommandBufferGetNativeHandleExp(hCommandBuffer: CuCommandBuffer) -> int:
    """Return its CUgraph."""
    return hCommandBuffer.graph


@adapter.entry
def urEnqueueCommandBufferExp(
    hQueue: CuQueue, hCommandBuffer: CuCommandBuffer, phEventWaitList: list[CuEvent], phEvent: bool
) -> CuEvent | None:
    return hCommandBuffer.enqueue(hQueue, phEventWaitList, phEvent)


def _descriptor(buffer: CuCommandBuffer) -> bytes:
    stype = UR["UR_STRUCTURE_TYPE_EXP_COMMAND_BUFFER_DESC"]
    return bytes(_Descriptor(stype, None, buffer.updatable, buffer.in_order, buffer.profiling))


adapter.info(
    "urCommandBufferGetInfoExp",
    {
        "UR_EXP_COMMAND_BUFFER_INFO_REFERENCE_COUNT": lambda buffer: buffer.references,
        "UR_EXP_COMMAND_BUFFER_INFO_DESCRIPTOR": _descriptor,
    },
)
