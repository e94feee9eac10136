"""Samplers of the reference adapter."""

from __future__ import annotations

import ctypes

from helpers.memory_calls import struct
from helpers.ur_calls import Calls


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
