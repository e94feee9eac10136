"""Pictures of graphs: DOT text, DOT files, and SVG in notebooks (loader/base/drawing.py).

The text is that of upstream's print_graph: a box for each node with its number and type, then an
arrow for each edge. With `verbose`, a box also shows what the command was given.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..loader.trace import pictures
from ..runtime.errors import make_invalid_error

if TYPE_CHECKING:
    from typing_extensions import Self

    from ..loader.base.drawing import DrawnNode


class Drawable:
    """A graph, modifiable or executable, that can be drawn. Its copy is itself."""

    @property
    def fused(self) -> Mapping[tuple[int, ...], str]:
        """The sources of kernels that stand for several nodes, by the nodes' numbers."""
        return {}

    def __copy__(self) -> Self:
        return self

    def to_dot(self, verbose: bool = False) -> str:
        """Return the graph in Graphviz's language.

        Args:
            verbose: whether to show what each command was given.
        """
        lines = ["digraph dot {"]
        for number, command, successors in _list_drawn(self):
            label = [
                f"ID = {number}",
                f"TYPE = {command.node_type}",
                *(command.describe() if verbose else ()),
            ]
            text = "".join(f"{_escape(line)}\\n" for line in label)
            lines.append(f'"{number}" [style=bold, label="{text}"];')
            lines += [f'"{number}" -> "{successor}"' for successor in successors]
        lines += draw_boxes(self.fused)
        return "\n".join([*lines, "}", ""])

    def print_graph(self, path: str | Path, verbose: bool = False) -> None:
        """Write the graph to a file whose name ends in .dot. Raises SYCLError (invalid)."""
        if not str(path).endswith(".dot"):
            raise make_invalid_error(
                "DOT graph is the only format supported at the moment.",
                routine="print_graph",
                remedy='print_graph("graph.dot")',
            )
        try:
            Path(path).write_text(self.to_dot(verbose), encoding="utf-8")
        except OSError as error:
            raise make_invalid_error(
                f"{path} cannot be written: {error.strerror}",
                routine="print_graph",
                remedy="give a path that can",
            ) from error

    def _repr_html_(self) -> str:
        """Return the picture for a notebook, with the sources of fused kernels, which open."""
        from html import escape

        from ..loader.base.drawing import draw_graph

        boxes = (
            f"<details><summary>{describe_box(numbers)}</summary>"
            f"<pre>{escape(source)}</pre></details>"
            for numbers, source in self.fused.items()
        )
        title, picture = escape(repr(self)), draw_graph(_label_nodes(self), self.fused)
        style = "overflow:auto;max-height:45em"
        return "\n".join([f'{title}<div style="{style}">{picture}</div>', *boxes])

    def _repr_svg_(self) -> str:
        """Return the picture alone, as a file has it."""
        from ..loader.base.drawing import draw_graph

        return draw_graph(_label_nodes(self), self.fused, alone=True)


def describe_box(numbers: Sequence[int]) -> str:
    """Return what a fused kernel is called, by the numbers of its nodes or commands."""
    many = f"{numbers[0]}–{numbers[-1]}" if len(numbers) > 1 else str(numbers[0])
    return f"{many}: one fused kernel"


def draw_boxes(fused: Iterable[Sequence[int]]) -> Iterator[str]:
    """Yield a box for each fused kernel in Graphviz's language, around nodes by their numbers."""
    for numbers in fused:
        nodes = " ".join(f'"{number}";' for number in numbers)
        box = f'label="{describe_box(numbers)}"; style=rounded;'
        yield f'subgraph "cluster_{numbers[0]}" {{ {box} {nodes} }}'


def note_submission(graph: Any, drawn: Any = None) -> None:
    """Give the graph's picture to the traces that record.

    Args:
        graph: the executable graph that is submitted.
        drawn: what is drawn, the graph itself by default.
    """

    def draw() -> pictures.Drawing:
        found = _label_nodes(graph if drawn is None else drawn)
        return [(text, after) for _, text, after in found]

    pictures.note(graph, repr(graph).strip("<>"), draw)


def _label_nodes(graph: Any) -> Iterator[DrawnNode]:
    """Yield the nodes for a drawing. Their numbers are their places in `graph.nodes`."""
    found = list(_list_drawn(graph))
    places = {number: place for place, (number, _, _) in enumerate(found)}
    for number, command, after in found:
        yield places[number], command.label, [places[one] for one in after if one in places]


def _list_drawn(graph: Any) -> Iterator[tuple[int, Any, list[int]]]:
    """Yield the number, the command and the successors of each node."""
    if hasattr(graph, "snapshot"):
        snapshot = graph.snapshot
        yield from zip(
            range(len(snapshot.commands)), snapshot.commands, snapshot.successors, strict=True
        )
    else:
        for node in graph.nodes:
            yield node.id, node.command, [successor.id for successor in node.successors]


def _escape(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"')
