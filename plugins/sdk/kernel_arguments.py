"""Arguments of kernels, read from the caller's memory: the ur_exp_kernel_arg_properties_t."""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Callable, Iterable
from typing import Any, Final, NamedTuple

from ...loader.ur.abi import UR
from ._native import ffi
from .adapter import Adapter, get_live_object
from .conversions import failure

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


def list_argument_rows(rows: Any, count: int) -> Iterable[Any]:
    """Yield the rows of an array of ur_exp_kernel_arg_properties_t.

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


def read_arguments(adapter: Adapter, rows: Any, count: int) -> list[tuple[int, URKernelArgument]]:
    """Read an array of ur_exp_kernel_arg_properties_t, and return index and argument of each row.

    Args:
        adapter: whose objects the handles are.

    Raises:
        URError: a handle that is not alive, an unknown kind, or a value that is too large.
    """
    found = []
    for kind, index, size, value in list_argument_rows(rows, count):
        if kind == _VALUE:
            argument = _read_value(size, value)
        elif kind == _POINTER:
            argument = _POINTER, 0, value
        elif kind == _LOCAL:
            argument = _LOCAL, size, None
        else:
            argument = kind, HANDLE_SIZE, _get_object(adapter, kind, index, value)
        found.append((index, _new(URKernelArgument, argument)))
    return found


def make_value_argument(size: int, address: int) -> URKernelArgument:
    """Return an argument by value. NULL means local memory, as in OpenCL.

    Args:
        size: its bytes.
        address: where they are, or 0.

    Raises:
        URError: INVALID_KERNEL_ARGUMENT_SIZE for more bytes than any device takes.
    """
    return URKernelArgument(*_read_value(size, address))


def _read_value(size: int, address: int) -> tuple[int, int, Any]:
    if not address:
        return _LOCAL, size, None
    if size > _LARGEST_VALUE:
        raise failure("INVALID_KERNEL_ARGUMENT_SIZE", f"no argument has {size} bytes")
    return _VALUE, size, ffi.unpack(ffi.cast(_BYTES_AT, address), size)


def _get_object(adapter: Adapter, kind: int, index: int, handle: int) -> Any:
    """Return the memory object (None for NULL) or the sampler of a handle.

    Raises:
        URError: a handle that is not alive, or an unknown kind of argument.
    """
    if kind == _MEM:
        if not handle:
            return None
        return get_live_object(adapter, "ur_mem_handle_t", handle, "INVALID_MEM_OBJECT")
    if kind == _SAMPLER:
        return get_live_object(adapter, "ur_sampler_handle_t", handle, "INVALID_SAMPLER")
    raise failure("INVALID_ENUMERATION", f"argument {index} is of an unknown kind")


# the functions of older releases, which set one argument before a launch


def declare_arguments(
    adapter: Adapter,
    set_arguments: Callable[[Any, list[tuple[int, URKernelArgument]]], None],
    samplers: bool = True,
) -> None:
    """Declare the entry points that set one argument of a kernel.

    Args:
        set_arguments: gets the kernel, and the arguments with their indices.
        samplers: whether a sampler can be an argument.
    """

    def set_one(kernel: Any, index: int, kind: int, size: int, value: Any) -> None:
        set_arguments(kernel, [(index, URKernelArgument(kind, size, value))])

    def set_value(hKernel: Any, argIndex: int, argSize: int, pArgValue: int) -> None:
        set_arguments(hKernel, [(argIndex, make_value_argument(argSize, pArgValue))])

    def make_setter(kind: int) -> Callable[..., None]:
        return lambda hKernel, argIndex, hArgValue: set_one(
            hKernel, argIndex, kind, HANDLE_SIZE, hArgValue
        )

    adapter.declare(
        urKernelSetArgValue=set_value,
        urKernelSetArgLocal=lambda hKernel, argIndex, argSize: set_one(
            hKernel, argIndex, _LOCAL, argSize, None
        ),
        urKernelSetArgPointer=lambda hKernel, argIndex, pArgValue: set_one(
            hKernel, argIndex, _POINTER, 0, pArgValue
        ),
        urKernelSetArgMemObj=make_setter(_MEM),
    )
    if samplers:
        adapter.declare(urKernelSetArgSampler=make_setter(_SAMPLER))
