"""Commands that one call of the OpenCL driver enqueues."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from typing import Any, Final

from ...icd.abi import OPENCL
from ...icd.errors import check
from ...loader.base.operations import TransferCommand
from ..opencl.contexts import URContext
from ..opencl.platforms import find_extension
from ..opencl.usm.strategies import require_strategy

#: The operations that are copies, with pointers that have to live until they have ended.
COPIES: Final = frozenset({"svm_copy", "copy", "read", "write"})


def enqueue(function: Any, routine: str, waits: Sequence[int], *arguments: Any) -> int:
    """Call a function that enqueues a command, and return a reference to the command's event.

    Args:
        arguments: its arguments before them.
    """
    event = ctypes.c_void_p()
    listed = (ctypes.c_void_p * len(waits))(*waits) if waits else None
    check(function(*arguments, len(waits), listed, ctypes.byref(event)), routine)
    return event.value or 0


def make_copy(context: URContext, transfer: TransferCommand) -> Callable[[int, Sequence[int]], int]:
    """Return what enqueues a copy on a queue (a handle) after events, and returns its event.

    Args:
        transfer: one of `COPIES`.
    """
    routine, arguments = require_strategy(context).make_call(transfer)
    is_core = OPENCL.functions[routine].slot is not None
    function = (
        getattr(context.table, routine) if is_core else find_extension(context.platform, routine)
    )
    return lambda queue, waits: enqueue(function, routine, waits, queue, *arguments)
