"""Variables that are set for a while: getenv sees them, and what its readers hold does not
change."""

from __future__ import annotations

import ctypes
import os

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairlead.loader.base.environment import add_variables

LIBC = ctypes.CDLL(None)
LIBC.getenv.restype = ctypes.c_char_p


def seen(name: str) -> bytes | None:
    return LIBC.getenv(name.encode())


def strings() -> tuple[int, list[bytes]]:
    """The environment's array, and what it holds."""
    address = ctypes.c_void_p.in_dll(LIBC, "environ").value or 0
    return address, held(address)


def held(address: int) -> list[bytes]:
    found: list[bytes] = []
    while (text := ctypes.c_char_p.from_address(address + 8 * len(found)).value) is not None:
        found.append(text)
    return found


@given(
    st.dictionaries(
        st.sampled_from(["FL_TEST_A", "FL_TEST_B", "HOME"]), st.text("ab/=", max_size=3)
    )
)
def test_they_are_seen_inside_and_as_before_afterwards(added: dict[str, str]) -> None:
    before, python = strings(), dict(os.environ)
    with pytest.raises(ZeroDivisionError), add_variables(added):
        for name, value in added.items():
            assert seen(name) == value.encode()
        names = [text.partition(b"=")[0] for text in strings()[1]]
        assert len(names) == len(set(names))
        assert dict(os.environ) == python
        raise ZeroDivisionError
    assert strings() == before and dict(os.environ) == python


def test_what_a_thread_reads_at_that_time_is_not_changed() -> None:
    """A thread in getenv has the old array, or the new one; neither is written to nor freed."""
    array, content = strings()
    with add_variables({"HOME": "/elsewhere", "FL_TEST_A": "1"}):
        inside, inner = strings()
        assert inside != array and held(array) == content
    assert held(inside) == inner and held(array) == content


def test_a_variable_that_is_set_meanwhile_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    home = seen("HOME")
    with add_variables({"HOME": "/elsewhere", "FL_TEST_A": "1"}):
        monkeypatch.setenv("FL_TEST_B", "2")  # which calls setenv
        assert seen("FL_TEST_A") == b"1"
    assert (seen("FL_TEST_A"), seen("FL_TEST_B"), seen("HOME")) == (None, b"2", home)


def test_blocks_within_blocks() -> None:
    with add_variables({"FL_TEST_A": "1"}):
        with add_variables({"FL_TEST_A": "2"}):
            assert seen("FL_TEST_A") == b"2"
        assert seen("FL_TEST_A") == b"1"
    assert seen("FL_TEST_A") is None
