"""Platforms: the same handles at every call, a version, options, and their adapter."""

from __future__ import annotations

import ctypes

import pytest

from fairlead.conformance.checks import each, equal, failed, rule
from fairlead.conformance.ur.calls import URCalls
from fairlead.loader.ur.abi import API_VERSION, UR


@rule("urPlatformGet", "gives identical handles at every call")
def test_same_handles(ur: URCalls, adapter: int) -> None:
    count = ctypes.c_uint32()
    ur.ok("urPlatformGet", adapter, 0, None, count)
    first, again = ((ctypes.c_void_p * count.value)() for _ in range(2))
    ur.ok("urPlatformGet", adapter, count.value, first)
    ur.ok("urPlatformGet", adapter, count.value, again)
    equal(list(again), list(first), "the handles")


@rule("urPlatformGet", "fills no more than NumEntries handles")
def test_only_as_many_as_asked_for(ur: URCalls, adapter: int) -> None:
    count = ctypes.c_uint32()
    ur.ok("urPlatformGet", adapter, 0, None, count)
    found = (ctypes.c_void_p * (count.value + 1))()
    ur.ok("urPlatformGet", adapter, 1, found)
    equal(
        [bool(handle) for handle in found],
        [True] + [False] * count.value,
        "which handles were filled",
    )


@rule("urPlatformGetApiVersion", "is the version of the API")
def test_version(ur: URCalls, platform: int) -> None:
    version = ctypes.c_uint32()
    ur.ok("urPlatformGetApiVersion", platform, version)
    equal(version.value, API_VERSION, "the version")


@rule("urPlatformGetInfo", "the adapter is that which listed the platform")
def test_adapter(ur: URCalls, adapter: int, platform: int) -> None:
    equal(
        ur.info("urPlatformGetInfo", platform, "UR_PLATFORM_INFO_ADAPTER"), adapter, "the adapter"
    )


@pytest.mark.parametrize(
    "option", each(("", "-O0", "-O1", "-O2", "-O3"), "urPlatformGetBackendOption", "knows {!r}")
)
def test_backend_option(ur: URCalls, platform: int, option: str) -> None:
    text = ctypes.c_char_p()
    ur.ok("urPlatformGetBackendOption", platform, option.encode(), ctypes.byref(text))
    if text.value is None:
        failed("a string", "NULL")


@pytest.mark.parametrize(
    "query",
    each(
        (
            "UR_PLATFORM_INFO_NAME",
            "UR_PLATFORM_INFO_VENDOR_NAME",
            "UR_PLATFORM_INFO_VERSION",
            "UR_PLATFORM_INFO_PROFILE",
        ),
        "urPlatformGetInfo",
        "{} is not empty",
    ),
)
def test_texts(ur: URCalls, platform: int, query: str) -> None:
    if not ur.info("urPlatformGetInfo", platform, query):
        failed("a text", "''")


@rule("urPlatformGetInfo", "the backend is one that is known")
def test_backend(ur: URCalls, platform: int) -> None:
    backend = ur.info("urPlatformGetInfo", platform, "UR_PLATFORM_INFO_BACKEND")
    if UR.groups["ur_backend_t"].get(backend, "UR_BACKEND_UNKNOWN") == "UR_BACKEND_UNKNOWN":
        failed("a backend of ur_backend_t", backend)
