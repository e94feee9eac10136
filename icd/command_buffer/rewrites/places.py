"""Where an item's element of memory is, and whether a variable can stand for it."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence, Set
from dataclasses import dataclass
from itertools import chain
from typing import Final

from .launches import RecordedLaunch
from .opaque import measure_kind

ITEM: Final = "fl_item"
#: Its ids, where items have several dimensions.
IDS: Final = ("fl_x", "fl_y", "fl_z")
#: The first item of a vector (vectors.py).
FIRST: Final = "fl_first"


@dataclass(frozen=True)
class ElementPlace:
    """Where an item's element of memory is: the same in all launches that use it.

    Attributes:
        offset: of item 0's, from where the argument points to, in bytes.
        stride: bytes from an element to the next one.
        is_loaded: whether a launch may read it before any has written it.
        is_stored: whether a launch writes it.
        fits: whether a variable can stand for it.
        users: how many launches use it.
    """

    kind: str
    offset: int
    stride: int
    is_loaded: bool
    is_stored: bool
    fits: bool
    users: int

    def write(self, pointer: str, lanes: int = 1) -> str:
        """Return how the element is written, or the vector of some that begins with it."""
        kind, item = (f"{self.kind}{lanes}", FIRST) if lanes > 1 else (self.kind, ITEM)
        return write_element(pointer, kind, self.offset, self.stride, item)


def write_element(pointer: str, kind: str, offset: int, stride: int, item: str = ITEM) -> str:
    """Return how an item's element is written."""
    return f"*(global {kind} *)({pointer} + {offset}UL + {stride}UL * {item})"


def find_place(launches: Sequence[RecordedLaunch], key: int) -> ElementPlace | None:
    """Return where an item's element of memory is; None if an item may use others, too."""
    having = [one for one in launches if any(given.key == key for given in one.arguments)]
    using = [one for one in having if any(used.handle == key for used in one.memory[0])]
    memory = [one for launch in using for one in chain(*launch.memory) if one.handle == key]
    # a variable would show a compiler that two arguments are the same
    if any(
        one.handle == key and one.argument in each.twins for each in using for one in each.memory[0]
    ):
        return None
    places = {(one.offset, one.stride, one.width) for one in memory}
    kinds = {kind for one in having if (kind := one.find_element(key)) is not None}
    if len(places) != 1 or len(kinds) != 1 or not (kind := kinds.pop()):
        return None
    ((offset, stride, width),) = places
    fits = measure_kind(kind) == width and all(one.fits for one in memory)
    is_loaded, is_stored = not using[0].writes_first(key), any(one.writes for one in memory)
    return ElementPlace(kind, offset, stride, is_loaded, is_stored, fits, len(using))


def find_own(
    names: Mapping[int, int], commands: Collection[int], users: Mapping[int, Collection[int]]
) -> frozenset[int]:
    """Return the memory that only some commands access.

    Args:
        names: of memory objects, by handle.
        users: the commands that access memory objects that nobody else can see, by handle.
    """
    run = set(commands)
    return frozenset(
        name for handle, name in names.items() if handle in users and run.issuperset(users[handle])
    )


def find_temporaries(launches: Sequence[RecordedLaunch], own: Set[int]) -> dict[int, str]:
    """Return the memory objects that a variable can stand for, and its type, by their handles.

    Args:
        own: those that nothing else accesses.
    """
    memory = [one for launch in launches for one in launch.memory[0]]
    # the bytes of a sub-buffer can be seen through its parent
    parts = {one.handle for one in memory if one.handle != one.root}
    keys = dict.fromkeys(one.handle for one in memory if one.handle in own - parts)
    places = ((key, find_place(launches, key)) for key in keys)
    return {key: one.kind for key, one in places if one is not None and not one.is_loaded}
