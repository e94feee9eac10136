"""Updates of a finalized command-buffer: other arguments, sizes, kernels and events for commands whose handle the program has.

An update is all or nothing: everything that is asked for is looked at first, and only then does anything change. What has been
enqueued keeps what it was enqueued with. (EXP-COMMAND-BUFFER, "Updating command-buffer commands".)
"""

from __future__ import annotations

from typing import Any

from ...icd._native import ffi as icd_ffi
from ...icd._native import lib as icd_lib
from ...icd.command_buffer import CommandBuffer as Runner
from ...icd.errors import error as opencl_error
from .command_buffers import Command, CommandBuffer
from .command_launches import MEMORY, POINTER, VALUE, argument_list, pack_change, work_sizes
from .core import adapter, check_count, failure
from .events import CommandEvent, Event
from .kernels import Kernel
from .usm import pointer_argument


class _Launch:
    """The sizes and the kernel that a command will have: only for updates that change them."""

    def __init__(self, command: Command) -> None:
        present = command.present
        self.command, self.kernel = command, command.kernel
        self.sizes = list(present.n[0:9])
        self.dim, self.local, self.offset = present.work_dim, bool(present.has_local), bool(present.has_offset)

    def read(self, desc: Any) -> None:
        """Take over what an update asks for. Raises URError."""
        if desc.hNewKernel:
            self.kernel = _live("ur_kernel_handle_t", desc.hNewKernel, "INVALID_KERNEL")
            if self.kernel not in self.command.kernels:
                raise failure("INVALID_VALUE", "the kernel is not one that the command was given as an alternative")
        dim = desc.newWorkDim
        if dim != self.dim and not (desc.pNewGlobalWorkOffset and desc.pNewGlobalWorkSize):
            raise failure("INVALID_VALUE", "another number of dimensions needs a new offset and a new global size")
        old = self.sizes
        offset = list(desc.pNewGlobalWorkOffset[0:dim]) if desc.pNewGlobalWorkOffset else old[0:dim]
        size = list(desc.pNewGlobalWorkSize[0:dim]) if desc.pNewGlobalWorkSize else old[3 : 3 + dim]
        if desc.pNewLocalWorkSize:
            local = list(desc.pNewLocalWorkSize[0:dim])
        else:  # with a new global size and no local one the driver chooses that
            local = None if desc.pNewGlobalWorkSize or not self.local else old[6 : 6 + dim]
        self.sizes = work_sizes(dim, offset, size, local)
        self.kernel.check_group(self.command.buffer.device, local)
        self.dim, self.local, self.offset = dim, local is not None, self.offset or bool(desc.pNewGlobalWorkOffset)

    def commit(self, arguments: Any) -> bool:
        """Change the command; `arguments` is the list for another kernel. The answer is whether there is one."""
        command, present = self.command, self.command.present
        present.n[0:9] = self.sizes
        present.work_dim, present.has_local, present.has_offset = self.dim, self.local, self.offset
        command.dim = self.dim
        if self.kernel is command.kernel:
            return False
        present.kernel = icd_ffi.cast("void *", command.kernels[self.kernel])
        present.arguments, old = arguments, present.arguments
        icd_lib.fl_release_arguments(old)
        command.kernel, command.held = self.kernel, {}
        return True


#: A new argument: index, kind, size, where its value is, and what it uses.
_Edit = tuple[int, int, int, Any, Any]


def _edits(desc: Any, kernel: Kernel, command: Command) -> list[_Edit]:
    """The arguments that an update asks for. Raises URError."""
    edits: list[_Edit] = []
    if desc.numNewValueArgs:
        edits += _values(desc.numNewValueArgs, desc.pNewValueArgList, kernel, command)
    if desc.numNewPointerArgs:
        edits += _pointers(desc.numNewPointerArgs, desc.pNewPointerArgList, kernel)
    if desc.numNewMemObjArgs:
        edits += _memory(desc.numNewMemObjArgs, desc.pNewMemObjArgList, kernel)
    if kernel is not command.kernel and {edit[0] for edit in edits} != set(range(kernel.argument_count)):
        raise failure("INVALID_VALUE", "another kernel needs all of its arguments")
    return edits


def _check_list(count: int, rows: Any) -> None:
    check_count(count, "INVALID_KERNEL_ARGUMENT_INDEX", "arguments")
    if not rows:
        raise failure("INVALID_NULL_POINTER")


def _check_index(index: int, kernel: Kernel) -> None:
    if index >= kernel.argument_count:
        raise failure("INVALID_KERNEL_ARGUMENT_INDEX", f"the kernel has {kernel.argument_count} arguments")


def _values(count: int, rows: Any, kernel: Kernel, command: Command) -> list[_Edit]:
    _check_list(count, rows)
    old = command.present.arguments if kernel is command.kernel else icd_ffi.NULL
    shape = icd_ffi.new("fl_change *")
    edits: list[_Edit] = []
    for i in range(count):
        row = rows[i]
        index, size, address = row.argIndex, row.argSize, row.pNewValueArg
        _check_index(index, kernel)
        if address and not icd_lib.fl_get_argument(old, index, shape) and (shape.kind, shape.size) != (VALUE, size):
            raise failure("INVALID_KERNEL_ARGUMENT_SIZE", f"argument {index} has {shape.size} bytes, not {size}")
        edits.append((index, VALUE, size, icd_ffi.cast("void *", address), None))
    return edits


def _pointers(count: int, rows: Any, kernel: Kernel) -> list[_Edit]:
    _check_list(count, rows)
    edits: list[_Edit] = []
    for i in range(count):
        row = rows[i]
        _check_index(row.argIndex, kernel)
        address = icd_ffi.cast("uintptr_t *", row.pNewPointerArg)[0] if row.pNewPointerArg else 0  # the address OF the pointer
        setter, value = pointer_argument(kernel.context, address)
        if setter == "mem":
            edits.append((row.argIndex, MEMORY if value else VALUE, 8, icd_ffi.new("uintptr_t *", value), None))
        else:
            edits.append((row.argIndex, POINTER, 0, icd_ffi.cast("void *", value), None))
    return edits


def _memory(count: int, rows: Any, kernel: Kernel) -> list[_Edit]:
    _check_list(count, rows)
    edits: list[_Edit] = []
    for i in range(count):
        row = rows[i]
        _check_index(row.argIndex, kernel)
        memory = _live("ur_mem_handle_t", row.hNewMemObjArg, "INVALID_MEM_OBJECT") if row.hNewMemObjArg else None
        if memory is not None and memory.context.cl != kernel.context.cl:
            raise failure("INVALID_CONTEXT", f"the memory object of argument {row.argIndex} is of another context")
        value = icd_ffi.new("uintptr_t *", memory.cl if memory else 0)
        edits.append((row.argIndex, MEMORY if memory else VALUE, 8, value, memory))
    return edits


def _live(kind: str, handle: int, code: str) -> Any:
    registry = adapter.registry
    assert registry is not None
    found = registry.of(kind).get(handle)
    if found is None:
        raise failure(code if handle else "INVALID_NULL_HANDLE")
    return found


def _runner_of(buffer: CommandBuffer) -> Runner:
    """What runs a command-buffer that can be updated. Raises URError (INVALID_OPERATION) for others."""
    if buffer.runner is None or not buffer.updatable:
        raise failure("INVALID_OPERATION", "only a finalized command-buffer that was made updatable can be updated")
    return buffer.runner


@adapter.entry
def urCommandBufferUpdateKernelLaunchExp(
    hCommandBuffer: CommandBuffer, numKernelUpdates: int, pUpdateKernelLaunch: Any
) -> None:
    runner = _runner_of(hCommandBuffer)
    if not numKernelUpdates:
        raise failure("INVALID_SIZE", "there is nothing to update")
    check_count(numKernelUpdates, "INVALID_SIZE", "updates")
    with runner.lock:
        launches: dict[Command, _Launch] = {}
        edits: list[tuple[Command, list[_Edit]]] = []
        for i in range(numKernelUpdates):
            desc = pUpdateKernelLaunch[i]
            command = _launch_command(hCommandBuffer, desc.hCommand)
            launch = launches.get(command)
            dim, kernel = desc.newWorkDim, desc.hNewKernel
            if not 1 <= dim <= 3:
                raise failure("INVALID_WORK_DIMENSION")
            sizes = desc.pNewGlobalWorkOffset or desc.pNewGlobalWorkSize or desc.pNewLocalWorkSize
            if launch or sizes or (kernel and kernel != command.kernel.handle) or dim != command.dim:
                launch = launches.setdefault(command, launch or _Launch(command))
                launch.read(desc)
            edits.append((command, _edits(desc, launch.kernel if launch else command.kernel, command)))
        _commit(hCommandBuffer, launches, edits)


def _launch_command(buffer: CommandBuffer, handle: int) -> Command:
    command = buffer.launches.get(handle)
    if command is None:
        code = "INVALID_COMMAND_BUFFER_COMMAND_HANDLE_EXP" if handle else "INVALID_NULL_HANDLE"
        raise failure(code, "it is no launch of this command-buffer")
    return command


class _Before:
    """What a launch is before an update that the driver may refuse."""

    def __init__(self, command: Command) -> None:
        self._command, self._dim, self._held = command, command.dim, dict(command.held)
        self._launch = icd_ffi.new("fl_command *", command.present)
        old = self._launch.arguments
        self._launch.arguments = icd_lib.fl_change_arguments(old, icd_lib.fl_argument_count(old), icd_ffi.NULL, 0)
        if not self._launch.arguments:
            raise MemoryError("no memory for the update")

    def restore(self) -> None:
        """Make it so again."""
        command, refused = self._command, self._command.present.arguments
        command.address[0] = self._launch[0]
        self._launch.arguments = refused
        command.dim, command.held = self._dim, self._held

    def __del__(self) -> None:
        icd_lib.fl_release_arguments(self._launch.arguments)


def _commit(buffer: CommandBuffer, launches: dict[Command, _Launch], edits: list[tuple[Command, list[_Edit]]]) -> None:
    """Everything is in order: change the commands, and tell the runner. Raises OpenCLError if the driver's own command-buffer cannot be
    changed; then nothing is."""
    runner = _runner_of(buffer)
    before = {command: _Before(command) for command, _ in edits} if buffer.native is not None else {}
    changed = _relaunch(launches, edits) if launches else {}
    code, set_argument = 0, icd_lib.fl_set_argument
    for command, rows in edits:
        changed.setdefault(command.index, False)
        address, held = command.address, command.held
        for index, kind, size, value, uses in rows:
            code = code or set_argument(address, index, kind, size, value)
            if uses is not None or index in held:
                held[index] = uses
    code = runner.update(changed) or code
    if not code:
        return
    for launch in before.values():
        launch.restore()
    if before:  # SPEC clUpdateMutableCommandsKHR: then it has kept nothing; Intel's keeps what comes before what it refuses
        runner.update(changed)
    raise opencl_error(code, "clUpdateMutableCommandsKHR" if before else "urCommandBufferUpdateKernelLaunchExp")


def _relaunch(launches: dict[Command, _Launch], edits: list[tuple[Command, list[_Edit]]]) -> dict[int, bool]:
    """Give commands other sizes and kernels: by their numbers, whether they launch another kernel now."""
    lists = {command: _list(edits, launch) for command, launch in launches.items() if launch.kernel is not command.kernel}
    return {command.index: launch.commit(lists.get(command)) for command, launch in launches.items()}


def _list(edits: list[tuple[Command, list[_Edit]]], launch: _Launch) -> Any:
    """The arguments of a launch of another kernel."""
    rows = [row for command, rows in edits if command is launch.command for row in rows]
    changes = [pack_change(*row[:3], int(icd_ffi.cast("uintptr_t", row[3]))) for row in rows]
    return argument_list(launch.kernel.argument_count, changes)


@adapter.entry
def urCommandBufferUpdateSignalEventExp(hCommand: Command) -> Event:
    buffer = hCommand.buffer
    _runner_of(buffer)
    old = buffer.signals.get(hCommand.index)
    if old is None:
        raise failure("INVALID_OPERATION", "the command was appended without an event")
    made = buffer.signals[hCommand.index] = CommandEvent(buffer.context, old.command)
    return made


@adapter.entry
def urCommandBufferUpdateWaitEventsExp(hCommand: Command, phEventWaitList: list[Event]) -> None:
    buffer = hCommand.buffer
    _runner_of(buffer)
    if len(phEventWaitList) != len(buffer.waits.get(hCommand.index, ())):
        raise failure("INVALID_EVENT_WAIT_LIST", "a command waits for as many events as it was appended with")
    buffer.context.check_same("an event of the wait list", *phEventWaitList)
    if phEventWaitList:
        buffer.waits[hCommand.index] = list(phEventWaitList)
