"""`fairlead show`, `replay` and `compare`: what a graph file says, and what it computes where."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterator, Mapping, Sequence
from itertools import count
from pathlib import Path
from typing import Any, Final

import click
import numpy as np

from ..graph.picture import describe_box, draw_boxes
from ..graph_files.archive import GraphArchive, write_arrays
from ..graph_files.document import KERNEL, Document
from ..graph_files.errors import CANNOT_SAVE, GraphFileError
from ..graph_files.loading import load
from ..loader.base.drawing import draw_graph
from ..loader.base.query import escape_text

_SHORTEST: Final = 12  # rows of a list that is not shortened
_UNITS: Final = ("bytes", "KiB", "MiB", "GiB", "TiB")


# show


def find_fused(path: Path) -> tuple[list[tuple[int, ...]], list[str]]:
    """Load a file as `fairlead replay` does, and build its fused kernels.

    Returns:
        The numbers of the commands of each; and why there is no other one, for people.
    """
    graph = load(path)
    loop = graph.finalize(fuse="wait")
    queue = graph.new_queue()
    return list(loop.fused), [
        "",
        f"on {queue.device.name.strip()}",
        *loop.explain(queue).splitlines(),
    ]


def format_contents(archive: GraphArchive, fused: Sequence[tuple[int, ...]] = ()) -> Iterator[str]:
    """Yield what is in a file, for people. Commands of a fused kernel are below it."""
    document = archive.document
    saved = ", ".join(text for text in document.device.values() if text)
    yield f"{len(document.commands)} commands, contents: {document.contents}, saved on {saved}"
    yield from _format_section("programs", [_describe_program(one) for one in document.programs])
    yield from _format_section(
        "kernels", [_describe_kernel(document, at) for at in range(len(document.kernels))]
    )
    yield from _format_section(
        "memory", [_describe_memory(document, at) for at in range(len(document.memory))]
    )
    yield from _format_section(
        "parameters", [_describe_parameter(document, one) for one in document.parameters]
    )
    steps = [_describe_step(document, one) for one in document.commands]
    yield from _format_section("commands", steps, fused)


def _format_section(
    title: str, rows: Sequence[str], boxes: Sequence[tuple[int, ...]] = ()
) -> Iterator[str]:
    """Yield the rows of a section. Those in a box are below its line."""
    if not rows:
        return
    yield ""
    yield title
    first = {numbers[0]: f"  {describe_box(numbers)}" for numbers in boxes}
    inside = {number for numbers in boxes for number in numbers}
    shown = rows if len(rows) <= 2 * _SHORTEST else rows[:_SHORTEST]
    for number, row in enumerate(shown):
        if number in first:
            yield first[number]
        yield f"  {'  ' * (number in inside)}{number}: {row}"
    if len(shown) < len(rows):
        yield f"  … and {len(rows) - len(shown)} more"


def _describe_program(record: Mapping[str, Any]) -> str:
    kinds = [name for name in ("source", "il", "binaries") if name in record]
    options = f", options {record['options']}" if record["options"].strip() else ""
    return ", ".join(kinds) + options


def _describe_kernel(document: Document, number: int) -> str:
    record = document.kernels[number]
    launches = sum(one["op"] == KERNEL and one["kernel"] == number for one in document.commands)
    listed = ", ".join(f"{one['type']} {one['name']}" for one in record.get("arguments", ()))
    arguments = f"({listed})" if "arguments" in record else ""
    return f"{record['name']}{arguments}, program {record['program']}, launches: {launches}"


def format_size(size: int) -> str:
    """Return a size in bytes for people."""
    power = min(max(size.bit_length() - 1, 0) // 10, len(_UNITS) - 1)
    text = f"{size / 1024**power:.4g}" if size % 1024**power else str(size >> 10 * power)
    return f"{text} {_UNITS[power]}"


def _describe_memory(document: Document, number: int) -> str:
    record = document.memory[number]
    roles = [
        role
        for role, names in (("input", document.inputs), ("output", document.outputs))
        if number in names.values()
    ]
    name = record.get("name", f"memory{number}")
    parts = [f"{name}: {record['kind']} of {format_size(record['size'])}"]
    if "dtype" in record:
        parts.append(f"{np.dtype(record['dtype'])} {tuple(record.get('shape', ()))}")
    if "of" in record:
        parts.append(f"of memory {record['of']} from byte {record.get('offset', 0)}")
    return ", ".join(
        [*parts, *roles, *(f"with {one}" for one in ("contents", "result") if one in record)]
    )


def _describe_parameter(document: Document, record: Mapping[str, Any]) -> str:
    if "from" in record:
        return f"computed from {record['from']}: {json.dumps(record['steps'])}"
    name = record.get("name", "without a name")
    if "memory" in record:
        return f"{name}: memory {record['memory']}"
    value = np.frombuffer(bytes.fromhex(record["value"]), record["dtype"])[0]
    return f"{name}: {np.dtype(record['dtype'])} {value}"


def describe_command(document: Document, command: Mapping[str, Any]) -> str:
    """Return one line for a command, such as add(64)."""
    if command["op"] != KERNEL:
        size = command.get("size", command.get("region"))
        return command["op"] if size is None else f"{command['op']}({_format_times(size)})"
    return f"{document.kernels[command['kernel']]['name']}({_format_times(command['global'])})"


def _format_times(size: Any) -> str:
    return "×".join(map(str, size)) if isinstance(size, list) else f"{size} bytes"


def _describe_step(document: Document, command: Mapping[str, Any]) -> str:
    after = ", ".join(map(str, command["after"]))
    return describe_command(document, command) + (f", after {after}" if after else "")


def to_dot(document: Document, fused: Sequence[tuple[int, ...]] = ()) -> str:
    """Return the graph of the commands, for Graphviz, with a box around those of a fused kernel."""
    lines = ["digraph graph_file {"]
    for number, command in enumerate(document.commands):
        text = json.dumps(f"{number}: {describe_command(document, command)}", ensure_ascii=False)
        lines.append(f"  {number} [label={text}];")
        lines += [f"  {before} -> {number};" for before in command["after"]]
    lines += draw_boxes(fused)
    return "\n".join([*lines, "}"])


def to_svg(document: Document, fused: Sequence[tuple[int, ...]] = ()) -> str:
    """Return the graph of the commands as an SVG picture. Commands of a fused kernel are a box."""
    after: list[list[int]] = [[] for _ in document.commands]
    for number, command in enumerate(document.commands):
        for before in command["after"]:
            after[before].append(number)
    texts = (describe_command(document, command) for command in document.commands)
    return draw_graph(zip(count(), texts, after, strict=False), fused, alone=True)


def read_source(archive: GraphArchive, kernel: str) -> str:
    """Return the source of the program of a kernel. Raises GraphFileError."""
    found = [one for one in archive.document.kernels if one["name"] == kernel]
    if not found:
        names = ", ".join(dict.fromkeys(one["name"] for one in archive.document.kernels))
        raise _make_error(f"the file has no kernel {kernel}", f"it has: {names or 'none'}")
    program = archive.document.programs[found[0]["program"]]
    if "source" not in program:
        raise _make_error(
            f"the program of {kernel} has no source in the file", "save it from source"
        )
    return archive.read_program(program["source"]).decode("utf-8", "replace")


def _make_error(message: str, remedy: str) -> GraphFileError:
    return GraphFileError(message, routine="show", code="NOT_IN_FILE", remedy=remedy)


# replay


def parse_settings(texts: Sequence[str]) -> dict[str, Any]:
    """Return the values of `--set NAME=NUMBER`. Raises click.BadParameter."""
    values: dict[str, Any] = {}
    for text in texts:
        name, equals, number = text.partition("=")
        if not equals or not name.isidentifier():
            raise click.BadParameter(f"{text!r} is not NAME=NUMBER")
        if name == "times":
            raise click.BadParameter("no Parameter is called times: --times says how often it runs")
        try:
            is_whole = re.fullmatch(r"[+-]?\d+", number.strip())
            values[name] = int(number) if is_whole else float(number)
        except ValueError:
            raise click.BadParameter(f"{number!r} is not a number") from None
    return values


def run_file(
    path: Path, device: str, times: int, values: Mapping[str, Any]
) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """Load a file and run it.

    Args:
        device: what `find_device` takes, "" for one like that on which it was saved.
        values: the values of Parameters, by name.

    Returns:
        What is to be told of it: device, platform, driver, engines, milliseconds; and the outputs.
    """
    began = time.perf_counter()
    graph = load(path, device or None)
    loop = graph.finalize()
    loaded = time.perf_counter()
    outputs = loop(times=times, **values)
    ended = time.perf_counter()
    queue = graph.new_queue()
    chosen = queue.device
    facts = {
        "device": chosen.name.strip(),
        "platform": chosen.platform.name.strip(),
        "driver": chosen.driver_version.strip(),
        "commands": len(graph),
        "load_ms": 1000 * (loaded - began),
        "run_ms": 1000 * (ended - loaded),
        "explain": loop.explain(queue),
    }
    return facts, outputs


def write_outputs(path: Path, outputs: Mapping[str, np.ndarray]) -> None:
    """Write outputs as an archive of NumPy's. Raises GraphFileError."""
    try:
        write_arrays(path, outputs)
    except OSError as error:
        raise GraphFileError(
            f"{path} cannot be written: {error.strerror}",
            routine="replay",
            code=CANNOT_SAVE,
            remedy="name a file in a folder that exists and can be written",
        ) from None


def format_results(
    facts: Mapping[str, Any], times: int, outputs: Mapping[str, np.ndarray]
) -> Iterator[str]:
    """Yield what `fairlead replay` prints.

    Args:
        facts: what `run_file` tells.
    """
    yield escape_text(f"{facts['device']} ({facts['platform']}, driver {facts['driver']})")
    yield f"loaded in {facts['load_ms']:.1f} ms; {times} runs took {facts['run_ms']:.3f} ms"
    for name, array in outputs.items():
        flat = array.reshape(-1)
        head = ", ".join(str(one) for one in flat[:4])
        yield f"  {name}: {array.dtype} {array.shape}: {head}{', …' if flat.size > 4 else ''}"
