"""What a graph file says, as Python values. docs/graph_files.md describes every member."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, fields
from typing import Any, Final

FORMAT: Final = "fairlead graph"
VERSION: Final = 1
#: What a launch and a place in the order are called.
KERNEL: Final = "kernel"
MARKER: Final = "marker"
LONGEST_ARGUMENT: Final = 1 << 16  # bytes
CONTENTS: Final = ("none", "inputs", "all")


@dataclass
class Document:
    """What a file says, in the form of its JSON. docs/graph_files.md describes every member.

    Attributes:
        device: what the graph was saved on, texts by name; for people.
        contents: which contents the file has, one of CONTENTS.
        programs, kernels, memory, samplers, parameters, commands: lists; references are indices.
        swaps: pairs of memory that exchange their roles.
    """

    device: dict[str, str] = field(default_factory=dict)
    contents: str = "none"
    programs: list[dict[str, Any]] = field(default_factory=list)
    kernels: list[dict[str, Any]] = field(default_factory=list)
    memory: list[dict[str, Any]] = field(default_factory=list)
    samplers: list[dict[str, Any]] = field(default_factory=list)
    parameters: list[dict[str, Any]] = field(default_factory=list)
    swaps: list[list[int]] = field(default_factory=list)
    inputs: dict[str, int] = field(default_factory=dict)
    outputs: dict[str, int] = field(default_factory=dict)
    commands: list[dict[str, Any]] = field(default_factory=list)

    def to_json(self) -> dict[str, Any]:
        """Return the value of graph.json."""
        head = {"format": FORMAT, "version": VERSION}
        return head | {one.name: getattr(self, one.name) for one in fields(self)}

    def find_memory(self, reference: Any) -> dict[str, Any]:
        """Return the memory that a command refers to, through a Parameter or not."""
        if isinstance(reference, dict):
            reference = self.parameters[reference["parameter"]]["memory"]
        return self.memory[reference]

    def list_members(self) -> Iterator[str]:
        """Yield the names of the archive's other members that it refers to."""
        for program in self.programs:
            yield from (program[name] for name in ("source", "il") if name in program)
            yield from (one["file"] for one in program.get("binaries", ()))
        for title in ("contents", "result"):
            yield from (one[title] for one in self.memory if title in one)
