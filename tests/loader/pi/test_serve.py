"""PI served from a Unified Runtime adapter: queues, memory, devices, errors, and the end.

The tables of PI's translation: every slot, constant and result.
"""

from __future__ import annotations

import ctypes
import inspect

import pytest
from helpers.pi_service import Adapter, give, tell, word
from helpers.support import ROOT, RunPython
from helpers.tables import table
from hypothesis import given
from hypothesis import strategies as st

from fairlead.loader.base.table import DispatchTable
from fairlead.loader.pi import devices, translation
from fairlead.loader.pi import mapping as pi_mapping
from fairlead.loader.pi import serve as pi_from_ur
from fairlead.loader.pi.abi import PI, serve
from fairlead.loader.pi.mapping import ALL_ENUMS, FUNCTIONS, RESULTS
from fairlead.loader.pi.serve import UNSUPPORTED, MappedCall
from fairlead.loader.ur.abi import UR


def test_queue_properties_become_a_struct_and_its_chain(
    adapter: Adapter, pi: DispatchTable
) -> None:
    seen = []

    def create(context: int, device: int, properties: int, out: int) -> int:
        flags = UR.get_struct("ur_queue_properties_t").from_address(properties)
        index = (
            UR.get_struct("ur_queue_index_properties_t").from_address(flags.pNext).computeIndex
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
    found = pi.piQueueCreate(1, 2, 1 << 20, ctypes.byref(queue))
    assert found == PI.codes["PI_ERROR_INVALID_VALUE"]


def test_usm_properties_become_descriptions(adapter: Adapter, pi: DispatchTable) -> None:
    seen = []

    def alloc(context: int, device: int, description: int, pool: int, size: int, out: int) -> int:
        desc = UR.get_struct("ur_usm_desc_t").from_address(description)
        chain, types = desc.pNext, []
        while chain:
            link = UR.get_struct("ur_usm_device_desc_t").from_address(chain)
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
    given = ctypes.byref(pointer), 1, 2, unknown, 64, 16
    assert pi.piextUSMSharedAlloc(*given) == PI.codes["PI_ERROR_INVALID_PROPERTY"]


def test_rectangles_are_passed_by_value(adapter: Adapter, pi: DispatchTable) -> None:
    adapter.on("urEnqueueMemBufferReadRect", lambda *arguments: 0)
    corner = (ctypes.c_size_t * 3)(1, 2, 3)
    origin = (ctypes.c_size_t * 3)()
    region = (ctypes.c_size_t * 3)(4, 5, 6)
    out = word()
    given = 1, 2, True, corner, origin, region, 8, 9, 10, 11, ctypes.byref(out), 0, None, None
    assert pi.piEnqueueMemBufferReadRect(*given) == 0
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
        asked = UR.get_struct("ur_device_partition_properties_t").from_address(properties)
        pairs = (UR.get_struct("ur_device_partition_property_t") * asked.PropCount).from_address(
            asked.pProperties
        )
        seen.append([(pair.type, pair.value.count) for pair in pairs])
        return give([], out, count)

    adapter.on("urDevicePartition", partition)
    for words in ([0x1086, 4, 0], [0x1087, 3, 5, 0, 0], [0x1088, 0x20, 0], [0x1089, 0]):
        given = 1, (ctypes.c_uint64 * len(words))(*words), 0, None, ctypes.byref(word())
        assert pi.piDevicePartition(*given) == 0
    assert seen == [[(0x1086, 4)], [(0x1087, 3), (0x1087, 5)], [(0x1088, 0x20)], [(0x1089, 0)]]


def test_binary_is_chosen_by_its_target(adapter: Adapter, pi: DispatchTable) -> None:
    targets = []

    def select(device: int, binaries: int, count: int, selected: int) -> int:
        for entry in (UR.get_struct("ur_device_binary_t") * count).from_address(binaries):
            targets.append((entry.stype, ctypes.string_at(entry.pDeviceTargetSpec)))
        ctypes.c_uint32.from_address(selected).value = 1
        return 0

    adapter.on("urDeviceSelectBinary", select)
    names = [ctypes.create_string_buffer(name) for name in (b"spir64", b"spir64_x86_64")]
    structs = [
        PI.get_struct("pi_device_binary_struct")(DeviceTargetSpec=ctypes.addressof(name))
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
                and UR.get_struct("ur_program_native_properties_t")
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
        desc = UR.get_struct("ur_sampler_desc_t").from_address(description)
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
    given = 1, mip, ctypes.byref(sampler)
    assert pi.piSamplerCreate(*given) == PI.codes["PI_ERROR_UNSUPPORTED_FEATURE"]


def test_bindless_images_get_a_description_of_both_sides(
    adapter: Adapter, pi: DispatchTable
) -> None:
    seen = []

    def copy(queue: int, source: int, target: int, *came: int) -> int:
        sides = [
            UR.get_struct("ur_image_desc_t").from_address(address).width for address in came[:2]
        ]
        region = UR.get_struct("ur_exp_image_copy_region_t").from_address(came[4])
        seen.append((source, target, sides, region.copyExtent.width, region.dstOffset.y, came[5:7]))
        return 0

    adapter.on("urBindlessImagesImageCopyExp", copy)
    adapter.on("urSamplerGetInfo", tell(b"\1\0\0\0"))
    adapter.on("urBindlessImagesSampledImageCreateExp", lambda *came: give([0x88], came[-1], 0))
    form = PI.get_struct("pi_image_format")(
        PI["PI_IMAGE_CHANNEL_ORDER_R"], PI["PI_IMAGE_CHANNEL_TYPE_FLOAT"]
    )
    desc = PI.get_struct("pi_image_desc")(
        image_type=PI["PI_MEM_TYPE_IMAGE2D"], image_width=16, image_height=8
    )
    both = ctypes.byref(form), ctypes.byref(desc)
    zero, offset, extent, host = (
        (ctypes.c_size_t * 3)(*sizes) for sizes in ((), (0, 2), (4, 4, 1), (32, 32))
    )
    flags = PI["PI_IMAGE_COPY_HOST_TO_DEVICE"]
    given = 1, 0x20, 0x10, *both, flags, zero, offset, extent, host, 0, None, None
    assert pi.piextMemImageCopy(*given) == 0
    kind = UR["UR_EXP_IMAGE_COPY_INPUT_TYPES_MEM_TO_IMAGE"]
    assert seen == [
        (0x10, 0x20, [32, 16], 4, 2, (UR["UR_EXP_IMAGE_COPY_FLAG_HOST_TO_DEVICE"], kind))
    ]
    mem, handle = word(9), word()
    given = 1, 2, 0x20, *both, 0x66, ctypes.byref(mem), ctypes.byref(handle)
    assert pi.piextMemSampledImageCreate(*given) == 0
    assert (mem.value, handle.value) == (0, 0x88)


def test_imported_memory_is_described_by_its_file_descriptor(
    adapter: Adapter, pi: DispatchTable
) -> None:
    seen = []

    def take(context: int, device: int, size: int, kind: int, description: int, out: int) -> int:
        chain = UR.get_struct("ur_exp_external_mem_desc_t").from_address(description).pNext
        seen.append((size, kind, UR.get_struct("ur_exp_file_descriptor_t").from_address(chain).fd))
        return give([0x99], out, 0)

    adapter.on("urBindlessImagesImportExternalMemoryExp", take)
    handle = word()
    assert pi.piextMemImportOpaqueFD(1, 2, 4096, 7, ctypes.byref(handle)) == 0
    assert (seen, handle.value) == ([(4096, 0, 7)], 0x99)


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
    monkeypatch.setattr(devices, "_find_queue_properties", None)
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


_NULLS = """
import ctypes
import faulthandler
import os
import sys
from itertools import product

sys.path.insert(0, sys.argv[1])
from helpers.pi_service import Adapter
from fairlead.loader.pi.abi import PI, serve
from fairlead.loader.ur.abi import UR

adapter = Adapter()
for function in UR.slots:
    if function.name != "urAdapterGet":
        adapter.on(function.name)
pi = serve(adapter.table)
zeros = (ctypes.c_uint64 * 4096)()
faulthandler.enable()


def call(function, null, count):
    words = [
        (0 if index == null else ctypes.addressof(zeros))
        if p.stars
        else count
        if p.name.startswith(("num", "count", "size"))
        else 0
        if "pfn" in p.name
        else 0x10
        for index, p in enumerate(function.parameters)
    ]
    address = ctypes.c_void_p.from_address(pi.top + 8 * function.slot).value
    ctypes.CFUNCTYPE(ctypes.c_int32, *[ctypes.c_uint64] * len(words))(address)(*words)


for function in PI.slots:
    if function.name == "piTearDown":
        continue
    pointers = [index for index, p in enumerate(function.parameters) if p.stars]
    for null, count in product([-1, *pointers], range(2)):
        child = os.fork()
        if not child:
            call(function, null, count)
            os._exit(0)
        if status := os.waitpid(child, 0)[1]:
            print(function.name, null, count, status)
"""


def test_no_pointer_that_is_null_ends_the_program(run_python: RunPython) -> None:
    """Each pointer of each function is NULL once, and what the others point at is zeros."""
    done = run_python(_NULLS, str(ROOT / "tests"))
    assert done.out == "", done.err


def test_every_slot_is_translated_or_listed_as_unsupported() -> None:
    translated = {*FUNCTIONS, *translation.FUNCTIONS}
    assert translated | set(UNSUPPORTED) == {function.name for function in PI.slots}
    assert not translated & set(UNSUPPORTED)
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
        assert enum.convert_to_ur(enum.convert_to_pi(there)) == there


@given(
    st.sampled_from(
        [enum for enum in ALL_ENUMS if enum.bits and enum.pi not in ("pi_mem_advice",)]
    ),
    st.data(),
)
def test_bits_go_to_ur_and_back_one_by_one(enum: pi_mapping.Enum, data: st.DataObject) -> None:
    chosen = data.draw(st.sets(st.sampled_from([value for value in enum.values if value])))
    value = sum(chosen)
    assert enum.convert_to_pi(enum.convert_to_ur(value)) == value


def test_every_result_of_ur_has_one_of_pi() -> None:
    assert set(RESULTS) == set(UR.errors)
    assert RESULTS[0] == 0
    assert all(code < 0 for value, code in RESULTS.items() if value)
    assert pi_mapping.convert_result(0x7FFFFFF0) == PI.codes["PI_ERROR_UNKNOWN"]
