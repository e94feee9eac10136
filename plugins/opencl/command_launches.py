"""Launches in a command-buffer: a copy of the kernel, which nobody else sets arguments on, and the arguments of this moment."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ...icd._native import ffi as icd_ffi
from ...icd._native import lib as icd_lib
from .command_appends import Appended, Place
from .command_buffers import CommandBuffer
from .core import adapter, failure
from .events import Event
from .kernels import Argument, Kernel, arguments_of
from .usm import pointer_argument

VALUE, MEMORY, SAMPLER, POINTER = 1, 2, 3, 4  # fl_change.kind


def change_of(argument: Argument, index: int, buffer: CommandBuffer, scratch: list[Any]) -> tuple[int, int, int, Any]:
    """An argument as an `fl_change`: index, kind, size, pointer. `scratch` keeps what the pointer leads to."""
    kind, size, value = argument
    if kind == Argument.POINTER:
        setter, pointer = pointer_argument(buffer.context, value)
        if setter != "mem":
            return index, POINTER, 0, icd_ffi.cast("void *", pointer)
        kind, value = Argument.MEM, pointer
    if kind == Argument.LOCAL:
        return index, VALUE, size, icd_ffi.NULL
    if kind == Argument.VALUE:
        scratch.append(icd_ffi.from_buffer(value))
        return index, VALUE, size, scratch[-1]
    if not isinstance(value, int) and value is not None:
        buffer.context.check_same(f"the object of argument {index}", value)
    handle = value if isinstance(value, int) else value.cl if value is not None else 0
    scratch.append(icd_ffi.new("uintptr_t *", handle))
    return index, SAMPLER if kind == Argument.SAMPLER else MEMORY if handle else VALUE, 8, scratch[-1]


def argument_list(count: int, changes: list[tuple[int, int, int, Any]]) -> Any:
    """A native list of arguments. The caller owns a reference."""
    made = icd_lib.fl_change_arguments(icd_ffi.NULL, count, icd_ffi.new("fl_change[]", changes), len(changes))
    if not made:
        raise MemoryError("no memory for a launch's arguments")
    return made


def copy_of(buffer: CommandBuffer, kernel: Kernel) -> int:
    """Our copy of a kernel, as it is now; one for all launches between which nothing but arguments was set on it."""
    identity = kernel.identity
    if identity not in buffer.copies:
        with kernel.lock:  # another thread may set its arguments, which a driver copies as well
            clone = int(icd_ffi.cast("uintptr_t", icd_lib.fl_clone_kernel(icd_ffi.cast("void *", kernel.cl))))
        if not clone:
            raise failure("INVALID_KERNEL", "the driver can make no copy of it")
        buffer.copies[identity] = clone  # which keeps the kernel, too
    return buffer.copies[identity]


def work_sizes(dim: int, offset: Sequence[int] | None, size: Sequence[int], local: Sequence[int] | None) -> list[int]:
    """`fl_command.n` of a launch. Raises URError for sizes that no launch can have."""
    if not 1 <= dim <= 3:
        raise failure("INVALID_WORK_DIMENSION")
    if local is not None and 0 in local:
        raise failure("INVALID_WORK_GROUP_SIZE")
    rows = ((offset, 0), (size, 1), (local, 1))  # and what the dimensions have that there are not
    three = [[*(row if row is not None else [0] * dim), *[rest] * (3 - dim)] for row, rest in rows]
    return [number for row in three for number in row]


def _append_launch(
    place: Place,
    kernel: Kernel,
    dim: int,
    sizes: Sequence[int],
    offset: bool,
    local: bool,
    arguments: dict[int, Argument],
    others: list[Kernel],
) -> Appended:
    buffer = place.buffer
    buffer.context.check_same("a kernel", kernel, *others)
    if kernel in others:
        raise failure("INVALID_VALUE", "the alternatives to a kernel do not contain the kernel itself")
    kernel.check_group(buffer.device, sizes[6 : 6 + dim] if local else None)
    copies = {one: copy_of(buffer, one) for one in (kernel, *others)}
    scratch: list[Any] = []
    changes = [change_of(argument, index, buffer, scratch) for index, argument in arguments.items()]
    made = argument_list(kernel.argument_count, changes)
    appended = place.add(
        "kernel",
        "KERNEL_LAUNCH",
        sizes,
        work_dim=dim,
        has_offset=int(offset),
        has_local=int(local),
        kernel=copies[kernel],
        arguments=made,
    )
    handle = appended[2]
    held = {index: argument.value for index, argument in arguments.items() if argument.kind in (Argument.MEM, Argument.SAMPLER)}
    if handle is not None:
        handle.kernels, handle.kernel, handle.held, handle.dim = copies, kernel, held, dim
        handle.shapes = {index: (kind, size) for index, kind, size, _ in changes}
    else:
        buffer.commands.keep += held.values()
    return appended


@adapter.entry
def urCommandBufferAppendKernelLaunchWithArgsExp(
    hCommandBuffer: CommandBuffer, hKernel: Kernel, workDim: int, pGlobalWorkOffset: Any, pGlobalWorkSize: Any, pLocalWorkSize: Any,
    numArgs: int, pArgs: Any, phKernelAlternatives: list[Kernel],
    pSyncPointWaitList: list[int], phEventWaitList: list[Event], phEvent: bool, phCommand: bool,
) -> Appended:  # fmt: skip
    place = Place(hCommandBuffer, pSyncPointWaitList, phEventWaitList, phEvent, phCommand)
    sizes = work_sizes(workDim, pGlobalWorkOffset, pGlobalWorkSize, pLocalWorkSize)
    arguments = dict(arguments_of(pArgs, numArgs))
    if sorted(arguments) != list(range(hKernel.argument_count)) or numArgs != len(arguments):
        raise failure(
            "INVALID_KERNEL_ARGUMENT_INDEX",
            f"the kernel has {hKernel.argument_count} arguments, and all of them have to be given",
        )
    return _append_launch(
        place,
        hKernel,
        workDim,
        sizes,
        pGlobalWorkOffset is not None,
        pLocalWorkSize is not None,
        arguments,
        phKernelAlternatives,
    )


@adapter.entry
def urCommandBufferAppendKernelLaunchExp(
    hCommandBuffer: CommandBuffer, hKernel: Kernel, workDim: int, pGlobalWorkOffset: Any, pGlobalWorkSize: Any, pLocalWorkSize: Any,
    phKernelAlternatives: list[Kernel], pSyncPointWaitList: list[int], phEventWaitList: list[Event], phEvent: bool, phCommand: bool,
) -> Appended:  # fmt: skip
    place = Place(hCommandBuffer, pSyncPointWaitList, phEventWaitList, phEvent, phCommand)
    sizes = work_sizes(workDim, pGlobalWorkOffset, pGlobalWorkSize, pLocalWorkSize)
    with hKernel.lock:
        arguments = hKernel.arguments
    if len(arguments) != hKernel.argument_count:
        raise failure("INVALID_KERNEL_ARGS", f"{len(arguments)} of its {hKernel.argument_count} arguments are set")
    return _append_launch(
        place,
        hKernel,
        workDim,
        sizes,
        pGlobalWorkOffset is not None,
        pLocalWorkSize is not None,
        arguments,
        phKernelAlternatives,
    )
