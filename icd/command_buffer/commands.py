"""Recorded commands: their array, the list that engines run, and a description of each.

A command is an `fl_command` (icd/native/native.cdef.h). Nothing is enqueued here: engines do that
(engine.py).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

from ...loader.base.operations import HOST, OPERATIONS, Operation
from .._native import ffi, lib
from ..calls import get_address, query_kernel_name
from .order import Order

#: The names of the operations by `fl_command.op`: "kernel", "copy" and so on.
NAMES: Final[tuple[str, ...]] = tuple(OPERATIONS)
#: Operations that only order other commands: nothing is moved or launched.
ORDER_ONLY: Final = frozenset(name for name, one in OPERATIONS.items() if one.only_orders)

_POINTERS: Final = frozenset({"kernel", "source", "target", "host", "pattern"})


def put_operands(command: Any, operation: Operation, operands: Mapping[str, Any]) -> None:
    """Store the operands of an operation in an `fl_command`.

    Args:
        command: the `fl_command *`.
        operands: the operands by name; other names are members of `fl_command`.
    """
    command.op = operation.number
    if operation.target and "region" not in operation.numbers:
        command.n[7] = command.n[8] = 1  # one row of one slice
    for name, value in operands.items():
        place = operation.numbers.get(name)
        if place is None:
            field = "host" if getattr(operation, name, "") == HOST else name
            is_address = isinstance(value, int) and field in _POINTERS
            setattr(command, field, ffi.cast("void *", value) if is_address else value)
        elif place.count == 1:
            command.n[place.first] = value
        else:
            command.n[place.first : place.first + place.count] = value


def get_operand(command: Any, operation: Operation, name: str) -> Any:
    """Return a number of an `fl_command` by its operand's name, or its three numbers, a list."""
    place = operation.numbers[name]
    numbers = list(command.n[place.first : place.first + place.count])
    return numbers[0] if place.count == 1 else numbers


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
        *,
        order_only: bool = False,
        **operands: Any,
    ) -> int:
        """Append a command, and return its number.

        Args:
            dependencies: the numbers of the commands that it comes after.
            order_only: whether it is only there for its order.
            operands: as `put_operands` takes them.

        Raises:
            MemoryError: there is no memory.
        """
        command = lib.fl_new_command(self.native)
        if not command:
            raise MemoryError("no memory for a command")
        put_operands(command, OPERATIONS[operation], operands)
        return self.count_added(dependencies, order_only)

    def add_copy(self, command: Any, dependencies: Sequence[int], queue: int) -> int:
        """Append a copy of a command, with arguments of its own, and return its number.

        Args:
            command: the command, an `fl_command *`.
            dependencies: the numbers of the commands that it comes after.

        Raises:
            MemoryError: there is no memory.
        """
        if lib.fl_add_copy(self.native, command, queue):
            raise MemoryError("no memory for a command")
        return self.count_added(dependencies, NAMES[command.op] in ORDER_ONLY)

    def count_added(self, dependencies: Sequence[int], order_only: bool = False) -> int:
        """Count a command that C has appended to `native`. Returns its number."""
        self.dependencies.append(dependencies)
        self.order_only.append(order_only)
        return len(self.dependencies) - 1

    def copy_pattern(self, data: bytes) -> Any:
        """Memory with these bytes, which lives as long as the array."""
        self.keep.append(ffi.new("unsigned char[]", data))
        return self.keep[-1]


def has_barrier(array: Any, order: Order) -> bool:
    """Return whether there is a barrier among the commands (`fl_command *`) of an order."""
    barrier = OPERATIONS["barrier"].number
    return any(only and array[node].op == barrier for node, only in enumerate(order.order_only))


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
        fenced: whether barriers among them order the queue's other commands, too. On an
            out-of-order queue an enqueue then begins and ends with a barrier. Else it is one
            command beside the others.
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
    fenced: bool = False
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
        """What a command is, the name of an operation."""
        return NAMES[self.array[number].op]

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


def _describe_kernel(command: Any) -> tuple[str, dict[str, object]]:
    name, dimensions = query_kernel_name(get_address(command.kernel)), range(command.work_dim)
    global_size = tuple(command.n[3 + i] for i in dimensions)
    details: dict[str, object] = {"kernel": name, "global_size": global_size}
    if command.has_local:
        details["local_size"] = tuple(command.n[6 + i] for i in dimensions)
    if command.has_offset:
        details["global_offset"] = tuple(command.n[i] for i in dimensions)
    return f"{name}({'×'.join(map(str, global_size))})", details


def describe(command: Any) -> tuple[str, dict[str, object]]:
    """Label and details of an `fl_command`.

    Sizes and offsets are in bytes, work sizes in work-items, regions of images in pixels.
    """
    name = NAMES[command.op]
    operation = OPERATIONS[name]
    if name == "kernel":
        return _describe_kernel(command)
    shown = ["region"] if "region" in operation.numbers else list(operation.numbers)
    details: dict[str, object] = {}
    for one in shown:
        value = get_operand(command, operation, one)
        details[one] = tuple(value) if isinstance(value, list) else value
    if operation.pattern:
        title = "color" if operation.pattern == "colour" else "pattern"
        details[title] = bytes(ffi.buffer(command.pattern, command.pattern_size))
    if "region" in details:
        return f"{name}({'×'.join(map(str, command.n[6:9]))})", details
    return f"{name}({details['size']} bytes)" if "size" in details else name, details
