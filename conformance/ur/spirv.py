"""Builds a SPIR-V module with one kernel.

kernel void store(global int *out, int value) { out[get_global_id(0)] = value + constant; }

`constant` is specialisation constant 7; its default is 0. The SPIR-V specification has the opcodes
and the physical layout.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Final

SPEC_ID: Final = 7

_MAGIC: Final = 0x07230203
_VERSION_1_0: Final = 0x00010000
#: Ids of the module's results.
_NAMES: Final = (
    "void",
    "uint",
    "ulong",
    "ulong3",
    "int_pointer",
    "id_pointer",
    "function_type",
    "id_variable",
    "constant",
    "main",
    "out",
    "value",
    "entry",
    "ids",
    "id",
    "place",
    "sum",
)
_ID: Final = {name: number for number, name in enumerate(_NAMES, 1)}


def store() -> bytes:
    """Return the module's words."""
    body = [
        word
        for opcode, operands in _instructions()
        for word in ((1 + len(operands)) << 16 | opcode, *operands)
    ]
    words = [_MAGIC, _VERSION_1_0, 0, len(_NAMES) + 1, 0, *body]
    return struct.pack(f"<{len(words)}I", *words)


def _text(text: str) -> tuple[int, ...]:
    """Return a literal string: NUL-terminated, in whole words."""
    data = text.encode() + b"\0"
    data += b"\0" * (-len(data) % 4)
    return struct.unpack(f"<{len(data) // 4}I", data)


def _instructions() -> Iterator[tuple[int, tuple[int, ...]]]:
    i = _ID
    capability, kernel_model, built_in, constant_decoration = 17, 6, 11, 22
    for number in (4, 5, 6, 11):  # Addresses, Linkage, Kernel, Int64
        yield capability, (number,)
    yield 14, (2, 2)  # OpMemoryModel Physical64 OpenCL
    yield 15, (kernel_model, i["main"], *_text("store"), i["id_variable"])  # OpEntryPoint
    yield 71, (i["id_variable"], built_in, 28)  # OpDecorate … BuiltIn GlobalInvocationId
    yield 71, (i["id_variable"], constant_decoration)
    yield 71, (i["constant"], 1, SPEC_ID)  # OpDecorate … SpecId
    yield 19, (i["void"],)  # OpTypeVoid
    yield 21, (i["uint"], 32, 0)  # OpTypeInt
    yield 21, (i["ulong"], 64, 0)
    yield 23, (i["ulong3"], i["ulong"], 3)  # OpTypeVector
    yield 32, (i["int_pointer"], 5, i["uint"])  # OpTypePointer CrossWorkgroup
    yield 32, (i["id_pointer"], 1, i["ulong3"])  # OpTypePointer Input
    yield 33, (i["function_type"], i["void"], i["int_pointer"], i["uint"])  # OpTypeFunction
    yield 50, (i["uint"], i["constant"], 0)  # OpSpecConstant
    yield 59, (i["id_pointer"], i["id_variable"], 1)  # OpVariable Input
    yield 54, (i["void"], i["main"], 0, i["function_type"])  # OpFunction
    yield 55, (i["int_pointer"], i["out"])  # OpFunctionParameter
    yield 55, (i["uint"], i["value"])
    yield 248, (i["entry"],)  # OpLabel
    yield 61, (i["ulong3"], i["ids"], i["id_variable"])  # OpLoad
    yield 81, (i["ulong"], i["id"], i["ids"], 0)  # OpCompositeExtract
    yield 70, (i["int_pointer"], i["place"], i["out"], i["id"])  # OpInBoundsPtrAccessChain
    yield 128, (i["uint"], i["sum"], i["value"], i["constant"])  # OpIAdd
    yield 62, (i["place"], i["sum"], 2, 4)  # OpStore, aligned to 4
    yield 253, ()  # OpReturn
    yield 56, ()  # OpFunctionEnd
