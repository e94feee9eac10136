"""The arguments of launches: what they are now, and what may change them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, TypeVar

from ..._native import ffi, lib
from ...errors import OpenCLError
from ...kernel_source.reading import KernelParameter
from ..edits import MEMORY, VALUE
from .uses import ListSnapshot, PackedArguments, unpack_arguments

_Found = TypeVar("_Found")

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

    turns: tuple[ArgumentValue, ...]
    key: int | tuple[Any, ...] | None
    address: int
    is_proven: bool


class NotFused(Exception):
    """A launch is left as it is: the text says why.

    Attributes:
        arguments: what may change so that it is fused; none if nothing can.
    """

    def __init__(self, text: str, arguments: tuple[RecordedArgument, ...] = ()) -> None:
        super().__init__(text)
        self.arguments = arguments


def ask_once(known: dict[Any, Any], key: Any, ask: Callable[[], _Found]) -> _Found:
    """Return the answer to a question, or raise NotFused or OpenCLError, as the first time.

    Args:
        known: takes the answers, by their keys.
    """
    found: Any = known.get(key)
    if found is None:
        try:
            found = ask()
        except (NotFused, OpenCLError) as refusal:
            found = refusal
        known[key] = found
    if isinstance(found, Exception):
        raise found.with_traceback(None)
    return found


#: The values of an argument in each turn, and the address of a Parameter's cell or 0.
GivenArgument = tuple[tuple[ArgumentValue, ...], int]


def read_arguments(
    snapshot: ListSnapshot, packed: PackedArguments
) -> Sequence[GivenArgument | None]:
    """Return all arguments of a list, None for those that are neither a number nor a buffer."""
    found = list[GivenArgument | None]()
    for kind, address, data in unpack_arguments(packed):
        cell = snapshot.cells.get(address)
        turns: tuple[ArgumentValue, ...] = cell.turns if cell else (data,)
        if kind == MEMORY:
            turns = tuple(int.from_bytes(turn, "little") for turn in turns)
        found.append((turns, address) if data and kind in (MEMORY, VALUE) else None)
    return found


def name_argument(
    parameter: KernelParameter, given: GivenArgument, is_proven: bool, changes: bool
) -> RecordedArgument:
    """Args:
    changes: whether the numbers of a launch may change alone.
    """
    turns, address = given
    value, kind = turns[0], parameter.type.name
    if isinstance(value, int):
        return RecordedArgument(turns, address or value, address, True)
    if address:
        return RecordedArgument(turns, (kind, address), address, is_proven)
    if changes and not is_proven:  # launches with other numbers are alike
        return RecordedArgument((bytes(len(value)),), None, 0, False)
    return RecordedArgument(turns, (kind, value), 0, is_proven)


def list_keys(position: int, arguments: Sequence[RecordedArgument]) -> Sequence[Any]:
    """Return the keys of the arguments of a launch in a run.

    What no other launch has gets a key of its own.
    """
    pairs = enumerate(arguments)
    return [(position, index) if one.key is None else one.key for index, one in pairs]


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
