"""The nodes of captured graphs.

node = graph[3]
print(node.label, node.where, node.details)
node.set_arg(2, numpy.float32(0.5))     # executable graphs see it after their update(node)
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ..graph.node import Node
from ..icd.command_buffer.commands import describe
from ..runtime.errors import Errc, SYCLError
from .block import CapturedBlock
from .commands import Captured, CapturedLaunch, as_captured, get_command
from .segment import reveal_memory

if TYPE_CHECKING:
    from ..graph.command_graph import CommandGraph
    from ..runtime.platform import Device


class CapturedNode(Node):
    """A node that was captured.

    Attributes:
        index: its place in the order of recording.
    """

    __slots__ = ("index",)

    def __init__(self, graph: Callable[[], CommandGraph | None], command: Captured) -> None:
        super().__init__(graph, command, None)
        self.index = command.index

    @property
    def _captured(self) -> Captured:
        return as_captured(self.command)

    @property
    def device(self) -> Device:
        """The runtime's device that it was captured for."""
        command = self._captured
        return command.block.runtime_devices[command.native.queue]

    @property
    def queue(self) -> Any:
        """The pyopencl.CommandQueue that it was captured from."""
        return self._captured.block.queues[self._captured.native.queue]

    @property
    def op(self) -> str:
        """What the node is: "kernel", "copy", "fill", "read", "barrier" and so on."""
        return self._captured.operation

    @property
    def label(self) -> str:
        """One line for people, such as "step(64×64)"."""
        return self._captured.label

    @property
    def details(self) -> dict[str, object]:
        """What was recorded, by name: sizes in bytes, offsets in bytes, work sizes in
        work-items."""
        return describe(self._captured.native)[1]

    @property
    def where(self) -> str:
        """File and line of the call, "" if not known."""
        return self._captured.where

    def set_arg(self, index: int, value: Any) -> None:
        """Give the launch another argument. Executable graphs see it after `update`.

        Args:
            index: the argument's index in the kernel.
            value: what PyOpenCL takes: a NumPy scalar, a pyopencl.Buffer, an Image, a Sampler, an
                Array, SVM, LocalMemory, None; or what the runtime's `set_arg` takes
                (runtime/arguments.py), except accessors. It has the size of the value that it
                replaces, an image its type.

        Raises:
            SYCLError: invalid, for a node that is not a launch; kernel_argument, for a value of a
                wrong kind.
        """
        command = self.command
        if not isinstance(command, CapturedLaunch):
            raise SYCLError(
                Errc.invalid,
                f"node {self.index}, {self.label}, is not a kernel and has no arguments",
                routine="set_arg",
                remedy="update kernel nodes",
            )
        command.set_arg(index, value)

    @property
    def args(self) -> tuple[Any, ...]:
        """The launch's present arguments.

        They are NumPy scalars, or bytes if the driver does not name the type; pyopencl memory and
        samplers; an address for SVM; Parameters; and None for what was set before the block. It is
        empty for a node that is not a launch.

        Fused kernels do not write memory that only the graph has (`finalize(fuse=…)`). They write
        what is returned here from the next replay on.
        """
        from pyopencl import MemoryObjectHolder

        command = self.command
        found = command.arguments() if isinstance(command, CapturedLaunch) else ()
        reveal_memory([one.int_ptr for one in found if isinstance(one, MemoryObjectHolder)])
        return found


def make_nodes(
    block: CapturedBlock, graph: Callable[[], CommandGraph | None]
) -> list[CapturedNode]:
    """Make nodes for the commands of a block, with their edges. `graph` returns their graph."""
    nodes = [CapturedNode(graph, get_command(block, index)) for index in range(len(block))]
    for node, predecessors in zip(nodes, block.order.dependencies, strict=True):
        node.predecessors = [nodes[before] for before in dict.fromkeys(predecessors)]
        for before in node.predecessors:
            before.successors.append(node)
    return nodes
