"""The registry of PI functions that Python serves, and access to the memory of PI's callers.

These functions differ from Unified Runtime by more than names and types. They are in devices.py,
memory.py, programs.py and kernels.py. All others are lines of `pi_from_ur.map`.

A function takes the `Service` and the PI call's arguments as words, and returns a pi_result. It may
raise PIError and URError, from which the service makes a result.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterator
from typing import Any, Final

from .abi import PI
from .mapping import refuse

#: PI function to the Python function that serves it.
FUNCTIONS: Final[dict[str, Callable[..., int]]] = {}

UNSUPPORTED_FEATURE: Final = PI.codes["PI_ERROR_UNSUPPORTED_FEATURE"]


def serves(name: str) -> Callable[[Callable[..., int]], Callable[..., int]]:
    """Register the decorated function in `FUNCTIONS` under the name of a PI function."""

    def register(function: Callable[..., int]) -> Callable[..., int]:
        FUNCTIONS[name] = function
        return function

    return register


# Reading and writing the caller's memory


def read_words(address: int, count: int, size: int = 8) -> list[int]:
    """Return `count` words of `size` bytes (4 or 8) at an address, none if it is NULL."""
    kind = ctypes.c_uint64 if size == 8 else ctypes.c_uint32
    return list((kind * count).from_address(address)) if address and count else []


def write_word(address: int, value: int) -> None:
    """Write a 64-bit word unless the address is NULL."""
    if address:
        ctypes.c_uint64.from_address(address).value = value


def write_handles(found: list[int], num_entries: int, entries: int, count_ret: int) -> int:
    """Answer a list of handles, as the PI functions do that end in `num_entries, entries,
    count_ret`.
    """
    for index, handle in enumerate(found[:num_entries] if entries else ()):
        write_word(entries + 8 * index, handle)
    if count_ret:
        ctypes.c_uint32.from_address(count_ret).value = len(found)
    return 0


def read_list(address: int) -> Iterator[int]:
    """Yield the words of a list that ends with 0."""
    while address and (word := ctypes.c_uint64.from_address(address).value):
        yield word
        address += 8


def read_properties(address: int, group: str) -> dict[str, int]:
    """Return a list of names and values that ends with 0, as name of the constant to value.

    Raises:
        PIError: `group` does not contain a name of the list.
    """
    words = []
    while address and (name := ctypes.c_uint64.from_address(address).value):
        words.append((name, ctypes.c_uint64.from_address(address + 8).value))
        address += 16
    names = PI.groups[group]
    if any(name not in names for name, _ in words):
        raise refuse(
            "PI_ERROR_INVALID_PROPERTY",
            f"{[hex(name) for name, _ in words if name not in names]} are not of {group}.",
        )
    return {names[name]: value for name, value in words}


def make_c_string(address: int) -> Any:
    """Return a C string as ctypes passes it."""
    return ctypes.c_char_p(address or None)


def read_word(data: bytes) -> int:
    """Return the handle or number in the answer of a query."""
    return int.from_bytes(data[:8], "little")
