"""Answers to queries: the bytes that `ur…GetInfo` writes for a Python value.

The ABI data has the type of each property. A text is a `str`. A handle is an object, 0 for NULL. An
array is any sequence. The binaries of a program are as many `bytes`. A value that is `bytes` is
written as it is: this is for structs, and for properties without a type in the data.
"""

from __future__ import annotations

import reprlib
import struct
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any, Final

from ...loader.base.abi import Parameter
from ...loader.ur.abi import UR
from ._native import ffi, lib
from .objects import Object

#: The format of a number in the module `struct`, by its type in C.
_FORMATS: Final = {
    "bool": "?",
    "int8_t": "b",
    "uint8_t": "B",
    "int16_t": "h",
    "uint16_t": "H",
    "int": "i",
    "int32_t": "i",
    "uint32_t": "I",
    "int64_t": "q",
    "uint64_t": "Q",
    "size_t": "N",
    "intptr_t": "n",
    "uintptr_t": "N",
    "float": "f",
    "double": "d",
    "handle": "N",
    "pointer": "N",
}

Encode = Callable[[Any, Callable[[Object], int]], bytes]


def make_answers() -> Any:
    """Return room for answers that C keeps with an object."""
    return ffi.gc(lib.fl_new_answers(), lib.fl_free_answers)


def is_handle(answer: str) -> bool:
    """Return whether the type of a property is a handle."""
    return UR.resolve(answer) == "handle"


def _encode_text(value: Any, show: Callable[[Object], int]) -> bytes:
    return value.encode() + b"\0" if isinstance(value, str) else _encode_raw(value, show)


def _encode_raw(value: Any, show: Callable[[Object], int]) -> bytes:
    if isinstance(value, int):  # bytes(3) would be three zeros
        raise TypeError("a number")
    return bytes(value)


def encode_pointers(value: Any, show: Callable[[Object], int]) -> bytes:
    """Return room for as many addresses. The caller has them, and values are copied there."""
    return bytes(len(value) * struct.calcsize("P"))


_SPECIAL: Final[dict[str, Encode]] = {"char[]": _encode_text, "unsigned char *[]": encode_pointers}


@cache
def make_encoder(answer: str) -> Encode:
    """Return the function that makes bytes of a value.

    Args:
        answer: the type of the property: "size_t[]", "ur_context_handle_t", or "" for none.
    """
    if answer in _SPECIAL:
        return _SPECIAL[answer]
    base = answer.removesuffix("[]").rstrip()
    letter = _FORMATS.get("pointer" if base.endswith("*") else UR.resolve(base))
    if letter is None:
        return _encode_raw

    pack = struct.Struct(f"@{letter}").pack

    def encode_one(value: Any, show: Callable[[Object], int]) -> bytes:
        if isinstance(value, bytes):
            return value
        return pack(show(value) if isinstance(value, Object) else value)

    def encode_array(value: Any, show: Callable[[Object], int]) -> bytes:
        if isinstance(value, bytes):
            return value
        numbers = (show(item) if isinstance(item, Object) else item for item in value)
        return struct.pack(f"@{len(value)}{letter}", *numbers)

    return encode_array if answer.endswith("[]") else encode_one


@cache
def list_encoders(group: str) -> dict[int, Encode]:
    """Return the encoders of an info type's properties by their numbers.

    Args:
        group: the info type, such as "ur_device_info_t".
    """
    return {
        value: make_encoder(UR.constants[name].answer)
        for value, name in UR.groups.get(group, {}).items()
    }


def describe_wrong_answer(encoders: dict[int, Encode], name: int, value: Any) -> str:
    """Say what is wrong with an answer that is not of the property's type.

    Args:
        encoders: the encoders of the property's info type.
        name: the number of the property.
    """
    group = next(group for group in UR.groups if list_encoders(group) is encoders)
    constant = UR.groups[group][name]
    wanted = UR.constants[constant].answer
    return f"the answer to {constant} is {value!r}, and has to be of the type {wanted}"


def describe_wrong_return(
    routine: str, value: Any, outputs: Sequence[Parameter], error: Exception
) -> TypeError:
    """Return the error for a value that could not be stored in the outputs of a function.

    Args:
        error: why it could not be stored.
    """
    wanted = "a tuple: " * (len(outputs) > 1)
    wanted += ", ".join(f"{_describe_output(p)} for {p.name}" for p in outputs)
    why = "" if value is None else f" ({error})"
    return TypeError(f"{routine} returned {reprlib.repr(value)}; it has to return {wanted}{why}")


def _describe_output(output: Parameter) -> str:
    """Say what a function returns for an output."""
    base = UR.resolve(output.type)
    if base == "handle" and output.length:
        return "a list of objects"
    return {"handle": "an object", "void": "an address", "char": "a str"}.get(base, "a number")
