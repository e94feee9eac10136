"""The difference between launches, in the form in which adapters take updates
(ur_exp_command_buffer_update_kernel_launch_desc_t).

An update is one block of memory: a description for each launch that differs, followed by what the
descriptions point to. Arguments that are the same are left out. A launch of another kernel has all
of them. C finds what differs (loader/base/native/launches.c).
"""

from __future__ import annotations

from collections.abc import Sequence
from struct import Struct
from typing import TYPE_CHECKING, Any, Final

from ..loader.base._native import ffi, lib
from .arguments import Argument, make_row, pack_row
from .errors import make_unsupported_error
from .launch_appends import pack_range

if TYPE_CHECKING:
    from .context import Context
    from .launches import KernelLaunch

#: How an `fl_changed_launch` begins. Its ranges follow.
_HEAD: Final = Struct("@3N").pack

#: A command's handle, the launch that it is, and the one that it is to be.
Change = tuple[int, "KernelLaunch", "KernelLaunch"]


class Block:
    """Memory for updates. It is used again and again, because an adapter reads it only during the
    call.
    """

    def __init__(self) -> None:
        self.address = 0
        self._memory: Any = b""
        self._changes = b""

    def describe(self, changes: Sequence[Change], context: Context) -> int:
        """Describe the launches that differ, and return how many they are.

        They point to what the new launches keep, and to what the block keeps until it is used
        again.

        Raises:
            SYCLError: feature_not_supported, if one has another sampler; what is wrong with a
                memory object.
        """
        parts: list[bytes] = []
        for handle, old, new in changes:
            kernel = 0 if new.kernel is old.kernel else _find_other_kernel(old, new)
            arguments, range = new.arguments, pack_range(new.range)
            before = range if old.range is new.range else pack_range(old.range)
            parts += (_HEAD(handle, kernel, len(arguments)), before, range)
            if not kernel:
                pairs = zip(old.arguments, arguments, strict=True)
                parts += [one.row or _describe_old(one, after, context) for one, after in pairs]
            parts += [one.row or make_row(one, context) for one in arguments]
        self._changes = b"".join(parts)
        if len(self._changes) > len(self._memory):
            self._memory = ffi.new("char[]", len(self._changes))
            self.address = int(ffi.cast("uintptr_t", self._memory))
        found = lib.fl_describe_changes(len(changes), self._changes, self._memory)
        if found == lib.FL_NEW_SAMPLER:
            raise make_unsupported_error(
                "Unified Runtime cannot exchange the sampler of a launch in a command-buffer",
                routine="update",
                remedy="declare samplers in the kernels, or finalize the graph again",
            )
        return found


def _find_other_kernel(old: KernelLaunch, new: KernelLaunch) -> int:
    """Return the handle of the new launch's kernel, 0 if it is the old one's."""
    return 0 if new.kernel.handle == old.kernel.handle else new.kernel.handle


def _describe_old(one: Argument, new: Argument, context: Context) -> bytes:
    """Return `Argument.row` of an old argument, to be compared with that of a new one.

    The adapter is not asked for an old memory object, which may be closed.
    """
    word = one.word
    if one.buffer is not None:
        word = one.buffer.memory(context) if one.buffer is new.buffer else 0
    return pack_row(one.type, one.size, word, one.flags)
