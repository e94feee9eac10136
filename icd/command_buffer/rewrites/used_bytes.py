"""The bytes that a launch uses, and whether one kernel may use those of two launches."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from ...kernel_source.reading import LaunchValues, Own
from .arguments import GivenArgument, NotFused
from .kernels import KernelRead, find_kinds
from .uses import ListSnapshot, PackedArguments, Root, look_up

#: The first byte of item 0, the bytes from an item to the next, and those that an item uses.
ItemPlace = tuple[int, int, int]


class UsedBytes(NamedTuple):
    """Bytes that a launch uses.

    Attributes:
        handle: the memory object that the launch has; of a Parameter, the address of its cell.
        root: the memory object that has the bytes: the parent of a sub-buffer.
        first: the first byte of it that item 0 uses.
        end: the byte behind the last one that any item may use.
        stride: bytes from an item's to the next one's; 0: each item may use any of them.
        width: how many bytes an item uses.
        reads, writes: what it does.
        argument: the kernel's name for the memory.
        reason: why an item may use any bytes of it, "" if it has its own.
        offset: of the first byte from where the argument points to.
        fits: whether the bytes of all items lie in the memory object. A kernel whose range is
            rounded up tests its number, and does not use the others.
        kind: the type of the elements, "" if it is not known.
    """

    handle: int
    root: int
    first: int
    end: int
    stride: int
    width: int
    reads: bool
    writes: bool
    argument: str
    reason: str
    offset: int = 0
    fits: bool = False
    kind: str = ""

    def is_like(self, other: UsedBytes) -> bool:
        """Return whether both have elements of one type.

        A compiler may take memory of two types for two pieces of memory, and order accesses anew.
        """
        return bool(self.kind) and self.kind == other.kind

    def meets(self, other: UsedBytes) -> bool:
        """Return whether one of them writes what the other one uses."""
        if self.root != other.root or not (self.writes or other.writes):
            return False
        return self.end > other.first and other.end > self.first

    def allows(self, other: UsedBytes) -> bool:
        """Return whether both may be used by one kernel: no item meets what another one wrote."""
        if not self.meets(other):
            return True
        same = (self.first, self.stride, self.width) == (other.first, other.stride, other.width)
        return same and self.stride >= self.width > 0


def list_memory(
    snapshot: ListSnapshot,
    kernel: KernelRead,
    arguments: Sequence[GivenArgument],
    turn: int,
    places: Mapping[str, ItemPlace | None],
    items: int,
) -> list[UsedBytes]:
    """Return what a launch uses. Raises NotFused."""
    found: list[UsedBytes] = []
    for name, argument in kernel.access.arguments.items():
        turns, address = arguments[argument.parameter.index]
        handle = turns[turn % len(turns)]
        if not isinstance(handle, int):
            raise NotFused(f"its argument {name} is no buffer")
        root, start, size, _ = find_root(handle, snapshot.roots)
        key, place = address or handle, places[name]
        does = argument.reads, argument.writes, name
        if place is None:
            why = argument.reason
            text = f"{why.text} (line {why.line})" if why else "its items overlap, or are not known"
            found.append(UsedBytes(key, root, start, start + size, 0, 0, *does, text))
        elif argument.reads or argument.writes:
            offset, stride, width = place
            first, end = start + offset, start + offset + stride * (items - 1) + width
            kind = find_kinds(kernel.access).get(name, "")
            own = stride, width, *does, "", offset, end <= start + size, kind
            found.append(UsedBytes(key, root, first, end, *own))
    return found


def find_places(kernel: KernelRead, values: LaunchValues) -> dict[str, ItemPlace | None]:
    """Return where the items' bytes of each memory argument are; None if an item may use any."""
    return {name: _find_items(one.own, values) for name, one in kernel.access.arguments.items()}


def _find_items(own: Own | None, values: LaunchValues) -> ItemPlace | None:
    if own is None or not own.holds(values):
        return None
    varying, fixed = own.offset.split()
    first = values.value(fixed)
    if not own.width:
        return 0, 0, 0
    # items are numbered row by row: each row is as long as the range, in every piece of memory
    strides, alone = set[int](), 0
    for one in sorted(filter(lambda one: one.varies, varying.symbols), key=str, reverse=True):
        dimension = int(one.name) if one.kind == "id" else 0
        before = math.prod(values.global_size[:dimension])
        factor = own.offset.coefficient(one)
        step = factor and values.value(factor)
        if step is None:
            return None
        if one.kind == "id" and values.global_size[dimension] == 1:
            alone = step  # where no dimension has a second item
        elif step % before:
            return None
        else:
            strides.add(step // before)
    stride = strides.pop() if strides else alone
    if strides or first is None or stride < own.width or first < 0:
        return None
    return first, stride, own.width


def find_root(memory: int, known: dict[int, Root | None]) -> Root:
    """Return where the bytes of a memory object are: see `look_up`. Raises NotFused."""
    found = look_up(memory, known)
    if found is None:  # a guess could be wrong: "no parent" of a sub-buffer
        raise NotFused("the driver does not tell where memory of it is")
    return found


class MemoryNames:
    """Numbers for memory objects, in the order in which they are met.

    What differs by its memory only has the same numbers, so it is read once. They stand for handles
    from then on.

    Args:
        snapshot: has the roots of the numbers, too. With Parameters handles stay as they are:
            flow.py tells by them which memory changes.

    Attributes:
        numbers: by handle, parents before their parts.
    """

    def __init__(self, snapshot: ListSnapshot) -> None:
        self._snapshot, self.numbers = snapshot, dict[int, int]()

    def number(self, memory: int) -> int:
        """Return the number of a memory object (a handle). Raises NotFused."""
        found = self.numbers.get(memory)
        if found is None:
            found = self.numbers[memory] = self._make_number(memory)
        return found

    def _make_number(self, memory: int) -> int:
        snapshot = self._snapshot
        root, start, size, is_of_host = find_root(memory, snapshot.roots)
        if snapshot.cells:
            return memory
        parent = self.number(root) if root != memory else 0
        key = len(self.numbers), parent, start, size, is_of_host
        made = snapshot.names.get(key)
        if made is None:
            made = snapshot.names[key] = len(snapshot.names) + 1
            snapshot.roots[made] = Root(parent or made, start, size, is_of_host)
        return made

    def rename(self, packed: PackedArguments) -> PackedArguments:
        """Return arguments with the numbers of their memory."""
        return PackedArguments(packed.data, tuple(map(self.number, packed.memory)))

    @property
    def handles(self) -> dict[int, int]:
        """The memory objects, by their numbers."""
        return {number: memory for memory, number in self.numbers.items()}
