"""Samplers."""

from __future__ import annotations

import ctypes
from typing import Any, Final

from ..sdk.conversions import failure
from ..sdk.queries import SAMPLER_INFO
from ..sdk.ze.samplers import ADDRESSING, FILTERS
from .contexts import LZContext
from .core import LZObject, adapter, create, make_struct
from .images import check_images

_ADDRESSING: Final = {ur: ze for ze, ur in ADDRESSING.items()}
_FILTERS: Final = {ur: ze for ze, ur in FILTERS.items()}


@adapter.kind
class LZSampler(LZObject):
    """A sampler.

    Args:
        ze: its handle.
        context: its context.
        normalized: whether its coordinates are from 0 to 1.
        addressing: a ur_sampler_addressing_mode_t.
        filtering: a ur_sampler_filter_mode_t.
    """

    type = "ur_sampler_handle_t"
    destroy = "zeSamplerDestroy"

    def __init__(
        self, ze: int, context: LZContext, normalized: bool, addressing: int, filtering: int
    ) -> None:
        super().__init__(ze, context.table)
        self.context, self.normalized = context, normalized
        self.addressing, self.filtering = addressing, filtering


@adapter.entry
def urSamplerCreate(hContext: LZContext, pDesc: Any) -> LZSampler:
    normalized = bool(pDesc.normalizedCoords)
    addressing, filtering = pDesc.addressingMode, pDesc.filterMode
    if addressing not in _ADDRESSING or filtering not in _FILTERS:
        raise failure("INVALID_ENUMERATION")
    device = hContext.devices[0]
    check_images(device)
    desc = make_struct(
        "sampler_desc",
        addressMode=_ADDRESSING[addressing],
        filterMode=_FILTERS[filtering],
        isNormalized=normalized,
    )
    ze = create(hContext.table, "zeSamplerCreate", hContext.ze, device.ze, ctypes.byref(desc))
    return LZSampler(ze, hContext, normalized, addressing, filtering)


adapter.info("urSamplerGetInfo", SAMPLER_INFO)
