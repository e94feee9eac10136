"""Samplers. They only describe modes: in CUDA texture objects have these (bindless.py)."""

from __future__ import annotations

from ..sdk.samplers import declare_samplers
from .contexts import CuContext
from .core import Object, adapter


@adapter.kind
class CuSampler(Object):
    """A sampler.

    Args:
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


declare_samplers(adapter, CuSampler)
