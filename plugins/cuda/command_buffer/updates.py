"""Updates of finalized command-buffers of CUDA and HIP: new arguments, sizes, kernels and events of
commands.

An update does all or nothing. Everything that is asked for is checked before anything changes. The
nodes of the executable graph are changed. What is enqueued already runs as it was enqueued.
(Unified Runtime: EXP-COMMAND-BUFFER, "Updating command-buffer commands".)
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from contextlib import suppress
from itertools import zip_longest
from typing import Any

from ...sdk.command_updates import (
    NewSizes,
    declare_updates,
    find_launch_command,
    read_new_arguments,
    read_new_kernel,
    read_sizes,
)
from ...sdk.kernel_arguments import URKernelArgument
from ..core import DriverError, adapter, failure
from ..devices import CuDevice
from ..events import CuEvent
from ..kernels import CuKernel
from ..launches import CuLaunch, plan_parts
from .command_buffers import CuCommand, CuCommandBuffer, CuCommandEvent


class CuLaunchState:
    """What a command launches.

    Args:
        offset: the global work offset, or None.
        size: the global work size.
        local: the local work size, or None.
        others: the kernels that an update may choose instead.

    Attributes:
        nodes: the kernel nodes, one for each part of the launch.
        known: the arguments that other kernels were launched with before.
    """

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
        self.nodes: list[int] = []

    def copy(self) -> CuLaunchState:
        """Return a copy, which an update changes."""
        shape = self.dim, self.offset, self.size, self.local
        made = CuLaunchState(self.device, self.kernel, *shape, dict(self.arguments))
        made.kernels, made.nodes, made.known = self.kernels, self.nodes, dict(self.known)
        return made

    def copy_alone(self, *nodes: int) -> CuLaunchState:
        """Return a copy for other nodes, whose kernel has no alternatives."""
        made = self.copy()
        made.kernels, made.nodes = (self.kernel,), list(nodes)
        return made

    def plan(self) -> list[CuLaunch]:
        """Return the launch in parts. Raises URError and DriverError as `plan_parts`."""
        sizes = self.offset, self.size, self.local
        return plan_parts(self.kernel, self.device, *sizes, self.arguments)

    def read(self, update: Any) -> None:
        """Change the launch as a ur_exp_command_buffer_update_kernel_launch_desc_t asks.

        Raises:
            URError: INVALID_KERNEL, INVALID_VALUE, and what is wrong with an argument.
        """
        kernel = read_new_kernel(adapter, update, self.kernels)
        if kernel is not None:
            self._change_kernel(kernel)
        self._change_sizes(read_sizes(update, self.dim))
        given = list(read_new_arguments(adapter, update))
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


def _update_launches(buffer: CuCommandBuffer, updates: Any, count: int) -> None:
    with buffer.recording:
        states: dict[CuCommand, CuLaunchState] = {}
        for number in range(count):
            update = updates[number]
            command = find_launch_command(adapter, buffer, update.hCommand)
            if command not in states:
                states[command] = command.read_state().copy()
            states[command].read(update)
        for state in states.values():
            state.check_complete()
        _commit(buffer, states)


def _commit(buffer: CuCommandBuffer, states: dict[CuCommand, CuLaunchState]) -> None:
    """Give commands new launches.

    Raises:
        URError: sizes that a launch cannot have, or more parts than it has nodes. Then nothing has
            changed.
        DriverError: the driver refuses one. Then nothing has changed.
    """
    launches = {command: _plan(state) for command, state in states.items()}
    done: list[CuCommand] = []
    try:
        for command, parts in launches.items():
            done.append(command)
            _set(buffer, states[command].nodes, parts)
    except BaseException:
        for command in done:
            with suppress(DriverError):  # what it refuses now it has refused before
                _set(buffer, command.state.nodes, command.state.plan())
        raise
    for command, state in states.items():
        command.set_launch(state, launches[command][0])


def _plan(state: CuLaunchState) -> list[CuLaunch]:
    parts, most = state.plan(), len(state.nodes)
    if len(parts) > most:
        raise failure(
            "INVALID_WORK_GROUP_SIZE",
            f"the launch would have {len(parts)} parts, and was appended with {most}",
            remedy="append it with the largest size that it will have",
        )
    return parts


def _set(buffer: CuCommandBuffer, nodes: Sequence[int], parts: Sequence[CuLaunch]) -> None:
    """Give the nodes of a launch its parts. A node without one is left out of the next launches."""
    call, executable = buffer.device.call, buffer.executable
    for node, part in zip_longest(nodes, parts):
        if part is not None:
            parameters = ctypes.byref(part.parameters)
            call("GraphExecKernelNodeSetParams", executable, node, parameters)
        if len(nodes) > 1:
            call("GraphNodeSetEnabled", executable, node, part is not None)


def _set_events(buffer: CuCommandBuffer, name: str, rows: Sequence[tuple[int, int, int]]) -> None:
    """Give nodes other CUevents: all of them, or none.

    Args:
        name: the driver's function after "GraphExec".
        rows: for each node, the node, the CUevent that it has, and the new one.

    Raises:
        DriverError: the driver refuses one. Then nothing has changed.
    """

    def set_event(node: int, event: int) -> None:
        buffer.device.call(f"GraphExec{name}", buffer.executable, node, event)

    done: list[tuple[int, int]] = []
    try:
        for node, before, event in rows:
            set_event(node, event)
            done.append((node, before))
    except BaseException:
        for node, before in done:
            with suppress(DriverError):  # it has taken this event before
                set_event(node, before)
        raise


def _replace_signal(command: CuCommand, old: CuCommandEvent) -> CuCommandEvent:
    buffer, index = command.buffer, command.index
    made = CuCommandEvent(buffer, old.command, index)
    rows = zip(buffer.records[index], (old.begin, old.end), (made.begin, made.end), strict=True)
    _set_events(buffer, "EventRecordNodeSetEvent", [row for row in rows if row[0]])
    buffer.has_new_events = True
    buffer.keep_signal(index)
    return made


def _replace_waits(command: CuCommand, events: list[CuEvent]) -> None:
    buffer, index = command.buffer, command.index
    pairs = list(zip(buffer.waits[index], events, strict=True))
    rows = [(node, before.end, event.end) for (node, before), event in pairs]
    _set_events(buffer, "EventWaitNodeSetEvent", rows)
    buffer.has_new_events = True
    buffer.waits[index] = [(node, event) for (node, _), event in pairs]


declare_updates(adapter, _update_launches, _replace_signal, _replace_waits)
