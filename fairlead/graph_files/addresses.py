"""Host memory and SVM: which allocation an address belongs to, and what the program calls it."""

from __future__ import annotations

import bisect
import ctypes
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..runtime.foreign_arrays import find_foreign_array
from ..runtime.usm import USM


@dataclass(frozen=True)
class AddressedMemory:
    """Memory with an address.

    Attributes:
        address, size: in bytes.
        kind: "host" or "svm".
        owner: the object that has it, None for a place that no known object has.
        name: what the program calls it, "" if that is unknown.
    """

    address: int
    size: int
    kind: str
    owner: Any = None
    name: str = ""

    def has(self, address: int, size: int = 1) -> bool:
        """Whether so many bytes from an address on are in it."""
        return self.address <= address and address + size <= self.address + self.size

    def copy_data(self) -> np.ndarray:
        """Return a copy of its bytes, which the host can read."""
        return np.frombuffer(ctypes.string_at(self.address, self.size), np.uint8)


def find_allocation(thing: Any, name: str = "") -> AddressedMemory | None:
    """Return the allocation that an object has: a NumPy array, SVM or USM; None for others."""
    if isinstance(thing, np.ndarray):
        if thing.nbytes and thing.flags.c_contiguous:
            return AddressedMemory(thing.ctypes.data, thing.nbytes, "host", thing, name)
        return None
    if isinstance(thing, USM):
        return AddressedMemory(thing.pointer, thing.nbytes, "svm", thing, name)
    try:
        if hasattr(type(thing), "__sycl_usm_array_interface__"):
            foreign = find_foreign_array(thing)
            if foreign is None or not foreign.is_contiguous:
                return None
            pointer, size = foreign.pointer, foreign.nbytes
        else:
            pointer, size = getattr(thing, "svm_ptr", None), getattr(thing, "size", 0)
    except Exception:  # a variable of the program that cannot even be looked at
        return None
    if isinstance(pointer, int) and isinstance(size, int) and size > 0:
        return AddressedMemory(pointer, size, "svm", thing, name)
    return None


class AddressBook:
    """The allocations that commands use.

    Args:
        names: objects of the program by name; other values are left out.
        held: objects that a recording holds.
        used: addresses and sizes of host memory that transfers use, whoever owns it.
    """

    def __init__(
        self, names: Mapping[str, Any], held: Iterable[Any], used: Iterable[tuple[int, int]]
    ) -> None:
        known = [find_allocation(thing, name) for name, thing in names.items()]
        known += map(find_allocation, held)
        found: dict[int, AddressedMemory] = {}
        for one in sorted(filter(None, known), key=lambda one: (-one.size, not one.name)):
            if not any(other.has(one.address, one.size) for other in found.values()):
                found[one.address] = one
        self._known = found
        self._places = _join_spans(
            (address, size) for address, size in used if self.find_owner(address, size) is None
        )

    def find_owner(self, address: int, size: int = 1) -> AddressedMemory | None:
        """Return the known allocation that has these bytes, None if there is none."""
        return next((one for one in self._known.values() if one.has(address, size)), None)

    def find(self, address: int, size: int = 1) -> AddressedMemory | None:
        """Return the allocation that has these bytes, or the host memory around them; else None."""
        owner = self.find_owner(address, size)
        if owner is not None:
            return owner
        at = bisect.bisect(self._places, (address, 1 << 64)) - 1
        if at >= 0:
            begin, end = self._places[at]
            if begin <= address and address + size <= end:
                return AddressedMemory(begin, end - begin, "host")
        return None


def _join_spans(used: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    """Spans that do not overlap, in order, as begin and end."""
    joined: list[tuple[int, int]] = []
    for address, size in sorted(used):
        if joined and address < joined[-1][1]:
            joined[-1] = joined[-1][0], max(joined[-1][1], address + size)
        else:
            joined.append((address, address + size))
    return joined
