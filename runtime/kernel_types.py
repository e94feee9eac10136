"""The types that kernels declare for their arguments, and the conversion of values to these types.

Four bytes may be an int or a float. A driver takes either, and a kernel that expects the other one
computes with wrong numbers. So a number is converted to the declared type if that is exact, else it
is refused. Only OpenCL drivers tell types (clGetKernelArgInfo), mostly for programs from source.
For other values, only the size is checked: structures, vectors, bytes, and arguments of unknown
type.
"""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Sequence
from typing import Any, Final, TypeAlias

import numpy

from ..loader.base.memory import read_words
from .arguments import IS_MEMORY, VALUE, Argument, make_number_argument
from .errors import Errc, SYCLError

#: What a kernel declares: a dtype for a number, IS_MEMORY for a pointer, and the type's name for an
#: image or a sampler. None: another type, or the driver does not tell.
Declared: TypeAlias = Any

#: The types that have no values, and what can be given for each.
_OBJECTS: Final = {
    "sampler_t": "a Sampler",
    "image1d_t": "an accessor of an Image of one dimension",
    "image2d_t": "an accessor of an Image of two dimensions",
    "image3d_t": "an accessor of an Image of three dimensions",
    "image1d_array_t": "an accessor of an Image of two dimensions with image_array=True",
    "image1d_buffer_t": "an Image of PyOpenCL's",
    "image2d_array_t": "an accessor of an Image of three dimensions with image_array=True",
}

#: OpenCL C's names of numbers (SPEC OpenCL C, section 6.3.1).
_NUMBERS: Final = {
    "char": numpy.dtype(numpy.int8),
    "uchar": numpy.dtype(numpy.uint8),
    "short": numpy.dtype(numpy.int16),
    "ushort": numpy.dtype(numpy.uint16),
    "int": numpy.dtype(numpy.int32),
    "uint": numpy.dtype(numpy.uint32),
    "long": numpy.dtype(numpy.int64),
    "ulong": numpy.dtype(numpy.uint64),
    "half": numpy.dtype(numpy.float16),
    "float": numpy.dtype(numpy.float32),
    "double": numpy.dtype(numpy.float64),
}
_NAMES: Final = {dtype: name for name, dtype in _NUMBERS.items()}

#: SPEC cl_khr_icd: the slot of clGetKernelArgInfo, and what the first slot of a table is whose
#: functions are in `dispatch_data`.
SLOT: Final = 101
TAG: Final = 0x4F50454E434C3331
#: CL_KERNEL_ARG_TYPE_NAME
TYPE_NAME: Final = 0x1198
_LONGEST: Final = 256  # bytes of a type's name
# cl_int clGetKernelArgInfo(cl_kernel, cl_uint index, cl_kernel_arg_info, size_t, void *, size_t *)
_Function: Final = ctypes.CFUNCTYPE(
    ctypes.c_int32,
    ctypes.c_void_p,
    ctypes.c_uint32,
    ctypes.c_uint32,
    ctypes.c_size_t,
    ctypes.c_void_p,
    ctypes.c_void_p,
)


def query_declared_types(kernel: int, count: int) -> tuple[Declared, ...]:
    """Return what a kernel declares for each of its arguments.

    Args:
        kernel: a cl_kernel.
        count: how many arguments it has.
    """
    function = _find_arg_info(kernel)
    return tuple(_query_declared(function, kernel, index) for index in range(count))


def _find_arg_info(kernel: int) -> Any:
    """Return clGetKernelArgInfo of the kernel's driver, None if it has none."""
    table, data = read_words(kernel, 2)
    if table and read_words(table, 1)[0] == TAG:
        table = data
    address = read_words(table + 8 * SLOT, 1)[0] if table else None
    return _Function(address) if address else None


def _query_declared(function: Any, kernel: int, index: int) -> Declared:
    text = ctypes.create_string_buffer(_LONGEST)
    if function is None or function(kernel, index, TYPE_NAME, _LONGEST, text, None):
        return None
    name = text.value.decode("utf-8", "replace")
    if name.endswith("*"):
        return IS_MEMORY
    return sys.intern(name) if name in _OBJECTS else _NUMBERS.get(name)


def fit_arguments(
    arguments: tuple[Argument, ...], declared: Sequence[Declared], kernel: str, routine: str
) -> tuple[Argument, ...]:
    """Return the arguments as a kernel declares them.

    Raises:
        SYCLError: kernel_argument, for an argument that is not exactly of the declared type.
    """
    for one, wanted in zip(arguments, declared, strict=True):
        if one.dtype is not wanted and wanted is not None:
            break
    else:
        return arguments
    return tuple(
        fit(one, wanted, index, kernel, routine)
        for index, (one, wanted) in enumerate(zip(arguments, declared, strict=True))
    )


def fit(one: Argument, wanted: Declared, index: int, kernel: str, routine: str) -> Argument:
    """Return one argument as `wanted`. See `fit_arguments`."""
    if wanted is None or one.dtype is wanted or one.is_raw:
        return one
    what = _describe(one)
    if wanted is IS_MEMORY:
        raise _make_misfit_error(
            index, kernel, "a pointer", what, "USM memory or an accessor", routine
        )
    if wanted in _OBJECTS:
        remedy = f"{_OBJECTS[wanted]}, or PyOpenCL's object of that type"
        raise _make_misfit_error(index, kernel, wanted, what, remedy, routine)
    name = _NAMES[wanted]
    if one.type != VALUE:
        raise _make_misfit_error(index, kernel, name, what, f"numpy.{wanted}(…)", routine)
    if one.dtype is None:  # a structure or a vector: the driver looks at its size
        return one
    value = numpy.frombuffer(one.keep, one.dtype)[0]
    with numpy.errstate(all="ignore"):
        made = value.astype(wanted) if one.dtype.kind != "c" else None
    if made is None or not _are_same_number(made.item(), value.item()):
        raise _make_misfit_error(
            index, kernel, name, f"{one.dtype} {value}", f"numpy.{wanted}(…)", routine
        )
    return make_number_argument(made)


def _are_same_number(one: Any, other: Any) -> bool:
    """Whether two Python numbers are equal, or both are NaN."""
    return one == other or (one != one and other != other)


def _describe(one: Argument) -> str:
    """Return what messages call an argument."""
    if one.type == VALUE:
        return "a value"
    return f"an object of the type {one.dtype}" if one.dtype in _OBJECTS else "memory"


def _make_misfit_error(
    index: int, kernel: str, declared: str, given: str, remedy: str, routine: str
) -> SYCLError:
    return SYCLError(
        Errc.kernel_argument,
        f"argument {index} of {kernel} is declared {declared}, and {given} is not exactly that",
        routine=routine,
        remedy=f"give {remedy}",
    )
