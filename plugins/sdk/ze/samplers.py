"""Modes of samplers: Unified Runtime's numbers by Level Zero's."""

from __future__ import annotations

from typing import Final

from ....loader.ur.abi import UR
from ....loader.ze.abi import ZE

#: What lies beyond an image. Level Zero clamps to the edge where it says no more than "clamp".
ADDRESSING: Final = {
    ZE[f"ZE_SAMPLER_ADDRESS_MODE_{ze}"]: UR[f"UR_SAMPLER_ADDRESSING_MODE_{ur}"]
    for ze, ur in (
        ("NONE", "NONE"),
        ("REPEAT", "REPEAT"),
        ("CLAMP", "CLAMP_TO_EDGE"),
        ("CLAMP_TO_BORDER", "CLAMP"),
        ("MIRROR", "MIRRORED_REPEAT"),
    )
}
#: What lies between pixels.
FILTERS: Final = {
    ZE[f"ZE_SAMPLER_FILTER_MODE_{name}"]: UR[f"UR_SAMPLER_FILTER_MODE_{name}"]
    for name in ("NEAREST", "LINEAR")
}
