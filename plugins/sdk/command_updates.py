"""Updates of launches in command-buffers: what a program asks for, read and checked.

(Unified Runtime: EXP-COMMAND-BUFFER, "Updating command-buffer commands".)
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterator
from typing import Any, Final, NamedTuple

from ._native import ffi
from .adapter import Adapter, get_live_object
from .command_buffers import CommandBufferObject, CommandObject
from .conversions import failure
from .kernel_arguments import HANDLE_SIZE, URKernelArgument, make_value_argument
from .rules import check_count

_BAD_COMMAND: Final = "INVALID_COMMAND_BUFFER_COMMAND_HANDLE_EXP"
_BAD_ARGUMENT: Final = "INVALID_KERNEL_ARGUMENT_INDEX"


class NewSizes(NamedTuple):
    """The work sizes that an update asks for, None where it keeps the present ones."""

    dim: int
    offset: list[int] | None
    size: list[int] | None
    local: list[int] | None


def read_sizes(update: Any, dim: int) -> NewSizes:
    """Read the work sizes of an update.

    Args:
        update: a ur_exp_command_buffer_update_kernel_launch_desc_t.

    Raises:
        URError: INVALID_WORK_DIMENSION, INVALID_VALUE.
    """
    new = update.newWorkDim
    if not 1 <= new <= 3:
        raise failure("INVALID_WORK_DIMENSION")
    pointers = update.pNewGlobalWorkOffset, update.pNewGlobalWorkSize, update.pNewLocalWorkSize
    sizes = NewSizes(new, *(ffi.unpack(one, new) if one else None for one in pointers))
    if new != dim and not (sizes.offset and sizes.size):
        raise failure(
            "INVALID_VALUE", "another number of dimensions needs a new offset and a new global size"
        )
    return sizes


def read_new_kernel(adapter: Adapter, update: Any, kernels: Any) -> Any:
    """Return the kernel that an update asks for, None for the present one.

    Args:
        update: a ur_exp_command_buffer_update_kernel_launch_desc_t.

    Raises:
        URError: INVALID_KERNEL, INVALID_VALUE.
    """
    if not update.hNewKernel:
        return None
    kernel = get_live_object(adapter, "ur_kernel_handle_t", update.hNewKernel, "INVALID_KERNEL")
    if kernel not in kernels:
        raise failure(
            "INVALID_VALUE", "the kernel is not one that the command was given as an alternative"
        )
    return kernel


def read_new_arguments(adapter: Adapter, update: Any) -> Iterator[tuple[int, URKernelArgument]]:
    """Yield the new arguments of an update, and their indices.

    Args:
        update: a ur_exp_command_buffer_update_kernel_launch_desc_t.

    Raises:
        URError: a list that is NULL or too long, a handle that is not alive.
    """
    lists = (
        (update.numNewValueArgs, update.pNewValueArgList),
        (update.numNewPointerArgs, update.pNewPointerArgList),
        (update.numNewMemObjArgs, update.pNewMemObjArgList),
    )
    for count, array in lists:
        check_count(count, _BAD_ARGUMENT, "arguments")
        if count and not array:
            raise failure("INVALID_NULL_POINTER", "a list of arguments is NULL")
    values, pointers, memory = ([array[one] for one in range(count)] for count, array in lists)
    for row in values:
        yield row.argIndex, make_value_argument(row.argSize, _read_address(row.pNewValueArg))
    for row in pointers:  # the address of the pointer
        place = _read_address(row.pNewPointerArg)
        value = ctypes.c_uint64.from_address(place).value if place else 0
        yield row.argIndex, URKernelArgument(URKernelArgument.POINTER, 0, value)
    for row in memory:
        handle, code = _read_address(row.hNewMemObjArg), "INVALID_MEM_OBJECT"
        found = get_live_object(adapter, "ur_mem_handle_t", handle, code) if handle else None
        yield row.argIndex, URKernelArgument(URKernelArgument.MEM, HANDLE_SIZE, found)


def _read_address(value: Any) -> int:
    return int(ffi.cast("uintptr_t", value))


def find_launch_command(adapter: Adapter, buffer: CommandBufferObject, handle: int) -> Any:
    """Return the launch in a command-buffer that a handle is of.

    Raises:
        URError: INVALID_NULL_HANDLE, INVALID_COMMAND_BUFFER_COMMAND_HANDLE_EXP.
    """
    code = _BAD_COMMAND if handle else "INVALID_NULL_HANDLE"
    command = get_live_object(adapter, CommandObject.type, handle, code)
    if not command.is_launch or command.buffer is not buffer:
        raise failure(_BAD_COMMAND, "it is not a launch of this command-buffer")
    return command


def declare_updates(
    adapter: Adapter,
    update_launches: Callable[[Any, Any, int], None],
    replace_signal: Callable[[Any, Any], Any],
    replace_waits: Callable[[Any, list[Any]], None],
) -> None:
    """Declare the updates of command-buffers.

    Args:
        update_launches: gets a command-buffer, an array of
            ur_exp_command_buffer_update_kernel_launch_desc_t, and how many there are.
        replace_signal: gets a command and its event. It returns another event, which the command
            signals from now on.
        replace_waits: gets a command, and the events of elsewhere that it waits for from now on.
            There are as many as before, and one at least.
    """

    def change_launches(
        hCommandBuffer: CommandBufferObject, numKernelUpdates: int, pUpdateKernelLaunch: Any
    ) -> None:
        hCommandBuffer.check_updatable()
        update_launches(hCommandBuffer, pUpdateKernelLaunch, numKernelUpdates)

    def change_signal(hCommand: CommandObject) -> Any:
        buffer, index = hCommand.buffer, hCommand.index
        buffer.check_updatable()
        with buffer.recording:
            old = buffer.signals.get(index)
            if old is None:
                raise failure("INVALID_OPERATION", "the command was appended without an event")
            made = buffer.signals[index] = replace_signal(hCommand, old)
        return made

    def change_waits(hCommand: CommandObject, phEventWaitList: list[Any]) -> None:
        buffer = hCommand.buffer
        buffer.check_updatable()
        with buffer.recording:
            outside = buffer.check_waits(phEventWaitList, *hCommand.find_waits())
            if outside:
                replace_waits(hCommand, outside)

    adapter.declare(
        urCommandBufferUpdateKernelLaunchExp=change_launches,
        urCommandBufferUpdateSignalEventExp=change_signal,
        urCommandBufferUpdateWaitEventsExp=change_waits,
    )
