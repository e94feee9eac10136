"""Answers to queries: the bytes that a Python value becomes, for every property of every query.

The table of formats of images: Level Zero's and Unified Runtime's.
"""

from __future__ import annotations

import struct
from math import prod
from typing import Any

import pytest
from helpers.entry_points import FUNCTIONS, TABLE, is_query, make
from helpers.tables import table
from hypothesis import given
from hypothesis import strategies as st

from fairlead.loader.ur.abi import UR
from fairlead.loader.ze.abi import ZE
from fairlead.plugins.sdk.answers import is_handle, list_encoders, make_encoder
from fairlead.plugins.sdk.objects import Object, Registry
from fairlead.plugins.sdk.ze import image_formats
from fairlead.plugins.sdk.ze.image_formats import convert_to_ur, convert_to_ze

GROUPS = sorted(
    {
        p.type
        for f in FUNCTIONS.values()
        if is_query(f)
        for p in f.parameters
        if p.name == "propName"
    }
)


def no_object(thing: Object) -> int:
    raise AssertionError("no handle was given")


def encode(answer: str, value: Any) -> bytes:
    return make_encoder(answer)(value, no_object)


@table(
    "answer, value, expected",
    [
        ("char[]", "näme", "näme".encode() + b"\0"),
        ("char[]", "", b"\0"),
        ("char[]", b"as it is", b"as it is"),
        ("ur_bool_t", True, b"\1"),
        ("ur_bool_t", 0, b"\0"),
        ("uint32_t", 0xFFFFFFFF, b"\xff" * 4),
        ("int32_t", -1, b"\xff" * 4),
        ("int", -2, struct.pack("i", -2)),
        ("uint64_t", 1 << 63, struct.pack("Q", 1 << 63)),
        ("size_t", 5, struct.pack("N", 5)),
        ("ur_device_type_t", 4, struct.pack("I", 4)),
        ("ur_queue_flags_t", 3, struct.pack("I", 3)),
        ("size_t[]", (1, 2, 3), struct.pack("3N", 1, 2, 3)),
        ("size_t[]", [], b""),
        ("size_t[]", iter(()), None),
        ("uint8_t[]", range(16), bytes(range(16))),
        ("uint8_t[]", bytes(16), bytes(16)),
        ("uint32_t", b"1234", b"1234"),
        ("void *", 0x1234, struct.pack("P", 0x1234)),
        ("void *[]", [1, 2], struct.pack("2P", 1, 2)),
        ("unsigned char *[]", [b"one", b"two"], bytes(16)),
        ("ur_context_handle_t", 0, bytes(8)),
        ("ur_image_format_t", b"12345678", b"12345678"),
        ("", b"anything", b"anything"),
    ],
)
def test_a_value_becomes_bytes(answer: str, value: Any, expected: bytes | None) -> None:
    if expected is None:  # there is no telling how long it is
        with pytest.raises(TypeError):
            encode(answer, value)
    else:
        assert encode(answer, value) == expected


@pytest.mark.parametrize(
    ("answer", "value"),
    [("uint32_t", -1), ("ur_bool_t", 256), ("size_t", "5"), ("", 5.0), ("size_t[]", [-1])],
)
def test_a_value_that_does_not_fit_is_an_error(answer: str, value: Any) -> None:
    with pytest.raises((struct.error, TypeError, OverflowError)):
        encode(answer, value)


def test_objects_become_handles() -> None:
    registry = Registry(TABLE)
    things = [make("ur_device_handle_t") for _ in range(2)]
    assert make_encoder("ur_device_handle_t")(things[0], registry.show) == struct.pack(
        "P", things[0].handle
    )
    assert make_encoder("ur_device_handle_t[]")(things, registry.show) == struct.pack(
        "2P", *(thing.handle for thing in things)
    )
    assert [thing.references for thing in things] == [0, 0]


def test_what_is_a_handle() -> None:
    assert is_handle("ur_context_handle_t")
    assert not any(
        map(is_handle, ("ur_context_handle_t[]", "size_t", "", "char[]", "ur_native_handle_t"))
    )


@table("group", GROUPS)
def test_every_property_of_every_query_has_an_encoder(group: str) -> None:
    assert list(list_encoders(group)) == list(UR.groups[group])
    for value, name in UR.groups[group].items():
        answer = UR.constants[name].answer
        assert list_encoders(group)[value] is make_encoder(answer)


@given(st.text(st.characters(blacklist_categories=["Cs"], blacklist_characters="\0")))
def test_texts_come_back(text: str) -> None:
    assert encode("char[]", text).decode() == f"{text}\0"


@given(st.lists(st.integers(0, (1 << 64) - 1)))
def test_arrays_come_back(numbers: list[int]) -> None:
    assert struct.unpack(f"{len(numbers)}N", encode("size_t[]", numbers)) == tuple(numbers)


def find_format(layout: str, kind: str, swizzle: str) -> tuple[str, str] | None:
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
    assert find_format(layout, kind, swizzle) == expected


def test_what_level_zero_lacks() -> None:
    srgb = UR["UR_IMAGE_CHANNEL_ORDER_SRGBA"]
    assert convert_to_ze(srgb, UR["UR_IMAGE_CHANNEL_TYPE_UNORM_INT8"]) is None
