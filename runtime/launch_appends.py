"""Commands that are appended to a command-buffer, launches many by one call.

C makes the calls (loader/base/native/launches.c). The arguments of all launches are one piece of
memory, as adapters take them.
"""

from __future__ import annotations

import ctypes
from array import array
from collections.abc import Iterable, Sequence
from functools import lru_cache
from itertools import chain
from operator import attrgetter
from struct import Struct
from typing import TYPE_CHECKING, Any, Final

from ..loader.base._native import ffi, lib
from .arguments import make_row
from .errors import SYCLError

if TYPE_CHECKING:
    from .command_buffer import AdapterCommandBuffer
    from .commands import Command
    from .launches import KernelLaunch, Sizes

_APPEND: Final = "urCommandBufferAppendKernelLaunchWithArgsExp"
#: So many launches are given to C at once.
_MOST: Final = 1024
#: An `fl_range`, and what a part of it has besides the dimensions of the range.
_RANGE: Final = Struct("@4I9N")
_NO_SIZES: Final = 0, 0, 0
_alternatives: Final = attrgetter("alternatives")


class Appends:
    """The appends to a command-buffer.

    Args:
        count: how many commands it will have.
    """

    def __init__(self, buffer: AdapterCommandBuffer, count: int) -> None:
        self._buffer = buffer
        append = getattr(buffer.adapter.ur, _APPEND)
        self._points: Any = ffi.new("uint32_t[]", count)
        self._handles: Any = ffi.new("uintptr_t[]", count) if buffer.updatable else ffi.NULL
        self._struct: Any = ffi.new(
            "fl_new_launches *",
            {
                "append": ctypes.cast(append, ctypes.c_void_p).value or 0,
                "buffer": buffer.handle,
                "points": self._points,
                "handles": self._handles,
            },
        )

    @property
    def number(self) -> int:
        """The number of the next command, or of the one that is refused."""
        return self._struct.number

    def read_handles(self) -> Sequence[int]:
        """Return the handle of each command, 0 if it cannot be updated; () if none can be."""
        return ffi.unpack(self._handles, self.number) if self._handles else ()

    def append_others(
        self, commands: Sequence[Command], after: Sequence[Sequence[int]] | None
    ) -> None:
        """Append commands that are not launches. See `append_launches`."""
        for command, before in zip(commands, after or [()] * len(commands), strict=True):
            points = [self._points[number] for number in before]
            packed = _make_packer(len(points))(*points) if points else None
            point = command.append(self._buffer, len(points), packed)
            self._points[self.number] = point
            self._struct.number += 1

    def append_launches(
        self, launches: Sequence[KernelLaunch], after: Sequence[Sequence[int]] | None
    ) -> None:
        """Append launches.

        Args:
            after: the numbers of the commands that each comes after; None if it comes after none.

        Raises:
            SYCLError: what is wrong with the launch of `number`.
        """
        for begin in range(0, len(launches), _MOST):
            part = slice(begin, begin + _MOST)
            self._append(launches[part], None if after is None else after[part])

    def _append(
        self, launches: Sequence[KernelLaunch], after: Sequence[Sequence[int]] | None
    ) -> None:
        struct, first = self._struct, self.number
        arguments = self._pack(launches)
        kernels = array("Q", [launch.kernel.handle for launch in launches])
        ranges = b"".join([pack_range(launch.range) for launch in launches])
        counts = array("I", [len(launch.arguments) for launch in launches])
        waits = None if after is None else array("I", _flatten_with_lengths(after))
        others = None
        if any(map(_alternatives, launches)):
            handles = [[other.handle for other in one.alternatives] for one in launches]
            others = array("Q", _flatten_with_lengths(handles))
        struct.count = len(launches)
        struct.kernels = ffi.from_buffer("uintptr_t[]", kernels)
        struct.ranges = ffi.from_buffer("fl_range[]", ranges)
        struct.argument_counts = ffi.from_buffer("uint32_t[]", counts)
        struct.arguments = ffi.from_buffer(arguments)
        struct.after = ffi.NULL if waits is None else ffi.from_buffer("uint32_t[]", waits)
        struct.alternatives = ffi.NULL if others is None else ffi.from_buffer("uintptr_t[]", others)
        code = lib.fl_append_launches(struct)
        if code:
            launches[self.number - first].check_appended(self._buffer, code, _APPEND)

    def _pack(self, launches: Sequence[KernelLaunch]) -> bytearray:
        """Return the arguments of launches, one behind the other. Raises SYCLError."""
        context = self._buffer.context
        try:
            return bytearray().join(
                [
                    one.row or make_row(one, context)
                    for launch in launches
                    for one in launch.arguments
                ]
            )
        except SYCLError:
            if len(launches) > 1:  # find the launch
                for launch in launches:
                    self._pack([launch])
                    self._struct.number += 1
            raise


@lru_cache(256)
def pack_range(sizes: Sizes) -> bytes:
    """Return an `fl_range`."""
    whole, local, offset = sizes
    numbers = ((*part, *_NO_SIZES)[:3] for part in (offset, whole, local))
    return _RANGE.pack(len(whole), bool(offset), bool(local), 0, *chain.from_iterable(numbers))


def _flatten_with_lengths(lists: Iterable[Sequence[int]]) -> list[int]:
    """Return the numbers of all lists, those of each list behind their count."""
    return [number for one in lists for number in (len(one), *one)]


@lru_cache(64)
def _make_packer(count: int) -> Any:
    """Return the function that packs `count` sync-points."""
    return Struct(f"@{count}I").pack
