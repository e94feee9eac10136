"""Accessors: a command's access to a buffer or an image, or to a part of it."""

from __future__ import annotations

import ctypes
import math
from collections.abc import Sequence
from typing import Any

import numpy

from .arguments import MAKERS, MEMORY, Argument
from .checks import as_shape, make_type_error
from .coherent_memory import CoherentMemory
from .errors import Errc, SYCLError, make_invalid_error
from .handles import make_struct
from .memory import MODES


class Accessor:
    """A command's access to a buffer or an image, or to a part of it.

    A kernel gets the memory from its beginning, whatever the part. Copies, fills and host tasks use
    the part only.

    Args:
        mode: "read", "write", "read_write" or "discard".
        shape: how many elements, or pixels, the part has in each dimension; by default all from
            `offset` on.
        offset: where the part begins in each dimension; by default at 0.

    Raises:
        SYCLError: invalid.
    """

    __slots__ = ("buffer", "host_tasks", "mode", "offset", "shape")

    def __init__(
        self,
        buffer: CoherentMemory,
        mode: str = "read_write",
        shape: Any = None,
        offset: Any = None,
    ) -> None:
        if not isinstance(buffer, CoherentMemory):
            raise make_type_error(
                buffer,
                "Buffer or Image",
                "Accessor",
                "an accessor is of a Buffer or an Image; make one of the array first",
            )
        buffer.check_access(mode, "Accessor")
        self.buffer, self.mode = buffer, mode
        self.host_tasks = 0  # how many run now that have it
        self.offset: Sequence[int] = (
            (0,) * len(buffer.shape) if offset is None else as_shape(offset, "Accessor")
        )
        if len(self.offset) != len(buffer.shape):
            raise make_invalid_error(
                f"the {buffer.noun} has {len(buffer.shape)} dimensions, not {len(self.offset)}",
                routine="Accessor",
            )
        whole = tuple(size - start for size, start in zip(buffer.shape, self.offset, strict=True))
        self.shape: Sequence[int] = whole if shape is None else as_shape(shape, "Accessor")
        if len(self.shape) != len(whole):
            raise make_invalid_error(
                f"the {buffer.noun} has {len(whole)} dimensions, not {len(self.shape)}",
                routine="Accessor",
            )
        if min(self.offset) < 0 or any(
            not 0 < size <= most for size, most in zip(self.shape, whole, strict=True)
        ):
            raise SYCLError(
                Errc.invalid,
                f"the part {self.shape} from {self.offset} on is not within {buffer!r}",
                routine="Accessor",
                remedy=f"stay within the {buffer.noun}'s shape",
            )

    @property
    def array(self) -> numpy.ndarray[Any, Any]:
        """The part as a NumPy array, inside the host task that has the accessor. Raises SYCLError
        (invalid) elsewhere."""
        if not self.host_tasks:
            raise make_invalid_error(
                "an accessor has an array only inside its host task",
                routine="Accessor.array",
                remedy="use buffer.host_access() outside of commands",
            )
        part = tuple(
            slice(start, start + size) for start, size in zip(self.offset, self.shape, strict=True)
        )
        return self.buffer.view(self.mode)[part]

    @property
    def reads(self) -> bool:
        """Whether the accessor's command may read."""
        return MODES[self.mode][0]

    @property
    def writes(self) -> bool:
        """Whether the accessor's command may write."""
        return MODES[self.mode][1]

    @property
    def size(self) -> int:
        """How many elements, or pixels, the accessor's part has."""
        return math.prod(self.shape)

    @property
    def nbytes(self) -> int:
        """How many bytes the accessor's part has."""
        return self.size * self.buffer.itemsize

    def __repr__(self) -> str:
        return f"<Accessor {self.mode} of {self.buffer!r}>"


def find_span(accessor: Accessor) -> tuple[int, bool]:
    """Return where an accessor's part begins in bytes, and whether it is contiguous."""
    shape, part = accessor.buffer.shape, accessor.shape
    begin = (
        int(numpy.ravel_multi_index(tuple(accessor.offset), shape)) * accessor.buffer.dtype.itemsize
    )
    full = next(
        (
            d
            for d, (size, whole) in reversed(list(enumerate(zip(part, shape, strict=True))))
            if size != whole
        ),
        0,
    )
    return begin, all(size == 1 for size in part[:full])


def find_rectangle(accessor: Accessor) -> tuple[Any, Any, int, int]:
    """Return an accessor's part as a rectangle: origin and region in bytes along the last
    dimension, and the buffer's pitches."""
    item = accessor.buffer.dtype.itemsize
    shape = (1,) * (3 - len(accessor.shape)) + tuple(accessor.buffer.shape)
    offset = (0,) * (3 - len(accessor.shape)) + tuple(accessor.offset)
    part = (1,) * (3 - len(accessor.shape)) + tuple(accessor.shape)
    origin = make_struct("ur_rect_offset_t", x=offset[2] * item, y=offset[1], z=offset[0])
    region = make_struct("ur_rect_region_t", width=part[2] * item, height=part[1], depth=part[0])
    return origin, region, shape[2] * item, shape[2] * shape[1] * item


def _make_argument(accessor: Accessor) -> Argument:
    return Argument(
        MEMORY,
        ctypes.sizeof(ctypes.c_void_p),
        0,
        MODES[accessor.mode][3],
        accessor,
        accessor.buffer,
        accessor.buffer.declared,
    )


MAKERS[Accessor] = _make_argument
