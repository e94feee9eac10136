"""What a recorded launch does: its kernel's source, its arguments, and the memory that it uses.

`read_launch` answers with a `RecordedLaunch`, or raises `NotFused` with the reason. It asks the
driver and reads the kernel (icd/kernel_source/), and it changes nothing.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import chain
from typing import Any, Final, NamedTuple

from ..._native import ffi
from ...calls import get_address
from ...kernel_source.conditions import LaunchValues, Three
from ..commands import NAMES
from .arguments import (
    GivenArgument,
    NotFused,
    RecordedArgument,
    ask_once,
    name_argument,
    read_arguments,
)
from .isolation import why_not_isolated
from .kernels import KernelRead, find_kernel
from .overflow import find_overflow, list_twins
from .reductions import NUMBERS, Reduction, read_reduction
from .used_bytes import (
    ItemPlace,
    MemoryNames,
    UsedBytes,
    find_places,
    find_root,
    list_memory,
)
from .uses import ListSnapshot, PackedArguments

#: Shapes of the launches of a kernel that are remembered: it may have other numbers each time.
_MOST_SHAPES: Final = 8


@dataclass(frozen=True, eq=False)
class RecordedLaunch:
    """What can be a part of a fused launch. Commands that do the same have one.

    Attributes:
        kernel: what it launches.
        range: work-items in each dimension.
        items: how many items there are. Those of a grid are numbered row by row.
        arguments: in order.
        memory: what it uses, in each turn.
        is_transfer: whether it is a copy or a fill.
        may_overflow: whether its signed integers may not fit in their types (overflow.py).
        reduction: what becomes of the items' values, if it is one.
    """

    kernel: KernelRead
    range: Three
    items: int
    arguments: tuple[RecordedArgument, ...]
    memory: Sequence[Sequence[UsedBytes]]
    is_transfer: bool
    may_overflow: bool
    reduction: Reduction | None = None

    @cached_property
    def grid(self) -> Three | None:
        """The range, if items have several dimensions."""
        is_line = self.kernel.loop is not None or self.items in self.range
        return None if is_line else self.range

    def rename(self, names: Mapping[Any, int]) -> RecordedLaunch:
        """Return it with other numbers of its memory (`MemoryNames`)."""

        def give(one: Any) -> Any:
            return names.get(one, one)

        arguments = tuple(
            one._replace(turns=tuple(map(give, one.turns)), key=give(one.key))
            if isinstance(one.key, int)
            else one
            for one in self.arguments
        )
        memory = [
            [one._replace(handle=give(one.handle), root=give(one.root)) for one in turn]
            for turn in self.memory
        ]
        return replace(self, arguments=arguments, memory=memory)

    @cached_property
    def used(self) -> frozenset[int]:
        """The memory that it uses, and what has the bytes of it."""
        memory = list(chain(*self.memory))
        return frozenset(one.handle for one in memory) | {one.root for one in memory}

    @cached_property
    def twins(self) -> frozenset[str]:
        """The arguments of which a compiler must not see that they are the same as others."""
        return list_twins(self.memory) if self.may_overflow else frozenset()

    @property
    def result(self) -> Any:
        """The key of the argument that gets the sums of a reduction, else None."""
        return self.arguments[self.reduction.result].key if self.reduction else None

    def find_element(self, key: Any) -> str | None:
        """Return the type of an item's element of memory.

        "" if an item has none of its own, None if the launch has the memory but does not use it.
        """
        rows = {self.kernel.elements.get(name) for name in self._list_names(key)}
        kinds = {row[1] if row else "" for row in rows}
        places = {(one.first, one.stride, one.width) for one in self.memory[0] if one.handle == key}
        if not places and "" not in kinds:
            return None
        is_own = len(places) == 1 and next(iter(places))[1] > 0
        return kinds.pop() if is_own and len(kinds) == 1 else ""

    def writes_first(self, key: Any) -> bool:
        """Return whether each item writes its element of memory before it reads it."""
        names = self._list_names(key)
        return len(names) == 1 and self.kernel.access.arguments[names[0]].written_first

    def _list_names(self, key: Any) -> list[str]:
        pairs = zip(self.kernel.parameters, self.arguments, strict=True)
        return [one.name for one, value in pairs if value.key == key]


def read_launch(
    snapshot: ListSnapshot, number: int, names: MemoryNames, *, is_isolated: bool
) -> RecordedLaunch:
    """Return what a launch does. Launches are often alike: they are read once.

    Args:
        snapshot: the commands.
        names: takes its memory.
        is_isolated: whether its function is isolated from others' (isolation.py).

    Raises:
        NotFused: it is not known well enough.
    """
    row, packed = snapshot.commands.array[number], names.rename(snapshot.packed[number])
    range_ = row.work_dim, row.has_offset, row.has_local, bytes(ffi.buffer(row.n))
    key = row.op, get_address(row.kernel), *range_, packed
    return ask_once(snapshot.answers, key, lambda: _read(snapshot, row, packed, is_isolated))


def _read(
    snapshot: ListSnapshot, row: Any, packed: PackedArguments, is_isolated: bool
) -> RecordedLaunch:
    name = NAMES[row.op]
    if name != "kernel":
        raise NotFused(f"{name} is not fused")
    if row.has_offset and any(row.n[0 : row.work_dim]):
        raise NotFused("its range has an offset")
    if not is_isolated and (found := read_reduction(snapshot, row, packed)) is not None:
        made = make_launch(snapshot, found.kernel, packed, (found.items, 1, 1))
        return _end(snapshot, made, found)
    kernel = find_kernel(get_address(row.kernel), snapshot)
    if is_isolated and row.work_dim > 1:
        raise NotFused("its range has several dimensions")
    sizes: list[Any] = [(*row.n[at : at + row.work_dim], 1, 1)[:3] for at in (3, 6)]
    made = make_launch(snapshot, kernel, packed, sizes[0], sizes[1] if row.has_local else None)
    if is_isolated:
        if kernel.access.arguments.keys() - kernel.elements.keys():
            raise NotFused("it uses memory otherwise than by indices")
        if reason := why_not_isolated(kernel.access):
            raise NotFused(reason)
    return made


def make_launch(
    snapshot: ListSnapshot,
    kernel: KernelRead,
    packed: PackedArguments,
    range_: Three,
    local: Three | None = None,
    *,
    is_transfer: bool = False,
) -> RecordedLaunch:
    """Return what a kernel does with some arguments. Raises NotFused."""
    read, given, numbers = read_arguments(snapshot, packed), list[GivenArgument](), dict[str, int]()
    for one in kernel.parameters:
        if (row := read[one.index]) is None:
            raise NotFused(f"its argument {one.index} is neither a number nor a buffer")
        given.append(row)
        if isinstance(value := row[0][0], bytes):
            if one.type.kind not in ("integer", "float", "vector") or not one.type.name:
                raise NotFused(f"its argument {one.name} is a struct")
            if one.type.kind == "integer":
                numbers[one.name] = int.from_bytes(value, "little", signed=one.type.signed)
    changes, pairs = snapshot.commands.updatable, [*zip(kernel.parameters, given, strict=True)]
    stays = frozenset() if changes else {one.name for one, row in pairs if not row[1]}
    shape = _find_shape(snapshot, kernel, range_, local, numbers, stays)
    arguments = tuple(
        name_argument(one, row, one.name in shape.asked, changes) for one, row in pairs
    )
    if shape.may_overflow:
        arguments = _tell_apart(arguments)
    # the proofs depend on these values of the arguments alone
    known = tuple(row if one.is_proven else None for row, one in zip(given, arguments, strict=True))
    proven = kernel, range_, local, known
    try:
        memory = ask_once(
            snapshot.answers, proven, lambda: _find_memory(snapshot, kernel, shape, given)
        )
    except NotFused as refusal:
        raise NotFused(str(refusal), arguments) from None
    rest = memory, is_transfer, shape.may_overflow
    made = RecordedLaunch(kernel, range_, shape.items, arguments, *rest)
    # launches whose numbers may change are alike but for these
    return snapshot.answers.setdefault((proven, arguments, is_transfer), made) if changes else made


def _tell_apart(arguments: Sequence[RecordedArgument]) -> tuple[RecordedArgument, ...]:
    """Give each of several equal numbers a key of its own: a compiler must not see that they are
    equal."""
    keys = [one.key for one in arguments]
    before = [keys[:place].count(key) for place, key in enumerate(keys)]
    return tuple(
        one._replace(key=(one.key, count)) if count and isinstance(one.key, tuple) else one
        for one, count in zip(arguments, before, strict=True)
    )


def _find_memory(
    snapshot: ListSnapshot, kernel: KernelRead, shape: _Shape, given: Sequence[GivenArgument]
) -> Sequence[Sequence[UsedBytes]]:
    """Return the memory that a launch uses. Raises NotFused."""
    if shape.reason:
        raise NotFused(shape.reason)
    memory = [
        list_memory(snapshot, kernel, given, turn, shape.places, shape.items)
        for turn in range(snapshot.turns)
    ]
    # one work-item may have run the whole loop, item by item
    if kernel.loop is not None and not all(
        a.allows(b) for turn in memory for a in turn for b in turn
    ):
        raise NotFused("an item of its loop uses what others write")
    return memory


class _Shape(NamedTuple):
    """What follows from the range and the numbers of a launch.

    Attributes:
        items: how many there are.
        places: where the items' bytes of each memory argument are.
        reason: why that is not known, "" if it is.
        asked: the numbers that this depends on, by the names of the arguments.
        may_overflow: see `RecordedLaunch`.
    """

    items: int
    places: Mapping[str, ItemPlace | None]
    reason: str
    asked: Mapping[str, int | None]
    may_overflow: bool


def _find_shape(
    snapshot: ListSnapshot,
    kernel: KernelRead,
    range_: Three,
    local: Three | None,
    numbers: Mapping[str, int],
    stays: Set[str],
) -> _Shape:
    """Return what is proven of a launch.

    Args:
        stays: the arguments that do not change.
    """
    known = snapshot.answers.setdefault((kernel, range_, local), deque(maxlen=_MOST_SHAPES))
    for one in known:
        if all(numbers.get(name) == value for name, value in one.asked.items()):
            return one
    asked, items, reason = _Asked(numbers), math.prod(range_), ""
    values = LaunchValues(range_, local, arguments=asked)
    if kernel.loop is not None:
        if items != range_[0]:
            reason = "its range has several dimensions"
        behind = values.value(kernel.loop.behind)
        items = behind or 0
        if behind is None or values.value(kernel.loop.first) != 0:
            reason = "how many items its loop has is not known"
    if not reason and items <= 0:
        reason = "it has no items"
    places = {} if reason else find_places(kernel, values)
    # what changes is not asked for: each change would end the rewrite
    sure = _Asked({name: numbers[name] for name in numbers if name in stays | asked.names})
    values = LaunchValues(range_, local, arguments=sure)
    may_overflow, why = find_overflow(kernel.access, values)
    names = asked.names | (sure.names & sure.keys())
    told = {name: numbers.get(name) for name in names}
    shape = _Shape(items, places, reason or why, told, may_overflow)
    known.append(shape)
    return shape


def _end(snapshot: ListSnapshot, launch: RecordedLaunch, reduction: Reduction) -> RecordedLaunch:
    """Return the items of a reduction, which write no elements but sums: one for each group."""
    parameters = launch.kernel.parameters
    arguments = tuple(
        given._replace(is_proven=given.is_proven or one.name in NUMBERS)
        for one, given in zip(parameters, launch.arguments, strict=True)
    )
    memory: list[list[UsedBytes]] = []
    for turn in launch.memory:
        (out,) = (one for one in turn if one.argument == parameters[reduction.result].name)
        others = [one for one in turn if one is not out]
        if any(one.root == out.root for one in others):
            raise NotFused("it writes what it reads")
        end, why = find_root(out.root, snapshot.roots).size, "each group writes a sum"
        out = UsedBytes(out.handle, out.root, 0, end, 0, 0, False, True, out.argument, why)
        memory.append([*others, out])
    return replace(launch, arguments=arguments, memory=memory, reduction=reduction)


class _Asked(dict[str, int]):
    """The integers among arguments, and the names of those that were asked for."""

    def __init__(self, values: Mapping[str, int]) -> None:
        super().__init__(values)
        self.names = set[str]()

    def get(self, name: str, /) -> int | None:  # pyright: ignore
        self.names.add(name)
        return super().get(name)
