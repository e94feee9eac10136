"""Partitions of executable graphs that have captured commands: each becomes a `CapturedSegment`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING

from ..icd.command_buffer.commands import CommandArray, CommandList, has_barrier
from .block import CapturedBlock
from .commands import Captured
from .segment import CapturedSegment
from .segment_commands import SegmentCommands

if TYPE_CHECKING:
    from ..graph.executable import ExecutableGraph
    from ..graph.partition import Partition


@dataclass(frozen=True)
class Replays:
    """Makes segments of the captured commands of a context (a handle), also those of several
    captures."""

    context: int

    def make_segment(self, graph: ExecutableGraph, part: Partition) -> CapturedSegment:
        """Make a segment of a partition of them, with empty nodes and barriers of the graph."""
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
