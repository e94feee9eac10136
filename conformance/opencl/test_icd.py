"""The ICD protocol: what any loader relies on (cl_khr_icd 2.0.1)."""

from __future__ import annotations

import ctypes
import struct

import pytest

from fairlead.conformance.checks import equal, expect, failed, forked, rule, unsupported
from fairlead.conformance.opencl.protocol import GET_FUNCTION, LIST, SET_DATA, Protocol
from fairlead.icd.abi import OPENCL
from fairlead.loader.base.query import decode_text

ENTRY = "clGetExtensionFunctionAddress"
INFO = "clGetPlatformInfo"
VERSIONS = [
    pytest.param(
        (major, minor),
        id=f"{major}.{minor}",
        marks=rule("dispatch table", f"every core function of OpenCL {major}.{minor} is there"),
    )
    for major, minor in sorted({function.since for function in OPENCL.slots})
]


# The library


@rule(ENTRY, "the library exports it")
def test_entry(protocol: Protocol) -> None:
    protocol.extension_function(LIST)


@rule(ENTRY, f"gives {LIST}")
def test_list_is_given(protocol: Protocol) -> None:
    protocol.function(LIST)


@rule(ENTRY, "clGetPlatformInfo is exported or given")
def test_platform_info_is_given(protocol: Protocol) -> None:
    if not protocol.library.find_own_symbol(INFO) and not protocol.extension_function(INFO):
        failed(
            "clGetPlatformInfo can be found in the library",
            "neither dlsym nor clGetExtensionFunctionAddress gives it",
        )


@rule(ENTRY, "gives NULL for a function that there is not")
@pytest.mark.parametrize(
    "name", ["clNoSuchFunctionXYZ", "", "clIcdGetPlatformIDsKH", "clIcdGetPlatformIDsKHRX"]
)
def test_unknown_function(protocol: Protocol, name: str) -> None:
    equal(protocol.extension_function(name), 0, f"the address of {name!r}")


# The list of platforms


@rule(LIST, "gives handles that are not NULL, each once")
def test_platforms(protocol: Protocol) -> None:
    platforms = protocol.platforms
    equal(len(set(platforms)), len(platforms), "distinct handles")


@rule(LIST, "gives the same platforms each time")
def test_platforms_again(protocol: Protocol) -> None:
    first = protocol.platforms
    handles = (ctypes.c_void_p * len(first))()
    expect(OPENCL, protocol.function(LIST)(len(first), handles, None), "CL_SUCCESS")
    equal(list(handles), first, "the handles")


@rule(LIST, "num_platforms is how many there are, however large num_entries is")
def test_more_room(protocol: Protocol) -> None:
    first, count = protocol.platforms, ctypes.c_uint32()
    handles = (ctypes.c_void_p * (len(first) + 2))()
    code = protocol.function(LIST)(len(handles), handles, ctypes.byref(count))
    expect(OPENCL, code, "CL_SUCCESS")
    equal(count.value, len(first), "num_platforms")
    equal(list(handles)[: len(first)], first, "the array")


@rule(LIST, "writes no more than num_entries platforms")
def test_less_room(protocol: Protocol) -> None:
    first, count = protocol.platforms, ctypes.c_uint32()
    if len(first) == 1:
        unsupported("there is one platform")
    handles = (ctypes.c_void_p * len(first))()
    expect(OPENCL, protocol.function(LIST)(1, handles, ctypes.byref(count)), "CL_SUCCESS")
    equal(count.value, len(first), "num_platforms")
    equal(list(handles), [first[0], *[None] * (len(first) - 1)], "the array")


@forked
@rule(LIST, "CL_INVALID_VALUE if num_entries is 0 and platforms is not NULL")
def test_no_room(protocol: Protocol) -> None:
    handles = (ctypes.c_void_p * 1)()
    expect(OPENCL, protocol.function(LIST)(0, handles, None), "CL_INVALID_VALUE")


@forked
@rule(LIST, "CL_INVALID_VALUE if platforms and num_platforms are both NULL")
def test_no_answer(protocol: Protocol) -> None:
    expect(OPENCL, protocol.function(LIST)(0, None, None), "CL_INVALID_VALUE")


# The tables


@rule("dispatch table", "the tag of ICD 2 stands in slots 0 and 31, or in neither")
def test_tags(protocol: Protocol) -> None:
    for platform in protocol.platforms:
        first, second = protocol.tags(platform)
        equal(second, first, "slot 31 has the tag as slot 0 has")


@rule("dispatch table", "a platform with the tags has the two functions of ICD 2")
def test_functions_of_icd2(protocol: Protocol) -> None:
    if not any(any(protocol.tags(platform)) for platform in protocol.platforms):
        unsupported("the driver speaks ICD 1")
    for name in (GET_FUNCTION, SET_DATA):
        protocol.function(name)


@pytest.mark.parametrize("version", VERSIONS)
def test_core_functions(protocol: Protocol, version: tuple[int, int]) -> None:
    for platform in protocol.platforms:
        if protocol.version(platform) < version:
            unsupported(
                "the platform is of OpenCL "
                f"{protocol.version(platform)[0]}.{protocol.version(platform)[1]}"
            )
        functions = [
            function for function in protocol.core_functions(platform) if function.since == version
        ]
        missing = [
            function.name for function in functions if not protocol.address(platform, function)
        ]
        equal(missing, [], "functions that are NULL")


# What every platform must answer


@rule(INFO, "cl_khr_icd is among CL_PLATFORM_EXTENSIONS")
def test_extension(protocol: Protocol) -> None:
    for platform in protocol.platforms:
        if "cl_khr_icd" not in protocol.ask_text(platform, "CL_PLATFORM_EXTENSIONS").split():
            failed("cl_khr_icd is listed", protocol.ask_text(platform, "CL_PLATFORM_EXTENSIONS"))


@rule(INFO, "answers CL_PLATFORM_ICD_SUFFIX_KHR with a text")
def test_suffix(protocol: Protocol) -> None:
    for platform in protocol.platforms:
        answer = protocol.info(platform, "CL_PLATFORM_ICD_SUFFIX_KHR")
        equal(answer[-1:], b"\0", "the last byte of the answer")


@rule(INFO, "CL_PLATFORM_VERSION reads OpenCL<space>major.minor<space>…")
def test_version(protocol: Protocol) -> None:
    for platform in protocol.platforms:
        words = decode_text(protocol.info(platform, "CL_PLATFORM_VERSION") + b"\0").split(" ")
        major, _, minor = (words[1] if len(words) > 1 else "").partition(".")
        equal((words[0], major.isdecimal(), minor.isdecimal()), ("OpenCL", True, True), "its form")


@rule(INFO, "CL_PLATFORM_NUMERIC_VERSION is the version of CL_PLATFORM_VERSION")
def test_numeric_version(protocol: Protocol) -> None:
    for platform in protocol.platforms:
        _require_version(protocol, platform, (3, 0))
        number = int.from_bytes(protocol.info(platform, "CL_PLATFORM_NUMERIC_VERSION"), "little")
        equal((number >> 22, number >> 12 & 0x3FF), protocol.version(platform), "the version")


@rule(INFO, "CL_PLATFORM_EXTENSIONS_WITH_VERSION lists what CL_PLATFORM_EXTENSIONS lists")
def test_extensions_with_version(protocol: Protocol) -> None:
    for platform in protocol.platforms:
        _require_version(protocol, platform, (3, 0))
        equal(
            sorted(_query_versions(protocol, platform)),
            sorted(protocol.ask_text(platform, "CL_PLATFORM_EXTENSIONS").split()),
            "names",
        )


@rule(INFO, "a platform with the tags has cl_khr_icd 2.0.0 or later")
def test_version_of_the_extension(protocol: Protocol) -> None:
    for platform in protocol.platforms:
        if not protocol.is_icd2(platform):
            unsupported("the driver speaks ICD 1")
        _require_version(protocol, platform, (3, 0))
        if _query_versions(protocol, platform).get("cl_khr_icd", (0,)) < (2, 0, 0):
            failed("cl_khr_icd 2.0.0", _query_versions(protocol, platform).get("cl_khr_icd"))


@rule(INFO, "CL_PLATFORM_PROFILE is FULL_PROFILE or EMBEDDED_PROFILE")
def test_profile(protocol: Protocol) -> None:
    for platform in protocol.platforms:
        profile = protocol.ask_text(platform, "CL_PLATFORM_PROFILE")
        equal(profile in ("FULL_PROFILE", "EMBEDDED_PROFILE"), True, f"{profile} is a profile")


@rule(INFO, "CL_PLATFORM_NAME and CL_PLATFORM_VENDOR are texts")
@pytest.mark.parametrize("name", ["CL_PLATFORM_NAME", "CL_PLATFORM_VENDOR"])
def test_names(protocol: Protocol, name: str) -> None:
    for platform in protocol.platforms:
        equal(protocol.info(platform, name)[-1:], b"\0", "the last byte of the answer")


@rule(INFO, "answers CL_PLATFORM_UNLOADABLE_KHR with a cl_bool if it lists cl_khr_icd_unloadable")
def test_unloadable(protocol: Protocol) -> None:
    for platform in protocol.platforms:
        if (
            "cl_khr_icd_unloadable"
            not in protocol.ask_text(platform, "CL_PLATFORM_EXTENSIONS").split()
        ):
            unsupported("the platform has no cl_khr_icd_unloadable")
        equal(len(protocol.info(platform, "CL_PLATFORM_UNLOADABLE_KHR")), 4, "bytes of the answer")


@rule(INFO, "param_value_size_ret is the size of the answer, however large param_value_size is")
def test_the_size_of_an_answer(protocol: Protocol) -> None:
    for platform in protocol.platforms:
        call, size = protocol.get_info(platform), ctypes.c_size_t()
        name = OPENCL["CL_PLATFORM_VERSION"]
        answer = protocol.info(platform, "CL_PLATFORM_VERSION")
        room = ctypes.create_string_buffer(len(answer) + 8)
        expect(
            OPENCL,
            call(platform, name, len(room), room, ctypes.byref(size)),
            "CL_SUCCESS",
            what="room for more",
        )
        equal(
            (size.value, room.raw[: len(answer)]),
            (len(answer), answer),
            "param_value_size_ret and the answer",
        )


@forked
@rule(INFO, "CL_INVALID_VALUE if param_value_size is too small")
def test_too_small(protocol: Protocol) -> None:
    for platform in protocol.platforms:
        room = ctypes.create_string_buffer(64)
        code = protocol.get_info(platform)(platform, OPENCL["CL_PLATFORM_VERSION"], 3, room, None)
        expect(OPENCL, code, "CL_INVALID_VALUE")


@forked
@rule(INFO, "CL_INVALID_VALUE if param_name is not a supported value")
def test_unknown_query(protocol: Protocol) -> None:
    for platform in protocol.platforms:
        expect(
            OPENCL,
            protocol.get_info(platform)(platform, 0x7FFFFFFF, 0, None, None),
            "CL_INVALID_VALUE",
        )


def _require_version(protocol: Protocol, platform: int, version: tuple[int, int]) -> None:
    if protocol.version(platform) < version:
        unsupported(f"there is no such query before OpenCL {version[0]}.{version[1]}")


def _query_versions(protocol: Protocol, platform: int) -> dict[str, tuple[int, ...]]:
    answer = protocol.info(platform, "CL_PLATFORM_EXTENSIONS_WITH_VERSION")
    pairs = struct.iter_unpack("=I64s", answer)
    return {
        decode_text(name): (number >> 22, number >> 12 & 0x3FF, number & 0xFFF)
        for number, name in pairs
    }
