"""CUDA and HIP: transfers and fills in a command-buffer, of buffers and of memory by address;
hints.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import Any

from ....loader.base.operations import TransferCommand
from ...sdk.gpu.api import CopyPlace
from ...sdk.transfers import Transfers
from ..allocations import locate
from ..core import API
from ..transfers import find_filled, make_place, make_sets
from .appends import Appended, CuAppend, appends


def _copy(append: CuAppend, command: str, copy: Any, keep: Any) -> Appended:
    """Append a copy (`API.make_copy`)."""
    buffer = append.buffer

    def build(after: Sequence[int]) -> int:
        context = API.list_node_context(buffer.device)
        return buffer.add_node("MemcpyNode", after, ctypes.byref(copy), *context)

    return append.add(command, build, keep)


def _fill(
    append: CuAppend, command: str, address: int, pattern: bytes, size: int, keep: Any
) -> Appended:
    """Append a fill. Its sets have no order."""
    sets, buffer = make_sets(address, pattern, size), append.buffer
    if sets is None:
        block = ctypes.create_string_buffer((pattern * (size // len(pattern) + 1))[:size], size)
        source = CopyPlace(ctypes.addressof(block), False)
        copy = API.make_copy(CopyPlace(address, True), source, (size, 1, 1))
        return _copy(append, command, copy, (keep, block))

    def build(after: Sequence[int]) -> int:
        context = API.list_node_context(buffer.device)
        given = [(ctypes.byref(API.make_set(one)), *context) for one in sets]
        nodes = [buffer.add_node("MemsetNode", after, *one) for one in given]
        return nodes[0] if len(nodes) == 1 else buffer.add_node("EmptyNode", nodes)

    return append.add(command, build, keep)


def _append(append: CuAppend, transfer: TransferCommand, command: str) -> Appended:
    """Append a transfer (sdk/transfers.py)."""
    operands, keep = transfer.operands, transfer.keep
    if "pattern" in operands:
        given = find_filled(transfer), operands["pattern"], operands["size"]
        return _fill(append, command, *given, keep)
    region = operands["region"] if "region" in operands else (operands["size"], 1, 1)
    ends = make_place(transfer, "target"), make_place(transfer, "source")
    return _copy(append, command, API.make_copy(*ends, region), keep)


Transfers(appends, locate, _append).declare_hints()
