"""Formats of images, and modes of samplers: Level Zero's for those of Unified Runtime, which are
OpenCL's, and back.

Level Zero describes a pixel by its layout in memory, by the type of its channels, and by a swizzle.
The swizzle says which component of the pixel a kernel reads as x, y, z and w. Unified Runtime names
the order of the channels, and the type of one channel. Formats that only one of them has are not in
the table.
"""

from __future__ import annotations

from itertools import product
from typing import Any, Final

from ....loader.ur.abi import UR
from ....loader.ze.abi import ZE

#: Orders of channels: how many there are, and what x, y, z and w may be. The first letter of each
#: is what we give. The others mean the same, because the pixel has no such component.
_ORDERS: Final = {
    "R": (1, "R 0GX 0BX 1AX"),
    "A": (1, "0X 0X 0X R"),
    "INTENSITY": (1, "R R R R"),
    "LUMINANCE": (1, "R R R 1"),
    "RG": (2, "R G 0BX 1AX"),
    "RA": (2, "R 0X 0X G"),
    "RGB": (3, "R G B 1AX"),
    "RGBA": (4, "R G B A"),
    "BGRA": (4, "B G R A"),
    "ABGR": (4, "A B G R"),
    "RGBX": (4, "R G B 1X"),
}
#: Types of a channel: Level Zero's type, and the bits.
_CHANNELS: Final = {
    **{f"UNSIGNED_INT{bits}": ("UINT", bits) for bits in (8, 16, 32)},
    **{f"SIGNED_INT{bits}": ("SINT", bits) for bits in (8, 16, 32)},
    **{f"UNORM_INT{bits}": ("UNORM", bits) for bits in (8, 16)},
    **{f"SNORM_INT{bits}": ("SNORM", bits) for bits in (8, 16)},
    "HALF_FLOAT": ("FLOAT", 16),
    "FLOAT": ("FLOAT", 32),
}
#: Types of a whole pixel: the order that they have, and the layout.
_PACKED: Final = {"UNORM_SHORT_565": ("RGB", "5_6_5"), "UNORM_SHORT_555": ("RGBX", "5_5_5_1")}

#: Level Zero's layout and type, the letters of each channel, and Unified Runtime's order and type.
_ROWS: Final = [
    *(
        ("_".join([str(bits)] * count), kind, letters.split(), order, channel)
        for order, (count, letters) in _ORDERS.items()
        for channel, (kind, bits) in _CHANNELS.items()
    ),
    *(
        (layout, "UNORM", _ORDERS[order][1].split(), order, channel)
        for channel, (order, layout) in _PACKED.items()
    ),
]


def _list_numbers(layout: str, kind: str, letters: tuple[str, ...]) -> tuple[int, ...]:
    swizzle = (ZE[f"ZE_IMAGE_FORMAT_SWIZZLE_{letter}"] for letter in letters)
    layout_number = ZE[f"ZE_IMAGE_FORMAT_LAYOUT_{layout}"]
    return layout_number, ZE[f"ZE_IMAGE_FORMAT_TYPE_{kind}"], *swizzle


def _make_pair(order: str, channel: str) -> tuple[int, int]:
    kind = UR[f"UR_IMAGE_CHANNEL_TYPE_{channel}"]
    return UR[f"UR_IMAGE_CHANNEL_ORDER_{order}"], kind


_TO_ZE: Final = {
    _make_pair(order, channel): _list_numbers(layout, kind, tuple(one[0] for one in letters))
    for layout, kind, letters, order, channel in _ROWS
}
_TO_UR: Final = {
    _list_numbers(layout, kind, chosen): _make_pair(order, channel)
    for layout, kind, letters, order, channel in _ROWS
    for chosen in product(*letters)
}
_FIELDS: Final = "layout", "type", "x", "y", "z", "w"


def convert_to_ur(format: Any) -> tuple[int, int] | None:
    """Return the order and the type of channels in Unified Runtime for a ze_image_format_t.

    Args:
        format: the struct, of cffi or of ctypes.

    Returns:
        A ur_image_channel_order_t and a ur_image_channel_type_t, None if there are none.
    """
    return _TO_UR.get(tuple(getattr(format, name) for name in _FIELDS))


def convert_to_ze(order: int, channel: int) -> dict[str, int] | None:
    """Return the fields of the ze_image_format_t for a ur_image_format_t.

    Args:
        order: a ur_image_channel_order_t.
        channel: a ur_image_channel_type_t.

    Returns:
        The fields by their names, None if Level Zero has no such format.
    """
    found = _TO_ZE.get((order, channel))
    return dict(zip(_FIELDS, found, strict=True)) if found is not None else None


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
