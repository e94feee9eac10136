"""Updates of finalized command-buffers of the adapter on Level Zero, by mutable command lists.

An update waits until the last enqueue has ended. Everything that it asks for is checked before
anything changes: kernels take their new arguments for a moment, because only the driver knows their
sizes. Then the changes are collected, and made when the list is closed.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any, Final

from ....loader.ur.abi import URError
from ...sdk.command_updates import (
    NewSizes,
    declare_updates,
    find_launch_command,
    read_new_arguments,
    read_new_kernel,
    read_sizes,
)
from ...sdk.conversions import failure
from ...sdk.kernel_arguments import URKernelArgument
from ..core import LevelZeroError, adapter, make_handle_array, make_struct
from ..events import LZEvent
from ..kernels import GroupCount, LaunchSizes, LZKernel, encode_argument
from .command_buffers import LZCommandBuffer, LZCommandEvent, get_launch_state
from .records import LaunchState, LZCommand

_INDEX: Final = "INVALID_KERNEL_ARGUMENT_INDEX"


class _Draft:
    """What a launch will be."""

    def __init__(self, command: LZCommand) -> None:
        self.command, self.old = command, get_launch_state(command.record)
        self.kernel, self.sizes = self.old.kernel, self.old.sizes
        self.arguments: dict[int, URKernelArgument] | None = dict(self.old.arguments)

    def read(self, update: Any) -> None:
        """Read a ur_exp_command_buffer_update_kernel_launch_desc_t. Raises URError."""
        kernel = read_new_kernel(adapter, update, self.command.kernels)
        if kernel is not None:
            self._take_kernel(kernel)
        self._take_sizes(read_sizes(update, self.sizes.dim))
        for index, argument in read_new_arguments(adapter, update):
            if index >= self.kernel.argument_count:
                raise failure(_INDEX, f"{self.kernel.name} has no argument {index}")
            self.arguments = {**(self.arguments or {}), index: argument}

    def _take_kernel(self, kernel: LZKernel) -> None:
        if kernel is self.kernel:
            return
        known = self.command.before.get(kernel, {})
        self.kernel = kernel
        self.arguments = dict(self.old.arguments if kernel is self.old.kernel else known)

    def _take_sizes(self, new: NewSizes) -> None:
        old, dim = self.sizes, new.dim
        if new.local is not None and not all(new.local):
            raise failure("INVALID_WORK_GROUP_SIZE", "a work-group has one work-item at least")
        kept = old.local if new.size is None else None
        offset, size = new.offset or old.offset[:dim], new.size or old.total[:dim]
        self.sizes = LaunchSizes.from_program(dim, offset, size, new.local or kept)

    def finish(self) -> LaunchState:
        """Check the draft, and return what the launch will be.

        Raises:
            URError: INVALID_VALUE, and what `LZKernel.find_shape` raises.
            LevelZeroError: the driver refuses an argument.
        """
        kernel, arguments = self.kernel, self.arguments or {}
        if len(arguments) != kernel.argument_count:
            raise failure("INVALID_VALUE", "another kernel needs all of its arguments")
        _check_arguments(kernel, arguments)
        shape = kernel.find_shape(self.command.buffer.device, self.sizes)
        return LaunchState(kernel, arguments, self.sizes, shape)


def _check_arguments(kernel: LZKernel, arguments: dict[int, URKernelArgument]) -> None:
    """Raise LevelZeroError for arguments that the driver refuses."""
    with kernel.lock:
        before = dict(kernel.arguments)
        kernel.set(list(arguments.items()))
        kernel.set(list(before.items()))
        kernel.arguments = before


def _update_launches(buffer: LZCommandBuffer, updates: Any, count: int) -> None:
    drafts: dict[LZCommand, _Draft] = {}
    for number in range(count):
        update = updates[number]
        command = find_launch_command(adapter, buffer, update.hCommand)
        drafts.setdefault(command, _Draft(command)).read(update)
    states = {command: draft.finish() for command, draft in drafts.items()}
    with _open_for_changes(buffer):
        _emit_all(states)
    for command, state in states.items():
        old = get_launch_state(command.record)
        command.before[old.kernel] = old.arguments
        command.record.launch = state


@contextmanager
def _open_for_changes(buffer: LZCommandBuffer) -> Iterator[None]:
    """Change a command-buffer that does not run. The changes are made at the end."""
    with buffer.lock:
        buffer.settle()
        try:
            yield
        finally:
            buffer.close_lists()


def _emit_all(states: dict[LZCommand, LaunchState]) -> None:
    """Tell the driver what launches will be.

    Raises:
        LevelZeroError: the driver refuses one. Then all are what they were.
    """
    begun: list[LZCommand] = []
    try:
        for command, state in states.items():
            begun.append(command)
            _emit(command, get_launch_state(command.record), state)
    except BaseException:
        for command in begun:  # of the last one a part may be changed
            with suppress(LevelZeroError, URError):  # memory that it had may be gone
                _emit(command, states[command], get_launch_state(command.record))
        raise


def _emit(command: LZCommand, old: LaunchState, state: LaunchState) -> None:
    """Tell the driver what a launch will be, and was before. Raises LevelZeroError."""
    buffer, record = command.buffer, command.record
    made, identifier = record.list, record.identifier
    assert made is not None
    is_other = state.kernel is not old.kernel
    if is_other:
        handle = state.kernel.get_handle(buffer.device)
        identifiers = (ctypes.c_uint64 * 1)(identifier)
        routine = "zeCommandListUpdateMutableCommandKernelsExp"
        made.change(routine, 1, identifiers, make_handle_array([handle]))
    chain: Any = None
    for index, argument in state.arguments.items():
        if is_other or old.arguments.get(index) != argument:
            size, value = encode_argument(buffer.context, index, argument)
            chain = make_struct(
                "mutable_kernel_argument_exp_desc",
                commandId=identifier,
                argIndex=index,
                argSize=size,
                pArgValue=value,
                pNext=chain,
            )
    shape = state.shape
    if is_other or shape != old.shape:
        parts: list[tuple[str, dict[str, Any]]] = [
            ("group_count", {"pGroupCount": GroupCount(*shape.counts)}),
            ("group_size", dict(zip(_SIZE, shape.local, strict=True))),
        ]
        if is_other or any(shape.offset + old.shape.offset):
            parts.append(("global_offset", dict(zip(_OFFSET, shape.offset, strict=True))))
        for name, fields in parts:
            chain = make_struct(
                f"mutable_{name}_exp_desc", commandId=identifier, pNext=chain, **fields
            )
    if chain is not None:
        desc = make_struct("mutable_commands_exp_desc", pNext=chain)
        routine = "zeCommandListUpdateMutableCommandsExp"
        made.change(routine, ctypes.byref(desc))


_SIZE: Final = "groupSizeX", "groupSizeY", "groupSizeZ"
_OFFSET: Final = "offsetX", "offsetY", "offsetZ"


# events


def _replace_signal(command: LZCommand, old: LZCommandEvent) -> LZCommandEvent:
    """Give a command another event to signal. What comes after it waits for that one."""
    buffer, record = command.buffer, command.record
    if record.list is None or not record.identifier:
        raise failure("UNSUPPORTED_FEATURE", "the driver cannot change this command's events")
    cell, before = buffer.take_cell(), record.cell
    with _open_for_changes(buffer):
        made, routine = record.list, "zeCommandListUpdateMutableCommandSignalEventExp"
        made.change(routine, record.identifier, cell.ze)
        record.cell = cell
        try:
            for other in buffer.records:
                if record.index in other.after:
                    buffer.update_waits(other)
        except Exception:
            record.cell = before
            made.change(routine, record.identifier, before and before.ze)
            raise
    cell.signal()
    return LZCommandEvent(cell, old.command, buffer, record.index)


def _replace_waits(command: LZCommand, events: list[LZEvent]) -> None:
    buffer, record = command.buffer, command.record
    for event in events:
        event.check_outside()
    before, record.outside = record.outside, [event.cell for event in events]
    try:
        with _open_for_changes(buffer):
            buffer.update_waits(record)
    except BaseException:
        record.outside = before
        raise


declare_updates(adapter, _update_launches, _replace_signal, _replace_waits)
