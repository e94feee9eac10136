"""Updates of finalized command-buffers: new arguments, sizes, kernels and events of commands.

An update does all or nothing. Everything that is asked for is checked before anything changes. The
nodes of the executable graph are changed. What is enqueued already runs as it was enqueued.
(Unified Runtime: EXP-COMMAND-BUFFER, "Updating command-buffer commands".)
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import Any

from ...sdk.command_updates import (
    NewSizes,
    check_update_count,
    launch_command,
    new_arguments_of,
    new_kernel_of,
    sizes_of,
)
from ...sdk.kernel_arguments import URKernelArgument
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
        """Return the launch. Raises URError and DriverError as `plan_launch`."""
        sizes = self.offset, self.size, self.local
        return plan_launch(self.kernel, self.device, *sizes, self.arguments)

    def read(self, update: Any) -> None:
        """Change it as a ur_exp_command_buffer_update_kernel_launch_desc_t asks.

        Raises:
            URError: INVALID_KERNEL, INVALID_VALUE, and what is wrong with an argument.
        """
        kernel = new_kernel_of(adapter, update, self.kernels)
        if kernel is not None:
            self._change_kernel(kernel)
        self._change_sizes(sizes_of(update, self.dim))
        given = list(new_arguments_of(adapter, update))
        self.kernel.check(given)
        self.arguments.update(given)

    def _change_kernel(self, kernel: CuKernel) -> None:
        if kernel is not self.kernel:
            self.known[self.kernel] = self.arguments
            self.kernel, self.arguments = kernel, dict(self.known.get(kernel, {}))

    def _change_sizes(self, new: NewSizes) -> None:
        self.dim, self.offset = new.dim, new.offset or self.offset
        if new.size:  # without a new local size one is chosen
            self.size, self.local = new.size, new.local
        elif new.local:
            self.local = new.local

    def check_complete(self) -> None:
        """Raise URError (INVALID_VALUE) if another kernel has not got all its arguments."""
        if len(self.arguments) != len(self.kernel.parameter_sizes):
            raise failure("INVALID_VALUE", "another kernel needs all of its arguments")


@adapter.entry
def urCommandBufferUpdateKernelLaunchExp(
    hCommandBuffer: CuCommandBuffer, numKernelUpdates: int, pUpdateKernelLaunch: Any
) -> None:
    buffer = hCommandBuffer
    buffer.check_updatable()
    check_update_count(numKernelUpdates)
    with buffer.recording:
        states: dict[CuCommand, CuLaunchState] = {}
        for number in range(numKernelUpdates):
            update = pUpdateKernelLaunch[number]
            command = launch_command(adapter, buffer, update.hCommand)
            if command not in states:
                states[command] = command.present().copy()
            states[command].read(update)
        for state in states.values():
            state.check_complete()
        _commit(buffer, states)


def _commit(buffer: CuCommandBuffer, states: dict[CuCommand, CuLaunchState]) -> None:
    """Give commands new launches.

    Raises:
        URError: sizes that a launch cannot have. Then nothing has changed.
        DriverError: the driver refuses one. Then nothing has changed.
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
        command.set_launch(state, launches[command])


def _set(buffer: CuCommandBuffer, node: int, launch: CuLaunch) -> None:
    parameters = ctypes.byref(launch.parameters)
    buffer.device.call("GraphExecKernelNodeSetParams", buffer.executable, node, parameters)


@adapter.entry
def urCommandBufferUpdateSignalEventExp(hCommand: CuCommand) -> CuEvent:
    buffer, index = hCommand.buffer, hCommand.index
    buffer.check_updatable()
    with buffer.recording:
        old = buffer.signals.get(index)
        if old is None:
            raise failure("INVALID_OPERATION", "the command was appended without an event")
        made = CuCommandEvent(buffer, old.command, index)
        buffer.has_new_events = True
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
    buffer, index = hCommand.buffer, hCommand.index
    buffer.check_updatable()
    edges, waits = buffer.inner_waits.get(index, ()), buffer.waits.get(index, ())
    outside = buffer.check_waits(phEventWaitList, edges, len(waits))
    with buffer.recording:
        buffer.has_new_events |= bool(waits)
        for (node, _), event in zip(waits, outside, strict=True):
            buffer.device.call("GraphExecEventWaitNodeSetEvent", buffer.executable, node, event.end)
        buffer.waits[index] = [
            (node, event) for (node, _), event in zip(waits, outside, strict=True)
        ]
