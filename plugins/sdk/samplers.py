"""Samplers of all adapters."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from .adapter import Adapter


def declare_samplers(adapter: Adapter, create: Callable[[Any, bool, int, int], Any]) -> None:
    """Declare how samplers are made, and the queries about them.

    Args:
        create: gets a context, whether coordinates are from 0 to 1, a ur_sampler_addressing_mode_t
            and a ur_sampler_filter_mode_t.
    """

    def create_sampler(hContext: Any, pDesc: Any) -> Any:
        normalized = bool(pDesc.normalizedCoords)
        return create(hContext, normalized, pDesc.addressingMode, pDesc.filterMode)

    adapter.declare(urSamplerCreate=create_sampler)
    adapter.info(
        "urSamplerGetInfo",
        {
            "REFERENCE_COUNT": lambda sampler: sampler.references,
            "CONTEXT": lambda sampler: sampler.context,
            "NORMALIZED_COORDS": lambda sampler: sampler.normalized,
            "ADDRESSING_MODE": lambda sampler: sampler.addressing,
            "FILTER_MODE": lambda sampler: sampler.filtering,
        },
        "UR_SAMPLER_INFO_",
    )
