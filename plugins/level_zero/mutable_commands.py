"""Commands of mutable lists: what can be changed of them, and what has been.

`mutable.py` has the entry points."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from ...icd.calls import get_address
from ..sdk._native_ze import ffi
from ..sdk.kernel_arguments import URKernelArgument
from .core import ZE, make_failure
from .events import ZeEvent
from .kernels import LaunchShape, ZeKernel
from .lists import ZeCommandList
from .recording import ListCommand, ListLaunch

FLAGS: Final = {
    name: ZE[f"ZE_MUTABLE_COMMAND_EXP_FLAG_{name}"]
    for name in (
        *("KERNEL_ARGUMENTS", "GROUP_COUNT", "GROUP_SIZE", "GLOBAL_OFFSET"),
        *("SIGNAL_EVENT", "WAIT_EVENTS", "KERNEL_INSTRUCTION"),
    )
}
Triple = tuple[int, int, int]


@dataclass(frozen=True)
class LaunchDraft:
    """The new state of a launch. None: a part that nothing has set yet.

    Attributes:
        counts, sizes, offsets: see `LaunchShape`.
    """

    kernel: ZeKernel
    arguments: dict[int, URKernelArgument]
    counts: Triple | None
    sizes: Triple | None
    offsets: Triple

    @classmethod
    def from_launch(cls, launch: ListLaunch) -> LaunchDraft:
        """Return a draft without changes."""
        shape = launch.shape
        arguments = dict(launch.arguments)
        return cls(launch.kernel, arguments, shape.counts, shape.sizes, shape.offsets)

    def finish(self) -> ListLaunch:
        """Return the launch.

        Raises:
            LevelZeroError: INVALID_ARGUMENT if something is not given,
                INVALID_GROUP_SIZE_DIMENSION.
        """
        name = self.kernel.name
        if len(self.arguments) != self.kernel.ur.argument_count:
            raise make_failure("INVALID_ARGUMENT", f"not all arguments of {name} are given")
        if self.counts is None:
            raise make_failure("INVALID_ARGUMENT", f"the group count of {name} is not given")
        sizes = self.sizes or self.kernel.sizes
        self.kernel.check_group(sizes)
        shape = LaunchShape(self.counts, sizes, self.offsets)
        return ListLaunch(self.kernel, self.arguments, shape)


class MutableCommand:
    """A command that can be changed.

    Args:
        flags: what can be changed, ze_mutable_command_exp_flags_t.
        kernels: the kernels that it may launch; nothing if that is not changed.

    Attributes:
        command: the command, None before it is appended.
        draft: what its launch will be, None if that is not changed.
        row: what C knows of it (`fl_ze_command`), None before the list is closed.
    """

    def __init__(
        self, owner: ZeCommandList, number: int, flags: int, kernels: Sequence[ZeKernel]
    ) -> None:
        self.owner, self.number, self.flags, self.kernels = owner, number, flags, tuple(kernels)
        self.command: ListCommand | None = None
        self.draft: LaunchDraft | None = None
        self.row: Any = None
        self._signal: ZeEvent | None = None
        self._wait_count = 0

    @property
    def takes_arguments(self) -> bool:
        """Return whether the command's arguments can be set after it is appended."""
        return bool(self.flags & FLAGS["KERNEL_ARGUMENTS"])

    def check_kernel(self, kernel: ZeKernel) -> None:
        """Raise LevelZeroError (INVALID_KERNEL_HANDLE) for a kernel of other commands."""
        if self.kernels and kernel not in self.kernels:
            raise make_failure(
                "INVALID_KERNEL_HANDLE", f"{kernel.name} is not one of the command's kernels"
            )

    def begin(self, command: ListCommand) -> None:
        """Take the command that was appended."""
        self.command, self._signal = command, command.signal
        self._wait_count = len(command.waits)
        assert self.owner.mutable is not None
        self.owner.mutable[self.number] = self
        if command.launch is not None and len(self.kernels) > 1:
            recording = self.owner.recording
            for kernel in self.kernels:
                copy = recording.copies.get_copy(kernel, _find_pointers(kernel))
                add_copy(recording.alternatives, copy)

    def clone(self, owner: ZeCommandList) -> MutableCommand:
        """Return the same command of a clone of its list."""
        made = MutableCommand(owner, self.number, self.flags, self.kernels)
        assert self.command is not None
        made.command = owner.recording.commands[self.command.index]
        made._signal, made._wait_count = self._signal, self._wait_count
        return made

    def check(self, flag: str) -> ListCommand:
        """Return the command.

        Raises:
            LevelZeroError: INVALID_ARGUMENT if this cannot be changed.
        """
        assert self.command is not None
        if not self.flags & FLAGS[flag]:
            raise make_failure(
                "INVALID_ARGUMENT", f"command {self.number} was appended without {flag}"
            )
        if flag == "GROUP_COUNT" and self.command.counts is not None:
            raise make_failure("INVALID_ARGUMENT", "the group count is read from memory")
        return self.command

    def make_draft(self) -> LaunchDraft:
        """Return a draft of the launch. Raises LevelZeroError (INVALID_ARGUMENT) without one."""
        command = self.command
        if command is None or command.launch is None:
            raise make_failure("INVALID_ARGUMENT", f"command {self.number} is not a launch")
        self.update_from_c()
        return self.draft or LaunchDraft.from_launch(command.launch)

    @property
    def launch_was_changed(self) -> bool:
        """Return whether arguments or sizes were changed since the list was closed."""
        return self.draft is not None or bool(self.row and self.row.dirty)

    def update_from_c(self) -> None:
        """Learn which arguments C has changed."""
        row, command = self.row, self.command
        if not row or not row.changed or command is None or command.launch is None:
            return
        launch, present = command.launch, self.owner.recording.array.array + command.index
        changed, row.changed = row.changed, 0
        for index in range(changed.bit_length()):
            if changed >> index & 1:
                launch.arguments[index] = launch.kernel.read_argument_of_launch(present, index)

    def write_for_c(self, row: Any, buffer: Any, number: int) -> None:
        """Fill the row by which C changes the command.

        Args:
            row: its `fl_ze_command`.
            buffer: the `fl_buffer *` that runs it.
        """
        self.row = row
        row.flags, row.number = self.flags, number
        row.buffer = ffi.cast("struct fl_buffer *", get_address(buffer))
        self.write_kernel_for_c()

    def write_kernel_for_c(self) -> None:
        """Write the command's kernel into the row that C reads."""
        row, command = self.row, self.command
        if row is None or command is None or command.launch is None:
            return
        row.index, row.kernel = command.index, command.launch.kernel.in_c.struct
        row.in_python = not (row.kernel.kernel and command.launch.is_complete)

    def put_signal(self, event: ZeEvent | None) -> None:
        """Give the command another event to signal, or none."""
        command = self.check("SIGNAL_EVENT")
        if event is not None and (
            self._signal is None or not self._signal.is_interchangeable_with(event)
        ):
            raise make_failure(
                "INVALID_ARGUMENT", "the event is not like the one that the command was given"
            )
        command.signal = event

    def put_waits(self, events: Sequence[ZeEvent | None] | None, count: int) -> None:
        """Let the command wait for other events. None in the place of one means no event."""
        command = self.check("WAIT_EVENTS")
        if (count or events is not None) and count != self._wait_count:
            raise make_failure(
                "INVALID_SIZE", f"{count} events; the command was given {self._wait_count}"
            )
        self.owner.check_events(events or ())
        command.waits = [event for event in events or () if event is not None]


def _find_pointers(kernel: ZeKernel) -> dict[int, URKernelArgument]:
    """Return the arguments of a kernel that are pointers, as if they were set."""
    pointer = URKernelArgument(URKernelArgument.POINTER, 0, 0)
    return dict.fromkeys(kernel.pointer_indices, pointer)


def add_copy(copies: list[Any], copy: Any) -> bool:
    """Add a kernel to a list, unless it is there. Returns whether it was added."""
    if any(get_address(copy) == get_address(one) for one in copies):
        return False
    copies.append(copy)
    return True
