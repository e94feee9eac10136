"""Kernels and programs of PI served from a Unified Runtime adapter."""

from __future__ import annotations

import ctypes
from typing import Any

import pytest
from helpers.pi_service import Adapter, ask, give, tell, word, words

from fairlead.loader.base.table import DispatchTable
from fairlead.loader.pi.abi import PI
from fairlead.loader.ur.abi import UR


def set_all_kinds(pi: DispatchTable, kernel: int) -> None:
    number, pointer, mem, sampler = ctypes.c_uint32(0xCAFE), word(0x1234), word(0x55), word(0x66)
    access = PI.get_struct("pi_mem_obj_property")(type=27, mem_access=PI["PI_ACCESS_READ_ONLY"])
    assert pi.piKernelSetArg(kernel, 0, 4, ctypes.byref(number)) == 0
    assert pi.piextKernelSetArgPointer(kernel, 1, 8, ctypes.byref(pointer)) == 0
    assert pi.piextKernelSetArgMemObj(kernel, 2, ctypes.byref(access), ctypes.byref(mem)) == 0
    assert pi.piKernelSetArg(kernel, 3, 256, None) == 0
    assert pi.piextKernelSetArgSampler(kernel, 4, ctypes.byref(sampler)) == 0


def test_adapter_of_2025_gets_each_argument_and_the_launch_of_2025(
    adapter: Adapter, pi: DispatchTable
) -> None:
    for kind in ("Value", "Pointer", "MemObj", "Local", "Sampler"):
        adapter.on(f"urKernelSetArg{kind}")
    adapter.on("urEnqueueKernelLaunch_2025_3")
    launches = adapter.calls.setdefault("urEnqueueKernelLaunch_2025_3", [])
    set_all_kinds(pi, 0x10)
    assert adapter.calls["urKernelSetArgPointer"] == [(0x10, 1, None, 0x1234)]
    assert adapter.calls["urKernelSetArgMemObj"][0][3] == 0x55
    assert adapter.calls["urKernelSetArgLocal"] == [(0x10, 3, 256, None)]
    assert adapter.calls["urKernelSetArgSampler"] == [(0x10, 4, None, 0x66)]
    size, wait, event = (ctypes.c_size_t * 1)(8), (ctypes.c_uint64 * 1)(0x20), word()
    assert pi.piEnqueueKernelLaunch(1, 0x10, 1, None, size, None, 1, wait, ctypes.byref(event)) == 0
    assert launches[0][:4] == (1, 0x10, 1, None)
    assert launches[0][5:] == (None, 0, None, 1, ctypes.addressof(wait), ctypes.addressof(event))
    assert pi.piextEnqueueCooperativeKernelLaunch(1, 0x10, 1, None, size, None, 0, None, None) == 0
    assert launches[1][6] == 1


def test_adapter_of_2026_gets_all_arguments_with_the_launch(
    adapter: Adapter, pi: DispatchTable
) -> None:
    seen: list[Any] = []
    kinds = UR.groups["ur_exp_kernel_arg_type_t"]

    def arguments_at(count: int, address: int) -> list[Any]:
        found = []
        for entry in (
            (UR.get_struct("ur_exp_kernel_arg_properties_t") * count).from_address(address)
            if count
            else ()
        ):
            kind = kinds[entry.type].rsplit("TYPE_")[1]
            value: Any = entry.value.pointer
            if kind == "VALUE":
                value = ctypes.string_at(entry.value.value, entry.size)
            elif kind == "MEM_OBJ":
                value = (entry.value.memObjTuple.hMem, entry.value.memObjTuple.flags)
            found.append((entry.index, kind, entry.size, value))
        return found

    def launch(queue: int, kernel: int, *came: int) -> int:
        flags = (
            UR.get_struct("ur_kernel_launch_ext_properties_t").from_address(came[6]).flags
            if came[6]
            else 0
        )
        seen.append((kernel, arguments_at(came[4], came[5]), flags, came[7]))
        return 0

    def append(buffer: int, kernel: int, *came: int) -> int:
        seen.append((kernel, len(arguments_at(came[4], came[5])), came[8], came[12] != 0))
        return 0

    adapter.on("urEnqueueKernelLaunchWithArgsExp", launch)
    adapter.on("urCommandBufferAppendKernelLaunchWithArgsExp", append)
    adapter.on("urKernelCreate", lambda program, name, out: give([0x10], out, 0))
    set_all_kinds(pi, 0x10)
    size, point = (ctypes.c_size_t * 1)(8), ctypes.c_uint32()
    assert pi.piEnqueueKernelLaunch(1, 0x10, 1, None, size, None, 0, None, None) == 0
    expected = [
        (0, "VALUE", 4, b"\xfe\xca\0\0"),
        (1, "POINTER", 8, 0x1234),
        (2, "MEM_OBJ", 8, (0x55, UR["UR_MEM_FLAG_READ_ONLY"])),
        (3, "LOCAL", 256, None),
        (4, "SAMPLER", 8, 0x66),
    ]
    assert seen.pop() == (0x10, expected, 0, 0)
    assert pi.piextEnqueueCooperativeKernelLaunch(1, 0x10, 1, None, size, None, 0, None, None) == 0
    assert seen.pop()[2] == UR["UR_KERNEL_LAUNCH_FLAG_COOPERATIVE"]
    points = (ctypes.c_uint32 * 2)(4, 5)
    given = 3, 0x10, 1, None, size, None, 2, points, ctypes.byref(point)
    assert pi.piextCommandBufferNDRangeKernel(*given) == 0
    assert seen.pop() == (0x10, 5, 2, True)
    assert pi.piKernelCreate(1, b"other", ctypes.byref(word())) == 0
    assert pi.piEnqueueKernelLaunch(1, 0x10, 1, None, size, None, 0, None, None) == 0
    assert seen.pop()[1] == []  # a new kernel under an old handle has none of its arguments


def test_arguments_are_forgotten_with_the_last_reference_and_not_before(
    adapter: Adapter, pi: DispatchTable
) -> None:
    counts: list[int] = []

    def launch(queue: int, kernel: int, *came: int) -> int:
        counts.append(came[4])
        return 0

    references = 2

    def release(kernel: int) -> int:
        nonlocal references
        references -= 1
        return 0

    adapter.on("urEnqueueKernelLaunchWithArgsExp", launch)
    adapter.on("urKernelGetInfo", lambda *came: tell(words(references))(*came))
    adapter.on("urKernelRelease", release)
    set_all_kinds(pi, 0x10)
    size = (ctypes.c_size_t * 1)(8)
    for _ in range(3):
        assert pi.piEnqueueKernelLaunch(1, 0x10, 1, None, size, None, 0, None, None) == 0
        assert pi.piKernelRelease(0x10) == 0
    assert counts == [5, 5, 0]


def test_argument_that_is_set_again_replaces_the_one_before(
    adapter: Adapter, pi: DispatchTable
) -> None:
    seen = []

    def launch(queue: int, kernel: int, *came: int) -> int:
        for entry in (UR.get_struct("ur_exp_kernel_arg_properties_t") * came[4]).from_address(
            came[5]
        ):
            value = (
                ctypes.string_at(entry.value.value, entry.size)
                if not entry.type
                else entry.value.pointer
            )
            seen.append((entry.index, entry.type, value))
        return 0

    adapter.on("urEnqueueKernelLaunchWithArgsExp", launch)
    size = (ctypes.c_size_t * 1)(8)
    value, pointer, local = (
        UR[f"UR_EXP_KERNEL_ARG_TYPE_{kind}"] for kind in ("VALUE", "POINTER", "LOCAL")
    )
    for data in (b"long enough for all", b"short", b"", b"a longer one than before"):
        assert pi.piKernelSetArg(0x10, 1, len(data), data) == 0
        assert pi.piEnqueueKernelLaunch(1, 0x10, 1, None, size, None, 0, None, None) == 0
        assert seen.pop() == (1, value, data)
    assert pi.piextKernelSetArgPointer(0x10, 1, 8, ctypes.byref(word(0x77))) == 0
    assert pi.piKernelSetArg(0x10, 0, 256, None) == 0
    assert pi.piEnqueueKernelLaunch(1, 0x10, 1, None, size, None, 0, None, None) == 0
    assert seen == [(0, local, None), (1, pointer, 0x77)]


# Programs


def test_source_is_a_text_even_if_there_is_none(adapter: Adapter, pi: DispatchTable) -> None:
    adapter.on("urProgramGetInfo", tell(b""))
    assert ask(pi.piProgramGetInfo, 1, PI["PI_PROGRAM_INFO_SOURCE"]) == b"\0"
    adapter.on("urProgramGetInfo", tell(b"\3\2#\7"))
    assert ask(pi.piProgramGetInfo, 1, PI["PI_PROGRAM_INFO_SOURCE"]) == b"\3\2#\7"


@pytest.mark.parametrize("extension", [False, True])
def test_programs_are_built_for_the_devices_if_the_adapter_can(
    adapter: Adapter, pi: DispatchTable, extension: bool
) -> None:
    adapter.on("urProgramGetInfo", tell((0xC0).to_bytes(8, "little")))
    adapter.on("urProgramBuild")
    if extension:
        adapter.on("urProgramBuildExp")
    told: list[Any] = []
    notify = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p)(
        lambda *came: told.append(came)
    )
    device = word(2)
    given = 1, 1, ctypes.byref(device), b"-g", ctypes.cast(notify, ctypes.c_void_p), 5
    assert pi.piProgramBuild(*given) == 0
    assert told == [(1, 5)]
    if extension:
        assert adapter.calls["urProgramBuildExp"] == [(1, 1, ctypes.addressof(device), 0, b"-g")]
    else:
        assert adapter.calls["urProgramBuild"] == [(0xC0, 1, b"-g")]


def test_metadata_of_a_binary(adapter: Adapter, pi: DispatchTable) -> None:
    seen = []

    def create(
        context: int,
        count: int,
        devices: int,
        lengths: int,
        binaries: int,
        properties: int,
        out: int,
    ) -> int:
        given = UR.get_struct("ur_program_properties_t").from_address(properties)
        for entry in (UR.get_struct("ur_program_metadata_t") * given.count).from_address(
            given.pMetadatas
        ):
            seen.append((ctypes.string_at(entry.pName), entry.type, entry.size, entry.value.data32))
        return 56  # UR_RESULT_ERROR_INVALID_NATIVE_BINARY

    adapter.on("urProgramCreateWithBinary", create)
    name, data = ctypes.create_string_buffer(b"name"), ctypes.create_string_buffer(b"data")
    kind = PI.get_struct("pi_device_binary_property_struct")
    entries = [
        kind(ctypes.addressof(name), None, PI["PI_PROPERTY_TYPE_UINT32"], 7),
        kind(ctypes.addressof(name), ctypes.addressof(data), PI["PI_PROPERTY_TYPE_BYTE_ARRAY"], 4),
    ]
    pointers = (ctypes.c_uint64 * 2)(*map(ctypes.addressof, entries))
    status, program = ctypes.c_int32(9), word()
    three = (ctypes.byref(word(1)), ctypes.byref(word(2)), ctypes.byref(word(3)))
    code = pi.piProgramCreateWithBinary(
        1, 1, *three, 2, pointers, ctypes.byref(status), ctypes.byref(program)
    )
    assert code == status.value == PI.codes["PI_ERROR_INVALID_BINARY"]
    assert seen == [(b"name", 0, 4, 7), (b"name", 2, 4, ctypes.addressof(data) & 0xFFFFFFFF)]


@pytest.mark.parametrize(
    "name", ["PI_USM_INDIRECT_ACCESS", "PI_EXT_KERNEL_EXEC_INFO_CACHE_CONFIG", "PI_USM_PTRS"]
)
def test_a_setting_of_a_kernel_without_a_value_is_refused(
    adapter: Adapter, pi: DispatchTable, name: str
) -> None:
    adapter.on("urKernelSetExecInfo")
    assert pi.piKernelSetExecInfo(0x10, PI[name], 4, None) == PI.codes["PI_ERROR_INVALID_VALUE"]
    assert not adapter.calls.get("urKernelSetExecInfo")
