"""Samplers: every mode, as it was requested."""

from __future__ import annotations

import pytest

from fairlead.conformance.checks import each, equal
from fairlead.conformance.ur.calls import URCalls
from fairlead.conformance.ur.objects import URObjects
from fairlead.loader.ur.abi import UR

ADDRESSING = sorted(UR.groups["ur_sampler_addressing_mode_t"].values())
FILTERS = sorted(UR.groups["ur_sampler_filter_mode_t"].values())


def make_sampler(
    ur: URCalls, make: URObjects, context: int, addressing: str, filter_mode: str, normalised: bool
) -> int:
    """Make a sampler with these modes, the names of constants."""
    ur.require("UR_DEVICE_INFO_IMAGE_SUPPORT")
    modes = {"addressingMode": UR[addressing], "filterMode": UR[filter_mode]}
    how = ur.struct("ur_sampler_desc_t", normalizedCoords=normalised, **modes)
    return make.own("urSamplerRelease", ur.new("urSamplerCreate", context, how))


@pytest.mark.parametrize(
    "mode", each(ADDRESSING, "urSamplerGetInfo", "{} is what it was made with")
)
def test_addressing(ur: URCalls, make: URObjects, context: int, mode: str) -> None:
    made = make_sampler(ur, make, context, mode, FILTERS[0], True)
    found = ur.info("urSamplerGetInfo", made, "UR_SAMPLER_INFO_ADDRESSING_MODE")
    equal(UR.groups["ur_sampler_addressing_mode_t"].get(found, found), mode, "the mode")


@pytest.mark.parametrize("mode", each(FILTERS, "urSamplerGetInfo", "{} is what it was made with"))
def test_filter(ur: URCalls, make: URObjects, context: int, mode: str) -> None:
    made = make_sampler(ur, make, context, "UR_SAMPLER_ADDRESSING_MODE_CLAMP_TO_EDGE", mode, True)
    found = ur.info("urSamplerGetInfo", made, "UR_SAMPLER_INFO_FILTER_MODE")
    equal(UR.groups["ur_sampler_filter_mode_t"].get(found, found), mode, "the mode")


@pytest.mark.parametrize(
    "normalised", each((True, False), "urSamplerGetInfo", "normalised coordinates: {}")
)
def test_coordinates(ur: URCalls, make: URObjects, context: int, normalised: bool) -> None:
    made = make_sampler(
        ur, make, context, "UR_SAMPLER_ADDRESSING_MODE_CLAMP_TO_EDGE", FILTERS[0], normalised
    )
    equal(
        ur.info("urSamplerGetInfo", made, "UR_SAMPLER_INFO_NORMALIZED_COORDS"),
        normalised,
        "what it says of itself",
    )
    equal(ur.info("urSamplerGetInfo", made, "UR_SAMPLER_INFO_CONTEXT"), context, "the context")
