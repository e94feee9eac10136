"""Fills as the driver runs them: one set (`GpuSet`), or one for each column of a longer pattern.

CUDA sets elements of 1, 2 or 4 bytes. HIP sets single bytes in rows.
"""

from __future__ import annotations

from collections.abc import Sequence

from ..sdk.gpu.api import GpuSet
from .core import API


def _shorten(pattern: bytes) -> bytes:
    """Return the shortest pattern that gives the same bytes."""
    for size in (1, 2, 4):
        if size < len(pattern) and pattern == pattern[:size] * (len(pattern) // size):
            return pattern[:size]
    return pattern


def make_sets(address: int, pattern: bytes, size: int) -> Sequence[GpuSet] | None:
    """Return the parameters of the sets that fill bytes, in any order.

    Args:
        size: how many bytes, a multiple of the pattern's size.

    Returns:
        The parameters; None if the pattern has to be written instead.
    """
    if len(pattern) * (size // len(pattern)) == size:
        pattern = _shorten(pattern)
    if size % len(pattern) or len(pattern) > API.widest_pattern:
        return None
    length = len(pattern)
    aligned = [one for one in (4, 2, 1) if not (length % one or address % one)]
    if length == aligned[0]:
        return [_set(address, 0, pattern, size // length, 1)]
    element = next(one for one in aligned if one <= API.widest_element)
    count = size // length
    return [
        _set(address + at, length, pattern[at : at + element], 1, count)
        for at in range(0, length, element)
    ]


def fill_rows(address: int, pitch: int, pattern: bytes, width: int, height: int) -> GpuSet | None:
    """Return the parameters of the set that fills rows, None if there is no such set."""
    pattern = _shorten(pattern)
    length = len(pattern)
    if (
        length not in (1, 2, 4)
        or length > API.widest_element
        or width % length
        or address % length
        or pitch % length
    ):
        return None
    return _set(address, pitch, pattern, width // length, height)


def _set(address: int, pitch: int, pattern: bytes, width: int, height: int) -> GpuSet:
    value = int.from_bytes(pattern, "little")
    return GpuSet(address, pitch, value, len(pattern), width, height)
