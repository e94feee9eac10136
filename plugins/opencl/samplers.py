"""Samplers. A context has one cl_sampler for each description, which lives as long as the context:
PoCL frees one that is released before the kernels that use it have ended."""

from __future__ import annotations

import ctypes
from typing import Any, Final

from ...icd.abi import OPENCL
from ...loader.base.forks import new_lock
from ...loader.ur.abi import UR
from .contexts import URContext
from .core import CLObject, adapter, check, create, failure, query, retain_unless_owned
from .images import check_images
from .platforms import driver_of

_ADDRESSING: Final = {
    UR[f"UR_SAMPLER_ADDRESSING_MODE_{name}"]: OPENCL[f"CL_ADDRESS_{name}"]
    for name in ("NONE", "CLAMP_TO_EDGE", "CLAMP", "REPEAT", "MIRRORED_REPEAT")
}
_FILTERS: Final = {
    UR[f"UR_SAMPLER_FILTER_MODE_{name}"]: OPENCL[f"CL_FILTER_{name}"]
    for name in ("NEAREST", "LINEAR")
}

_PROPERTIES: Final = tuple(
    OPENCL[f"CL_SAMPLER_{name}"] for name in ("NORMALIZED_COORDS", "ADDRESSING_MODE", "FILTER_MODE")
)
_lock: Final = new_lock()  # of all contexts' samplers


@adapter.kind
class URSampler(CLObject):
    """A cl_sampler. `addressing` and `filtering` are Unified Runtime's numbers."""

    type = "ur_sampler_handle_t"
    release, retain_function = "clReleaseSampler", "clRetainSampler"

    def __init__(
        self, cl: int, context: URContext, normalized: bool, addressing: int, filtering: int
    ) -> None:
        super().__init__(cl, context.table)
        self.context, self.normalized, self.addressing, self.filtering = (
            context,
            normalized,
            addressing,
            filtering,
        )
        self.words = cl, context.cl, 0, 0  # as launches.c knows it


@adapter.entry
def urSamplerCreate(hContext: URContext, pDesc: Any) -> URSampler:
    normalized, addressing, filtering = (
        bool(pDesc.normalizedCoords),
        pDesc.addressingMode,
        pDesc.filterMode,
    )
    if addressing not in _ADDRESSING or filtering not in _FILTERS:
        raise failure("INVALID_ENUMERATION")
    check_images(hContext)
    described = int(normalized), _ADDRESSING[addressing], _FILTERS[filtering]
    with _lock:
        cl = hContext.samplers.get(described) or _create(hContext, described)
        hContext.samplers[described] = cl
    check(hContext.table.clRetainSampler(cl), "clRetainSampler")
    return URSampler(cl, hContext, normalized, addressing, filtering)


def _create(context: URContext, described: tuple[int, ...]) -> int:
    """A new cl_sampler. Raises OpenCLError."""
    if context.platform.icd.version_number < (2, 0):
        return create(context.table, "clCreateSampler", context.cl, *described)
    pairs = zip(_PROPERTIES, described, strict=True)
    words = [word for pair in pairs for word in pair]
    properties = (ctypes.c_uint64 * (len(words) + 1))(*words)
    return create(context.table, "clCreateSamplerWithProperties", context.cl, properties)


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
    if not hNativeSampler:
        raise failure("INVALID_NULL_HANDLE")
    table = driver_of(hNativeSampler).table

    def ask(name: str) -> int:
        return int.from_bytes(
            query(table, "clGetSamplerInfo", hNativeSampler, OPENCL[name]), "little"
        )

    if ask("CL_SAMPLER_CONTEXT") != hContext.cl:
        raise failure("INVALID_CONTEXT", "the sampler is of another context")
    normalized = bool(ask("CL_SAMPLER_NORMALIZED_COORDS"))
    addressing = {opencl: mode for mode, opencl in _ADDRESSING.items()}[
        ask("CL_SAMPLER_ADDRESSING_MODE")
    ]
    filtering = {opencl: mode for mode, opencl in _FILTERS.items()}[ask("CL_SAMPLER_FILTER_MODE")]
    retain_unless_owned(
        URSampler,
        hNativeSampler,
        hContext.table,
        bool(pProperties and pProperties.isNativeHandleOwned),
    )
    return URSampler(hNativeSampler, hContext, normalized, addressing, filtering)
