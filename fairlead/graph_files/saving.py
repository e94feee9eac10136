"""`graph.save("step.flg")`: a graph becomes a document and its members.

What a command names by a handle or an address becomes a row of the document, once. The driver says
what it is (queries.py).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from . import archive
from .access import find_inputs_and_outputs, name_memory
from .captured_rows import CapturedRows
from .document import CONTENTS, MARKER
from .errors import make_save_error
from .naming import make_unique
from .rows import GraphRows, Savable, list_rows
from .runtime_rows import RuntimeRows
from .saved_objects import SavedObjects


def save(
    graph: Savable,
    place: archive.Place,
    contents: str,
    names: Mapping[str, Any],
    inputs: Iterable[str] | None = None,
    outputs: Iterable[str] | None = None,
    *,
    binaries: bool = False,
    remembered: bool = False,
) -> None:
    """Write a graph to a path or a binary stream. See `CapturedGraph.save`.

    If `remembered`, memory without a name has that of the variable that it was in its block.
    """
    if contents not in CONTENTS:
        raise make_save_error(f"contents is {contents!r}", f"give one of {', '.join(CONTENTS)}")
    rows = list_rows(graph)
    objects = SavedObjects(
        rows.device, names, rows.list_held_objects(), rows.list_host_places(), binaries=binaries
    )
    if remembered:
        for block in rows.blocks:
            objects.buffer_names = {**block.buffer_names, **objects.buffer_names}
    _add_commands(rows, objects, names)
    document = objects.document
    _name_memory(objects, inputs, outputs)
    document.contents = contents
    if contents != "none":
        rows.finish()
        wanted = set(document.inputs.values()) if contents == "inputs" else None
        objects.add_contents(rows.context, wanted)
    archive.write(place, document, objects.members)


def _add_commands(rows: GraphRows, objects: SavedObjects, names: Mapping[str, Any]) -> None:
    """Write the commands down. Raises GraphFileError."""
    captured = CapturedRows(objects, rows.blocks)
    runtime = RuntimeRows(objects, rows.runtime_context, names)
    commands = objects.document.commands
    ends: list[int] = []  # the last command of each row
    for row in rows.rows:
        after = [ends[one] for one in row.before]
        if row.command is None:
            made: Iterable[dict[str, Any]] = [{"op": MARKER}]
        elif row.block is not None:
            made = [captured.make_row(row.command, row.block)]
        else:
            made = runtime.make_rows(row)
        for one in made:
            commands.append({**one, "after": after})
            after = [len(commands) - 1]
        ends.append(len(commands) - 1)
    runtime.name_others()


def _name_memory(
    objects: SavedObjects, inputs: Iterable[str] | None, outputs: Iterable[str] | None
) -> None:
    """Name the inputs and outputs. Raises GraphFileError for a name that no memory has."""
    document = objects.document
    make_unique(document)
    found = find_inputs_and_outputs(document)
    by_name = {one["name"]: number for number, one in enumerate(document.memory) if "name" in one}
    for title, wanted, numbers in zip(("inputs", "outputs"), (inputs, outputs), found, strict=True):
        names = dict(name_memory(document, numbers - objects.own))
        if wanted is not None:
            names = {}
            for name in wanted:
                if name not in by_name:
                    raise make_save_error(
                        f"the graph uses no memory that is called {name}",
                        f"it has {', '.join(by_name) or 'no named memory'}; name others: "
                        "graph.save(path, names={'x': x})",
                    )
                names[name] = by_name[name]
        setattr(document, title, names)
