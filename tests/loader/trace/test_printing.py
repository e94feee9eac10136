"""Calls as text, with the names of the ABI data. Nothing in them can break the printing."""

from __future__ import annotations

import struct
from array import array
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairlead.icd.abi import OPENCL
from fairlead.loader.base.abi import Api
from fairlead.loader.pi.abi import PI
from fairlead.loader.trace.printing import (
    TracedCall,
    decode,
    format_after,
    format_before,
    format_duration,
    split_pieces,
)
from fairlead.loader.trace.values import format_quoted
from fairlead.loader.ur.abi import UR

APIS = {"ur": UR, "pi": PI, "cl": OPENCL}
WORDS = st.integers(0, 2**64 - 1)


def call(
    api: Api, name: str, *arguments: int, result: int = 0, ns: int = 12_300, **read: bytes
) -> TracedCall:
    """A call that came back; `read` is what its pointers led to, by the parameter's name."""
    function = api.functions[name]
    names = [parameter.name for parameter in function.parameters]
    found = {names.index(parameter): data for parameter, data in read.items()}
    return TracedCall(api, function, "fake", 1, 100, 100 + ns, arguments, result, found)


def words(*numbers: int) -> bytes:
    return struct.pack(f"@{len(numbers)}Q", *numbers)


def test_a_ur_call_is_one_line_with_the_names_of_its_arguments() -> None:
    got = call(UR, "urAdapterGet", 0, 0, 0x7FFC10, pNumAdapters=struct.pack("@I", 1))
    assert str(got) == (
        "urAdapterGet(.NumEntries = 0, .phAdapters = nullptr, .pNumAdapters = 0x7ffc10 "
        "(1)) -> UR_RESULT_SUCCESS;"
    )
    assert not got.failed and got.duration == 12_300 and got.name == "urAdapterGet"


def test_the_lines_around_a_ur_call_are_those_of_the_dpcpp_runtime() -> None:
    got = call(UR, "urAdapterRelease", 0x10)
    assert format_before(got, "   ") == "   ---> urAdapterRelease\n"
    found = format_after(got, "   ")
    assert found == "   <--- urAdapterRelease(.hAdapter = 0x10) -> UR_RESULT_SUCCESS;\n"
    found = format_after(got, times=True)
    assert found == "<--- urAdapterRelease(.hAdapter = 0x10) -> UR_RESULT_SUCCESS; 12.3 us\n"


def test_a_pi_call_is_a_block_of_types_and_names() -> None:
    given = PI, "piPlatformsGet", 1, 0x55D8, 0x7FF0
    got = call(*given, platforms=words(0xABC), num_platforms=struct.pack("@I", 1))
    assert format_before(got) == (
        "---> piPlatformsGet(\n"
        "\tpi_uint32 num_entries : 1\n"
        "\tpi_platform * platforms : 0x55d8\n"
        "\tpi_uint32 * num_platforms : 0x7ff0\n"
        ") ---> "
    )
    assert format_after(got) == (
        "\tpi_result : PI_SUCCESS\n"
        "\t[out]pi_platform * platforms : 0x55d8[ 0xabc ... ]\n"
        "\t[out]pi_uint32 * num_platforms : 0x7ff0[ 1 ]\n"
        "\n"
    )
    assert format_after(got, times=True).startswith("\tpi_result : PI_SUCCESS; 12.3 us\n")
    assert "\tpi_platform * platforms : <nullptr>\n" in format_before(
        call(PI, "piPlatformsGet", 0, 0, 0x7FF0)
    )


@pytest.mark.parametrize(
    ("constant", "data", "text"),
    [
        ("UR_DEVICE_INFO_NAME", b'A "B"\n\xff\0xyz', '("A \\"B\\"\\n\\xff")'),
        (
            "UR_DEVICE_INFO_TYPE",
            struct.pack("@I", UR["UR_DEVICE_TYPE_GPU"]),
            "(UR_DEVICE_TYPE_GPU)",
        ),
        ("UR_DEVICE_INFO_VENDOR_ID", struct.pack("@I", 0x8086), f"({0x8086})"),
        ("UR_DEVICE_INFO_AVAILABLE", b"\1", "(true)"),
        ("UR_DEVICE_INFO_MAX_WORK_ITEM_SIZES", words(4, 5, 6), "{4, 5, 6}"),
        ("UR_DEVICE_INFO_PLATFORM", words(0x1234), "(0x1234)"),
    ],
)
def test_an_info_query_is_printed_as_the_type_that_it_answers_with(
    constant: str, data: bytes, text: str
) -> None:
    got = call(UR, "urDeviceGetInfo", 1, UR[constant], len(data), 0x7000, 0, pPropValue=data)
    assert dict(got.format_arguments()) == {
        "hDevice": "0x1",
        "propName": constant,
        "propSize": str(len(data)),
        "pPropValue": f"0x7000 {text}",
        "pPropSizeRet": "nullptr",
    }


def test_an_info_query_is_cut_to_what_was_answered() -> None:
    got = call(
        UR,
        "urDeviceGetInfo",
        *(1, UR["UR_DEVICE_INFO_MAX_WORK_ITEM_SIZES"], 32, 0x7000, 0x8000),
        pPropValue=words(4, 5, 6, 99),
        pPropSizeRet=words(16),
    )
    assert dict(got.format_arguments())["pPropValue"] == "0x7000 {4, 5}"


def test_an_info_query_that_failed_or_is_not_known_is_an_address() -> None:
    data = words(1)
    failed = call(
        UR, "urDeviceGetInfo", 1, UR["UR_DEVICE_INFO_NAME"], 8, 0x7000, 0, result=4, pPropValue=data
    )
    unknown = call(UR, "urDeviceGetInfo", 1, 0x7777, 8, 0x7000, 0, pPropValue=data)
    assert [dict(got.format_arguments())["pPropValue"] for got in (failed, unknown)] == [
        "0x7000",
        "0x7000",
    ]
    assert dict(unknown.format_arguments())["propName"] == str(0x7777)


def test_structs_have_the_names_of_their_fields_and_bits_those_of_their_flags() -> None:
    kind = UR.get_struct("ur_queue_properties_t")
    flags = UR["UR_QUEUE_FLAG_PROFILING_ENABLE"] | UR["UR_QUEUE_FLAG_ON_DEVICE"] | 0x80000000
    properties = bytes(kind(UR["UR_STRUCTURE_TYPE_QUEUE_PROPERTIES"], None, flags))
    got = call(
        UR, "urQueueCreate", 1, 2, 0x7000, 0x8000, pProperties=properties, phQueue=words(0x99)
    )
    text = dict(got.format_arguments())
    assert text["pProperties"] == (
        "0x7000 {.stype = UR_STRUCTURE_TYPE_QUEUE_PROPERTIES, .pNext = nullptr, "
        ".flags = UR_QUEUE_FLAG_PROFILING_ENABLE | UR_QUEUE_FLAG_ON_DEVICE | 0x80000000}"
    )
    assert text["phQueue"] == "0x8000 (0x99)"


def test_a_struct_passed_by_value_has_no_address() -> None:
    region = bytes(UR.get_struct("ur_rect_region_t")(4, 5, 6))
    got = call(UR, "urEnqueueMemBufferReadRect", 1, 2, 1, 3, 3, 3, *[0] * 8, region=region)
    text = dict(got.format_arguments())
    assert text["region"] == "{.width = 4, .height = 5, .depth = 6}"
    assert text["blockingRead"] == "true"


def test_arrays_are_cut_where_the_log_cut_them() -> None:
    got = call(UR, "urEventWait", 30, 0x7000, phEventWaitList=words(1, 2))
    assert dict(got.format_arguments())["phEventWaitList"] == "0x7000 {0x1, 0x2, ...}"
    got = call(UR, "urEventWait", 2, 0x7000, phEventWaitList=words(1, 2))
    assert dict(got.format_arguments())["phEventWaitList"] == "0x7000 {0x1, 0x2}"


def test_a_pointer_that_leads_nowhere_is_an_address() -> None:
    got = call(UR, "urProgramBuild", 1, 2, 0x10, pOptions=b"")
    assert dict(got.format_arguments())["pOptions"] == "0x10"


def test_strings_are_escaped_and_cut() -> None:
    assert format_quoted(b'a"b\\c\t\x01\xc3\xa9\xff\0junk') == '"a\\"b\\\\c\\t\\x01é\\xff"'
    assert format_quoted(b"a" * 128) == '"' + "a" * 128 + '"...'
    assert format_quoted(b"exact", cut=False) == '"exact"'


def test_opencl_calls_are_named_like_those_of_ur() -> None:
    got = call(
        OPENCL,
        "clGetDeviceIDs",
        *(0x10, OPENCL["CL_DEVICE_TYPE_CPU"] | OPENCL["CL_DEVICE_TYPE_GPU"], 1, 0x7000, 0x8000),
        result=2**64 - 1,
        devices=words(0xD0),
        num_devices=struct.pack("@I", 1),
    )
    assert str(got) == (
        "clGetDeviceIDs(.platform = 0x10, .device_type = CL_DEVICE_TYPE_CPU | CL_DEVICE_TYPE_GPU, "
        ".num_entries = 1, .devices = 0x7000 {0xd0}, .num_devices = 0x8000 (1)) -> "
        "CL_DEVICE_NOT_FOUND;"
    )
    assert got.failed


def test_an_opencl_object_that_was_not_made_is_a_failure_with_its_code() -> None:
    got = call(OPENCL, "clCreateUserEvent", 0x10, 0x7000, errcode_ret=struct.pack("@i", -34))
    assert got.failed
    assert str(got) == (
        "clCreateUserEvent(.context = 0x10, .errcode_ret = 0x7000 (CL_INVALID_CONTEXT)) -> nullptr;"
    )


def test_a_function_that_returns_nothing_has_no_result() -> None:
    got = call(OPENCL, "clSVMFree", 0x10, 0x20)
    assert str(got) == "clSVMFree(.context = 0x10, .svm_pointer = 0x20);" and not got.failed


@pytest.mark.parametrize(
    ("code", "name"),
    [(1, "UR_RESULT_ERROR_INVALID_OPERATION"), (2**32 - 5, "-5"), (2**64 - 5, "-5")],
)
def test_the_result_is_the_low_half_of_its_word(code: int, name: str) -> None:
    got = call(UR, "urAdapterRelease", 0x10, result=code)
    assert got.result_text == name and got.failed


@pytest.mark.parametrize(
    ("ns", "text"),
    [
        (0, "0 ns"),
        (999, "999 ns"),
        (12_300, "12.3 us"),
        (4_560_000, "4.6 ms"),
        (2_000_000_000, "2.0 s"),
    ],
)
def test_durations_have_the_unit_that_fits(ns: int, text: str) -> None:
    assert format_duration(ns) == text


def test_decode_reads_the_records_of_the_layers_that_it_knows() -> None:
    slot = UR.functions["urProgramBuild"].slot
    assert slot is not None
    piece = [2 | 3 << 32, int.from_bytes(b"-x\0" + bytes(5), "little")]
    record = [
        (9 + len(piece)) | slot << 32,
        3 | 1 << 16 | 77 << 32,
        0xA0,
        1000,
        3000,
        0,
        1,
        2,
        0x7000,
        *piece,
    ]
    other = [6 | 1 << 32, 0 | 5 << 32, 0xB0, 1, 2, 3]
    got = decode(
        memoryview(array("Q", [*other, *record])).cast("B").cast("Q"), {0xA0: (UR, "fake")}
    )
    assert [(c.name, c.label, c.thread, c.begin, c.end, c.arguments) for c in got] == [
        ("urProgramBuild", "fake", 77, 1000, 3000, (1, 2, 0x7000))
    ]
    assert dict(got[0].format_arguments())["pOptions"] == '"-x"'


@given(st.dictionaries(st.integers(0, 31), st.binary(max_size=128)))
def test_pieces_come_out_as_they_went_in(found: dict[int, bytes]) -> None:
    data = b"".join(
        words(place | len(piece) << 32) + piece + bytes(-len(piece) % 8)
        for place, piece in found.items()
    )
    assert split_pieces(memoryview(data).cast("Q")) == found


@given(st.data(), st.sampled_from(sorted(APIS)))
def test_whatever_a_call_held_it_can_be_printed(data: st.DataObject, name: str) -> None:
    function = data.draw(st.sampled_from(APIS[name].slots))
    count = len(function.parameters)
    got = TracedCall(
        APIS[name],
        function,
        "fake",
        1,
        0,
        data.draw(st.integers(0, 2**62)),
        tuple(
            data.draw(
                st.lists(st.one_of(st.integers(0, 64), WORDS), min_size=count, max_size=count)
            )
        ),
        data.draw(WORDS),
        data.draw(
            st.dictionaries(st.integers(0, max(count - 1, 0)), st.binary(max_size=128))
            if count
            else st.just({})
        ),
    )
    text = format_before(got) + format_after(got, times=True) + str(got)
    assert function.name in text
    assert [parameter for parameter, _ in got.format_arguments()] == [
        parameter.name for parameter in function.parameters
    ]


@pytest.mark.parametrize("api", APIS.values(), ids=APIS.keys())
def test_every_answer_of_an_info_query_can_be_printed(api: Api) -> None:
    """The printing knows the types behind the constants: none is printed as a bare address."""
    queries = [
        (f, p)
        for f in api.slots
        for p in f.parameters
        if p.type_from and p.length and p.is_out and api.resolve(p.type) == "void"
    ]
    assert queries
    for function, parameter in queries:
        names = [p.name for p in function.parameters]
        group = function.parameters[names.index(parameter.type_from)].type
        for constant in api.constants.values():
            if (
                constant.group == group
                and constant.answer
                and constant.answer.strip("[]") not in api.structs
            ):
                arguments = [0] * len(names)
                arguments[names.index(parameter.type_from)] = constant.value
                arguments[names.index(parameter.length)] = 128
                arguments[names.index(parameter.name)] = 0x7000
                read: Any = {parameter.name: bytes(128)}
                got = call(api, function.name, *arguments, **read)
                assert got.get_target(names.index(parameter.name)) is not None, (
                    function.name,
                    constant,
                )
