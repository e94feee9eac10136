"""Updates of a finalized command-buffer: other arguments, sizes, kernels and events for commands whose handle the program has.

An update is all or nothing: everything that is asked for is looked at first, and only then does anything change. What has been
enqueued keeps what it was enqueued with. (EXP-COMMAND-BUFFER, "Updating command-buffer commands".)
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from typing import Any, Final

from ...icd._native import ffi as icd_ffi
from ...icd._native import lib as icd_lib
from ...icd.command_buffer import CommandBuffer as Runner
from ...icd.errors import error as opencl_error
from .._native import ffi
from .command_buffers import Command, CommandBuffer
from .command_launches import MEMORY, POINTER, VALUE, argument_list, pack_change, work_sizes
from .core import adapter, check_count, failure
from .events import CommandEvent, Event
from .kernels import Kernel
from .usm import pointer_argument

#: The rows of an update (Unified Runtime, EXP-COMMAND-BUFFER), each read at once, since there are many: all of an
#: ur_exp_command_buffer_update_kernel_launch_desc_t from its command on; index, size and address of a new value; index and value of a new
#: pointer or memory object.
_UPDATE: Final = struct.Struct("@16x2N4I6N")
_VALUE_ROW: Final = struct.Struct("@16xI4xN8xN")
_OTHER_ROW: Final = struct.Struct("@16xI12xN")
assert _UPDATE.size == ffi.sizeof("ur_exp_command_buffer_update_kernel_launch_desc_t")
assert _VALUE_ROW.size == ffi.sizeof("ur_exp_command_buffer_update_value_arg_desc_t")
assert _OTHER_ROW.size == ffi.sizeof("ur_exp_command_buffer_update_pointer_arg_desc_t")
assert _OTHER_ROW.size == ffi.sizeof("ur_exp_command_buffer_update_memobj_arg_desc_t")
_CHARS, _SIZES, _POINTER = ffi.typeof("char *"), ffi.typeof("size_t *"), icd_ffi.typeof("void *")


def _rows(layout: struct.Struct, count: int, address: int) -> Iterable[Any]:
    check_count(count, "INVALID_KERNEL_ARGUMENT_INDEX", "arguments")
    if not address:
        raise failure("INVALID_NULL_POINTER")
    return layout.iter_unpack(ffi.buffer(ffi.cast(_CHARS, address), count * layout.size))


class _Launch:
    """The sizes and the kernel that a command will have: only for updates that change them."""

    def __init__(self, command: Command) -> None:
        present = command.present
        self.command, self.kernel = command, command.kernel
        self.sizes = list(present.n[0:9])
        self.dim, self.local, self.offset = present.work_dim, bool(present.has_local), bool(present.has_offset)

    def read(self, kernel: int, dim: int, new_offset: int, new_size: int, new_local: int) -> None:
        """Take over what an update asks for: the handle of a kernel, and addresses of sizes; 0 for what stays. Raises URError."""
        if kernel:
            self.kernel = _live("ur_kernel_handle_t", kernel, "INVALID_KERNEL")
            if self.kernel not in self.command.kernels:
                raise failure("INVALID_VALUE", "the kernel is not one that the command was given as an alternative")
        if dim != self.dim and not (new_offset and new_size):
            raise failure("INVALID_VALUE", "another number of dimensions needs a new offset and a new global size")
        old = self.sizes
        offset = _sizes(new_offset, dim) if new_offset else old[0:dim]
        size = _sizes(new_size, dim) if new_size else old[3 : 3 + dim]
        kept = None if new_size or not self.local else old[6 : 6 + dim]  # the driver chooses one for a new global size
        local = _sizes(new_local, dim) if new_local else kept
        self.sizes = work_sizes(dim, offset, size, local)
        self.kernel.check_group(self.command.buffer.device, local)
        self.dim, self.local, self.offset = dim, local is not None, self.offset or bool(new_offset)

    def commit(self, arguments: Any) -> bool:
        """Change the command; `arguments` is the list for another kernel. The answer is whether there is one."""
        command, present = self.command, self.command.present
        present.n[0:9] = self.sizes
        present.work_dim, present.has_local, present.has_offset = self.dim, self.local, self.offset
        command.dim = self.dim
        if self.kernel is command.kernel:
            return False
        present.kernel = icd_ffi.cast(_POINTER, command.kernels[self.kernel])
        present.arguments, old = arguments, present.arguments
        icd_lib.fl_release_arguments(old)
        command.kernel, command.held = self.kernel, {}
        return True


def _sizes(address: int, dim: int) -> list[int]:
    return ffi.unpack(ffi.cast(_SIZES, address), dim)


#: A new argument: index, kind, size, where its value is, and what it uses.
_Edit = tuple[int, int, int, Any, Any]


def _check_index(index: int, kernel: Kernel) -> None:
    if index >= kernel.argument_count:
        raise failure("INVALID_KERNEL_ARGUMENT_INDEX", f"the kernel has {kernel.argument_count} arguments")


def _values(count: int, rows: int, kernel: Kernel, command: Command, shape: Any) -> list[_Edit]:
    """`shape` is memory for an `fl_change`."""
    old = command.address.arguments if kernel is command.kernel else icd_ffi.NULL
    edits: list[_Edit] = []
    for index, size, address in _rows(_VALUE_ROW, count, rows):
        _check_index(index, kernel)
        if address and not icd_lib.fl_get_argument(old, index, shape) and (shape.size != size or shape.kind != VALUE):
            raise failure("INVALID_KERNEL_ARGUMENT_SIZE", f"argument {index} has {shape.size} bytes, not {size}")
        edits.append((index, VALUE, size, icd_ffi.cast(_POINTER, address), None))
    return edits


def _pointers(count: int, rows: int, kernel: Kernel) -> list[_Edit]:
    edits: list[_Edit] = []
    for index, address in _rows(_OTHER_ROW, count, rows):
        _check_index(index, kernel)
        (pointer,) = _sizes(address, 1) if address else (0,)  # the address OF the pointer
        setter, value = pointer_argument(kernel.context, pointer)
        if setter == "mem":
            edits.append((index, MEMORY if value else VALUE, 8, icd_ffi.new("uintptr_t *", value), None))
        else:
            edits.append((index, POINTER, 0, icd_ffi.cast(_POINTER, value), None))
    return edits


def _memory(count: int, rows: int, kernel: Kernel) -> list[_Edit]:
    edits: list[_Edit] = []
    for index, handle in _rows(_OTHER_ROW, count, rows):
        _check_index(index, kernel)
        memory = _live("ur_mem_handle_t", handle, "INVALID_MEM_OBJECT") if handle else None
        if memory is not None and memory.context.cl != kernel.context.cl:
            raise failure("INVALID_CONTEXT", f"the memory object of argument {index} is of another context")
        value = icd_ffi.new("uintptr_t *", memory.cl if memory else 0)
        edits.append((index, MEMORY if memory else VALUE, 8, value, memory))
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
        shape = icd_ffi.new("fl_change *")
        for handle, new_kernel, *counts, dim, memory, pointers, values, offset, size, local in _UPDATE.iter_unpack(
            ffi.buffer(pUpdateKernelLaunch, numKernelUpdates * _UPDATE.size)
        ):
            command = _launch_command(hCommandBuffer, handle)
            kernel, launch = command.kernel, launches.get(command)
            if not 1 <= dim <= 3:
                raise failure("INVALID_WORK_DIMENSION")
            if launch or offset or size or local or (new_kernel and new_kernel != kernel.handle) or dim != command.dim:
                launch = launches.setdefault(command, launch or _Launch(command))
                launch.read(new_kernel, dim, offset, size, local)
                kernel = launch.kernel
            rows: list[_Edit] = []
            memory_count, pointer_count, value_count = counts
            if value_count:
                rows += _values(value_count, values, kernel, command, shape)
            if pointer_count:
                rows += _pointers(pointer_count, pointers, kernel)
            if memory_count:
                rows += _memory(memory_count, memory, kernel)
            if kernel is not command.kernel and {row[0] for row in rows} != set(range(kernel.argument_count)):
                raise failure("INVALID_VALUE", "another kernel needs all of its arguments")
            edits.append((command, rows))
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
