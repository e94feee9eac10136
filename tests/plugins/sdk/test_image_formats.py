"""The table of formats of images: Level Zero's and Unified Runtime's."""

from __future__ import annotations

from math import prod

import pytest

from fairlead.loader.ur.abi import UR
from fairlead.loader.ze.abi import ZE
from fairlead.plugins.sdk.ze import image_formats
from fairlead.plugins.sdk.ze.image_formats import convert_to_ur, convert_to_ze


def make(layout: str, kind: str, swizzle: str) -> tuple[str, str] | None:
    """Return the ends of the names of a format in Unified Runtime."""
    channels = (ZE[f"ZE_IMAGE_FORMAT_SWIZZLE_{letter}"] for letter in swizzle)
    numbers = ZE[f"ZE_IMAGE_FORMAT_LAYOUT_{layout}"], ZE[f"ZE_IMAGE_FORMAT_TYPE_{kind}"], *channels
    found = convert_to_ur(ZE.get_struct("ze_image_format_t")(*numbers))
    if found is None:
        return None
    order = UR.groups["ur_image_channel_order_t"][found[0]]
    channel = UR.groups["ur_image_channel_type_t"][found[1]]
    return order.removeprefix("UR_IMAGE_CHANNEL_ORDER_"), channel.removeprefix(
        "UR_IMAGE_CHANNEL_TYPE_"
    )


def test_no_format_has_two_meanings() -> None:
    rows = image_formats._ROWS
    assert len(image_formats._TO_UR) == sum(prod(map(len, letters)) for _, _, letters, *_ in rows)
    assert len(image_formats._TO_ZE) == len(rows)


def test_there_and_back() -> None:
    for pair, numbers in image_formats._TO_ZE.items():
        fields = convert_to_ze(*pair)
        assert fields is not None
        assert tuple(fields.values()) == numbers
        assert convert_to_ur(ZE.get_struct("ze_image_format_t")(**fields)) == pair


@pytest.mark.parametrize(
    ("layout", "kind", "swizzle", "expected"),
    [
        ("8_8_8_8", "UNORM", "RGBA", ("RGBA", "UNORM_INT8")),
        ("8_8_8_8", "UNORM", "BGRA", ("BGRA", "UNORM_INT8")),
        ("16_16_16_16", "FLOAT", "RGBA", ("RGBA", "HALF_FLOAT")),
        ("32", "UINT", "R001", ("R", "UNSIGNED_INT32")),
        ("32", "UINT", "RGBA", ("R", "UNSIGNED_INT32")),
        ("16_16", "SINT", "RG01", ("RG", "SIGNED_INT16")),
        ("8", "UNORM", "RRRR", ("INTENSITY", "UNORM_INT8")),
        ("8", "UNORM", "RRR1", ("LUMINANCE", "UNORM_INT8")),
        ("8", "UNORM", "000R", ("A", "UNORM_INT8")),
        ("5_6_5", "UNORM", "RGB1", ("RGB", "UNORM_SHORT_565")),
        ("5_5_5_1", "UNORM", "RGBX", ("RGBX", "UNORM_SHORT_555")),
        ("5_5_5_1", "UNORM", "RGBA", None),
        ("10_10_10_2", "UNORM", "RGBA", None),
        ("32", "UNORM", "R001", None),
        ("8_8_8_8", "UNORM", "GRBA", None),
        ("NV12", "UNORM", "RGBA", None),
    ],
)
def test_formats(layout: str, kind: str, swizzle: str, expected: tuple[str, str] | None) -> None:
    assert make(layout, kind, swizzle) == expected


def test_what_level_zero_lacks() -> None:
    srgb = UR["UR_IMAGE_CHANNEL_ORDER_SRGBA"]
    assert convert_to_ze(srgb, UR["UR_IMAGE_CHANNEL_TYPE_UNORM_INT8"]) is None
