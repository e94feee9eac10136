"""What a SPIR-V module says of itself: specialization constants, kernels and their parameters,
imports and exports.

(SPIR-V: "Physical Layout of a SPIR-V Module and Instruction", "Instructions", "Decoration".)
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping
from typing import Final

from .frozen_value import Value

MAGIC: Final = 0x07230203

#: How a module begins, in little and in big endian words.
_BEGINNINGS: Final = MAGIC.to_bytes(4, "little"), MAGIC.to_bytes(4, "big")
_HEADER: Final = 5  # words
_ENTRY_POINT, _KERNEL = 15, 6
_TYPE_INT, _TYPE_FLOAT = 21, 22
_SPEC_TRUE, _SPEC_FALSE, _SPEC_CONSTANT = 48, 49, 50
_TYPE_VECTOR, _TYPE_IMAGE, _TYPE_SAMPLER, _TYPE_POINTER, _TYPE_FUNCTION = 23, 25, 26, 32, 33
_FUNCTION: Final = 54
_DECORATE: Final = 71
_SPEC_ID, _BUILT_IN, _LINKAGE = 1, 11, 41  # decorations
_IMPORT: Final = 1  # a linkage type; the others are kinds of exports

#: What a parameter is whose type is a pointer, by the storage class. By value: a struct.
_STORAGE: Final = {0: "pointer", 4: "local", 5: "pointer", 7: "value"}
_HANDLES: Final = {_TYPE_IMAGE: "image", _TYPE_SAMPLER: "sampler"}


class SpirvParameter(Value):
    """A parameter of a kernel.

    Attributes:
        kind: "pointer", "local", "value", "image", "sampler"; "" for others.
        size: the bytes of a number or a vector of numbers, 0 for others.
    """

    kind: str
    size: int = 0


class SpirvModule(Value):
    """What a module says of itself.

    Attributes:
        constants: the bytes of the value of each specialization constant, by its SpecId. A boolean
            has one.
        imports: the names of the functions and variables that other modules define.
        exports: the names of those that it defines for other modules.
    """

    constants: Mapping[int, int]
    kernels: tuple[str, ...]
    imports: tuple[str, ...]
    exports: tuple[str, ...]


def is_spirv(data: bytes) -> bool:
    """Return whether data begins like a SPIR-V module."""
    return data.startswith(_BEGINNINGS)


def read_module(data: bytes) -> SpirvModule:
    """Read a module up to its first function, or to where it is damaged. Drivers check it.

    Args:
        data: what `is_spirv`.
    """
    sizes: dict[int, int] = {}
    of_constants: dict[int, int] = {}
    spec_ids: dict[int, int] = {}
    linkage: dict[str, tuple[int, int]] = {}
    built_in: set[int] = set()
    kernels: list[str] = []
    for opcode, operands in _list_instructions(data):
        if opcode == _FUNCTION:  # everything that is read here comes before
            break
        if opcode == _ENTRY_POINT and len(operands) > 2 and operands[0] == _KERNEL:
            kernels.append(_decode_text(operands[2:]))
        elif opcode in (_TYPE_INT, _TYPE_FLOAT) and len(operands) > 1:
            sizes[operands[0]] = operands[1] // 8
        elif opcode in (_SPEC_TRUE, _SPEC_FALSE) and len(operands) > 1:
            of_constants[operands[1]] = 1
        elif opcode == _SPEC_CONSTANT and len(operands) > 1:
            of_constants[operands[1]] = sizes.get(operands[0], 0)
        elif opcode == _DECORATE and len(operands) > 2 and operands[1] == _SPEC_ID:
            spec_ids[operands[0]] = operands[2]
        elif opcode == _DECORATE and len(operands) > 3 and operands[1] == _LINKAGE:
            linkage[_decode_text(operands[2:-1])] = operands[0], operands[-1]
        elif opcode == _DECORATE and len(operands) > 1 and operands[1] == _BUILT_IN:
            built_in.add(operands[0])  # the device has it; some compilers call it an import
    return SpirvModule(
        {number: of_constants[one] for one, number in spec_ids.items() if one in of_constants},
        tuple(kernels),
        tuple(
            name for name, (one, kind) in linkage.items() if kind == _IMPORT and one not in built_in
        ),
        tuple(name for name, (_, kind) in linkage.items() if kind != _IMPORT),
    )


def read_parameters(data: bytes) -> Mapping[str, tuple[SpirvParameter, ...]]:
    """Read what the parameters of a module's kernels are, by the kernels' names.

    Args:
        data: what `is_spirv`.
    """
    names: dict[int, list[str]] = {}
    types: dict[int, SpirvParameter] = {}
    functions: dict[int, tuple[int, ...]] = {}
    found: dict[str, tuple[SpirvParameter, ...]] = {}
    for opcode, operands in _list_instructions(data):
        if opcode == _ENTRY_POINT and len(operands) > 2 and operands[0] == _KERNEL:
            names.setdefault(operands[1], []).append(_decode_text(operands[2:]))
        elif opcode in (_TYPE_INT, _TYPE_FLOAT) and len(operands) > 1:
            types[operands[0]] = SpirvParameter("value", operands[1] // 8)
        elif opcode == _TYPE_VECTOR and len(operands) > 2:
            one = types.get(operands[1], SpirvParameter("value")).size
            types[operands[0]] = SpirvParameter("value", one * (operands[2] + operands[2] % 2))
        elif opcode == _TYPE_POINTER and len(operands) > 2:
            types[operands[0]] = SpirvParameter(_STORAGE.get(operands[1], ""))
        elif opcode in _HANDLES and operands:
            types[operands[0]] = SpirvParameter(_HANDLES[opcode])
        elif opcode == _TYPE_FUNCTION and len(operands) > 1:
            functions[operands[0]] = operands[2:]
        elif opcode == _FUNCTION and len(operands) > 3 and operands[1] in names:
            given = functions.get(operands[3], ())
            made = tuple(types.get(one, SpirvParameter("")) for one in given)
            found.update(dict.fromkeys(names.pop(operands[1]), made))
            if not names:
                break
    return found


def _list_instructions(data: bytes) -> Iterator[tuple[int, tuple[int, ...]]]:
    """Yield the opcode and the operands of each instruction."""
    order = "<" if data.startswith(_BEGINNINGS[0]) else ">"
    words = struct.unpack(f"{order}{len(data) // 4}I", data[: len(data) // 4 * 4])
    place = _HEADER
    while place < len(words):
        count, opcode = words[place] >> 16, words[place] & 0xFFFF
        if not count or place + count > len(words):
            return
        yield opcode, words[place + 1 : place + count]
        place += count


def _decode_text(words: tuple[int, ...]) -> str:
    """Return a literal string: its bytes are in words, the lowest one first."""
    data = struct.pack(f"<{len(words)}I", *words)
    return data.split(b"\0", 1)[0].decode("utf-8", "replace")
