"""The cells of a command-buffer: the present values of Parameters (icd/native/cells.c).

A launch's argument points to a cell, so a change is a store and a note to the engines. A
recording's cells hold what was given in the block. A command-buffer has cells of its own, which are
bound here.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

from .._native import ffi, lib
from ..calls import get_address
from .commands import NAMES

#: How a Parameter becomes an argument (enum fl_conversion).
AS_IT_IS: Final[int] = lib.FL_AS_IT_IS
AS_FLOAT: Final[int] = lib.FL_AS_FLOAT
AS_INTEGER: Final[int] = lib.FL_AS_INTEGER
AS_MEMORY: Final[int] = lib.FL_AS_MEMORY


class CellKey(NamedTuple):
    """What identifies a cell: the Parameter's number, how it becomes an argument, and its size in
    bytes."""

    parameter: int
    conversion: int
    size: int


def find_cells(commands: Any, count: int) -> list[Any]:
    """Return the cells that commands use, each once: an `fl_cell *` without a reference.

    Args:
        commands: an `fl_command *` to so many of them.
    """
    found, known = ffi.new("fl_cell *[]", 0), 64
    while len(found) < known:  # where there is no room, C counts a cell at each use
        found = ffi.new("fl_cell *[]", known)
        known = lib.fl_find_cells(commands, count, found, known)
    return list(found[0:known])  # what the slice shows ends with `found`


class Cells:
    """The cells of a command-buffer's commands. Not thread-safe.

    Args:
        array: the commands, an `fl_command *`; each has a reference to its arguments.
        memory: the number and the first memory (a handle) of each Parameter, by the handle of its
            own memory object.

    Attributes:
        rows: an `fl_value` for each cell; `bytes` points to memory for the next contents.
        keys: for each row, what its cell is of.
    """

    def __init__(self, array: Any, count: int, memory: Mapping[int, tuple[int, int]]) -> None:
        self._array, self._count, self._memory = array, count, memory
        self._cells: list[Any] = []
        self._transfers: dict[int, list[tuple[int, str]]] = {}  # by the Parameter's number
        self._kept: list[Any] = []
        self.keys: list[CellKey] = []
        self.rows: Any = ffi.new("fl_value[]", 0)
        self.take(range(count))

    def skip(self, turns: int) -> None:
        """Leave out what so many enqueues have taken from the rows' series."""
        for row, key in zip(self.rows, self.keys, strict=True):
            if row.series:
                row.series = ffi.cast("char *", row.series) + turns * key.size

    def learn(self, memory: Mapping[int, tuple[int, int]]) -> None:
        """Take further memory objects of Parameters, which commands may name: see `Cells`."""
        self._memory = {**self._memory, **memory}

    def take(self, numbers: Sequence[int]) -> bool:
        """Bind commands that were put into the array.

        Returns whether there are new cells, and new rows.
        """
        known = len(self.keys)
        for number in numbers:
            self._take_transfer(number)
        for cell in find_cells(self._array, self._count):
            self._add(cell)
        mine = ffi.new("fl_cell *[]", self._cells)
        for number in numbers:
            if self._array[number].arguments and lib.fl_bind_arguments(
                self._array + number, mine, len(self._cells)
            ):
                raise MemoryError("no memory for a launch's arguments")
        self._list()
        return len(self.keys) > known

    def _add(self, cell: Any) -> None:
        look = ffi.new("fl_cell_look *")
        lib.fl_look_at_cell(cell, look)
        key = CellKey(look.id, look.conversion, look.size)
        if key in self.keys:
            return
        if key.conversion == AS_MEMORY:
            handle = ffi.cast("uintptr_t *", look.bytes)[0]
            self._add_cell(key, ffi.new("uintptr_t *", self._memory[handle][1]))
        else:
            self._add_cell(key, look.bytes)

    def _add_cell(self, key: CellKey, data: Any) -> None:
        made = lib.fl_new_cell(*key, data)
        if not made:
            raise MemoryError("no memory for a Parameter")
        self._cells.append(ffi.gc(made, lib.fl_release_cell))
        self.keys.append(key)

    def _take_transfer(self, number: int) -> None:
        """Replace a Parameter's own memory object in a transfer by the Parameter's present one."""
        command = self._array[number]
        for places in self._transfers.values():
            places[:] = [place for place in places if place[0] != number]
        if not self._memory or NAMES[command.op] == "kernel":
            return
        for field in ("source", "target"):
            parameter, first = self._memory.get(get_address(getattr(command, field)), (0, 0))
            if not parameter:
                continue
            key = CellKey(parameter, AS_MEMORY, 8)
            if key not in self.keys:
                self._add_cell(key, ffi.new("uintptr_t *", first))
            setattr(command, field, ffi.cast("void *", self.get_object(key)))
            self._transfers.setdefault(parameter, []).append((number, field))

    def read(self, number: int) -> bytes:
        """Return what a row's cell holds."""
        look = ffi.new("fl_cell_look *")
        lib.fl_look_at_cell(self._cells[number], look)
        return ffi.buffer(ffi.cast("char *", look.bytes), look.size)[:]

    def get_object(self, key: CellKey) -> int:
        """Return the memory object that a cell holds, a handle."""
        return int.from_bytes(self.read(self.keys.index(key)), sys.byteorder)

    def stage(self, contents: Mapping[int, bytes]) -> None:
        """Stage what cells are to hold, by the numbers of their rows."""
        for number, data in contents.items():
            self.get_staging(number)[:] = data
            self.rows[number].pending = 1

    def _list(self) -> None:
        """Make the rows: C reads them."""
        rows = ffi.new("fl_value[]", len(self._cells))
        self._kept = []
        for row, key, cell in zip(rows, self.keys, self._cells, strict=True):
            staging = ffi.new("uint64_t[]", (key.size + 7) // 8)
            moved = self._transfers.get(key.parameter, ())
            count = lib.fl_find_places(self._array, self._count, cell, ffi.NULL, 0)
            places = ffi.new("uint32_t[]", count + len(moved))
            lib.fl_find_places(self._array, self._count, cell, places, count)
            for place, (number, _) in enumerate(moved, count):
                places[place] = number
            members = [
                ffi.cast("void **", ffi.addressof(self._array[number], field))
                for number, field in moved
            ]
            transfers = ffi.new("void **[]", members)
            row.cell, row.bytes, row.places, row.transfers = cell, staging, places, transfers
            row.place_count, row.transfer_count = count + len(moved), len(members)
            self._kept.append((staging, places, transfers))
        self.rows, self.count = rows, len(self._cells)

    def is_used(self, number: int) -> bool:
        """Whether any command uses a row's cell."""
        return bool(self.rows[number].place_count)

    def list_pending(self) -> list[int]:
        """Return the numbers of the commands that use what was staged."""
        changed: dict[int, None] = {}
        for row in self.rows:
            if row.pending:
                changed |= dict.fromkeys(row.places[0 : row.place_count])
        return list(changed)

    def stage_series(self, turn: int) -> None:
        """Stage what the rows' series have for an enqueue."""
        for number, key in enumerate(self.keys):
            row = self.rows[number]
            if row.series:
                data = ffi.cast("char *", row.series) + turn * key.size
                self.get_staging(number)[:] = ffi.buffer(data, key.size)[:]
                row.pending = 1

    def get_staging(self, number: int) -> Any:
        """Writable memory for what a row's cell is to become."""
        return ffi.buffer(self._kept[number][0], self.keys[number].size)


def copy_commands(commands: Any, count: int) -> Any:
    """Return an `fl_array` of commands like these; what they point to belongs to the others.

    Raises MemoryError.
    """
    array = ffi.gc(ffi.new("fl_array *"), lib.fl_release_array)
    if lib.fl_copy_commands(array, commands, count):
        raise MemoryError("no memory for commands")
    return array
