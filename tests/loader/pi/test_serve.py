"""PI served from a Unified Runtime adapter: tables, conversions, and comparison with a real
plugin."""

from __future__ import annotations

import ctypes
import inspect
import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from helpers.support import ROOT, RunPython
from helpers.tables import table
from hypothesis import given
from hypothesis import strategies as st

from fairlead.loader.base import layers
from fairlead.loader.base.errors import FairleadError
from fairlead.loader.base.table import DispatchTable
from fairlead.loader.pi import devices, translation
from fairlead.loader.pi import mapping as pi_mapping
from fairlead.loader.pi import serve as pi_from_ur
from fairlead.loader.pi.abi import PI, serve
from fairlead.loader.pi.mapping import ALL_ENUMS, ENUMS, FUNCTIONS, RESULTS
from fairlead.loader.pi.serve import UNSUPPORTED, MappedCall, translated
from fairlead.loader.ur.abi import UR

# The tables


def test_every_slot_is_translated_or_listed_as_unsupported() -> None:
    assert set(translated()) | set(UNSUPPORTED) == {function.name for function in PI.slots}
    assert not set(translated()) & set(UNSUPPORTED)
    assert not set(FUNCTIONS) & set(translation.FUNCTIONS)
    assert all(reason for reason in UNSUPPORTED.values())


@table("name", FUNCTIONS)
def test_every_line_names_a_function_of_ur_and_gives_it_all_its_arguments(name: str) -> None:
    call = MappedCall(PI.functions[name], FUNCTIONS[name])
    assert len(call.makers) == len(call.ur.parameters)


@table("name", translation.FUNCTIONS)
def test_every_function_that_is_written_out_takes_the_arguments_of_its_slot(name: str) -> None:
    words = [0] * len(PI.functions[name].parameters)
    inspect.signature(translation.FUNCTIONS[name]).bind(None, *words)


@table("enum", ALL_ENUMS)
def test_every_constant_of_pi_is_converted_or_listed(enum: pi_mapping.Enum) -> None:
    answered = {
        PI.groups[enum.pi][value] for value in enum.answers.values() if value in PI.groups[enum.pi]
    }
    known = {*enum.constants, *enum.missing, *enum.fixed, *answered}
    assert {
        constant.name for constant in PI.constants.values() if constant.group == enum.pi
    } <= known
    assert {constant.group for constant in enum.constants.values()} == {enum.ur}


@table("enum", [enum for enum in ALL_ENUMS if not enum.bits])
def test_what_ur_answers_is_what_it_was_asked_with(enum: pi_mapping.Enum) -> None:
    for there in enum.values.values():
        assert enum.to_ur(enum.to_pi(there)) == there


@given(
    st.sampled_from(
        [enum for enum in ALL_ENUMS if enum.bits and enum.pi not in ("pi_mem_advice",)]
    ),
    st.data(),
)
def test_bits_go_to_ur_and_back_one_by_one(enum: pi_mapping.Enum, data: st.DataObject) -> None:
    chosen = data.draw(st.sets(st.sampled_from([value for value in enum.values if value])))
    value = sum(chosen)
    assert enum.to_pi(enum.to_ur(value)) == value


def test_every_result_of_ur_has_one_of_pi() -> None:
    assert set(RESULTS) == set(UR.errors)
    assert RESULTS[0] == 0
    assert all(code < 0 for value, code in RESULTS.items() if value)
    assert pi_mapping.result(0x7FFFFFF0) == PI.codes["PI_ERROR_UNKNOWN"]


# Against a made-up adapter


class Adapter:
    """A UR table whose functions are Python.

    `on(name, function)` sets one; `calls` are the arguments of the calls, by name.
    """

    def __init__(self) -> None:
        address, self.slots = layers.new_table(UR)
        self.table = DispatchTable(UR, address, label="made up")
        self.calls: dict[str, list[Any]] = {}
        self.kept: list[Any] = []
        self.on("urAdapterGet", lambda room, out, count: give([0xADA], out, count))

    def on(self, name: str, answer: Callable[..., int] = lambda *arguments: 0) -> None:
        """Have a function. It gets what came, pointers as numbers."""

        def function(*arguments: Any) -> int:
            self.calls.setdefault(name, []).append(arguments)
            return answer(*(0 if argument is None else argument for argument in arguments))

        self.kept.append(UR.functions[name].prototype(function))
        self.slots[UR.functions[name].slot] = ctypes.cast(self.kept[-1], ctypes.c_void_p).value
        self.table.refresh()


def give(found: list[int], out: int, count: int) -> int:
    for index, handle in enumerate(found if out else ()):
        ctypes.c_uint64.from_address(out + 8 * index).value = handle
    if count:
        ctypes.c_uint32.from_address(count).value = len(found)
    return 0


def tell(data: bytes) -> Callable[..., int]:
    """An info query that answers `data`."""

    def answer(*arguments: Any) -> int:
        size, value, size_ret = arguments[-3:]
        if value:
            ctypes.memmove(value, data, min(size, len(data)))
        if size_ret:
            ctypes.c_size_t.from_address(size_ret).value = len(data)
        return 0

    return answer


@pytest.fixture
def adapter() -> Adapter:
    return Adapter()


@pytest.fixture
def pi(adapter: Adapter) -> Iterator[DispatchTable]:
    table = serve(adapter.table)
    yield table
    table.piTearDown(None)


def words(*values: int) -> bytes:
    return b"".join(value.to_bytes(4, "little") for value in values)


def long_words(*values: int) -> bytes:
    return b"".join(value.to_bytes(8, "little") for value in values)


def word(value: int = 0) -> Any:
    return ctypes.c_uint64(value)


def ask(function: Any, *arguments: Any) -> bytes:
    size = ctypes.c_size_t()
    assert function(*arguments, 0, None, ctypes.byref(size)) == 0
    answer = ctypes.create_string_buffer(size.value or 1)
    assert function(*arguments, size.value, answer, None) == 0
    return answer.raw[: size.value]


def test_only_a_table_of_ur_can_be_served_from(pi: DispatchTable) -> None:
    with pytest.raises(FairleadError, match="only be served from a Unified Runtime adapter"):
        serve(pi)


def test_platforms_of_all_adapters_come_in_one_list(adapter: Adapter, pi: DispatchTable) -> None:
    adapter.on("urAdapterGet", lambda room, out, count: give([1, 2], out, count))
    adapter.on(
        "urPlatformGet",
        lambda which, room, out, count: give([10 * which, 10 * which + 1], out, count),
    )
    count, found = ctypes.c_uint32(), (ctypes.c_uint64 * 3)()
    assert pi.piPlatformsGet(3, found, ctypes.byref(count)) == 0
    assert (count.value, list(found)) == (4, [10, 11, 20])


def test_types_that_are_ored_are_asked_for_one_by_one(adapter: Adapter, pi: DispatchTable) -> None:
    of_type = {
        "UR_DEVICE_TYPE_CPU": [5],
        "UR_DEVICE_TYPE_GPU": [6, 7],
        "UR_DEVICE_TYPE_MCA": [8],
        "UR_DEVICE_TYPE_ALL": [9],
    }

    def devices(platform: int, kind: int, room: int, out: int, count: int) -> int:
        found = of_type.get(UR.groups["ur_device_type_t"][kind])
        missing = {"UR_DEVICE_TYPE_VPU": 54}.get(
            UR.groups["ur_device_type_t"][kind], 18
        )  # UNSUPPORTED_ENUMERATION, DEVICE_NOT_FOUND
        return give(found, out, count) if found else missing

    adapter.on("urDeviceGet", devices)

    def ask_for(bits: int) -> list[int]:
        count, found = ctypes.c_uint32(), (ctypes.c_uint64 * 8)()
        assert pi.piDevicesGet(1, bits, 8, found, ctypes.byref(count)) == 0
        return list(found)[: count.value]

    assert ask_for(PI["PI_DEVICE_TYPE_CPU"] | PI["PI_DEVICE_TYPE_GPU"]) == [5, 6, 7]
    assert ask_for(PI["PI_DEVICE_TYPE_ACC"]) == [8]
    assert ask_for(PI["PI_DEVICE_TYPE_ALL"]) == [9]
    assert ask_for(PI["PI_DEVICE_TYPE_CUSTOM"]) == []
    assert pi.piDevicesGet(1, 0, 0, None, None) == PI.codes["PI_ERROR_INVALID_DEVICE_TYPE"]


@pytest.mark.parametrize(
    ("name", "asked", "data", "answer"),
    [
        ("PI_DEVICE_INFO_TYPE", "UR_DEVICE_INFO_TYPE", b"\3\0\0\0", b"\4" + bytes(7)),  # GPU
        (
            "PI_DEVICE_INFO_TYPE",
            "UR_DEVICE_INFO_TYPE",
            b"\6\0\0\0",
            b"\10" + bytes(7),
        ),  # MCA: an accelerator
        ("PI_DEVICE_INFO_AVAILABLE", "UR_DEVICE_INFO_AVAILABLE", b"\1", b"\1\0\0\0"),
        (
            "PI_DEVICE_INFO_SINGLE_FP_CONFIG",
            "UR_DEVICE_INFO_SINGLE_FP_CONFIG",
            b"\x32\0\0\0",
            b"\x07" + bytes(7),
        ),
        (
            "PI_DEVICE_INFO_QUEUE_PROPERTIES",
            "UR_DEVICE_INFO_QUEUE_PROPERTIES",
            b"\3\x08\0\0",
            b"\3" + bytes(7),
        ),
        (
            "PI_DEVICE_INFO_SUB_GROUP_SIZES_INTEL",
            "UR_DEVICE_INFO_SUB_GROUP_SIZES_INTEL",
            b"\4\0\0\0",
            b"\4" + bytes(7),
        ),
        (
            "PI_DEVICE_INFO_SUB_GROUP_SIZES_INTEL",
            "UR_DEVICE_INFO_SUB_GROUP_SIZES_INTEL",
            words(4, 8),
            long_words(4, 8),
        ),
        (
            "PI_DEVICE_INFO_PARTITION_PROPERTIES",
            "UR_DEVICE_INFO_SUPPORTED_PARTITIONS",
            b"\x86\x10\0\0",
            b"\x86\x10" + bytes(14),
        ),
        (
            "PI_DEVICE_INFO_PARTITION_TYPE",
            "UR_DEVICE_INFO_PARTITION_TYPE",
            words(0x1086, 4),
            long_words(0x1086, 4, 0),
        ),
        ("PI_DEVICE_INFO_NAME", "UR_DEVICE_INFO_NAME", b"made up\0", b"made up\0"),
        ("PI_DEVICE_INFO_GPU_SLICES", "UR_DEVICE_INFO_GPU_EU_SLICES", b"\2\0\0\0", b"\2\0\0\0"),
    ],
)
def test_device_infos_are_asked_for_by_ur_name_and_answered_in_pi_type(
    adapter: Adapter, pi: DispatchTable, name: str, asked: str, data: bytes, answer: bytes
) -> None:
    adapter.on("urDeviceGetInfo", tell(data))
    assert ask(pi.piDeviceGetInfo, 1, PI[name]) == answer
    assert {call[1] for call in adapter.calls["urDeviceGetInfo"]} == {UR[asked]}


def test_number_may_be_cut_to_the_width_of_the_caller_but_to_no_less_than_urs(
    adapter: Adapter, pi: DispatchTable
) -> None:
    adapter.on("urDeviceGetInfo", tell(b"\1"))
    answer = ctypes.create_string_buffer(b"\7\7", 2)
    assert pi.piDeviceGetInfo(1, PI["PI_DEVICE_INFO_ATOMIC_64"], 1, answer, None) == 0
    assert answer.raw == b"\1\7"
    adapter.on("urDeviceGetInfo", tell(b"\3\0\0\0"))
    assert (
        pi.piDeviceGetInfo(1, PI["PI_DEVICE_INFO_TYPE"], 2, answer, None)
        == PI.codes["PI_ERROR_INVALID_VALUE"]
    )
    assert answer.raw == b"\1\7"


def test_answer_that_is_empty_needs_no_room(adapter: Adapter, pi: DispatchTable) -> None:
    """UR refuses a place without a size, PI only if the answer does not fit."""
    adapter.on(
        "urDeviceGetInfo", lambda *came: tell(data)(*came) if came[2] or not came[3] else 35
    )  # …_ERROR_INVALID_SIZE
    size, asked = ctypes.c_size_t(9), PI["PI_EXT_ONEAPI_DEVICE_INFO_COMPONENT_DEVICES"]
    data = b""
    assert pi.piDeviceGetInfo(1, asked, 0, ctypes.byref(word()), ctypes.byref(size)) == 0
    assert size.value == 0
    data = long_words(5)
    assert (
        pi.piDeviceGetInfo(1, asked, 0, ctypes.byref(word()), None)
        == PI.codes["PI_ERROR_INVALID_VALUE"]
    )


@pytest.mark.parametrize("supported", [b"\1", b"\0", None])
def test_command_buffers_are_among_the_extensions(
    adapter: Adapter, pi: DispatchTable, supported: bytes | None
) -> None:
    """DPC++ of PI looks for them there, UR has a property."""

    def answer(device: int, name: int, *came: int) -> int:
        if name == UR["UR_DEVICE_INFO_EXTENSIONS"]:
            return tell(b"cl_khr_fp64 cl_khr_fp16\0")(*came)
        return (
            44 if supported is None else tell(supported)(*came)
        )  # UR_RESULT_ERROR_UNSUPPORTED_FEATURE

    adapter.on("urDeviceGetInfo", answer)
    found = ask(pi.piDeviceGetInfo, 1, PI["PI_DEVICE_INFO_EXTENSIONS"]).rstrip(b"\0").split()
    assert found == [
        b"cl_khr_fp64",
        b"cl_khr_fp16",
        *([b"ur_exp_command_buffer"] if supported == b"\1" else []),
    ]


def test_infos_without_a_counterpart_are_refused_or_answered_without_ur(
    adapter: Adapter, pi: DispatchTable
) -> None:
    adapter.on("urDeviceGetInfo")
    assert (
        pi.piDeviceGetInfo(1, PI["PI_DEVICE_INFO_OPENCL_C_VERSION"], 0, None, None)
        == PI.codes["PI_ERROR_INVALID_VALUE"]
    )
    assert pi.piDeviceGetInfo(1, 0x7777, 0, None, None) == PI.codes["PI_ERROR_INVALID_VALUE"]
    assert ask(pi.piDeviceGetInfo, 1, PI["PI_EXT_CODEPLAY_DEVICE_INFO_SUPPORTS_FUSION"]) == bytes(4)
    assert "urDeviceGetInfo" not in adapter.calls


@pytest.mark.parametrize(
    ("function", "served", "name", "data", "answer"),
    [
        (
            "piEventGetInfo",
            "urEventGetInfo",
            "PI_EVENT_INFO_COMMAND_TYPE",
            0x1000,
            "PI_COMMAND_TYPE_EXT_COMMAND_BUFFER",
        ),
        (
            "piEventGetInfo",
            "urEventGetInfo",
            "PI_EVENT_INFO_COMMAND_TYPE",
            0x14,
            "PI_COMMAND_TYPE_USER",
        ),
        (
            "piEventGetInfo",
            "urEventGetInfo",
            "PI_EVENT_INFO_COMMAND_EXECUTION_STATUS",
            3,
            "PI_EVENT_QUEUED",
        ),
        ("piEventGetInfo", "urEventGetInfo", "PI_EVENT_INFO_COMMAND_EXECUTION_STATUS", 4, -999),
        (
            "piPlatformGetInfo",
            "urPlatformGetInfo",
            "PI_EXT_PLATFORM_INFO_BACKEND",
            5,
            "PI_EXT_PLATFORM_BACKEND_NATIVE_CPU",
        ),
    ],
)
def test_enumerations_that_are_answered_are_pis(
    adapter: Adapter,
    pi: DispatchTable,
    function: str,
    served: str,
    name: str,
    data: int,
    answer: str | int,
) -> None:
    adapter.on(served, tell(data.to_bytes(4, "little")))
    told = int.from_bytes(ask(getattr(pi, function), 1, PI[name]), "little", signed=True)
    assert told == (PI[answer] if isinstance(answer, str) else answer)


def test_image_format_comes_back_as_it_was_given(adapter: Adapter, pi: DispatchTable) -> None:
    given_format = []

    def create(context: int, flags: int, form: int, desc: int, host: int, out: int) -> int:
        given_format.append(ctypes.string_at(form, 8))
        image = UR.struct("ur_image_desc_t").from_address(desc)
        assert (image.stype, image.type, image.width, image.rowPitch) == (
            1,
            UR["UR_MEM_TYPE_IMAGE3D"],
            16,
            64,
        )
        return give([0x11], out, 0)

    adapter.on("urMemImageCreate", create)
    form = PI.struct("pi_image_format")(
        PI["PI_IMAGE_CHANNEL_ORDER_sRGBA"], PI["PI_IMAGE_CHANNEL_TYPE_FLOAT"]
    )
    desc = PI.struct("pi_image_desc")(
        image_type=PI["PI_MEM_TYPE_IMAGE3D"], image_width=16, image_row_pitch=64
    )
    image = word()
    assert (
        pi.piMemImageCreate(1, 1, ctypes.byref(form), ctypes.byref(desc), None, ctypes.byref(image))
        == 0
    )
    assert (image.value, given_format) == (0x11, [b"\x0e\0\0\0\x0e\0\0\0"])
    adapter.on("urMemImageGetInfo", tell(given_format[0]))
    assert ask(pi.piMemImageGetInfo, 0x11, PI["PI_IMAGE_INFO_FORMAT"]) == bytes(form)


def test_queue_properties_become_a_struct_and_its_chain(
    adapter: Adapter, pi: DispatchTable
) -> None:
    seen = []

    def create(context: int, device: int, properties: int, out: int) -> int:
        flags = UR.struct("ur_queue_properties_t").from_address(properties)
        index = (
            UR.struct("ur_queue_index_properties_t").from_address(flags.pNext).computeIndex
            if flags.pNext
            else None
        )
        seen.append((flags.stype, flags.flags, index))
        return give([0x33], out, 0)

    adapter.on("urQueueCreate", create)
    batched = PI["PI_EXT_QUEUE_FLAG_SUBMISSION_NO_IMMEDIATE"]
    properties = (ctypes.c_uint64 * 5)(
        PI["PI_QUEUE_FLAGS"], 2 | batched, PI["PI_QUEUE_COMPUTE_INDEX"], 4, 0
    )
    queue = word()
    assert pi.piextQueueCreate(1, 2, properties, ctypes.byref(queue)) == 0
    assert pi.piextQueueCreate(1, 2, None, ctypes.byref(queue)) == 0
    assert pi.piQueueCreate(1, 2, 1, ctypes.byref(queue)) == 0
    kind = UR["UR_STRUCTURE_TYPE_QUEUE_PROPERTIES"]
    assert seen == [
        (kind, 2 | UR["UR_QUEUE_FLAG_SUBMISSION_BATCHED"], 4),
        (kind, 0, None),
        (kind, 1, None),
    ]
    assert (
        pi.piQueueCreate(1, 2, 1 << 20, ctypes.byref(queue)) == PI.codes["PI_ERROR_INVALID_VALUE"]
    )


def test_usm_properties_become_descriptions(adapter: Adapter, pi: DispatchTable) -> None:
    seen = []

    def alloc(context: int, device: int, description: int, pool: int, size: int, out: int) -> int:
        desc = UR.struct("ur_usm_desc_t").from_address(description)
        chain, types = desc.pNext, []
        while chain:
            link = UR.struct("ur_usm_device_desc_t").from_address(chain)
            types.append((link.stype, link.flags))
            chain = link.pNext
        seen.append((desc.align, sorted(types), size))
        return give([0x5000], out, 0)

    adapter.on("urUSMSharedAlloc", alloc)
    flags = PI["PI_MEM_ALLOC_DEVICE_READ_ONLY"] | PI["PI_MEM_ALLOC_INITIAL_PLACEMENT_HOST"]
    properties = (ctypes.c_uint64 * 5)(
        PI["PI_MEM_ALLOC_FLAGS"], flags, PI["PI_MEM_USM_ALLOC_BUFFER_LOCATION"], 3, 0
    )
    pointer = word()
    assert pi.piextUSMSharedAlloc(ctypes.byref(pointer), 1, 2, properties, 64, 16) == 0
    host, device = UR["UR_STRUCTURE_TYPE_USM_HOST_DESC"], UR["UR_STRUCTURE_TYPE_USM_DEVICE_DESC"]
    assert pointer.value == 0x5000
    assert seen == [
        (16, [(host, 1), (device, 4), (UR["UR_STRUCTURE_TYPE_USM_ALLOC_LOCATION_DESC"], 3)], 64)
    ]
    unknown = (ctypes.c_uint64 * 3)(0x9999, 1, 0)
    assert (
        pi.piextUSMSharedAlloc(ctypes.byref(pointer), 1, 2, unknown, 64, 16)
        == PI.codes["PI_ERROR_INVALID_PROPERTY"]
    )


def test_rectangles_are_passed_by_value(adapter: Adapter, pi: DispatchTable) -> None:
    adapter.on("urEnqueueMemBufferReadRect", lambda *arguments: 0)
    corner, origin, region = (
        (ctypes.c_size_t * 3)(1, 2, 3),
        (ctypes.c_size_t * 3)(),
        (ctypes.c_size_t * 3)(4, 5, 6),
    )
    out = word()
    assert (
        pi.piEnqueueMemBufferReadRect(
            1, 2, True, corner, origin, region, 8, 9, 10, 11, ctypes.byref(out), 0, None, None
        )
        == 0
    )
    came = adapter.calls["urEnqueueMemBufferReadRect"][0]
    assert (came[3].x, came[3].y, came[3].z) == (1, 2, 3)
    assert (came[5].width, came[5].height, came[5].depth) == (4, 5, 6)
    assert came[6:10] == (8, 9, 10, 11)
    code = pi.piEnqueueMemBufferReadRect(
        1, 2, True, None, origin, region, 8, 9, 10, 11, ctypes.byref(out), 0, None, None
    )
    assert code == PI.codes["PI_ERROR_INVALID_VALUE"]


def test_memset_is_a_fill_with_one_byte(adapter: Adapter, pi: DispatchTable) -> None:
    patterns = []
    adapter.on(
        "urEnqueueUSMFill", lambda *came: patterns.append(ctypes.string_at(came[3], came[2])) or 0
    )
    assert pi.piextUSMEnqueueMemset(1, 0x1000, -2, 100, 0, None, None) == 0
    assert patterns == [b"\xfe"]
    assert adapter.calls["urEnqueueUSMFill"][0][4] == 100


def test_advice_is_converted_bit_by_bit(adapter: Adapter, pi: DispatchTable) -> None:
    adapter.on("urEnqueueUSMAdvise")
    for advice in (
        0,
        PI["PI_MEM_ADVICE_CUDA_SET_READ_MOSTLY"] | PI["PI_MEM_ADVICE_HIP_SET_COARSE_GRAINED"],
    ):
        assert pi.piextUSMEnqueueMemAdvise(1, 0x1000, 8, advice, None) == 0
    flags = [came[3] for came in adapter.calls["urEnqueueUSMAdvise"]]
    both = (
        UR["UR_USM_ADVICE_FLAG_SET_READ_MOSTLY"] | UR["UR_USM_ADVICE_FLAG_SET_NON_COHERENT_MEMORY"]
    )
    assert flags == [UR["UR_USM_ADVICE_FLAG_DEFAULT"], both]


def test_partition_list_becomes_pairs(adapter: Adapter, pi: DispatchTable) -> None:
    seen = []

    def partition(device: int, properties: int, room: int, out: int, count: int) -> int:
        asked = UR.struct("ur_device_partition_properties_t").from_address(properties)
        pairs = (UR.struct("ur_device_partition_property_t") * asked.PropCount).from_address(
            asked.pProperties
        )
        seen.append([(pair.type, pair.value.count) for pair in pairs])
        return give([], out, count)

    adapter.on("urDevicePartition", partition)
    for words in ([0x1086, 4, 0], [0x1087, 3, 5, 0, 0], [0x1088, 0x20, 0], [0x1089, 0]):
        assert (
            pi.piDevicePartition(
                1, (ctypes.c_uint64 * len(words))(*words), 0, None, ctypes.byref(word())
            )
            == 0
        )
    assert seen == [[(0x1086, 4)], [(0x1087, 3), (0x1087, 5)], [(0x1088, 0x20)], [(0x1089, 0)]]


def test_binary_is_chosen_by_its_target(adapter: Adapter, pi: DispatchTable) -> None:
    targets = []

    def select(device: int, binaries: int, count: int, selected: int) -> int:
        for entry in (UR.struct("ur_device_binary_t") * count).from_address(binaries):
            targets.append((entry.stype, ctypes.string_at(entry.pDeviceTargetSpec)))
        ctypes.c_uint32.from_address(selected).value = 1
        return 0

    adapter.on("urDeviceSelectBinary", select)
    names = [ctypes.create_string_buffer(name) for name in (b"spir64", b"spir64_x86_64")]
    structs = [
        PI.struct("pi_device_binary_struct")(DeviceTargetSpec=ctypes.addressof(name))
        for name in names
    ]
    pointers = (ctypes.c_uint64 * 2)(*map(ctypes.addressof, structs))
    selected = ctypes.c_uint32(9)
    assert pi.piextDeviceSelectBinary(1, pointers, 2, ctypes.byref(selected)) == 0
    assert selected.value == 1
    assert targets == [(0xC, b"spir64"), (0xC, b"spir64_x86_64")]


def test_native_handles_say_who_owns_them(adapter: Adapter, pi: DispatchTable) -> None:
    seen = []

    def create(native: int, *rest: int) -> int:
        seen.append(
            (
                native,
                rest[-2]
                and UR.struct("ur_program_native_properties_t")
                .from_address(rest[-2])
                .isNativeHandleOwned,
            )
        )
        return give([0x77], rest[-1], 0)

    adapter.on("urProgramCreateWithNativeHandle", create)
    adapter.on("urPlatformCreateWithNativeHandle", create)
    made = word()
    assert pi.piextProgramCreateWithNativeHandle(0x99, 1, True, ctypes.byref(made)) == 0
    assert pi.piextPlatformCreateWithNativeHandle(0x98, ctypes.byref(made)) == 0
    assert (seen, made.value) == ([(0x99, True), (0x98, False)], 0x77)
    assert adapter.calls["urPlatformCreateWithNativeHandle"][0][1] == 0xADA


def test_sampler_list_becomes_a_description(adapter: Adapter, pi: DispatchTable) -> None:
    seen = []

    def create(context: int, description: int, out: int) -> int:
        desc = UR.struct("ur_sampler_desc_t").from_address(description)
        seen.append((desc.normalizedCoords, desc.addressingMode, desc.filterMode))
        return give([0x66], out, 0)

    adapter.on("urSamplerCreate", create)
    names = (
        "PI_SAMPLER_PROPERTIES_NORMALIZED_COORDS",
        "PI_SAMPLER_PROPERTIES_ADDRESSING_MODE",
        "PI_SAMPLER_PROPERTIES_FILTER_MODE",
    )
    values = (0, PI["PI_SAMPLER_ADDRESSING_MODE_REPEAT"], PI["PI_SAMPLER_FILTER_MODE_LINEAR"])
    given_list = (ctypes.c_uint64 * 7)(
        *(
            number
            for pair in zip(map(PI.__getitem__, names), values, strict=True)
            for number in pair
        )
    )
    sampler = word()
    assert pi.piSamplerCreate(1, given_list, ctypes.byref(sampler)) == 0
    assert pi.piSamplerCreate(1, ctypes.byref(word()), ctypes.byref(sampler)) == 0
    assert seen == [(False, 3, 1), (True, UR["UR_SAMPLER_ADDRESSING_MODE_CLAMP"], 0)]
    mip = (ctypes.c_uint64 * 3)(
        PI["PI_SAMPLER_PROPERTIES_MIP_FILTER_MODE"], PI["PI_SAMPLER_FILTER_MODE_LINEAR"]
    )
    assert (
        pi.piSamplerCreate(1, mip, ctypes.byref(sampler))
        == PI.codes["PI_ERROR_UNSUPPORTED_FEATURE"]
    )


def test_bindless_images_get_a_description_of_both_sides(
    adapter: Adapter, pi: DispatchTable
) -> None:
    seen = []

    def copy(queue: int, source: int, target: int, *came: int) -> int:
        sides = [UR.struct("ur_image_desc_t").from_address(address).width for address in came[:2]]
        region = UR.struct("ur_exp_image_copy_region_t").from_address(came[4])
        seen.append((source, target, sides, region.copyExtent.width, region.dstOffset.y, came[5:7]))
        return 0

    adapter.on("urBindlessImagesImageCopyExp", copy)
    adapter.on("urSamplerGetInfo", tell(b"\1\0\0\0"))
    adapter.on("urBindlessImagesSampledImageCreateExp", lambda *came: give([0x88], came[-1], 0))
    form = PI.struct("pi_image_format")(
        PI["PI_IMAGE_CHANNEL_ORDER_R"], PI["PI_IMAGE_CHANNEL_TYPE_FLOAT"]
    )
    desc = PI.struct("pi_image_desc")(
        image_type=PI["PI_MEM_TYPE_IMAGE2D"], image_width=16, image_height=8
    )
    both = ctypes.byref(form), ctypes.byref(desc)
    zero, offset, extent, host = (
        (ctypes.c_size_t * 3)(*sizes) for sizes in ((), (0, 2), (4, 4, 1), (32, 32))
    )
    flags = PI["PI_IMAGE_COPY_HOST_TO_DEVICE"]
    assert (
        pi.piextMemImageCopy(1, 0x20, 0x10, *both, flags, zero, offset, extent, host, 0, None, None)
        == 0
    )
    kind = UR["UR_EXP_IMAGE_COPY_INPUT_TYPES_MEM_TO_IMAGE"]
    assert seen == [
        (0x10, 0x20, [32, 16], 4, 2, (UR["UR_EXP_IMAGE_COPY_FLAG_HOST_TO_DEVICE"], kind))
    ]
    mem, handle = word(9), word()
    assert (
        pi.piextMemSampledImageCreate(
            1, 2, 0x20, *both, 0x66, ctypes.byref(mem), ctypes.byref(handle)
        )
        == 0
    )
    assert (mem.value, handle.value) == (0, 0x88)


def test_imported_memory_is_described_by_its_file_descriptor(
    adapter: Adapter, pi: DispatchTable
) -> None:
    seen = []

    def take(context: int, device: int, size: int, kind: int, description: int, out: int) -> int:
        chain = UR.struct("ur_exp_external_mem_desc_t").from_address(description).pNext
        seen.append((size, kind, UR.struct("ur_exp_file_descriptor_t").from_address(chain).fd))
        return give([0x99], out, 0)

    adapter.on("urBindlessImagesImportExternalMemoryExp", take)
    handle = word()
    assert pi.piextMemImportOpaqueFD(1, 2, 4096, 7, ctypes.byref(handle)) == 0
    assert (seen, handle.value) == ([(4096, 0, 7)], 0x99)


# Kernel arguments and launches


def set_all_kinds(pi: DispatchTable, kernel: int) -> None:
    number, pointer, mem, sampler = ctypes.c_uint32(0xCAFE), word(0x1234), word(0x55), word(0x66)
    access = PI.struct("pi_mem_obj_property")(type=27, mem_access=PI["PI_ACCESS_READ_ONLY"])
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
            (UR.struct("ur_exp_kernel_arg_properties_t") * count).from_address(address)
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
            UR.struct("ur_kernel_launch_ext_properties_t").from_address(came[6]).flags
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
    assert (
        pi.piextCommandBufferNDRangeKernel(
            3, 0x10, 1, None, size, None, 2, points, ctypes.byref(point)
        )
        == 0
    )
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
        for entry in (UR.struct("ur_exp_kernel_arg_properties_t") * came[4]).from_address(came[5]):
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
    assert (
        pi.piProgramBuild(
            1, 1, ctypes.byref(device), b"-g", ctypes.cast(notify, ctypes.c_void_p), 5
        )
        == 0
    )
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
        given = UR.struct("ur_program_properties_t").from_address(properties)
        for entry in (UR.struct("ur_program_metadata_t") * given.count).from_address(
            given.pMetadatas
        ):
            seen.append((ctypes.string_at(entry.pName), entry.type, entry.size, entry.value.data32))
        return 56  # UR_RESULT_ERROR_INVALID_NATIVE_BINARY

    adapter.on("urProgramCreateWithBinary", create)
    name, data = ctypes.create_string_buffer(b"name"), ctypes.create_string_buffer(b"data")
    kind = PI.struct("pi_device_binary_property_struct")
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


# What goes wrong


def test_null_handles_and_places_for_answers_do_not_reach_the_adapter(
    adapter: Adapter, pi: DispatchTable
) -> None:
    adapter.on("urContextRetain")
    adapter.on("urQueueCreate")
    assert pi.piContextRetain(None) == PI.codes["PI_ERROR_INVALID_CONTEXT"]
    assert pi.piQueueCreate(1, 2, 0, None) == PI.codes["PI_ERROR_INVALID_VALUE"]
    assert not {"urContextRetain", "urQueueCreate"} & set(adapter.calls)


@pytest.mark.parametrize("name", UNSUPPORTED)
def test_what_ur_does_not_have_is_an_unsupported_feature(pi: DispatchTable, name: str) -> None:
    room = ctypes.create_string_buffer(64)
    arguments = [ctypes.addressof(room) if p.stars else 1 for p in PI.functions[name].parameters]
    assert getattr(pi, name)(*arguments) == PI.codes["PI_ERROR_UNSUPPORTED_FEATURE"]


def test_what_the_adapter_does_not_have_is_an_unsupported_feature(pi: DispatchTable) -> None:
    assert pi.piQueueFlush(1) == PI.codes["PI_ERROR_UNSUPPORTED_FEATURE"]


@pytest.mark.parametrize("code", [1, 20, 39, 66, 0x1000, 0x7FFFFFFE, 12345])
def test_results_of_ur_become_those_of_pi(adapter: Adapter, pi: DispatchTable, code: int) -> None:
    adapter.on("urQueueFinish", lambda queue: code)
    assert pi.piQueueFinish(1) == RESULTS.get(code, PI.codes["PI_ERROR_UNKNOWN"])
    adapter.on("urAdapterGet", lambda *came: code)
    assert pi.piPlatformsGet(0, None, None) == RESULTS.get(code, PI.codes["PI_ERROR_UNKNOWN"])


def test_mistake_in_a_translation_is_told_once_and_is_an_unknown_error(
    pi: DispatchTable, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(devices, "_queue_properties", None)
    for _ in range(2):
        assert pi.piQueueCreate(1, 2, 0, ctypes.byref(word())) == PI.codes["PI_ERROR_UNKNOWN"]
    assert capsys.readouterr().err.count("TypeError") == 1


def test_tear_down_releases_the_adapter_and_ends_the_service(adapter: Adapter) -> None:
    adapter.on("urAdapterRelease")
    adapter.on("urPlatformGet", lambda which, room, out, count: give([1], out, count))
    told: list[int] = []
    pi = pi_from_ur.serve(
        adapter.table, ended=lambda: told.append(len(adapter.calls["urAdapterRelease"]))
    )
    assert pi.piPlatformsGet(0, None, None) == 0
    torn = ctypes.c_bool()
    assert (pi.piTearDown(ctypes.byref(torn)), torn.value) == (0, True)
    assert told == [1]
    assert adapter.calls["urAdapterRelease"] == [(0xADA,)]
    assert pi.piPlatformsGet(0, None, None) == PI.codes["PI_ERROR_UNINITIALIZED"]
    assert pi.piTearDown(None) == PI.codes["PI_ERROR_UNINITIALIZED"]


def test_tables_that_are_torn_down_make_room_for_others(adapter: Adapter) -> None:
    for _ in range(40):
        serve(adapter.table).piTearDown(None)


# The real thing

_PROGRAM = ROOT / "tests/helpers/pi_program.py"
#: What the plugin of 2024 answers against its own header: UR's bits of floating-point capabilities.
_PLUGIN_IS_WRONG = ("FP_CONFIG", "PLATFORM", "EXTENSIONS", "COMPOSITE_DEVICE")


@pytest.fixture(scope="module")
def answers(
    run_python: RunPython, real_plugins: Path, tmp_path_factory: pytest.TempPathFactory
) -> dict[str, Any]:
    """The program's results through Intel's adapter of 2025.3, and through its PI plugin of
    2024."""
    libraries = f"{sys.prefix}/lib"
    vendors = tmp_path_factory.mktemp(
        "vendors"
    )  # not OCL_ICD_FILENAMES: ocl-icd does not know that
    (vendors / "intel.icd").write_text(f"{libraries}/libintelocl.so\n", encoding="utf-8")
    found = {}
    for kind, path in (
        ("adapter", "ur-then/libur_adapter_opencl.so.0"),
        ("plugin", "pi/libpi_opencl.so"),
    ):
        arguments = (kind, str(real_plugins / path), str(real_plugins / "umf"), libraries)
        found[kind] = json.loads(
            run_python(
                _PROGRAM.read_text(encoding="utf-8"),
                *arguments,
                env={"OCL_ICD_VENDORS": str(vendors)},
            ).out
        )
    return found


def test_program_computes_through_a_real_adapter(answers: dict[str, Any]) -> None:
    found = answers["adapter"]["run"]
    assert found["kernel"] == "scale"
    assert found["usm"] == [True, True]
    assert found["times ascend"]
    assert found["command"] == PI["PI_COMMAND_TYPE_NDRANGE_KERNEL"]
    assert found["buffers"] == {
        "rectangle": [10, 11, 12, 18, 19, 20],
        "filled": [7, 9, 7, 9, 7, 9, 7, 9, 8, 9],
        "buffer size": 64,
    }
    assert found["command-buffer"] == {"right": True, "points differ": True}
    assert found["odds"]["no such kernel"] == PI.codes["PI_ERROR_INVALID_KERNEL_NAME"]


def test_program_finds_the_same_through_a_real_plugin(answers: dict[str, Any]) -> None:
    served, plugin = answers["adapter"]["run"], answers["plugin"]["run"]
    cannot = {
        "devices DEFAULT",
        "command",
        "buffers",
        "command-buffer",
    }  # of the plugin: it fails, or answers in UR's numbers
    assert {key: value for key, value in served.items() if key not in cannot} == {
        key: value for key, value in plugin.items() if key not in cannot
    }


def test_infos_are_those_of_a_real_plugin(answers: dict[str, Any]) -> None:
    served, plugin = answers["adapter"]["infos"], answers["plugin"]["infos"]
    both = [
        name
        for name in served
        if served[name][0] == plugin[name][0] == 0 and not name.endswith(_PLUGIN_IS_WRONG)
    ]
    assert len(both) > 60

    def numbers(found: dict[str, Any]) -> dict[str, bytes]:
        """Return numbers without trailing zeros.

        The plugin answers bools and some bits in UR's width instead of its header's.
        """
        return {name: bytes.fromhex(found[name][1]).rstrip(b"\0") for name in both}

    assert numbers(served) == numbers(plugin)


def test_service_does_what_aborts_the_plugin(answers: dict[str, Any]) -> None:
    assert answers["adapter"]["beyond"] == {
        "called": [True, [[0, 42]]],
        "user event": PI.codes["PI_ERROR_UNSUPPORTED_FEATURE"],
        "partition": "",
        "context's platform": True,
        "atomics": 0x1F,
    }
    assert answers["adapter"]["end"] == answers["plugin"]["end"] == [0, True]
    assert answers["adapter"]["after"] == PI.codes["PI_ERROR_UNINITIALIZED"]


def test_enums_of_queries_cover_every_query() -> None:
    groups = {
        p.type
        for f in PI.slots
        for p in f.parameters
        if p.name == "param_name" or p.type == "pi_peer_attr"
    }
    assert groups <= set(ENUMS)
