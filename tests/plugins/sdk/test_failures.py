"""What adapters share, where something of a driver or of the program fails in between."""

from __future__ import annotations

import ctypes
import threading
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import pytest
from helpers.entry_points import TABLE

from fairlead.loader.ur.abi import UR
from fairlead.plugins import Adapter, Object, failure
from fairlead.plugins.sdk._native import ffi
from fairlead.plugins.sdk.command_buffers import RecordingLock
from fairlead.plugins.sdk.conversions import find_code
from fairlead.plugins.sdk.events import declare_events
from fairlead.plugins.sdk.pools import USMPool
from fairlead.plugins.sdk.wrap import Entries


class Event(Object):
    """An event whose command has failed, or whose device is lost."""

    type = "ur_event_handle_t"

    def __init__(self, error: Exception) -> None:
        self.error, self.waits = error, 0

    def check_outside(self) -> None:
        """Captures do not matter here."""

    def wait(self) -> None:
        self.waits += 1
        raise self.error


def declare(adapter: Adapter) -> Entries:
    """Declare the entry points of events."""
    adapter.kind(Event)
    declare_events(adapter, take_native=Mock(), make_completed=Mock(), times={})
    return adapter.entries(TABLE)


@pytest.mark.parametrize("error", [RuntimeError("the device is lost"), failure("DEVICE_LOST")])
def test_the_callback_of_an_event_is_called_if_the_wait_fails(error: Exception) -> None:
    adapter, called = Adapter("toy"), list[tuple[Any, ...]]()
    entries, event, before = declare(adapter), Event(error), set(threading.enumerate())
    notify = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int32, ctypes.c_void_p)(
        lambda *arguments: called.append(arguments)
    )
    status = UR["UR_EXECUTION_INFO_COMPLETE"]
    address = ctypes.cast(notify, ctypes.c_void_p).value or 0
    handle = adapter.objects.give(event)
    assert entries["urEventSetCallback"](0, handle, status, address, 7) == 0
    assert entries["urEventRelease"](0, handle) == 0
    for thread in set(threading.enumerate()) - before:
        thread.join()
    assert called == [(handle, status, 7)]
    assert event.handle == 0  # the thread's reference is gone


def test_a_wait_ends_with_the_last_event_and_answers_the_first_failure() -> None:
    adapter = Adapter("toy")
    entries = declare(adapter)
    events = [Event(failure("DEVICE_LOST")), Event(failure("OUT_OF_RESOURCES"))]
    handles = ffi.new("uintptr_t[]", list(map(adapter.objects.give, events)))
    assert entries["urEventWait"](0, 2, handles) == find_code("DEVICE_LOST")
    assert [event.waits for event in events] == [1, 1]


class Pool(USMPool):
    """A pool of numbers, which cannot be filled with zeros."""

    def __init__(self, flags: int) -> None:
        self.kept_context = SimpleContext()
        super().__init__(self.kept_context, None, flags)
        self.freed: list[Any] = []

    def zero(self, allocation: Any, request: Any) -> None:
        raise RuntimeError("the device is lost")

    def free(self, allocation: Any) -> None:
        self.freed.append(allocation)


class SimpleContext:
    """A context that can be referred to weakly."""


def make_request(pool: Pool, size: int = 64) -> Any:
    return SimpleNamespace(
        context=pool.kept_context, kind="device", device=None, size=size, align=0
    )


def test_memory_that_cannot_be_filled_with_zeros_is_given_back() -> None:
    pool = Pool(UR["UR_USM_POOL_FLAG_ZERO_INITIALIZE_BLOCK"])
    made = SimpleNamespace(size=64)
    with pytest.raises(RuntimeError):
        pool.take(make_request(pool), lambda: made)
    assert pool.freed == [made]
    assert (pool.used, pool.reserved) == (0, 0)


def test_a_command_buffer_is_free_again_if_python_cannot_learn_what_c_did() -> None:
    class Buffer:
        fails = True

        def update_from_c(self) -> None:
            if self.fails:
                raise MemoryError

    buffer, struct, entered = Buffer(), ffi.new("fl_launches *"), threading.Event()
    lock = RecordingLock(struct, buffer.update_from_c)
    with pytest.raises(MemoryError), lock:
        pass
    assert struct.lock == 0

    def enter() -> None:
        with lock:
            entered.set()

    buffer.fails = False
    thread = threading.Thread(target=enter)
    thread.start()
    thread.join()
    assert entered.is_set()
