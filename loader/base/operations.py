"""The table of operations: what a command is, and what each API calls it and its operands.

operations.ini has the facts. `OPERATIONS` is its content by name. The native build makes C of it
(icd/native/build.py). Nothing is imported here: the build runs before fairlead is installed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from operator import itemgetter
from pathlib import Path
from typing import Any, Final, NamedTuple

#: The kinds of memory that operations name. A sub-buffer is a buffer to them. An address is SVM
#: or, where an operation takes both, host memory.
BUFFER: Final = "buffer"
IMAGE: Final = "image"
SVM: Final = "svm"
HOST: Final = "host"


@dataclass(frozen=True)
class NumberPlace:
    """Where an operation's number is in `fl_command.n`: the first place, and how many there are."""

    first: int
    count: int


class OperationFunction(NamedTuple):
    """A function of an API that does an operation.

    Attributes:
        operands: what it takes for the operation, by name and in order. It also takes what all
            functions of its kind take: a queue before them, a wait list after them.
    """

    name: str
    operands: tuple[str, ...]


@dataclass(frozen=True)
class Operation:
    """An operation: what a command does, and its row of operations.ini.

    Attributes:
        name: as fairlead and its files call it.
        number: `fl_command.op`.
        source: the kind of memory that it reads, "" if it reads none.
        target: the kind of memory that it writes, "" if it writes none.
        pattern: "pattern" or "colour" if it is filled with one, else "".
        numbers: its other operands, by name.
        functions: the functions that do it, by the key of their line: "cl", "cl_buffer", "ur",
            "ur_buffer", "ze".
    """

    name: str
    number: int
    source: str
    target: str
    pattern: str
    numbers: Mapping[str, NumberPlace]
    functions: Mapping[str, OperationFunction]

    @property
    def only_orders(self) -> bool:
        """Whether the operation moves and launches nothing, and only has a place in the order."""
        return self.name != "kernel" and not self.target


#: The lines that take the operands of another line, without `blocking`, if they name none.
_SAME_AS: Final = {"cl_buffer": "cl", "ur_buffer": "ur"}


def _read_functions(lines: Mapping[str, str]) -> dict[str, OperationFunction]:
    made: dict[str, OperationFunction] = {}
    for key, line in lines.items():
        name, *operands = line.split()
        if not operands and key in _SAME_AS:
            operands = [one for one in made[_SAME_AS[key]].operands if one != "blocking"]
        made[key] = OperationFunction(name, tuple(operands))
    return made


def _read_operation(name: str, number: int, lines: dict[str, str]) -> Operation:
    kinds, numbers, pattern = dict[str, str](), dict[str, NumberPlace](), ""
    for operand in lines.pop("operands", "").split():
        title, _, kind = operand.partition(":")
        title, _, place = title.partition("@")
        if kind:
            kinds[title] = kind
        elif place:
            first, _, count = place.partition("*")
            numbers[title] = NumberPlace(int(first), int(count or 1))
        else:
            pattern = title
    sides = kinds.get("source", ""), kinds.get("target", "")
    return Operation(name, number, *sides, pattern, numbers, _read_functions(lines))


def read_operations(path: Path) -> dict[str, Operation]:
    """Return the content of a table of operations, by name, in the order of their numbers."""
    text = path.read_text(encoding="utf-8").replace("\n    ", " ")  # what continues a line
    table, lines = dict[str, dict[str, str]](), dict[str, str]()
    for line in text.splitlines():
        key, _, value = line.partition(" = ")
        if line.startswith("["):
            table[line.strip("[]")] = lines = dict[str, str]()
        elif value and line[0] != "#":
            lines[key] = value
    return {
        name: _read_operation(name, number, lines)
        for number, (name, lines) in enumerate(table.items())
    }


OPERATIONS: Final = read_operations(Path(__file__).with_name("operations.ini"))


class TransferCommand(NamedTuple):
    """A transfer that becomes a command of an array, or a call of a driver.

    Attributes:
        operands: its operands by name, and `pattern_size` with a pattern. Memory is a handle or an
            address, a pattern a pointer of cffi's or an address.
        keep: objects that have to live as long as the operation may run.
    """

    operation: str
    operands: dict[str, Any]
    keep: Any = ()

    def list_arguments(self, function: str, blocks: bool = False) -> tuple[Any, ...]:
        """Return what a function takes for it: see `make_call`."""
        return self.make_call(function, blocks)[1]

    def make_call(self, function: str, blocks: bool = False) -> tuple[str, tuple[Any, ...]]:
        """Return the name of an API's function for the transfer, and its arguments.

        Args:
            function: which function of the operation, a key of `Operation.functions`.
            blocks: whether the function waits for the end of the transfer.
        """
        name, get, can_block = _find_call(self.operation, function)
        return name, get({"blocking": blocks, **self.operands} if can_block else self.operands)


@cache
def _find_call(
    operation: str, function: str
) -> tuple[str, Callable[[Mapping[str, Any]], tuple[Any, ...]], bool]:
    """Return a function's name, what gets its operands, and whether it is told to block."""
    name, names = OPERATIONS[operation].functions[function]
    return name, itemgetter(*names), "blocking" in names
