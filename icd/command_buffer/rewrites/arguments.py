"""The arguments of launches: what they are now, and what may change them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from ..._native import ffi, lib
from ...calls import get_address
from ...errors import check
from ...kernel_source.reading import KernelParameter
from ..edits import MEMORY, VALUE
from .uses import ListSnapshot

#: A handle of memory, or the bytes of a value.
ArgumentValue = int | bytes


class RecordedArgument(NamedTuple):
    """An argument of a launch.

    Attributes:
        turns: what it is; in both turns if it alternates.
        key: launches whose arguments have the same key have one argument in a fused kernel. For
            memory it is the handle, or the address of a Parameter's cell.
        address: of a Parameter's cell, 0 if it is none.
        is_proven: whether what is known of the launch depends on it.
    """

    turns: Sequence[ArgumentValue]
    key: int | tuple[Any, ...]
    address: int
    is_proven: bool


class NotFused(Exception):
    """A launch is left as it is: the text says why.

    Attributes:
        arguments: what may change so that it is fused; none if nothing can.
    """

    arguments: Sequence[RecordedArgument] = ()


def read_argument(
    snapshot: ListSnapshot, listed: Any, index: int
) -> tuple[Sequence[ArgumentValue], int]:
    """Return what an argument is in each turn, and the address of a Parameter's cell or 0.

    Raises NotFused if it is neither a value nor memory.
    """
    found = ffi.new("fl_change *")
    check(lib.fl_get_argument(listed, index, found), "clSetKernelArg")
    if found.kind not in (MEMORY, VALUE) or not found.value:
        raise NotFused(f"its argument {index} is neither a number nor a buffer")
    address = get_address(found.value) if lib.fl_parameter_of(listed, index) else 0
    cell = snapshot.cells.get(address)
    turns = cell.turns if cell is not None else [bytes(ffi.buffer(found.value, found.size))]
    if found.kind == MEMORY:
        return [int.from_bytes(turn, "little") for turn in turns], address
    return turns, address


def name_argument(
    parameter: KernelParameter,
    turns: Sequence[ArgumentValue],
    address: int,
    is_proven: bool,
    number: int | None,
) -> RecordedArgument:
    """Args:
    number: of the launch if its numbers may change alone, else None.
    """
    if isinstance(turns[0], int):
        return RecordedArgument(turns, address or turns[0], address, True)
    what: tuple[Any, ...] = (turns[0],)
    if address or (number is not None and not is_proven):
        what = (address,) if address else (number, parameter.index)
    return RecordedArgument(turns, (parameter.type.name, *what), address, is_proven)


def make_arguments(values: Sequence[ArgumentValue], instead: Mapping[int, int] = {}) -> Any:
    """Return a list of arguments, a reference.

    Args:
        values: a handle for memory, the bytes of a value.
        instead: what memory is exchanged for, by its handle.

    Raises:
        MemoryError: there is no memory.
    """
    kept, changes = list[Any](), ffi.new("fl_change[]", max(1, len(values)))
    for index, value in enumerate(values):
        kind, size = VALUE, 0
        if isinstance(value, int):
            kind, size, data = MEMORY, 8, ffi.new("uintptr_t *", instead.get(value, value))
        else:
            size, data = len(value), ffi.new("unsigned char[]", value)
        kept.append(data)
        changes[index] = (index, kind, size, data)
    arguments = lib.fl_change_arguments(ffi.NULL, len(values), changes, len(values))
    if not arguments:
        raise MemoryError("no memory for a launch's arguments")
    return arguments
