"""Values of C types as text: numbers, names of constants, strings, structs, arrays.

The types come from the ABI data, the bytes from a trace. Nothing here follows a pointer.
"""

from __future__ import annotations

import ctypes
import struct
import sys
from collections.abc import Mapping
from functools import cache
from typing import Final, NamedTuple

from ..base.abi import Api, Parameter

_POINTERS: Final = frozenset(("handle", "callback", "void*", "uintptr_t"))


_SIGNED: Final = frozenset(("char", "int8_t", "int16_t", "int32_t", "int64_t", "int", "intptr_t"))


_FLOATS: Final = {"float": "@f", "double": "@d"}


_BOOLEANS: Final = {0: "false", 1: "true"}


#: Parameters and types that contain an error code.
CODES: Final = frozenset(("errcode_ret", "ur_result_t", "pi_result", "ze_result_t"))


_ESCAPES: Final = {'"': '\\"', "\\": "\\\\", "\n": "\\n", "\r": "\\r", "\t": "\\t", "\0": "\\0"}


POINTER_SIZE: Final = ctypes.sizeof(ctypes.c_void_p)


class Target(NamedTuple):
    """The memory behind a pointer, as text.

    Attributes:
        cut: whether there are more elements.
        many: whether it is an array.
    """

    texts: list[str]
    cut: bool = False
    many: bool = False

    def __str__(self) -> str:
        if self.many:
            return "{" + ", ".join([*self.texts, "..."] if self.cut else self.texts) + "}"
        return self.texts[0] if self.texts[0].startswith("{") else f"({self.texts[0]})"


def format_pointer(word: int) -> str:
    """Return an address or a handle as text."""
    return f"{word:#x}" if word else "nullptr"


def format_quoted(data: bytes, cut: bool = True) -> str:
    """Return the C string at the beginning of `data`, written as in C.

    Args:
        cut: whether the string continues after `data` if no NUL ends it.
    """
    text, end, _ = data.partition(b"\0")
    escaped = "".join(map(_escape, text.decode("utf-8", "surrogateescape")))
    return f'"{escaped}"' if end or not cut else f'"{escaped}"...'


def format_value(api: Api, type_name: str, data: bytes) -> str:
    """Return a value of a type as text.

    Args:
        api: the ABI data that knows the type.
        data: the bytes of the value in memory.
    """
    if api.resolve(type_name) == "struct":
        return _format_struct(api, type_name, data)
    return format_word(
        api, type_name, int.from_bytes(data[: find_size(api, type_name)], sys.byteorder)
    )


def format_word(api: Api, type_name: str, word: int) -> str:
    """Return a value as text from a word that contains it in its low bytes."""
    base = api.resolve(type_name)
    if base in _POINTERS:
        return format_pointer(word)
    if base == "struct":  # passed by value, and not read
        return format_pointer(word)
    if type_name in CODES:
        return format_code(api, type_name, word)
    number = decode_number(api, type_name, word)
    if base in _FLOATS:
        data = number.to_bytes(find_size(api, type_name), sys.byteorder)
        return f"{struct.unpack(_FLOATS[base], data)[0]:g}"
    names = {} if type_name in _find_plain_types(api) else api.groups.get(type_name, {})
    if number in names:
        return names[number]
    if names and api.is_bitfield(type_name):
        return _format_bits(names, number)
    if not names and (base == "bool" or type_name.endswith(("bool", "bool_t"))):
        return _BOOLEANS.get(number, str(number))
    return str(number)


def decode_number(api: Api, type_name: str, word: int) -> int:
    """Return the number of a type in the low bytes of a word, with the type's sign."""
    size = find_size(api, type_name)
    number = word & ((1 << 8 * size) - 1)
    return (
        number - (1 << 8 * size)
        if api.resolve(type_name) in _SIGNED and number >> (8 * size - 1)
        else number
    )


def _format_bits(names: Mapping[int, str], number: int) -> str:
    """Return the names of the bits in a number. Bits without a name are printed as a number."""
    found = []
    for bit, name in names.items():
        if bit > 0 and not bit & (bit - 1) and number & bit:
            found.append(name)
            number &= ~bit
    return " | ".join([*found, f"{number:#x}"] if number else found) or "0"


def format_code(api: Api, type_name: str, word: int) -> str:
    code = ctypes.c_int32(word & 0xFFFFFFFF).value
    return api.errors[code][0] if code in api.errors else str(code)


def make_target(
    api: Api, type_name: str, data: bytes, count: int | None, many: bool
) -> Target | None:
    """Return the elements in `data`, None if it contains no complete one.

    Args:
        api: the ABI data that knows the type.
        data: the bytes that were read.
        count: the number of elements in memory, None if unknown.
        many: whether it is an array.
    """
    if many and type_name == "char":
        return Target([format_quoted(data, (count or 0) > len(data))])
    size = find_size(api, type_name)
    whole = len(data) // size if size else 0
    if not whole:
        return None
    texts = [
        format_value(api, type_name, data[i * size : (i + 1) * size])
        for i in range(whole if many else 1)
    ]
    return Target(texts, count is not None and count > whole, many)


def _format_struct(api: Api, name: str, data: bytes) -> str:
    """Return a struct as text with the names of its fields.

    A union is printed as a number, because its active member is unknown.
    """
    kind = api.get_struct(name)
    if len(data) < ctypes.sizeof(kind):
        return "{...}"
    if api.structs[name].kind == "union":
        return f"{{{int.from_bytes(data[:POINTER_SIZE], sys.byteorder):#x}}}"
    texts = []
    for field in api.structs[name].fields:
        place = getattr(kind, field.name)
        bytes_ = data[place.offset : place.offset + place.size]
        texts.append(f".{field.name} = {_format_field(api, field, bytes_)}")
    return "{" + ", ".join(texts) + "}"


def _format_field(api: Api, field: Parameter, data: bytes) -> str:
    if field.stars:
        return format_pointer(int.from_bytes(data, sys.byteorder))
    if field.length:
        if field.type == "char":
            return format_quoted(data, cut=False)
        return str(make_target(api, field.type, data, None, many=True))
    return format_value(api, field.type, data)


@cache
def find_size(api: Api, type_name: str) -> int:
    """Return the size of a type in bytes, 0 if the ABI data does not define it."""
    base = api.resolve(type_name)
    if (base == "struct" and type_name not in api.structs) or base == "void":
        return 0
    return ctypes.sizeof(api.make_ctype(type_name))


@cache
def _find_plain_types(api: Api) -> frozenset[str]:
    """Return the types that other types are made of, such as `cl_uint`.

    Their numbers are printed as numbers, although some constants have such a type.
    """
    return frozenset(api.types.values())


def _escape(character: str) -> str:
    number = ord(character)
    if 0xDC80 <= number <= 0xDCFF:  # a byte that is not UTF-8
        return f"\\x{number & 0xFF:02x}"
    if character in _ESCAPES:
        return _ESCAPES[character]
    if character.isprintable():
        return character
    return f"\\x{number:02x}" if number < 0x100 else f"\\u{number:04x}"
