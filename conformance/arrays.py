"""The C arrays that the cases of all interfaces pass.

An empty array has room for one element, so that its address is valid.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterable
from typing import Any, Final

#: The last arguments of an enqueue without a wait list and an event.
NO_EVENTS: Final = (0, None, None)


def handles(*values: int) -> Any:
    """Return an array of handles."""
    return (ctypes.c_void_p * max(len(values), 1))(*values)


def sizes(*values: int) -> Any:
    """Return an array of size_t."""
    return (ctypes.c_size_t * max(len(values), 1))(*values)


def ints(values: Iterable[int]) -> Any:
    """Return an array of int32."""
    found = list(values)
    return (ctypes.c_int32 * len(found))(*found)
