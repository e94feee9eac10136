"""Random numbers of pyopencl.clrandom in captured graphs: each replay draws the next ones.

A generator counts in Python, and each of its launches has the four words of its counter as
arguments. In an executable graph these words are cells. Before a replay they become what the
generator has counted to, and the generator counts on. So a replay draws what the calls would draw.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping, Sequence
from types import FrameType
from typing import Any, Final

import numpy as np

from ..icd._native import ffi, lib
from ..icd.command_buffer.cells import AS_IT_IS, Cells
from ..icd.command_buffer.edits import get_argument_bytes
from ..icd.errors import check
from ..loader.base.frozen_value import Value
from .parameter import make_number

#: What a generator has counted to.
_Counter = tuple[int, int, int, int]
_WORD: Final = struct.Struct("i")
_WORDS: Final = 4


def _count_on(counter: _Counter, count: int, top: int) -> _Counter:
    """Return a counter after so many numbers. A word goes up to `top`, as PyOpenCL's do.

    The second word is brought below `top` only when the first one has passed it.
    """
    first, second, third, fourth = counter
    carry, first = divmod(first + count, top)
    if carry:
        more, second = divmod(second + carry, top)
        third += more
    return first, second, third, fourth


class Draw(Value):
    """A recorded launch that draws random numbers.

    Attributes:
        generator: of pyopencl.clrandom.
        counter: what it had counted to.
        count: how many numbers are drawn, as it counts them.
        first: the index of the argument with the counter's first word.
    """

    generator: Any
    counter: _Counter
    count: int
    first: int

    @classmethod
    def from_frame(cls, frame: FrameType) -> Draw | None:
        """Return the launch that a function of PyOpenCL's makes, None if it is another one."""
        try:
            own = frame.f_locals
            generator = own["self"]
            first, second, third, fourth = map(int, generator.counter)
            count = int(own["n"] * own["counter_multiplier"])
            return cls(generator, (first, second, third, fourth), count, generator.key_length - 1)
        except (AttributeError, KeyError, TypeError, ValueError):  # PyOpenCL has changed
            return None

    @property
    def after(self) -> _Counter:
        """What the generator counts to by it."""
        return _count_on(self.counter, self.count, self.generator.counter_max)

    def is_in(self, command: Any) -> bool:
        """Whether a launch, an `fl_command *`, has this counter among its arguments."""
        places = range(self.first, self.first + _WORDS)
        if lib.fl_argument_count(command.arguments) < places.stop:
            return False
        words = b"".join(get_argument_bytes(command, place) for place in places)
        return words == struct.pack("4i", *self.counter)


def set_back(draws: Iterable[Draw]) -> None:
    """Set generators back to where they were before a block, in which nothing was drawn.

    One of which other commands have drawn meanwhile stays.
    """
    by_generator: dict[int, list[Draw]] = {}
    for draw in draws:
        by_generator.setdefault(id(draw.generator), []).append(draw)
    for drawn in by_generator.values():
        counter: list[int] = drawn[0].generator.counter
        reached = [one.after for one in drawn]
        if reached == [*(one.counter for one in drawn[1:]), tuple(counter)]:
            counter[:] = drawn[0].counter


class PlacedDraw:
    """A launch that draws random numbers, in the array of an executable graph.

    Its four words are found in the tables of Parameters, by numbers of their own.

    Args:
        node: the launch's index in the graph.
        command: the launch in the array, an `fl_command *`.
    """

    source = None

    def __init__(self, draw: Draw, node: int, command: Any) -> None:
        self.draw, self.node = draw, node
        self.numbers = tuple(make_number() for _ in range(_WORDS))
        self.number = self.numbers[0]
        for index, word in enumerate(draw.counter):
            cell = lib.fl_new_cell(
                self.numbers[index], AS_IT_IS, _WORD.size, ffi.new("int32_t *", word)
            )
            if not cell:
                raise MemoryError("no memory for a random number's counter")
            code = lib.fl_put_cell(command, draw.first + index, cell)
            lib.fl_release_cell(cell)
            check(code, "clSetKernelArg")


class RandomLaunch:
    """A launch that draws, in a command-buffer.

    Args:
        rows: those of its four words.
    """

    def __init__(self, placed: PlacedDraw, rows: Sequence[int], cells: Cells) -> None:
        self.node, self.count = placed.node, placed.draw.count
        self.generator = placed.draw.generator
        self.rows = [cells.rows[number] for number in rows]
        self._staging = [cells.get_staging(number) for number in rows]

    def stage(self) -> None:
        """Stage what the generator has counted to, and let it count on."""
        generator = self.generator
        first, second, third, fourth = counter = generator.counter
        for row, staging, word in zip(self.rows, self._staging, counter, strict=True):
            _WORD.pack_into(staging, 0, word)
            row.pending = 1
        counter[:] = _count_on((first, second, third, fourth), self.count, generator.counter_max)


class _DrawingGenerator:
    """A generator, and the launches that draw from it, in their order."""

    def __init__(self, launches: Sequence[RandomLaunch]) -> None:
        self._generator, self._launches = launches[0].generator, launches
        self._before: _Counter = (0, 0, 0, 0)
        self._kept: list[np.ndarray] = []

    def save(self) -> None:
        """Note what it has counted to."""
        first, second, third, fourth = self._generator.counter
        self._before = first, second, third, fourth

    def end(self, ran: int) -> None:
        """Let it have counted for so many replays since `save`, and take the words away."""
        for launch in self._launches:
            for row in launch.rows:
                row.series = ffi.NULL
        self._kept = []
        self._generator.counter[:] = self._find_after(ran)

    def _find_after(self, ran: int) -> _Counter:
        counter, top = self._before, self._generator.counter_max
        if ran:  # from the first replay on it makes no difference how many steps are one
            for launch in self._launches:
                counter = _count_on(counter, launch.count, top)
            counter = _count_on(counter, (ran - 1) * sum(one.count for one in self._launches), top)
        return counter

    def advance(self, done: int, times: int) -> None:
        """Give each launch the words of so many replays, after `done` others."""
        counter, top = self._find_after(done), self._generator.counter_max
        begins = [counter]
        for launch in self._launches:
            begins.append(_count_on(begins[-1], launch.count, top))
        first, second, third, fourth = begins[-1]
        total = sum(one.count for one in self._launches)
        reached = first + np.arange(times - 1, dtype=np.int64) * total
        kept = []
        for launch, begin in zip(self._launches, begins, strict=False):
            words = np.empty((_WORDS, times), np.int32)
            words[:, 0] = begin
            carry, words[0, 1:] = np.divmod(reached, top)
            more, below = np.divmod(second + carry, top)
            words[1, 1:] = np.where(carry, below, second)
            words[2, 1:] = third + np.where(carry, more, 0)
            words[3, 1:] = fourth
            for row, series in zip(launch.rows, words, strict=True):
                row.series = ffi.cast("void *", series.ctypes.data)
            kept.append(words)
            reached = reached + launch.count
        self._kept = kept


class Draws:
    """The launches of a command-buffer that draw random numbers.

    Args:
        placed: the launches, and the rows of each one's words.

    Attributes:
        launches: in the order of recording. Each can `stage` its next words.
        rows: the numbers of the rows of all words.
    """

    def __init__(self, placed: Iterable[tuple[PlacedDraw, Sequence[int]]], cells: Cells) -> None:
        by_node = sorted(placed, key=lambda one: one[0].node)
        self.rows = [number for _, rows in by_node for number in rows]
        self.launches = [RandomLaunch(one, rows, cells) for one, rows in by_node]
        by_generator: dict[int, list[RandomLaunch]] = {}
        for launch in self.launches:
            by_generator.setdefault(id(launch.generator), []).append(launch)
        self._generators = [_DrawingGenerator(launches) for launches in by_generator.values()]

    def begin(self, turn: int) -> None:
        """Begin a series of replays."""
        for one in self._generators:
            one.save()

    def stage(self) -> None:
        """Stage the words of one replay. `end` says whether there was one."""
        self.begin(0)
        for launch in self.launches:
            launch.stage()

    def advance(self, done: int, times: int) -> None:
        """Give the next `times` replays their words, after `done` others."""
        for one in self._generators:
            one.advance(done, times)

    def end(self, ran: int) -> None:
        """Let the generators have counted for the replays that there were since `begin`."""
        for one in self._generators:
            one.end(ran)


def place_draws(
    commands: Mapping[int, Any], nodes: Sequence[int], array: Any
) -> dict[int, PlacedDraw]:
    """Let launches in an array draw new numbers in each replay.

    Args:
        commands: the captured commands (commands.Captured) by place in the array.
        nodes: the indices in the graph, by place.
        array: the commands, an `fl_command *`.

    Returns:
        What draws, by the numbers of its words.
    """
    found: dict[int, PlacedDraw] = {}
    for place, command in commands.items():
        draw = command.block.draws.get(command.index)
        if draw is not None and draw.is_in(array + place):
            placed = PlacedDraw(draw, nodes[place], array + place)
            found |= dict.fromkeys(placed.numbers, placed)
    return found
