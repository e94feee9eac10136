"""What the cases of all suites call: arguments that are left out, and threads."""

from __future__ import annotations

import ctypes
import threading

import pytest

from fairlead.conformance.arrays import complete
from fairlead.conformance.threads import in_threads
from fairlead.loader.ur.abi import UR

FILL = UR.functions["urEnqueueUSMFill"]


def test_arguments_that_are_left_out_are_0_and_null() -> None:
    assert complete(FILL, (1, 2, 4, b"four", 8)) == [1, 2, 4, b"four", 8, 0, None, None]
    assert complete(FILL, (1,), 7, None, None) == [1, None, 0, None, 0, 7, None, None]
    with pytest.raises(TypeError, match="urQueueFinish has 1 arguments, and not 2"):
        complete(UR.functions["urQueueFinish"], (1, 2))


def test_what_a_pointer_leads_to_stands_for_its_address() -> None:
    pattern, event, memory = ctypes.c_int32(5), ctypes.c_void_p(), ctypes.c_void_p(64)
    given = complete(FILL, (1, memory, 4, pattern, 8, 0, None, event))
    assert [one._obj for one in (given[3], given[7])] == [pattern, event]
    assert given[1] is memory  # it is the pointer
    region = UR.get_struct("ur_buffer_region_t")()
    assert complete(UR.functions["urMemBufferPartition"], (1, 0, 0, region))[3]._obj is region


def test_threads_begin_together_and_an_error_of_one_is_raised() -> None:
    meeting = threading.Barrier(4, timeout=60)

    def work(number: int) -> int:
        meeting.wait()
        assert number != 2, "the third"
        return number

    with pytest.raises(AssertionError, match="the third"):
        in_threads(4, work)
    assert in_threads(3, lambda number: 2 * number) == [0, 2, 4]
