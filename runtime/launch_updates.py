"""The difference between launches, in the form in which adapters take updates
(ur_exp_command_buffer_update_kernel_launch_desc_t).

An update is one block of memory: a description for each launch that differs, followed by what the
descriptions point to. Arguments that are the same are left out. A launch of another kernel has all
of them.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from struct import Struct
from typing import TYPE_CHECKING, Any, Final

from ..loader.ur.abi import UR
from .arguments import LOCAL, MEMORY, SAMPLER, VALUE, Argument
from .errors import unsupported

if TYPE_CHECKING:
    from .context import Context
    from .launches import KernelLaunch

_TYPE: Final = "UR_STRUCTURE_TYPE_EXP_COMMAND_BUFFER_UPDATE_"
_LAUNCH_TYPE: Final = UR[_TYPE + "KERNEL_LAUNCH_DESC"]
_MEMORY_TYPE: Final = UR[_TYPE + "MEMOBJ_ARG_DESC"]
_POINTER_TYPE: Final = UR[_TYPE + "POINTER_ARG_DESC"]
_VALUE_TYPE: Final = UR[_TYPE + "VALUE_ARG_DESC"]

#: stype, pNext, hCommand, hNewKernel, how many of each kind of argument and of dimensions, where
#: the arguments are, and the sizes.
LAUNCH: Final = Struct("<I4x3Q4I6Q")
#: stype, pNext, argIndex, pProperties, and the memory object, or where the pointer is.
REFERENCE: Final = Struct("<I4xQI4x2Q")
#: stype, pNext, argIndex, argSize, pProperties, and where the value is.
NUMBER: Final = Struct("<I4xQI4x3Q")
_WORD: Final = Struct("<Q")
_SIZES: Final = tuple(Struct(f"<{dimensions}Q") for dimensions in range(4))

_VALUES: Final = VALUE, LOCAL

#: The most that a description has behind it: three sizes, and of each argument.
_MOST: Final = 3 * _SIZES[3].size, NUMBER.size + _WORD.size

#: A command's handle, the launch that it is, and the one that it is to be.
Change = tuple[int, "KernelLaunch", "KernelLaunch"]


def describe(block: Block, changes: Sequence[Change], context: Context) -> int:
    """Describe the launches that differ in `block.memory`. They point to what the new launches
    keep.

    Returns:
        How many differ.
    """
    block.begin(changes)
    count = at = 0
    for handle, old, new in changes:
        kernel = (
            new.kernel.handle
            if new.kernel is not old.kernel and new.kernel.handle != old.kernel.handle
            else 0
        )
        others: list[tuple[int, Argument]] = []
        values_at = block.address + block.end
        values = _put_values(block, () if kernel else old.arguments, new.arguments, others)
        memories, pointers, memories_at, pointers_at = (
            _put_references(block, others, context) if others else _NO_REFERENCES
        )
        # an adapter that is given another kernel, or another dimension, takes nothing from the old
        # one
        offset = whole = local = 0
        if (
            kernel
            or old.global_size != new.global_size
            or old.local_size != new.local_size
            or old.offset != new.offset
        ):
            offset, whole, local = _put_sizes(block, old, new)
        elif not values and not others:
            continue
        LAUNCH.pack_into(
            block.memory,
            at,
            _LAUNCH_TYPE,
            0,
            handle,
            kernel,
            memories,
            pointers,
            values,
            len(new.global_size),
            memories_at,
            pointers_at,
            values_at if values else 0,
            offset,
            whole,
            local,
        )
        count, at = count + 1, at + LAUNCH.size
    return count


class Block:
    """Memory for updates. It is used again and again, because an adapter reads it only during the
    call. It is filled from `end` on."""

    __slots__ = ("address", "end", "memory")

    def __init__(self) -> None:
        self.address = self.end = 0
        self.memory: Any = b""

    def begin(self, changes: Sequence[Change]) -> None:
        """Make room for the descriptions of changes, and for what they point to."""
        self.end = size = len(changes) * LAUNCH.size
        for _, _, new in changes:
            size += _MOST[0] + len(new.arguments) * _MOST[1]
        if size > len(self.memory):
            self.memory = (ctypes.c_char * size)()
            self.address = ctypes.addressof(self.memory)

    def put(self, form: Struct, *numbers: int) -> int:
        """Add a row. Returns its address."""
        at = self.end
        form.pack_into(self.memory, at, *numbers)
        self.end = at + form.size
        return self.address + at


def _put_values(
    block: Block,
    old: Sequence[Argument],
    new: Sequence[Argument],
    others: list[tuple[int, Argument]],
) -> int:
    """Describe the values that differ, and add other arguments that differ to `others`. Returns how
    many values do."""
    begin = at = block.end
    for index, after in enumerate(new):
        kind, size, word, flags, keep, buffer, *_ = after
        if old:
            before = old[index]
            if before is after:
                continue
            their_kind, their_size, their_word, their_flags, their_keep, their_buffer, *_ = before
            same = keep == their_keep if kind == VALUE else word == their_word
            if (
                same
                and kind == their_kind
                and size == their_size
                and buffer is their_buffer
                and flags == their_flags
            ):
                continue
        if kind in _VALUES:
            NUMBER.pack_into(block.memory, at, _VALUE_TYPE, 0, index, size, 0, word)
            at += NUMBER.size
        else:
            others.append((index, after))
    block.end = at
    return (at - begin) // NUMBER.size


_NO_REFERENCES: Final = 0, 0, 0, 0


def _put_references(
    block: Block, arguments: Sequence[tuple[int, Argument]], context: Context
) -> tuple[int, int, int, int]:
    """Describe memory objects and pointers. Returns how many there are of each, and where they are
    described."""
    if any(one.type == SAMPLER for _, one in arguments):
        raise unsupported(
            "Unified Runtime cannot exchange the sampler of a launch in a command-buffer",
            routine="update",
            remedy="declare samplers in the kernels, or finalize the graph again",
        )
    memories = [one for one in arguments if one[1].type == MEMORY]
    pointers = [
        (index, block.put(_WORD, one.word)) for index, one in arguments if one.type != MEMORY
    ]
    memories_at = block.address + block.end
    for index, one in memories:
        word = one.word if one.buffer is None else one.buffer.memory(context)
        block.put(REFERENCE, _MEMORY_TYPE, 0, index, 0, word)
    pointers_at = block.address + block.end
    for index, where in pointers:  # SPEC: the address of the pointer
        block.put(REFERENCE, _POINTER_TYPE, 0, index, 0, where)
    return (
        len(memories),
        len(pointers),
        memories_at if memories else 0,
        pointers_at if pointers else 0,
    )


def _put_sizes(block: Block, old: KernelLaunch, new: KernelLaunch) -> tuple[int, ...]:
    """Add the sizes. Returns where the offset, the global and the local size are."""
    dimensions = len(new.global_size)
    offset = new.offset or ((0,) * dimensions if old.offset else ())
    return tuple(
        [
            block.put(_SIZES[dimensions], *numbers) if numbers else 0
            for numbers in (offset, new.global_size, new.local_size)
        ]
    )
