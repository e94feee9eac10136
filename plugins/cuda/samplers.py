"""Samplers. They only describe modes: in CUDA texture objects have these (bindless.py)."""

from __future__ import annotations

from typing import Any

from ...loader.ur.abi import UR
from ..sdk.queries import SAMPLER_INFO
from .contexts import CuContext
from .core import Object, adapter, failure


@adapter.kind
class CuSampler(Object):
    """A sampler.

    Args:
        context: its context.
        normalized: whether its coordinates are from 0 to 1.
        addressing: a ur_sampler_addressing_mode_t.
        filtering: a ur_sampler_filter_mode_t.
    """

    type = "ur_sampler_handle_t"

    def __init__(
        self, context: CuContext, normalized: bool, addressing: int, filtering: int
    ) -> None:
        self.context, self.normalized = context, normalized
        self.addressing, self.filtering = addressing, filtering


@adapter.entry
def urSamplerCreate(hContext: CuContext, pDesc: Any) -> CuSampler:
    modes = pDesc.addressingMode, pDesc.filterMode
    groups = "ur_sampler_addressing_mode_t", "ur_sampler_filter_mode_t"
    if any(mode not in UR.groups[group] for mode, group in zip(modes, groups, strict=True)):
        raise failure("INVALID_ENUMERATION")
    return CuSampler(hContext, bool(pDesc.normalizedCoords), *modes)


adapter.info("urSamplerGetInfo", SAMPLER_INFO)
