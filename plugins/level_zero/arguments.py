"""Arguments of kernels of the Level Zero driver: what they are, read from the caller, and as
commands have them.

An argument of Level Zero is a size and an address. What it is, the kernel says: OpenCL tells it
(clGetKernelArgInfo), or SPIR-V does. Binaries may not tell. Then eight bytes are an image or
a sampler if they are a handle of one. They are a pointer if they are an address in memory of the
context.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Mapping
from typing import Any, Final

from ...icd._native import ffi as icd_ffi
from ...icd._native import lib as icd_lib
from ...icd.abi import OPENCL
from ...icd.calls import get_address
from ...icd.command_buffer import edits
from ..opencl.kernels import URKernel
from ..opencl.usm.addresses import make_pointer_argument
from ..opencl.usm.registry import find
from ..sdk.kernel_arguments import HANDLE_SIZE, URKernelArgument
from .contexts import ZeContext
from .core import driver, make_failure
from .in_c import IMAGE, LOCAL, POINTER, SAMPLER, UNKNOWN, VALUE

_LARGEST_VALUE: Final = 1 << 16  # bytes; no device takes as many
_NAME_SIZE: Final = 64
_KINDS: Final = {
    OPENCL[f"CL_KERNEL_ARG_ADDRESS_{name}"]: kind
    for name, kind in (
        ("GLOBAL", POINTER),
        ("CONSTANT", POINTER),
        ("LOCAL", LOCAL),
        ("PRIVATE", VALUE),
    )
}
#: What SPIR-V calls a parameter (loader/base/spirv.py).
SPIRV_KINDS: Final = {
    "pointer": POINTER,
    "local": LOCAL,
    "value": VALUE,
    "image": IMAGE,
    "sampler": SAMPLER,
    "": UNKNOWN,
}
#: What an argument is that has one of these types, whatever address space it has.
_TYPES: Final = {b"image": IMAGE, b"sampler_t": SAMPLER}

#: Types of handles that arguments may be, and what the reference adapter calls such arguments.
_HANDLES: Final = {
    IMAGE: ("ze_image_handle_t", URKernelArgument.MEM, "an image"),
    SAMPLER: ("ze_sampler_handle_t", URKernelArgument.SAMPLER, "a sampler"),
}


def query_type_name(kernel: URKernel, index: int) -> bytes:
    """Return the name of an argument's type, b"" where the driver does not tell it."""
    name = ctypes.create_string_buffer(_NAME_SIZE)
    return name.value if _ask(kernel, index, "TYPE_NAME", _NAME_SIZE, name) else b""


def _ask(kernel: URKernel, index: int, what: str, size: int, into: Any) -> bool:
    ask = kernel.table.clGetKernelArgInfo
    return ask(kernel.cl, index, OPENCL[f"CL_KERNEL_ARG_{what}"], size, into, None) == 0


def find_kind(kernel: URKernel, index: int) -> int:
    """Return what an argument is: IMAGE and its like, UNKNOWN where the driver does not tell."""
    name, place = query_type_name(kernel, index), ctypes.c_uint32()
    for start, kind in _TYPES.items():
        if name.startswith(start):
            return kind
    if _ask(kernel, index, "ADDRESS_QUALIFIER", ctypes.sizeof(place), ctypes.byref(place)):
        return _KINDS.get(place.value, UNKNOWN)
    return UNKNOWN


def read_argument(
    context: ZeContext, index: int, kind: int, size: int, where: int
) -> URKernelArgument:
    """Read an argument from the caller's memory.

    Args:
        size: its bytes.
        where: the address of its bytes, 0 for local memory, a null pointer, or a value of zeros.

    Raises:
        LevelZeroError: INVALID_KERNEL_ARGUMENT_SIZE, INVALID_ARGUMENT.
    """
    if size > _LARGEST_VALUE and (where or kind == VALUE):
        raise make_failure("INVALID_KERNEL_ARGUMENT_SIZE", f"no argument has {size} bytes")
    data = ctypes.string_at(where, size) if where else b""
    number = int.from_bytes(data, "little")
    if kind == UNKNOWN:
        kind = _guess(context, number, size, bool(where))
    if kind == LOCAL:
        if where:
            raise make_failure("INVALID_ARGUMENT", f"argument {index} is local memory")
        return URKernelArgument(URKernelArgument.LOCAL, size, None)
    if kind == VALUE:
        return URKernelArgument(URKernelArgument.VALUE, size, data or bytes(size))
    if size != HANDLE_SIZE:
        raise make_failure(
            "INVALID_KERNEL_ARGUMENT_SIZE", f"argument {index} has {HANDLE_SIZE} bytes"
        )
    if kind == POINTER:
        return URKernelArgument(URKernelArgument.POINTER, 0, number)
    handle, ur_kind, name = _HANDLES[kind]
    found = driver.objects.list_owned(handle).get(number)
    if found is None or not found.context.shares(context):
        raise make_failure("INVALID_ARGUMENT", f"argument {index} is {name} of the context")
    return URKernelArgument(ur_kind, HANDLE_SIZE, found.ur)


def _guess(context: ZeContext, number: int, size: int, is_given: bool) -> int:
    """Return what an argument probably is. The driver does not tell."""
    if not is_given:
        return LOCAL
    if size != HANDLE_SIZE:
        return VALUE
    for kind, (handle, _, _) in _HANDLES.items():
        if number in driver.objects.list_owned(handle):
            return kind
    return POINTER if find(context.ur, number) else VALUE


# arguments of commands


def _convert_local(argument: URKernelArgument, _: ZeContext) -> tuple[int, int, int, Any]:
    return edits.VALUE, argument.size, 0, None


def _convert_value(argument: URKernelArgument, _: ZeContext) -> tuple[int, int, int, Any]:
    memory = icd_ffi.from_buffer(argument.value)
    return edits.VALUE, argument.size, get_address(memory), memory


def _convert_pointer(argument: URKernelArgument, context: ZeContext) -> tuple[int, int, int, Any]:
    setter, number = make_pointer_argument(context.ur, argument.value)
    kind = edits.POINTER if setter in ("svm", "usm") else edits.MEMORY
    return kind, HANDLE_SIZE, number, None


def _make_object_conversion(
    kind: int,
) -> Callable[[URKernelArgument, ZeContext], tuple[int, int, int, Any]]:
    return lambda argument, _: (kind, HANDLE_SIZE, argument.value.cl, argument.value)


#: What `edits.set_argument` takes for an argument, and what has to live as long.
_CONVERSIONS: Final = {
    URKernelArgument.LOCAL: _convert_local,
    URKernelArgument.VALUE: _convert_value,
    URKernelArgument.POINTER: _convert_pointer,
    URKernelArgument.MEM: _make_object_conversion(edits.MEMORY),
    URKernelArgument.SAMPLER: _make_object_conversion(edits.SAMPLER),
}


def set_in_command(
    command: Any, context: ZeContext, index: int, argument: URKernelArgument
) -> None:
    """Set an argument of a launch in an array, an `fl_command *`.

    Raises:
        OpenCLError: there is no memory.
        URError: an address that the context cannot use.
    """
    kind, size, word, kept = _CONVERSIONS[argument.kind](argument, context)
    edits.set_argument(command, index, kind, size, word)
    del kept


def make_arguments(
    context: ZeContext, count: int, arguments: Mapping[int, URKernelArgument]
) -> Any:
    """Return the arguments of a launch as commands have them, which the caller releases.

    Returns:
        An `fl_arguments *`.

    Raises:
        MemoryError: there is no memory.
        URError: an address that the context cannot use.
    """
    changes, kept = icd_ffi.new("fl_change[]", len(arguments)), list[Any]()
    for row, (index, argument) in zip(changes, arguments.items(), strict=True):
        kind, size, word, keep = _CONVERSIONS[argument.kind](argument, context)
        row.index, row.kind, row.size = index, kind, size
        if kind in (edits.MEMORY, edits.SAMPLER):
            row.kind = kind if word else edits.VALUE  # NULL is a value like any other
            cell = icd_ffi.new("uintptr_t *", word)
            kept.append(cell)
            word = get_address(cell)
        row.value = icd_ffi.cast("void *", word)
        kept.append(keep)
    made = icd_lib.fl_change_arguments(icd_ffi.NULL, count, changes, len(changes))
    if not made and count:
        raise MemoryError("no memory for a launch's arguments")
    return made
