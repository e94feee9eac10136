"""Transfers and fills of Unified Runtime, as commands of the table of operations.

Queues (transfers.py) and command-buffers (command_buffer/appends.py) append them: the line `ze` of
an operation is the function. A pattern that the driver does not fill with is repeated in host
memory and copied.
"""

from __future__ import annotations

import ctypes
from typing import Any, Final, NamedTuple

from ...loader.base.operations import TransferCommand
from ...loader.ze.abi import ZE
from ..sdk.conversions import failure
from ..sdk.rectangles import Rect, check_pitches, check_range, check_rect, read_offset, read_region
from ..sdk.rules import is_power_of_two
from .devices import LZDevice
from .memory import LZBuffer

_Region: Final = ZE.get_struct("ze_copy_region_t")
_LARGEST: Final = 0xFFFFFFFF


def copy(target: int, source: int, size: int, keep: Any = ()) -> TransferCommand:
    """Return the copy of so many bytes."""
    return TransferCommand("svm_copy", {"target": target, "source": source, "size": size}, keep)


def transfer(buffer: LZBuffer, offset: int, size: int, host: int, reads: bool) -> TransferCommand:
    """Return the copy between a buffer and host memory.

    Args:
        buffer: the buffer.
        offset: the first byte of it.
        size: how many bytes.
        host: the host memory.
        reads: whether the buffer is read.

    Raises:
        URError: INVALID_SIZE.
    """
    check_range(buffer.size, offset, size)
    place = buffer.address + offset
    return copy(host, place, size, buffer) if reads else copy(place, host, size, buffer)


def copy_buffers(
    source: LZBuffer, target: LZBuffer, source_offset: int, target_offset: int, size: int
) -> TransferCommand:
    """Return the copy between buffers. Raises URError (INVALID_SIZE)."""
    check_range(source.size, source_offset, size)
    check_range(target.size, target_offset, size)
    places = target.address + target_offset, source.address + source_offset
    return copy(*places, size, (source, target))


class Box(NamedTuple):
    """A rectangle of memory.

    Attributes:
        address: where its memory begins.
        origin: the first byte, row and slice.
        row: bytes from a row to the next.
        slice: bytes from a slice to the next.
    """

    address: int
    origin: Rect
    row: int
    slice: int

    def make_region(self, size: Rect) -> Any:
        """Return it as Level Zero takes it."""
        return _Region(*self.origin, *size)


def _make_box(place: LZBuffer | int, origin: Any, size: Rect, row: int, slice_: int) -> Box:
    """Return a rectangle of a buffer or of host memory. Raises URError (INVALID_SIZE)."""
    start = read_offset(origin)
    if isinstance(place, LZBuffer):
        pitches = check_rect(place.size, start, size, row, slice_)
        return Box(place.address, start, *pitches)
    return Box(place, start, *check_pitches(size, row, slice_))


def copy_rect(
    source: LZBuffer | int,
    target: LZBuffer | int,
    source_origin: Any,
    target_origin: Any,
    region: Any,
    *pitches: int,
) -> TransferCommand:
    """Return the copy of a rectangle.

    Args:
        source: a buffer, or the address of host memory.
        target: the same.
        source_origin: a ur_rect_offset_t.
        target_origin: the same.
        region: a ur_rect_region_t.
        pitches: the row and the slice pitch of the source, then of the target. 0: no gap.

    Raises:
        URError: INVALID_SIZE.
    """
    size = read_region(region)
    start = _make_box(source, source_origin, size, *pitches[:2])
    to = _make_box(target, target_origin, size, *pitches[2:])
    return copy_boxes(start, to, size, (source, target))


def copy_boxes(source: Box, target: Box, size: Rect, keep: Any = ()) -> TransferCommand:
    """Return the copy of a rectangle. Raises URError (INVALID_SIZE) if it is too large."""
    if max(*source.origin, *target.origin, *size, source.row, target.row) > _LARGEST:
        raise failure("INVALID_SIZE", "Level Zero copies rectangles of less than 4 GiB a side")
    regions = target.make_region(size), source.make_region(size)
    operands = {
        "target": target.address,
        "target_region": ctypes.byref(regions[0]),
        "target_row_pitch": target.row,
        "target_slice_pitch": target.slice,
        "source": source.address,
        "source_region": ctypes.byref(regions[1]),
        "source_row_pitch": source.row,
        "source_slice_pitch": source.slice,
    }
    return TransferCommand("copy_rect", operands, (keep, regions))


def fill(
    device: LZDevice, address: int, pattern: bytes, size: int, keep: Any = ()
) -> TransferCommand:
    """Return the fill of so many bytes, a multiple of the pattern's size."""
    if len(pattern) <= device.compute_group.largest_pattern and is_power_of_two(len(pattern)):
        block = ctypes.create_string_buffer(pattern, len(pattern))
        filled = {"pattern": ctypes.addressof(block), "pattern_size": len(pattern)}
        operands = {"target": address, **filled, "size": size}
        return TransferCommand("svm_fill", operands, (keep, block))
    block = ctypes.create_string_buffer(pattern * (size // len(pattern)), size)
    return copy(address, ctypes.addressof(block), size, (keep, block))
