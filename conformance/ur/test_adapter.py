"""The adapter's handle: there is one, with a count, a last error and a logger."""

from __future__ import annotations

import ctypes

from fairlead.conformance.checks import equal, failed, rule
from fairlead.conformance.ur.calls import URCalls, address
from fairlead.loader.ur.abi import UR

LOGGER = ctypes.CFUNCTYPE(None, ctypes.c_uint32, ctypes.c_char_p, ctypes.c_void_p)
silent = LOGGER(lambda level, message, data: None)


def count_of(ur: URCalls, adapter: int) -> int:
    return ur.info("urAdapterGetInfo", adapter, "UR_ADAPTER_INFO_REFERENCE_COUNT")


@rule("urAdapterGet", "there is exactly one adapter")
def test_one_adapter(ur: URCalls) -> None:
    count = ctypes.c_uint32()
    ur.ok("urAdapterGet", 0, None, count)
    equal(count.value, 1, "the number of adapters")


@rule("urAdapterGet", "gives the same handle each time, and adds a reference")
def test_get_again(ur: URCalls, adapter: int) -> None:
    first, again = count_of(ur, adapter), (ctypes.c_void_p * 2)()
    ur.ok("urAdapterGet", 1, again)
    count = count_of(ur, adapter)
    ur.ok("urAdapterRelease", again[0])
    equal(again[0], adapter, "the handle")
    equal(again[1], None, "what lies behind the handle")
    equal(count, first + 1, "the reference count")
    equal(count_of(ur, adapter), first, "the reference count after the release")


@rule("urAdapterGet", "a question for the number alone adds no reference")
def test_count_adds_no_reference(ur: URCalls, adapter: int) -> None:
    first, count = count_of(ur, adapter), ctypes.c_uint32()
    ur.ok("urAdapterGet", 0, None, count)
    equal(count_of(ur, adapter), first, "the reference count")


@rule("urAdapterRetain", "adds a reference that urAdapterRelease takes")
def test_retain_and_release(ur: URCalls, adapter: int) -> None:
    first = count_of(ur, adapter)
    ur.ok("urAdapterRetain", adapter)
    count = count_of(ur, adapter)
    ur.ok("urAdapterRelease", adapter)
    equal((count, count_of(ur, adapter)), (first + 1, first), "the reference counts")


@rule("urAdapterGetInfo", "the backend is that of its platforms")
def test_backend(ur: URCalls, adapter: int, platform: int) -> None:
    own = ur.info("urAdapterGetInfo", adapter, "UR_ADAPTER_INFO_BACKEND")
    equal(
        ur.info("urPlatformGetInfo", platform, "UR_PLATFORM_INFO_BACKEND"),
        own,
        "the platform's backend",
    )


@rule("urAdapterGetLastError", "gives a message and a number, and no error of its own")
def test_last_error(ur: URCalls, adapter: int) -> None:
    message, number = ctypes.c_char_p(), ctypes.c_int32()
    code = ur.code("urAdapterGetLastError", adapter, ctypes.byref(message), number)
    if code not in ("UR_RESULT_SUCCESS", "UR_RESULT_ERROR_UNSUPPORTED_FEATURE"):
        failed("UR_RESULT_SUCCESS", code)


@rule("urAdapterSetLoggerCallback", "a callback can be set and its level changed")
def test_logger(ur: URCalls, adapter: int) -> None:
    ur.ok("urAdapterSetLoggerCallback", adapter, address(silent), None, UR["UR_LOGGER_LEVEL_QUIET"])
    for level in UR.groups["ur_logger_level_t"]:
        ur.ok("urAdapterSetLoggerCallbackLevel", adapter, level)
    ur.ok("urAdapterSetLoggerCallbackLevel", adapter, UR["UR_LOGGER_LEVEL_QUIET"])
