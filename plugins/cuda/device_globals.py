"""Reads and writes of device globals."""

from __future__ import annotations

from functools import partial
from typing import Any

from .core import failure
from .enqueue import CuEnqueue, declare_enqueue
from .programs import CuProgram, find_variable
from .transfers import copy_bytes


def _transfer(
    reads: bool,
    enqueue: CuEnqueue,
    program: CuProgram,
    name: str,
    count: int,
    offset: int,
    host: int,
) -> Any:
    """Read or write a part of a variable."""
    enqueue.check_context("the program", program)
    address, size = find_variable(program, enqueue.queue.device, name)
    if offset + count > size:
        raise failure("INVALID_VALUE", f"{name} has {size} bytes, not {offset + count}")
    place = address + offset
    return copy_bytes(enqueue, *((host, place) if reads else (place, host)), count, program)


for _word, _reads, _host in (("Read", True, "pDst"), ("Write", False, "pSrc")):
    declare_enqueue(
        f"urEnqueueDeviceGlobalVariable{_word}",
        f"DEVICE_GLOBAL_VARIABLE_{_word.upper()}",
        partial(_transfer, _reads),
        *("hProgram", "name", "count", "offset", _host),
    )
