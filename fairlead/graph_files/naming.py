"""What the program calls its memory, and the types and shapes of its arrays."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from ..captured_graphs.parameter import GraphParameter, entry_of
from ..captured_graphs.pyopencl_client import handle_of_buffer
from .document import Document


def buffers_of(names: Mapping[str, Any]) -> dict[int, tuple[str, Any]]:
    """The names of buffers and arrays, by the handle of their memory."""
    found: dict[int, tuple[str, Any]] = {}
    for name, value in names.items():
        handle = _handle_of(value)
        if handle and (handle not in found or hasattr(value, "dtype")):
            found[handle] = name, value
    return found


def _handle_of(value: Any) -> int:
    import pyopencl as cl

    entry = entry_of(value)
    if entry is not None:
        return 0 if isinstance(entry, GraphParameter) else entry.buffer.int_ptr
    try:
        return value.int_ptr if isinstance(value, cl.Image) else handle_of_buffer(value)
    except Exception:  # a variable of the program that cannot even be looked at
        return 0


def description(name: str, value: Any, size: int) -> dict[str, Any]:
    """The name of a memory, and the type and shape of the array that has it."""
    made: dict[str, Any] = {"name": name} if name.isidentifier() else {}
    dtype, shape = getattr(value, "dtype", None), getattr(value, "shape", None)
    if not isinstance(dtype, np.dtype) or getattr(value, "offset", 0) or dtype.itemsize == 0:
        return made
    if getattr(value, "nbytes", -1) != size or not value.flags.c_contiguous:
        return made
    text = dtype.str if dtype.kind in "biufc" else f"|V{dtype.itemsize}"
    return {**made, "dtype": text, "shape": [int(one) for one in shape or ()]}


def make_unique(document: Document) -> None:
    """Let each name stand for one memory: the first one keeps it."""
    seen: set[str] = set()
    for record in document.memory:
        if record.get("name") in seen:
            del record["name"]
        elif "name" in record:
            seen.add(record["name"])
