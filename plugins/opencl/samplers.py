"""Samplers."""

from __future__ import annotations

import ctypes
from functools import partial
from typing import Any, Final

from ...icd.abi import OPENCL
from ...loader.ur.abi import UR
from .contexts import URContext, check_native
from .core import CLObject, adapter, create, failure, query_number, retain_unless_owned
from .images import check_images

_PROPERTIES: Final = (
    "CL_SAMPLER_NORMALIZED_COORDS",
    "CL_SAMPLER_ADDRESSING_MODE",
    "CL_SAMPLER_FILTER_MODE",
)
_ADDRESSING: Final = {
    UR[f"UR_SAMPLER_ADDRESSING_MODE_{name}"]: OPENCL[f"CL_ADDRESS_{name}"]
    for name in ("NONE", "CLAMP_TO_EDGE", "CLAMP", "REPEAT", "MIRRORED_REPEAT")
}
_FILTERS: Final = {
    UR[f"UR_SAMPLER_FILTER_MODE_{name}"]: OPENCL[f"CL_FILTER_{name}"]
    for name in ("NEAREST", "LINEAR")
}


@adapter.kind
class URSampler(CLObject):
    """A cl_sampler.

    Args:
        cl: its handle, a reference to which is ours.
        context: its context.
        normalized: whether its coordinates are from 0 to 1.
        addressing: a ur_sampler_addressing_mode_t.
        filtering: a ur_sampler_filter_mode_t.
    """

    type = "ur_sampler_handle_t"
    release, retain_function = "clReleaseSampler", "clRetainSampler"

    def __init__(
        self, cl: int, context: URContext, normalized: bool, addressing: int, filtering: int
    ) -> None:
        super().__init__(cl, context.table)
        self.context, self.normalized = context, normalized
        self.addressing, self.filtering = addressing, filtering

    def describe_to_c(self) -> tuple[int, int, int, int]:
        """Return what launches.c knows of it."""
        return self.cl, self.context.cl, 0, 0


@adapter.entry
def urSamplerCreate(hContext: URContext, pDesc: Any) -> URSampler:
    normalized = bool(pDesc.normalizedCoords)
    addressing, filtering = pDesc.addressingMode, pDesc.filterMode
    if addressing not in _ADDRESSING or filtering not in _FILTERS:
        raise failure("INVALID_ENUMERATION")
    check_images(hContext)
    modes = _ADDRESSING[addressing], _FILTERS[filtering]
    if hContext.platform.icd.version_number >= (2, 0):
        values = zip(_PROPERTIES, (normalized, *modes), strict=True)
        pairs = [number for name, value in values for number in (OPENCL[name], value)]
        properties = (ctypes.c_uint64 * (len(pairs) + 1))(*pairs)
        cl = create(hContext.table, "clCreateSamplerWithProperties", hContext.cl, properties)
    else:
        cl = create(hContext.table, "clCreateSampler", hContext.cl, normalized, *modes)
    return URSampler(cl, hContext, normalized, addressing, filtering)


adapter.info(
    "urSamplerGetInfo",
    {
        "UR_SAMPLER_INFO_REFERENCE_COUNT": lambda sampler: sampler.references,
        "UR_SAMPLER_INFO_CONTEXT": lambda sampler: sampler.context,
        "UR_SAMPLER_INFO_NORMALIZED_COORDS": lambda sampler: sampler.normalized,
        "UR_SAMPLER_INFO_ADDRESSING_MODE": lambda sampler: sampler.addressing,
        "UR_SAMPLER_INFO_FILTER_MODE": lambda sampler: sampler.filtering,
    },
)


@adapter.entry
def urSamplerGetNativeHandle(hSampler: URSampler) -> int:
    return hSampler.cl


@adapter.entry
def urSamplerCreateWithNativeHandle(
    hNativeSampler: int, hContext: URContext, pProperties: Any
) -> URSampler:
    check_native(hNativeSampler, hContext, "clGetSamplerInfo", "CL_SAMPLER_CONTEXT")
    ask = partial(query_number, hContext.table, "clGetSamplerInfo", hNativeSampler)
    normalized, cl_addressing, cl_filtering = map(ask, _PROPERTIES)
    addressing = {opencl: mode for mode, opencl in _ADDRESSING.items()}[cl_addressing]
    filtering = {opencl: mode for mode, opencl in _FILTERS.items()}[cl_filtering]
    retain_unless_owned(URSampler, hNativeSampler, hContext.table, pProperties)
    return URSampler(hNativeSampler, hContext, bool(normalized), addressing, filtering)
