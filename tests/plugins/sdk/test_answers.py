"""Answers to queries: the bytes that a Python value becomes, for every property of every query."""

from __future__ import annotations

import struct
from typing import Any

import pytest
from helpers.entry_points import FUNCTIONS, TABLE, is_query, make
from helpers.tables import table
from hypothesis import given
from hypothesis import strategies as st

from fairlead.loader.ur.abi import UR
from fairlead.plugins.sdk.answers import is_handle, list_encoders, make_encoder
from fairlead.plugins.sdk.objects import Object, Registry

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
