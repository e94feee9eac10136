"""What transfers and fills are to CUDA: parameters that a stream and a graph's node share.

A copy is a CUDA_MEMCPY3D. A fill is one CUDA_MEMSET_NODE_PARAMS, or one for each column of a longer
pattern. CUDA sets elements of 1, 2 or 4 bytes.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, NamedTuple

from ..sdk.rectangles import Rect
from .core import CUDA

Copy: Any = CUDA.struct("CUDA_MEMCPY3D")
Fill: Any = CUDA.struct("CUDA_MEMSET_NODE_PARAMS")

_HOST: Final = CUDA["CU_MEMORYTYPE_HOST"]
_DEVICE: Final = CUDA["CU_MEMORYTYPE_DEVICE"]


class CopyPlace(NamedTuple):
    """One end of a copy.

    Attributes:
        address: where the memory begins.
        on_device: whether it is the device's memory or managed.
        origin: the first byte in a row, the first row, and the first slice.
        row: bytes from a row to the next, 0 for the copy's width.
        slice: bytes from a slice to the next, 0 for the copy's rows.
    """

    address: int
    on_device: bool
    origin: Rect = (0, 0, 0)
    row: int = 0
    slice: int = 0


def copy_of(target: CopyPlace, source: CopyPlace, region: Rect) -> Any:
    """Return the parameters of a copy.

    Args:
        target: where to.
        source: where from.
        region: the width in bytes, the rows, the slices.
    """
    made = Copy()
    for prefix, place in (("src", source), ("dst", target)):
        row = place.row or region[0]
        slice_ = place.slice or row * region[1]
        x, y, z = place.origin
        start = place.address + x + y * row + z * slice_
        setattr(made, f"{prefix}MemoryType", _DEVICE if place.on_device else _HOST)
        setattr(made, f"{prefix}{'Device' if place.on_device else 'Host'}", start)
        if region[1:] != (1, 1):  # a single row may be longer than any pitch
            setattr(made, f"{prefix}Pitch", row)
            setattr(made, f"{prefix}Height", slice_ // row)
    made.WidthInBytes, made.Height, made.Depth = region
    return made


#: A pattern of more bytes than this is not set in columns. It is written.
_WIDEST: Final = 128


def _shortest(pattern: bytes) -> bytes:
    """Return the shortest pattern that gives the same bytes."""
    for size in (1, 2, 4):
        if size < len(pattern) and pattern == pattern[:size] * (len(pattern) // size):
            return pattern[:size]
    return pattern


def fills_of(address: int, pattern: bytes, size: int) -> Sequence[Any] | None:
    """Return the parameters of the sets that fill bytes, in any order.

    Args:
        address: the first byte.
        pattern: a pattern of any size.
        size: how many bytes, a multiple of the pattern's size.

    Returns:
        The parameters; None if the pattern has to be written instead.
    """
    if len(pattern) * (size // len(pattern)) == size:
        pattern = _shortest(pattern)
    if size % len(pattern) or len(pattern) > _WIDEST:
        return None
    length = len(pattern)
    element = next(one for one in (4, 2, 1) if not (length % one or address % one))
    if length == element:
        return [_set(address, 0, pattern, size // length, 1)]
    count = size // length
    return [
        _set(address + at, length, pattern[at : at + element], 1, count)
        for at in range(0, length, element)
    ]


def fill_rows(address: int, pitch: int, pattern: bytes, width: int, height: int) -> Any | None:
    """Return the parameters of the set that fills rows, None if there is no such set."""
    pattern = _shortest(pattern)
    length = len(pattern)
    if length not in (1, 2, 4) or width % length or address % length or pitch % length:
        return None
    return _set(address, pitch, pattern, width // length, height)


def _set(address: int, pitch: int, pattern: bytes, width: int, height: int) -> Any:
    value = int.from_bytes(pattern, "little")
    return Fill(address, pitch, value, len(pattern), width, height)
