"""Events of all adapters: waits, callbacks, queries, native handles."""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Final

from ...loader.base.errors import CodeError
from ...loader.ur.abi import UR
from .adapter import Adapter
from .conversions import failure

# void (ur_event_handle_t, ur_execution_info_t, void *data), of urEventSetCallback
_Notify: Final = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int32, ctypes.c_void_p)

_INFO: Final = {
    "UR_EVENT_INFO_COMMAND_QUEUE": lambda event: event.queue,
    "UR_EVENT_INFO_CONTEXT": lambda event: event.context,
    "UR_EVENT_INFO_COMMAND_TYPE": lambda event: event.command,
    "UR_EVENT_INFO_COMMAND_EXECUTION_STATUS": lambda event: event.status,
    "UR_EVENT_INFO_REFERENCE_COUNT": lambda event: event.references,
}


def wait_for_all(events: Sequence[Any]) -> None:
    """Wait until all events are complete. Raises the first CodeError that one raises."""
    failed: CodeError | None = None
    for event in events:
        try:
            event.wait()
        except CodeError as error:
            failed = failed or error
    if failed is not None:
        raise failed


def declare_events(
    adapter: Adapter,
    *,
    take_native: Callable[[int, Any, Any], Any],
    make_completed: Callable[[Any], Any],
    times: Mapping[str, Callable[[Any], int]],
    info: Mapping[str, Callable[[Any], Any]] = MappingProxyType({}),
    wait: Callable[[Sequence[Any]], None] = wait_for_all,
    call_at: Callable[[Any, int, Callable[[], None]], None] | None = None,
) -> None:
    """Declare waits, callbacks and queries of events, and events of native handles.

    Args:
        take_native: makes an event of a native handle, a context and properties.
        make_completed: makes an event of a context that is complete. NULL is its native handle.
        times: the answers of urEventGetProfilingInfo, by names after UR_PROFILING_INFO_COMMAND_.
        info: answers of urEventGetInfo that are not the usual ones.
        wait: waits until all events are complete.
        call_at: calls a function when an event has a ur_execution_info_t. None: a thread waits for
            the event. No driver tells when a command begins, so UR_EXECUTION_INFO_RUNNING is its
            end, too.
    """

    def call_in_thread(event: Any, status: int, call: Callable[[], None]) -> None:
        event.check_outside()

        def serve() -> None:
            try:
                if status != UR["UR_EXECUTION_INFO_SUBMITTED"]:
                    event.wait()
            except CodeError:
                pass  # the command has failed, so it has ended
            except Exception as error:
                adapter.log("error", f"the wait for an event with a callback failed: {error}")
            call()  # also after a failure: the program may wait for that call

        try:
            threading.Thread(target=serve, daemon=True).start()
        except RuntimeError:  # there can be no more threads
            raise failure("OUT_OF_RESOURCES", "no thread can be started for a callback") from None

    def set_callback(hEvent: Any, execStatus: int, pfnNotify: int, pUserData: int) -> None:
        if execStatus == UR["UR_EXECUTION_INFO_QUEUED"]:
            raise failure("UNSUPPORTED_ENUMERATION", "an event is queued from the start")
        registry = adapter.objects

        def call() -> None:
            try:
                _Notify(pfnNotify)(hEvent.handle, execStatus, pUserData)
            finally:
                registry.release(hEvent)

        registry.retain(hEvent)  # the function is given its handle
        try:
            (call_at or call_in_thread)(hEvent, execStatus, call)
        except BaseException:
            registry.release(hEvent)
            raise

    adapter.declare(
        urEventWait=lambda phEventWaitList: wait(phEventWaitList),
        urEventSetCallback=set_callback,
        urEventCreateWithNativeHandle=lambda hNativeEvent, hContext, pProperties: (
            take_native(hNativeEvent, hContext, pProperties)
            if hNativeEvent
            else make_completed(hContext)
        ),
    )
    adapter.info("urEventGetInfo", {**_INFO, **info})
    adapter.info("urEventGetProfilingInfo", times, "UR_PROFILING_INFO_COMMAND_")
