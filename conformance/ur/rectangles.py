"""Rectangles in buffers: boxes of bytes, rows and slices."""

from __future__ import annotations

from typing import Any

from fairlead.loader.ur.abi import UR


def make_offset(x: int = 0, y: int = 0, z: int = 0) -> Any:
    """Return the place of a box: bytes, rows, slices."""
    return UR.get_struct("ur_rect_offset_t")(x, y, z)


def make_region(width: int, height: int, depth: int) -> Any:
    """Return the size of a box: bytes, rows, slices."""
    return UR.get_struct("ur_rect_region_t")(width, height, depth)


def is_in_box(index: int, low: tuple[int, int, int], size: tuple[int, int, int]) -> bool:
    """Return whether a number lies in a box. The buffer has rows of 4, and slices of 16 numbers."""
    place = index % 4, index // 4 % 4, index // 16
    return all(a <= p < a + n for p, a, n in zip(place, low, size, strict=True))
