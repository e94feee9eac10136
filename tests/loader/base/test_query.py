"""Asking for a length and then for the value: a plugin's own lengths are not trusted."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairlead.loader.base.errors import FairleadError
from fairlead.loader.base.query import decode_text, query, query_handles
from fairlead.loader.ur.abi import URError, check


def info(value: bytes, says: int | None = None, code: int = 0) -> Callable[..., int]:
    """Return a …GetInfo function with a value; `says` is the wrong size that it reports."""

    def call(size: int, into: Any, size_ret: Any) -> int:
        if size_ret is not None:
            ctypes.cast(size_ret, ctypes.POINTER(ctypes.c_size_t))[0] = (
                len(value) if says is None else says
            )
        if into is not None:
            ctypes.memmove(into, value, min(size, len(value)))
        return code

    return call


def listing(given: list[int], says: int | None = None, code: int = 0) -> Callable[..., int]:
    def call(room: int, into: Any, count: Any) -> int:
        if count is not None:
            ctypes.cast(count, ctypes.POINTER(ctypes.c_uint32))[0] = (
                len(given) if says is None else says
            )
        if into is not None:
            for index, handle in enumerate(given[:room]):
                into[index] = handle
        return code

    return call


@given(st.binary(max_size=200))
def test_a_value_comes_as_it_is(value: bytes) -> None:
    assert query(info(value), "urX", check) == value


@given(st.lists(st.integers(0, 2**63), max_size=20), st.integers(0, 10))
def test_handles_come_in_order_and_null_is_left_out(given_handles: list[int], more: int) -> None:
    said = len(given_handles) + more
    assert query_handles(listing(given_handles, said), "urX", check) == [
        handle for handle in given_handles if handle
    ]


@pytest.mark.parametrize("says", [2**64 - 1, 2**63, (1 << 24) + 1])
def test_a_size_that_cannot_be(says: int) -> None:
    with pytest.raises(
        FairleadError, match=f"urX: it reports an answer of {says} bytes, which is impossible"
    ):
        query(info(b"", says), "urX", check)


@pytest.mark.parametrize("says", [2**32 - 1, (1 << 16) + 1])
def test_a_number_of_handles_that_cannot_be(says: int) -> None:
    with pytest.raises(FairleadError, match=f"urX: it reports {says} handles, which is impossible"):
        query_handles(listing([], says), "urX", check)


def test_an_error_names_the_function_and_what_was_asked() -> None:
    with pytest.raises(
        URError, match=r"(?s)urX \[UR_RESULT_ERROR_INVALID_VALUE\]: .* \(UR_SOME_INFO\)"
    ):
        query(info(b"", code=4), "urX", check, detail="(UR_SOME_INFO)")
    with pytest.raises(URError) as caught:
        query_handles(listing([], code=4), "urX", check)
    assert caught.value.routine == "urX" and caught.value.value == 4


@pytest.mark.parametrize(
    ("value", "wanted"),
    [
        (b"", ""),
        (b"name\0", "name"),
        (b" name \0rest", "name"),
        (b"no end", "no end"),
        (b"\xff\xfe\0", "\ufffd\ufffd"),
    ],
)
def test_a_text_ends_with_its_nul(value: bytes, wanted: str) -> None:
    assert decode_text(value) == wanted
