"""The C arrays that cases of all interfaces hand over. An empty one has room for one element: its address is good all the same."""

from __future__ import annotations

import ctypes
from collections.abc import Iterable
from typing import Any


def handles(*values: int) -> Any:
    """An array of handles."""
    return (ctypes.c_void_p * max(len(values), 1))(*values)


def sizes(*values: int) -> Any:
    """An array of size_t."""
    return (ctypes.c_size_t * max(len(values), 1))(*values)


def ints(values: Iterable[int]) -> Any:
    """An array of int32."""
    found = list(values)
    return (ctypes.c_int32 * len(found))(*found)
