"""The settings of an executable graph's Parameters: how a value becomes the bytes of its cells.

`loop.set(dt=0.5)` writes the bytes into memory that C knows, and makes one call of C for all
Parameters (icd/command_buffer/cells.py). A number of the Parameter's own type is one
struct.pack_into, and so is a float that a kernel gets as another float. NumPy computes what else
follows from a Parameter, such as its negative.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import numpy as np

from ..icd._native import ffi
from ..icd.command_buffer.cells import AS_FLOAT, AS_INTEGER, AS_MEMORY, CellKey, Cells
from ..icd.command_buffer.edits import MEMORY
from ..loader.base.frozen_value import Value
from ..runtime.errors import Errc, SYCLError
from .argument_objects import check_context
from .expressions import Formula
from .parameter import GraphParameter, MemoryParameter, find_root
from .pyopencl_client import ArgumentError
from .random_numbers import Draws, PlacedDraw
from .swaps import Alternation, Swap

#: The codes of `struct` for numbers, which refuse what is not such a number.
_CODES: Final = {
    np.dtype(getattr(np, name)): code
    for name, code in zip(
        [
            "int8",
            "uint8",
            "int16",
            "uint16",
            "int32",
            "uint32",
            "int64",
            "uint64",
            "float32",
            "float64",
        ],
        "bBhHiIqQfd",
        strict=True,
    )
}
_FLOATS: Final = frozenset((np.dtype(np.float32), np.dtype(np.float64)))
_Writer = Callable[[Any], None]


def _make_error(message: str, remedy: str) -> SYCLError:
    return SYCLError(Errc.kernel_argument, message, routine="set", remedy=remedy)


def convert(name: str, parameter: GraphParameter, value: Any) -> Any:
    """Return a value as a NumPy scalar of a Parameter's type.

    Raises SYCLError (kernel_argument) if it is not exactly that. Floats are rounded.

    Args:
        name: the name of the Parameter, for messages.
        value: a number.
    """
    dtype, code = parameter.dtype, _CODES.get(parameter.dtype)
    if isinstance(value, GraphParameter):
        value = value.value
    if code is None:
        given = np.asarray(value)
        if given.shape == () and (given.dtype == dtype or _can_become(given, dtype)):
            return given.astype(dtype)[()]
    else:
        try:
            number = struct.unpack(code, struct.pack(code, value))[0]
            return number if parameter.is_python_float else dtype.type(number)
        except (struct.error, OverflowError, TypeError):
            pass
    raise _make_error(
        f"the Parameter {name} is {dtype}, and {value!r} cannot be that",
        f"give a number that numpy.{dtype} can be",
    )


def _can_become(given: np.ndarray, dtype: np.dtype[Any]) -> bool:
    return given.dtype.kind in "biufc" and np.can_cast(given.dtype, dtype, "same_kind")


def convert_series(name: str, parameter: GraphParameter, values: Any, times: int) -> np.ndarray:
    """Return values for each of the replays as an array of a Parameter's type.

    Raises SYCLError (kernel_argument).

    Args:
        name: the name of the Parameter, for messages.
        values: numbers.
        times: how many there must be.
    """
    given, dtype = np.asarray(values), parameter.dtype
    if given.shape != (times,):
        raise _make_error(
            f"the values of {name} have the shape {given.shape}, and there are {times} replays",
            f"give one number, or an array of {times}",
        )
    with np.errstate(all="ignore"):
        made = (
            np.ascontiguousarray(given, dtype)
            if given.dtype == dtype or _can_become(given, dtype)
            else None
        )
    if made is None or (dtype.kind in "iu" and (made != given).any()):
        raise _make_error(
            f"the Parameter {name} is {dtype}, and its values are {given.dtype}",
            f"give an array of numpy.{dtype}",
        )
    return made


def _find_kind(key: CellKey) -> str | None:
    """Return the type that a kernel declares, None if it takes a Parameter as it is."""
    return {AS_FLOAT: f"f{key.size}", AS_INTEGER: f"i{key.size}"}.get(key.conversion)


def _make_conversion(parameter: GraphParameter, key: CellKey) -> Callable[[Any], np.ndarray]:
    """Return what makes an array of a cell's contents from an array of the Parameter's values."""
    chain: list[Callable[[Any], Any]] = []
    one: Any = parameter
    while one.source is not None:
        one, function = one.source
        chain.insert(0, function)
    kind = _find_kind(key)

    def compute(values: Any) -> np.ndarray:
        with np.errstate(all="ignore"):
            for function in chain:
                values = function(values)
            made = np.asarray(values)
            return np.ascontiguousarray(made if kind is None else made.astype(kind))

    return compute


def _find_packer(root: Any, parameter: Any, key: CellKey) -> Any:
    """Return what packs a value of a Parameter into a cell, None if NumPy has to compute that.

    A float is rounded at most once: what comes after the narrowest type would not be seen.

    Args:
        root: the Parameter that has values.
        parameter: what the cell is of: itself, or what follows from it.
    """
    if parameter is not root:
        source, function = parameter.source
        if source is not root or not isinstance(function, Formula) or function.name != "astype":
            return None
    types = root.dtype, parameter.dtype, np.dtype(_find_kind(key) or parameter.dtype)
    rounds = set(types) <= _FLOATS and min(one.itemsize for one in types) == types[-1].itemsize
    code = _CODES.get(types[-1]) if rounds or len(set(types)) == 1 else None
    return struct.Struct(code).pack_into if code else None


class Setting:
    """A Parameter in an executable graph.

    Attributes:
        name: what it is called.
        write: stages a value for the next call of C. Raises SYCLError (kernel_argument).
    """

    write: _Writer
    series: Sequence[np.ndarray] = ()

    def __init__(
        self, name: str, parameter: Any, cells: Cells, rows: list[tuple[int, Any]]
    ) -> None:
        self.name, self.parameter = name, parameter
        self._rows = [
            (number, cells.rows[number], cells.get_staging(number), function)
            for number, function in rows
        ]

    def list_rows(self) -> list[int]:
        """Return the numbers of its rows."""
        return [number for number, _, _, _ in self._rows]

    def clear(self) -> None:
        """Forget what was staged."""
        for _, row, _, _ in self._rows:
            row.pending = 0

    def begin_series(self, values: Any, times: int) -> None:
        """Have the enqueues take one value each. Raises SYCLError (kernel_argument)."""
        raise _make_error(f"the Parameter {self.name} is memory", "set it between replays")


class NumberSetting(Setting):
    """A number.

    Args:
        of: the Parameters that follow from it, and itself, by number.
    """

    def __init__(
        self,
        name: str,
        parameter: Any,
        cells: Cells,
        rows: list[tuple[int, Any]],
        of: Mapping[int, Any],
    ) -> None:
        super().__init__(name, parameter, cells, rows)
        self.write = self._write
        places: list[tuple[Any, Any, Any]] = []
        for number, row, staging, _ in self._rows:
            key = cells.keys[number]
            places.append((_find_packer(parameter, of[key.parameter], key), staging, row))
        if all(pack_into for pack_into, _, _ in places):
            self.write = self._make_quick_writer(places)

    def _make_quick_writer(self, places: Sequence[tuple[Any, Any, Any]]) -> _Writer:
        def write(value: Any) -> None:
            try:
                for pack_into, staging, row in places:
                    pack_into(staging, 0, value)
                    row.pending = 1
            except (struct.error, OverflowError, TypeError):
                self._write(value)  # which says what is wrong

        return write

    def _write(self, value: Any) -> None:
        number = convert(self.name, self.parameter, value)
        for _, row, staging, function in self._rows:
            staging[:] = function(number).tobytes()
            row.pending = 1

    def begin_series(self, values: Any, times: int) -> None:
        array = convert_series(self.name, self.parameter, values, times)
        self.series = [function(array) for _, _, _, function in self._rows]
        self.advance(0)

    def advance(self, done: int) -> None:
        """Give the next enqueue value number `done` of a series."""
        for (_, row, _, _), array in zip(self._rows, self.series, strict=True):
            row.series = ffi.cast("void *", array.ctypes.data + done * array.itemsize)

    def end_series(self) -> None:
        """Keep the last value: all enqueues have theirs."""
        for _, row, _, _ in self._rows:
            row.series = ffi.NULL
        self.series = []


class MemorySetting(Setting):
    """A buffer or an array."""

    def __init__(
        self, name: str, parameter: Any, cells: Cells, rows: list[tuple[int, Any]], context: int
    ) -> None:
        super().__init__(name, parameter, cells, rows)
        self._context, self.write = context, self._write
        #: What is used now and what was staged: what was given, its buffer and that one's handle.
        self.present: tuple[Any, Any, int] = (parameter.value, parameter.buffer, 0)
        self.next: tuple[Any, Any, int] | None = None

    @property
    def value(self) -> Any:
        """The buffer or array that is used now."""
        return self.present[0]

    def clear(self) -> None:
        super().clear()
        self.next = None

    def _write(self, value: Any) -> None:
        from pyopencl import Image, MemoryObjectHolder
        from pyopencl.array import Array

        parameter: MemoryParameter = self.parameter
        first: Any = parameter.value
        buffer = value
        if isinstance(first, Array):
            same = isinstance(value, Array) and all(
                getattr(value, name) == getattr(first, name)
                for name in ("shape", "dtype", "strides", "offset")
            )
            if not same:
                raise _make_error(
                    f"the Parameter {self.name} is an array of {first.shape} {first.dtype}",
                    "give an array of the same shape, type, strides and offset",
                )
            buffer = value.base_data
        if not isinstance(buffer, MemoryObjectHolder) or isinstance(buffer, Image):
            raise _make_error(f"the Parameter {self.name} is a buffer", "give a pyopencl.Buffer")
        handle = buffer.int_ptr
        if handle == self.present[2] and self.next is None:
            return  # it is used now
        check_context(f"the Parameter {self.name}", MEMORY, handle, self._context)
        if buffer.size < parameter.buffer.size:
            raise _make_error(
                f"the Parameter {self.name} is a buffer of {parameter.buffer.size} bytes, and "
                f"this one has {buffer.size}",
                "give one that is as large",
            )
        self.next = value, buffer, handle
        for _, row, staging, _ in self._rows:
            staging[:] = handle.to_bytes(8, "little")
            row.pending = 1


def collect_rows(cells: Cells) -> dict[int, list[int]]:
    """Return the rows of each Parameter, by its number."""
    rows: dict[int, list[int]] = {}
    for number, key in enumerate(cells.keys):
        rows.setdefault(key.parameter, []).append(number)
    return rows


class Contents(Value):
    """What the cells of Parameters held at one moment.

    Attributes:
        rows: their bytes, by the numbers of the rows.
        memory: what keeps the buffers alive whose handles these are.
        has_drawn: whether the random numbers of an enqueue are among them.
    """

    rows: Mapping[int, bytes]
    memory: Sequence[Any]
    has_drawn: bool


class ParameterSettings:
    """The Parameters in a segment's commands.

    Args:
        parameters: the Parameters, by number, those that its blocks know.
        names: the names of those that the program made, by number.
        context: a handle.
        swaps: the pairs of buffers that alternate.
    """

    def __init__(
        self,
        cells: Cells,
        parameters: Mapping[int, Any],
        names: Mapping[int, str],
        context: int,
        swaps: Sequence[Swap] = (),
    ) -> None:
        self.cells, self._swaps = cells, list(swaps)
        #: How many enqueues there were.
        self.turn = 0
        #: Whether the next enqueue's random numbers are set already.
        self.has_drawn = False
        self._parameters, self._names, self._context = parameters, names, context
        self._list_settings()

    def learn(
        self,
        parameters: Mapping[int, Any],
        memory: Mapping[int, tuple[int, int]],
        names: Mapping[int, str],
        swaps: Sequence[Swap] = (),
    ) -> None:
        """Add Parameters of commands that may be put into the array.

        Args:
            parameters: the Parameters, by number.
            memory: as of `CapturedBlock.memory`.
            names: the names of those that the program made, by number.
            swaps: pairs of buffers that alternate.
        """
        self._parameters = {**self._parameters, **parameters}
        self._names = {**self._names, **names}
        self.cells.learn(memory)
        self._swaps += swaps

    def take(self, numbers: Sequence[int]) -> None:
        """Look at commands that were put into the array, given by their places."""
        self.cells.take(numbers)
        self._list_settings()

    def _list_settings(self) -> None:
        cells, parameters, names = self.cells, self._parameters, self._names
        self.by_name: dict[str, Any] = {}
        rows: dict[int, list[tuple[int, Any]]] = {}
        roots: dict[int, Any] = {}
        for number, key in enumerate(cells.keys):
            if not cells.is_used(number):
                continue
            parameter = parameters[key.parameter]
            root = find_root(parameter)
            roots[root.number] = root
            function = None
            if key.conversion != AS_MEMORY:
                function = _make_conversion(parameter, key)
            rows.setdefault(root.number, []).append((number, function))
        self.alternations = [Alternation(one, cells, collect_rows(cells)) for one in self._swaps]
        drawn = {one.number: one for one in roots.values() if isinstance(one, PlacedDraw)}
        self.draws = Draws(
            [(one, [row for row, _ in rows[number]]) for number, one in drawn.items()], cells
        )
        swapped = {one.number for swap in self._swaps for one in swap.pair}
        for number, root in roots.items():
            if number in swapped or number in drawn:
                continue
            name = names.get(number, "")
            if name in self.by_name and name:
                raise ArgumentError(
                    f"two Parameters of the graph are called {name}.",
                    routine="finalize",
                    remedy="give them names: Parameter(value, name=…)",
                )
            self.by_name[name] = (
                MemorySetting(name, root, cells, rows[number], self._context)
                if isinstance(root, MemoryParameter)
                else NumberSetting(name, root, cells, rows[number], parameters)
            )
        self.memory = [one for one in self.by_name.values() if isinstance(one, MemorySetting)]
        self.writers = {name: setting.write for name, setting in self.by_name.items() if name}

    def read(self) -> Contents:
        """Return what the cells hold, without those that change in each enqueue."""
        rows = [number for one in self.by_name.values() for number in one.list_rows()]
        if self.has_drawn:
            rows += self.draws.rows
        return Contents(
            {number: self.cells.read(number) for number in rows},
            [one.present for one in self.memory],
            self.has_drawn,
        )

    def clear(self) -> None:
        """Forget what was staged."""
        for setting in self.by_name.values():
            setting.clear()

    @property
    def changes(self) -> bool:
        """Whether each enqueue has arguments of its own, without being told: buffers that
        alternate, or random numbers."""
        return bool(self.alternations or self.draws.launches)

    def _list_series(self) -> list[Alternation | Draws]:
        return [*self.alternations, *([] if self.has_drawn else [self.draws])]

    def begin_series(self, values: Mapping[str, Any], times: int) -> None:
        """Have the enqueues take one value each, of arrays; and what changes by itself."""
        begun: list[NumberSetting] = []
        for setting in self.by_name.values():
            if setting.series:  # Ctrl-C came before its end
                setting.end_series()
        for one in self._list_series():
            one.begin(self.turn)
        try:
            for name, array in values.items():
                self.by_name[name].begin_series(array, times)
                begun.append(self.by_name[name])
        except BaseException:
            for setting in begun:
                setting.end_series()
            raise

    def advance(self, done: int, times: int) -> None:
        """Give the next `times` enqueues their values, after `done` others."""
        for one in self._list_series():
            one.advance(done, times)
        for setting in self.by_name.values():
            if setting.series:
                setting.advance(done)

    def end_series(self, ran: int) -> None:
        """Keep the last values: all enqueues, of which there were `ran`, have theirs."""
        for one in self._list_series():
            one.end(ran)
        self.turn += ran
        self.has_drawn &= not ran
        for setting in self.by_name.values():
            if setting.series:
                setting.end_series()

    def commit_staged(self) -> list[Any]:
        """Set what was staged. Returns the memory that is used no more."""
        gone = []
        for setting in self.memory:
            if setting.next is not None:
                gone.append(setting.present)
                setting.present, setting.next = setting.next, None
        return gone
