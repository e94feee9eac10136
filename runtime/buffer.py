"""Buffers: elements in memory that the scheduler keeps coherent between the host and the contexts
that use it (coherent_memory.py).

    data = numpy.arange(1024, dtype=numpy.float32)
    with Buffer(data) as buffer:                    # written back to `data` when the block ends
        queue.submit(lambda h: h.parallel_for(1024, kernel, h.access(buffer, "read_write")))
"""

from __future__ import annotations

import ctypes
from typing import TYPE_CHECKING, Any

from .coherent_memory import CoherentMemory
from .errors import make_invalid_error
from .handles import make_struct

if TYPE_CHECKING:
    from .context import Context


class Buffer(CoherentMemory):
    """A buffer of elements of one dtype, with or without first contents.

    Args:
        data: a NumPy array, which belongs to the buffer until that is closed; a list of elements,
            which are copied; or the shape, a number or a tuple of one to three numbers of elements.
        dtype: of the elements. An array has its own. If both are given they must agree: nothing is
            converted.
        write_back: whether `close` writes the contents to the array. By default it does if the
            array can be written to. Commands may write to a buffer of a read-only array only if
            this is False, or after `set_final_data`.

    Raises:
        SYCLError: invalid.
    """

    kind = "a buffer"
    noun = "buffer"
    made_of = (
        "Buffer(array), Buffer([1, 2, 3], numpy.int32) or Buffer((rows, columns), numpy.float32)"
    )

    def _set_shape(self, array: tuple[int, ...] | None, given: tuple[int, ...]) -> tuple[int, ...]:
        self.shape = given if array is None else array
        if not 1 <= len(self.shape) <= 3 or min(self.shape) <= 0:
            raise make_invalid_error(
                "a buffer has one to three dimensions and at least one element",
                routine="Buffer",
                remedy=self.made_of,
            )
        return self.shape

    def _create(self, context: Context, flags: int, host: int) -> int:
        properties = make_struct("ur_buffer_properties_t", pHost=host) if host else None
        given = ctypes.byref(properties) if properties is not None else None
        return context.adapter.obtain(
            "urMemBufferCreate", context.handle, flags, self.nbytes, given
        )

    def _transfer_by(self, direction: str) -> tuple[str, tuple[Any, ...]]:
        return f"urEnqueueMemBuffer{direction}", (0, self.nbytes)

    def __repr__(self) -> str:
        return f"<Buffer {'×'.join(map(str, self.shape))} {self.dtype}>"
