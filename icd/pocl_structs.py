"""Sizes of the structs that kernels of PoCL take by value, from the program in PoCL's binary.

Neither clGetKernelArgInfo nor PoCL's own list of arguments has them. The program is LLVM bitcode.
It has a type for each such argument, in an attribute of the kernel: `byval`. Blocks and records of
bitcode are as LLVM documents them (llvm.org/docs/BitCodeFormat.html).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Final, NamedTuple

from .pocl_kernels import PoclBinaryError, read_bitcode

_MAGIC: Final = b"BC\xc0\xde"

# blocks
_INFO, _MODULE, _ATTRIBUTES, _GROUPS, _TYPES, _STRINGS = 0, 8, 9, 10, 17, 23
_READ: Final = frozenset((_MODULE, _ATTRIBUTES, _GROUPS, _TYPES, _STRINGS))

# abbreviations that every block has
_END_BLOCK, _ENTER_BLOCK, _DEFINE, _PLAIN = 0, 1, 2, 3

# ways to write a value
_LITERAL, _FIXED, _VARIABLE, _ARRAY, _CHARACTER, _BLOB = 0, 1, 2, 3, 4, 5
_CHARACTERS: Final = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._"

# records: what they are of their block
_SET_BLOCK: Final = 1
_FUNCTION: Final = 8
_LIST_ATTRIBUTES: Final = 2
_LIST_GROUP: Final = 3
_STRING_TABLE: Final = 1
_COUNT_TYPES, _INTEGER, _POINTER, _ARRAY_TYPE, _VECTOR, _NAME_STRUCT = 1, 7, 8, 11, 12, 19
_STRUCTS: Final = (18, 20)
_OPAQUE_POINTER: Final = 25
_FLOATS: Final = {3: 4, 4: 8, 10: 2}  # bytes of float, double, half

_BY_VALUE: Final = 3  # an attribute
#: How many numbers an attribute of a kind has, that of its kind among them.
_WORDS_OF: Final = {0: 2, 1: 3, 5: 2, 6: 3}
_WITH_TYPE: Final = 6
_TEXTS_OF: Final = {3: 1, 4: 2}  # attributes of texts, each with a 0 at its end


class _BitcodeRecord(NamedTuple):
    block: int
    code: int
    numbers: list[int]
    blob: bytes = b""


_Abbreviation = Sequence[tuple[int, int]]  # ways to write a value, and their widths or values


class _Bits:
    """A stream of bits, the lowest of a byte first."""

    def __init__(self, data: bytes) -> None:
        self.data, self.place = data, 0

    def read(self, width: int) -> int:
        byte, bit = divmod(self.place, 8)
        self.place += width
        if self.place > 8 * len(self.data):
            raise IndexError("the bitcode ends too early")
        end = (self.place + 7) // 8
        return int.from_bytes(self.data[byte:end], "little") >> bit & (1 << width) - 1

    def read_variable(self, width: int) -> int:
        """A number in pieces, each with a bit that says whether another one follows."""
        value, shift, more = 0, 0, 1
        while more:
            more, piece = divmod(self.read(width), 1 << width - 1)
            value |= piece << shift
            shift += width - 1
        return value

    def align(self) -> None:
        self.place = (self.place + 31) // 32 * 32

    def read_blob(self) -> bytes:
        size = self.read_variable(6)
        self.align()
        begin = self.place // 8
        self.place += 8 * size
        self.align()
        if self.place > 8 * len(self.data):
            raise IndexError("the bitcode ends too early")
        return self.data[begin : begin + size]


class _Reader:
    """Reads the records of the blocks that are wanted."""

    def __init__(self, data: bytes) -> None:
        self._bits, self._known = _Bits(data), dict[int, list[_Abbreviation]]()

    def read(self) -> Iterator[_BitcodeRecord]:
        bits = self._bits
        if not bits.data.startswith(_MAGIC):
            return
        bits.place = 8 * len(_MAGIC)
        while bits.place + 32 <= 8 * len(bits.data):
            if bits.read(2) != _ENTER_BLOCK:
                return
            yield from self._enter()

    def _enter(self) -> Iterator[_BitcodeRecord]:
        bits = self._bits
        block, width = bits.read_variable(8), bits.read_variable(4)
        bits.align()
        end = 32 * bits.read(32) + bits.place
        if block in _READ or block == _INFO:
            yield from self._read_block(block, width)
        bits.place = end

    def _read_block(self, block: int, width: int) -> Iterator[_BitcodeRecord]:
        bits, present = self._bits, block
        abbreviations = list(self._known.get(block, ()))
        while (number := bits.read(width)) != _END_BLOCK:
            if number == _ENTER_BLOCK:
                yield from self._enter()
            elif number == _DEFINE:
                made = self._read_abbreviation()
                if block == _INFO:
                    self._known.setdefault(present, []).append(made)
                else:
                    abbreviations.append(made)
            else:
                known = None if number == _PLAIN else abbreviations[number - _PLAIN - 1]
                record = (
                    self._read_plain(block) if known is None else self._read_short(block, known)
                )
                if block != _INFO:
                    yield record
                elif record.code == _SET_BLOCK:
                    present = record.numbers[0]

    def _read_abbreviation(self) -> _Abbreviation:
        bits, made = self._bits, list[tuple[int, int]]()
        for _ in range(bits.read_variable(5)):
            if bits.read(1):
                made.append((_LITERAL, bits.read_variable(8)))
                continue
            way = bits.read(3)
            made.append((way, bits.read_variable(5) if way in (_FIXED, _VARIABLE) else 0))
        return made

    def _read_plain(self, block: int) -> _BitcodeRecord:
        bits = self._bits
        code, count = bits.read_variable(6), bits.read_variable(6)
        return _BitcodeRecord(block, code, [bits.read_variable(6) for _ in range(count)])

    def _read_short(self, block: int, known: _Abbreviation) -> _BitcodeRecord:
        bits, numbers, blob = self._bits, list[int](), b""
        ways = iter(known)
        for way, width in ways:
            if way == _ARRAY:
                element, count = next(ways, (_LITERAL, 0)), bits.read_variable(6)
                if count > len(bits.data):
                    raise IndexError("the bitcode ends too early")
                numbers += [self._read_value(*element) for _ in range(count)]
            elif way == _BLOB:
                blob = bits.read_blob()
            else:
                numbers.append(self._read_value(way, width))
        return _BitcodeRecord(block, numbers[0], numbers[1:], blob)

    def _read_value(self, way: int, width: int) -> int:
        if way == _LITERAL:
            return width
        if way == _CHARACTER:
            return ord(_CHARACTERS[self._bits.read(6)])
        if not width:
            return 0
        return self._bits.read(width) if way == _FIXED else self._bits.read_variable(width)


class _Types:
    """The types of a module, in the order of their numbers."""

    def __init__(self) -> None:
        self._rows = list[tuple[int, list[int]]]()

    def add(self, code: int, numbers: list[int]) -> None:
        if code not in (_COUNT_TYPES, _NAME_STRUCT):
            self._rows.append((code, numbers))

    def find_size(self, number: int) -> tuple[int, int]:
        """Bytes of a type with what fills it up, and to how many it is aligned: on x86-64.

        Raises ValueError for a type that no argument has.
        """
        code, numbers = self._rows[number]
        if code in _FLOATS:
            return _FLOATS[code], _FLOATS[code]
        if code in (_POINTER, _OPAQUE_POINTER):
            return 8, 8
        if code == _INTEGER:
            size = _round_up_to_power(-(-numbers[0] // 8))
            return size, size
        if code in (_ARRAY_TYPE, _VECTOR):
            count, (size, alignment) = numbers[0], self.find_size(numbers[1])
            if code == _ARRAY_TYPE:
                return count * size, alignment
            size = _round_up_to_power(count * size)
            return size, size
        if code not in _STRUCTS:
            raise ValueError(f"a type has the code {code}")
        is_packed, *members = numbers
        end, widest = 0, 1
        for member in members:
            size, alignment = self.find_size(member)
            if not is_packed:
                end, widest = _round_up(end, alignment), max(widest, alignment)
            end += size
        return _round_up(end, widest), widest


def _round_up(size: int, alignment: int) -> int:
    return -(-size // alignment) * alignment


def _round_up_to_power(size: int) -> int:
    return 1 << max(0, size - 1).bit_length()


def _find_by_value(words: Sequence[int]) -> int | None:
    """Return the type in an attribute `byval` among attributes, None if there is none."""
    place = 0
    while place < len(words) and words[place] in (*_WORDS_OF, *_TEXTS_OF):
        kind = words[place]
        if kind == _WITH_TYPE and words[place + 1] == _BY_VALUE:
            return words[place + 2]
        place += _WORDS_OF.get(kind, 1)
        for _ in range(_TEXTS_OF.get(kind, 0)):
            place = words.index(0, place) + 1
    return None


def _read_sizes(bitcode: bytes) -> dict[str, dict[int, int]]:
    types, strings = _Types(), b""
    groups = dict[int, tuple[int, int]]()  # of attributes: the argument from 1 on, and its type
    lists, functions = list[list[int]](), list[list[int]]()
    for block, code, numbers, blob in _Reader(bitcode).read():
        if block == _TYPES:
            types.add(code, numbers)
        elif block == _GROUPS and code == _LIST_GROUP:
            type_ = _find_by_value(numbers[2:])
            if type_ is not None:
                groups[numbers[0]] = numbers[1], type_
        elif block == _ATTRIBUTES and code == _LIST_ATTRIBUTES:
            lists.append(numbers)
        elif block == _MODULE and code == _FUNCTION:
            functions.append(numbers)
        elif block == _STRINGS and code == _STRING_TABLE:
            strings = blob
    found: dict[str, dict[int, int]] = {}
    for name_at, name_size, _, _, _, _, attributes, *_ in functions:
        by_value = (
            [groups[one] for one in lists[attributes - 1] if one in groups] if attributes else []
        )
        name = strings[name_at : name_at + name_size].decode()
        found[name] = {index - 1: types.find_size(type_)[0] for index, type_ in by_value}
    return found


def find_struct_sizes(binary: bytes) -> Mapping[str, Mapping[int, int]]:
    """Return the bytes of structs that are arguments: by the kernel's name, then by their index.

    Returns:
        An empty mapping if the binary is not PoCL's, or of an unknown layout.
    """
    try:
        return _read_sizes(read_bitcode(binary))
    except (PoclBinaryError, IndexError, ValueError, RecursionError):
        return {}
