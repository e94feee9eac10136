"""Samplers of the OpenCL adapter. A context has one cl_sampler for each description.

PoCL frees a released sampler before the kernels that use it have ended. So a cl_sampler lives as
long as its context.
"""

from __future__ import annotations

import ctypes
from functools import partial
from typing import Any, Final

from ...icd.abi import OPENCL
from ...loader.base.forks import make_lock
from ...loader.ur.abi import UR
from ..sdk.samplers import declare_samplers
from .contexts import URContext, check_native
from .core import CLObject, adapter, check, create, query_number, retain_unless_owned
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
_lock: Final = make_lock()  # for the samplers of all contexts


@adapter.kind
class URSampler(CLObject):
    """A cl_sampler.

    Args:
        cl: its handle, a reference to which is ours.
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
        """Return what launches.c knows of the sampler."""
        return self.cl, self.context.cl, 0, 0


def create_sampler(
    context: URContext, normalized: bool, addressing: int, filtering: int
) -> URSampler:
    """Return a new sampler, by the arguments of `URSampler`. Raises URError, OpenCLError."""
    check_images(context)
    described = int(normalized), _ADDRESSING[addressing], _FILTERS[filtering]
    with _lock:
        cl = context.samplers.get(described) or _create(context, described)
        context.samplers[described] = cl
    check(context.table.clRetainSampler(cl), "clRetainSampler")
    return URSampler(cl, context, normalized, addressing, filtering)


def _create(context: URContext, described: tuple[int, ...]) -> int:
    """Return a new cl_sampler. Raises OpenCLError."""
    if context.platform.icd.version_number < (2, 0):
        return create(context.table, "clCreateSampler", context.cl, *described)
    values = zip(_PROPERTIES, described, strict=True)
    pairs = [number for name, value in values for number in (OPENCL[name], value)]
    properties = (ctypes.c_uint64 * (len(pairs) + 1))(*pairs)
    return create(context.table, "clCreateSamplerWithProperties", context.cl, properties)


declare_samplers(adapter, create_sampler)


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
