"""Reads memory at addresses that may be invalid. The kernel does the access, so nothing crashes."""

from __future__ import annotations

import ctypes
import struct

from ._native import ffi, lib

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Final

POINTER_SIZE: Final = ctypes.sizeof(ctypes.c_void_p)
_CHUNK: Final = 256  # the most bytes that fl_safe_read reads at once


def read(address: int, size: int) -> bytes:
    """Return `size` bytes at an address, b"" if not all of them can be read.

    Args:
        address: any number.
        size: in bytes, at most 256.
    """
    into = ffi.new("char[]", size)
    done = lib.fl_safe_read(ffi.cast("void *", address), into, size)
    return ffi.buffer(into, size)[:] if done == size else b""


def is_readable(address: int, size: int) -> bool:
    """Return whether there is memory at the first and the last of `size` bytes.

    Args:
        address: any number.
        size: in bytes; 0 looks at one byte.
    """
    return bool(read(address, 1) and read(address + max(size, 1) - 1, 1))


def read_word(address: int) -> int | None:
    """Return the pointer at an address, None if it cannot be read."""
    return read_words(address, 1)[0]


def read_words(address: int, count: int) -> list[int | None]:
    """Return `count` pointers at an address, with None for each that cannot be read."""
    words: list[int | None] = []
    while len(words) < count:
        here = address + len(words) * POINTER_SIZE
        size = min(_CHUNK // POINTER_SIZE, count - len(words))
        data = read(here, size * POINTER_SIZE)
        if not data:  # memory ends in this chunk: continue word by word
            size, data = 1, read(here, POINTER_SIZE)
        words += struct.unpack(f"@{size}P", data) if data else (None,)
    return words


def read_text(address: int, limit: int = 64) -> bytes:
    """Return the C string at an address without its NUL, at most `limit` bytes of it."""
    found = b""
    while len(found) < limit:
        byte = read(address + len(found), 1)
        if byte in (b"", b"\0"):
            break
        found += byte
    return found
