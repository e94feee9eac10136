"""What adapters share, where something of a driver or of the program fails in between."""

from __future__ import annotations

import ctypes
import threading
from types import SimpleNamespace
from typing import Any

import pytest
from helpers.entry_points import TABLE

from fairlead.loader.ur.abi import UR
from fairlead.plugins import Adapter, Object
from fairlead.plugins.sdk._native import ffi
from fairlead.plugins.sdk.command_buffers import RecordingLock
from fairlead.plugins.sdk.event_callbacks import call_at_status
from fairlead.plugins.sdk.pools import USMPool


class Event(Object):
    """An event."""

    type = "ur_event_handle_t"


def test_the_callback_of_an_event_is_called_if_the_wait_fails() -> None:
    adapter, called = Adapter("toy"), list[tuple[Any, ...]]()
    adapter.kind(Event)
    adapter.entries(TABLE)
    event, before = Event(), set(threading.enumerate())
    notify = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int32, ctypes.c_void_p)(
        lambda *arguments: called.append(arguments)
    )

    def wait() -> None:
        raise RuntimeError("the device is lost")

    status = UR["UR_EXECUTION_INFO_COMPLETE"]
    address = ctypes.cast(notify, ctypes.c_void_p).value or 0
    call_at_status(adapter, event, status, address, 7, wait)
    for thread in set(threading.enumerate()) - before:
        thread.join()
    assert [one[1:] for one in called] == [(status, 7)]
    assert event.handle == 0  # the thread's reference is gone


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

        def learn(self) -> None:
            if self.fails:
                raise MemoryError

    buffer, struct, entered = Buffer(), ffi.new("fl_launches *"), threading.Event()
    lock = RecordingLock(struct, buffer.learn)
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
