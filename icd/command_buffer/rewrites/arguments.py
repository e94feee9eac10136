"""The arguments of launches: what they are now, and what may change them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from ..._native import ffi, lib
from ...kernel_source.reading import KernelParameter
from ..edits import MEMORY, VALUE
from .uses import ListSnapshot, pack_arguments, unpack_arguments

#: A handle of memory, or the bytes of a value.
ArgumentValue = int | bytes


class RecordedArgument(NamedTuple):
    """An argument of a launch.

    Attributes:
        turns: what it is; in both turns if it alternates.
        key: launches whose arguments have the same key have one argument in a fused kernel. For
            memory it is the handle, or the address of a Parameter's cell. None: no other launch
            has it.
        address: of a Parameter's cell, 0 if it is none.
        is_proven: whether what is known of the launch depends on it.
    """

    turns: Sequence[ArgumentValue]
    key: int | tuple[Any, ...] | None
    address: int
    is_proven: bool


class NotFused(Exception):
    """A launch is left as it is: the text says why.

    Attributes:
        arguments: what may change so that it is fused; none if nothing can.
    """

    arguments: Sequence[RecordedArgument] = ()


def read_arguments(
    snapshot: ListSnapshot, listed: Any
) -> tuple[bytes, Sequence[tuple[Sequence[ArgumentValue], int] | None]]:
    """Return all arguments of a list as one key, and what each is.

    That is its value in each turn, and the address of a Parameter's cell or 0. It is None for what
    is neither a number nor a buffer. Launches are often alike, so such lists are read once.
    """
    packed = pack_arguments(listed)
    found = snapshot.answers.get(packed)
    if found is None:
        found = [
            _read(snapshot, kind, address, data) for kind, address, data in unpack_arguments(packed)
        ]
        snapshot.answers[packed] = found
    return packed, found


def _read(
    snapshot: ListSnapshot, kind: int, address: int, data: bytes
) -> tuple[Sequence[ArgumentValue], int] | None:
    if kind not in (MEMORY, VALUE) or not data:
        return None
    cell = snapshot.cells.get(address) if address else None
    turns = cell.turns if cell is not None else (data,)
    if kind == MEMORY:
        return [int.from_bytes(turn, "little") for turn in turns], address
    return turns, address


def name_argument(
    parameter: KernelParameter,
    turns: Sequence[ArgumentValue],
    address: int,
    is_proven: bool,
    changes: bool,
) -> RecordedArgument:
    """Args:
    changes: whether the numbers of a launch may change alone.
    """
    if isinstance(turns[0], int):
        return RecordedArgument(turns, address or turns[0], address, True)
    if address:
        return RecordedArgument(turns, (parameter.type.name, address), address, is_proven)
    key = None if changes and not is_proven else (parameter.type.name, turns[0])
    return RecordedArgument(turns, key, 0, is_proven)


def list_keys(number: int, arguments: Sequence[RecordedArgument]) -> Sequence[Any]:
    """Return the keys of a launch's arguments. What no other launch has gets one of its own."""
    pairs = enumerate(arguments)
    return [(number, index) if one.key is None else one.key for index, one in pairs]


def make_arguments(values: Sequence[ArgumentValue]) -> Any:
    """Return a list of arguments, a reference.

    Args:
        values: a handle for memory, the bytes of a value.

    Raises:
        MemoryError: there is no memory.
    """
    kept, changes = list[Any](), ffi.new("fl_change[]", max(1, len(values)))
    for index, value in enumerate(values):
        kind, size = VALUE, 0
        if isinstance(value, int):
            kind, size, data = MEMORY, 8, ffi.new("uintptr_t *", value)
        else:
            size, data = len(value), ffi.new("unsigned char[]", value)
        kept.append(data)
        changes[index] = (index, kind, size, data)
    arguments = lib.fl_change_arguments(ffi.NULL, len(values), changes, len(values))
    if not arguments:
        raise MemoryError("no memory for a launch's arguments")
    return arguments
