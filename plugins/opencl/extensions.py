"""Functions of a driver that have no slot in its dispatch table, and how several commands become one for the caller."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from functools import cache
from typing import Any

from ...icd.abi import OPENCL
from ...loader.ur.abi import UR
from .core import check, failure
from .events import UREvent
from .platforms import URPlatform
from .queues import URQueue

#: A command to enqueue: the function, and its arguments between the queue and the wait list.
Call = tuple[str, tuple[Any, ...]]


@cache
def extension(platform: URPlatform, name: str) -> Any:
    """An extension function of icd/opencl.abi. Raises URError (UNSUPPORTED_FEATURE) if the platform has none of that name."""
    address = platform.icd.extension_function(name)
    if not address:
        raise failure("UNSUPPORTED_FEATURE", f"the driver has no {name}")
    return OPENCL.functions[name].prototype(address)


def enqueue(
    queue: URQueue,
    routine: str,
    command: str,
    arguments: tuple[Any, ...],
    waits: Sequence[UREvent],
    wanted: bool,
) -> UREvent | None:
    """`URQueue.enqueue`, for extension functions as well."""
    function = OPENCL.functions.get(routine)
    if function is not None and function.slot is not None:
        return queue.enqueue(routine, command, arguments, waits, wanted)
    return enqueue_by(
        extension(queue.context.platform, routine),
        queue,
        routine,
        command,
        arguments,
        waits,
        wanted,
    )


def enqueue_by(
    function: Any,
    queue: URQueue,
    routine: str,
    command: str,
    arguments: tuple[Any, ...],
    waits: Sequence[UREvent],
    wanted: bool,
) -> UREvent | None:
    """`URQueue.enqueue` by a function that is no slot of the queue's table."""
    made = ctypes.c_void_p()
    check(
        function(
            queue.cl, *arguments, *queue.wait_list(waits), ctypes.byref(made) if wanted else None
        ),
        routine,
    )
    queue.enqueued += 1
    return (
        UREvent(made.value or 0, queue.context, queue, UR[f"UR_COMMAND_{command}"])
        if wanted
        else None
    )


def enqueue_in_sequence(
    queue: URQueue, calls: Sequence[Call], command: str, waits: Sequence[UREvent], wanted: bool
) -> UREvent | None:
    """Enqueue commands, each of which comes after the one before. The event is the last one's, and its times are those of
    them all.
    """
    if len(calls) == 1:
        return enqueue(queue, *_named(calls[0], command), waits, wanted)
    first = event = None
    before = waits
    for index, call in enumerate(calls):
        last = index == len(calls) - 1
        needed = wanted if last else not queue.in_order or (wanted and index == 0)
        event = enqueue(queue, *_named(call, command), before, needed)
        first = first or event
        before = () if queue.in_order or event is None else (event,)
    if event is not None and wanted:
        event.first = first
    return event


def enqueue_unordered(
    queue: URQueue, calls: Sequence[Call], command: str, waits: Sequence[UREvent], wanted: bool
) -> UREvent | None:
    """Enqueue commands that may run in any order. The event is complete when all of them are: the last command waits for the
    others, since not every driver gives a marker its time."""
    if queue.in_order or len(calls) == 1:
        return enqueue_in_sequence(queue, calls, command, waits, wanted)
    events = [enqueue(queue, *_named(call, command), waits, wanted) for call in calls[:-1]]
    event = enqueue(
        queue,
        *_named(calls[-1], command),
        [*waits, *(event for event in events if event is not None)],
        wanted,
    )
    if event is not None:
        event.first = events[0]
    return event


def _named(call: Call, command: str) -> tuple[str, str, tuple[Any, ...]]:
    routine, arguments = call
    return routine, command, arguments


def enqueue_marker(
    queue: URQueue, command: str, waits: Sequence[UREvent], wanted: bool
) -> UREvent | None:
    """A command that does nothing: it has its place in the order, and an event."""
    return queue.enqueue("clEnqueueMarkerWithWaitList", command, (), waits, wanted)


def wait_if_blocking(event: UREvent | None, blocking: bool) -> UREvent | None:
    """The event, of a command that is complete if it is a `blocking` one. Raises OpenCLError if it has failed."""
    if blocking and event is not None:
        event.wait()
    return event
