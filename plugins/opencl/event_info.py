"""Queries of events, and events of native handles."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, Final

from ...icd.abi import OPENCL
from ...loader.ur.abi import UR
from ..sdk.events import declare_events
from .contexts import URContext, check_native
from .core import adapter, query_number, retain_unless_owned
from .events import UREvent, call_on_status, create_completed_event, wait_for_usable
from .queues import URQueue, get_queue

_TYPES: Final = {
    OPENCL[f"CL_COMMAND_{opencl}"]: UR[f"UR_COMMAND_{name}"]
    for opencl, name in {
        "NDRANGE_KERNEL": "KERNEL_LAUNCH",
        "TASK": "KERNEL_LAUNCH",
        "READ_BUFFER": "MEM_BUFFER_READ",
        "WRITE_BUFFER": "MEM_BUFFER_WRITE",
        "COPY_BUFFER": "MEM_BUFFER_COPY",
        "FILL_BUFFER": "MEM_BUFFER_FILL",
        "READ_BUFFER_RECT": "MEM_BUFFER_READ_RECT",
        "WRITE_BUFFER_RECT": "MEM_BUFFER_WRITE_RECT",
        "COPY_BUFFER_RECT": "MEM_BUFFER_COPY_RECT",
        "MAP_BUFFER": "MEM_BUFFER_MAP",
        "UNMAP_MEM_OBJECT": "MEM_UNMAP",
        "MARKER": "EVENTS_WAIT",
        "BARRIER": "EVENTS_WAIT_WITH_BARRIER",
        "SVM_MEMCPY": "USM_MEMCPY",
        "SVM_MEMFILL": "USM_FILL",
    }.items()
}


def _get_queue(event: UREvent) -> URQueue | None:
    """Return the queue of an event, None for a user event.

    The queue of a native event is looked up at the first query.
    """
    if event.queue is None and event.cl:
        native = event.query_number("CL_EVENT_COMMAND_QUEUE")
        event.queue = get_queue(native, event.context) if native else None
    return event.queue


def _query_status(event: UREvent) -> int:
    status = event.status
    return status if status >= 0 else UR["UR_EVENT_STATUS_ERROR"]


#: The times of a command, and those of a time stamp. Its times are that of the call and that at
#: which the device recorded it.
_PROFILING: Final = {
    "QUEUED": ("CL_PROFILING_COMMAND_QUEUED",) * 2,
    "SUBMIT": ("CL_PROFILING_COMMAND_SUBMIT", "CL_PROFILING_COMMAND_QUEUED"),
    "START": ("CL_PROFILING_COMMAND_START", "CL_PROFILING_COMMAND_END"),
    "END": ("CL_PROFILING_COMMAND_END",) * 2,
    "COMPLETE": ("CL_PROFILING_COMMAND_END",) * 2,
}


def _make_profiling_query(of_command: str, of_time_stamp: str) -> Any:
    def answer(event: UREvent) -> int:
        name = of_time_stamp if event.is_time_stamp else of_command
        begins = name != "CL_PROFILING_COMMAND_END"
        asked = event.first if event.first is not None and begins else event.get_current()
        ask = partial(query_number, asked.table, "clGetEventProfilingInfo", asked.cl)
        # A driver may have no time of the call for a marker.
        return ask(name) or ask("CL_PROFILING_COMMAND_SUBMIT")

    return answer


def _take_native(native: int, context: URContext, properties: Any) -> UREvent:
    check_native(native, context, "clGetEventInfo", "CL_EVENT_CONTEXT")
    retain_unless_owned(UREvent, native, context.table, properties)
    made = UREvent(native, context)
    made.command = _TYPES.get(made.query_number("CL_EVENT_COMMAND_TYPE"), 0)
    return made


def _call_at(event: UREvent, status: int, call: Callable[[], None]) -> None:
    present = event.get_current()
    call_on_status(present.cl, present.table, status, lambda found: call())


declare_events(
    adapter,
    take_native=_take_native,
    make_completed=lambda context: UREvent(create_completed_event(context), context),
    times={name: _make_profiling_query(*names) for name, names in _PROFILING.items()},
    info={
        "UR_EVENT_INFO_COMMAND_QUEUE": _get_queue,
        "UR_EVENT_INFO_COMMAND_EXECUTION_STATUS": _query_status,
    },
    wait=wait_for_usable,
    call_at=_call_at,
)
