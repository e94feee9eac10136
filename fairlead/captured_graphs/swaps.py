"""Buffers that exchange their roles: what one step writes, the next one reads.

With `capture(queue, swap=(u, v))` every second replay uses v for u and u for v. In the block C
knows the two as Parameters, by memory objects of their own. So their cells alternate between the
two.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Mapping, Sequence
from types import FrameType, SimpleNamespace
from typing import Any, Final

import numpy as np

from ..icd._native import ffi
from ..icd.command_buffer.cells import Cells
from ..loader.base.frames import get_variables
from . import pyopencl_client as _client
from .parameter import MemoryParameter


class CaptureWarning(UserWarning):
    """A capture is probably not what the program means."""


class Swap:
    """Two buffers that exchange their roles after each replay.

    Attributes:
        pair: what C knows of them.
    """

    def __init__(self, first: Any, second: Any) -> None:
        buffers = [_client.find_buffer(one, "capture") for one in (first, second)]
        if buffers[0].size != buffers[1].size or buffers[0] == buffers[1]:
            raise _client.ArgumentError(
                "swap is not a pair of two buffers of the same size.",
                routine="capture",
                remedy="capture(queue, swap=(u, v))",
            )
        self.pair: list[MemoryParameter] = []
        try:
            for one in buffers:
                self.pair.append(MemoryParameter.of_itself(one))
        except BaseException:
            self.end()
            raise

    def end(self) -> None:
        """Let the two be buffers like all others, because the block has ended."""
        for one in self.pair:
            one.forget()


def check_swaps(swap: Any) -> list[Swap]:
    """Return the pairs that `capture` was given: one, or a list of them. Raises ArgumentError."""
    pairs: Sequence[Any] = list(swap)
    if pairs and not isinstance(pairs[0], (tuple, list)):
        pairs = [pairs]
    made: list[Swap] = []
    try:
        for pair in pairs:
            made.append(Swap(*pair))
    except BaseException as wrong:
        for one in made:
            one.end()
        if isinstance(wrong, _client.ArgumentError) or not isinstance(wrong, TypeError):
            raise
        raise _client.ArgumentError(
            "swap is not a pair of buffers.",
            routine="capture",
            remedy="capture(queue, swap=(u, v)), or a list of pairs",
        ) from wrong
    return made


class Alternation:
    """A pair in the cells of a command-buffer.

    Args:
        cells: the cells of the command-buffer.
        rows: the rows of each of the two, by its number.
    """

    def __init__(self, swap: Swap, cells: Cells, rows: Mapping[int, Sequence[int]]) -> None:
        first, second = (one.handle for one in swap.pair)
        patterns = (first, second), (second, first)
        self._rows = [
            (cells.rows[row], pattern)
            for one, pattern in zip(swap.pair, patterns, strict=True)
            for row in rows.get(one.number, ())
        ]
        self._turn = 0
        self._arrays: list[np.ndarray] = []
        self._cycles = [np.array(pattern, np.uint64) for _, pattern in self._rows]
        for (row, _), cycle in zip(self._rows, self._cycles, strict=True):
            row.cycle = ffi.cast("void *", cycle.ctypes.data)

    def begin(self, turn: int) -> None:
        """Begin a series of enqueues with number `turn`."""
        self._turn = turn

    def advance(self, done: int, times: int) -> None:
        """Give the next `times` enqueues their buffers, after `done` others."""
        first = (self._turn + done) % 2
        self._arrays = [np.tile(cycle, times // 2 + 1)[first:] for cycle in self._cycles]
        for (row, _), array in zip(self._rows, self._arrays, strict=True):
            row.series = ffi.cast("void *", array.ctypes.data)

    def end(self, ran: int) -> None:
        """Take no more buffers: all enqueues have theirs."""
        for row, _ in self._rows:
            row.series = ffi.NULL


# the advice


def find_buffers(frame: FrameType) -> dict[str, int]:
    """Return the buffers and arrays in a function's variables: the handles of their memory, by
    name."""
    found = {}
    for name, value in get_variables(frame).items():
        handle = _client.find_buffer_handle(value)
        if handle:
            found[name] = handle
    return found


def find_forms(
    handles: Mapping[str, int], variables: Mapping[str, Any]
) -> dict[int, tuple[str, SimpleNamespace]]:
    """Return the names of memory by its handle, and what the arrays of those names look like.

    The arrays themselves may go. Of several variables the first array counts, else the last buffer.
    """
    found: dict[int, tuple[str, SimpleNamespace]] = {}
    for name, handle in handles.items():
        value = variables[name]
        if handle not in found or not hasattr(found[handle][1], "dtype"):
            form = {one: getattr(value, one) for one in _FORM if hasattr(value, one)}
            found[handle] = name, SimpleNamespace(**form)
    return found


#: What a graph file tells of an array (graph_files.naming.description).
_FORM: Final = ("dtype", "shape", "offset", "nbytes", "flags")


def find_exchanged(
    before: Mapping[str, int], after: Mapping[str, int], swaps: Iterable[Swap]
) -> list[str]:
    """Return the variables, attributes and members of lists that have exchanged their buffers.

    Args:
        before, after: what held buffers at the beginning and the end of the block.
        swaps: the pairs that alternate.
    """
    known = {one.handle for swap in swaps for one in swap.pair}
    moved = [
        name
        for name, handle in after.items()
        if name in before and before[name] != handle and handle not in known
    ]
    count = 0
    while count != len(moved):  # leave out what has a buffer from elsewhere
        count = len(moved)
        old, new = ({those[name] for name in moved} for those in (before, after))
        moved = [name for name in moved if before[name] in new and after[name] in old]
    return moved if len(moved) > 1 else []


def warn_of_exchange(moved: Sequence[str], stacklevel: int) -> None:
    """Warn of exchanged buffers, since a replay begins with the same ones each time.

    Args:
        moved: what has exchanged them.
        stacklevel: the stack level of the frame with the block.
    """
    names = ", ".join(moved)
    remedy = (
        f"capture(queue, swap=({names}))"
        if len(moved) == 2
        else "capture as many steps as bring each buffer back to its name"
    )
    warnings.warn(
        f"this replay does not continue from its own result: {names} have exchanged their buffers "
        f"in the capture block, and every replay begins with the same ones again. Remedy: {remedy}",
        CaptureWarning,
        stacklevel=stacklevel,
    )


def warn_of_others(uncaptured_calls: Mapping[tuple[str, int], str]) -> None:
    """Warn of commands on queues that were not captured: by file and line, the function."""
    for (file, line), function in uncaptured_calls.items():
        warnings.warn_explicit(
            f"{function} in a capture block, on a queue of the same context that is not captured "
            f"(at {file}:{line}): it has run at once, and replays do not repeat it. Remedy: use "
            "the captured queue, name this one as well, capture(q1, q2), or move the line out of "
            "the block",
            CaptureWarning,
            file,
            line,
        )


def warn_of_contents(places: Iterable[tuple[str, int]]) -> None:
    """Warn of memory that the block fills when it makes it: by file and line."""
    for file, line in places:
        warnings.warn_explicit(
            "memory made with COPY_HOST_PTR or USE_HOST_PTR in a capture block: it is filled once, "
            "and every replay goes on with what the one before has left there. Remedy: make it "
            "before the block, and fill it in the block: enqueue_copy(queue, buffer, array, "
            "is_blocking=False)",
            CaptureWarning,
            file,
            line,
        )


def warn_of_random_numbers(places: Iterable[tuple[str, int]]) -> None:
    """Warn of launches of pyopencl.clrandom whose counter was not found: by file and line."""
    for file, line in places:
        warnings.warn_explicit(
            "pyopencl.clrandom in a capture block: every replay draws the same numbers again, "
            "because this version of PyOpenCL counts in another way. Remedy: fill the array "
            "before each replay, outside of the block",
            CaptureWarning,
            file,
            line,
        )
