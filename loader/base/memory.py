"""Looks at memory that may not be there: an address that a driver or a program gave is read through the kernel, never directly."""

from __future__ import annotations

import ctypes
import struct
from typing import Final

from ._native import ffi, lib

POINTER_SIZE: Final = ctypes.sizeof(ctypes.c_void_p)
_CHUNK: Final = 256  # what one safe read gives at most


def read(address: int, size: int) -> bytes:
    """`size` bytes (256 at most) at an address that may lead nowhere; b"" if they cannot all be read."""
    into = ffi.new("char[]", size)
    done = lib.fl_safe_read(ffi.cast("void *", address), into, size)
    return ffi.buffer(into, size)[:] if done == size else b""


def read_word(address: int) -> int | None:
    """The pointer at an address, None if it cannot be read."""
    return read_words(address, 1)[0]


def read_words(address: int, count: int) -> list[int | None]:
    """`count` pointers at an address; None for each that cannot be read."""
    words: list[int | None] = []
    while len(words) < count:
        here, size = (
            address + len(words) * POINTER_SIZE,
            min(_CHUNK // POINTER_SIZE, count - len(words)),
        )
        data = read(here, size * POINTER_SIZE)
        if not data:  # memory ends somewhere in this chunk: go on word by word
            size, data = 1, read(here, POINTER_SIZE)
        words += struct.unpack(f"@{size}P", data) if data else (None,)
    return words


def read_text(address: int, limit: int = 64) -> bytes:
    """The C string at an address that may lead nowhere, at most `limit` bytes of it."""
    found = b""
    while len(found) < limit:
        byte = read(address + len(found), 1)
        if byte in (b"", b"\0"):
            break
        found += byte
    return found
