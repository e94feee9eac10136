"""What a SPIR-V module says of itself."""

from __future__ import annotations

import struct

from fairlead.conformance.ur.spirv import SPEC_ID, make_importing_store, make_plus, make_store
from fairlead.loader.base.spirv import (
    SpirvModule,
    SpirvParameter,
    is_spirv,
    read_module,
    read_parameters,
)


def swapped(data: bytes) -> bytes:
    """Return a module in the other byte order. Its literal strings are words like any other."""
    count = len(data) // 4
    return struct.pack(f">{count}I", *struct.unpack(f"<{count}I", data))


def test_a_module_says_what_it_has() -> None:
    assert read_module(make_store()) == SpirvModule({SPEC_ID: 4}, ("store",), (), ())
    assert read_module(make_importing_store()) == SpirvModule({}, ("store",), ("plus",), ())
    assert read_module(make_plus()) == SpirvModule({SPEC_ID: 4}, (), (), ("plus",))


def test_both_byte_orders_are_read() -> None:
    for data in (make_store(), make_importing_store(), make_plus()):
        assert is_spirv(swapped(data))
        assert read_module(swapped(data)) == read_module(data)


def assemble(*instructions: tuple[int, ...]) -> bytes:
    words = [0x07230203, 0x00010000, 0, 20, 0]
    for opcode, *operands in instructions:
        words += [(1 + len(operands)) << 16 | opcode, *operands]
    return struct.pack(f"<{len(words)}I", *words)


def test_parameters_of_kernels() -> None:
    expected = SpirvParameter("pointer"), SpirvParameter("value", 4)
    assert read_parameters(make_store()) == {"store": expected}
    assert read_parameters(swapped(make_store())) == {"store": expected}
    assert read_parameters(make_plus()) == {}
    name = int.from_bytes(b"k\0\0\0", "little")
    found = read_parameters(
        assemble(
            (15, 6, 9, name),  # OpEntryPoint Kernel
            (21, 1, 16, 0),  # OpTypeInt
            (23, 2, 1, 3),  # OpTypeVector of three, which has the size of four
            (30, 3, 1, 1),  # OpTypeStruct
            (32, 4, 4, 1),  # OpTypePointer Workgroup
            (32, 5, 7, 3),  # OpTypePointer Function: a struct by value
            (25, 6),  # OpTypeImage
            (26, 7),  # OpTypeSampler
            (33, 8, 10, 2, 4, 5, 6, 7, 11),  # OpTypeFunction
            (54, 10, 9, 0, 8),  # OpFunction
        )
    )
    kinds = ("value", 8), ("local", 0), ("value", 0), ("image", 0), ("sampler", 0), ("", 0)
    assert found == {"k": tuple(SpirvParameter(*one) for one in kinds)}


def test_a_variable_that_the_device_has_is_no_import() -> None:
    name = int.from_bytes(b"id\0\0", "little")
    linkage, built_in = (71, 3, 41, name, 1), (71, 3, 11, 28)
    assert read_module(assemble(linkage)).imports == ("id",)
    assert read_module(assemble(linkage, built_in)).imports == ()
    assert read_module(assemble(built_in, linkage)).imports == ()


def test_booleans_and_sizes_of_constants() -> None:
    words = [0x07230203, 0x00010000, 0, 20, 0]
    for opcode, *operands in (
        (71, 3, 1, 5),  # %3 has SpecId 5
        (71, 4, 1, 6),
        (71, 6, 1, 7),
        (71, 8, 1, 8),
        (20, 1),  # OpTypeBool
        (48, 1, 3),  # OpSpecConstantTrue
        (49, 1, 4),  # OpSpecConstantFalse
        (22, 5, 64),  # OpTypeFloat
        (50, 5, 6, 0, 0),  # OpSpecConstant
        (21, 7, 8, 0),  # OpTypeInt
        (50, 7, 8, 0),
    ):
        words += [(1 + len(operands)) << 16 | opcode, *operands]
    module = read_module(struct.pack(f"<{len(words)}I", *words))
    assert module.constants == {5: 1, 6: 1, 7: 8, 8: 1}


def test_what_is_damaged_is_read_as_far_as_it_goes() -> None:
    whole = make_store()
    for end in range(len(whole)):
        found = read_module(whole[:end])
        assert found.constants in ({}, {SPEC_ID: 4}), end
    assert read_module(whole[:20] + b"\0\0\0\0" + whole[20:]) == SpirvModule({}, (), (), ())
    assert not is_spirv(b"kernel void none() {}")
