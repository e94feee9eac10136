"""Updates of finalized command-buffers of the OpenCL adapter: new arguments, sizes, kernels and
events of commands.

An update does all or nothing. Everything that is asked for is checked before anything changes. What
is enqueued already runs as it was enqueued. (Unified Runtime: EXP-COMMAND-BUFFER, "Updating
command-buffer commands".)

Most updates have new arguments and nothing else. C does these, without the GIL
(plugins/sdk/native/launches.c). It leaves every other update to Python, with nothing changed.
Python tries C once more, because another thread may have used the command-buffer meanwhile.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from ....icd._native import ffi as icd_ffi
from ....icd._native import lib as icd_lib
from ....icd.command_buffer.command_buffer import CommandBuffer
from ....icd.errors import check
from ....icd.errors import error as opencl_error
from ...sdk._native import ffi, lib
from ...sdk.command_updates import (
    NewSizes,
    declare_updates,
    find_launch_command,
    read_new_kernel,
    read_sizes,
)
from ...sdk.rules import check_count
from ..core import adapter, failure
from ..events import URCommandEvent, UREvent
from ..kernels import URKernel
from .arguments import make_argument_error
from .command_buffers import URCommand, URCommandBuffer

_CHANGES: Final = icd_ffi.typeof("fl_change[]")
_VALUES: Final = ffi.typeof("uintptr_t[]")
_NULL: Final = icd_ffi.NULL

#: What `fl_command.n` has for the dimensions that a launch lacks.
_ZEROS, _ONES = (0, 0, 0), (1, 1, 1)


def _make_work_sizes(
    dim: int, offset: Sequence[int], size: Sequence[int], local: Sequence[int] | None
) -> list[int]:
    """Return `fl_command.n` of a launch."""
    zeros, ones = _ZEROS[dim:], _ONES[dim:]
    return [*offset, *zeros, *size, *ones, *(_ZEROS[:dim] if local is None else local), *ones]


class _ChangedLaunch:
    """The sizes and the kernel that a command will have, for an update that changes them."""

    def __init__(self, command: URCommand) -> None:
        present = command.present
        self.command, self.kernel = command, command.kernel
        self.sizes = list(present.n[0:9])
        self.dim, self.local = present.work_dim, bool(present.has_local)
        self.offset = bool(present.has_offset)

    def read(self, update: Any, new: NewSizes) -> None:
        """Read what an update asks for.

        Args:
            update: the ur_exp_command_buffer_update_kernel_launch_desc_t.
            new: its sizes. With a new global size and no local size the driver chooses one.

        Raises:
            URError: INVALID_KERNEL, INVALID_VALUE, INVALID_WORK_GROUP_SIZE.
        """
        self.kernel = read_new_kernel(adapter, update, self.command.kernels) or self.kernel
        old, dim = self.sizes, new.dim
        kept = None if new.size or not self.local else old[6 : 6 + dim]
        device = self.command.buffer.device
        local = self.kernel.choose_group(device, dim, new.local or kept)
        self.sizes = _make_work_sizes(
            dim, new.offset or old[0:dim], new.size or old[3 : 3 + dim], local
        )
        self.kernel.check_group(device, local)
        self.dim, self.local, self.offset = dim, local is not None, self.offset or bool(new.offset)

    def commit(self, arguments: Any) -> bool:
        """Change the command in the array, and return whether there is another kernel.

        Args:
            arguments: the arguments (fl_arguments), if there is another kernel.
        """
        present = self.command.present
        present.n[0:9] = self.sizes
        present.work_dim, present.has_local, present.has_offset = self.dim, self.local, self.offset
        if self.kernel is self.command.kernel:
            return False
        self.command.arguments[self.command.kernel] = _copy_arguments(present.arguments)
        present.kernel = self.command.kernels[self.kernel]
        present.arguments, old = arguments, present.arguments
        icd_lib.fl_release_arguments(old)
        return True

    def settle(self) -> None:
        """Note in the command's handle that the change is made."""
        command = self.command
        command.dim = self.dim
        if self.kernel is not command.kernel:
            command.kernel = self.kernel
            lib.fl_describe(command.handle, command.describe_to_c())


class _Arguments:
    """The new arguments of an update.

    Args:
        update: the ur_exp_command_buffer_update_kernel_launch_desc_t.

    Raises:
        URError: an argument that the kernel does not take.
    """

    def __init__(self, command: URCommand, kernel: URKernel, update: Any) -> None:
        counts = update.numNewValueArgs, update.numNewPointerArgs, update.numNewMemObjArgs
        for count in counts:
            check_count(count, "INVALID_KERNEL_ARGUMENT_INDEX", "arguments")
        self.command, self.count = command, sum(counts)
        self.changes = icd_ffi.new(_CHANGES, self.count)
        self._room = ffi.new(_VALUES, self.count)  # what the changes point to
        is_present = kernel is command.kernel
        old = command.present.arguments if is_present else command.arguments.get(kernel, _NULL)
        index = ffi.new("uint32_t *")
        code = lib.fl_read_update(
            command.buffer.launches,
            update,
            _convert_pointer(old),
            kernel.argument_count,
            _convert_pointer(self.changes),
            self._room,
            index,
        )
        if code:
            raise make_argument_error(code, index[0], kernel)

    def commit(self) -> None:
        """Give the command these arguments. Raises OpenCLError."""
        at = self.command.buffer.commands.array + self.command.index
        for change in self.changes:
            code = icd_lib.fl_set_argument(at, change.index, change.kind, change.size, change.value)
            check(code, "urCommandBufferUpdateKernelLaunchExp")

    def list_indices(self) -> set[int]:
        """Return the indices of the arguments."""
        return {change.index for change in self.changes}


def _convert_pointer(pointer: Any) -> Any:
    """Return a pointer of icd's cffi module as one of ours."""
    return ffi.cast("void *", int(icd_ffi.cast("uintptr_t", pointer)))


def _get_runner(buffer: URCommandBuffer) -> CommandBuffer:
    """Return what runs a command-buffer that is finalized."""
    assert buffer.runner is not None
    return buffer.runner


def _update_launches(buffer: URCommandBuffer, updates: Any, count: int) -> None:
    runner, code = _get_runner(buffer), lib.FL_NOT_PLAIN
    with runner.plans.block_updates():
        if not runner.native.python_updates:
            code = lib.fl_update_plainly(buffer.launches, updates, count)
        if code == lib.FL_NOT_PLAIN:
            _update(buffer, [updates + number for number in range(count)])
        elif code:
            raise opencl_error(code, "urCommandBufferUpdateKernelLaunchExp")


def _update(buffer: URCommandBuffer, updates: list[Any]) -> None:
    """Make updates of any kind in their order. A command may have several."""
    launches: dict[URCommand, _ChangedLaunch] = {}
    arguments: list[_Arguments] = []
    for update in updates:
        command = find_launch_command(adapter, buffer, update.hCommand)
        kernel, launch, new = command.kernel, launches.get(command), update.hNewKernel
        sizes = read_sizes(update, launch.dim if launch else command.dim)
        if launch or any(sizes[1:]) or (new and new != kernel.handle) or sizes.dim != command.dim:
            launch = launches.setdefault(command, launch or _ChangedLaunch(command))
            before = launch.kernel
            launch.read(update, sizes)
            kernel = launch.kernel
            if kernel is not before:  # the earlier arguments were for the other kernel
                arguments = [one for one in arguments if one.command is not command]
        arguments.append(_Arguments(command, kernel, update))
    for command, launch in launches.items():
        if launch.kernel is not command.kernel and launch.kernel not in command.arguments:
            _check_complete(launch, arguments)
    _commit(buffer, launches, arguments)


def _check_complete(launch: _ChangedLaunch, arguments: list[_Arguments]) -> None:
    """Check that a kernel that the command has not launched yet gets all its arguments.

    Raises:
        URError: INVALID_VALUE if it does not.
    """
    given = [one.list_indices() for one in arguments if one.command is launch.command]
    if set().union(*given) != set(range(launch.kernel.argument_count)):
        raise failure("INVALID_VALUE", "another kernel needs all of its arguments")


def _commit(
    buffer: URCommandBuffer, launches: dict[URCommand, _ChangedLaunch], arguments: list[_Arguments]
) -> None:
    """Make changes that were checked.

    Raises:
        OpenCLError: an engine refuses them. Then nothing has changed.
    """

    def change() -> dict[int, bool]:
        changed = _change_launches(launches, arguments) if launches else {}
        for new in arguments:
            changed.setdefault(new.command.index, False)
            new.commit()
        return changed

    numbers = [new.command.index for new in arguments]
    _get_runner(buffer).plans.change(numbers, change, "urCommandBufferUpdateKernelLaunchExp")
    for launch in launches.values():
        launch.settle()


def _change_launches(
    launches: dict[URCommand, _ChangedLaunch], arguments: list[_Arguments]
) -> dict[int, bool]:
    """Give commands other sizes and kernels.

    Returns:
        The numbers of the commands, with whether they launch another kernel now.
    """
    lists = {
        command: _make_arguments(arguments, launch)
        for command, launch in launches.items()
        if launch.kernel is not command.kernel
    }
    return {
        command.index: launch.commit(lists.get(command)) for command, launch in launches.items()
    }


def _make_arguments(arguments: list[_Arguments], launch: _ChangedLaunch) -> Any:
    """Return the arguments of another kernel: those of its earlier launch, updated."""
    made, count = launch.command.arguments.get(launch.kernel, _NULL), launch.kernel.argument_count
    made = _copy_arguments(made) if made else _NULL
    for new in arguments:
        if new.command is launch.command:
            made = _make_owned(icd_lib.fl_change_arguments(made, count, new.changes, new.count))
    icd_ffi.gc(made, None)  # the command owns it from now on
    return made


def _copy_arguments(arguments: Any) -> Any:
    """Copy arguments. The copy is released when it is dropped."""
    count = icd_lib.fl_argument_count(arguments)
    return _make_owned(icd_lib.fl_change_arguments(arguments, count, _NULL, 0))


def _make_owned(made: Any) -> Any:
    if not made:
        raise MemoryError("no memory for a launch's arguments")
    return icd_ffi.gc(made, icd_lib.fl_release_arguments)


def _replace_signal(command: URCommand, old: URCommandEvent) -> URCommandEvent:
    return URCommandEvent(command.buffer.context, old.command, old.buffer, command.index)


def _replace_waits(command: URCommand, events: list[UREvent]) -> None:
    command.buffer.waits[command.index] = events


declare_updates(adapter, _update_launches, _replace_signal, _replace_waits)
