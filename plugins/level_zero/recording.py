"""Level Zero driver: what a command list records, and the steps that it becomes.

All commands are in one array (icd/command_buffer/commands.py). A list is divided where it waits for
an event that it does not signal itself before. Each part is a command-buffer of `icd`, so that its
engines run it. What is signaled and reset in a part is so at its end: between two such waits nobody
can tell the difference.

In an in-order list each command comes after the one before it. In other lists a command comes after
the barriers before it, and after the commands of the list whose events it waits for. A capture of
several lists (graphs.py) orders the commands of each list so.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

from ...icd._native import lib as icd_lib
from ...icd.calls import call, get_address
from ...icd.command_buffer.command_buffer import CommandBuffer
from ...icd.command_buffer.commands import CommandArray, CommandList
from ...icd.command_buffer.lifetimes import Lifetimes
from ...icd.errors import error as opencl_error
from ...loader.base.operations import TransferCommand
from ..opencl.command_buffer.launches import copy_kernel
from ..opencl.usm.addresses import get_memory_functions
from ..sdk.kernel_arguments import URKernelArgument
from .arguments import make_arguments
from .contexts import ZeContext
from .core import driver, make_failure
from .devices import ZeDevice
from .events import ZeEvent
from .group_counts import CountsInMemory, CountsReading
from .in_c import ListInC, find_address_bits
from .kernels import LaunchShape, ZeKernel
from .streams import StepRun, Stream, StreamStep

#: What dropped recordings hold while an enqueue of them runs.
_unfinished: Final = Lifetimes()
driver.after_queues.append(_unfinished.release_finished)


class KernelCopies:
    """Copies of kernels, on which only their owner sets arguments, and which end with it."""

    def __init__(self) -> None:
        self.copies: dict[Any, Any] = {}

    def get_copy(self, kernel: ZeKernel, arguments: dict[int, URKernelArgument]) -> Any:
        """Return a copy of a kernel for a launch with these arguments, a `void *`."""
        owner: Any = self  # it reads `copies`
        return copy_kernel(owner, kernel.ur, find_address_bits(arguments))

    def clone(self) -> tuple[KernelCopies, dict[int, Any]]:
        """Return copies of the copies, and each of them by the address of its original.

        Raises:
            LevelZeroError: INVALID_KERNEL_HANDLE if the driver makes none.
        """
        made, found = KernelCopies(), dict[int, Any]()
        for key, copy in self.copies.items():
            new = icd_lib.fl_clone_kernel(copy)
            if not new:
                raise make_failure("INVALID_KERNEL_HANDLE", "the driver cannot copy a kernel")
            made.copies[key] = found[get_address(copy)] = new
        return made, found

    def __del__(self) -> None:
        for copy in getattr(self, "copies", {}).values():
            if call is not None:  # Python is not taking modules down
                call(get_address(copy), "clReleaseKernel")


@dataclass
class ListLaunch:
    """A launch: its kernel, what is set on it, and its sizes."""

    kernel: ZeKernel
    arguments: dict[int, URKernelArgument]
    shape: LaunchShape

    @property
    def is_complete(self) -> bool:
        """Return whether all arguments are set."""
        return len(self.arguments) == self.kernel.ur.argument_count


@dataclass
class ListCommand:
    """A command of a list.

    Attributes:
        index: its place in the array.
        role: "command"; "barrier": what follows comes after all before it; "wait": what follows
            comes after its events; "signal" or "reset", of `signal`; "host": `run` enqueues it.
        run: what enqueues it, if the host runs it.
        reads: the events whose times it reads.
        counts: where its group counts are read when it runs, or those of the launches that it was
            appended with; None for a command without.
        list_number: the list that it was given, of those of a capture.
        record_again: records it and the commands that it was appended with in another list; None
            if a copy of it does.
    """

    index: int
    role: str
    waits: Sequence[ZeEvent]
    signal: ZeEvent | None
    launch: ListLaunch | None = None
    run: StepRun | None = None
    reads: Sequence[ZeEvent] = ()
    counts: CountsInMemory | None = None
    list_number: int = 0
    record_again: Callable[[ListRecording], Sequence[ListCommand]] | None = None


@dataclass
class ListPart:
    """Commands between two waits for events of elsewhere.

    Attributes:
        first, end: their places in the array.
        effects: what they signal and reset, in order.
        timed: the commands whose times an event has, and the events.
        buffer: what runs them, None if there is nothing to run.
        run: what enqueues the only command, if the host runs it.
        reads: the events whose times it reads then.
        counts: where the group counts of its launches are read first; None if they are known.
    """

    first: int
    end: int
    waits: list[ZeEvent] = field(default_factory=list)
    effects: dict[ZeEvent, bool] = field(default_factory=dict)
    timed: dict[int, ZeEvent] = field(default_factory=dict)
    timed_by_end: list[ZeEvent] = field(default_factory=list)
    buffer: CommandBuffer | None = None
    run: StepRun | None = None
    reads: Sequence[ZeEvent] = ()
    counts: CountsInMemory | None = None

    @property
    def plain_buffer(self) -> Any:
        """Return the `fl_buffer *` that runs it, None if only Python can.

        Its events are its own: it waits for no others, and leaves them reset. Nobody asks for their
        times, and the host runs nothing.
        """
        others = self.waits or self.timed or self.timed_by_end or any(self.effects.values())
        if others or self.run is not None or self.counts is not None or self.buffer is None:
            return None
        return self.buffer.native if all(one.may_be_c_s for one in self.effects) else None

    @property
    def resets(self) -> list[ZeEvent]:
        """Return the events that the part leaves reset."""
        return [event for event, is_set in self.effects.items() if not is_set]


class ListRecording:
    """Commands for a device, in the order in which they were appended.

    Args:
        in_order: whether each comes after the one before it.
        updatable: whether they change after they were built.
        in_c: what C knows of the list, which may append launches, too; None if it may not.

    Attributes:
        built: another object for each build, None without one.
    """

    def __init__(
        self,
        context: ZeContext,
        device: ZeDevice,
        in_order: bool,
        updatable: bool = False,
        in_c: ListInC | None = None,
    ) -> None:
        self.context, self.device = context, device
        self.in_order, self.updatable = in_order, updatable
        self.array = CommandArray()
        self.copies = KernelCopies()
        self.commands: list[ListCommand] = []
        self.alternatives: list[Any] = []
        self.kept: list[Any] = []
        self._parts: list[ListPart] | None = None
        self._shape: Any = None
        self.built: Any = None
        self._in_c = in_c
        if in_c is not None:
            in_c.begin(self.array.native)

    # appends

    def take(self) -> None:
        """Take over the launches that C has appended."""
        for index in range(len(self.commands), self.array.native.count):
            self.array.count_added(())
            self._add(ListCommand(index, "command", (), None))

    def add(
        self, role: str, waits: Sequence[ZeEvent] = (), signal: ZeEvent | None = None
    ) -> ListCommand:
        """Append something that only orders, signals or resets."""
        self.take()
        index = self.array.add("barrier", (), order_only=True)
        return self._add(ListCommand(index, role, waits, signal))

    def add_operation(
        self,
        transfer: TransferCommand,
        waits: Sequence[ZeEvent] = (),
        signal: ZeEvent | None = None,
    ) -> ListCommand:
        """Append a transfer."""
        self.take()
        index = self.array.add(transfer.operation, (), **transfer.operands)
        self.kept.append(transfer.keep)
        return self._add(ListCommand(index, "command", waits, signal))

    def add_launch(
        self, launch: ListLaunch, waits: Sequence[ZeEvent] = (), signal: ZeEvent | None = None
    ) -> ListCommand:
        """Append a launch."""
        self.take()
        count = launch.kernel.ur.argument_count
        arguments = make_arguments(self.context, count, launch.arguments)
        copy = self.copies.get_copy(launch.kernel, launch.arguments)
        index = self.array.add("kernel", (), kernel=copy, arguments=arguments)
        if self._in_c is not None:
            sticks = self.context.ur.platform.profile.svm_arguments_stick
            bits = find_address_bits(launch.arguments)
            self._in_c.add_copy(launch.kernel.in_c.struct, bits, sticks, copy)
        launch.shape.put(self.array.array + index)
        self.kept.append(launch.kernel)
        return self._add(ListCommand(index, "command", waits, signal, launch))

    def _add(self, command: ListCommand) -> ListCommand:
        self.commands.append(command)
        self._shape = None
        return command

    def clone_into(self, made: ListRecording) -> None:
        """Record the same commands in an empty recording, which shares nothing that changes.

        Raises:
            LevelZeroError: INVALID_KERNEL_HANDLE if the driver copies no kernel.
            MemoryError: there is no memory.
        """
        made.copies, kernels = self.copies.clone()
        made.alternatives = [kernels[get_address(copy)] for copy in self.alternatives]
        made.kept = list(self.kept)
        while len(made.commands) < len(self.commands):
            first = len(made.commands)
            again = self.commands[first].record_again
            new = again(made) if again is not None else [made.add_copy(self, first, kernels)]
            for command, old in zip(new, self.commands[first:], strict=False):
                command.waits, command.signal = old.waits, old.signal

    def add_copy(self, other: ListRecording, index: int, kernels: Mapping[int, Any]) -> ListCommand:
        """Append a copy of a command of another recording.

        Args:
            index: the command's number.
            kernels: the kernel that takes the place of each, by address.
        """
        if icd_lib.fl_copy_commands(self.array.native, other.array.array + index, 1):
            raise MemoryError("no memory for a command")
        self.array.count_added((), other.array.order_only[index])
        row, old = self.array.array[index], other.commands[index]
        row.kernel = kernels.get(get_address(row.kernel), row.kernel)
        launch = old.launch
        if launch is not None:
            launch = replace(launch, arguments=dict(launch.arguments))
        return self._add(replace(old, launch=launch))

    # parts

    def note_change(self) -> None:
        """Note that events of commands have changed."""
        self._shape = None

    def list_parts(self) -> list[ListPart]:
        """Return the list's parts, which are built anew only if their order has changed."""
        self.take()
        if self._shape is not None and self._parts is not None:
            return self._parts
        before, dependencies = self._parts, self.array.dependencies[:]
        parts = self._divide()
        same = (
            before is not None
            and dependencies == self.array.dependencies
            and [(part.first, part.end, list(part.timed)) for part in before]
            == [(part.first, part.end, list(part.timed)) for part in parts]
        )
        if same and before is not None:
            for old, new in zip(before, parts, strict=True):
                new.buffer = old.buffer
        else:
            self.drop_buffers()
            self._build(parts)
        self._parts, self._shape = parts, True
        return parts

    def _divide(self) -> list[ListPart]:
        parts = [ListPart(0, 0)]
        signaled: dict[ZeEvent, Sequence[int]] = {}  # by this list: after which commands
        after: tuple[int, ...] = ()  # what everything that follows comes after
        since: list[int] = []  # the commands since the last barrier
        last: dict[int, int] = {}  # the last command of each list
        for command in self.commands:
            index, part = command.index, parts[-1]
            known = {event for event in part.waits if event not in part.effects}.union(signaled)
            outside = [event for event in command.waits if event not in known]
            by_host = command.run is not None or part.run is not None
            if outside or by_host or command.counts is not part.counts:
                if part.end > part.first or part.effects:
                    part = ListPart(index, index)
                    parts.append(part)
                part.waits += (event for event in outside if event not in part.waits)
            part.end, part.run, part.reads = index + 1, command.run, command.reads
            part.counts = command.counts
            needed = {number for event in command.waits for number in signaled.get(event, ())}
            if self.in_order:
                own, last[command.list_number] = last.get(command.list_number), index
                others = {
                    number
                    for number in needed
                    if self.commands[number].list_number != command.list_number
                }
                before = tuple(sorted({*others} | ({own} if own is not None else set())))
            elif command.role in ("barrier", "signal"):
                before = tuple(sorted({*since, *after, *needed}))
            else:
                before = tuple(sorted({*after, *needed}))
            self.array.dependencies[index] = before
            if command.role == "barrier":
                after, since = (index,), []
            elif command.role == "wait":
                after = (*after, index)
            else:
                since.append(index)
            self._note_effect(command, part, signaled)
        return parts

    def _note_effect(
        self, command: ListCommand, part: ListPart, signaled: dict[ZeEvent, Sequence[int]]
    ) -> None:
        event = command.signal
        if event is None:
            return
        part.effects.pop(event, None)  # the last effect comes last
        part.effects[event] = command.role != "reset"
        if command.role == "reset":
            signaled.pop(event, None)
            return
        signaled[event] = (command.index,)
        if event.has_times:
            if command.role == "command":
                part.timed[command.index] = event
            else:
                part.timed_by_end.append(event)

    def _build(self, parts: Sequence[ListPart]) -> None:
        array, self.built = self.array, object()
        exports = [index for part in parts for index in part.timed]
        commands = CommandList(
            self.context.ur.cl,
            [self.device.ur.cl],
            array.array,
            array.order,
            (array, self.copies, self.kept),
            updatable=self.updatable or any(part.counts is not None for part in parts),
            alternatives=[get_address(copy) for copy in self.alternatives],
            memory=get_memory_functions(self.context.ur),
            exports=exports,
        )
        for part in parts:
            own = commands.part(part.first, part.end)
            if own.count:
                part.buffer = CommandBuffer(own)

    def list_steps(self) -> list[StreamStep]:
        """Return what a stream does to run it once."""
        return [step for part in self.list_parts() for step in self._list_part_steps(part)]

    def _list_part_steps(self, part: ListPart) -> Iterator[StreamStep]:
        if part.counts is None:
            yield self._make_step(part)
            return
        reading = CountsReading(part.counts)
        yield StreamStep(part.waits, reading.run)
        step = self._make_step(part, reading)
        step.waits = [reading.done]
        yield step

    def _make_step(self, part: ListPart, reading: CountsReading | None = None) -> StreamStep:
        buffer, built = part.buffer, self.built
        own = self.commands[part.first : part.end]
        launches = [command for command in own if command.launch is not None]

        def run(stream: Stream, step: StreamStep, waits: Sequence[int]) -> int:
            assert buffer is not None
            if reading is not None:
                self._put_counts(buffer, part.first, launches, reading.read_counts())
            code, end, failed, events = buffer.enqueue(stream.cl, 1, waits)
            if self.built is not built:  # it was dropped while the step waited for an event
                self._keep(buffer)
            if code:
                where = f"Command {failed} could not be enqueued." if failed >= 0 else ""
                raise opencl_error(code, "a command list", where)
            step.times = [stream.make_end(event) for event in events]
            return end

        return StreamStep(
            part.waits,
            part.run or (run if buffer is not None else None),
            list(part.effects.items()),
            timed=[*part.timed.values(), *part.timed_by_end],
            reads=part.reads,
        )

    def _put_counts(
        self,
        buffer: CommandBuffer,
        first: int,
        launches: Sequence[ListCommand],
        counts: Sequence[tuple[int, int, int]],
    ) -> None:
        """Give launches their group counts.

        Args:
            first: the place of its first command.
            counts: the group counts of each.

        Raises:
            OpenCLError: an engine refuses them.
        """

        def change() -> dict[int, bool]:
            for command, triple in zip(launches, counts, strict=True):
                assert command.launch is not None
                shape = replace(command.launch.shape, counts=triple)
                shape.put(self.array.array + command.index)
            return dict.fromkeys(numbers, False)

        numbers = [command.index - first for command in launches]
        buffer.plans.change(numbers, change, "a launch whose group count is in memory")

    def drop_buffers(self) -> None:
        """Drop the command-buffers. What is enqueued runs to its end."""
        parts, self._parts, self._shape, self.built = self._parts, None, None, None
        for part in parts or ():
            if part.buffer is not None:
                self._keep(part.buffer)

    def _keep(self, buffer: CommandBuffer) -> None:
        """Keep what was built until its last enqueue has ended."""
        buffer.keep(_unfinished, (buffer, self.array, self.copies, self.kept))
