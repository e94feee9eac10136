"""The difference between launches, in the form in which adapters take updates (ur_exp_command_buffer_update_kernel_launch_desc_t).

An update is one block of memory: a description for each launch that differs, and behind them what they lead to. Arguments that are the same
are not mentioned; a launch of another kernel has all of them.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from struct import Struct
from typing import TYPE_CHECKING, Any, Final

from ..loader.ur import UR
from .arguments import MEMORY, POINTER, VALUE, Argument

if TYPE_CHECKING:
    from .context import Context
    from .launches import KernelLaunch

_TYPE: Final = "UR_STRUCTURE_TYPE_EXP_COMMAND_BUFFER_UPDATE_"
_LAUNCH_TYPE: Final = UR[_TYPE + "KERNEL_LAUNCH_DESC"]
_MEMORY_TYPE: Final = UR[_TYPE + "MEMOBJ_ARG_DESC"]
_POINTER_TYPE: Final = UR[_TYPE + "POINTER_ARG_DESC"]
_VALUE_TYPE: Final = UR[_TYPE + "VALUE_ARG_DESC"]

#: stype, pNext, hCommand, hNewKernel, how many of each kind of argument and of dimensions, where the arguments are, and the sizes.
LAUNCH: Final = Struct("<I4x3Q4I6Q")
#: stype, pNext, argIndex, pProperties, and the memory object, or where the pointer is.
REFERENCE: Final = Struct("<I4xQI4x2Q")
#: stype, pNext, argIndex, argSize, pProperties, and where the value is.
NUMBER: Final = Struct("<I4xQI4x3Q")
_WORD: Final = Struct("<Q")
_SIZES: Final = tuple(Struct(f"<{dimensions}Q") for dimensions in range(4))

#: The most that a description has behind it: three sizes, and of each argument.
_MOST: Final = 3 * _SIZES[3].size, NUMBER.size + _WORD.size

#: A command's handle, the launch that it is, and the one that it is to be.
Change = tuple[int, "KernelLaunch", "KernelLaunch"]


def describe(block: Block, changes: Sequence[Change], context: Context) -> int:
    """How many of the changes are some; they are described in `block.memory`, and lead to what the new launches keep."""
    block.begin(
        len(changes) * (LAUNCH.size + _MOST[0]) + sum([len(new.arguments) for _, _, new in changes]) * _MOST[1],
        len(changes) * LAUNCH.size,
    )
    count = at = 0
    for handle, old, new in changes:
        kernel = new.kernel.handle if new.kernel is not old.kernel and new.kernel.handle != old.kernel.handle else 0
        arguments = _arguments(block, context, () if kernel else old.arguments, new.arguments)
        # an adapter that is given another kernel, or another dimension, takes nothing from the old one
        sizes = _NO_SIZES
        if kernel or old.global_size != new.global_size or old.local_size != new.local_size or old.offset != new.offset:
            sizes = _sizes(block, old, new)
        elif arguments is _NO_ARGUMENTS:
            continue
        counts, where = arguments
        LAUNCH.pack_into(block.memory, at, _LAUNCH_TYPE, 0, handle, kernel, *counts, len(new.global_size), *where, *sizes)
        count, at = count + 1, at + LAUNCH.size
    return count


class Block:
    """Memory for updates, which is used over and over, since an adapter reads it while it is called. It is filled from `end` on."""

    __slots__ = ("address", "end", "memory")

    def __init__(self) -> None:
        self.address = self.end = 0
        self.memory: Any = b""

    def begin(self, size: int, end: int) -> None:
        """Have room for so many bytes, of which the first ones are filled in otherwise."""
        if size > len(self.memory):
            self.memory = (ctypes.c_char * size)()
            self.address = ctypes.addressof(self.memory)
        self.end = end

    def put(self, form: Struct, rows: Sequence[Sequence[int]]) -> int:
        """Add rows; the answer is the address of the first one."""
        first, at, size = self.address + self.end, self.end, form.size
        for row in rows:
            form.pack_into(self.memory, at, *row)
            at += size
        self.end = at
        return first


_NO_SIZES: Final = 0, 0, 0
_NO_ARGUMENTS: Final = (0, 0, 0), (0, 0, 0)


def _arguments(
    block: Block, context: Context, old: Sequence[Argument], new: Sequence[Argument]
) -> tuple[tuple[int, int, int], tuple[int, int, int]]:
    """How many memory objects, pointers and values differ, and where they are described."""
    memories: list[tuple[int, ...]] = []
    pointers: list[tuple[int, ...]] = []
    values: list[tuple[int, ...]] = []
    for index, after in enumerate(new):
        if old and ((before := old[index]) is after or not differs(before, after)):
            continue
        kind, size, word, _, _, buffer = after
        if kind == MEMORY:
            memories.append((_MEMORY_TYPE, 0, index, 0, buffer.memory(context) if buffer is not None else word))
        elif kind == POINTER:
            pointers.append((_POINTER_TYPE, 0, index, 0, block.put(_WORD, ((word,),))))  # SPEC: the address of the pointer
        else:
            values.append((_VALUE_TYPE, 0, index, size, 0, word))
    if not (memories or pointers or values):
        return _NO_ARGUMENTS
    put = block.put
    where = (
        put(REFERENCE, memories) if memories else 0, put(REFERENCE, pointers) if pointers else 0, put(NUMBER, values) if values else 0
    )  # fmt: skip
    return (len(memories), len(pointers), len(values)), where


def _sizes(block: Block, old: KernelLaunch, new: KernelLaunch) -> tuple[int, ...]:
    """Where the offset, the global and the local size are."""
    dimensions = len(new.global_size)
    offset = new.offset or ((0,) * dimensions if old.offset else ())
    return tuple(
        [block.put(_SIZES[dimensions], [numbers]) if numbers else 0 for numbers in (offset, new.global_size, new.local_size)]
    )


def differs(before: Argument, after: Argument) -> bool:
    """Whether two arguments are not the same for a kernel."""
    kind, size, word, flags, keep, buffer = before
    if kind != after.type or size != after.size or buffer is not after.buffer or flags != after.flags:
        return True
    return keep.raw != after.keep.raw if kind == VALUE else word != after.word
