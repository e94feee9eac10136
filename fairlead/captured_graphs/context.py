"""`with fairlead.capture(queue) as graph:` records PyOpenCL code on a queue. Nothing of it runs.

The block's commands become a `CapturedGraph` (graph.py). `graph.finalize()` makes an `Executable`
of it (executable.py), whose `replay(queue)` runs all of them by one native call.

`icd.capture` exchanges the queue's dispatch pointer. `block` is what it recorded.
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from types import FrameType, TracebackType
from typing import TYPE_CHECKING, Any

from numpy import ndarray

from ..icd.abi import CL_INVALID_CONTEXT
from ..icd.calls import find_device_profile, query_compute_units
from ..icd.capture.recording import CaptureError, Recording
from ..icd.command_buffer.choice import choose_names
from ..icd.command_buffer.commands import CommandArray, CommandList, has_barrier
from ..icd.errors import error
from ..icd.tables import parse_version
from ..loader.base.forks import call_in_child, is_fork
from ..loader.base.frames import get_variables
from ..loader.base.interrupts import mark_uninterrupted, protect_finalizers
from ..loader.base.processes import count_threads
from . import pyopencl_client as _client
from .block import CapturedBlock, PyOpenCLObserver
from .commands import Captured
from .graph import CapturedGraph
from .held_buffers import find_held_buffers
from .parameter import find_swallowed_refusal
from .segment import CapturedSegment
from .segment_commands import SegmentCommands
from .swaps import (
    check_swaps,
    find_buffers,
    find_exchanged,
    find_forms,
    warn_of_contents,
    warn_of_exchange,
    warn_of_others,
    warn_of_random_numbers,
)

if TYPE_CHECKING:
    from ..graph.executable import ExecutableGraph
    from ..graph.partition import Partition

__all__ = ["CaptureError", "CapturedGraph", "capture"]


@dataclass(frozen=True)
class Replays:
    """Makes segments of the captured commands of a context (a handle), also those of several
    captures."""

    context: int

    def make_segment(self, graph: ExecutableGraph, part: Partition) -> CapturedSegment:
        """Make a segment of a partition's captured commands and of its empty nodes and barriers."""
        commands, predecessors = graph.snapshot.commands, graph.snapshot.predecessors
        nodes = _sort_as_recorded(part.nodes, predecessors)
        place = {node: number for number, node in enumerate(nodes)}
        array, devices, blocks = CommandArray(), dict[int, int](), dict[CapturedBlock, None]()
        for node in nodes:
            command = commands[node]
            before = [place[one] for one in predecessors[node] if one in place]
            if not isinstance(command, Captured):
                array.add("marker", before, order_only=True)
                continue
            block, native = command.block, command.native
            blocks[block] = None
            queue = devices.setdefault(block.devices[native.queue], len(devices))
            array.add_copy(native, before, queue)
        listed = CommandList(
            self.context,
            list(devices),
            array.array,
            array.order,
            (array, list(blocks)),
            schedule=graph.schedule,
            updatable=graph.updatable or any(block.has_cells for block in blocks),
            fenced=has_barrier(array.array, array.order),
            first=array.order.first if graph.profiling else None,
            title=" and ".join(dict.fromkeys(block.title for block in blocks)) or "a graph",
        )
        return CapturedSegment(SegmentCommands(listed, list(blocks), commands.__getitem__, nodes))


@lru_cache(64)
def get_replays(context: int) -> Replays:
    """Return what makes segments of a context. Graphs compare it for each command."""
    return Replays(context)


def _sort_as_recorded(nodes: Sequence[int], predecessors: Sequence[Sequence[int]]) -> Sequence[int]:
    """Return nodes in the order of adding, or of execution if edges point backwards."""
    inside = frozenset(nodes)
    if any(before > node and before in inside for node in nodes for before in predecessors[node]):
        return nodes
    return sorted(nodes)


class capture:
    """A context manager that captures one or several queues of one context.

    Inside the block the queues record instead of executing; the program uses them as always.

    Args:
        keep: an object or several that the graph must keep alive although it cannot find them:
            host arrays, and buffers of kernels whose arguments were set before the block. If a
            buffer is named, kernels with such arguments are accepted, and all of their buffers
            have to be named.
        swap: two buffers or arrays, or a list of such pairs, that exchange their roles after each
            replay: what one replay writes, the next one reads.
        name: what errors call the graph; "" calls it by the line that captures it.

    Raises:
        CaptureError: the block did what cannot be captured. It is raised in that line, and again at
            the end of the block if the program caught it. The graph is then empty, and every queue
            is as before.
            It is raised at the begin of the block in a forked process, where the driver's threads
            do not exist.
        UnknownEngineError: FAIRLEAD_COMMAND_BUFFER names an unknown engine.
    """

    def __init__(self, *queues: Any, keep: Any = (), swap: Any = (), name: str = "") -> None:
        if not queues:
            raise _client.ArgumentError(
                "no queue was given.", routine="capture", remedy="capture(queue)"
            )
        protect_finalizers()
        choose_names()  # an unknown engine is told here, not when the graph is finalized
        unique = {_client.get_handle(queue, "CommandQueue", "capture"): queue for queue in queues}
        self._handles, queues = list(unique), tuple(unique.values())
        contexts = {_client.get_context(queue, "capture") for queue in queues}
        if len(contexts) > 1:
            raise error(
                CL_INVALID_CONTEXT,
                "capture",
                remedy="capture queues of one context; make one graph for each context",
            )
        self._queues, self._context, self._name = queues, contexts.pop(), name
        self._keep = _make_list(keep, "keep", "capture(queue, keep=[array, buffer])")
        self._swap = _make_list(swap, "swap", "capture(queue, swap=(u, v)), or a list of pairs")
        self._buffers = dict[str, int]()
        self._graph: CapturedGraph | None = None

    @mark_uninterrupted
    def __enter__(self) -> CapturedGraph:
        swaps = check_swaps(self._swap)
        self._buffers = find_held_buffers(sys._getframe(1))
        try:
            self._graph = self._begin()
        except BaseException:
            for swap in swaps:
                swap.end()
            raise
        self._graph.block.swaps = swaps
        self._graph.block.title = self._find_title(sys._getframe(1))
        return self._graph

    def __del__(self) -> None:
        """End a block that the program has dropped, or its queues would refuse all commands."""
        graph: CapturedGraph | None = self.__dict__.get("_graph")
        if graph is not None and graph.state == "recording":
            graph.block.recording.end()
            graph.end(True, {})
            for swap in graph.block.swaps:
                swap.end()

    def _find_title(self, caller: FrameType) -> str:
        if self._name:
            return f'the graph "{self._name}"'
        frame = _client.find_program_frame(caller) or caller
        return f"the graph captured at {Path(frame.f_code.co_filename).name}:{frame.f_lineno}"

    def _begin(self) -> CapturedGraph:
        import pyopencl

        first = self._queues[0]
        _check_fork(first.device.int_ptr)
        extra = pyopencl.CommandQueue(first.context, first.device, properties=first.properties)
        observer = PyOpenCLObserver(self._keep)
        recording = Recording(
            [*self._handles, extra.int_ptr],
            self._context,
            observer,
            version=parse_version(first.device.platform.version),
            allow_unseen=any(map(_client.is_device_object, self._keep)),
        )
        graph = CapturedGraph(
            CapturedBlock(recording, observer, [*self._queues, extra], get_replays(self._context))
        )
        graph.queue = extra
        return graph

    @mark_uninterrupted
    def __exit__(
        self,
        kind: type[BaseException] | None,
        raised: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        graph = self._graph
        if graph is None:
            raise CaptureError(
                "the block was never entered.",
                call="capture",
                remedy="with fairlead.capture(queue) as graph:",
            )
        graph.block.recording.end()
        why = find_swallowed_refusal(raised)
        refusals = graph.block.recording.refusals
        frame = sys._getframe(1)
        graph.end(
            bool(raised or refusals or graph.block.recording.raised),
            {**frame.f_globals, **get_variables(frame)} if graph.block.has_parameters else {},
        )
        if graph.state == "captured":
            warn_of_others(graph.block.uncaptured_calls)
            warn_of_random_numbers(graph.block.random_launches)
            self._tell_contents(graph.block.filled_once)
            graph.block.buffer_names = find_forms(find_buffers(frame), get_variables(frame))
            if self._buffers:
                after = find_held_buffers(frame)
                if moved := find_exchanged(self._buffers, after, graph.block.swaps):
                    self._tell_exchange(moved)
        for swap in graph.block.swaps:  # from now on the two are buffers like all others
            swap.end()
        if raised is None and graph.block.recording.raised is not None:
            raise graph.block.recording.raised
        if refusals and (raised is None or _client.is_pyopencl_error(raised, "INVALID_OPERATION")):
            # PyOpenCL knows only the code: the same error again, in the same line, with the reason.
            raise refusals[-1 if raised else 0].make_error().with_traceback(trace) from raised
        if why:
            raise TypeError(why).with_traceback(trace) from raised

    def _tell_exchange(self, moved: Sequence[str]) -> None:
        """Tell what has exchanged its buffers."""
        warn_of_exchange(moved, 4)

    def _tell_contents(self, places: Iterable[tuple[str, int]]) -> None:
        """Tell where memory was made with contents of the host's memory."""
        warn_of_contents(places)


#: Devices whose drivers have the threads that they need in this process.
_has_what_it_needs: set[int] = set()
call_in_child(_has_what_it_needs.clear)


def _check_fork(device: int) -> None:
    """Raise CaptureError where nothing would run: in a fork that lacks the driver's threads.

    A driver that was opened in the fork has some, beside those of Python. One of a single compute
    unit may need none.
    """
    if device in _has_what_it_needs:
        return
    profile = find_device_profile(device)  # it also says how C asks events: before any capture
    if (
        is_fork()
        and profile.needs_its_threads
        and query_compute_units(device) > 1
        and not _has_other_threads()
    ):
        raise CaptureError(
            "the driver was opened before this process was forked, and its threads do not exist "
            "here: no command would ever run.",
            call="capture",
            code="CL_INVALID_OPERATION",
            remedy='of multiprocessing\'s start methods use "spawn" or "forkserver"; or ask for no '
            "device before the fork",
        )
    _has_what_it_needs.add(device)


def _has_other_threads() -> bool:
    """Return whether this process has threads beside Python's, which stay."""
    for _ in range(20):  # milliseconds, in which a thread goes that Python has just ended
        if count_threads() == threading.active_count():
            return False
        time.sleep(0.001)
    return True


def _make_list(given: Any, what: str, remedy: str) -> list[Any]:
    """Return what `capture` was given as a list; None is an empty one, and memory a list of itself.

    Raises:
        ArgumentError: It is neither a list nor memory.
    """
    if given is None:
        return []
    if isinstance(given, ndarray) or _client.is_device_object(given):
        return [given]
    if not isinstance(given, Iterable):
        raise _client.ArgumentError(
            f"{what} is a list, not {type(given).__name__}.", routine="capture", remedy=remedy
        )
    return list(given)
