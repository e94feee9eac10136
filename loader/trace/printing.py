"""Makes the text of traced calls from the ABI data; environment.py prints it.

`decode` cuts a log (native/log.c) into `TracedCall`s. Each contains raw words and *pieces*: the
bytes that were behind its pointers when it returned. Its texts are made on demand. `format_before`
and `format_after` are what is printed around a call. They are one line for Unified Runtime and
OpenCL and a block for PI, like those of the DPC++ runtimes.

Nothing here follows a pointer. Memory that was not read when the call returned is printed as an
address.
"""

from __future__ import annotations

import struct
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Final

from ..base._native import lib
from ..base.abi import Api, Function, Parameter
from .values import (
    CODES,
    POINTER_SIZE,
    Target,
    decode_number,
    find_size,
    format_code,
    format_pointer,
    format_quoted,
    format_value,
    format_word,
    make_target,
)

_HEADER: Final = 6  # words of a record before its arguments

#: What stands for a slot in the records that are not calls: a command's, a thread's.
COMMAND, THREAD, QUEUE = NOTES = tuple(
    note & 0xFFFFFFFF for note in (lib.FL_COMMAND, lib.FL_THREAD, lib.FL_QUEUE)
)


@dataclass(frozen=True, slots=True)
class TracedCall:
    """A call that has returned.

    Attributes:
        thread: the kernel's id of the thread.
        begin: when it began, in ns of the monotonic clock.
        end: when it returned, in ns of the monotonic clock.
        arguments: the arguments as unsigned words.
        result: the result as an unsigned word.
        pieces: position of a parameter to the bytes behind its pointer.
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
        """The name of the function."""
        return self.function.name

    @property
    def duration(self) -> int:
        """How long it took, in ns."""
        return self.end - self.begin

    @property
    def failed(self) -> bool:
        """Whether the call returned an error code, or NULL instead of an object."""
        if self.function.returns == "void":
            return False
        if self.function.error_channel == "return":
            code = self.result & 0xFFFFFFFF
            name = self.api.errors.get(code, ("",))[0]
            return bool(code) and not (name.startswith("ZE_RESULT_") and "ERROR" not in name)
        return not self.result

    @property
    def result_text(self) -> str:
        """The name of the code, or the value, that it returned. "" if it returns nothing."""
        returns = self.function.returns
        if returns == "void":
            return ""
        if returns.endswith("*"):
            return format_pointer(self.result)
        code = self.function.error_channel == "return"
        return (
            format_code(self.api, returns, self.result)
            if code
            else format_word(self.api, returns, self.result)
        )

    def format_arguments(self) -> list[tuple[str, str]]:
        """Return the name of every parameter and the text of its argument."""
        return [(p.name, self._format_argument(i)) for i, p in enumerate(self.function.parameters)]

    def get_handle(self, index: int) -> int:
        """The handle in a parameter, or that the function wrote there; 0 if there is none."""
        if not self.function.parameters[index].stars:
            return self.arguments[index]
        return int.from_bytes(self.pieces.get(index, b"")[:POINTER_SIZE], sys.byteorder)

    def _format_argument(self, index: int) -> str:
        parameter, word = self.function.parameters[index], self.arguments[index]
        if not parameter.stars:
            data = self.pieces.get(index)
            return (
                format_value(self.api, parameter.type, data)
                if data
                else format_word(self.api, parameter.type, word)
            )
        if not word:
            return "nullptr"
        found = self.get_target(index)
        if found is None:
            return format_pointer(word)
        return (
            found.texts[0] if _is_text(self.api, parameter) else f"{format_pointer(word)} {found}"
        )

    def get_target(self, index: int) -> Target | None:
        """Return the memory behind the pointer in a parameter, None if it was not read."""
        parameter, data = self.function.parameters[index], self.pieces.get(index, b"")
        if not parameter.stars or not data:
            return None
        if parameter.type_from:
            return self._answer(index, data)
        if parameter.name in _ARGUMENT_VALUES:
            return Target([format_kernel_argument(data)])
        if _is_text(self.api, parameter):
            return Target([format_quoted(data)])
        if parameter.name in CODES and len(data) >= 4:
            return Target(
                [format_code(self.api, parameter.type, int.from_bytes(data[:4], sys.byteorder))]
            )
        count = self._count(parameter)
        type_name = "void*" if parameter.stars > 1 else parameter.type
        return make_target(
            self.api, type_name, data, count, many=bool(parameter.length) and count is not None
        )

    def _count(self, parameter: Parameter) -> int | None:
        """Return the number of elements of an array parameter, None if no argument gives it."""
        name, stars = parameter.length.lstrip("*"), parameter.length.count("*")
        for index, other in enumerate(self.function.parameters):
            if other.name == name and other.stars == stars:
                if not stars:
                    return self.arguments[index]
                data = self.pieces.get(index, b"")
                return int.from_bytes(data[:4], sys.byteorder) if len(data) >= 4 else None
        return None

    def _answer(self, index: int, data: bytes) -> Target | None:
        """Return the answer of an info query. The constant in another parameter determines its
        type.
        """
        parameters, parameter = self.function.parameters, self.function.parameters[index]
        asked = next((i for i, p in enumerate(parameters) if p.name == parameter.type_from), None)
        if asked is None or (self.failed and parameter.is_out):
            return None
        number = decode_number(self.api, parameters[asked].type, self.arguments[asked])
        answer = _find_answer_types(self.api).get((parameters[asked].type, number), "")
        size = self._count(parameter) or 0
        after = parameters[index + 1 : index + 2]  # how many bytes the answer has
        written = self.pieces.get(index + 1, b"") if after and after[0].type == "size_t" else b""
        if len(written) == POINTER_SIZE:
            size = min(size, int.from_bytes(written, sys.byteorder))
        data = data[:size]
        if not answer or not data:
            return None
        if answer == "char[]":
            return Target([format_quoted(data, size > len(data))])
        type_name, many = answer.removesuffix("[]").strip(), answer.endswith("[]")
        type_name = "void*" if type_name.endswith("*") else type_name
        return make_target(
            self.api, type_name, data, size // (find_size(self.api, type_name) or 1), many
        )

    def __str__(self) -> str:
        return self.format_line(self.format_arguments())

    def format_line(self, texts: Sequence[tuple[str, str]]) -> str:
        """Return the call in a line.

        Args:
            texts: as of `format_arguments`.
        """
        arguments = ", ".join(f".{name} = {text}" for name, text in texts)
        result = self.result_text
        return f"{self.name}({arguments}) -> {result};" if result else f"{self.name}({arguments});"


#: The parameters that lead to the value of a kernel's argument.
_ARGUMENT_VALUES: Final = ("arg_value", "pArgValue")


def format_kernel_argument(data: bytes) -> str:
    """The value of a kernel's argument, whose type nobody knows: as the numbers that it may be.

    Larger values are shown as bytes, of which a trace has the first 128.
    """
    forms = _NUMBERS.get(len(data))
    if forms is None:
        return f"{len(data)} bytes {data[:_SHOWN].hex()}{'...' if len(data) > _SHOWN else ''}"
    whole, real = forms
    (number,) = struct.unpack(whole, data)
    texts = [f"{number:#x}" if number > _MOST_DECIMAL else str(number)]
    if real:
        (value,) = struct.unpack(real, data)
        if value and _LEAST < abs(value) < 1 / _LEAST:
            texts.append(f"{value:g}{'f' if real == '@f' else ''}")
    return " or ".join(texts)


#: Size of a value to the formats of a whole number and of a floating-point one.
_NUMBERS: Final = {1: ("@b", ""), 2: ("@h", ""), 4: ("@i", "@f"), 8: ("@q", "@d")}
_SHOWN: Final = 32  # bytes
_MOST_DECIMAL: Final = 1 << 32
_LEAST: Final = 1e-9  # of floating-point numbers that somebody may have meant


def decode(words: memoryview, layers: Mapping[int, tuple[Api, str]]) -> list[TracedCall]:
    """Return the calls of a log, in the order in which they returned.

    Args:
        words: the contents of a log (`Log.copy_words`).
        layers: address of a layer to the API and the label of its table. Records of other layers
            are ignored.
    """
    calls = []
    start = 0
    while start < len(words):
        length, slot = words[start] & 0xFFFFFFFF, words[start] >> 32
        counts, layer, begin, end, result = words[start + 1 : start + _HEADER]
        if layer in layers and slot not in NOTES:
            api, label = layers[layer]
            first = start + _HEADER + (counts & 0xFFFF)
            arguments = tuple(words[start + _HEADER : first])
            found = split_pieces(words[first : start + length])
            calls.append(
                TracedCall(
                    api, api.slots[slot], label, counts >> 32, begin, end, arguments, result, found
                )
            )
        start += length
    return calls


def split_pieces(words: memoryview) -> dict[int, bytes]:
    """Split the end of a record into its pieces.

    Returns:
        Position of a parameter to the bytes behind its pointer, b"" if they could not be read.
    """
    data, found, place = words.cast("B"), {}, 0
    while place < len(words):
        size = words[place] >> 32
        found[words[place] & 0xFFFFFFFF] = bytes(data[(place + 1) * 8 : (place + 1) * 8 + size])
        place += 1 + (size + 7) // 8
    return found


def format_before(call: TracedCall, indent: str = "") -> str:
    """Return what is printed before a call is forwarded.

    Args:
        call: only its function and arguments are used.
    """
    if call.api.name != "pi":
        return f"{indent}---> {call.name}\n"
    given = replace(call, pieces={})  # nothing has been read yet
    lines = zip(call.function.parameters, given.format_arguments(), strict=True)
    body = "".join(
        f"\t{_format_type(p)} : {'<nullptr>' if text == 'nullptr' else text}\n"
        for p, (_, text) in lines
    )
    return f"---> {call.name}(\n{body}) ---> "


def format_after(
    call: TracedCall, indent: str = "", times: bool = False, line: Callable[[TracedCall], str] = str
) -> str:
    """Return what is printed after a call has returned.

    Args:
        times: whether the text contains the duration.
        line: writes a call in a line; PI has a block instead.
    """
    time = format_duration(call.duration) if times else ""
    if call.api.name != "pi":
        return f"{indent}<--- {line(call)}{' ' + time if time else ''}\n"
    lines = [f"\tpi_result : {call.result_text}{'; ' + time if time else ''}\n"]
    for index, parameter in enumerate(call.function.parameters):
        found = call.get_target(index) if parameter.is_out else None
        if found is not None:
            handle = call.api.resolve(parameter.type) == "handle"
            text = (
                f"{found.texts[0]} ..."
                if handle
                else ", ".join([*found.texts, "..."] if found.cut else found.texts)
            )
            place = format_pointer(call.arguments[index])
            lines.append(f"\t[out]{_format_type(parameter)} : {place}[ {text} ]\n")
    return "".join([*lines, "\n"])


def format_duration(ns: int) -> str:
    """Return a time in ns as text, such as "12.3 us"."""
    for unit, size in (("s", 1_000_000_000), ("ms", 1_000_000), ("us", 1_000)):
        if ns >= size:
            return f"{ns / size:.1f} {unit}"
    return f"{ns} ns"


@cache
def _find_answer_types(api: Api) -> dict[tuple[str, int], str]:
    """Return (type, value) of a constant to the type of the answer to a query for it."""
    found: dict[tuple[str, int], str] = {}
    for constant in api.constants.values():
        if constant.answer:
            found.setdefault((constant.group, constant.value), constant.answer)
    return found


def _is_text(api: Api, parameter: Parameter) -> bool:
    """Return whether a parameter is a C string that the function reads."""
    return (
        parameter.const
        and parameter.stars == 1
        and not parameter.length
        and api.resolve(parameter.type) == "char"
    )


def _format_type(parameter: Parameter) -> str:
    return f"{parameter.c_type.strip()} {parameter.name}"


def make_running_call(
    api: Api, slot: int, arguments: Sequence[int], label: str = "", thread: int = 0, begin: int = 0
) -> TracedCall:
    """Return a call without a result, for `format_before`."""
    return TracedCall(api, api.slots[slot], label, thread, begin, begin, tuple(arguments), 0, {})
