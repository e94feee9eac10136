"""Commands that move bytes: one table of them, and what they are made of."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

import numpy

from ..loader.base.frozen_value import Value
from ..loader.base.operations import OPERATIONS, OperationFunction
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


class Row(Value):
    """A transfer of the runtime, and the adapter's functions for it.

    Attributes:
        node_type: SYCL's name for nodes of graphs that do it.
        title: what errors call it.
        operation: its name in the table of operations, "" for advice.
        enqueue: what queues are given.
        append: what command-buffers are given, None if they have no such command.
    """

    node_type: str
    title: str
    operation: str
    enqueue: OperationFunction
    append: OperationFunction | None

    @property
    def fields(self) -> tuple[str, ...]:
        """The operands that a `Transfer` has, in its order."""
        operands = (self.append or self.enqueue).operands
        return tuple(name for name in operands if name != "blocking")

    @property
    def pointers(self) -> set[str]:
        """The fields that the adapter's function takes as pointers."""
        parameters = UR.functions[self.enqueue.name].parameters[1:]  # the first is the queue
        pairs = zip(self.enqueue.operands, parameters, strict=False)
        return {name for name, parameter in pairs if parameter.stars}

    def list_arguments(self, function: OperationFunction, fields: Sequence[Any]) -> list[Any]:
        """Return what a function takes. The runtime's commands never block."""
        named = {**dict(zip(self.fields, fields, strict=True)), "blocking": False}
        return [named[name] for name in function.operands]


def _make_row(node_type: str, title: str, operation: str) -> Row:
    functions = OPERATIONS[operation].functions
    return Row(node_type, title, operation, functions["ur"], functions.get("ur_buffer"))


def _make_advice(node_type: str, title: str, name: str, value: str) -> Row:
    operands = "target", "size", value
    enqueue, append = f"urEnqueueUSM{name}", f"urCommandBufferAppendUSM{name}Exp"
    functions = (OperationFunction(name, operands) for name in (enqueue, append))
    return Row(node_type, title, "", *functions)


#: A field that is a Memory becomes its memory object.
TRANSFERS: Final = {
    "usm_copy": _make_row("memcpy", "USM copy", "svm_copy"),
    "usm_fill": _make_row("memfill", "USM fill", "svm_fill"),
    "memset": _make_row("memset", "memset", "svm_fill"),
    "buffer_copy": _make_row("memcpy", "buffer copy", "copy"),
    "buffer_copy_rect": _make_row("memcpy", "buffer copy rectangle", "copy_rect"),
    "buffer_read": _make_row("memcpy", "buffer read", "read"),
    "buffer_read_rect": _make_row("memcpy", "buffer read rectangle", "read_rect"),
    "buffer_write": _make_row("memcpy", "buffer write", "write"),
    "buffer_write_rect": _make_row("memcpy", "buffer write rectangle", "write_rect"),
    "buffer_fill": _make_row("memfill", "buffer fill", "fill"),
    "image_copy": _make_row("memcpy", "image copy", "copy_image"),
    "image_read": _make_row("memcpy", "image read", "read_image"),
    "image_write": _make_row("memcpy", "image write", "write_image"),
    "prefetch": _make_advice("prefetch", "prefetch", "Prefetch", "flags"),
    "mem_advise": _make_advice("memadvise", "mem_advise", "Advise", "advice"),
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

    def _list_arguments(self, function: OperationFunction, context: Context) -> list[Any]:
        fields = [
            field.memory(context) if isinstance(field, Memory) else field for field in self.fields
        ]
        return self.row.list_arguments(function, fields)

    def enqueue(self, queue: Queue, count: int, waits: Any) -> int:
        row, ur, event = self.row, queue.adapter.ur, ctypes.c_void_p()
        name, arguments = row.enqueue.name, self._list_arguments(row.enqueue, queue.context)
        if name == "urEnqueueUSMAdvise":  # the one that takes no events
            if count:
                queue.adapter.check(
                    ur.urEnqueueEventsWait(queue.handle, count, waits, None), "urEnqueueEventsWait"
                )
            code = ur.urEnqueueUSMAdvise(queue.handle, *arguments, _byref(event))
        else:
            code = getattr(ur, name)(queue.handle, *arguments, count, waits, _byref(event))
        if code:
            queue.adapter.check(code, name, f"({self})")
        return event.value or 0

    def append(self, buffer: AdapterCommandBuffer, count: int, sync_points: Any) -> int:
        append, point = self.row.append, ctypes.c_uint32()
        assert append is not None  # `in_command_buffers`
        arguments = self._list_arguments(append, buffer.context)
        code = getattr(buffer.adapter.ur, append.name)(
            buffer.handle, *arguments, count, sync_points, 0, None, _byref(point), None, None
        )
        self.check_appended(buffer, code, append.name)
        return point.value

    @property
    def label(self) -> str:
        size = dict(zip(self.row.fields, self.fields, strict=True)).get("size")
        return self.title if size is None else f"{self.title}({size} bytes)"

    def describe(self) -> list[str]:
        named = dict(zip(self.row.fields, self.fields, strict=True))
        if "pattern" in named:
            named["pattern"] = ctypes.string_at(named["pattern"], named["pattern_size"]).hex()
        pointers = self.row.pointers
        return [
            f"{_shorten(name)}: {_format_field(field, name in pointers)}"
            for name, field in named.items()
        ]


def _shorten(operand: str) -> str:
    """Return SYCL's word for an operand: "src_row" for "source_row_pitch"."""
    words = operand.replace("source", "src").replace("target", "dst")
    return words.removesuffix("_pitch")


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
