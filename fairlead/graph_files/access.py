"""What a graph reads before it writes it, and what it writes: its inputs and outputs.

A transfer says which bytes it uses. Of a kernel only its declaration is known: it reads all memory
that it gets, and writes what is not declared `const` or as constant memory. So a buffer that a
kernel only writes counts as an input, too.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from ..loader.base.operations import OPERATIONS
from .document import KERNEL, Document
from .extents import find_extent

#: A memory (its number), and from which byte to which it is used.
_Use = tuple[int, int, int]


def find_inputs_and_outputs(document: Document) -> tuple[set[int], set[int]]:
    """Return the numbers of the memory that is read before it is written, and of what is written.

    What is written in part is both. A part of a buffer counts as the buffer. Of buffers that
    exchange their roles each is what the other one is: in every second replay.
    """
    inputs, written = set[int](), dict[int, list[tuple[int, int]]]()
    for command in document.commands:
        reads, writes = _find_uses(document, command)
        for number, first, end in reads:
            if not are_covered(written.get(number, ()), first, end):
                inputs.add(number)
        for number, first, end in writes:
            _add(written.setdefault(number, []), first, end)
    for number, spans in written.items():
        if not are_covered(spans, 0, document.memory[number]["size"]):
            inputs.add(number)  # the other bytes stay, and are given back
    outputs = set(written)
    for pair in document.swaps:
        both = {find_whole(document, one)[0] for one in pair}
        for found in (inputs, outputs):
            found |= both if found & both else set()
    return inputs, outputs


def find_whole(document: Document, number: int) -> tuple[int, int]:
    """Return the memory that a memory is a part of, or itself, and where it begins in it."""
    offset = 0
    while "of" in document.memory[number]:
        memory = document.memory[number]
        offset, number = offset + memory.get("offset", 0), memory["of"]
    return number, offset


def _find_uses(document: Document, command: Mapping[str, Any]) -> tuple[list[_Use], list[_Use]]:
    if command["op"] == KERNEL:
        return _find_uses_of_launch(document, command)
    operation = OPERATIONS.get(command["op"])
    sides = [side for side in _SIDES if operation is not None and getattr(operation, side)]
    found: dict[str, list[_Use]] = {side: [] for side in _SIDES}
    memory = {side: document.find_memory(command[side]) for side in sides}
    for side in sides:
        other = memory.get("target" if side == "source" else "source")
        span = find_extent(command, side, memory[side], other)
        use = _make_use(document, find_number(document, command[side]), *span)
        if side == "target" and not _is_dense(command, span):
            found["source"].append(use)  # the bytes between the rows stay
        found[side].append(use)
    return found["source"], found["target"]


def _is_dense(command: Mapping[str, Any], span: tuple[int, int]) -> bool:
    """Whether a transfer writes every byte of its extent."""
    x, y, z = command.get("region", (span[1] - span[0], 1, 1))
    return x * y * z == span[1] - span[0]


_SIDES: Final = ("source", "target")


def _find_uses_of_launch(
    document: Document, command: Mapping[str, Any]
) -> tuple[list[_Use], list[_Use]]:
    declared = document.kernels[command["kernel"]].get("arguments", ())
    reads: list[_Use] = []
    writes: list[_Use] = []
    for index, argument in enumerate(command["args"]):
        number = find_number(document, argument)
        if number is None:
            continue
        use = _make_use(document, number, 0, document.memory[number]["size"])
        reads.append(use)
        if index >= len(declared) or not declared[index]["constant"]:
            writes.append(use)
    return reads, writes


def find_number(document: Document, reference: Any) -> Any:
    """Return the number of the memory that an argument or a transfer refers to, None if it is
    none."""
    if isinstance(reference, int):
        return reference
    if "parameter" in reference:
        return document.parameters[reference["parameter"]].get("memory")
    return reference.get("memory")


def _make_use(document: Document, number: int, first: int, end: int) -> _Use:
    whole, offset = find_whole(document, number)
    return whole, first + offset, end + offset


def are_covered(spans: Any, first: int, end: int) -> bool:
    """Whether one of the spans has all bytes from `first` to `end`."""
    return any(begin <= first and end <= last for begin, last in spans)


def _add(spans: list[tuple[int, int]], first: int, end: int) -> None:
    """Add a span to spans that neither touch nor overlap, and join what it touches."""
    joined = [(begin, last) for begin, last in spans if begin <= end and first <= last]
    spans[:] = [one for one in spans if one not in joined]
    spans.append((min([first, *(b for b, _ in joined)]), max([end, *(e for _, e in joined)])))


def name_memory(document: Document, numbers: set[int]) -> Iterator[tuple[str, int]]:
    """Yield a name for each memory: its own, or memoryN."""
    for number in sorted(numbers):
        yield document.memory[number].get("name", f"memory{number}"), number
