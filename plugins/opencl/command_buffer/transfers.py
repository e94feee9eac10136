"""OpenCL adapter: transfers and fills in a command-buffer, of buffers and of memory by address;
hints.
"""

from __future__ import annotations

from ....loader.base.operations import TransferCommand
from ...sdk.transfers import Location, Transfers
from ..transfers import is_opencl_pattern, name_memory
from ..usm.addresses import fill_location, find_allocation
from ..usm.strategies import require_strategy
from .appends import Append, Appended, appends


def _append(append: Append, transfer: TransferCommand, command: str) -> Appended:
    """Append a transfer (sdk/transfers.py)."""
    operands, context = name_memory(transfer), append.context
    target, op, keep = operands["target"], transfer.operation, append.buffer.commands.copy_pattern
    if "pattern" in operands:
        pattern, size = operands["pattern"], operands["size"]
        if isinstance(target, Location):
            transfer = fill_location(context, target, pattern, size, keep)
        elif is_opencl_pattern(len(pattern), operands["offset"]):
            operands["pattern"] = keep(pattern)
        else:
            op, operands["source"] = "write", keep(pattern * (size // len(pattern)))
            del operands["pattern"], operands["pattern_size"]
    elif isinstance(target, Location):
        transfer = require_strategy(context).copy(target, operands["source"], operands["size"])
    if isinstance(target, Location):
        op, operands = transfer.operation, dict(transfer.operands)
    return append.add(op, command, transfer.keep, **operands)


Transfers(appends, find_allocation, _append).declare_hints()
