"""Samplers of the adapter on Level Zero."""

from __future__ import annotations

import ctypes
from typing import Final

from ..sdk.samplers import declare_samplers
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


def _create(context: LZContext, normalized: bool, addressing: int, filtering: int) -> LZSampler:
    device = context.devices[0]
    check_images(device)
    desc = make_struct(
        "sampler_desc",
        addressMode=_ADDRESSING[addressing],
        filterMode=_FILTERS[filtering],
        isNormalized=normalized,
    )
    ze = create(context.table, "zeSamplerCreate", context.ze, device.ze, ctypes.byref(desc))
    return LZSampler(ze, context, normalized, addressing, filtering)


declare_samplers(adapter, _create)
