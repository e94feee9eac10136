"""Kernel arguments that are not passed by their bytes, arrays of numbers, and an empty callback."""

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


NOTHING: Final = ctypes.CFUNCTYPE(None)(lambda: None)
#: The address of a callback that does nothing.
CALLBACK: Final = address(NOTHING)
