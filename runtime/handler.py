"""The handler: what a command-group function says about its command. `queue.submit(lambda h:
h.parallel_for(1024, kernel, …))`.

A command-group function is called once, with a `Handler`. It calls exactly one of the methods that
name an operation. Ranges are in work-items, in OpenCL's order of dimensions: the first one is
`get_global_id(0)`, as in PyOpenCL. SYCL's C++ classes have the reverse order. (SYCL 2020, section
4.9.4.)
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, Final

import numpy

from ..loader.ur.abi import UR
from .accessor import Accessor
from .arguments import (
    MAKERS_ALONE,
    Argument,
    BoundArgument,
    DynamicArgument,
    check_local,
    is_foreign,
    make_argument,
)
from .buffer_copies import (
    check_use,
    is_image_accessor,
    make_accessor_copy,
    make_accessor_fill,
    make_host_copy,
    make_image_copy,
    make_memory_copy,
    make_memory_fill,
)
from .checks import as_integer, check_executable, expect, make_type_error
from .coherent_memory import CoherentMemory
from .commands import Barrier, Command, Empty, HostTask, InteropHandle, NativeCommand
from .errors import Errc, SYCLError, make_invalid_error
from .event import Event
from .interop import event_of, kernel_of
from .kernel_types import fit_arguments
from .launches import KernelLaunch, NDRange, parse_sizes
from .program import Kernel
from .transfers import Transfer, check_byte_count, encode_element
from .usm import USM, find_pointer

if TYPE_CHECKING:
    from .context import Context
    from .platform import Device

_ADVICE: Final = "UR_USM_ADVICE_FLAG_"
#: A list that is not there yet.
_NONE: Final[Any] = ()


def _refuse_count(count: int | None, routine: str) -> None:
    """Raise SYCLError (invalid) for a count beside an accessor, which has its own."""
    if count is not None:
        raise make_invalid_error(
            "an accessor itself says how many elements there are",
            routine=routine,
            remedy="give the accessor a shape, access(buffer, shape=…), and no count",
        )


class Handler:
    """Collects one command: its operation, its arguments, and what it comes after.

    Attributes:
        context: where it will run.
        device: that of the queue, None in a graph, which has its own.
        command: the operation, None until the function has named one.
        dependencies: the events that it comes after, besides those of its accessors.
        after: in a graph, the nodes that it comes after besides.
        graph: the graph that it is added to, None in an ordinary submission.
        recorded: whether it is added to the graph by recording a queue.
        when_added: is called with the node that was made of it.
    """

    __slots__ = (
        "_arguments",
        "_has_foreign",
        "_has_gaps",
        "after",
        "command",
        "context",
        "dependencies",
        "device",
        "dynamic",
        "graph",
        "recorded",
        "requirements",
        "when_added",
    )

    def __init__(
        self,
        context: Context,
        graph: Any = None,
        recorded: bool = False,
        device: Device | None = None,
    ) -> None:
        self.context, self.device = context, device
        self.graph, self.recorded = graph, recorded
        self.command: Command | None = None
        # a graph has thousands of handlers, so they share what most of them need not have
        self.dependencies: list[Event] = _NONE
        self.after: Sequence[Any] = _NONE
        self.requirements: list[Accessor] = _NONE
        self.dynamic: list[tuple[DynamicArgument, int]] = _NONE
        self.when_added: Callable[[Any], object] | None = None
        self._arguments: list[Any] = []
        self._has_gaps = self._has_foreign = False

    # what it comes after, what it uses

    def depends_on(self, *events: Any) -> None:
        """Run after these events: Event, pyopencl.Event, or lists of them."""
        self.dependencies = self.dependencies or []
        for event in events:
            if isinstance(event, (list, tuple)):
                self.depends_on(*event)
            else:
                self.dependencies.append(
                    event
                    if isinstance(event, Event)
                    else event_of(event, self.context, "depends_on")
                )

    def access(
        self,
        buffer: CoherentMemory,
        mode: str = "read_write",
        shape: Any = None,
        offset: Any = None,
    ) -> Accessor:
        """Return an accessor of a buffer or an image for this command. See `Accessor` for the
        arguments."""
        return self.require(Accessor(buffer, mode, shape, offset))

    def require(self, accessor: Accessor | DynamicArgument) -> Accessor:
        """Declare that the command uses an accessor that was made elsewhere, or that a dynamic
        parameter holds. Returns the accessor."""
        used: Accessor = (
            accessor.bind(self, 0).keep if isinstance(accessor, DynamicArgument) else accessor
        )
        if type(used) is not Accessor:
            expect(used, Accessor, "require", "access(buffer) makes one")
        if used not in self.requirements:
            self.requirements = [*self.requirements, used]
        return used

    def set_arg(self, index: int, value: Any) -> None:
        """Set the kernel's argument of an index. runtime/arguments.py lists what it can be. Raises
        SYCLError (kernel_argument)."""
        arguments = self._arguments
        is_next = index == len(arguments)
        if not is_next:
            self._check_index(index)
        if isinstance(value, BoundArgument):
            found = value.bind(self, index)
            if isinstance(value, DynamicArgument):
                self.dynamic = [*self.dynamic, (value, index)]
        else:
            found = make_argument(value, index)
        if found.buffer is None:
            self._has_foreign |= is_foreign(found)
        elif isinstance(found.keep, Accessor):
            self.require(found.keep)
        if is_next:
            arguments.append(found)
            return
        self._has_gaps |= index > len(arguments)
        arguments.extend([None] * (index + 1 - len(arguments)))
        arguments[index] = found

    @staticmethod
    def _check_index(index: Any) -> None:
        if as_integer(index, "argument's index", "set_arg") < 0:
            raise SYCLError(
                Errc.kernel_argument,
                "an argument's index is 0 or more",
                routine="set_arg",
                remedy="count from 0",
            )

    def check_local(self, found: Argument, index: int) -> None:
        """Raise SYCLError (invalid) if an argument needs more local memory than the other arguments
        leave."""
        check_local(
            [*self._arguments[:index], found, *self._arguments[index + 1 :]],
            self.context,
            "set_arg",
        )

    def set_args(self, *values: Any) -> None:
        """Set all arguments, from index 0 on."""
        self._set_arguments(values)

    def _set_arguments(self, values: Sequence[Any]) -> None:
        arguments = self._arguments
        for index, value in enumerate(values):
            maker = MAKERS_ALONE.get(type(value))
            if maker is None or index != len(arguments):
                self.set_arg(index, value)
            else:
                arguments.append(maker(value))

    # operations

    def parallel_for(
        self, range: NDRange | Sequence[int] | int, kernel: Any, *arguments: Any
    ) -> None:
        """Launch a kernel on a range of work-items.

        Args:
            range: a number, a tuple of up to three, or an NDRange.
            kernel: a Kernel, or a pyopencl.Kernel.
            arguments: if there are any, they are set first.

        Raises:
            SYCLError: nd_range, for a wrong range; kernel_argument, for arguments that are missing
                or wrong.
        """
        if not isinstance(kernel, Kernel):
            kernel = kernel_of(kernel, self.context, "parallel_for")
        if arguments:
            self._set_arguments(arguments)
        given: tuple[Any, ...] = tuple(self._arguments)
        if len(given) != kernel.num_args or (self._has_gaps and None in given):
            missing = [index for index, one in enumerate(given) if one is None]
            given = tuple(one for one in given if one is not None)
            what = f"argument {missing[0]} is not set" if missing else f"{len(given)} are set"
            raise SYCLError(
                Errc.kernel_argument,
                f"the kernel {kernel.name} has {kernel.num_args} arguments, {what}",
                routine="parallel_for",
                remedy="set each of them with set_arg, or give them to parallel_for",
            )
        if not kernel.declares_nothing:
            given = fit_arguments(given, kernel.declared, kernel.name, "parallel_for")
        launch = KernelLaunch(kernel, parse_sizes(range), given, self._has_foreign)
        if self.command is not None:
            self.set_command(launch)  # which refuses it
        self.command = launch

    def single_task(self, kernel: Any, *arguments: Any) -> None:
        """Launch a kernel as one work-item."""
        self.parallel_for(1, kernel, *arguments)

    def memcpy(self, destination: Any, source: Any, nbytes: int | None = None) -> None:
        """Copy bytes between USM allocations, NumPy arrays, PyOpenCL's buffers and arrays, and
        addresses.

        Args:
            nbytes: how many bytes; by default as many as the smaller of the two has.

        Raises:
            SYCLError: invalid.
        """
        self.set_command(make_memory_copy(destination, source, nbytes, "memcpy"))

    def memset(self, destination: Any, value: int, nbytes: int | None = None) -> None:
        """Set every byte of USM memory to a value from 0 to 255. Raises SYCLError (invalid).

        Args:
            destination: USM memory, or another object with memory.
            value: the value of each byte.
            nbytes: how many bytes; by default all.
        """
        if not 0 <= as_integer(value, "value of a byte", "memset") <= 255:
            raise make_invalid_error(
                f"{value} is not a value of a byte",
                routine="memset",
                remedy="0 to 255; fill takes elements",
            )
        self.set_command(make_memory_fill("memset", destination, bytes([value]), nbytes))

    def fill(self, destination: Any, pattern: Any, count: int | None = None) -> None:
        """Fill memory with an element, over and over.

        Args:
            destination: USM memory, or an accessor.
            pattern: an element of the memory's dtype; for USM memory also bytes.
            count: how many elements of USM memory, by default all.

        Raises:
            SYCLError: invalid.
        """
        if isinstance(destination, Accessor):
            _refuse_count(count, "fill")
            command = make_accessor_fill(destination, pattern)
            self.require(destination)
            self.set_command(command)
            return
        data = (
            pattern
            if isinstance(pattern, bytes)
            else encode_element(pattern, getattr(destination, "dtype", None))
        )
        nbytes = None if count is None else as_integer(count, "count", "fill") * len(data)
        self.set_command(make_memory_fill("usm_fill", destination, data, nbytes))

    def copy(self, source: Any, destination: Any, count: int | None = None) -> None:
        """Copy elements between accessors and memory. Memory is USM, a NumPy array or an address.

        The parts of two accessors have the same number of elements. Those of two or three
        dimensions are copied as rectangles. Parts of two images have the same shape and format.
        There is no copy between an image and a buffer.

        Args:
            source, destination: an accessor or memory.
            count: how many elements, if both are memory.

        Raises:
            SYCLError: invalid.
        """
        for accessor, writes in ((source, False), (destination, True)):
            if isinstance(accessor, Accessor):
                _refuse_count(count, "copy")
                check_use(accessor, "copy", writes=writes)
                self.require(accessor)
        types = [
            getattr(memory, "buffer", memory).dtype
            for memory in (source, destination)
            if _has_type(memory)
        ]
        if is_image_accessor(source) or is_image_accessor(destination):
            self.set_command(make_image_copy(source, destination))
            return
        if len(types) == 2 and types[0] != types[1]:
            raise make_invalid_error(
                f"elements of {types[0]} cannot be copied to elements of {types[1]}",
                routine="copy",
                remedy="convert them first (array.astype), or copy bytes with memcpy",
            )
        if isinstance(source, Accessor) and isinstance(destination, Accessor):
            self.set_command(make_accessor_copy(source, destination))
        elif isinstance(source, Accessor):
            self.set_command(make_host_copy("buffer_read", source, destination))
        elif isinstance(destination, Accessor):
            self.set_command(make_host_copy("buffer_write", destination, source))
        else:
            item = getattr(
                source, "dtype", getattr(destination, "dtype", numpy.dtype(numpy.uint8))
            ).itemsize
            nbytes = None if count is None else as_integer(count, "count", "copy") * item
            self.set_command(make_memory_copy(destination, source, nbytes, "copy"))

    def update_host(self, accessor: Accessor) -> None:
        """Bring the contents of an accessor's buffer to the host's copy. (SYCL 2020, section
        4.9.4.3)"""
        self.require(accessor)
        self.set_command(HostTask(lambda: None))

    def prefetch(self, memory: Any, nbytes: int | None = None) -> None:
        """Tell the device that it will soon need USM memory."""
        to, room, owner = find_pointer(memory, routine="prefetch")
        flags = UR["UR_USM_MIGRATION_FLAG_HOST_TO_DEVICE"]
        self.set_command(
            Transfer(
                "prefetch", (to, check_byte_count(nbytes, room, room, "prefetch"), flags), owner
            )
        )

    def mem_advise(
        self, memory: Any, advice: str | int = "DEFAULT", nbytes: int | None = None
    ) -> None:
        """Tell the device how USM memory will be used.

        Args:
            advice: a name of ur_usm_advice_flag_t such as "SET_READ_MOSTLY", or its number.
            nbytes: how many bytes, by default all.
        """
        to, room, owner = find_pointer(memory, routine="mem_advise")
        if isinstance(advice, str) and _ADVICE + advice not in UR.constants:
            known = ", ".join(
                name.removeprefix(_ADVICE) for name in UR.constants if name.startswith(_ADVICE)
            )
            raise make_invalid_error(
                f"there is no advice {advice!r}", routine="mem_advise", remedy=f"one of {known}"
            )
        value = (
            UR[_ADVICE + advice]
            if isinstance(advice, str)
            else as_integer(advice, "advice", "mem_advise")
        )
        self.set_command(
            Transfer(
                "mem_advise", (to, check_byte_count(nbytes, room, room, "mem_advise"), value), owner
            )
        )

    def host_task(self, function: Callable[[], object]) -> None:
        """Call a Python function in a thread of the scheduler, when everything that the command
        depends on is complete.

        The event's `wait`, and the queue's, raise what it raises.
        """
        if not callable(function):
            raise make_type_error(function, "function", "host_task", "host_task(lambda: …)")
        self.set_command(HostTask(function))

    def barrier(self, events: Event | Iterable[Any] = ()) -> None:
        """Let later submissions to the queue run after these events, or after everything that was
        submitted before."""
        self.depends_on(*(events if isinstance(events, Iterable) else (events,)))
        self.set_command(Barrier())

    def native_command(self, function: Callable[[InteropHandle], object]) -> None:
        """Let a function give commands to the native queue, or record them into the native
        command-buffer. (sycl_ext_codeplay_enqueue_native_command)"""
        if not callable(function):
            raise make_type_error(
                function, "function", "native_command", "native_command(lambda interop: …)"
            )
        self.set_command(NativeCommand(function))

    def graph_execution(self, executable: Any) -> None:
        """Run an executable graph. In a graph it becomes a sub-graph. (ext_oneapi_graph)"""
        try:
            command: Command = executable.find_executable(self.context).as_command()
        except AttributeError:
            check_executable(executable, "graph_execution")
            raise
        for accessor in command.requirements:
            self.require(accessor)
        self.set_command(command)

    # the end

    def set_command(self, command: Command) -> None:
        """Set the operation. Raises SYCLError (invalid) if there is one already."""
        if self.command is not None:
            raise make_invalid_error(
                f"the command group names a second operation, {command.title} after "
                f"{self.command.title}",
                routine="submit",
                remedy="submit a command group for each",
            )
        self.command = command

    def take_command(self) -> Command:
        """Return the command, an empty one if the function named none. None can be named
        afterwards."""
        command = self.command
        if command is None:
            self.command = command = Empty()
        if self.requirements:
            command.requirements = self.requirements
        return command


def _has_type(memory: Any) -> bool:
    return isinstance(memory, (Accessor, USM, numpy.ndarray))
