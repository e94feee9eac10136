"""Launches in a command-buffer of the OpenCL adapter: a copy of the kernel, and the arguments of
this moment.

Nobody else sets arguments on the copy.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from ....icd._native import ffi as icd_ffi
from ....icd._native import lib as icd_lib
from ....icd.calls import get_address
from ...sdk._native import ffi, lib
from ...sdk.command_buffers import declare_launch_appends
from ...sdk.kernel_arguments import URKernelArgument, list_argument_rows
from ..core import check, failure
from ..kernels import URKernel
from .appends import Append, Appended, appends
from .arguments import make_argument_error
from .command_buffers import URCommandBuffer

_BITS: Final = 64  # of fl_appended.addresses
_ROWS: Final = ffi.typeof("ur_exp_kernel_arg_properties_t[]")


def copy_kernel(buffer: URCommandBuffer, kernel: URKernel, addresses: int) -> Any:
    """Return our copy of a kernel as it is now.

    Launches share a copy if nothing but arguments was set on the kernel between them. Where SVM
    arguments stick (kernel_info.recreate_kernel), they also have to have the same addresses.

    Args:
        addresses: a bit for each argument that is an address.

    Raises:
        URError: INVALID_KERNEL if the driver makes no copy.
    """
    sticks = kernel.context.platform.profile.svm_arguments_stick
    distinct = addresses if kernel.argument_count <= _BITS else object()
    identity = kernel.identity, distinct if sticks else 0
    copy = buffer.copies.get(identity)
    if copy is None:
        with kernel.lock:  # another thread may set its arguments, which a driver copies, too
            if sticks and kernel.had_pointers and kernel.is_plain:
                copy = icd_ffi.cast("void *", kernel.create_copy())
            else:
                copy = icd_lib.fl_clone_kernel(icd_ffi.cast("void *", kernel.cl))
        if not copy:
            raise failure("INVALID_KERNEL", "the driver cannot copy it")
        buffer.copies[identity] = copy  # the identity keeps the kernel
    return copy


def _describe_copy_to_c(
    buffer: URCommandBuffer, kernel: URKernel, copy: Any, addresses: int
) -> None:
    """Tell C of our copy of a kernel (plugins/sdk/native/appends.c)."""
    if kernel.handle:
        number = ffi.cast("fl_handle *", kernel.handle).number
        known = buffer.launches.copies[number % lib.FL_COPIES]
        known.number, known.settings, known.addresses = number, kernel.struct.settings, addresses
        known.cl = ffi.cast("void *", get_address(copy))
        if kernel.struct.device != buffer.device.cl:
            with kernel.lock:
                kernel.describe_required_size_to_c(buffer.device)


def _check_values(kernel: URKernel, copy: int, rows: Any, count: int) -> None:
    """Raise OpenCLError for an argument by value whose size the driver refuses.

    Only the driver knows the sizes. So it gets each once, on our copy.
    """
    known = kernel.value_sizes
    for kind, index, size, value in list_argument_rows(rows, count):
        if kind == URKernelArgument.VALUE and known.get(index) != size:
            code = kernel.table.clSetKernelArg(copy, index, size, value)
            check(code, "clSetKernelArg", f"It is argument {index}.")
            known[index] = size
            if value and index < lib.FL_ARGUMENTS:
                kernel.struct.sizes[index] = size


def _append_launch(
    append: Append,
    kernel: URKernel,
    dim: int,
    offset: Sequence[int] | None,
    size: Sequence[int],
    local: Sequence[int] | None,
    others: list[URKernel],
    rows: Any,
    count: int,
    native: bool = False,
) -> Appended:
    """Append a launch.

    Args:
        offset: the global work offset, or None.
        size: the global work size.
        local: the local work size, None for any.
        others: the kernels that an update may choose instead.
        rows: the arguments, ur_exp_kernel_arg_properties_t.
        native: whether the objects in `rows` are OpenCL's handles instead of ours.

    Raises:
        URError: what is wrong with the arguments.
    """
    buffer, null = append.buffer, ffi.NULL
    append.check_kernels(kernel, others)
    local = kernel.choose_group(buffer.device, dim, local)
    if local is not None:
        kernel.check_group(buffer.device, local)
        kernel.describe_group_to_c(buffer.device, local)
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
        null,
    )
    if done.code:
        raise make_argument_error(done.code, done.index, kernel)
    commands = buffer.commands
    try:
        copy = copy_kernel(buffer, kernel, done.addresses)
        _describe_copy_to_c(buffer, kernel, copy, done.addresses)
        if not native:
            _check_values(kernel, get_address(copy), rows, count)
        copies = (
            {other: copy_kernel(buffer, other, done.addresses) for other in others}
            if others
            else {}
        )
    except BaseException:
        icd_lib.fl_drop_command(commands.native)
        raise
    index = commands.count_added(append.after)
    commands.array[index].kernel = copy
    appended = append.finish(index, "KERNEL_LAUNCH")
    handle = appended[2]
    if handle is not None:
        handle.kernels, handle.kernel, handle.dim = {kernel: copy, **copies}, kernel, dim
    return appended


def _append_launch_as_set(
    append: Append, kernel: URKernel, dim: int, offset: Any, size: Any, local: Any, others: Any
) -> Appended:
    """Append a launch with the arguments that are set on the kernel."""
    with kernel.lock:
        arguments = kernel.arguments
    if len(arguments) != kernel.argument_count:
        raise failure(
            "INVALID_KERNEL_ARGS",
            f"{len(arguments)} of its {kernel.argument_count} arguments are set",
        )
    rows = ffi.new(_ROWS, len(arguments))
    kept = [
        _fill(row, index, argument)
        for row, (index, argument) in zip(rows, arguments.items(), strict=True)
    ]
    sizes, given = (dim, offset, size, local), (rows, len(arguments))
    appended = _append_launch(append, kernel, *sizes, others, *given, native=True)
    del kept
    return appended


declare_launch_appends(appends, _append_launch_as_set, _append_launch)


def _fill(row: Any, index: int, argument: URKernelArgument) -> Any:
    """Make a row of an argument that was set before, and return what has to live as long."""
    kind, size, value = argument
    row.type, row.index, row.size = kind, index, size
    if isinstance(value, bytes):
        value = ffi.from_buffer(value)
        row.value.value = int(ffi.cast("uintptr_t", value))
    elif value is not None:
        row.value.pointer = value if kind == URKernelArgument.POINTER else value.cl
    return value
