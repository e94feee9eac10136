"""Commands that move bytes: one table of them, and what they are made of."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy

from ..loader.ur.abi import UR
from .checks import as_integer
from .commands import Command
from .errors import make_invalid_error
from .memory import Memory
from .usm import USM

if TYPE_CHECKING:
    from .accessor import Accessor
    from .command_buffer import AdapterCommandBuffer
    from .context import Context
    from .queue import Queue

_byref = ctypes.byref


@dataclass(frozen=True)
class Row:
    """How a transfer is given to adapters: its two functions, and how its fields become their
    arguments. `append` is "" if command-buffers have no such command."""

    node_type: str
    title: str
    enqueue: str
    append: str
    fields: tuple[str, ...]
    enqueued: Callable[..., tuple[Any, ...]] = lambda *fields: fields
    appended: Callable[..., tuple[Any, ...]] = lambda *fields: fields

    @property
    def pointers(self) -> set[Any]:
        """The fields that the adapter's function takes as pointers."""
        parameters = UR.functions[self.enqueue].parameters[1:]  # the first is the queue
        return {
            name
            for name, parameter in zip(self.enqueued(*self.fields), parameters, strict=False)
            if parameter.stars
        }


#: A field that is a Memory becomes its memory object. Where the two functions have another order,
#: the table says so.
TRANSFERS: Final = {
    "usm_copy": Row(
        "memcpy",
        "USM copy",
        "urEnqueueUSMMemcpy",
        "urCommandBufferAppendUSMMemcpyExp",
        ("dst", "src", "size"),
        lambda dst, src, size: (False, dst, src, size),
    ),
    "usm_fill": Row(
        "memfill",
        "USM fill",
        "urEnqueueUSMFill",
        "urCommandBufferAppendUSMFillExp",
        ("dst", "pattern", "pattern_size", "size"),
        lambda dst, pattern, pattern_size, size: (dst, pattern_size, pattern, size),
    ),
    "memset": Row(
        "memset",
        "memset",
        "urEnqueueUSMFill",
        "urCommandBufferAppendUSMFillExp",
        ("dst", "pattern", "pattern_size", "size"),
        lambda dst, pattern, pattern_size, size: (dst, pattern_size, pattern, size),
    ),
    "buffer_copy": Row(
        "memcpy",
        "buffer copy",
        "urEnqueueMemBufferCopy",
        "urCommandBufferAppendMemBufferCopyExp",
        ("src", "dst", "src_offset", "dst_offset", "size"),
    ),
    "buffer_copy_rect": Row(
        "memcpy",
        "buffer copy rectangle",
        "urEnqueueMemBufferCopyRect",
        "urCommandBufferAppendMemBufferCopyRectExp",
        (
            "src",
            "dst",
            "src_origin",
            "dst_origin",
            "region",
            "src_row",
            "src_slice",
            "dst_row",
            "dst_slice",
        ),
    ),
    "buffer_read": Row(
        "memcpy",
        "buffer read",
        "urEnqueueMemBufferRead",
        "urCommandBufferAppendMemBufferReadExp",
        ("src", "offset", "size", "dst"),
        lambda src, offset, size, dst: (src, False, offset, size, dst),
    ),
    "buffer_read_rect": Row(
        "memcpy",
        "buffer read rectangle",
        "urEnqueueMemBufferReadRect",
        "urCommandBufferAppendMemBufferReadRectExp",
        ("src", "origin", "host_origin", "region", "row", "slice", "host_row", "host_slice", "dst"),
        lambda src, *rest: (src, False, *rest),
    ),
    "buffer_write": Row(
        "memcpy",
        "buffer write",
        "urEnqueueMemBufferWrite",
        "urCommandBufferAppendMemBufferWriteExp",
        ("dst", "offset", "size", "src"),
        lambda dst, offset, size, src: (dst, False, offset, size, src),
    ),
    "buffer_write_rect": Row(
        "memcpy",
        "buffer write rectangle",
        "urEnqueueMemBufferWriteRect",
        "urCommandBufferAppendMemBufferWriteRectExp",
        ("dst", "origin", "host_origin", "region", "row", "slice", "host_row", "host_slice", "src"),
        lambda dst, *rest: (dst, False, *rest),
    ),
    "buffer_fill": Row(
        "memfill",
        "buffer fill",
        "urEnqueueMemBufferFill",
        "urCommandBufferAppendMemBufferFillExp",
        ("dst", "pattern", "pattern_size", "offset", "size"),
    ),
    "image_copy": Row(
        "memcpy",
        "image copy",
        "urEnqueueMemImageCopy",
        "",
        ("src", "dst", "src_origin", "dst_origin", "region"),
    ),
    "image_read": Row(
        "memcpy",
        "image read",
        "urEnqueueMemImageRead",
        "",
        ("src", "origin", "region", "row", "slice", "dst"),
        lambda src, *rest: (src, False, *rest),
    ),
    "image_write": Row(
        "memcpy",
        "image write",
        "urEnqueueMemImageWrite",
        "",
        ("dst", "origin", "region", "row", "slice", "src"),
        lambda dst, *rest: (dst, False, *rest),
    ),
    "prefetch": Row(
        "prefetch",
        "prefetch",
        "urEnqueueUSMPrefetch",
        "urCommandBufferAppendUSMPrefetchExp",
        ("dst", "size", "flags"),
    ),
    "mem_advise": Row(
        "memadvise",
        "mem_advise",
        "urEnqueueUSMAdvise",
        "urCommandBufferAppendUSMAdviseExp",
        ("dst", "size", "advice"),
    ),
}


class Transfer(Command):
    """A command of the table `TRANSFERS`."""

    __slots__ = (
        "__weakref__",
        "fields",
        "host_memory",
        "in_command_buffers",
        "keep",
        "node_type",
        "requirements",
        "row",
        "title",
    )

    def __init__(self, row: str, fields: tuple[Any, ...], keep: Any = None) -> None:
        self.row = TRANSFERS[row]
        self.node_type, self.title = self.row.node_type, self.row.title
        self.in_command_buffers = bool(self.row.append)
        self.fields = fields
        self.requirements: Sequence[Accessor] = ()
        self.keep = keep
        owners = keep if isinstance(keep, tuple) else (keep,)
        self.host_memory = not all(map(_outlives_commands, owners))

    def _list_arguments(self, context: Context) -> list[Any]:
        return [
            field.memory(context) if isinstance(field, Memory) else field for field in self.fields
        ]

    def enqueue(self, queue: Queue, count: int, waits: Any) -> int:
        row, ur, event = self.row, queue.adapter.ur, ctypes.c_void_p()
        arguments = row.enqueued(*self._list_arguments(queue.context))
        if row.enqueue == "urEnqueueUSMAdvise":  # the one that takes no events
            if count:
                queue.adapter.check(
                    ur.urEnqueueEventsWait(queue.handle, count, waits, None), "urEnqueueEventsWait"
                )
            code = ur.urEnqueueUSMAdvise(queue.handle, *arguments, _byref(event))
        else:
            code = getattr(ur, row.enqueue)(queue.handle, *arguments, count, waits, _byref(event))
        if code:
            queue.adapter.check(code, row.enqueue, f"({self})")
        return event.value or 0

    def append(self, buffer: AdapterCommandBuffer, count: int, sync_points: Any) -> int:
        row, point = self.row, ctypes.c_uint32()
        arguments = row.appended(*self._list_arguments(buffer.context))
        function = getattr(buffer.adapter.ur, row.append)
        code = function(
            buffer.handle, *arguments, count, sync_points, 0, None, _byref(point), None, None
        )
        self.check_appended(buffer, code, row.append)
        return point.value

    def describe(self) -> list[str]:
        named = dict(zip(self.row.fields, self.fields, strict=True))
        if "pattern" in named:
            named["pattern"] = ctypes.string_at(named["pattern"], named["pattern_size"]).hex()
        pointers = self.row.pointers
        return [
            f"{name}: {_format_field(field, name in pointers)}" for name, field in named.items()
        ]


def _outlives_commands(owner: Any) -> bool:
    """Whether memory lives until its commands have ended, also if its owner is dropped.

    USM is freed when its context is idle. Adapters copy patterns. OpenCL keeps memory objects.
    """
    if isinstance(owner, numpy.ndarray):
        return False
    if owner is None or isinstance(owner, (USM, ctypes.Array)):
        return True
    return hasattr(getattr(owner, "base_data", owner), "int_ptr")


def _format_field(field: Any, is_pointer: bool) -> str:
    if isinstance(field, ctypes.Structure):
        return f"({', '.join(str(getattr(field, name)) for name, *_ in field._fields_)})"
    return hex(field) if is_pointer and isinstance(field, int) else str(field)


def encode_element(value: Any, dtype: Any) -> bytes:
    """Return a value as the bytes of an element, by NumPy's rules for numbers of the same kind.
    Raises SYCLError (invalid)."""
    try:
        if value is None:
            raise TypeError("it is nothing")
        if dtype is None or not isinstance(value, numpy.generic):
            return numpy.asarray(value, dtype).tobytes()
        return numpy.asarray(value).astype(dtype, casting="same_kind").tobytes()
    except (TypeError, ValueError, OverflowError) as error:
        raise make_invalid_error(
            f"{value!r} is not an element of {dtype}: {error}",
            routine="fill",
            remedy="give a value of that type, or a pattern of bytes",
        ) from error


def check_byte_count(nbytes: int | None, room: int | None, there: int | None, routine: str) -> int:
    """Return how many bytes a command moves.

    Args:
        nbytes: what its caller wants; None means as many as there are.
        room, there: the sizes of the destination and of the source, None if unknown.
        routine: named in errors.

    Raises:
        SYCLError: invalid.
    """
    known = [size for size in (room, there) if size is not None]
    if nbytes is None and not known:
        raise make_invalid_error(
            "addresses alone do not say how many bytes there are",
            routine=routine,
            remedy="say how many bytes",
        )
    count = min(known) if nbytes is None else as_integer(nbytes, "number of bytes", routine)
    if count < 0 or any(count > size for size in known):
        raise make_invalid_error(
            f"{count} bytes are more than there are: {min(known)}",
            routine=routine,
            remedy="stay within the memory",
        )
    return count


def find_copy_row(to: Any, start: Any, count: int) -> tuple[str, tuple[Any, ...]]:
    """Return the row of TRANSFERS, and its fields, for a copy of addresses or memory objects.

    Args:
        to, start: the destination and the source.
        count: how many bytes.
    """
    if isinstance(to, Memory):
        if isinstance(start, Memory):
            return "buffer_copy", (start, to, start.offset, to.offset, count)
        return "buffer_write", (to, to.offset, count, start)
    if isinstance(start, Memory):
        return "buffer_read", (start, start.offset, count, to)
    return "usm_copy", (to, start, count)
