"""What the generated entry points call: handles to objects, results to the caller's memory.

wrap.py generates the entry points. The lists and texts that a caller gives, and the values that a
function returns, are converted here.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple

from ...loader.base.errors import CodeError
from ...loader.ur.abi import UR, URError
from ._native import ffi
from .answers import Encode, describe_wrong_answer, encode_pointers
from .objects import Object, Registry

_LONGEST: Final = 1 << 20  # elements of a list; a larger count cannot be a count


def find_code(name: str) -> int:
    """Return the number of a code by its name, with or without UR_RESULT_ERROR_."""
    return UR.codes[name if name.startswith("UR_RESULT_") else f"UR_RESULT_ERROR_{name}"]


def failure(name: str, detail: str = "", routine: str = "", remedy: str = "") -> URError:
    """Return an exception for an entry point to raise.

    Args:
        name: the code that the caller gets, such as "INVALID_VALUE".
        detail: what urAdapterGetLastError says.
        routine: the function that failed, if it is not the entry point.
        remedy: what the caller does instead. urAdapterGetLastError says it, too.
    """
    return URError.from_code(find_code(name), routine, detail, remedy)


class Refused(Exception):
    """An argument was refused. It has a code, but no sentence, which would take time."""

    def __init__(self, code: int) -> None:
        super().__init__(code)
        self.code = code


_INVALID_SIZE: Final = find_code("INVALID_SIZE")
_NO_ANSWER: Final = find_code("UNSUPPORTED_ENUMERATION")
_CHARS: Final = ffi.typeof("char *")
_cast, _memmove = ffi.cast, ffi.memmove  # looked up once, because every answer needs them


def is_owned(properties: Any) -> bool:
    """Return whether the program gives us a native handle (`isNativeHandleOwned`)."""
    return bool(properties and properties.isNativeHandleOwned)


class HandleErrors(NamedTuple):
    """The errors for handles that are wrong.

    Attributes:
        fails: makes the error for a code and a sentence.
        dead: the code for a handle that is not alive.
        null: the code for NULL.
    """

    fails: Callable[[str, str], CodeError]
    dead: str
    null: str


def find_object(registry: Registry, type_name: str, handle: int, errors: HandleErrors) -> Object:
    """Return the object of a lent handle, or raise one of the errors."""
    thing = registry.find_lent(type_name, handle)
    if thing is None:
        code = errors.dead if handle else errors.null
        raise errors.fails(code, f"the {type_name} {handle:#x} is not alive")
    return thing


def read_objects(
    registry: Registry,
    type_name: str,
    pointer: Any,
    count: int,
    errors: HandleErrors,
    *,
    may_be_null: bool = False,
) -> list[Any]:
    """Return the objects of an array of handles, or raise one of the errors.

    Args:
        may_be_null: whether NULL has a meaning. It becomes None.
    """
    owned, handles = registry.list_owned(type_name), read_numbers(pointer, count, errors.fails)
    things = [owned.get(handle) for handle in handles]
    if None in things:
        things = [
            find_object(registry, type_name, handle, errors)
            if thing is None and (handle or not may_be_null)
            else thing
            for thing, handle in zip(things, handles, strict=True)
        ]
    return things


def read_numbers(
    pointer: Any, count: int, fails: Callable[[str, str], CodeError] = failure
) -> list[Any]:
    """Return the numbers of an array. Raises an error of `fails` for one that is too long."""
    if count > _LONGEST:
        raise fails("INVALID_SIZE", f"no list has {count} elements")
    return ffi.unpack(pointer, count) if count else []


def read_text(pointer: Any) -> str:
    """Return a `char *` as a str."""
    return ffi.string(pointer).decode("utf-8", "replace")


_kept: dict[str, Any] = {}


def keep_text(text: Any) -> Any:
    """Return a `char *` for a str, which is never freed. A `char *` is returned as it is."""
    if not isinstance(text, str):
        return text
    return _kept.setdefault(text, ffi.new("char[]", text.encode("utf-8", "replace")))


def give_list(registry: Registry, things: list[Any], room: int, into: Any, count: Any) -> None:
    """Write as many handles as there is room for, and how many there are, as urDeviceGet does."""
    if not isinstance(things, Sequence):
        raise TypeError("it is not a list")
    if into:
        for index, thing in enumerate(things[:room]):
            into[index] = registry.give(thing)
    if count:
        count[0] = len(things)


def answer(
    encoders: dict[int, Encode],
    registry: Registry,
    value: Any,
    name: int,
    size: int,
    into: int,
    size_ret: Any,
) -> None:
    """Write the value of a property, and its size, as ur…GetInfo does.

    Args:
        registry: gives the handles of objects.
        value: the value, None if there is no answer.
        size: bytes of room.
        into: the address of the room, or 0.
        size_ret: where the size is written, or NULL.
    """
    if value is None:
        raise Refused(_NO_ANSWER)
    encode = encoders[name]
    try:
        data = encode(value, registry.show)
    except (TypeError, ValueError, OverflowError, struct.error) as error:
        raise TypeError(f"{describe_wrong_answer(encoders, name, value)}: {error}") from None
    if into:
        if size < len(data):
            raise Refused(_INVALID_SIZE)
        if encode is encode_pointers:
            for index, each in enumerate(value):  # this answer is copied to where addresses lead
                _copy(ffi.cast("uintptr_t *", into)[index], each)
        else:
            _memmove(_cast(_CHARS, into), data, len(data))
    if size_ret:
        size_ret[0] = len(data)


def _copy(into: int, data: bytes) -> None:
    if into:
        _memmove(_cast(_CHARS, into), data, len(data))
