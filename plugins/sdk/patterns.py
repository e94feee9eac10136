"""Patterns of fills, read from the caller's memory and checked."""

from __future__ import annotations

import ctypes

from .conversions import failure
from .rectangles import check_range
from .rules import is_power_of_two


def read_pattern(address: int, length: int, size: int) -> bytes:
    """Return the pattern of a fill. Raises URError (INVALID_SIZE) unless it fits the size."""
    if not length or not size or size % length:
        raise failure("INVALID_SIZE", f"{size} bytes with a pattern of {length}")
    return ctypes.string_at(address, length)


def read_row_pattern(address: int, length: int, pitch: int, width: int, height: int) -> bytes:
    """Return the pattern of a fill of rows. It continues from row to row.

    Args:
        length: its bytes.
        pitch: bytes from the beginning of a row to that of the next.
        width: bytes of a row.
        height: how many rows.

    Raises:
        URError: INVALID_SIZE.
    """
    if not pitch or pitch < width or not width or not height:
        raise failure("INVALID_SIZE", f"{height} rows of {width} bytes with a pitch of {pitch}")
    if not is_power_of_two(length) or width * height % length:
        raise failure(
            "INVALID_SIZE",
            f"a pattern of {length} bytes: its size has to be a power of two,"
            " of which the bytes to fill are a multiple",
        )
    return ctypes.string_at(address, length)


def read_buffer_pattern(address: int, length: int, room: int, offset: int, size: int) -> bytes:
    """Return the pattern of a fill of a buffer.

    Args:
        length: its bytes.
        room: the bytes of the buffer.
        offset: the first byte to fill.
        size: how many bytes are filled.

    Raises:
        URError: INVALID_SIZE.
    """
    if not size or not is_power_of_two(length) or size % length or offset % length:
        raise failure(
            "INVALID_SIZE",
            "a pattern's size is a power of two, of which offset and size are multiples",
        )
    check_range(room, offset, size)
    return ctypes.string_at(address, length)
