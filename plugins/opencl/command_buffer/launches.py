"""Launches in a command-buffer: a copy of the kernel, which nobody else sets arguments on, and the arguments of this moment."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from ....icd._native import ffi as icd_ffi
from ....icd._native import lib as icd_lib
from ....icd.calls import address
from ...sdk._native import ffi, lib
from ..core import adapter, check, failure
from ..events import UREvent
from ..kernels import URKernel, URKernelArgument, argument_rows
from .appends import Append, Appended
from .arguments import refused
from .command_buffers import URCommandBuffer

_BITS: Final = 64  # of fl_appended.addresses
_ROWS: Final = ffi.typeof("ur_exp_kernel_arg_properties_t[]")


def copy_of(buffer: URCommandBuffer, kernel: URKernel, addresses: int) -> Any:
    """Our copy of a kernel, as it is now: one for all launches between which nothing but arguments
    was set on it. Where SVM arguments stick, the same arguments must also be `addresses`: see
    kernel_info.recreate_kernel."""
    sticks = kernel.context.platform.profile.svm_arguments_stick
    distinct = addresses if kernel.argument_count <= _BITS else object()
    identity = kernel.identity, distinct if sticks else 0
    copy = buffer.copies.get(identity)
    if copy is None:
        with kernel.lock:  # another thread may set its arguments, which a driver copies as well
            if sticks and kernel.had_pointers and kernel.is_plain:
                copy = icd_ffi.cast("void *", kernel.create_copy())
            else:
                copy = icd_lib.fl_clone_kernel(icd_ffi.cast("void *", kernel.cl))
        if not copy:
            raise failure("INVALID_KERNEL", "the driver can make no copy of it")
        buffer.copies[identity] = copy  # which keeps the kernel, too
    return copy


def _check_values(kernel: URKernel, copy: int, rows: Any, count: int) -> None:
    """Raise OpenCLError for an argument by value of a size that the driver does not take.

    Only the driver knows the sizes: it is given each once, on a copy of ours.
    """
    known = kernel.value_sizes
    for kind, index, size, value in argument_rows(rows, count):
        if kind == URKernelArgument.VALUE and known.get(index) != size:
            code = kernel.table.clSetKernelArg(copy, index, size, value)
            check(code, "clSetKernelArg", f"It is argument {index}.")
            known[index] = size


def _append_launch(
    append: Append,
    kernel: URKernel,
    dim: int,
    offset: Sequence[int] | None,
    size: Sequence[int],
    local: Sequence[int] | None,
    rows: Any,
    count: int,
    others: list[URKernel],
    native: bool = False,
) -> Appended:
    """`rows` are as many ur_exp_kernel_arg_properties_t, whose objects are handles of ours, or OpenCL's if they are `native`."""
    buffer, null = append.buffer, ffi.NULL
    buffer.context.check_same("a kernel", kernel, *others)
    if kernel in others:
        raise failure(
            "INVALID_VALUE", "the alternatives to a kernel do not contain the kernel itself"
        )
    if local is not None:
        kernel.check_group(buffer.device, local)
    done = lib.fl_append_launch(
        buffer.launches,
        dim,
        null if offset is None else offset,
        size,
        null if local is None else local,
        rows or null,
        count,
        kernel.argument_count,
        native,
    )
    if done.code:
        raise refused(done.code, done.index, kernel)
    commands = buffer.commands
    try:
        copy = copy_of(buffer, kernel, done.addresses)
        if not native:
            _check_values(kernel, address(copy), rows, count)
        copies = (
            {other: copy_of(buffer, other, done.addresses) for other in others} if others else {}
        )
    except BaseException:
        icd_lib.fl_drop_command(commands.native)
        raise
    index = commands.added(append.after)
    commands.array[index].kernel = copy
    appended = append.finish(index, "KERNEL_LAUNCH")
    handle = appended[2]
    if handle is not None:
        handle.kernels, handle.kernel, handle.dim = {kernel: copy, **copies}, kernel, dim
    return appended


@adapter.entry
def urCommandBufferAppendKernelLaunchWithArgsExp(
    hCommandBuffer: URCommandBuffer,
    hKernel: URKernel,
    workDim: int,
    pGlobalWorkOffset: Any,
    pGlobalWorkSize: Any,
    pLocalWorkSize: Any,
    numArgs: int,
    pArgs: Any,
    phKernelAlternatives: list[URKernel],
    pSyncPointWaitList: list[int],
    phEventWaitList: list[UREvent],
    phEvent: bool,
    phCommand: bool,
) -> Appended:
    append = Append(hCommandBuffer, pSyncPointWaitList, phEventWaitList, phEvent, phCommand)
    sizes = pGlobalWorkOffset, pGlobalWorkSize, pLocalWorkSize
    return _append_launch(append, hKernel, workDim, *sizes, pArgs, numArgs, phKernelAlternatives)


@adapter.entry
def urCommandBufferAppendKernelLaunchExp(
    hCommandBuffer: URCommandBuffer,
    hKernel: URKernel,
    workDim: int,
    pGlobalWorkOffset: Any,
    pGlobalWorkSize: Any,
    pLocalWorkSize: Any,
    phKernelAlternatives: list[URKernel],
    pSyncPointWaitList: list[int],
    phEventWaitList: list[UREvent],
    phEvent: bool,
    phCommand: bool,
) -> Appended:
    append = Append(hCommandBuffer, pSyncPointWaitList, phEventWaitList, phEvent, phCommand)
    sizes = pGlobalWorkOffset, pGlobalWorkSize, pLocalWorkSize
    with hKernel.lock:
        arguments = hKernel.arguments
    if len(arguments) != hKernel.argument_count:
        raise failure(
            "INVALID_KERNEL_ARGS",
            f"{len(arguments)} of its {hKernel.argument_count} arguments are set",
        )
    rows = ffi.new(_ROWS, len(arguments))
    kept = [
        _fill(row, index, argument)
        for row, (index, argument) in zip(rows, arguments.items(), strict=True)
    ]
    appended = _append_launch(
        append, hKernel, workDim, *sizes, rows, len(arguments), phKernelAlternatives, native=True
    )
    del kept
    return appended


def _fill(row: Any, index: int, argument: URKernelArgument) -> Any:
    """Make a row of an argument that was set before; the answer is what has to live as long."""
    kind, size, value = argument
    row.type, row.index, row.size = kind, index, size
    if isinstance(value, bytes):
        value = ffi.from_buffer(value)
        row.value.value = int(ffi.cast("uintptr_t", value))
    elif value is not None:
        row.value.pointer = value if kind == URKernelArgument.POINTER else value.cl
    return value
