"""Updates of finalized command-buffers, by mutable command lists.

An update waits until the last enqueue has ended. Everything that it asks for is checked before
anything changes: kernels take their new arguments for a moment, because only the driver knows their
sizes. Then the changes are collected, and made when the list is closed.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

from ....loader.ze.abi import LevelZeroError
from ...sdk._native import ffi
from ...sdk.adapter import live_object
from ...sdk.conversions import failure
from ...sdk.kernel_arguments import HANDLE_SIZE, URKernelArgument, value_argument
from ...sdk.rules import LONGEST, check_count
from ..core import adapter, address_of, struct, words
from ..events import LZEvent
from ..kernels import GroupCount, LaunchSizes, LZKernel, argument_bytes
from .appends import split_waits
from .command_buffers import LZCommandBuffer, LZCommandEvent, launch_state
from .records import LaunchState, LZCommand

_INDEX: Final = "INVALID_KERNEL_ARGUMENT_INDEX"


class _Draft:
    """What a launch will be.

    Args:
        command: the command.
    """

    def __init__(self, command: LZCommand) -> None:
        self.command, self.old = command, launch_state(command.record)
        self.kernel, self.sizes = self.old.kernel, self.old.sizes
        self.arguments: dict[int, URKernelArgument] | None = dict(self.old.arguments)

    def read(self, update: Any) -> None:
        """Read a ur_exp_command_buffer_update_kernel_launch_desc_t. Raises URError."""
        if update.hNewKernel:
            self._take_kernel(
                live_object(adapter, "ur_kernel_handle_t", update.hNewKernel, "INVALID_KERNEL")
            )
        self._take_sizes(update)
        for index, argument in _arguments_of(update):
            if index >= self.kernel.argument_count:
                raise failure(_INDEX, f"{self.kernel.name} has no argument {index}")
            self.arguments = {**(self.arguments or {}), index: argument}

    def _take_kernel(self, kernel: LZKernel) -> None:
        if kernel is self.kernel:
            return
        if kernel not in self.command.kernels:
            raise failure(
                "INVALID_VALUE",
                "the kernel is not one that the command was given as an alternative",
            )
        known = self.command.before.get(kernel, {})
        self.kernel = kernel
        self.arguments = dict(self.old.arguments if kernel is self.old.kernel else known)

    def _take_sizes(self, update: Any) -> None:
        dim, old = update.newWorkDim, self.sizes
        if not 1 <= dim <= 3:
            raise failure("INVALID_WORK_DIMENSION")
        offset, total, local = (
            ffi.unpack(pointer, dim) if pointer else None
            for pointer in (
                update.pNewGlobalWorkOffset,
                update.pNewGlobalWorkSize,
                update.pNewLocalWorkSize,
            )
        )
        if dim != old.dim and not (offset and total):
            raise failure(
                "INVALID_VALUE",
                "another number of dimensions needs a new offset and a new global size",
            )
        if total is not None and not all(total):
            raise failure("INVALID_VALUE", "an update cannot make a launch empty")
        kept = old.local if total is None else None
        if local is not None and not all(local):
            raise failure("INVALID_WORK_GROUP_SIZE", "a work-group has one work-item at least")
        self.sizes = LaunchSizes.of(
            dim, offset or old.offset[:dim], total or old.total[:dim], local or kept
        )

    def finish(self) -> LaunchState:
        """Check it, and return what the launch will be.

        Raises:
            URError: INVALID_VALUE, and what `LZKernel.shape` raises.
            LevelZeroError: the driver refuses an argument.
        """
        kernel, arguments = self.kernel, self.arguments or {}
        if len(arguments) != kernel.argument_count:
            raise failure("INVALID_VALUE", "another kernel needs all of its arguments")
        _check_arguments(kernel, arguments)
        shape = kernel.shape(self.command.buffer.device, self.sizes)
        return LaunchState(kernel, arguments, self.sizes, shape)


def _check_arguments(kernel: LZKernel, arguments: dict[int, URKernelArgument]) -> None:
    """Raise LevelZeroError for arguments that the driver refuses."""
    with kernel.lock:
        before = dict(kernel.arguments)
        kernel.set(list(arguments.items()))
        kernel.set(list(before.items()))
        kernel.arguments = before


def _arguments_of(update: Any) -> Iterator[tuple[int, URKernelArgument]]:
    """Yield the new arguments of an update, with their indices. Raises URError."""
    kinds = (
        (update.numNewValueArgs, update.pNewValueArgList, _value_of),
        (update.numNewPointerArgs, update.pNewPointerArgList, _pointer_of),
        (update.numNewMemObjArgs, update.pNewMemObjArgList, _memory_of),
    )
    for count, rows, read in kinds:
        check_count(count, _INDEX, "arguments")
        if count and not rows:
            raise failure("INVALID_NULL_POINTER", "there are to be new arguments")
        for number in range(count):
            yield rows[number].argIndex, read(rows[number])


def _value_of(row: Any) -> URKernelArgument:
    return value_argument(row.argSize, address_of(row.pNewValueArg))


def _pointer_of(row: Any) -> URKernelArgument:
    place = address_of(row.pNewPointerArg)  # where the pointer is
    value = ctypes.c_void_p.from_address(place).value if place else 0
    return URKernelArgument(URKernelArgument.POINTER, 0, value or 0)


def _memory_of(row: Any) -> URKernelArgument:
    handle, kind = row.hNewMemObjArg, URKernelArgument.MEM
    found = (
        live_object(adapter, "ur_mem_handle_t", handle, "INVALID_MEM_OBJECT") if handle else None
    )
    return URKernelArgument(kind, HANDLE_SIZE, found)


@adapter.entry
def urCommandBufferUpdateKernelLaunchExp(
    hCommandBuffer: LZCommandBuffer, numKernelUpdates: int, pUpdateKernelLaunch: Any
) -> None:
    buffer = hCommandBuffer
    buffer.check_updatable()
    if not 0 < numKernelUpdates <= LONGEST:
        raise failure("INVALID_SIZE", f"{numKernelUpdates} updates")
    drafts: dict[LZCommand, _Draft] = {}
    for number in range(numKernelUpdates):
        update = pUpdateKernelLaunch[number]
        command = _launch_command(buffer, update.hCommand)
        drafts.setdefault(command, _Draft(command)).read(update)
    states = {command: draft.finish() for command, draft in drafts.items()}
    with _changing(buffer):
        for command, state in states.items():
            _emit(buffer, command, state)
    for command, state in states.items():
        old = launch_state(command.record)
        command.before[old.kernel] = old.arguments
        command.record.launch = state


def _launch_command(buffer: LZCommandBuffer, handle: int) -> LZCommand:
    code = "INVALID_COMMAND_BUFFER_COMMAND_HANDLE_EXP"
    command = live_object(
        adapter, LZCommand.type, handle, code if handle else "INVALID_NULL_HANDLE"
    )
    if command.buffer is not buffer or command.record.launch is None:
        raise failure(code, "it is not a launch of this command-buffer")
    return command


@contextmanager
def _changing(buffer: LZCommandBuffer) -> Iterator[None]:
    """Change a command-buffer that does not run. The changes are made at the end."""
    with buffer.lock:
        buffer.settle()
        try:
            yield
        finally:
            buffer.close_lists()


def _emit(buffer: LZCommandBuffer, command: LZCommand, state: LaunchState) -> None:
    """Tell the driver what a launch will be. Raises LevelZeroError."""
    record, old = command.record, launch_state(command.record)
    made, identifier = record.list, record.identifier
    assert made is not None
    is_other = state.kernel is not old.kernel
    if is_other:
        handle = state.kernel.on(buffer.device)
        identifiers = (ctypes.c_uint64 * 1)(identifier)
        routine = "zeCommandListUpdateMutableCommandKernelsExp"
        made.change(routine, 1, identifiers, words([handle]))
    chain: Any = None
    for index, argument in state.arguments.items():
        if is_other or old.arguments.get(index) != argument:
            size, value = argument_bytes(buffer.context, index, argument)
            chain = struct(
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
            chain = struct(f"mutable_{name}_exp_desc", commandId=identifier, pNext=chain, **fields)
    if chain is not None:
        desc = struct("mutable_commands_exp_desc", pNext=chain)
        routine = "zeCommandListUpdateMutableCommandsExp"
        made.change(routine, ctypes.byref(desc))


_SIZE: Final = "groupSizeX", "groupSizeY", "groupSizeZ"
_OFFSET: Final = "offsetX", "offsetY", "offsetZ"


# events


@adapter.entry
def urCommandBufferUpdateSignalEventExp(hCommand: LZCommand) -> LZEvent:
    """Give a command another event to signal. What comes after it waits for that one."""
    buffer, record = hCommand.buffer, hCommand.record
    buffer.check_updatable()
    old = buffer.signals.get(record.index)
    if old is None or record.list is None:
        raise failure("INVALID_OPERATION", "the command was appended without an event")
    if not record.identifier:
        raise failure("UNSUPPORTED_FEATURE", "the driver cannot change this command's events")
    cell, before = buffer.context.take_cell(buffer.profiling), record.cell
    with _changing(buffer):
        made, routine = record.list, "zeCommandListUpdateMutableCommandSignalEventExp"
        made.change(routine, record.identifier, cell.ze)
        record.cell = cell
        try:
            for other in buffer.records:
                if record.index in other.after:
                    buffer.rewire(other)
        except Exception:
            record.cell = before
            made.change(routine, record.identifier, before and before.ze)
            raise
    cell.signal()
    buffer.signals[record.index] = event = LZCommandEvent(cell, old.command, buffer, record.index)
    return event


@adapter.entry
def urCommandBufferUpdateWaitEventsExp(hCommand: LZCommand, phEventWaitList: list[LZEvent]) -> None:
    """Change the events that a command waits for.

    The events of commands of the same command-buffer are edges, which cannot be changed.
    """
    buffer, record = hCommand.buffer, hCommand.record
    buffer.check_updatable()
    inside, outside = split_waits(buffer, phEventWaitList)
    if len(phEventWaitList) != len(record.inside) + len(record.outside):
        raise failure(
            "INVALID_EVENT_WAIT_LIST", "a command waits for as many events as it was appended with"
        )
    buffer.context.check_same("an event of the wait list", *phEventWaitList)
    if sorted(inside) != sorted(record.inside):
        raise failure(
            "UNSUPPORTED_FEATURE", "the order of a command-buffer's own commands cannot be updated"
        )
    if not outside:
        return
    before, record.outside = record.outside, outside
    try:
        with _changing(buffer):
            buffer.rewire(record)
    except LevelZeroError:
        record.outside = before
        raise
