"""A reader of MessagePack, in which the metadata of AMD's code objects is written."""

from __future__ import annotations

import struct
from typing import Any, Final

#: Values of a fixed size, by their first byte.
_NUMBERS: Final = {
    **{0xCC + power: f">{letter}" for power, letter in enumerate("BHIQ")},
    **{0xD0 + power: f">{letter}" for power, letter in enumerate("bhiq")},
    0xCA: ">f",
    0xCB: ">d",
}
_CONSTANTS: Final = {0xC0: None, 0xC2: False, 0xC3: True}
#: Values whose length follows, by their first byte: what they are, and how the length is written.
_LENGTHS: Final = {
    **{0xC4 + power: (bytes, f">{letter}") for power, letter in enumerate("BHI")},
    **{0xD9 + power: (str, f">{letter}") for power, letter in enumerate("BHI")},
    **{0xDC + power: (list, f">{letter}") for power, letter in enumerate("HI")},
    **{0xDE + power: (dict, f">{letter}") for power, letter in enumerate("HI")},
}
#: Values whose length is in the first byte: the lowest one, what they are, and the length's bits.
_SHORT: Final = ((0xA0, str, 0x1F), (0x90, list, 0x0F), (0x80, dict, 0x0F))


class _MessageReader:
    def __init__(self, data: bytes) -> None:
        self.data, self.at = data, 0

    def take(self, size: int) -> bytes:
        self.at += size
        if self.at > len(self.data):
            raise ValueError("the data ends within a value")
        return self.data[self.at - size : self.at]

    def read_number(self, form: str) -> Any:
        return struct.unpack(form, self.take(struct.calcsize(form)))[0]

    def read_value(self) -> Any:
        first = self.read_number("B")
        if first < 0x80 or first >= 0xE0:
            return first if first < 0x80 else first - 0x100
        if first in _CONSTANTS:
            return _CONSTANTS[first]
        if first in _NUMBERS:
            return self.read_number(_NUMBERS[first])
        if first in _LENGTHS:
            kind, form = _LENGTHS[first]
            return self.read_sequence(kind, self.read_number(form))
        for lowest, kind, bits in _SHORT:
            if first & ~bits == lowest:
                return self.read_sequence(kind, first & bits)
        raise ValueError(f"a value begins with the unknown byte {first:#x}")

    def read_sequence(self, kind: type, length: int) -> Any:
        if kind is list:
            return [self.read_value() for _ in range(length)]
        if kind is dict:
            return {self.read_value(): self.read_value() for _ in range(length)}
        data = self.take(length)
        return data.decode() if kind is str else data


def read_messagepack(data: bytes) -> Any:
    """Return the first value in data.

    Args:
        data: MessagePack, without extension types. What follows the first value is not read.

    Raises:
        ValueError: the data is damaged, or nested too deeply.
    """
    try:
        return _MessageReader(data).read_value()
    except (TypeError, RecursionError) as error:  # a list as a key
        raise ValueError(str(error)) from error
