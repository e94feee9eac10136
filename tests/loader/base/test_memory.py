"""Careful reads: an address that leads nowhere is an answer, never a crash."""

from __future__ import annotations

import ctypes
import mmap
import os
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairlead.loader.base.memory import POINTER_SIZE, read, read_text, read_word, read_words

NOWHERE = 0x123456789000
PAGE = mmap.PAGESIZE


@pytest.fixture
def end_of_memory() -> Iterator[int]:
    """The address where a readable page ends and one that nobody may read begins."""
    libc = ctypes.CDLL(None, use_errno=True)
    pages = mmap.mmap(-1, 2 * PAGE)
    start = ctypes.addressof(ctypes.c_char.from_buffer(pages))
    libc.mprotect.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
    assert libc.mprotect(start + PAGE, PAGE, 0) == 0
    yield start + PAGE
    assert libc.mprotect(start + PAGE, PAGE, mmap.PROT_READ | mmap.PROT_WRITE) == 0


@given(st.binary(max_size=256))
def test_what_is_there_is_read(content: bytes) -> None:
    buffer = ctypes.create_string_buffer(content, len(content) + 1)
    assert read(ctypes.addressof(buffer), len(content)) == content


@pytest.mark.parametrize("address", [0, 1, NOWHERE, 2**47, 2**63, 2**64 - 8])
def test_addresses_that_lead_nowhere(address: int) -> None:
    assert read(address, 8) == b"" and read_word(address) is None
    assert read_words(address, 3) == [None] * 3
    assert read_text(address) == b""


def test_more_than_one_read_can_give_is_not_given_in_part() -> None:
    buffer = ctypes.create_string_buffer(300)
    assert read(ctypes.addressof(buffer), 257) == b""


def test_reading_across_the_end_of_memory(end_of_memory: int) -> None:
    assert read(end_of_memory - 8, 8) == bytes(8)
    assert read(end_of_memory - 8, 9) == b"", "all or nothing"


@pytest.mark.parametrize("there", [0, 1, 31, 32, 33, 100])
def test_words_are_read_up_to_the_end_of_memory(end_of_memory: int, there: int) -> None:
    start = end_of_memory - there * POINTER_SIZE
    for number in range(there):
        ctypes.c_void_p.from_address(start + number * POINTER_SIZE).value = number + 1
    assert read_words(start, there + 40) == [*range(1, there + 1), *[None] * 40]


def test_a_text_ends_with_its_nul_its_limit_or_memory(end_of_memory: int) -> None:
    ctypes.memmove(end_of_memory - 4, b"text", 4)
    assert read_text(end_of_memory - 4) == b"text"
    assert read_text(end_of_memory - 4, limit=2) == b"te"
    ctypes.memmove(end_of_memory - 4, b"ab\0d", 4)
    assert read_text(end_of_memory - 4) == b"ab"


def test_a_child_of_fork_reads_its_own_memory() -> None:
    """The pipe that the reads go through must not be shared with the parent."""
    assert read_word(NOWHERE) is None
    value = ctypes.c_uint64(1)
    child = os.fork()
    if child == 0:
        value.value = 2
        os._exit(0 if all(read_word(ctypes.addressof(value)) == 2 for _ in range(200)) else 1)
    ours = all(read_word(ctypes.addressof(value)) == 1 for _ in range(200))
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0 and ours
