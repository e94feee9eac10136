"""Callbacks of events, where a driver has none: a thread waits for the event."""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Callable
from typing import Final

from ...loader.ur.abi import UR
from .adapter import Adapter
from .conversions import failure
from .objects import Object

_Notify: Final = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int32, ctypes.c_void_p)


def call_at_status(
    adapter: Adapter,
    event: Object,
    status: int,
    notify: int,
    data: int,
    wait: Callable[[], object],
) -> None:
    """Call a function of the program, in a thread of its own, when an event has a status.

    The function is also called if the wait fails: the program may wait for that call.

    Args:
        adapter: whose event it is.
        event: the event, which lives until the function has returned.
        status: a ur_execution_info_t, which the function gets. No driver tells when a command
            begins, so UR_EXECUTION_INFO_RUNNING is its end, too.
        notify: the function's address.
        data: what the function gets last.
        wait: waits until the event is complete.

    Raises:
        URError: UNSUPPORTED_ENUMERATION for UR_EXECUTION_INFO_QUEUED, OUT_OF_RESOURCES without a
            thread.
    """
    if status == UR["UR_EXECUTION_INFO_QUEUED"]:
        raise failure("UNSUPPORTED_ENUMERATION", "an event is queued from the start")
    registry = adapter.registry
    assert registry is not None

    def serve() -> None:
        try:
            if status != UR["UR_EXECUTION_INFO_SUBMITTED"]:
                wait()
        except Exception as error:
            adapter.log("error", f"the wait for an event with a callback failed: {error}")
        try:
            _Notify(notify)(event.handle, status, data)
        finally:
            registry.release(event)

    registry.retain(event)
    try:
        threading.Thread(target=serve, daemon=True).start()
    except RuntimeError:  # there can be no more threads
        registry.release(event)
        raise failure("OUT_OF_RESOURCES", "no thread can be started for a callback") from None
