"""Ranges of the address space that are nobody's memory: names for what has no address of its own."""

from __future__ import annotations

import ctypes
import mmap
from typing import Final

_libc: Final = ctypes.CDLL(None, use_errno=True)
_libc.mmap.restype = ctypes.c_void_p
_libc.mmap.argtypes = [
    ctypes.c_void_p,
    ctypes.c_size_t,
    ctypes.c_int,
    ctypes.c_int,
    ctypes.c_int,
    ctypes.c_long,
]
_libc.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
_PROT_NONE: Final = 0
_FAILED: Final = ctypes.c_void_p(-1).value


def _room(size: int) -> int:
    """Whole pages, and one more, so that the end of an allocation is not the beginning of another."""
    return (size + mmap.PAGESIZE - 1) // mmap.PAGESIZE * mmap.PAGESIZE + mmap.PAGESIZE


def reserve(size: int) -> int:
    """Addresses that nothing else has and that cannot be touched. Raises MemoryError."""
    address = _libc.mmap(
        None, _room(size), _PROT_NONE, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS, -1, 0
    )
    if address is None or address == _FAILED:
        raise MemoryError(f"no {size} bytes of the address space are free")
    return address


def release_range(address: int, size: int) -> None:
    """Give reserved addresses back."""
    _libc.munmap(address, _room(size))
