"""Arguments of kernels: read from the caller's memory, and set on a cl_kernel."""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Iterable
from sys import byteorder
from typing import Any, Final, NamedTuple

from ...loader.ur.abi import UR
from ..sdk._native import ffi
from .contexts import URContext
from .core import adapter, check, failure
from .platforms import extension
from .usm.addresses import pointer_argument

_LARGEST_VALUE: Final = 1 << 16  # bytes; no device takes as many (CL_DEVICE_MAX_PARAMETER_SIZE)
_MOST_ARGUMENTS: Final = 1 << 16


class URKernelArgument(NamedTuple):
    """What an argument is set to.

    | kind | size in bytes | value |
    |---|---|---|
    | VALUE | of the value | bytes |
    | POINTER | 0 | the address |
    | MEM | of a cl_mem | the memory object, None for NULL |
    | LOCAL | of the local memory | None |
    | SAMPLER | of a cl_sampler | the sampler |
    """

    kind: int
    size: int
    value: Any

    VALUE = UR["UR_EXP_KERNEL_ARG_TYPE_VALUE"]
    POINTER = UR["UR_EXP_KERNEL_ARG_TYPE_POINTER"]
    MEM = UR["UR_EXP_KERNEL_ARG_TYPE_MEM_OBJ"]
    LOCAL = UR["UR_EXP_KERNEL_ARG_TYPE_LOCAL"]
    SAMPLER = UR["UR_EXP_KERNEL_ARG_TYPE_SAMPLER"]


_VALUE, _POINTER, _LOCAL = URKernelArgument.VALUE, URKernelArgument.POINTER, URKernelArgument.LOCAL
_MEM, _SAMPLER = URKernelArgument.MEM, URKernelArgument.SAMPLER
_BYTES: Final = frozenset((_VALUE, _LOCAL))  # clSetKernelArg takes them as they are
HANDLE_SIZE: Final = ctypes.sizeof(ctypes.c_void_p)


#: A ur_exp_kernel_arg_properties_t: kind, index, size, and the first 8 bytes of its value. Rows are
#: read whole, not field by field, because there are many launches.
_ROW: Final = struct.Struct("@16xIINN8x")
_ROW_TYPE: Final = "ur_exp_kernel_arg_properties_t"
assert _ROW.size == ffi.sizeof(_ROW_TYPE)
_FIELDS: Final = ("type", "index", "size", "value")
assert [ffi.offsetof(_ROW_TYPE, name) for name in _FIELDS] == [16, 20, 24, 32]
_BYTES_AT: Final = ffi.typeof("char *")
_new: Final = tuple.__new__  # the NamedTuple's takes three times as long


def argument_rows(rows: Any, count: int) -> Iterable[Any]:
    """Yield the rows of an array of ur_exp_kernel_arg_properties_t.

    Args:
        rows: a pointer to the array.
        count: its length.

    Returns:
        Kind, index, size and value of each row.

    Raises:
        URError: INVALID_KERNEL_ARGUMENT_INDEX for more rows than any kernel has arguments.
    """
    if not count:
        return ()
    if count > _MOST_ARGUMENTS:
        raise failure("INVALID_KERNEL_ARGUMENT_INDEX", f"no kernel has {count} arguments")
    return _ROW.iter_unpack(ffi.buffer(rows, count * _ROW.size))


def arguments_of(rows: Any, count: int) -> list[tuple[int, URKernelArgument]]:
    """Read an array of ur_exp_kernel_arg_properties_t.

    Args:
        rows: a pointer to the array.
        count: its length.

    Returns:
        Index and argument of each row.

    Raises:
        URError: a handle that is not alive, an unknown kind, or a value that is too large.
    """
    found = []
    for kind, index, size, value in argument_rows(rows, count):
        if kind == _VALUE:
            argument = _value(size, value)
        elif kind == _POINTER:
            argument = _POINTER, 0, value
        elif kind == _LOCAL:
            argument = _LOCAL, size, None
        else:
            argument = kind, HANDLE_SIZE, _object_of(kind, index, value)
        found.append((index, _new(URKernelArgument, argument)))
    return found


def value_argument(size: int, address: int) -> URKernelArgument:
    """Return an argument by value. NULL means local memory, as in OpenCL.

    Args:
        size: its bytes.
        address: where they are, or 0.

    Raises:
        URError: INVALID_KERNEL_ARGUMENT_SIZE for more bytes than any device takes.
    """
    return URKernelArgument(*_value(size, address))


def _value(size: int, address: int) -> tuple[int, int, Any]:
    if not address:
        return _LOCAL, size, None
    if size > _LARGEST_VALUE:
        raise failure("INVALID_KERNEL_ARGUMENT_SIZE", f"no argument has {size} bytes")
    return _VALUE, size, ffi.unpack(ffi.cast(_BYTES_AT, address), size)


def _object_of(kind: int, index: int, handle: int) -> Any:
    """Return the memory object (None for NULL) or the sampler of a handle.

    Raises:
        URError: a handle that is not alive, or an unknown kind of argument.
    """
    if kind == _MEM:
        return _object("ur_mem_handle_t", handle, "INVALID_MEM_OBJECT") if handle else None
    if kind == _SAMPLER:
        return _object("ur_sampler_handle_t", handle, "INVALID_SAMPLER")
    raise failure("INVALID_ENUMERATION", f"argument {index} is of an unknown kind")


def _object(type_name: str, handle: int, code: str) -> Any:
    assert adapter.registry is not None
    found = adapter.registry.of(type_name).get(handle)
    if found is None:
        raise failure(code, "an argument's handle is not alive")
    return found


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
        elif kind == _POINTER:
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
