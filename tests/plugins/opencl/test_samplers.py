"""Samplers of the reference adapter."""

from __future__ import annotations

import ctypes

import pytest
from helpers.memory_calls import struct
from helpers.ur_calls import Calls

from fairlead.loader.ur.abi import UR

MODES = ("NONE", "CLAMP_TO_EDGE", "CLAMP", "REPEAT", "MIRRORED_REPEAT")


def describe(normalized: bool = True, addressing: int = 1, filtering: int = 0) -> object:
    return ctypes.byref(
        struct(
            "ur_sampler_desc_t",
            "SAMPLER_DESC",
            normalizedCoords=normalized,
            addressingMode=addressing,
            filterMode=filtering,
        )
    )


@pytest.mark.parametrize("filtering", ["NEAREST", "LINEAR"])
@pytest.mark.parametrize("addressing", MODES)
def test_a_sampler_tells_what_it_was_made_of(
    ur: Calls, context: int, addressing: str, filtering: str
) -> None:
    mode, filter_mode = (
        UR[f"UR_SAMPLER_ADDRESSING_MODE_{addressing}"],
        UR[f"UR_SAMPLER_FILTER_MODE_{filtering}"],
    )
    sampler = ur.make("urSamplerCreate", context, describe(True, mode, filter_mode))
    native = ur.make("urSamplerGetNativeHandle", sampler).value
    again = ur.make("urSamplerCreateWithNativeHandle", native, context, None)
    for one in (sampler, again):
        assert ur.number("urSamplerGetInfo", one, "UR_SAMPLER_INFO_ADDRESSING_MODE") == mode
        assert ur.number("urSamplerGetInfo", one, "UR_SAMPLER_INFO_FILTER_MODE") == filter_mode
        assert ur.info("urSamplerGetInfo", one, "UR_SAMPLER_INFO_NORMALIZED_COORDS") == b"\1"
        assert ur.number("urSamplerGetInfo", one, "UR_SAMPLER_INFO_CONTEXT") == context
        assert ur.number("urSamplerGetInfo", one, "UR_SAMPLER_INFO_REFERENCE_COUNT") == 1
        ur.ok("urSamplerRelease", one)
    assert ur("urSamplerRelease", sampler) == "INVALID_SAMPLER"


def test_coordinates_that_are_not_normalized(ur: Calls, context: int) -> None:
    sampler = ur.make("urSamplerCreate", context, describe(normalized=False))
    assert ur.info("urSamplerGetInfo", sampler, "UR_SAMPLER_INFO_NORMALIZED_COORDS") == b"\0"
    ur.ok("urSamplerRetain", sampler)
    ur.ok("urSamplerRelease", sampler)
    ur.ok("urSamplerRelease", sampler)


def test_what_is_no_sampler(ur: Calls, context: int) -> None:
    made = ctypes.byref(ctypes.c_void_p())
    assert ur("urSamplerCreate", None, describe(), made) == "INVALID_NULL_HANDLE"
    assert ur("urSamplerCreate", context, None, made) == "INVALID_NULL_POINTER"
    assert ur("urSamplerCreate", context, describe(), None) == "INVALID_NULL_POINTER"
    assert ur("urSamplerCreate", context, describe(addressing=5), made) == "INVALID_ENUMERATION"
    assert ur("urSamplerCreate", context, describe(filtering=2), made) == "INVALID_ENUMERATION"
    assert ur("urSamplerCreateWithNativeHandle", 0, context, None, made) == "INVALID_NULL_HANDLE"
    assert ur("urSamplerCreateWithNativeHandle", 0x1000, context, None, made) == "INVALID_VALUE"
    native = ur.make("urContextGetNativeHandle", context).value
    refused = {
        "INVALID_SAMPLER",
        "INVALID_CONTEXT",
    }  # not every driver knows one of its objects from another
    assert ur("urSamplerCreateWithNativeHandle", native, context, None, made) in refused
