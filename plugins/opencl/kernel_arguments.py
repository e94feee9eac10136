"""Arguments of kernels, set on a cl_kernel."""

from __future__ import annotations

from collections.abc import Iterable
from sys import byteorder
from typing import Final

from ..sdk.kernel_arguments import HANDLE_SIZE, URKernelArgument
from .contexts import URContext
from .core import check, failure
from .platforms import extension
from .usm.addresses import pointer_argument

_BYTES: Final = frozenset((URKernelArgument.VALUE, URKernelArgument.LOCAL))  # taken as they are


def set_arguments(
    kernel: int, context: URContext, arguments: Iterable[tuple[int, URKernelArgument]]
) -> None:
    """Set arguments on a cl_kernel.

    Args:
        kernel: the cl_kernel.
        context: its context.
        arguments: their indices, and what they are set to.

    Raises:
        OpenCLError: what the driver answers. Earlier arguments are set.
        URError: an object of another context, or an address that the context cannot use.
    """
    set_argument = context.table.clSetKernelArg
    for index, (kind, size, value) in arguments:
        routine = "clSetKernelArg"
        if kind in _BYTES:
            code = set_argument(kernel, index, size, value)
        elif kind == URKernelArgument.POINTER:
            routine, code = _set_pointer(kernel, context, index, value)
        else:
            if value is not None and value.context.cl != context.cl:
                raise failure(
                    "INVALID_CONTEXT", f"the object of argument {index} is of another context"
                )
            handle = value.cl.to_bytes(HANDLE_SIZE, byteorder) if value is not None else None
            code = set_argument(kernel, index, size, handle)
        if code:
            check(code, routine, f"It is argument {index}.")


def _set_pointer(kernel: int, context: URContext, index: int, address: int) -> tuple[str, int]:
    """Set an address. Returns the function that did it, and its code."""
    setter, value = pointer_argument(context, address)
    if setter == "svm":
        routine = "clSetKernelArgSVMPointer"
        return routine, context.table.clSetKernelArgSVMPointer(kernel, index, value)
    if setter == "usm":
        routine = "clSetKernelArgMemPointerINTEL"
        return routine, extension(context.platform, routine)(kernel, index, value)
    handle = value.to_bytes(HANDLE_SIZE, byteorder) if value else None
    return "clSetKernelArg", context.table.clSetKernelArg(kernel, index, HANDLE_SIZE, handle)
