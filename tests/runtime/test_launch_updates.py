"""What an update says to the adapter, read back as the structs of the API."""

from __future__ import annotations

import ctypes
from types import SimpleNamespace
from typing import Any

import numpy

from fairlead.loader.ur.abi import UR
from fairlead.runtime.arguments import MEMORY, POINTER, Argument, LocalMemory, make_argument, pack
from fairlead.runtime.launch_updates import Block
from fairlead.runtime.launches import KernelLaunch

_PREFIX = "ur_exp_command_buffer_update_"


def _struct(name: str, address: int) -> Any:
    return UR.get_struct(f"{_PREFIX}{name}_desc_t").from_address(address)


def _launch(*arguments: Argument, kernel: int = 1, sizes: Any = ((16,), (), ())) -> KernelLaunch:
    whole, local, offset = sizes
    return KernelLaunch(SimpleNamespace(handle=kernel), (whole, local, offset), arguments)  # pyright: ignore[reportArgumentType]


def _value(number: int) -> Argument:
    return make_argument(numpy.int32(number))


def _pointer(address: int) -> Argument:
    return Argument(POINTER, 8, address)


def _memory(handle: int) -> Argument:
    buffer: Any = SimpleNamespace(memory=lambda context: handle)
    return Argument(MEMORY, 8, 0, 0, None, buffer)


def _described(old: KernelLaunch, new: KernelLaunch) -> tuple[Any, Any]:
    count = (block := Block()).describe([(77, old, new)], SimpleNamespace())  # pyright: ignore[reportArgumentType]
    assert count == 1
    return _struct("kernel_launch", block.address), block


def test_arguments_of_launches_are_packed_as_the_struct_has_them() -> None:
    buffer: Any = SimpleNamespace(memory=lambda context: 0x1122334455667788)
    given = [_pointer(0xFEDCBA9876543210), Argument(MEMORY, 8, 0, 5, None, buffer)]
    packed = pack(given, SimpleNamespace())  # pyright: ignore[reportArgumentType]
    assert packed is not None
    rows = (UR.get_struct("ur_exp_kernel_arg_properties_t") * 2).from_buffer_copy(packed)
    assert len(packed) == ctypes.sizeof(rows)
    for index, (row, kind) in enumerate(zip(rows, (POINTER, MEMORY), strict=True)):
        assert row.stype == UR["UR_STRUCTURE_TYPE_EXP_KERNEL_ARG_PROPERTIES"] and not row.pNext
        assert (row.type, row.index, row.size) == (kind, index, 8)
    assert rows[0].value.pointer == 0xFEDCBA9876543210
    assert rows[1].value.memObjTuple.hMem == 0x1122334455667788
    assert rows[1].value.memObjTuple.flags == 5


def test_only_what_differs_is_said() -> None:
    old = _launch(_value(1), _value(2), _pointer(0x1000), _memory(5))
    new = _launch(_value(1), _value(3), _pointer(0x2000), _memory(6))
    found, _block = _described(old, new)
    assert found.stype == UR["UR_STRUCTURE_TYPE_EXP_COMMAND_BUFFER_UPDATE_KERNEL_LAUNCH_DESC"]
    assert (found.hCommand, found.hNewKernel, found.newWorkDim) == (77, None, 1)
    assert (found.numNewMemObjArgs, found.numNewPointerArgs, found.numNewValueArgs) == (1, 1, 1)
    assert (found.pNewGlobalWorkOffset, found.pNewGlobalWorkSize, found.pNewLocalWorkSize) == (
        None,
        None,
        None,
    )
    value = _struct("value_arg", found.pNewValueArgList)
    assert value.stype == UR["UR_STRUCTURE_TYPE_EXP_COMMAND_BUFFER_UPDATE_VALUE_ARG_DESC"]
    assert (value.argIndex, value.argSize) == (1, 4) and ctypes.c_int32.from_address(
        value.pNewValueArg
    ).value == 3
    pointer = _struct("pointer_arg", found.pNewPointerArgList)
    assert pointer.stype == UR["UR_STRUCTURE_TYPE_EXP_COMMAND_BUFFER_UPDATE_POINTER_ARG_DESC"]
    assert (
        pointer.argIndex == 2
        and ctypes.c_uint64.from_address(pointer.pNewPointerArg).value == 0x2000
    )
    memory = _struct("memobj_arg", found.pNewMemObjArgList)
    assert memory.stype == UR["UR_STRUCTURE_TYPE_EXP_COMMAND_BUFFER_UPDATE_MEMOBJ_ARG_DESC"]
    assert (memory.argIndex, memory.hNewMemObjArg) == (3, 6)


def test_several_values_are_one_list() -> None:
    old = _launch(_value(1), _value(2), make_argument(LocalMemory(64)))
    found, _block = _described(old, _launch(_value(3), _value(4), make_argument(LocalMemory(128))))
    size = ctypes.sizeof(UR.get_struct(f"{_PREFIX}value_arg_desc_t"))
    rows = [
        _struct("value_arg", found.pNewValueArgList + size * row)
        for row in range(found.numNewValueArgs)
    ]
    assert [(row.argIndex, row.argSize, bool(row.pNewValueArg)) for row in rows] == [
        (0, 4, True),
        (1, 4, True),
        (2, 128, False),
    ]


def test_another_kernel_has_all_of_its_arguments_and_sizes() -> None:
    same = _value(1)
    found, _block = _described(
        _launch(same, sizes=((16,), (4,), (1,))), _launch(same, kernel=2, sizes=((8, 2), (), ()))
    )
    assert (found.hNewKernel, found.numNewValueArgs, found.newWorkDim) == (2, 1, 2)
    assert list((ctypes.c_size_t * 2).from_address(found.pNewGlobalWorkOffset)) == [
        0,
        0,
    ]  # what the old one has is not kept
    assert list((ctypes.c_size_t * 2).from_address(found.pNewGlobalWorkSize)) == [8, 2]
    assert found.pNewLocalWorkSize is None


def test_launches_that_are_the_same_are_left_out() -> None:
    one, other = _launch(_value(1)), _launch(_value(2))
    block = Block()
    block.describe([(9, one, other)] * 9, SimpleNamespace())  # pyright: ignore[reportArgumentType]  # which leaves its traces there
    count = block.describe(
        [(1, one, _launch(_value(1))), (2, one, other), (3, other, other)],
        SimpleNamespace(),  # pyright: ignore[reportArgumentType]
    )
    assert count == 1 and _struct("kernel_launch", block.address).hCommand == 2


def test_sizes_of_three_dimensions() -> None:
    sizes = ((8, 4, 2), (4, 2, 1), (1, 2, 3))
    found, _block = _described(_launch(), _launch(sizes=sizes))
    names = ("pNewGlobalWorkSize", "pNewLocalWorkSize", "pNewGlobalWorkOffset")
    got = tuple(tuple((ctypes.c_size_t * 3).from_address(getattr(found, name))) for name in names)
    assert got == sizes
