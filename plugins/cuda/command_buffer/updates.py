"""Updates of finalized command-buffers: new arguments, sizes, kernels and events of commands.

An update does all or nothing. Everything that is asked for is checked before anything changes. The
nodes of the executable graph are changed. What is enqueued already runs as it was enqueued.
(Unified Runtime: EXP-COMMAND-BUFFER, "Updating command-buffer commands".)
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterator, Sequence
from typing import Any

from ...sdk._native import ffi
from ...sdk.adapter import live_object
from ...sdk.kernel_arguments import HANDLE_SIZE, URKernelArgument, value_argument
from ...sdk.rules import LONGEST, check_count
from ..core import adapter, failure
from ..devices import CuDevice
from ..events import CuEvent
from ..kernels import CuKernel
from ..launches import CuLaunch, plan_launch
from .command_buffers import CuCommand, CuCommandBuffer, CuCommandEvent


class CuLaunchState:
    """What a command launches.

    Args:
        device: the device.
        kernel: the kernel.
        dim: the dimensions of the sizes.
        offset: the global work offset, or None.
        size: the global work size.
        local: the local work size, or None.
        arguments: the arguments by index.
        others: the kernels that an update may choose instead.

    Attributes:
        node: the kernel node.
        known: the arguments that other kernels were launched with before.
    """

    node = 0

    def __init__(
        self,
        device: CuDevice,
        kernel: CuKernel,
        dim: int,
        offset: Sequence[int] | None,
        size: Sequence[int],
        local: Sequence[int] | None,
        arguments: dict[int, URKernelArgument],
        others: Sequence[CuKernel] = (),
    ) -> None:
        self.device, self.kernel, self.dim = device, kernel, dim
        self.offset, self.size = list(offset or [0] * dim), list(size)
        self.local = None if local is None else list(local)
        self.arguments = arguments
        self.kernels = (kernel, *others)
        self.known: dict[CuKernel, dict[int, URKernelArgument]] = {}

    def copy(self) -> CuLaunchState:
        """Return a copy, which an update changes."""
        shape = self.dim, self.offset, self.size, self.local
        made = CuLaunchState(self.device, self.kernel, *shape, dict(self.arguments))
        made.kernels, made.node, made.known = self.kernels, self.node, dict(self.known)
        return made

    def plan(self) -> CuLaunch:
        """Return the launch. Raises URError and CudaError as `plan_launch`."""
        sizes = self.offset, self.size, self.local
        return plan_launch(self.kernel, self.device, *sizes, self.arguments)

    def read(self, update: Any) -> None:
        """Change it as a ur_exp_command_buffer_update_kernel_launch_desc_t asks.

        Raises:
            URError: INVALID_KERNEL, INVALID_VALUE, and what is wrong with an argument.
        """
        if update.hNewKernel:
            self._change_kernel(update.hNewKernel)
        self._change_sizes(update)
        given = list(_arguments_of(update))
        self.kernel.check(given)
        self.arguments.update(given)

    def _change_kernel(self, handle: int) -> None:
        kernel = live_object(adapter, "ur_kernel_handle_t", handle, "INVALID_KERNEL")
        if kernel not in self.kernels:
            raise failure(
                "INVALID_VALUE",
                "the kernel is not one that the command was given as an alternative",
            )
        if kernel is not self.kernel:
            self.known[self.kernel] = self.arguments
            self.kernel, self.arguments = kernel, dict(self.known.get(kernel, {}))

    def _change_sizes(self, update: Any) -> None:
        dim = update.newWorkDim
        offset, size, local = (
            ffi.unpack(pointer, dim) if pointer else None
            for pointer in (
                *(update.pNewGlobalWorkOffset, update.pNewGlobalWorkSize),
                update.pNewLocalWorkSize,
            )
        )
        if dim != self.dim and not (offset and size):
            raise failure(
                "INVALID_VALUE",
                "another number of dimensions needs a new offset and a new global size",
            )
        self.dim, self.offset = dim, offset or self.offset
        if size:  # without a new local size one is chosen
            self.size, self.local = size, local
        elif local:
            self.local = local

    def check_complete(self) -> None:
        """Raise URError (INVALID_VALUE) if another kernel has not got all its arguments."""
        if len(self.arguments) != len(self.kernel.parameter_sizes):
            raise failure("INVALID_VALUE", "another kernel needs all of its arguments")


def _arguments_of(update: Any) -> Iterator[tuple[int, URKernelArgument]]:
    """Yield the new arguments of an update, and their indices.

    Raises:
        URError: a list that is NULL or too long, a handle that is not alive.
    """
    lists = (
        (update.numNewValueArgs, update.pNewValueArgList),
        (update.numNewPointerArgs, update.pNewPointerArgList),
        (update.numNewMemObjArgs, update.pNewMemObjArgList),
    )
    for count, array in lists:
        check_count(count, "INVALID_KERNEL_ARGUMENT_INDEX", "arguments")
        if count and not array:
            raise failure("INVALID_NULL_POINTER", "a list of arguments is NULL")
    for row in _rows(*lists[0]):
        yield row.argIndex, value_argument(row.argSize, _address(row.pNewValueArg))
    for row in _rows(*lists[1]):  # the address of the pointer
        place = _address(row.pNewPointerArg)
        value = ctypes.c_uint64.from_address(place).value if place else 0
        yield row.argIndex, URKernelArgument(URKernelArgument.POINTER, 0, value)
    for row in _rows(*lists[2]):
        handle = _address(row.hNewMemObjArg)
        kind, code = "ur_mem_handle_t", "INVALID_MEM_OBJECT"
        found = live_object(adapter, kind, handle, code) if handle else None
        yield row.argIndex, URKernelArgument(URKernelArgument.MEM, HANDLE_SIZE, found)


def _rows(count: int, array: Any) -> Iterator[Any]:
    return (array[number] for number in range(count))


def _address(value: Any) -> int:
    return int(ffi.cast("uintptr_t", value))


def _check_updatable(buffer: CuCommandBuffer) -> None:
    """Raise URError (INVALID_OPERATION) if it is not finalized or not updatable."""
    if not buffer.executable or not buffer.updatable:
        raise failure(
            "INVALID_OPERATION",
            "only a finalized command-buffer that was made updatable can be updated",
        )


def _launch_command(buffer: CuCommandBuffer, handle: int) -> CuCommand:
    code = "INVALID_COMMAND_BUFFER_COMMAND_HANDLE_EXP"
    if not handle:
        raise failure("INVALID_NULL_HANDLE")
    command = live_object(adapter, "ur_exp_command_buffer_command_handle_t", handle, code)
    if command.state is None or command.buffer is not buffer:
        raise failure(code, "it is not a launch of this command-buffer")
    return command


@adapter.entry
def urCommandBufferUpdateKernelLaunchExp(
    hCommandBuffer: CuCommandBuffer, numKernelUpdates: int, pUpdateKernelLaunch: Any
) -> None:
    buffer = hCommandBuffer
    _check_updatable(buffer)
    if not 0 < numKernelUpdates <= LONGEST:
        raise failure("INVALID_SIZE", f"{numKernelUpdates} updates")
    with buffer.lock:
        states: dict[CuCommand, CuLaunchState] = {}
        for number in range(numKernelUpdates):
            update = pUpdateKernelLaunch[number]
            command = _launch_command(buffer, update.hCommand)
            if not 1 <= update.newWorkDim <= 3:
                raise failure("INVALID_WORK_DIMENSION")
            states.setdefault(command, command.state.copy()).read(update)
        for state in states.values():
            state.check_complete()
        _commit(buffer, states)


def _commit(buffer: CuCommandBuffer, states: dict[CuCommand, CuLaunchState]) -> None:
    """Give commands new launches.

    Raises:
        URError: sizes that a launch cannot have. Then nothing has changed.
        CudaError: the driver refuses one. Then nothing has changed.
    """
    launches = {command: state.plan() for command, state in states.items()}
    done: list[CuCommand] = []
    try:
        for command, launch in launches.items():
            _set(buffer, states[command].node, launch)
            done.append(command)
    except BaseException:
        for command in done:
            _set(buffer, command.state.node, command.state.plan())
        raise
    for command, state in states.items():
        command.state = state


def _set(buffer: CuCommandBuffer, node: int, launch: CuLaunch) -> None:
    parameters = ctypes.byref(launch.parameters)
    buffer.device.call("GraphExecKernelNodeSetParams", buffer.executable, node, parameters)


@adapter.entry
def urCommandBufferUpdateSignalEventExp(hCommand: CuCommand) -> CuEvent:
    buffer, index = hCommand.buffer, hCommand.index
    _check_updatable(buffer)
    with buffer.lock:
        old = buffer.signals.get(index)
        if old is None:
            raise failure("INVALID_OPERATION", "the command was appended without an event")
        made = CuCommandEvent(buffer, old.command, index)
        for node, event in zip(buffer.records[index], (made.begin, made.end), strict=True):
            if node:
                buffer.device.call(
                    "GraphExecEventRecordNodeSetEvent", buffer.executable, node, event
                )
        buffer.keep.append(old)  # what is enqueued may still record it
        buffer.signals[index] = made
        return made


@adapter.entry
def urCommandBufferUpdateWaitEventsExp(hCommand: CuCommand, phEventWaitList: list[CuEvent]) -> None:
    """Change the events that a command waits for.

    The events of commands of the same command-buffer are edges, which cannot be changed.
    """
    from .appends import split_waits

    buffer, index = hCommand.buffer, hCommand.index
    _check_updatable(buffer)
    inside, outside = split_waits(buffer, phEventWaitList)
    edges, waits = buffer.inner_waits.get(index, []), buffer.waits.get(index, [])
    if len(phEventWaitList) != len(edges) + len(waits):
        raise failure(
            "INVALID_EVENT_WAIT_LIST", "a command waits for as many events as it was appended with"
        )
    buffer.context.check_same("an event of the wait list", *phEventWaitList)
    if sorted(one.index for one in inside) != sorted(edges):
        raise failure(
            "UNSUPPORTED_FEATURE", "the order of a command-buffer's own commands cannot be updated"
        )
    with buffer.lock:
        for (node, _), event in zip(waits, outside, strict=True):
            buffer.device.call("GraphExecEventWaitNodeSetEvent", buffer.executable, node, event.end)
        buffer.waits[index] = [
            (node, event) for (node, _), event in zip(waits, outside, strict=True)
        ]
