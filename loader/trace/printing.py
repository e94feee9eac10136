"""Traced calls as text: what a function was given and what it answered, told by the ABI data.

How data goes through: `decode` cuts the words of a log (native/log.c) into `TracedCall`s. A `TracedCall` holds raw words and *pieces*, the bytes
that its pointers led to when it came back; its texts are made when somebody asks for them. `head` and `tail` are the lines that are
printed around a call: one line each for Unified Runtime and OpenCL, a block for PI, as the DPC++ runtimes print them.

Nothing here follows a pointer: what was not read when the call came back is printed as an address.
"""

from __future__ import annotations

import ctypes
import struct
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Final, NamedTuple

from ..base.abi import Api, Function, Parameter

_POINTERS: Final = frozenset(("handle", "callback", "void*", "uintptr_t"))
_SIGNED: Final = frozenset(("char", "int8_t", "int16_t", "int32_t", "int64_t", "int", "intptr_t"))
_FLOATS: Final = {"float": "@f", "double": "@d"}
_BOOLEANS: Final = {0: "false", 1: "true"}
#: Parameters and types that hold an error code, which no group of constants names.
_CODES: Final = frozenset(("errcode_ret", "ur_result_t", "pi_result"))
_ESCAPES: Final = {'"': '\\"', "\\": "\\\\", "\n": "\\n", "\r": "\\r", "\t": "\\t", "\0": "\\0"}
_POINTER_SIZE: Final = ctypes.sizeof(ctypes.c_void_p)
_HEADER: Final = 6  # words of a record before its arguments


class Target(NamedTuple):
    """What a pointer led to: its elements as text, whether there are more of them, and whether it is an array at all."""

    texts: list[str]
    cut: bool = False
    many: bool = False

    def __str__(self) -> str:
        if self.many:
            return "{" + ", ".join([*self.texts, "..."] if self.cut else self.texts) + "}"
        return self.texts[0] if self.texts[0].startswith("{") else f"({self.texts[0]})"


@dataclass(frozen=True, slots=True)
class TracedCall:
    """One call that came back.

    `label` is that of the table, `thread` the kernel's thread id, `begin` and `end` are in ns of the monotonic clock. `arguments` and
    `result` are words, signed ones too; `pieces` has the bytes that were read for a parameter, by its position.
    """

    api: Api
    function: Function
    label: str
    thread: int
    begin: int
    end: int
    arguments: tuple[int, ...]
    result: int
    pieces: dict[int, bytes]

    @property
    def name(self) -> str:
        """The function's name."""
        return self.function.name

    @property
    def duration(self) -> int:
        """How long it took, in ns."""
        return self.end - self.begin

    @property
    def failed(self) -> bool:
        """Whether it says of itself that it failed: an error code, or NULL where an object was wanted."""
        if self.function.returns == "void":
            return False
        if self.function.error_channel == "return":
            return bool(self.result & 0xFFFFFFFF)
        return not self.result

    @property
    def result_text(self) -> str:
        """What it answered: the name of a code, an address; "" if it returns nothing."""
        returns = self.function.returns
        if returns == "void":
            return ""
        if returns.endswith("*"):
            return pointer(self.result)
        code = self.function.error_channel == "return"
        return (
            _code(self.api, returns, self.result) if code else _word(self.api, returns, self.result)
        )

    def arguments_text(self) -> list[tuple[str, str]]:
        """The name of every parameter, and what was passed for it."""
        return [(p.name, self._argument(i)) for i, p in enumerate(self.function.parameters)]

    def _argument(self, index: int) -> str:
        parameter, word = self.function.parameters[index], self.arguments[index]
        if not parameter.stars:
            data = self.pieces.get(index)
            return (
                value(self.api, parameter.type, data)
                if data
                else _word(self.api, parameter.type, word)
            )
        if not word:
            return "nullptr"
        found = self.target(index)
        if found is None:
            return pointer(word)
        return found.texts[0] if _is_text(self.api, parameter) else f"{pointer(word)} {found}"

    def target(self, index: int) -> Target | None:
        """What the pointer that was passed for a parameter led to; None if it was not read."""
        parameter, data = self.function.parameters[index], self.pieces.get(index, b"")
        if not parameter.stars or not data:
            return None
        if parameter.type_from:
            return self._answer(index, data)
        if _is_text(self.api, parameter):
            return Target([quoted(data)])
        if parameter.name in _CODES and len(data) >= 4:
            return Target(
                [_code(self.api, parameter.type, int.from_bytes(data[:4], sys.byteorder))]
            )
        count = self._count(parameter)
        type_name = "void*" if parameter.stars > 1 else parameter.type
        return _elements(
            self.api, type_name, data, count, many=bool(parameter.length) and count is not None
        )

    def _count(self, parameter: Parameter) -> int | None:
        """The number of elements that an array parameter was said to have; None if no argument says it."""
        for other, word in zip(self.function.parameters, self.arguments, strict=True):
            if other.name == parameter.length and not other.stars:
                return word
        return None

    def _answer(self, index: int, data: bytes) -> Target | None:
        """What an info query answered: its type is the one that the asked constant stands for."""
        parameters, parameter = self.function.parameters, self.function.parameters[index]
        asked = next((i for i, p in enumerate(parameters) if p.name == parameter.type_from), None)
        if asked is None or (self.failed and parameter.is_out):
            return None
        number = _masked(self.api, parameters[asked].type, self.arguments[asked])
        answer = _answers(self.api).get((parameters[asked].type, number), "")
        size = self._count(parameter) or 0
        after = parameters[index + 1 : index + 2]  # how many bytes it wrote, or would have
        written = self.pieces.get(index + 1, b"") if after and after[0].type == "size_t" else b""
        if len(written) == _POINTER_SIZE:
            size = min(size, int.from_bytes(written, sys.byteorder))
        data = data[:size]
        if not answer or not data:
            return None
        if answer == "char[]":
            return Target([quoted(data, size > len(data))])
        type_name, many = answer.removesuffix("[]").strip(), answer.endswith("[]")
        type_name = "void*" if type_name.endswith("*") else type_name
        return _elements(self.api, type_name, data, size // (_size(self.api, type_name) or 1), many)

    def __str__(self) -> str:
        arguments = ", ".join(f".{name} = {text}" for name, text in self.arguments_text())
        result = self.result_text
        return f"{self.name}({arguments}) -> {result};" if result else f"{self.name}({arguments});"


def decode(words: memoryview, layers: Mapping[int, tuple[Api, str]]) -> list[TracedCall]:
    """The calls of a log, in the order in which they came back.

    `words` is what `Log.words` gives; `layers` says for the address of each layer whose calls it forwarded: the API and the label.
    Records of other layers are passed over.
    """
    calls = []
    start = 0
    while start < len(words):
        length, slot = words[start] & 0xFFFFFFFF, words[start] >> 32
        counts, layer, begin, end, result = words[start + 1 : start + _HEADER]
        if layer in layers:
            api, label = layers[layer]
            first = start + _HEADER + (counts & 0xFFFF)
            arguments = tuple(words[start + _HEADER : first])
            found = pieces(words[first : start + length])
            calls.append(
                TracedCall(
                    api, api.slots[slot], label, counts >> 32, begin, end, arguments, result, found
                )
            )
        start += length
    return calls


def pieces(words: memoryview) -> dict[int, bytes]:
    """The pieces at the end of a record: the position of a parameter, and the bytes that it led to; b"" if it led nowhere."""
    data, found, place = words.cast("B"), {}, 0
    while place < len(words):
        size = words[place] >> 32
        found[words[place] & 0xFFFFFFFF] = bytes(data[(place + 1) * 8 : (place + 1) * 8 + size])
        place += 1 + (size + 7) // 8
    return found


def head(call: TracedCall, indent: str = "") -> str:
    """What is printed before a call is forwarded; of `call` only the function and the arguments count."""
    if call.api.path.stem != "pi":
        return f"{indent}---> {call.name}\n"
    given = replace(call, pieces={})  # nothing has been read yet
    lines = zip(call.function.parameters, given.arguments_text(), strict=True)
    body = "".join(
        f"\t{_declared(p)} : {'<nullptr>' if text == 'nullptr' else text}\n"
        for p, (_, text) in lines
    )
    return f"---> {call.name}(\n{body}) ---> "


def tail(call: TracedCall, indent: str = "", times: bool = False) -> str:
    """What is printed when a call came back, with how long it took if `times`."""
    time = duration(call.duration) if times else ""
    if call.api.path.stem != "pi":
        return f"{indent}<--- {call}{' ' + time if time else ''}\n"
    lines = [f"\tpi_result : {call.result_text}{'; ' + time if time else ''}\n"]
    for index, parameter in enumerate(call.function.parameters):
        found = call.target(index) if parameter.is_out else None
        if found is not None:
            handle = call.api.resolve(parameter.type) == "handle"
            text = (
                f"{found.texts[0]} ..."
                if handle
                else ", ".join([*found.texts, "..."] if found.cut else found.texts)
            )
            lines.append(
                f"\t[out]{_declared(parameter)} : {pointer(call.arguments[index])}[ {text} ]\n"
            )
    return "".join([*lines, "\n"])


def duration(ns: int) -> str:
    """A time in ns as people read it: "12.3 us"."""
    for unit, size in (("s", 1_000_000_000), ("ms", 1_000_000), ("us", 1_000)):
        if ns >= size:
            return f"{ns / size:.1f} {unit}"
    return f"{ns} ns"


def pointer(word: int) -> str:
    """An address, a handle."""
    return f"{word:#x}" if word else "nullptr"


def quoted(data: bytes, cut: bool = True) -> str:
    """The C string at the beginning of `data`, as C writes it; `cut` says whether it goes on where no NUL ends it."""
    text, end, _ = data.partition(b"\0")
    escaped = "".join(map(_escape, text.decode("utf-8", "surrogateescape")))
    return f'"{escaped}"' if end or not cut else f'"{escaped}"...'


def value(api: Api, type_name: str, data: bytes) -> str:
    """One value of a type, from its bytes in memory."""
    if api.resolve(type_name) == "struct":
        return _struct_text(api, type_name, data)
    return _word(api, type_name, int.from_bytes(data[: _size(api, type_name)], sys.byteorder))


def _word(api: Api, type_name: str, word: int) -> str:
    """A value that is not a struct, from a word whose low bytes it is."""
    base = api.resolve(type_name)
    if base in _POINTERS:
        return pointer(word)
    if base == "struct":  # passed by value, and not read
        return pointer(word)
    if type_name in _CODES:
        return _code(api, type_name, word)
    number = _masked(api, type_name, word)
    if base in _FLOATS:
        return f"{struct.unpack(_FLOATS[base], number.to_bytes(_size(api, type_name), sys.byteorder))[0]:g}"
    names = {} if type_name in _plain_types(api) else api.groups.get(type_name, {})
    if number in names:
        return names[number]
    if names and api.is_bitfield(type_name):
        return _bits(names, number)
    if not names and (base == "bool" or type_name.endswith(("bool", "bool_t"))):
        return _BOOLEANS.get(number, str(number))
    return str(number)


def _masked(api: Api, type_name: str, word: int) -> int:
    """The number that a word holds for a type: the low bytes of it, with the type's sign."""
    size = _size(api, type_name)
    number = word & ((1 << 8 * size) - 1)
    return (
        number - (1 << 8 * size)
        if api.resolve(type_name) in _SIGNED and number >> (8 * size - 1)
        else number
    )


def _bits(names: Mapping[int, str], number: int) -> str:
    """A bit-field: the names of its bits, and what has no name as a number."""
    found = []
    for bit, name in names.items():
        if bit > 0 and not bit & (bit - 1) and number & bit:
            found.append(name)
            number &= ~bit
    return " | ".join([*found, f"{number:#x}"] if number else found) or "0"


def _code(api: Api, type_name: str, word: int) -> str:
    code = ctypes.c_int32(word & 0xFFFFFFFF).value
    return api.errors[code][0] if code in api.errors else str(code)


def _elements(
    api: Api, type_name: str, data: bytes, count: int | None, many: bool
) -> Target | None:
    """The elements in `data`, of which there were to be `count`; None if there is not even one."""
    if many and type_name == "char":
        return Target([quoted(data, (count or 0) > len(data))])
    size = _size(api, type_name)
    whole = len(data) // size if size else 0
    if not whole:
        return None
    texts = [
        value(api, type_name, data[i * size : (i + 1) * size]) for i in range(whole if many else 1)
    ]
    return Target(texts, count is not None and count > whole, many)


def _struct_text(api: Api, name: str, data: bytes) -> str:
    """A struct with the names of its fields. Which member of a union counts is not known here: it is printed as a number."""
    kind = api.struct(name)
    if len(data) < ctypes.sizeof(kind):
        return "{...}"
    if api.structs[name].kind == "union":
        return f"{{{int.from_bytes(data[:_POINTER_SIZE], sys.byteorder):#x}}}"
    texts = []
    for field in api.structs[name].fields:
        place = getattr(kind, field.name)
        texts.append(
            f".{field.name} = {_field(api, field, data[place.offset : place.offset + place.size])}"
        )
    return "{" + ", ".join(texts) + "}"


def _field(api: Api, field: Parameter, data: bytes) -> str:
    if field.stars:
        return pointer(int.from_bytes(data, sys.byteorder))
    if field.length:
        if field.type == "char":
            return quoted(data, cut=False)
        return str(_elements(api, field.type, data, None, many=True))
    return value(api, field.type, data)


@cache
def _size(api: Api, type_name: str) -> int:
    """The size of a type in bytes, 0 if the data does not say what it is."""
    base = api.resolve(type_name)
    if (base == "struct" and type_name not in api.structs) or base == "void":
        return 0
    return ctypes.sizeof(api.ctype(type_name))


@cache
def _plain_types(api: Api) -> frozenset[str]:
    """The types that others are made of, `cl_uint`: a number of theirs is no constant, even where some constants belong to them."""
    return frozenset(api.types.values())


@cache
def _answers(api: Api) -> dict[tuple[str, int], str]:
    """(type, value) of a constant → the type that a query for it answers with."""
    found: dict[tuple[str, int], str] = {}
    for constant in api.constants.values():
        if constant.answer:
            found.setdefault((constant.group, constant.value), constant.answer)
    return found


def _is_text(api: Api, parameter: Parameter) -> bool:
    """Whether a parameter is a C string that the function reads."""
    return (
        parameter.const
        and parameter.stars == 1
        and not parameter.length
        and api.resolve(parameter.type) == "char"
    )


def _declared(parameter: Parameter) -> str:
    return f"{parameter.c_type.strip()} {parameter.name}"


def _escape(character: str) -> str:
    number = ord(character)
    if 0xDC80 <= number <= 0xDCFF:  # a byte that is not UTF-8
        return f"\\x{number & 0xFF:02x}"
    if character in _ESCAPES:
        return _ESCAPES[character]
    if character.isprintable():
        return character
    return f"\\x{number:02x}" if number < 0x100 else f"\\u{number:04x}"


def unanswered(
    api: Api, slot: int, arguments: Sequence[int], label: str = "", thread: int = 0, begin: int = 0
) -> TracedCall:
    """A call on its way, for `head`: it has no result yet."""
    return TracedCall(api, api.slots[slot], label, thread, begin, begin, tuple(arguments), 0, {})
