"""Transfers by address of the reference adapter, in every way that the drivers can have USM."""

from __future__ import annotations

import ctypes
import threading

import pytest
from helpers.memory_calls import finish, held_back
from helpers.tables import table
from helpers.ur_calls import Calls, array
from helpers.usm_ways import Way

from fairlead.loader.ur.abi import UR

pytestmark = pytest.mark.usefixtures("begins_in")

DATA = bytes(range(256)) * 16
SIZE = len(DATA)


def test_a_blocking_copy_of_another_thread_is_complete_when_it_returns(way: Way, ur: Calls) -> None:
    """There it blocks in the driver, which not every driver ends with the call."""
    status, found = UR["UR_EVENT_INFO_COMMAND_EXECUTION_STATUS"], list[tuple[int, bytes]]()
    host, into = ctypes.create_string_buffer(DATA, SIZE), ctypes.create_string_buffer(SIZE)

    def work(queue: object, address: int) -> None:
        for size in (4, 64, SIZE):
            for target, source in ((address, host), (into, address)):
                event, answer = ctypes.c_void_p(), ctypes.c_uint32()
                ends = 0, None, ctypes.byref(event)
                ur.ok("urEnqueueUSMMemcpy", queue, True, target, source, size, *ends)
                ur.ok("urEventGetInfo", event, status, 4, answer)
                ur.ok("urEventRelease", event)
                found.append((answer.value, into.raw[:size]))
                ur.ok("urEnqueueUSMMemcpy", queue, True, target, source, size)

    for queue in way.queues():
        address = way.alloc("device", SIZE)
        thread = threading.Thread(target=work, args=(queue, address))
        thread.start()
        thread.join()
        way.free(address)
        ur.ok("urQueueRelease", queue)
        assert [status for status, _ in found] == [UR["UR_EVENT_STATUS_COMPLETE"]] * 6
        assert [seen for _, seen in found[1::2]] == [DATA[:4], DATA[:64], DATA]
        found.clear()


# fills


@table(
    "count", [1, 2, 3, 4, 5, 7, 8, 12, 16, 24, 32, 64, 100, 128, 129, 256, 1000, 4096, 6000, 70_000]
)
def test_fills_with_patterns_of_any_size(way: Way, ur: Calls, count: int) -> None:
    pattern = bytes((11 * number + count) % 253 for number in range(count))
    size, event = count * max(2, 40_000 // count), ctypes.c_void_p()
    for queue in way.queues():
        for kind in way.kinds:
            address = way.alloc(kind, size + 64)
            way.copy(address, b"\0" * (size + 64), size + 64)
            for offset in (0, 1, 32):  # 1: the address is not aligned to the pattern
                given = queue, address + offset, count, pattern, size
                ur.ok("urEnqueueUSMFill", *given, 0, None, event)
                finish(ur, event, "USM_FILL")
                found = way.content(address + offset, size + 32)
                assert found == pattern * (size // count) + b"\0" * 32
            ur.ok("urEnqueueUSMFill", queue, address, count, pattern, count)  # once, and no event
            way.free(address)
        ur.ok("urQueueRelease", queue)


@table("count", [1, 3, 4, 200])
def test_fills_of_the_program_s_own_memory(way: Way, ur: Calls, count: int) -> None:
    host, pattern = ctypes.create_string_buffer(count * 10), bytes(range(count))
    code = ur("urEnqueueUSMFill", way.queue, host, count, pattern, count * 10)
    ur.ok("urQueueFinish", way.queue)
    if way.name == "buffer":
        assert code == "INVALID_MEM_OBJECT"
    else:
        assert code == "SUCCESS" and host.raw == pattern * 10


# rows


@table(
    "target_pitch, source_pitch, width, height",
    [
        (64, 64, 64, 16),
        (64, 64, 50, 16),
        (100, 64, 64, 7),
        (64, 100, 1, 9),
        (80, 90, 70, 1),
        (33, 35, 31, 40),
    ],
)
def test_rows_are_copied(
    way: Way, ur: Calls, target_pitch: int, source_pitch: int, width: int, height: int
) -> None:
    event = ctypes.c_void_p()
    for queue in way.queues():
        for one in ("device", "program"):
            for other in ("device", "program"):
                hosts = ctypes.create_string_buffer(DATA, SIZE), ctypes.create_string_buffer(SIZE)
                source = ctypes.addressof(hosts[0]) if one == "program" else way.alloc(one, SIZE)
                target = (
                    ctypes.addressof(hosts[1]) if other == "program" else way.alloc(other, SIZE)
                )
                way.copy(source, DATA, SIZE)
                way.copy(target, b"\0" * SIZE, SIZE)
                place = (target + 20, target_pitch, source + 10, source_pitch, width, height)
                ur.ok("urEnqueueUSMMemcpy2D", queue, False, *place, 0, None, event)
                finish(ur, event, "USM_MEMCPY_2D")
                ur.ok("urEnqueueUSMMemcpy2D", queue, True, *place)
                expected = bytearray(SIZE)
                for row in range(height):
                    to, at = 20 + row * target_pitch, 10 + row * source_pitch
                    expected[to : to + width] = DATA[at : at + width]
                assert way.content(target, SIZE) == expected
                way.free(
                    *(
                        address
                        for address, kind in ((source, one), (target, other))
                        if kind != "program"
                    )
                )
        ur.ok("urQueueRelease", queue)


@table(
    "pitch, count, width, height",
    [
        (64, 4, 64, 8),
        (64, 4, 32, 8),
        (100, 1, 33, 20),
        (64, 8, 12, 4),
        (256, 256, 128, 4),
        (300, 256, 256, 3),
        (64, 2, 5, 2),
        (64, 4, 32, 1),
    ],
)
def test_rows_are_filled(
    way: Way, ur: Calls, pitch: int, count: int, width: int, height: int
) -> None:
    pattern, event = bytes((5 * number + 1) % 251 for number in range(count)), ctypes.c_void_p()
    flow = pattern * (width * height // count)
    expected = bytearray(4096)
    for row in range(height):
        expected[64 + row * pitch : 64 + row * pitch + width] = flow[
            row * width : (row + 1) * width
        ]
    for queue in way.queues():
        address = way.alloc("device", 4096)
        for wanted in (True, False):
            way.copy(address, b"\0" * 4096, 4096)
            out = ctypes.byref(event) if wanted else None
            given = queue, address + 64, pitch, count, pattern, width, height
            ur.ok("urEnqueueUSMFill2D", *given, 0, None, out)
            if wanted:
                finish(ur, event, "USM_FILL_2D")
            ur.ok("urQueueFinish", queue)
            assert way.content(address, 4096) == expected
        way.free(address)
        ur.ok("urQueueRelease", queue)


def test_rows_wait_for_events(way: Way, ur: Calls) -> None:
    for queue in way.queues():
        gate, go = held_back(ur, way.context)
        address, host = way.alloc("device", 1024), ctypes.create_string_buffer(b"h" * 1024, 1024)
        done = [ctypes.c_void_p() for _ in range(2)]
        given = queue, False, address, 64, host, 32, 16, 4, 1, array(gate), ctypes.byref(done[0])
        ur.ok("urEnqueueUSMMemcpy2D", *given)
        given = queue, address + 512, 64, 1, b"f", 16, 4, 1, array(gate), ctypes.byref(done[1])
        ur.ok("urEnqueueUSMFill2D", *given)
        for event in done:
            status = ur.number("urEventGetInfo", event, "UR_EVENT_INFO_COMMAND_EXECUTION_STATUS")
            assert status != UR["UR_EVENT_STATUS_COMPLETE"]
        assert go() == 0
        ur.ok("urEventWait", 2, array(*done))
        assert way.content(address, 16) == b"h" * 16 and way.content(address + 704, 16) == b"f" * 16
        for event in (*done, gate):
            ur.ok("urEventRelease", event)
        way.free(address)
        ur.ok("urQueueRelease", queue)


# hints


def test_hints_have_their_place_in_the_order_and_change_nothing(way: Way, ur: Calls) -> None:
    event, host = ctypes.c_void_p(), ctypes.create_string_buffer(64)
    flags = [0, *UR.groups["ur_usm_migration_flags_t"]]
    for queue in way.queues():
        for kind in way.kinds:
            address = way.alloc(kind, SIZE)
            way.copy(address, DATA, SIZE)
            for flag in flags:
                ur.ok("urEnqueueUSMPrefetch", queue, address, SIZE, flag, 0, None, event)
                finish(ur, event, "USM_PREFETCH")
                ur.ok("urEnqueueUSMPrefetch", queue, address + 128, 64, flag)
            for advice in UR.groups["ur_usm_advice_flags_t"]:
                ur.ok("urEnqueueUSMAdvise", queue, address, SIZE, advice, event)
                finish(ur, event, "USM_ADVISE")
            assert way.content(address, SIZE) == DATA
            way.free(address)
        ur.ok("urEnqueueUSMPrefetch", queue, host, 64, 0)
        ur.ok("urQueueFinish", queue)
        ur.ok("urQueueRelease", queue)


def test_libsycl_is_told_to_fill_rows_by_itself(way: Way) -> None:
    """It gives an adapter the pitch and the width in elements; the header has bytes."""
    name = "UR_CONTEXT_INFO_USM_FILL2D_SUPPORT"
    assert way.ur.number("urContextGetInfo", way.context, name) == 0
