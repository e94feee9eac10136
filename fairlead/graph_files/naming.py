"""What the program calls its memory, and the types and shapes of its arrays."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

import numpy as np

from ..captured_graphs.parameter import GraphParameter, find_entry
from ..captured_graphs.pyopencl_client import find_buffer_handle
from ..runtime.coherent_memory import CoherentMemory
from ..runtime.image import Image
from ..runtime.usm import USM
from .document import Document

_TYPES: Final = {
    "char": "|i1",
    "uchar": "|u1",
    "short": "<i2",
    "ushort": "<u2",
    "int": "<i4",
    "uint": "<u4",
    "long": "<i8",
    "ulong": "<u8",
    "half": "<f2",
    "float": "<f4",
    "double": "<f8",
}
_POINTER: Final = re.compile(r"(\w+?)(2|3|4|8|16)?\s*\*")


def find_buffers(names: Mapping[str, Any]) -> dict[int, tuple[str, Any]]:
    """Return the names of buffers and arrays, by the handle of their memory."""
    found: dict[int, tuple[str, Any]] = {}
    for name, value in names.items():
        handle = _find_handle(value)
        if handle and (handle not in found or hasattr(value, "dtype")):
            found[handle] = name, value
    return found


def _find_handle(value: Any) -> int:
    import pyopencl as cl

    entry = find_entry(value)
    if entry is not None:
        return 0 if isinstance(entry, GraphParameter) else entry.buffer.int_ptr
    try:
        return value.int_ptr if isinstance(value, cl.Image) else find_buffer_handle(value)
    except Exception:  # a variable of the program that cannot even be looked at
        return 0


def describe_memory(name: str, value: Any, size: int) -> dict[str, Any]:
    """Return the name of a memory, and the type and shape of the array that has it.

    Args:
        name: what the program calls it.
        size: the size of the memory, in bytes.
    """
    made: dict[str, Any] = {"name": name} if name.isidentifier() else {}
    dtype, shape = getattr(value, "dtype", None), getattr(value, "shape", None)
    if not isinstance(dtype, np.dtype) or getattr(value, "offset", 0) or dtype.itemsize == 0:
        return made
    if isinstance(value, USM):
        shape = [value.size]
    elif isinstance(value, Image):
        shape = [*value.shape, *([value.channels] if value.channels > 1 else ())]
    elif not isinstance(value, CoherentMemory) and not value.flags.c_contiguous:
        return made
    if getattr(value, "nbytes", -1) != size:
        return made
    return {**made, "dtype": find_type_name(dtype), "shape": [int(one) for one in shape or ()]}


def find_type_name(dtype: np.dtype[Any]) -> str:
    """Return what a file calls the type of a number, or of other bytes."""
    return dtype.str if dtype.kind in "biufc" else f"|V{dtype.itemsize}"


def describe_by_argument(memory: dict[str, Any], argument: dict[str, Any]) -> None:
    """Give a buffer the name and the type of the first kernel's argument that it is."""
    found = _POINTER.fullmatch(argument["type"])
    if memory["kind"] not in ("buffer", "svm") or "name" in memory:
        return
    if argument["name"].isidentifier():
        memory["name"] = argument["name"]
    if "dtype" in memory:
        return
    dtype = _TYPES.get(found.group(1), "") if found else ""
    if found and dtype:
        width = int(found.group(2) or 1)
        width += width == 3  # three numbers have the room of four
        count, remainder = divmod(memory["size"], width * int(dtype[2:]))
        if not remainder:
            memory |= {"dtype": dtype, "shape": [count, width] if width > 1 else [count]}


def make_unique(document: Document) -> None:
    """Let each name stand for one memory: the first one keeps it."""
    seen: set[str] = set()
    for record in document.memory:
        if record.get("name") in seen:
            del record["name"]
        elif "name" in record:
            seen.add(record["name"])
