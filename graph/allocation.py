"""Memory that a graph owns: async_malloc and async_free nodes.

    def allocate(handler):
        global memory
        memory = async_malloc(handler, 1024, numpy.float32)

Memory is allocated for the graph when the node is made, so that later nodes can have its address at
once. It belongs to the graph, and only the graph may use it. Memory that a node has freed is used
again for a later allocation that comes after that node. Outside of a graph the two functions
allocate at once and free when everything before has run. (sycl_ext_oneapi_async_memory_alloc)
"""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy

from ..runtime.checks import expect
from ..runtime.commands import Empty, HostTask
from ..runtime.errors import make_invalid_error
from ..runtime.handler import Handler
from ..runtime.queue import Queue
from ..runtime.usm import USM, allocate, count_bytes

if TYPE_CHECKING:
    from .command_graph import CommandGraph
    from .executable import ExecutableGraph
    from .node import Node


class AsyncMalloc(Empty):
    """An allocation. Its memory exists already; this node is its place in the order."""

    node_type = "async_malloc"
    title = "async_malloc"

    def __init__(self, memory: USM) -> None:
        self.keep = memory

    def describe(self) -> list[str]:
        return [f"memory: {self.keep.pointer:#x}", f"bytes: {self.keep.nbytes}"]


class AsyncFree(Empty):
    """The end of an allocation's use."""

    node_type = "async_free"
    title = "async_free"

    def __init__(self, memory: USM) -> None:
        self.keep = memory


class Allocations:
    """The memory of a graph, and the one executable graph that may use it at a time."""

    def __init__(self) -> None:
        self.blocks: list[USM] = []
        self.zeroed: list[USM] = []
        self._in_use: set[int] = set()  # addresses
        self._freed: list[tuple[USM, weakref.ref[Node]]] = []
        self._executable: weakref.ref[ExecutableGraph] | None = None

    @property
    def required(self) -> int:
        """The bytes of the allocation."""
        return sum(block.nbytes for block in self.blocks)

    def check_single(self) -> None:
        """Raise SYCLError (invalid) if there is an executable graph already."""
        if self._executable is not None and self._executable() is not None:
            raise make_invalid_error(
                "Graphs containing allocations can only have a single executable graph alive at "
                "any one time.",
                routine="finalize",
                remedy="drop the executable graph first",
            )

    def hold(self, executable: ExecutableGraph) -> Allocations:
        """Give the memory to an executable graph, which must not be updatable, and write the zeros
        that were asked for."""
        if executable.updatable:
            raise make_invalid_error(
                "Graphs containing allocations cannot be updated.",
                routine="finalize",
                remedy="finalize without updatable=True",
            )
        self._executable = weakref.ref(executable)
        for memory in self.zeroed:
            queue = Queue(memory.context, memory.device)
            queue.memset(memory, 0)
            queue.wait()
        return self

    def allocate(
        self, nbytes: int, dtype: Any, graph: CommandGraph, before: Sequence[Node], zero_init: bool
    ) -> USM:
        """Return memory: freed memory that is large enough, if its free comes before the new
        allocation, else new memory.

        Args:
            nbytes: its size in bytes.
            graph: whose memory it is.
            before: the nodes that the allocation comes after.
            zero_init: whether it begins with zeros.
        """
        # what was used before is not zero in the middle of a run
        found = None if zero_init else self._reuse(nbytes, before)
        if found is None:
            found = allocate(
                "device", nbytes, numpy.uint8, (graph.context, graph.device), "async_malloc"
            )
            self.blocks.append(found)
        self._in_use.add(found.pointer)
        memory = USM(
            found.allocation, found.pointer, nbytes, dtype, "device", graph.context, graph.device
        )
        if zero_init:
            self.zeroed.append(memory)
        return memory

    def _reuse(self, nbytes: int, before: Sequence[Node]) -> USM | None:
        for place, (block, ref) in enumerate(self._freed):
            node = ref()
            if (
                block.nbytes >= nbytes
                and node is not None
                and any(node is one or node.leads_to(one) for one in before)
            ):
                del self._freed[place]
                return block
        return None

    def check_in_use(self, memory: USM) -> None:
        """Raise SYCLError (invalid) for memory that is not the graph's, or was freed."""
        if memory.pointer not in self._in_use:
            raise make_invalid_error(
                "the memory was not allocated in this graph, or was freed already",
                routine="async_free",
                remedy="free once what async_malloc gave in this graph",
            )

    def free(self, memory: USM, node: Node) -> None:
        """Record that a node frees memory."""
        self._in_use.discard(memory.pointer)
        block = next(block for block in self.blocks if block.pointer == memory.pointer)
        self._freed.append((block, weakref.ref(node)))


def async_malloc(
    handler: Handler, count: int, dtype: Any, *, kind: str = "device", zero_init: bool = False
) -> USM:
    """Allocate memory as the command of a command group. In a graph it belongs to the graph.

    Args:
        handler: the handler of the command group.
        count: the number of elements.
        kind: "device"; outside of a graph also "host" or "shared".
        zero_init: whether the elements are zero whenever the graph is finalized.

    Raises:
        SYCLError: invalid, for other than device memory in a graph.
    """
    expect(
        handler,
        Handler,
        "async_malloc",
        "call it in a command-group function: async_malloc(handler, count, dtype)",
    )
    graph = handler.graph
    if graph is None:
        memory = allocate(
            kind,
            count,
            dtype,
            (handler.context, handler.device or handler.context.devices[0]),
            "async_malloc",
        )
        handler.set_command(Empty())
        return memory
    if kind != "device":
        raise make_invalid_error(
            "only device memory can be allocated in a graph",
            routine="async_malloc",
            remedy='kind="device"',
        )
    nbytes = count_bytes(count, dtype, "async_malloc")
    allocations = graph.allocations = graph.allocations or Allocations()
    memory = allocations.allocate(nbytes, dtype, graph, graph.predecessors_of(handler), zero_init)
    handler.set_command(AsyncMalloc(memory))
    return memory


def async_free(handler: Handler, memory: USM) -> None:
    """Free memory of `async_malloc`, after what the command group depends on.

    Raises:
        SYCLError: invalid, in a graph for memory that is not the graph's.
    """
    expect(
        handler,
        Handler,
        "async_free",
        "call it in a command-group function: async_free(handler, memory)",
    )
    expect(memory, USM, "async_free", "give what async_malloc gave")
    graph = handler.graph
    if graph is None:
        handler.set_command(HostTask(lambda: memory))  # which holds it until then
        return
    (graph.allocations or Allocations()).check_in_use(memory)
    command = AsyncFree(memory)
    handler.set_command(command)
    handler.when_added = lambda node: graph.allocations.free(memory, node)
