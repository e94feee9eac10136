"""Arguments of kernels of the OpenCL adapter: set on a cl_kernel, all before a launch or one by
one.
"""

from __future__ import annotations

from collections.abc import Iterable
from sys import byteorder
from typing import TYPE_CHECKING, Final

from ...icd.errors import OpenCLError
from ...loader.ur.abi import URError
from ..sdk.kernel_arguments import HANDLE_SIZE, URKernelArgument, declare_arguments
from .contexts import URContext
from .core import adapter, check, failure
from .platforms import find_extension
from .usm.addresses import make_pointer_argument

if TYPE_CHECKING:
    from .kernels import URKernel

_BYTES: Final = frozenset((URKernelArgument.VALUE, URKernelArgument.LOCAL))  # taken as they are


def set_arguments(
    kernel: int, context: URContext, arguments: Iterable[tuple[int, URKernelArgument]]
) -> None:
    """Set arguments on a cl_kernel.

    Args:
        kernel: the cl_kernel.

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
    setter, value = make_pointer_argument(context, address)
    if setter == "svm":
        routine = "clSetKernelArgSVMPointer"
        return routine, context.table.clSetKernelArgSVMPointer(kernel, index, value)
    if setter == "usm":
        routine = "clSetKernelArgMemPointerINTEL"
        return routine, find_extension(context.platform, routine)(kernel, index, value)
    handle = value.to_bytes(HANDLE_SIZE, byteorder) if value else None
    return "clSetKernelArg", context.table.clSetKernelArg(kernel, index, HANDLE_SIZE, handle)


def set_on(kernel: URKernel, arguments: list[tuple[int, URKernelArgument]]) -> None:
    """Set arguments on a kernel whose lock is held. If one is refused, nothing changes.

    Raises:
        OpenCLError: see `set_arguments`.
        URError: see `set_arguments`.
    """
    try:
        set_arguments(kernel.cl, kernel.context, arguments)
    except (OpenCLError, URError):
        kernel.restore(index for index, _ in arguments)
        raise
    kernel.remember(arguments)


def _set(kernel: URKernel, arguments: list[tuple[int, URKernelArgument]]) -> None:
    with kernel.lock:
        set_on(kernel, arguments)


declare_arguments(adapter, _set)
