"""The commands of captured graphs: what PyOpenCL gave to a queue, in the form of the runtime's
graphs.

A command is a view of the recording's. A launch that is changed becomes a copy of its own. The
values that an argument may have are checked here, too.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from typing import Any, Final

import numpy

from ..icd._native import ffi, lib
from ..icd.calls import get_address
from ..icd.command_buffer.commands import NAMES, describe
from ..icd.command_buffer.edits import (
    MEMORY,
    POINTER,
    SAMPLER,
    UNSET,
    VALUE,
    copy_command,
    count_arguments,
    get_argument,
    set_argument,
)
from ..icd.errors import error
from ..runtime.accessor import Accessor
from ..runtime.arguments import LOCAL, make_argument
from ..runtime.arguments import POINTER as USM_POINTER
from ..runtime.arguments import VALUE as BYTES
from ..runtime.commands import Barrier, Command
from ..runtime.kernel_types import Declared, fit, query_declared_types
from ..runtime.launches import Launch, Sizes
from .argument_objects import (
    check_object,
    describe_argument,
    list_kept_objects,
    make_argument_error,
)
from .block import CapturedBlock
from .parameter import find_entry

#: NumPy's numbers that `struct` has under the same letter.
_CODES: Final = frozenset("bBhHiIlLqQfd")
#: The memory that commands name (fl_command): buffers, images, addresses of SVM, and the host's.
_MEMORY: Final = {
    "copy": ("source", "target"),
    "copy_rect": ("source", "target"),
    "fill": ("target",),
    "svm_copy": ("source", "target"),
    "svm_fill": ("target",),
    "read": ("source", "host"),
    "read_rect": ("source", "host"),
    "write": ("target", "host"),
    "write_rect": ("target", "host"),
    "copy_image": ("source", "target"),
    "copy_image_to_buffer": ("source", "target"),
    "copy_buffer_to_image": ("source", "target"),
    "fill_image": ("target",),
    "read_image": ("source", "host"),
    "write_image": ("target", "host"),
}


#: `Captured.title`, by `fl_command.op`.
_TITLES: Final = tuple(f"captured {name}" for name in NAMES)


class Captured(Command):
    """A recorded command: number `index` of a block. `native` points to it (fl_command)."""

    requirements: Sequence[Accessor] = ()
    keep: Any = None

    def __init__(self, block: CapturedBlock, index: int) -> None:
        self.block, self.index = block, index
        self.native = block.get_command(index)
        self.title = _TITLES[self.native.op]

    @property
    def segment_maker(self) -> Any:
        """The maker of the command's segment; commands of one context can share a segment."""
        return self.block.segments

    @property
    def operation(self) -> str:
        """What the command is: "kernel", "copy", "fill", "read", "barrier" and so on."""
        return NAMES[self.native.op]

    @property
    def label(self) -> str:
        """One line for people, such as "step(64×64)"."""
        return describe(self.native)[0]

    @property
    def where(self) -> str:
        """File and line of the call, "" if not known."""
        return self.block.find_place(self.index)

    @property
    def keeps_memory(self) -> bool:
        """Whether an argument was changed to memory, which its Python object keeps."""
        return False

    def describe(self) -> list[str]:
        label, details = describe(self.native)
        shown = [f"{name}: {value}" for name, value in details.items()]
        shown += [
            f"{name}: {get_address(getattr(self.native, name)):#x}"
            for name in _MEMORY.get(self.operation, ())
        ]
        return [
            f"captured: {label}",
            *shown,
            *([f"recorded at: {self.where}"] if self.where else []),
        ]


class CapturedTransfer(Captured):
    """A copy, a fill, a read or a write."""

    def __init__(self, block: CapturedBlock, index: int) -> None:
        super().__init__(block, index)
        self.node_type = "memfill" if "fill" in self.operation else "memcpy"


class CapturedBarrier(Captured, Barrier):
    """A barrier, a marker or a migration: a place in the order, for which nothing is enqueued."""


class CapturedLaunch(Captured, Launch):
    """A launch. Its sizes and its arguments can be changed."""

    def __init__(self, block: CapturedBlock, index: int) -> None:
        super().__init__(block, index)
        self.changed = False
        self._kept: dict[int, Any] = {}
        #: For numbers of a type that an argument has had: how they are stored.
        self._quick: dict[tuple[int, type], tuple[Any, Any, Any, int]] = {}
        self._declared: tuple[Declared, ...] | None = None

    def copy(self) -> CapturedLaunch:
        made = CapturedLaunch.__new__(CapturedLaunch)  # graphs copy thousands
        made.block, made.index, made.title = self.block, self.index, self.title
        made.changed, made._kept = self.changed, self._kept.copy()
        made.native = copy_command(self.native) if self.changed else self.native
        made._quick, made._declared = {}, self._declared
        return made

    def is_like(self, other: Command) -> bool:
        return isinstance(other, CapturedLaunch) and lib.fl_is_same_launch(
            self.native, other.native
        )

    def _copy_command(self) -> Any:
        if not self.changed:
            self.native, self.changed = copy_command(self.native), True
        return self.native

    @property
    def keeps_memory(self) -> bool:
        return bool(self._kept)

    def arguments(self) -> tuple[Any, ...]:
        """See `CapturedNode.args`."""
        count = count_arguments(self.native)
        if self._declared is None:
            self._declared = query_declared_types(get_address(self.native.kernel), count)
        return tuple(
            describe_argument(self.native, index, self._declared[index], self.block.parameters)
            for index in range(count)
        )

    def move_to(self, row: Any, owner: Any) -> None:
        """Become a view of a command in an executable graph's own array, which `owner` keeps."""
        self.native, self.changed, self._owner = row, True, owner

    @property
    def kernel_name(self) -> str:
        return self.block.get_kernel_name(self.native.kernel)

    @property
    def sizes(self) -> Sizes:
        native = self.native
        n, dim = native.n, native.work_dim
        local = tuple(n[6 : 6 + dim]) if native.has_local else ()
        offset = tuple(n[0:dim]) if native.has_offset else ()
        return tuple(n[3 : 3 + dim]), local, offset

    def set_sizes(self, sizes: Sizes) -> None:
        native, (whole, local, offset) = self._copy_command(), sizes
        dim = native.work_dim
        native.n[3 : 3 + dim] = whole
        native.n[6 : 6 + len(local)] = local
        native.n[0:dim] = offset or (0,) * dim
        native.has_offset = bool(offset)

    def set_arg(self, index: int, value: Any) -> None:
        """See `CapturedNode.set_arg`."""
        quick = self._quick.get((index, type(value)))
        if quick is None:
            self._set_arg(index, value)
            return
        pack_into, buffer, room, size = quick
        pack_into(buffer, 0, value)
        code = lib.fl_set_argument(self.native, index, VALUE, size, room)
        if code:
            raise error(code, "clSetKernelArg", f"(argument {index})")

    def _set_arg(self, index: int, value: Any) -> None:
        count = count_arguments(self.native)
        if not hasattr(index, "__index__") or not 0 <= index < count:
            raise make_argument_error(
                f"the kernel {self.kernel_name} has {count} arguments, no argument {index!r}",
                "name an argument by its number, and count from 0",
            )
        if self._declared is None:
            self._declared = query_declared_types(get_address(self.native.kernel), count)
        kind, size, word, keep = _convert(value, index, self._declared[index], self.kernel_name)
        context = self.block.recording.context
        check_object(self.native, index, kind, word, context)
        _check_kind(get_argument(self.native, index), kind, size, word, index)
        set_argument(self._copy_command(), index, kind, size, word)
        self._kept.pop(index, None)
        for known in [known for known in self._quick if known[0] == index]:
            del self._quick[known]
        if kind != VALUE:
            self._kept[index] = list_kept_objects(keep)
        elif (
            isinstance(value, numpy.number)
            and value.dtype.char in _CODES
            and self._declared[index] in (None, value.dtype)
        ):
            room = ffi.new("char[]", size)
            pack_into = struct.Struct(value.dtype.char).pack_into
            self._quick[index, type(value)] = pack_into, ffi.buffer(room), room, size


def _convert(value: Any, index: int, declared: Declared, kernel: str) -> tuple[int, int, int, Any]:
    """Return a value as kind, size, word (icd/command_buffer/edits.py), and what to keep."""
    import pyopencl
    from pyopencl.array import Array

    if find_entry(value) is not None:
        raise make_argument_error(
            f"argument {index} cannot become a Parameter after the block",
            "pass the Parameter to the kernel in the block",
        )
    if value is None:
        return MEMORY, 8, 0, None
    if isinstance(value, Array):
        value = value.data  # which refuses arrays that begin within their buffer
    for kind, size, types, word in _PYOPENCL:
        if isinstance(value, tuple(getattr(pyopencl, name) for name in types)):
            return (
                kind,
                getattr(value, size) if size else 8,
                getattr(value, word) if word else 0,
                value,
            )
    made = fit(make_argument(value, index), declared, index, kernel, "set_arg")
    if made.type == LOCAL:
        return VALUE, made.size, 0, None
    if made.type == BYTES:
        return VALUE, made.size, made.word, made.keep
    if made.type == USM_POINTER:
        return POINTER, 8, made.word, made.keep
    raise make_argument_error(
        f"argument {index} cannot be an accessor: its command is an OpenCL launch",
        "give a pyopencl.Buffer",
    )


#: PyOpenCL's own kinds of argument: what they become, and the attributes of size and word.
_PYOPENCL: Final = (
    (MEMORY, "", ("MemoryObjectHolder",), "int_ptr"),
    (SAMPLER, "", ("Sampler",), "int_ptr"),
    (POINTER, "", ("SVM", "SVMPointer"), "svm_ptr"),
    (VALUE, "size", ("LocalMemory",), ""),
)


#: What an argument takes, and the remedy for anything else: local memory, memory, a value.
_KINDS: Final = (
    ("local memory", "give LocalMemory(bytes)"),
    ("memory", "give a pyopencl.Buffer, an Array, an image or SVM"),
    ("a value of {} bytes", "give a number with its type: numpy.float32(…), numpy.int32(…)"),
)


def _check_kind(
    present: tuple[int, int, bool], kind: int, size: int, word: int, index: int
) -> None:
    """Raise SYCLError (kernel_argument) for a value that the argument cannot have."""
    had, bytes_, local = present
    if had == UNSET:
        return
    is_local = kind == VALUE and not word
    memory = (MEMORY, POINTER)
    if (
        local != is_local
        or (had in memory and kind not in memory)
        or (kind in memory and had not in memory and bytes_ != 8)
    ):
        wanted = _KINDS[0 if local else 1 if had in memory else 2]
        got = _KINDS[0 if is_local else 1 if kind in memory else 2]
        raise make_argument_error(
            f"argument {index} takes {wanted[0].format(bytes_)}, and was given "
            f"{got[0].format(size) if word or is_local or kind == VALUE else 'None'}",
            wanted[1],
        )
    if kind == VALUE and not local and size != bytes_:
        raise make_argument_error(
            f"argument {index} has {bytes_} bytes, not {size}", "give it its type: numpy.float32(…)"
        )


_MAKERS: Final[dict[str, Callable[[CapturedBlock, int], Captured]]] = {
    "kernel": CapturedLaunch,
    "marker": CapturedBarrier,
    "barrier": CapturedBarrier,
    "hint": CapturedBarrier,
}


def get_command(block: CapturedBlock, index: int) -> Captured:
    """Return the command of a number in a block."""
    return _MAKERS.get(NAMES[block.get_command(index).op], CapturedTransfer)(block, index)


def as_captured(command: Command) -> Captured:
    """Return a command with the type of captured ones, one of which it must be."""
    assert isinstance(command, Captured)
    return command
