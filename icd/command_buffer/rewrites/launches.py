"""What a recorded launch does: its kernel's source, its arguments, and the memory that it uses.

`read_launch` answers with a `RecordedLaunch`, or raises `NotFused` with the reason. It asks the
driver and reads the kernel (icd/kernel_source/), and it changes nothing.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

from ...calls import get_address
from ...kernel_source.reading import LaunchValues
from .arguments import (
    ArgumentValue,
    NotFused,
    RecordedArgument,
    list_keys,
    name_argument,
    read_arguments,
)
from .kernels import KernelRead, find_kernel
from .reductions import NUMBERS, Reduction, read_reduction
from .used_bytes import ItemPlace, UsedBytes, find_places, find_root, list_memory
from .uses import ListSnapshot

#: Shapes of the launches of a kernel that are remembered: it may have other numbers each time.
_MOST_SHAPES: Final = 8


class RecordedLaunch(NamedTuple):
    """A launch that can be a part of a fused one.

    Attributes:
        number: of its command.
        kernel: what it launches.
        items: how many items there are.
        arguments: in order.
        keys: those of the arguments. What no other launch has gets one of its own.
        memory: what it uses, in each turn.
        list: the `fl_arguments *` that has the arguments.
        is_transfer: whether it is a copy or a fill.
        reduction: what becomes of the items' values, if it is one.
    """

    number: int
    kernel: KernelRead
    items: int
    arguments: Sequence[RecordedArgument]
    keys: Sequence[Any]
    memory: Sequence[Sequence[UsedBytes]]
    list: Any
    is_transfer: bool
    reduction: Reduction | None = None

    @property
    def result(self) -> Any:
        """The key of the argument that gets the sums of a reduction, else None."""
        return self.keys[self.reduction.result] if self.reduction else None

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


def read_launch(snapshot: ListSnapshot, number: int, *, reductions: bool = False) -> RecordedLaunch:
    """Return what a launch does.

    Args:
        snapshot: the commands.
        reductions: whether PyOpenCL's are read as launches over their elements.

    Raises:
        NotFused: it is not known well enough.
    """
    commands = snapshot.commands
    command = commands.array[number]
    if commands.name_operation(number) != "kernel":
        raise NotFused(f"{commands.name_operation(number)} is not fused")
    if command.has_offset and any(command.n[0 : command.work_dim]):
        raise NotFused("its range has an offset")
    if any(command.n[4 : 3 + command.work_dim][k] != 1 for k in range(command.work_dim - 1)):
        raise NotFused("its range has several dimensions")
    found = read_reduction(snapshot, number) if reductions else None
    if found is not None:
        made = make_launch(snapshot, number, found.kernel, command.arguments, found.items, None)
        return _end(snapshot, made, found)
    kernel = find_kernel(get_address(command.kernel), snapshot)
    local = (command.n[6], 1, 1) if command.has_local else None
    return make_launch(snapshot, number, kernel, command.arguments, command.n[3], local)


def make_launch(
    snapshot: ListSnapshot,
    number: int,
    kernel: KernelRead,
    listed: Any,
    size: int,
    local: tuple[int, int, int] | None,
) -> RecordedLaunch:
    packed, read = read_arguments(snapshot, listed)
    is_transfer = snapshot.commands.name_operation(number) != "kernel"
    key = kernel, size, local, packed
    like = snapshot.answers.get(key)
    if isinstance(like, NotFused):
        raise like.with_traceback(None)
    if like is not None:
        keys = list_keys(number, like.arguments)
        return like._replace(number=number, keys=keys, list=listed, is_transfer=is_transfer)
    given = list[tuple[Sequence[ArgumentValue], int]]()
    for one in kernel.parameters:
        if (row := read[one.index]) is None:
            raise NotFused(f"its argument {one.index} is neither a number nor a buffer")
        given.append(row)
    pairs = zip(kernel.parameters, given, strict=True)
    fixed = [(*turns, address) for one, (turns, address) in pairs if one.type.kind != "float"]
    like_but_floats = kernel, size, local, tuple(fixed)
    if (found := snapshot.answers.get(like_but_floats)) is None:
        found = _find_memory(snapshot, kernel, size, local, given)
        snapshot.answers[like_but_floats] = found
    shape, memory = found
    changes, asked = snapshot.commands.updatable, shape.asked
    arguments = [
        name_argument(one, turns, address, one.name in asked, changes)
        for one, (turns, address) in zip(kernel.parameters, given, strict=True)
    ]
    if shape.reason:
        refusal = snapshot.answers[key] = NotFused(shape.reason)
        refusal.arguments = arguments
        raise refusal
    what = kernel, shape.items, arguments, list_keys(number, arguments), memory
    made = RecordedLaunch(number, *what, listed, is_transfer)
    snapshot.answers[key] = made
    return made


def _find_memory(
    snapshot: ListSnapshot,
    kernel: KernelRead,
    size: int,
    local: tuple[int, int, int] | None,
    given: Sequence[tuple[Sequence[ArgumentValue], int]],
) -> tuple[_Shape, Sequence[Sequence[UsedBytes]]]:
    """Return what follows from a launch's range and integers, and the memory that it uses."""
    numbers = dict[str, int]()
    for one, (turns, _) in zip(kernel.parameters, given, strict=True):
        if isinstance(value := turns[0], bytes):
            if one.type.kind not in ("integer", "float", "vector") or not one.type.name:
                raise NotFused(f"its argument {one.name} is a struct")
            if one.type.kind == "integer":
                numbers[one.name] = int.from_bytes(value, "little", signed=one.type.signed)
    shape = _find_shape(snapshot, kernel, size, local, numbers)
    if shape.reason:
        return shape, []
    try:
        memory = [
            list_memory(snapshot, kernel, given, turn, shape.places, shape.items)
            for turn in range(snapshot.turns)
        ]
        # one work-item may have run the whole loop, item by item
        if kernel.loop is not None and not all(
            a.allows(b) for turn in memory for a in turn for b in turn
        ):
            raise NotFused("an item of its loop uses what others write")
    except NotFused as error:
        return shape._replace(reason=str(error)), []
    return shape, memory


class _Shape(NamedTuple):
    """What follows from the range and the numbers of a launch.

    Attributes:
        items: how many there are.
        places: where the items' bytes of each memory argument are.
        reason: why that is not known, "" if it is.
        asked: the numbers that this depends on, by the names of the arguments.
    """

    items: int
    places: Mapping[str, ItemPlace | None]
    reason: str
    asked: Mapping[str, int | None]


def _find_shape(
    snapshot: ListSnapshot,
    kernel: KernelRead,
    size: int,
    local: tuple[int, int, int] | None,
    numbers: Mapping[str, int],
) -> _Shape:
    known = snapshot.answers.setdefault((kernel, size, local), deque(maxlen=_MOST_SHAPES))
    for one in known:
        if all(numbers.get(name) == value for name, value in one.asked.items()):
            return one
    asked, items, reason = _Asked(numbers), size, ""
    values = LaunchValues((size, 1, 1), local, arguments=asked)
    if kernel.loop is not None:
        behind = values.value(kernel.loop.behind)
        items = behind or 0
        if behind is None or values.value(kernel.loop.first) != 0:
            reason = "how many items its loop has is not known"
    if not reason and items <= 0:
        reason = "it has no items"
    places = {} if reason else find_places(kernel, values)
    shape = _Shape(items, places, reason, {name: numbers.get(name) for name in asked.names})
    known.append(shape)
    return shape


def _end(snapshot: ListSnapshot, launch: RecordedLaunch, reduction: Reduction) -> RecordedLaunch:
    """Return the items of a reduction, which write no elements but sums: one for each group."""
    parameters = launch.kernel.parameters
    arguments = [
        given._replace(is_proven=given.is_proven or one.name in NUMBERS)
        for one, given in zip(parameters, launch.arguments, strict=True)
    ]
    memory: list[list[UsedBytes]] = []
    for turn in launch.memory:
        (out,) = (one for one in turn if one.argument == parameters[reduction.result].name)
        others = [one for one in turn if one is not out]
        if any(one.root == out.root for one in others):
            raise NotFused("it writes what it reads")
        end, why = find_root(out.root, snapshot.roots)[2], "each group writes a sum"
        out = UsedBytes(out.handle, out.root, 0, end, 0, 0, False, True, out.argument, why)
        memory.append([*others, out])
    return launch._replace(arguments=arguments, memory=memory, reduction=reduction)


class _Asked(Mapping[str, int]):
    """The integers among arguments, and the names of those that were asked for."""

    def __init__(self, values: Mapping[str, int]) -> None:
        self._values, self.names = values, set[str]()

    def __getitem__(self, name: str) -> int:
        self.names.add(name)
        return self._values[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)
