"""Transfers and fills of Unified Runtime, as commands of the table of operations.

Queues (transfers.py) and command-buffers (command_buffer/appends.py) append them: the line `ze` of
an operation is the function. A pattern that the driver does not fill with is repeated in host
memory and copied.
"""

from __future__ import annotations

import ctypes
from typing import Any, Final

from ...loader.base.operations import TransferCommand
from ...loader.ze.abi import ZE
from ..sdk.conversions import failure
from ..sdk.rectangles import Rect
from ..sdk.rules import is_power_of_two
from ..sdk.transfers import MemoryPlace, find_place
from .devices import LZDevice

_Region: Final = ZE.get_struct("ze_copy_region_t")
_LARGEST: Final = 0xFFFFFFFF


def copy(target: int, source: int, size: int, keep: Any = ()) -> TransferCommand:
    """Return the copy of so many bytes."""
    return TransferCommand("svm_copy", {"target": target, "source": source, "size": size}, keep)


def convert(device: LZDevice, transfer: TransferCommand) -> TransferCommand:
    """Return a transfer (sdk/transfers.py) as Level Zero's functions take it.

    Raises:
        URError: INVALID_SIZE for a rectangle that is too large.
    """
    operands, keep = transfer.operands, transfer.keep
    target = find_place(transfer, "target")
    if "pattern" in operands:
        return fill(device, target.address, operands["pattern"], operands["size"], keep)
    source = find_place(transfer, "source")
    if "region" in operands:
        return copy_rows(source, target, operands["region"], keep)
    return copy(target.address, source.address, operands["size"], keep)


def copy_rows(
    source: MemoryPlace, target: MemoryPlace, size: Rect, keep: Any = ()
) -> TransferCommand:
    """Return the copy of a rectangle. Raises URError (INVALID_SIZE) if it is too large."""
    if max(*source.origin, *target.origin, *size, source.row, target.row) > _LARGEST:
        raise failure("INVALID_SIZE", "Level Zero copies rectangles of less than 4 GiB a side")
    regions = _Region(*target.origin, *size), _Region(*source.origin, *size)
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
