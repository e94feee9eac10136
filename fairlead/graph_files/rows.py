"""The commands of a graph in the order of a file: each after what it depends on."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from ..captured_graphs.block import CapturedBlock
from ..captured_graphs.commands import Captured
from ..graph.segments import ORDER_ONLY
from ..graph.snapshot import Snapshot
from ..icd.calls import address
from ..runtime.commands import HostTask
from .errors import cannot_save

if TYPE_CHECKING:
    from ..captured_graphs.graph import CapturedGraph

#: A command to be written: what it is (an `fl_command *`, None for a place in the order), the block
#: that it was captured in, and what it comes after.
Row = tuple[Any, CapturedBlock, Sequence[int]]


def rows_of(graph: CapturedGraph) -> Iterator[Row]:
    """The commands of a graph in an order that goes forward, sub-graphs inlined."""
    block = graph.block
    if graph.is_as_recorded:
        for number, before in enumerate(block.order.dependencies):
            yield block.command(number), block, list(dict.fromkeys(before))
        return
    snapshot = Snapshot(graph.all_nodes())
    order = _forward(snapshot)
    place = {node: number for number, node in enumerate(order)}
    for node in order:
        command = snapshot.commands[node]
        before = sorted(place[one] for one in snapshot.predecessors[node])
        if isinstance(command, Captured):
            yield command, command.block, before
        elif isinstance(command, ORDER_ONLY):
            yield None, block, before
        else:
            what = ", ".join(command.describe()) or command.title
            is_host = isinstance(command, HostTask)
            raise cannot_save(
                f"node {node} is a {command.title} ({what}), and files hold OpenCL's commands only",
                "remove the host task, or save the graph without it"
                if is_host
                else "capture the command from a pyopencl queue",
            )


def _forward(snapshot: Snapshot) -> list[int]:
    """The nodes of a snapshot, each after what it depends on."""
    left = [len(set(before)) for before in snapshot.predecessors]
    ready = [node for node, count in enumerate(left) if not count]
    for node in ready:  # which grows
        for after in dict.fromkeys(snapshot.successors[node]):
            left[after] -= 1
            if not left[after]:
                ready.append(after)
    return ready


def host_places(rows: Iterable[Row]) -> Iterator[tuple[int, int]]:
    """The addresses and sizes of host memory that transfers use."""
    for command, _, _ in rows:
        native = command.native if isinstance(command, Captured) else command
        if native is not None and native.host:
            yield address(native.host), native.host_size
