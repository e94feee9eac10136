"""Ranges and rectangles of memory: what a ur_rect_offset_t and a ur_rect_region_t say, checked.

OpenCL and Level Zero leave some refusals to drivers. They are made here, with the codes that the
specification lists: INVALID_SIZE for everything that does not fit.
"""

from __future__ import annotations

from typing import Any

from .conversions import failure

Rect = tuple[int, int, int]


def check_range(room: int, offset: int, size: int) -> None:
    """Check that a range lies in a buffer.

    Args:
        room: the bytes of the buffer.
        size: how many bytes.

    Raises:
        URError: INVALID_SIZE if the range ends behind the buffer.
    """
    if offset + size > room:
        raise failure("INVALID_SIZE", f"bytes {offset} to {offset + size} of a buffer of {room}")


def read_offset(value: Any) -> Rect:
    """Return the three numbers of a ur_rect_offset_t."""
    return value.x, value.y, value.z


def read_region(value: Any) -> Rect:
    """Return the three numbers of a ur_rect_region_t."""
    return value.width, value.height, value.depth


def check_pitches(region: Rect, row: int, slice_: int) -> tuple[int, int]:
    """Check that a region fits into its pitches, and return the two pitches, with 0 replaced.

    Args:
        region: width in bytes, height in rows, depth in slices.
        row: the row pitch in bytes, 0 for the width.
        slice_: the slice pitch in bytes, 0 for the height times the row pitch.

    Raises:
        URError: INVALID_SIZE if the region does not fit.
    """
    row_bytes = row or region[0]
    if row_bytes < region[0]:
        raise failure("INVALID_SIZE", f"a row of {region[0]} bytes with a pitch of {row}")
    slice_bytes = slice_ or row_bytes * region[1]
    if slice_bytes < row_bytes * region[1] or slice_bytes % row_bytes:
        raise failure(
            "INVALID_SIZE",
            f"a slice of {region[1]} rows of {row_bytes} bytes with a pitch of {slice_}",
        )
    return row_bytes, slice_bytes


def check_rect(room: int, origin: Rect, region: Rect, row: int, slice_: int) -> tuple[int, int]:
    """Check that a rectangle lies in a buffer, and return what `check_pitches` returns.

    Args:
        room: the bytes of the buffer.
        origin: the first byte, row and slice.
        region: see `check_pitches`.
        row: see `check_pitches`.
        slice_: see `check_pitches`.

    Raises:
        URError: INVALID_SIZE if it does not.
    """
    row_bytes, slice_bytes = check_pitches(region, row, slice_)
    last = (origin[0] + region[0], origin[1] + region[1] - 1, origin[2] + region[2] - 1)
    if last[0] + last[1] * row_bytes + last[2] * slice_bytes > room:
        raise failure("INVALID_SIZE", f"the region ends behind the {room} bytes of the buffer")
    return row_bytes, slice_bytes
