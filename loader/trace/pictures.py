"""The graphs that are submitted while a trace records: their nodes and edges, for pictures.

Graphs are above this package. They call `note` when they are submitted, if `is_wanted` says so.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final

#: A trace has so many nodes of a graph at most.
MOST_NODES: Final = 3000

#: The text of each node, and the nodes that come directly after it, by their places.
Drawing = Sequence[tuple[str, Sequence[int]]]


class GraphPictures:
    """The graphs that are submitted between `begin` and `end`. Each is drawn once."""

    def __init__(self) -> None:
        self._known: weakref.WeakSet[Any] = weakref.WeakSet()
        self._drawings: list[dict[str, Any]] = []

    def begin(self) -> None:
        """Draw the graphs that are submitted from now on."""
        _recording.append(self)

    def end(self) -> None:
        """Draw no more graphs. A second call does nothing."""
        if self in _recording:
            _recording.remove(self)

    def add(self, graph: Any, title: str, draw: Callable[[], Drawing]) -> None:
        """Draw a graph, unless it is drawn already. The parameters are those of `note`."""
        if graph not in self._known:
            self._known.add(graph)
            self._drawings.append(_make_drawing(title, list(draw())))

    def clear(self) -> None:
        """Forget all graphs."""
        self._known.clear()
        self._drawings.clear()

    def make_events(self, pid: int) -> Iterator[dict[str, Any]]:
        """Yield the graphs as events of the Chrome trace format, which no viewer but ours knows."""
        for drawing in self._drawings:
            yield {"ph": "M", "name": "graph", "args": drawing, "pid": pid, "tid": pid}


_recording: Final[list[GraphPictures]] = []


def is_wanted() -> bool:
    """Return whether a trace records."""
    return bool(_recording)


def note(graph: Any, title: str, draw: Callable[[], Drawing]) -> None:
    """Note that a graph is submitted.

    Args:
        title: what the picture is called.
        draw: returns the nodes.
    """
    for pictures in tuple(_recording):
        pictures.add(graph, title, draw)


def _make_drawing(title: str, nodes: Drawing) -> dict[str, Any]:
    shown = nodes[:MOST_NODES]
    edges = [(one, other) for one, (_, after) in enumerate(shown) for other in after]
    return {
        "title": title,
        "nodes": [text for text, _ in shown],
        "edges": [edge for edge in edges if max(edge) < MOST_NODES],
        "more": len(nodes) - len(shown),
    }
