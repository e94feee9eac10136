"""Answers to queries: from a Python value to the bytes that `ur…GetInfo` writes, by the type that the ABI data has for the property.

A text is a `str`, a handle is an object (0 is the NULL handle), an array any sequence; the binaries of a program are as many
`bytes`. `bytes` are always taken as they are: that is how structs are given, and what has no type in the data.

`describe_wrong_answer` and `wrong_return_value` say what is wrong with a value that fits neither a property nor the outputs of a function.
"""

from __future__ import annotations

import reprlib
import struct
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any, Final

from ...loader.base.abi import Parameter
from ...loader.ur.abi import UR
from .objects import Object

#: The format of a number in `struct`, by its type in C.
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


def is_handle(answer: str) -> bool:
    """Whether the type of a property is a handle."""
    return UR.resolve(answer) == "handle"


def _text(value: Any, show: Callable[[Object], int]) -> bytes:
    return value.encode() + b"\0" if isinstance(value, str) else _raw(value, show)


def _raw(value: Any, show: Callable[[Object], int]) -> bytes:
    if isinstance(value, int):  # bytes(3) are three zeros
        raise TypeError("a number")
    return bytes(value)


def encode_pointers(value: Any, show: Callable[[Object], int]) -> bytes:
    """As many addresses, which are the caller's: what goes there is copied to where they lead."""
    return bytes(len(value) * struct.calcsize("P"))


_SPECIAL: Final[dict[str, Encode]] = {"char[]": _text, "unsigned char *[]": encode_pointers}


@cache
def encoder(answer: str) -> Encode:
    """What turns a value into bytes; `answer` is the type of the property, "size_t[]" or "ur_context_handle_t" or ""."""
    if answer in _SPECIAL:
        return _SPECIAL[answer]
    base = answer.removesuffix("[]").rstrip()
    letter = _FORMATS.get("pointer" if base.endswith("*") else UR.resolve(base))
    if letter is None:
        return _raw

    pack = struct.Struct(f"@{letter}").pack

    def one(value: Any, show: Callable[[Object], int]) -> bytes:
        if isinstance(value, bytes):
            return value
        return pack(show(value) if isinstance(value, Object) else value)

    def array(value: Any, show: Callable[[Object], int]) -> bytes:
        if isinstance(value, bytes):
            return value
        numbers = (show(item) if isinstance(item, Object) else item for item in value)
        return struct.pack(f"@{len(value)}{letter}", *numbers)

    return array if answer.endswith("[]") else one


@cache
def properties(group: str) -> dict[int, Encode]:
    """The properties of an info type, `ur_device_info_t`: value → encoder."""
    return {
        value: encoder(UR.constants[name].answer)
        for value, name in UR.groups.get(group, {}).items()
    }


def describe_wrong_answer(encoders: dict[int, Encode], name: int, value: Any) -> str:
    """What is wrong with an answer that is not of the property's type."""
    group = next(group for group in UR.groups if properties(group) is encoders)
    constant = UR.groups[group][name]
    return f"the answer to {constant} is {value!r}, and has to be of the type {UR.constants[constant].answer}"


def wrong_return_value(
    routine: str, value: Any, outputs: Sequence[Parameter], error: Exception
) -> TypeError:
    """What is wrong with what a function returned, which could not be stored in its outputs."""
    wanted = ", ".join(f"{_wanted(p)} for {p.name}" for p in outputs)
    why = "" if value is None else f" ({error})"
    return TypeError(
        f"{routine} returned {reprlib.repr(value)}; it has to return {'a tuple: ' * (len(outputs) > 1)}{wanted}{why}"
    )


def _wanted(output: Parameter) -> str:
    """What a function returns for an output."""
    base = UR.resolve(output.type)
    if base == "handle" and output.length:
        return "a list of objects"
    return {"handle": "an object", "void": "an address", "char": "a str"}.get(base, "a number")
