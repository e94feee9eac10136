"""Launches in a command-buffer: a copy of the kernel, which nobody else sets arguments on, and the arguments of this moment.

There are many of them, so that an append makes as few objects as it can: arguments become the bytes of `fl_change` structs, which lead to
where the caller's values are.
"""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Iterable, Sequence
from typing import Any, Final

from ...icd._native import ffi as icd_ffi
from ...icd._native import lib as icd_lib
from ..objects import Object
from .command_appends import Appended, Place
from .command_buffers import CommandBuffer
from .contexts import Context
from .core import adapter, failure
from .events import Event
from .kernels import LARGEST_VALUE, Argument, Kernel, check_size, object_of, rows_of
from .usm import pointer_argument

VALUE, MEMORY, SAMPLER, POINTER = 1, 2, 3, 4  # fl_change.kind
_VALUE, _LOCAL, _POINTER = Argument.VALUE, Argument.LOCAL, Argument.POINTER

#: An `fl_change`: index, kind, size, value.
pack_change: Final = struct.Struct("@2I2N").pack
_CHANGES: Final = icd_ffi.typeof("fl_change[]")
assert struct.calcsize("@2I2N") == icd_ffi.sizeof("fl_change")


#: What a launch's arguments become: an `fl_change` for each, what they use (by index), what the changes lead to, and as bits which of them
#: are addresses.
Changes = tuple[list[bytes], dict[int, Object], list[Any], int]


def _changes_of(kernel: Kernel, context: Context, rows: Iterable[tuple[int, int, int, Any]]) -> Changes:
    """Kind, index, size and value of each argument as changes. A value is the address of its bytes; an object, it or its handle.

    Raises URError; also unless there is each argument, once.
    """
    changes = [b""] * kernel.argument_count
    held: dict[int, Object] = {}
    scratch: list[Any] = []
    addresses = 0
    for kind, index, size, value in rows:
        if index >= len(changes) or changes[index]:
            raise failure("INVALID_KERNEL_ARGUMENT_INDEX", f"argument {index} of {len(changes)} is not there, or given twice")
        if kind == _POINTER:
            setter, pointer = pointer_argument(context, value)
            if setter != "mem":
                changes[index] = pack_change(index, POINTER, 0, pointer)
            else:
                changes[index] = _handle(index, MEMORY, pointer, scratch)
            if value:
                addresses |= 1 << index
        elif kind == _VALUE:
            if size > LARGEST_VALUE:
                check_size(size, value)
            changes[index] = pack_change(index, VALUE, size, value)
        elif kind == _LOCAL:
            changes[index] = pack_change(index, VALUE, size, 0)
        else:
            thing = object_of(kind, index, value)
            changes[index] = _object(context, index, kind, thing, scratch)
            if thing is not None:
                held[index] = thing
    if b"" in changes:
        raise failure("INVALID_KERNEL_ARGUMENT_INDEX", f"argument {changes.index(b'')} of {len(changes)} is not given")
    return changes, held, scratch, addresses


def _object(context: Context, index: int, kind: int, thing: Any, scratch: list[Any]) -> bytes:
    if thing is None:
        return _handle(index, MEMORY, 0, scratch)
    context.check_same(f"the object of argument {index}", thing)
    return _handle(index, SAMPLER if kind == Argument.SAMPLER else MEMORY, thing.cl, scratch)


def _handle(index: int, kind: int, handle: int, scratch: list[Any]) -> bytes:
    """clSetKernelArg is told where a handle is; NULL is a value like any other."""
    scratch.append(ctypes.c_void_p(handle))
    return pack_change(index, kind if handle else VALUE, 8, ctypes.addressof(scratch[-1]))


def argument_list(count: int, changes: list[bytes]) -> Any:
    """A native list of arguments. The caller owns a reference."""
    block = icd_ffi.from_buffer(_CHANGES, b"".join(changes)) if changes else icd_ffi.NULL
    made = icd_lib.fl_change_arguments(icd_ffi.NULL, count, block, len(changes))
    if not made:
        raise MemoryError("no memory for a launch's arguments")
    return made


def copy_of(buffer: CommandBuffer, kernel: Kernel, addresses: int) -> int:
    """Our copy of a kernel, as it is now; one for all launches between which nothing but arguments was set on it, and of which the
    same arguments are `addresses`: see kernel_info.renew."""
    identity = kernel.identity, addresses
    copy = buffer.copies.get(identity)
    if copy is None:
        with kernel.lock:  # another thread may set its arguments, which a driver copies as well
            if kernel.had_pointers and kernel.is_plain:
                copy = kernel.another()
            else:
                copy = int(icd_ffi.cast("uintptr_t", icd_lib.fl_clone_kernel(icd_ffi.cast("void *", kernel.cl))))
        if not copy:
            raise failure("INVALID_KERNEL", "the driver can make no copy of it")
        buffer.copies[identity] = copy  # which keeps the kernel, too
    return copy


#: What stands in `fl_command.n` for what a launch does not have: offsets and local sizes, and sizes of further dimensions.
_ZEROS, _ONES = (0, 0, 0), (1, 1, 1)


def work_sizes(dim: int, offset: Sequence[int] | None, size: Sequence[int], local: Sequence[int] | None) -> list[int]:
    """`fl_command.n` of a launch. Raises URError for sizes that no launch can have."""
    if not 1 <= dim <= 3:
        raise failure("INVALID_WORK_DIMENSION")
    if local is None:
        local = _ZEROS[:dim]
    elif 0 in local:
        raise failure("INVALID_WORK_GROUP_SIZE")
    ones = _ONES[dim:]
    return [*(_ZEROS[:dim] if offset is None else offset), *_ZEROS[dim:], *size, *ones, *local, *ones]


def _append_launch(
    place: Place,
    kernel: Kernel,
    dim: int,
    offset: Sequence[int] | None,
    size: Sequence[int],
    local: Sequence[int] | None,
    rows: Iterable[tuple[int, int, int, Any]],
    others: list[Kernel],
) -> Appended:
    buffer, context = place.buffer, place.buffer.context
    sizes = work_sizes(dim, offset, size, local)
    changes, held, _scratch, addresses = _changes_of(kernel, context, rows)
    context.check_same("a kernel", kernel, *others)
    if kernel in others:
        raise failure("INVALID_VALUE", "the alternatives to a kernel do not contain the kernel itself")
    if local is not None:
        kernel.check_group(buffer.device, local)
    copy, copies = copy_of(buffer, kernel, addresses), {other: copy_of(buffer, other, addresses) for other in others}
    made = argument_list(len(changes), changes)
    index = buffer.commands.add_launch(place.after, copy, dim, sizes, offset is not None, local is not None, made)
    appended = place.finish(index, "KERNEL_LAUNCH")
    handle = appended[2]
    if handle is not None:
        handle.kernels, handle.kernel, handle.held, handle.dim = {kernel: copy, **copies}, kernel, held, dim
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
    sizes = pGlobalWorkOffset, pGlobalWorkSize, pLocalWorkSize
    return _append_launch(place, hKernel, workDim, *sizes, rows_of(pArgs, numArgs), phKernelAlternatives)


@adapter.entry
def urCommandBufferAppendKernelLaunchExp(
    hCommandBuffer: CommandBuffer, hKernel: Kernel, workDim: int, pGlobalWorkOffset: Any, pGlobalWorkSize: Any, pLocalWorkSize: Any,
    phKernelAlternatives: list[Kernel], pSyncPointWaitList: list[int], phEventWaitList: list[Event], phEvent: bool, phCommand: bool,
) -> Appended:  # fmt: skip
    place = Place(hCommandBuffer, pSyncPointWaitList, phEventWaitList, phEvent, phCommand)
    sizes = pGlobalWorkOffset, pGlobalWorkSize, pLocalWorkSize
    with hKernel.lock:
        arguments = hKernel.arguments
    if len(arguments) != hKernel.argument_count:
        raise failure("INVALID_KERNEL_ARGS", f"{len(arguments)} of its {hKernel.argument_count} arguments are set")
    values = {index: icd_ffi.from_buffer(one.value) for index, one in arguments.items() if one.kind == Argument.VALUE}
    rows = [
        (kind, index, size, int(icd_ffi.cast("uintptr_t", values[index])) if index in values else value)
        for index, (kind, size, value) in arguments.items()
    ]
    return _append_launch(place, hKernel, workDim, *sizes, rows, phKernelAlternatives)
