"""Nodes of a command graph: a command, what it comes after, and what comes after it."""

from __future__ import annotations

import itertools
import weakref
from collections.abc import Callable, Sequence
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Final

from ..loader.base.never_copied import NeverCopied
from ..runtime.commands import Command
from ..runtime.errors import Errc, SYCLError, make_invalid_error
from ..runtime.event import Event
from ..runtime.launches import Launch, NDRange, parse_sizes
from .execution_order import leads_to

if TYPE_CHECKING:
    from ..runtime.platform import Device
    from ..runtime.queue import Queue
    from .command_graph import CommandGraph
    from .dynamic import DynamicCommandGroup

_ids: Final = itertools.count()


class Node(NeverCopied):
    """A node of a modifiable graph. Its graph owns it. It does not keep its graph alive.

    Attributes:
        command: what it does. A dynamic command-group exchanges it.
        id: a number that grows in the order in which nodes are made. No other node has it.
        graph_ref: gives its graph, None if that is gone. All nodes of a graph have the same one.
        predecessors, successors: its direct neighbours, in the order in which the edges were made.
        group: the dynamic command-group that it was made of, else None.
    """

    __slots__ = (
        "__weakref__",
        "_device",
        "_queue",
        "command",
        "graph_ref",
        "group",
        "id",
        "predecessors",
        "successors",
    )

    def __init__(
        self,
        graph: Callable[[], CommandGraph | None],
        command: Command,
        device: Device | None,
        queue: Queue | None = None,
        predecessors: list[Node] | None = None,
    ) -> None:
        self.graph_ref, self._queue = graph, None if queue is None else weakref.ref(queue)
        self.command, self._device = command, device
        self.id = next(_ids)
        self.predecessors: list[Node] = [] if predecessors is None else predecessors
        self.successors: list[Node] = []
        self.group: DynamicCommandGroup | None = None

    @property
    def type(self) -> str:
        """The kind of node: "kernel", "memcpy", "memset", "memfill", "prefetch", "memadvise",
        "host_task", "empty", "ext_oneapi_barrier", "subgraph", "native_command", "async_malloc" or
        "async_free"."""
        return self.command.node_type

    @property
    def device(self) -> Device:
        """The device that the node runs on."""
        assert self._device is not None  # a captured node looks it up itself
        return self._device

    @property
    def graph(self) -> CommandGraph | None:
        """Its graph, None if that is gone."""
        return self.graph_ref()

    def belong_to(self, graph: Callable[[], CommandGraph | None]) -> None:
        """Move the node to another graph, which has taken it over."""
        self.graph_ref = graph

    @property
    def queue(self) -> Queue | None:
        """The queue that it was recorded from, None if it was added or the queue is gone."""
        return None if self._queue is None else self._queue()

    @property
    def recorder(self) -> Any:
        """The recorder of its graph, None if no queue is recorded."""
        graph = self.graph
        return graph.recorder if graph is not None and graph.is_recording else None

    def event(self) -> Event:
        """Return an event that stands for the node, as a recorded submission does. Other command
        groups of the graph can depend on it."""
        graph = self.graph_ref()
        event = Event(graph.context if graph is not None else None)
        event.node = self
        return event

    def depends_on(self, *nodes: Node) -> None:
        """Come after other nodes of the graph too. Raises what `CommandGraph.make_edge` raises."""
        graph = self.graph
        if graph is None:
            raise make_invalid_error(
                "the graph of the node is gone", routine="depends_on", remedy="keep the graph"
            )
        for node in nodes:
            graph.make_edge(node, self)

    def leads_to(self, other: Node) -> bool:
        """Whether another node comes after this one, however indirectly."""
        return self is not other and leads_to(
            self, other, attrgetter("successors"), attrgetter("predecessors")
        )

    @staticmethod
    def of_event(event: Event) -> Node:
        """Return the node of an event of a recorded submission. (SYCL-Graph:
        node::get_node_from_event)

        Raises:
            SYCLError: invalid, for other events.
        """
        if getattr(event, "node", None) is None:
            raise make_invalid_error(
                "No event associated with a node is in this event",
                routine="Node.of_event",
                remedy="give an event of a recorded submission",
            )
        return event.node

    def update_range(self, range: Sequence[int] | int) -> None:
        """Give the launch another range. Executable graphs see it after `update`.

        Raises:
            SYCLError: invalid, if the node was not made with a range.
        """
        self._update_range(range, isinstance(range, NDRange), "update_range")

    def update_nd_range(self, range: NDRange) -> None:
        """Give the launch another range with work-groups. Executable graphs see it after `update`.

        Raises:
            SYCLError: invalid, if the node was not made with such a range.
        """
        self._update_range(range, True, "update_nd_range")

    def _update_range(self, range: Any, is_nd: bool, routine: str) -> None:
        command = self.command
        if not isinstance(command, Launch):
            raise make_invalid_error(
                "Cannot update execution range of nodes which are not kernel nodes",
                routine=routine,
                remedy="update kernel nodes",
            )
        present, work_group, _ = command.sizes
        if is_nd != (routine == "update_nd_range") or bool(work_group) != is_nd:
            there = "an nd-range" if work_group else "a range"
            raise make_invalid_error(
                f"Cannot update node with {'an nd-range' if is_nd else 'a range'}: it was created "
                f"with {there}",
                routine=routine,
                remedy="update_nd_range(NDRange(…)) for nodes with work-groups, "
                "update_range(…) for others",
            )
        whole, local, offset = parse_sizes(range, routine)
        if len(whole) != len(present):
            raise SYCLError(
                Errc.invalid,
                f"Cannot update the node's range: it has {len(present)} dimensions, not "
                f"{len(whole)}",
                routine=routine,
                remedy="keep the number of dimensions",
            )
        command.set_sizes((whole, local, offset))

    def __repr__(self) -> str:
        return f"<Node {self.id}: {self.command}>"
