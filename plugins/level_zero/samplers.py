"""Samplers of the Level Zero driver. They are those of the reference adapter."""

from __future__ import annotations

from typing import Any

from ..opencl.images import has_images
from ..opencl.samplers import URSampler, create_sampler
from ..sdk.objects import Object
from ..sdk.ze.samplers import ADDRESSING, FILTERS
from .contexts import ZeContext
from .core import driver, make_failure
from .devices import ZeDevice


@driver.kind
class ZeSampler(Object):
    """A sampler.

    Args:
        ur: the sampler of the reference adapter.
    """

    type = "ze_sampler_handle_t"

    def __init__(self, context: ZeContext, ur: URSampler) -> None:
        self.context, self.ur = context, ur


@driver.entry
def zeSamplerCreate(hContext: ZeContext, hDevice: ZeDevice, desc: Any) -> ZeSampler:
    hContext.check(hDevice)
    if not has_images(hDevice.ur):
        raise make_failure("UNSUPPORTED_FEATURE", "the device has no images")
    modes = ADDRESSING[desc.addressMode], FILTERS[desc.filterMode]
    return ZeSampler(hContext, create_sampler(hContext.ur, bool(desc.isNormalized), *modes))
