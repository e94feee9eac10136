"""What a kernel's argument can be, and the form in which adapters take it
(ur_exp_kernel_arg_properties_t).

| given | argument |
|---|---|
| `Accessor` of a buffer or an image | its memory object; read or written as the accessor says |
| `Sampler` | its sampler |
| pyopencl.Buffer, pyopencl.Image, pyopencl.array.Array, SVM | its memory object, or the pointer |
| `USM`, or what has `__sycl_usm_array_interface__` or `__cuda_array_interface__` | the pointer |
| NumPy scalar or structured value, ctypes object, `RawArgument(bytes)` | its bytes |
| bool | one byte, OpenCL C's `bool` as `uchar` |
| `LocalMemory(bytes)`, `LocalMemory(count, dtype)` | that much local memory for each work-group |
| `DynamicArgument` | its present value; it records where it is used (graph/dynamic.py) |

A Python int or float does not say how many bytes it has, and is refused. A number is converted to
the type that the kernel declares, if the driver tells that type and the conversion is exact
(kernel_types.py).
"""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy

from ..loader.ur.abi import UR
from .checks import as_integer, check_element_type, make_type_error
from .errors import Errc, SYCLError, make_invalid_error
from .foreign_arrays import find_foreign_array

if TYPE_CHECKING:
    from .commands import Command
    from .context import Context
    from .handler import Handler
    from .memory import Memory
    from .sampler import Sampler

VALUE: Final = UR["UR_EXP_KERNEL_ARG_TYPE_VALUE"]
POINTER: Final = UR["UR_EXP_KERNEL_ARG_TYPE_POINTER"]
MEMORY: Final = UR["UR_EXP_KERNEL_ARG_TYPE_MEM_OBJ"]
LOCAL: Final = UR["UR_EXP_KERNEL_ARG_TYPE_LOCAL"]
SAMPLER: Final = UR["UR_EXP_KERNEL_ARG_TYPE_SAMPLER"]

_STYPE: Final = UR["UR_STRUCTURE_TYPE_EXP_KERNEL_ARG_PROPERTIES"]
#: stype, pNext, type, index, size, then the union: a word, and the flags of a memory object.
_ROW: Final = "I4xQIIQQI4x"
_POINTER_SIZE: Final = ctypes.sizeof(ctypes.c_void_p)


#: `Argument.dtype` of memory that is not an image.
IS_MEMORY: Final = "memory"


class Argument(NamedTuple):
    """An argument that is ready to be packed.

    Attributes:
        type: VALUE, POINTER, MEMORY, LOCAL or SAMPLER.
        size: in bytes.
        word: a pointer, or the address of a value.
        flags: the flags of a memory object (ur_mem_flags_t).
        keep: what must live as long as the argument is used; of a value its bytes.
        buffer: gives the memory object, or the sampler, in the context of the launch.
        dtype: of a number, None for another value, IS_MEMORY for memory; of an image or a sampler
            what kernels declare for it, "image2d_t".
        is_raw: whether the bytes are taken as they are, whatever the kernel declares.
        row: what adapters take of it (`make_row`), b"" if that was not made beforehand.
    """

    type: int
    size: int
    word: int = 0
    flags: int = 0
    keep: Any = None
    buffer: Memory | Sampler | None = None
    dtype: Any = IS_MEMORY
    is_raw: bool = False
    row: bytes = b""


def is_foreign(one: Argument) -> bool:
    """Return whether it is an address of memory that another package may free while it is used."""
    return one.type == POINTER and one.keep is not None and type(one.keep) not in MAKERS_ALONE


def are_equal(one: Argument, other: Argument) -> bool:
    """Return whether two arguments are known to be packed as the same bytes, and keep the same."""
    return one is other or (
        one.word == other.word
        and one.keep is other.keep
        and one.type == other.type
        and one.size == other.size
        and one.flags == other.flags
        and one.buffer is other.buffer
    )


class BoundArgument:
    """A value that has to know the handler in which it is used."""

    def bind(self, handler: Handler, index: int) -> Argument:
        """Return the argument for a handler's kernel."""
        raise NotImplementedError


class DynamicArgument(BoundArgument):
    """An argument whose value can be exchanged later: `bind` gives the present one."""

    def register(self, command: Command, index: int) -> None:
        """Record that a command has this argument."""
        raise NotImplementedError


class LocalMemory(BoundArgument):
    """Local memory of a work-group. (SYCL: local_accessor)

    Args:
        count: a number of bytes, or of elements if there is a dtype.

    Raises:
        SYCLError: invalid, for less than one byte.
    """

    def __init__(self, count: int, dtype: Any = None) -> None:
        self.size = as_integer(count, "number of bytes or elements", "LocalMemory")
        self.size *= check_element_type(dtype, "LocalMemory").itemsize if dtype is not None else 1
        if self.size <= 0:
            raise SYCLError(
                Errc.invalid, "local memory has at least one byte", routine="LocalMemory"
            )

    def bind(self, handler: Handler, index: int) -> Argument:
        """Return the argument for a handler's kernel. Raises SYCLError (invalid) if no device has
        that much."""
        found = Argument(LOCAL, self.size)
        handler.check_local(found, index)
        return found

    def __repr__(self) -> str:
        return f"<LocalMemory of {self.size} bytes>"


class RawArgument:
    """Bytes that the kernel gets as they are. (SYCL: raw_kernel_arg)"""

    def __init__(self, value: bytes) -> None:
        try:
            self.value = bytes(memoryview(value))
        except TypeError as error:
            raise make_type_error(
                value, "bytes", "RawArgument", "bytes(…), array.tobytes()"
            ) from error

    def __repr__(self) -> str:
        return f"<RawArgument of {len(self.value)} bytes>"


def check_local(arguments: Iterable[Argument | None], context: Context, routine: str) -> None:
    """Raise SYCLError (invalid) if arguments need more local memory than every device of the
    context has. Some drivers end the process then."""
    total = sum(one.size for one in arguments if one is not None and one.type == LOCAL)
    most = max(device.local_memory for device in context.devices)
    if total > most:
        raise make_invalid_error(
            f"a work-group would have {total} bytes of local memory, the device has {most}",
            routine=routine,
            remedy="use smaller work-groups, or several launches",
        )


_values: Final[dict[tuple[Any, bytes], Argument]] = {}
_MOST_VALUES: Final = 256


def make_value_argument(value: bytes, dtype: Any = None, is_raw: bool = False) -> Argument:
    """Return the argument for a value that is copied to the kernel. Equal values share one
    argument, because many launches use the same few.

    Args:
        dtype: the type of a number, None for another value.
        is_raw: whether the bytes are taken as they are.
    """
    key = is_raw or dtype, value
    found = _values.get(key)
    if found is None:
        if len(_values) >= _MOST_VALUES:
            _values.clear()
        word = _address(value)
        found = _values[key] = Argument(
            VALUE,
            len(value),
            word,
            0,
            value,
            None,
            dtype,
            is_raw,
            pack_row(VALUE, len(value), word),
        )
    return found


#: Where the bytes of a `bytes` object are, which does not move. (CPython: PyBytes_AsString)
_address: Final = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.py_object)(
    ("PyBytes_AsString", ctypes.pythonapi)
)


def make_number_argument(value: Any) -> Argument:
    """Return the argument for a NumPy number or bool. `value.data.tobytes()` is three times as fast
    as `value.tobytes()`."""
    return make_value_argument(value.data.tobytes(), value.dtype)


def _make_number_maker(kind: type) -> Callable[[Any], Argument]:
    """Return `make_number_argument` for one type of NumPy's."""
    dtype = numpy.dtype(kind)

    def make(value: Any) -> Argument:
        data = value.data.tobytes()
        return _values.get((dtype, data)) or make_value_argument(data, dtype)

    return make


def _make_from_numpy(value: Any) -> Argument:
    return make_value_argument(value.tobytes())


def _make_from_ctypes(value: Any) -> Argument:
    return make_value_argument(bytes(value))


def _make_from_simple_ctypes(value: Any) -> Argument:
    kind = type(value)._type_
    return make_value_argument(
        bytes(value), numpy.dtype(kind) if kind in _NUMBERS_OF_CTYPES else None
    )


#: The codes of ctypes' numbers, which NumPy shares.
_NUMBERS_OF_CTYPES: Final = frozenset("bBhHiIlLqQfd?")

#: How a value of a type becomes an argument; filled by the modules of the types (usm, buffer),
#: looked up along the type's bases.
MAKERS: Final[dict[type, Callable[[Any], Argument]]] = {
    numpy.number: make_number_argument,
    numpy.bool_: make_number_argument,
    numpy.generic: _make_from_numpy,
    # The base of ctypes' numbers has no public name.
    ctypes._SimpleCData: _make_from_simple_ctypes,  # pyright: ignore[reportPrivateUsage]
    ctypes.Structure: _make_from_ctypes,
    ctypes.Union: _make_from_ctypes,
    ctypes.Array: _make_from_ctypes,
    RawArgument: lambda value: make_value_argument(value.value, is_raw=True),
    LocalMemory: lambda value: Argument(LOCAL, value.size),
    bool: lambda value: make_number_argument(numpy.bool_(value)),
    type(None): lambda value: Argument(POINTER, _POINTER_SIZE),
}

#: The makers of types whose values are known by themselves, whatever handler they are given to:
#: numbers, and USM. There are many of them.
MAKERS_ALONE: Final[dict[type, Callable[[Any], Argument]]] = {
    kind: _make_number_maker(kind)
    for kind in set(numpy.sctypeDict.values())
    if issubclass(kind, (numpy.number, numpy.bool_))
}

#: Asked for the maker of a type that MAKERS does not have; filled by interop.
FOREIGN: Final[list[Callable[[type], Callable[[Any], Argument] | None]]] = []


def make_argument(value: Any, index: int = 0) -> Argument:
    """Make a value an argument.

    Args:
        value: see the table above.
        index: the index of the argument, for messages.

    Raises:
        SYCLError: kernel_argument, for a value that cannot be one.
    """
    maker = MAKERS.get(type(value))
    if maker is None:
        if isinstance(value, numpy.ndarray) and value.ndim == 0:  # as PyOpenCL's vectors are
            return make_argument(value[()], index)
        foreign = find_foreign_array(value)  # which other objects of the type may not be
        if foreign is not None:
            return Argument(POINTER, _POINTER_SIZE, foreign.pointer, 0, value)
        maker = MAKERS[type(value)] = _find_maker(value, index)
    return maker(value)


def _find_maker(value: Any, index: int) -> Callable[[Any], Argument]:
    for base in type(value).__mro__:
        if base in MAKERS:
            return MAKERS[base]
    for maker in filter(None, (find(type(value)) for find in FOREIGN)):
        return maker
    if isinstance(value, (int, float, complex)):
        wanted = "numpy.int32(…)" if isinstance(value, int) else "numpy.float32(…)"
        raise SYCLError(
            Errc.kernel_argument,
            f"argument {index} is a Python {type(value).__name__}, which does not say how many "
            "bytes it has",
            routine="set_arg",
            remedy=f"give it its type: {wanted}",
        )
    raise SYCLError(
        Errc.kernel_argument,
        f"argument {index}, of type {type(value).__name__}, can be no kernel's argument",
        routine="set_arg",
        remedy="give an accessor, USM memory, pyopencl memory, a NumPy or ctypes value, a Sampler, "
        "LocalMemory or bytes in RawArgument",
    )


def pack(arguments: Sequence[Argument], context: Context) -> bytes | None:
    """Pack arguments into the C array that launches take."""
    rows: list[int] = []
    for index, (kind, size, word, flags, _, buffer, *_) in enumerate(arguments):
        rows += (
            _STYPE,
            0,
            kind,
            index,
            size,
            word if buffer is None else buffer.memory(context),
            flags,
        )
    return _make_packer(len(arguments))(*rows) if rows else None


def make_row(one: Argument, context: Context) -> bytes:
    """Return an argument in the form that launches take, with 0 as its index."""
    word = one.word if one.buffer is None else one.buffer.memory(context)
    return pack_row(one.type, one.size, word, one.flags)


def make_pointer_argument(pointer: int, keep: Any) -> Argument:
    """Return the argument for an address. `keep` must live as long as it is used."""
    row = pack_row(POINTER, _POINTER_SIZE, pointer)
    return Argument(POINTER, _POINTER_SIZE, pointer, 0, keep, row=row)


def pack_row(kind: int, size: int, word: int, flags: int = 0) -> bytes:
    """Return `Argument.row` of an argument. `word` is an address, or a handle."""
    return _pack(_STYPE, 0, kind, 0, size, word, flags)


_pack: Final = struct.Struct("<" + _ROW).pack


@lru_cache(64)
def _make_packer(count: int) -> Callable[..., bytes]:
    """Return the function that packs `count` rows."""
    return struct.Struct("<" + count * _ROW).pack
