"""Samplers of all adapters."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ...loader.ur.abi import UR
from .adapter import Adapter
from .conversions import failure

_GROUPS = UR.groups["ur_sampler_addressing_mode_t"], UR.groups["ur_sampler_filter_mode_t"]


def declare_samplers(adapter: Adapter, create: Callable[[Any, bool, int, int], Any]) -> None:
    """Declare how samplers are made, and the queries about them.

    Args:
        create: gets a context, whether coordinates are from 0 to 1, a ur_sampler_addressing_mode_t
            and a ur_sampler_filter_mode_t.
    """

    def create_sampler(hContext: Any, pDesc: Any) -> Any:
        modes = pDesc.addressingMode, pDesc.filterMode
        if any(mode not in group for mode, group in zip(modes, _GROUPS, strict=True)):
            raise failure("INVALID_ENUMERATION")
        return create(hContext, bool(pDesc.normalizedCoords), *modes)

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
