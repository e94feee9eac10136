"""Sets environment variables in a block without disturbing threads that read the environment.

setenv moves and frees memory that a driver's thread may be reading, because getenv takes no lock.
So `add_variables` builds a new array and exchanges the C library's `environ` pointer. Arrays and
strings are never changed and never freed.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Final

from .forks import make_lock

_libc: Final = ctypes.CDLL(None)
# void *malloc(size_t)
_libc.malloc.argtypes, _libc.malloc.restype = [ctypes.c_size_t], ctypes.c_void_p
# char *strdup(const char *)
_libc.strdup.argtypes, _libc.strdup.restype = [ctypes.c_char_p], ctypes.c_void_p
_lock: Final = make_lock()  # one block at a time: the variables are the process's


@contextmanager
def add_variables(added: Mapping[str, str]) -> Iterator[None]:
    """Have getenv answer with these variables inside the block; `os.environ` does not change.

    A variable that another thread sets meanwhile by setenv keeps its value after the block.
    """
    if not added:
        yield
        return
    with _lock:
        environ: Any = ctypes.c_void_p.in_dll(_libc, "environ")
        before = environ.value
        new = [_copy_forever(f"{name}={value}") for name, value in added.items()]
        kept, replaced = _remove_variables(_list_strings(before), added)
        environ.value = ours = _make_array([*kept, *new])
        try:
            yield
        finally:
            if environ.value == ours:
                environ.value = before
            else:  # setenv has made a copy of our array
                rest, _ = _remove_variables(_list_strings(environ.value), new)
                environ.value = _make_array([*rest, *replaced])


def _list_strings(array: int | None) -> list[int]:
    """The addresses in an array that ends with NULL."""
    found: list[int] = []
    while array:
        address = ctypes.c_void_p.from_address(array + ctypes.sizeof(ctypes.c_void_p) * len(found))
        if not address.value:
            break
        found.append(address.value)
    return found


def _remove_variables(
    strings: Sequence[int], removed: Mapping[str, str] | Sequence[int]
) -> tuple[list[int], list[int]]:
    """The strings that are kept and those that are removed: by variable names, or by addresses."""

    def is_removed(address: int) -> bool:
        if not isinstance(removed, Mapping):
            return address in removed
        return os.fsdecode(ctypes.string_at(address)).partition("=")[0] in removed

    flags = [is_removed(address) for address in strings]
    pairs = list(zip(strings, flags, strict=True))
    return [a for a, flag in pairs if not flag], [a for a, flag in pairs if flag]


def _copy_forever(text: str) -> int:
    address = _libc.strdup(os.fsencode(text))
    if not address:
        raise MemoryError("no memory for an environment variable")
    return address


def _make_array(strings: Sequence[int]) -> int:
    """A new array of these addresses that ends with NULL."""
    words = (ctypes.c_void_p * (len(strings) + 1))(*strings, None)
    address = _libc.malloc(ctypes.sizeof(words))
    if not address:
        raise MemoryError("no memory for the environment")
    ctypes.memmove(address, words, ctypes.sizeof(words))
    return address
