"""Builds SPIR-V modules: a kernel, the same kernel with an import, and what it imports.

`make_store` makes a module of one kernel:

    kernel void store(global int *out, int value) { out[get_global_id(0)] = value + constant; }

`constant` is specialisation constant 7; its default is 0. `make_importing_store` makes the same
kernel, but it calls `plus`, which the module imports. `make_plus` makes a module that exports that
function:

    int plus(int value) { return value + constant; }

The SPIR-V specification has the opcodes and the physical layout.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from typing import Final

from fairlead.loader.base.spirv import MAGIC

SPEC_ID: Final = 7

_VERSION_1_0: Final = 0x00010000
_EXPORT, _IMPORT = 0, 1
_Instruction = tuple[int, tuple[int, ...]]


class _Ids:
    """The ids of a module's results, by their names. A name that is new gets the next one."""

    def __init__(self) -> None:
        self.numbers: dict[str, int] = {}

    def __getitem__(self, name: str) -> int:
        return self.numbers.setdefault(name, len(self.numbers) + 1)


def make_store() -> bytes:
    """Return the words of the module that has the kernel `store` and a specialization constant."""
    i = _Ids()
    return _assemble(
        i,
        [
            *_emit_head(i),
            *_emit_kernel_head(i),
            *_emit_constant(i),
            *_emit_kernel_types(i),
            *_emit_body(i),
        ],
    )


def make_importing_store() -> bytes:
    """Return the words of the module whose kernel `store` calls `plus`, which it imports."""
    i = _Ids()
    linkage = _make_linkage(i, "plus", _IMPORT)
    declared = [*_begin_plus(i), (56, ())]  # OpFunctionEnd: it has no body
    call = 57, (i["uint"], i["sum"], i["plus"], i["value"])  # OpFunctionCall
    kernel = [*_emit_kernel_types(i), *_emit_plus_type(i), *declared, *_emit_body(i, call)]
    return _assemble(i, [*_emit_head(i), *_emit_kernel_head(i), linkage, *kernel])


def make_plus() -> bytes:
    """Return the words of the module that exports `plus` and has the specialization constant."""
    i = _Ids()
    exported = _make_linkage(i, "plus", _EXPORT)
    body: list[_Instruction] = [
        (248, (i["entry"],)),  # OpLabel
        (128, (i["uint"], i["sum"], i["parameter"], i["constant"])),  # OpIAdd
        (254, (i["sum"],)),  # OpReturnValue
        (56, ()),  # OpFunctionEnd
    ]
    decorated, integer, constant = _emit_constant(i)
    function = [decorated, integer, constant, *_emit_plus_type(i), *_begin_plus(i), *body]
    return _assemble(i, [*_emit_head(i), exported, *function])


def _assemble(ids: _Ids, instructions: Sequence[_Instruction]) -> bytes:
    body = [
        word
        for opcode, operands in instructions
        for word in ((1 + len(operands)) << 16 | opcode, *operands)
    ]
    words = [MAGIC, _VERSION_1_0, 0, len(ids.numbers) + 1, 0, *body]
    return struct.pack(f"<{len(words)}I", *words)


def _encode_text(text: str) -> tuple[int, ...]:
    """Return a literal string: NUL-terminated, in whole words."""
    data = text.encode() + b"\0"
    data += b"\0" * (-len(data) % 4)
    return struct.unpack(f"<{len(data) // 4}I", data)


def _emit_head(i: _Ids) -> Iterator[_Instruction]:
    for number in (4, 5, 6, 11):  # Addresses, Linkage, Kernel, Int64
        yield 17, (number,)  # OpCapability
    yield 14, (2, 2)  # OpMemoryModel Physical64 OpenCL


def _emit_kernel_head(i: _Ids) -> Iterator[_Instruction]:
    kernel_model, built_in, constant_decoration = 6, 11, 22
    yield 15, (kernel_model, i["main"], *_encode_text("store"), i["id_variable"])  # OpEntryPoint
    yield 71, (i["id_variable"], built_in, 28)  # OpDecorate … BuiltIn GlobalInvocationId
    yield 71, (i["id_variable"], constant_decoration)


def _emit_constant(i: _Ids) -> Iterator[_Instruction]:
    yield 71, (i["constant"], 1, SPEC_ID)  # OpDecorate … SpecId
    yield 21, (i["uint"], 32, 0)  # OpTypeInt
    yield 50, (i["uint"], i["constant"], 0)  # OpSpecConstant


def _make_linkage(i: _Ids, name: str, kind: int) -> _Instruction:
    return 71, (i[name], 41, *_encode_text(name), kind)  # OpDecorate … LinkageAttributes


def _emit_kernel_types(i: _Ids) -> Iterator[_Instruction]:
    yield 19, (i["void"],)  # OpTypeVoid
    if "constant" not in i.numbers:
        yield 21, (i["uint"], 32, 0)  # OpTypeInt
    yield 21, (i["ulong"], 64, 0)
    yield 23, (i["ulong3"], i["ulong"], 3)  # OpTypeVector
    yield 32, (i["int_pointer"], 5, i["uint"])  # OpTypePointer CrossWorkgroup
    yield 32, (i["id_pointer"], 1, i["ulong3"])  # OpTypePointer Input
    yield 33, (i["function_type"], i["void"], i["int_pointer"], i["uint"])  # OpTypeFunction
    yield 59, (i["id_pointer"], i["id_variable"], 1)  # OpVariable Input


def _emit_plus_type(i: _Ids) -> Iterator[_Instruction]:
    yield 33, (i["plus_type"], i["uint"], i["uint"])  # OpTypeFunction


def _begin_plus(i: _Ids) -> Iterator[_Instruction]:
    yield 54, (i["uint"], i["plus"], 0, i["plus_type"])  # OpFunction
    yield 55, (i["uint"], i["parameter"])  # OpFunctionParameter


def _emit_body(i: _Ids, add: _Instruction | None = None) -> Iterator[_Instruction]:
    yield 54, (i["void"], i["main"], 0, i["function_type"])  # OpFunction
    yield 55, (i["int_pointer"], i["out"])  # OpFunctionParameter
    yield 55, (i["uint"], i["value"])
    yield 248, (i["entry"],)  # OpLabel
    yield 61, (i["ulong3"], i["ids"], i["id_variable"])  # OpLoad
    yield 81, (i["ulong"], i["id"], i["ids"], 0)  # OpCompositeExtract
    yield 70, (i["int_pointer"], i["place"], i["out"], i["id"])  # OpInBoundsPtrAccessChain
    yield add or (128, (i["uint"], i["sum"], i["value"], i["constant"]))  # OpIAdd
    yield 62, (i["place"], i["sum"], 2, 4)  # OpStore, aligned to 4
    yield 253, ()  # OpReturn
    yield 56, ()  # OpFunctionEnd
