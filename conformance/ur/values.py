"""Kernel arguments that are not passed by their bytes, arrays of numbers, an empty callback, and
rectangles in buffers: boxes of bytes, rows and slices.
"""

from __future__ import annotations

import ctypes
from dataclasses import dataclass
from typing import Any, ClassVar, Final

from fairlead.loader.ur.abi import UR

from .calls import address


@dataclass(frozen=True)
class ArgumentValue:
    """A kernel argument that is not passed by its bytes.

    `kind` is the end of its name in UR_EXP_KERNEL_ARG_TYPE_.
    """

    what: int
    kind: ClassVar[str] = ""

    def put(self, entry: Any) -> None:
        """Write it into a ur_exp_kernel_arg_properties_t."""
        raise NotImplementedError


class PointerValue(ArgumentValue):
    """A USM pointer."""

    kind = "POINTER"

    def put(self, entry: Any) -> None:
        entry.size, entry.value.pointer = ctypes.sizeof(ctypes.c_void_p), self.what


class BufferValue(ArgumentValue):
    """A memory object."""

    kind = "MEM_OBJ"

    def put(self, entry: Any) -> None:
        entry.size, entry.value.memObjTuple.hMem = ctypes.sizeof(ctypes.c_void_p), self.what
        entry.value.memObjTuple.flags = UR["UR_MEM_FLAG_READ_WRITE"]


class ImageValue(BufferValue):
    """An image that is read."""

    def put(self, entry: Any) -> None:
        super().put(entry)
        entry.value.memObjTuple.flags = UR["UR_MEM_FLAG_READ_ONLY"]


class LocalValue(ArgumentValue):
    """Bytes of local memory."""

    kind = "LOCAL"

    def put(self, entry: Any) -> None:
        entry.size = self.what


class SamplerValue(ArgumentValue):
    """A sampler."""

    kind = "SAMPLER"

    def put(self, entry: Any) -> None:
        entry.size, entry.value.sampler = ctypes.sizeof(ctypes.c_void_p), self.what


def make_arguments(*values: Any) -> Any:
    """Return the array of a launch's arguments, as "WithArgs" functions take them.

    A value is an `ArgumentValue`, or a ctypes number, which is passed by its bytes. The array keeps
    numbers alive.
    """
    array = (UR.get_struct("ur_exp_kernel_arg_properties_t") * max(len(values), 1))()
    array.values = values
    for index, value in enumerate(values):
        entry = array[index]
        entry.stype, entry.index = UR["UR_STRUCTURE_TYPE_EXP_KERNEL_ARG_PROPERTIES"], index
        kind = value.kind if isinstance(value, ArgumentValue) else "VALUE"
        entry.type = UR[f"UR_EXP_KERNEL_ARG_TYPE_{kind}"]
        if isinstance(value, ArgumentValue):
            value.put(entry)
        else:
            entry.size = ctypes.sizeof(value)
            entry.value.value = ctypes.addressof(value)
    return array


NOTHING: Final = ctypes.CFUNCTYPE(None)(lambda: None)
#: The address of a callback that does nothing.
CALLBACK: Final = address(NOTHING)


def make_offset(x: int = 0, y: int = 0, z: int = 0) -> Any:
    """Return the place of a box: bytes, rows, slices."""
    return UR.get_struct("ur_rect_offset_t")(x, y, z)


def make_region(width: int, height: int, depth: int) -> Any:
    """Return the size of a box: bytes, rows, slices."""
    return UR.get_struct("ur_rect_region_t")(width, height, depth)


def is_in_box(index: int, low: tuple[int, int, int], size: tuple[int, int, int]) -> bool:
    """Return whether a number lies in a box. The buffer has rows of 4, and slices of 16 numbers."""
    place = index % 4, index // 4 % 4, index // 16
    return all(a <= p < a + n for p, a, n in zip(place, low, size, strict=True))
