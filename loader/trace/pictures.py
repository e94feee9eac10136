"""The graphs that are submitted while a trace records: their nodes and edges, for pictures.

Graphs are above this package. They call `note` when they are submitted, if `is_wanted` says so.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final

#: A picture shows so many nodes at most.
MOST_NODES: Final = 300

#: The text of each node, and the nodes that come directly after it, by their places.
Drawing = Sequence[tuple[str, Sequence[int]]]

_traces: Final[set[int]] = set()
_known: Final[weakref.WeakSet[Any]] = weakref.WeakSet()
_events: Final[list[dict[str, Any]]] = []


def is_wanted() -> bool:
    """Whether a trace records."""
    return bool(_traces)


def begin(trace: object) -> None:
    """A trace records from now on."""
    _traces.add(id(trace))


def end(trace: object) -> None:
    """A trace does not record any more."""
    _traces.discard(id(trace))


def note(graph: Any, title: str, draw: Callable[[], Drawing]) -> None:
    """A graph is submitted. It is drawn once.

    Args:
        graph: what is remembered as drawn.
        title: what the picture is called.
        draw: gives the nodes.
    """
    if graph in _known:
        return
    _known.add(graph)
    nodes = list(draw())
    shown = nodes[:MOST_NODES]
    edges = [(one, other) for one, (_, after) in enumerate(shown) for other in after]
    drawing = {
        "title": title,
        "nodes": [text for text, _ in shown],
        "edges": [edge for edge in edges if max(edge) < MOST_NODES],
        "more": len(nodes) - len(shown),
    }
    _events.append({"ph": "M", "name": "graph", "args": drawing})


def make_graph_events(pid: int) -> Iterator[dict[str, Any]]:
    """Yield the graphs as events of the Chrome trace format, which no viewer but ours knows."""
    for event in _events:
        yield {**event, "pid": pid, "tid": pid}
