"""What functions of the extensions are made of: declaration, errors, and the program's memory."""

from __future__ import annotations

import sys
import traceback
from collections.abc import Callable, Sequence
from typing import Any, Final, TypeVar

from ...icd._native import ffi
from ...icd.abi import OPENCL
from ...icd.calls import call, get_address
from ...icd.errors import OpenCLError, error
from ...loader.base.interrupts import ENTRY
from ...loader.base.search import filter_environ

_Function = TypeVar("_Function", bound=Callable[..., Any])

_CODES: Final = {name: code for code, (name, _) in OPENCL.errors.items()}
_NO_MEMORY: Final = _CODES["CL_OUT_OF_HOST_MEMORY"]
_UNEXPECTED: Final = _CODES["CL_OUT_OF_RESOURCES"]

#: The functions of the extensions by their names, as C calls them.
ENTRIES: Final[dict[str, Any]] = {}

#: Prints each refusal with its reason: a C program sees nothing but the code.
_says_why: Final = filter_environ().get("FAIRLEAD_LAYER_LOG", "") not in ("", "0")


def make_error(code: str, why: str) -> OpenCLError:
    """Return the exception for an error code, given by its name.

    Args:
        code: such as "CL_INVALID_VALUE".
        why: what is wrong, in a sentence.
    """
    return error(_CODES[code], "the command-buffer layer", why)


def entry(function: _Function) -> _Function:
    """Declare a function of an extension, under its name. A decorator.

    Its parameters are those of the specification, without `errcode_ret`: numbers, or None for NULL
    and for a zero handle. It returns nothing, or the handle that the C function returns.
    """
    name = function.__name__
    described = OPENCL.functions[name]
    if described.error_channel == "errcode_ret":

        def make(*arguments: Any) -> int:
            handle, code = _call(name, function, arguments[:-1])
            write(arguments[-1], "int32_t", code)
            return handle or 0

        called = make
    else:

        def call_with_code(*arguments: Any) -> int:
            return _call(name, function, arguments)[1]

        called = call_with_code
    # Ctrl-C must not interrupt it.
    called.__code__ = called.__code__.replace(co_filename=f"{ENTRY}{name}>")
    ENTRIES[name] = described.prototype(called)
    return function


def _call(name: str, function: Callable[..., Any], arguments: Sequence[Any]) -> tuple[Any, int]:
    try:
        return function(*arguments), 0
    except OpenCLError as failed:
        if _says_why:
            print(f"fairlead: {name}: {failed}", file=sys.stderr)
        return None, failed.value
    except MemoryError:
        return None, _NO_MEMORY
    except BaseException:
        traceback.print_exc()
        return None, _UNEXPECTED


# the program's memory


def read_numbers(where: int | None, kind: str, count: int) -> list[int]:
    """Read an array of the program.

    Args:
        kind: the C type of its elements.
    """
    return list(ffi.unpack(ffi.cast(f"{kind} *", where), count)) if count else []


def write(where: int | None, kind: str, *values: int) -> None:
    """Write numbers of a C type to the program's memory, unless the address is NULL."""
    if where:
        pointer = ffi.cast(f"{kind} *", where)
        for number, value in enumerate(values):
            pointer[number] = value


def copy_bytes(where: int, size: int) -> bytes:
    """Read bytes of the program."""
    return bytes(ffi.buffer(ffi.cast("char *", where), size))


def read_properties(where: int | None) -> tuple[int, ...] | None:
    """Read a list of properties, with the 0 at its end; None for NULL."""
    if not where:
        return None
    found: list[int] = []
    pointer = ffi.cast("uint64_t *", where)
    while pointer[len(found)]:
        found += pointer[len(found)], pointer[len(found) + 1]
    return (*found, 0)


def pair_properties(properties: tuple[int, ...] | None, known: Sequence[str]) -> dict[str, int]:
    """Return the values of properties by their names.

    Args:
        properties: a list with a 0 at its end, or None.

    Raises:
        OpenCLError: CL_INVALID_VALUE if a property is unknown, or there twice.
    """
    found: dict[str, int] = {}
    names = {OPENCL[name]: name for name in known}
    given = (properties or (0,))[:-1]
    for number, value in zip(given[::2], given[1::2], strict=True):
        name = names.get(number)
        if name is None or name in found:
            raise make_error("CL_INVALID_VALUE", f"property {number:#x} is unknown, or there twice")
        found[name] = value
    return found


def check_bits(value: int, known: int, what: str) -> None:
    """Check a bit-field. Raises OpenCLError (CL_INVALID_VALUE) for an unknown bit."""
    if value & ~known:
        raise make_error("CL_INVALID_VALUE", f"{what} {value:#x} has bits other than {known:#x}")


def answer(value: bytes, room: int | None, into: int | None, size_ret: int | None) -> None:
    """Answer a query. Raises OpenCLError (CL_INVALID_VALUE) if there is too little room."""
    if into:
        if (room or 0) < len(value):
            raise make_error("CL_INVALID_VALUE", f"the answer has {len(value)} bytes")
        ffi.memmove(ffi.cast("char *", into), value, len(value))
    write(size_ret, "size_t", len(value))


def pack(kind: str, *values: int) -> bytes:
    """Return numbers of a C type as bytes."""
    return bytes(ffi.buffer(ffi.new(f"{kind}[]", list(values)))) if values else b""


# the driver's objects


def ask(handle: int, routine: str, name: str, kind: str, code: str) -> int:
    """Ask an object for a number.

    Args:
        routine: the function that is asked, such as "clGetMemObjectInfo".
        kind: the C type of the answer.
        code: the error if the driver does not know the object.

    Raises:
        OpenCLError: the driver does not answer.
    """
    value = ffi.new(f"{kind} *")
    if call(handle, routine, OPENCL[name], ffi.sizeof(kind), get_address(value), None):
        raise make_error(code, f"{routine} does not answer {name}")
    return value[0]


def ask_all(handle: int, routine: str, name: str, kind: str, count: int, *first: Any) -> list[int]:
    """Ask an object for several numbers; zeros if it does not answer.

    Args:
        kind: the C type of each number.
        first: the parameters before the constant.
    """
    value = ffi.new(f"{kind}[]", count)
    call(handle, routine, *first, OPENCL[name], ffi.sizeof(value), get_address(value), None)
    return list(value)
