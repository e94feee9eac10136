"""Launches of kernels: their ranges in work-items, and the command."""

from __future__ import annotations

import ctypes
import operator
import struct
from collections.abc import Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from .accessor import Accessor
from .arguments import Argument, are_equal, pack
from .checks import MOST
from .commands import Command
from .errors import Errc, SYCLError

if TYPE_CHECKING:
    from .program import Kernel
    from .queue import Queue

_byref = ctypes.byref

#: What packs sizes, by the number of dimensions.
_SIZES: Final = tuple(struct.Struct(f"@{dimensions}N").pack for dimensions in range(4))


class NDRange(NamedTuple):
    """A range with the size of its work-groups, and an optional offset, all in work-items."""

    global_size: Sequence[int] | int
    local_size: Sequence[int] | int
    offset: Sequence[int] | int = ()


def parse_sizes(
    range: NDRange | Sequence[int] | int, routine: str = "parallel_for"
) -> tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]:
    """Return the global size, local size and offset of a launch: tuples of one to three numbers, ()
    where there is none.

    Raises:
        SYCLError: nd_range.
    """
    if type(range) is int and 0 <= range <= MOST:
        return _make_sizes(range)
    if isinstance(range, NDRange):
        whole, local, offset = (_parse_tuple(part, routine) for part in range)
    else:
        whole, local, offset = _parse_tuple(range, routine), (), ()
    if not 1 <= len(whole) <= 3 or any(
        len(other) not in (0, len(whole)) for other in (local, offset)
    ):
        raise SYCLError(
            Errc.nd_range,
            f"a range has one to three dimensions, and its parts have as many: {range}",
            routine=routine,
            remedy="give a number, a tuple (width, height), or an NDRange",
        )
    if any(step <= 0 or size % step for size, step in zip(whole, local, strict=False)):
        raise SYCLError(
            Errc.nd_range,
            f"work-groups of {local} do not divide {whole} work-items",
            routine=routine,
            remedy="choose a local size that divides the global size in each dimension",
        )
    return whole, local, offset


@lru_cache(256)
def _make_sizes(number: int) -> Sizes:
    return (number,), (), ()


def _parse_tuple(sizes: Any, routine: str) -> tuple[int, ...]:
    numbers = (
        sizes if isinstance(sizes, Sequence) and not isinstance(sizes, (str, bytes)) else (sizes,)
    )
    try:
        found = tuple(map(operator.index, numbers))
    except TypeError:
        found = (-1,)
    if not 0 <= min(found, default=0) <= max(found, default=0) <= MOST or any(
        isinstance(number, bool) for number in numbers
    ):
        raise SYCLError(
            Errc.nd_range,
            f"{sizes!r} is not a range: its parts are whole numbers from 0 on",
            routine=routine,
            remedy="give a number, a tuple (width, height), or an NDRange",
        )
    return found


#: Global size, local size and offset in work-items; the last two are () where none is given.
Sizes = tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]


class Launch(Command):
    """A launch of a kernel, whoever runs it: what a graph asks of one."""

    __slots__ = ()

    node_type = "kernel"
    title = "kernel"

    @property
    def kernel_name(self) -> str:
        """The function that the kernel is of."""
        raise NotImplementedError

    @property
    def sizes(self) -> Sizes:
        """The range of the launch."""
        raise NotImplementedError

    def set_sizes(self, sizes: Sizes) -> None:
        """Give the launch another range, of as many dimensions."""
        raise NotImplementedError


class KernelLaunch(Launch):
    """A kernel's launch: its range in work-items, in OpenCL's order of dimensions, and its
    arguments by index. `AdapterCommandBuffer.append_all` appends it.

    Attributes:
        arguments: the arguments, by index.
        alternatives: the kernels that an update may put in its place.
        host_memory: whether memory of other packages was among the arguments.
    """

    __slots__ = (
        "__weakref__",
        "alternatives",
        "arguments",
        "host_memory",
        "kernel",
        "range",
        "requirements",
    )

    def __init__(
        self,
        kernel: Kernel,
        sizes: Sizes,
        arguments: tuple[Argument, ...],
        host_memory: bool = False,
    ) -> None:
        self.kernel, self.range, self.arguments = kernel, sizes, arguments
        self.host_memory = host_memory
        self.requirements: Sequence[Accessor] = ()
        self.alternatives: Sequence[Kernel] = ()

    @property
    def keep(self) -> Any:
        """The arguments, which keep their memory."""
        return self.arguments

    @property
    def kernel_name(self) -> str:
        return self.kernel.name

    @property
    def sizes(self) -> Sizes:
        return self.range

    def set_sizes(self, sizes: Sizes) -> None:
        self.range = sizes

    def _pack_sizes(self) -> tuple[int, bytes | None, bytes, bytes | None]:
        whole, local, offset = self.range
        dimensions = len(whole)
        pack = _SIZES[dimensions]
        return (
            dimensions,
            pack(*offset) if offset else None,
            pack(*whole),
            pack(*local) if local else None,
        )

    def enqueue(self, queue: Queue, count: int, waits: Any) -> int:
        event = ctypes.c_void_p()
        code = queue.adapter.ur.urEnqueueKernelLaunchWithArgsExp(
            queue.handle,
            self.kernel.handle,
            *self._pack_sizes(),
            len(self.arguments),
            pack(self.arguments, queue.context),
            None,
            count,
            waits,
            _byref(event),
        )
        if code:
            queue.adapter.check(code, "urEnqueueKernelLaunchWithArgsExp", f"({self})")
        return event.value or 0

    def is_like(self, other: Command) -> bool:
        return (
            type(other) is KernelLaunch
            and self.kernel is other.kernel
            and self.range == other.range
            and self.requirements == other.requirements
            and all(map(are_equal, self.arguments, other.arguments))
        )

    def copy(self) -> KernelLaunch:
        made = KernelLaunch.__new__(KernelLaunch)  # graphs copy thousands
        made.kernel, made.range, made.arguments = self.kernel, self.range, self.arguments
        made.requirements, made.alternatives = self.requirements, self.alternatives
        made.host_memory = self.host_memory
        return made

    @property
    def label(self) -> str:
        return f"{self.kernel.name}({'×'.join(map(str, self.range[0]))})"

    def describe(self) -> list[str]:
        whole, local, _ = self.range
        shown = [f"name: {self.kernel.name}", f"range: {'×'.join(map(str, whole))}"]
        if local:
            shown.append(f"local: {'×'.join(map(str, local))}")
        return shown
