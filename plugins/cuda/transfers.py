"""CUDA and HIP: copies and fills as the driver runs them on streams; maps of buffers are copies."""

from __future__ import annotations

import ctypes
from typing import Any

from ..sdk.buffers import declare_maps
from ..sdk.gpu.api import GpuSet
from ..sdk.programs import declare_variable_copies
from .commands import make_sets
from .core import API
from .enqueue import CuEnqueue, enqueues
from .events import CuEvent
from .programs import find_variable


def copy_bytes(
    enqueue: CuEnqueue, target: int, source: int, size: int, keep: Any = None
) -> CuEvent | None:
    """Enqueue a copy between any two addresses."""
    arguments = API.list_copy_arguments(target, source, size)
    return enqueue.run(lambda stream: enqueue.call("MemcpyAsync", *arguments, stream), keep)


def fill_bytes(
    enqueue: CuEnqueue, address: int, pattern: bytes, size: int, keep: Any = None
) -> CuEvent | None:
    """Enqueue a fill, and return the event, if one is wanted.

    Args:
        size: how many bytes, a multiple of the pattern's size.
    """
    sets = make_sets(address, pattern, size)
    if sets is not None:
        return enqueue.run(lambda stream: [set_bytes(enqueue, one, stream) for one in sets], keep)
    block = ctypes.create_string_buffer((pattern * (size // len(pattern) + 1))[:size], size)
    source = ctypes.addressof(block)
    enqueue.blocking = True  # nothing but this call keeps the block
    return copy_bytes(enqueue, address, source, size, (keep, block))


def set_bytes(enqueue: CuEnqueue, one: GpuSet, stream: int) -> None:
    """Enqueue a set. Raises DriverError."""
    bits = 8 * one.elementSize
    if one.height == 1:
        enqueue.call(f"MemsetD{bits}Async", one.dst, one.value, one.width, stream)
    else:
        shape = one.width, one.height
        enqueue.call(f"MemsetD2D{bits}Async", one.dst, one.pitch, one.value, *shape, stream)


def copy_rows(enqueue: CuEnqueue, copy: Any, keep: Any = None) -> CuEvent | None:
    """Enqueue a copy of rows and slices (`API.make_copy`)."""
    pointer = ctypes.byref(copy)
    return enqueue.run(lambda stream: enqueue.call("Memcpy3DAsync", pointer, stream), keep)


declare_maps(enqueues, copy_bytes)
declare_variable_copies(enqueues, find_variable, copy_bytes)
