"""Recorded commands: their array, the list that engines run, and a description of each.

A command is an `fl_command` (icd/native/native.cdef.h). Nothing is enqueued here: engines do that
(engine.py).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

from .._native import ffi, lib
from ..calls import get_address, query_kernel_name
from .order import Order

#: The operations that can be recorded, by `fl_command.op`: "kernel", "copy" and so on, the names of
#: enum fl_op.
OPERATIONS: Final[tuple[str, ...]] = tuple(
    name.removeprefix("FL_").lower()
    for _, name in sorted(ffi.typeof("enum fl_op").elements.items())
)
#: Operations that only order other commands: nothing is moved or launched.
ORDER_ONLY: Final = frozenset({"marker", "barrier", "hint"})
#: Operations on images, whose sizes are counted in pixels.
IMAGE_OPERATIONS: Final = frozenset(name for name in OPERATIONS if "image" in name)

_NUMBER_OF: Final = {name: number for number, name in enumerate(OPERATIONS)}
_POINTERS: Final = frozenset({"kernel", "source", "target", "host"})


class CommandArray:
    """A growing array of commands, each after the ones in its `dependencies`.

    `keep` holds what the array's pointers point to. Argument lists are owned: one reference for
    each command that has it.
    """

    def __init__(self) -> None:
        self.native = ffi.gc(ffi.new("fl_array *"), lib.fl_release_array)
        self.dependencies: list[Sequence[int]] = []
        self.order_only: list[bool] = []
        self.keep: list[Any] = []

    def __len__(self) -> int:
        return len(self.dependencies)

    @property
    def array(self) -> Any:
        """The first command, an `fl_command *`; it moves when commands are added."""
        return self.native.commands

    @property
    def order(self) -> Order:
        """What each command comes after."""
        return Order(self.dependencies, self.order_only)

    def add(
        self,
        operation: str,
        dependencies: Sequence[int],
        numbers: Sequence[int] = (),
        *,
        order_only: bool = False,
        **fields: Any,
    ) -> int:
        """Append a command.

        Args:
            operation: one of OPERATIONS.
            dependencies: the numbers of the commands that it comes after.
            numbers: what `fl_command.n` holds for the operation.
            order_only: whether it is only there for its order.
            fields: other members of `fl_command`; pointers are cffi's or addresses.

        Returns:
            Its number.

        Raises:
            MemoryError: there is no memory.
        """
        command = lib.fl_new_command(self.native)
        if not command:
            raise MemoryError("no memory for a command")
        command.op = _NUMBER_OF[operation]
        command.n[0 : len(numbers)] = numbers
        for name, value in fields.items():
            setattr(
                command,
                name,
                ffi.cast("void *", value)
                if isinstance(value, int) and name in _POINTERS
                else value,
            )
        return self.count_added(dependencies, order_only)

    def add_copy(self, command: Any, dependencies: Sequence[int], queue: int) -> int:
        """Append a copy of a command, with arguments of its own.

        Args:
            command: the command, an `fl_command *`.
            dependencies: the numbers of the commands that it comes after.
            queue: the number of its queue.

        Returns:
            Its number.

        Raises:
            MemoryError: there is no memory.
        """
        if lib.fl_add_copy(self.native, command, queue):
            raise MemoryError("no memory for a command")
        return self.count_added(dependencies, OPERATIONS[command.op] in ORDER_ONLY)

    def count_added(self, dependencies: Sequence[int], order_only: bool = False) -> int:
        """Count a command that C has appended to `native`. Returns its number."""
        self.dependencies.append(dependencies)
        self.order_only.append(order_only)
        return len(self.dependencies) - 1

    def copy_pattern(self, data: bytes) -> Any:
        """Memory with these bytes, which lives as long as the array."""
        self.keep.append(ffi.new("unsigned char[]", data))
        return self.keep[-1]


@dataclass(frozen=True)
class MemoryFunctions:
    """The driver's functions for memory by address, if not SVM's (cl_intel_unified_shared_memory).

    0 stands for SVM's own.
    """

    set_pointer: int = 0
    copy: int = 0
    fill: int = 0


@dataclass(frozen=True)
class CommandList:
    """Commands to run, and what the caller wants of them.

    Attributes:
        context: the OpenCL context, a handle.
        devices: handles; `fl_command.queue` is an index in it. Commands of other devices than the
            queue's run on queues of our own.
        array, order: the commands (`fl_command *`), and what each comes after.
        owner: what owns the array's memory.
        schedule: "auto", "in-order", "queues", "levels" or "events" (order.py).
        updatable: whether commands change after they were built.
        alternatives: kernels (handles) that an update may give to a launch.
        memory: the driver's functions for memory by address.
        externals: how many outside events a command waits for, by its number. An enqueue takes the
            events in this order.
        exports: the commands whose events an enqueue returns, in this order.
        first: another such command, whose time the caller wants; None for none.
        title: what errors call it: 'the graph "step"', or where it was captured.
        notes: what engines found out about the commands, for as long as the list and its parts
            live.
    """

    context: int
    devices: Sequence[int]
    array: Any
    order: Order
    owner: Any = None
    schedule: str = "auto"
    updatable: bool = False
    alternatives: Sequence[int] = ()
    memory: MemoryFunctions = MemoryFunctions()
    externals: Mapping[int, int] = field(default_factory=dict)
    exports: Sequence[int] = ()
    first: int | None = None
    title: str = "a graph"
    notes: dict[Any, Any] = field(default_factory=dict, compare=False, repr=False)

    def __len__(self) -> int:
        return len(self.order)

    def name_operation(self, number: int) -> str:
        """What a command is, one of OPERATIONS."""
        return OPERATIONS[self.array[number].op]

    def is_empty_launch(self, number: int) -> bool:
        """Whether a kernel launch has no work-item. It only has its place in the order."""
        command = self.array[number]
        return 0 in command.n[3 : 3 + command.work_dim]

    @property
    def count(self) -> int:
        """The number of commands that do something.

        Commands that only order others do not count.
        """
        return len(self.order) - sum(self.order.order_only)

    @property
    def wanted_events(self) -> list[int]:
        """The commands whose events are given: `exports`, then `first`."""
        return [*self.exports, *([] if self.first is None else [self.first])]

    def part(self, first: int, end: int) -> CommandList:
        """Return the commands from `first` up to `end`, numbered from 0.

        Earlier commands do not belong to their order.
        """
        if (first, end) == (0, len(self)):
            return self
        return replace(
            self,
            array=self.array + first,
            order=self.order.part(first, end),
            externals={
                number - first: count
                for number, count in self.externals.items()
                if first <= number < end
            },
            exports=[number - first for number in self.exports if first <= number < end],
            first=self.first - first
            if self.first is not None and first <= self.first < end
            else None,
        )


# descriptions

#: The meaning of the numbers in `fl_command.n`, for the commands that have some.
_NUMBERS: Final[dict[str, tuple[str, ...]]] = {
    "copy": ("source_offset", "target_offset", "size"),
    "fill": ("offset", "size"),
    "read": ("offset", "size"),
    "write": ("offset", "size"),
    "svm_copy": ("size",),
    "svm_fill": ("offset", "size"),
}


def _describe_kernel(command: Any) -> tuple[str, dict[str, object]]:
    name, dimensions = query_kernel_name(get_address(command.kernel)), range(command.work_dim)
    global_size = tuple(command.n[3 + i] for i in dimensions)
    details: dict[str, object] = {"kernel": name, "global_size": global_size}
    if command.has_local:
        details["local_size"] = tuple(command.n[6 + i] for i in dimensions)
    if command.has_offset:
        details["global_offset"] = tuple(command.n[i] for i in dimensions)
    return f"{name}({'×'.join(map(str, global_size))})", details


def _describe_region(command: Any, region: tuple[int, ...]) -> dict[str, object]:
    details: dict[str, object] = {"region": region}
    if command.pattern_size:
        details["color"] = bytes(ffi.buffer(command.pattern, command.pattern_size))
    return details


def describe(command: Any) -> tuple[str, dict[str, object]]:
    """Label and details of an `fl_command`.

    Sizes and offsets are in bytes, work sizes in work-items, regions of images in pixels.
    """
    operation = OPERATIONS[command.op]
    if operation == "kernel":
        return _describe_kernel(command)
    details: dict[str, object] = {
        name: command.n[i] for i, name in enumerate(_NUMBERS.get(operation, ()))
    }
    if operation.endswith("_rect") or operation in IMAGE_OPERATIONS:
        region = tuple(command.n[6:9])
        return f"{operation}({'×'.join(map(str, region))})", _describe_region(command, region)
    if command.pattern_size:
        details["pattern"] = bytes(ffi.buffer(command.pattern, command.pattern_size))
    return f"{operation}({details['size']} bytes)" if "size" in details else operation, details
