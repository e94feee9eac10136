"""`with fairlead.capture(queue) as graph:` records what unmodified PyOpenCL code gives to a queue; nothing of it runs.

The block's commands become a `CapturedGraph`; `graph.finalize()` makes an `Executable` of it, whose `replay(queue)` runs all of them by
one native call. How it is done: `icd.capture` exchanges the queue's dispatch pointer, `graph` orders the nodes, `executable` runs them.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from types import TracebackType
from typing import Any

from . import _client
from .executable import Executable
from .graph import Graph, Node
from .icd.abi import CL_INVALID_CONTEXT
from .icd.capture import OPS, ORDER_ONLY, CaptureError, Recording
from .icd.commands import describe
from .icd.errors import error
from .icd.tables import parse_version

__all__ = ["CaptureError", "CapturedGraph", "capture"]


class _Observer:
    """Answers a recording's questions with what PyOpenCL's frames tell, and remembers where each command was called."""

    def __init__(self, keep: Iterable[Any]) -> None:
        self.kept: list[Any] = list(keep)
        self.held: dict[int, Any] = {}
        self.places: list[Any] = []

    def added(self, new_objects: bool) -> None:
        self.places.append(_client.calling_place(4))
        if new_objects:
            self._hold_pooled(5)

    def passed(self) -> None:
        self._hold_pooled(5)

    def _hold_pooled(self, start: int) -> None:
        for pooled in _client.pooled_buffers(start):
            self.held[id(pooled)] = pooled

    def keep_host(self, address: int, size: int) -> bool:
        owner = _client.owner_in(self.kept, address, size)
        if owner is None:
            owner = _client.owner_of(address, size, 4)
        if owner is None:
            return False
        self.held[id(owner)] = owner
        return True

    def is_housekeeping(self) -> bool:
        return _client.is_housekeeping(4)

    def where(self) -> str:
        return _client.line_of(_client.calling_place(4))


class _Dependencies(Sequence[Sequence[int]]):
    """The predecessors of each node, as slices of the recording's own array."""

    def __init__(self, recording: Recording) -> None:
        self._commands, self._count, self._all = recording.commands, len(recording), recording.dependencies

    def __len__(self) -> int:
        return self._count

    def __getitem__(self, node: Any) -> Any:
        if not 0 <= node < self._count:
            raise IndexError(node)
        command = self._commands[node]
        return self._all[command.first_dep : command.first_dep + command.dep_count]


class CapturedGraph(Graph):
    """The commands of a capture block. Its nodes can be looked at, and it can be finalized, once the block has ended.

    Attributes:
        queue: a queue like the first captured one that is captured too, for code that takes a queue. Only inside the block.
        state: "recording" inside the block, then "captured", or "failed" if the block raised: the graph is empty then.
    """

    def __init__(self, recording: Recording, observer: _Observer, queues: Sequence[Any]) -> None:
        self.recording = recording
        self.queues = tuple(queues)
        self.queue: Any = None
        self.state = "recording"
        self._observer = observer
        super().__init__((), ())

    def _end(self, failed: bool) -> None:
        self.queue = None
        self.state = "failed" if failed else "captured"
        if failed:
            self.recording.drop()
            return
        commands, count = self.recording.commands, len(self.recording)
        self.dependencies = _Dependencies(self.recording)
        self.order_only = [OPS[commands[node].op] in ORDER_ONLY for node in range(count)]

    def node(self, index: int) -> Node:
        command = self.recording.commands[index]
        label, details = describe(command)
        return Node(
            index=index,
            op=OPS[command.op],
            label=label,
            queue=command.queue,
            predecessors=tuple(self.dependencies[index]),
            where=_client.line_of(self._observer.places[index]),
            details=details,
        )

    @property
    def uses_host_memory(self) -> bool:
        """Whether commands use memory that has no reference count in OpenCL: the host's, or SVM."""
        return bool(self._observer.held) or self.recording.pinned > 0

    def finalize(self, *, schedule: str = "auto") -> Executable:
        """Make the graph ready to be replayed.

        `schedule` says how a branching graph is run on an out-of-order queue: "lanes" (branches on several in-order queues of our own),
        "levels" (a barrier between two task levels), "events" (each command waits for those that it directly follows), "in-order" (as
        it was recorded, one after the other), or "auto", which measures what a barrier and an event cost on the device. On an
        in-order queue it makes no difference.
        """
        if self.state != "captured":
            why = "the block has not ended" if self.state == "recording" else "the block failed, and nothing of it was captured"
            raise CaptureError(f"{why}.", call="finalize", remedy="finalize after the with block has ended without an error")
        return Executable(self, schedule)

    def __repr__(self) -> str:
        return f"<CapturedGraph of {len(self)} nodes>"


class capture:
    """A context manager that captures one or several queues (all of one context).

    Inside the block the queues record instead of executing; the program uses them as always. `keep` names objects that the graph
    must keep alive although it cannot find them: host arrays, and buffers of kernels whose arguments were set before the block. To
    name a buffer is a promise: kernels with such arguments are then accepted, and all of their buffers have to be named.

    Raises CaptureError where the block asked for something that cannot be captured: in the line that asked, and if the program
    swallowed that, when the block ends. After an error the graph is empty and every queue is as it was.
    """

    def __init__(self, *queues: Any, keep: Iterable[Any] = ()) -> None:
        if not queues:
            raise _client.ArgumentError("no queue was given.", routine="capture", remedy="capture(queue)")
        unique = {_client.handle(queue, "CommandQueue", "capture"): queue for queue in queues}
        self._handles, queues = list(unique), tuple(unique.values())
        contexts = {_client.context_of(queue, "capture") for queue in queues}
        if len(contexts) > 1:
            raise error(CL_INVALID_CONTEXT, "capture", remedy="capture queues of one context; make one graph for each context")
        self._queues, self._context, self._keep = queues, contexts.pop(), list(keep)
        self._graph: CapturedGraph | None = None

    def __enter__(self) -> CapturedGraph:
        import pyopencl

        first = self._queues[0]
        extra = pyopencl.CommandQueue(first.context, first.device, properties=first.properties)
        observer = _Observer(self._keep)
        recording = Recording(
            [*self._handles, extra.int_ptr],
            self._context,
            observer,
            version=parse_version(first.device.platform.version),
            allow_unseen=any(map(_client.is_device_memory, self._keep)),
        )
        self._graph = CapturedGraph(recording, observer, [*self._queues, extra])
        self._graph.queue = extra
        return self._graph

    def __exit__(self, kind: type[BaseException] | None, raised: BaseException | None, trace: TracebackType | None) -> None:
        graph = self._graph
        if graph is None:
            raise CaptureError("the block was never entered.", call="capture", remedy="with fairlead.capture(queue) as graph:")
        graph.recording.end()
        refusals = graph.recording.refusals
        graph._end(failed=bool(raised or refusals or graph.recording.raised))
        if raised is None and graph.recording.raised is not None:
            raise graph.recording.raised
        if refusals and (raised is None or _is_code(raised, "INVALID_OPERATION")):
            # PyOpenCL knows only the code: the same error again, in the same line, with the reason.
            raise refusals[-1 if raised else 0].error().with_traceback(trace) from raised


def _is_code(raised: BaseException, name: str) -> bool:
    import pyopencl

    return isinstance(raised, pyopencl.Error) and name in str(raised)
