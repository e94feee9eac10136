"""Reserved ranges of the address space, which are names for memory without an address."""

from __future__ import annotations

import ctypes
import mmap
from typing import Final

_libc: Final = ctypes.CDLL(None, use_errno=True)
# void *mmap(void *, size_t, int prot, int flags, int fd, off_t)
_libc.mmap.restype = ctypes.c_void_p
_libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, *[ctypes.c_int] * 3, ctypes.c_long]
# int munmap(void *, size_t)
_libc.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
_PROT_NONE: Final = 0
_FAILED: Final = ctypes.c_void_p(-1).value


def _count_room(size: int) -> int:
    """Return the bytes of whole pages, and of one more.

    So the end of an allocation is not the beginning of another.
    """
    return -(-size // mmap.PAGESIZE) * mmap.PAGESIZE + mmap.PAGESIZE


def reserve(size: int) -> int:
    """Reserve addresses that nobody else gets and nobody can touch. Return the first address.

    Args:
        size: bytes.

    Raises:
        MemoryError: the address space is full.
    """
    address = _libc.mmap(
        None, _count_room(size), _PROT_NONE, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS, -1, 0
    )
    if address is None or address == _FAILED:
        raise MemoryError(f"the address space has no {size} free bytes")
    return address


def release_range(address: int, size: int) -> None:
    """Release addresses that `reserve` returned for `size` bytes."""
    _libc.munmap(address, _count_room(size))
