"""The arguments of a replay: each is checked, and becomes what C takes."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Final

from numpy import integer

from ..icd.abi import (
    CL_EXEC_STATUS_ERROR_FOR_EVENTS_IN_WAIT_LIST,
    CL_INVALID_COMMAND_QUEUE,
    CL_INVALID_CONTEXT,
)
from ..icd.calls import query_status
from ..icd.command_buffer.edits import MEMORY
from ..icd.errors import error
from ..loader.base.search import filter_environ
from . import pyopencl_client as _client
from .argument_objects import check_context
from .parameter import find_entry

#: What asks for fusion, and what does not.
_FUSE: Final[dict[Any, str | bool]] = {
    False: False,
    "0": False,
    "": "auto",  # nobody says anything
    "auto": "auto",
    "wait": "wait",
    "check": "check",
}

if TYPE_CHECKING:
    from .block import CapturedBlock


def check_queue(queue: Any, block: CapturedBlock, routine: str) -> int:
    """Return the handle of a queue that a graph can run on.

    A forked child is refused, because it lacks the drivers' threads.

    Args:
        queue: what `replay` was given.
        routine: the function that an error names.

    Raises:
        OpenCLError: it is of another context, or of a device that was not captured.
    """
    block.check_process(routine)
    handle = _client.get_handle(queue, "CommandQueue", routine)
    if _client.get_context(queue, routine) != block.recording.context:
        remedy = "replay on a queue of that context"
        raise error(CL_INVALID_COMMAND_QUEUE, routine, "It is not of the graph's context.", remedy)
    if queue.device.int_ptr not in block.devices:
        remedy = "replay on a queue of a captured device"
        raise error(
            CL_INVALID_COMMAND_QUEUE,
            routine,
            f"No command was captured for {queue.device.name}.",
            remedy,
        )
    return handle


def read_fuse(fuse: Any) -> str | bool:
    """Return what `finalize(fuse=)` or FAIRLEAD_FUSE says: False, "auto", "wait" or "check".

    Raises:
        ArgumentError: it has another value.
    """
    name = "fuse" if fuse is not None else "FAIRLEAD_FUSE"
    given = fuse if fuse is not None else filter_environ().get(name, "").lower()
    if given not in _FUSE:
        raise _client.ArgumentError(
            f"{name} is {given!r}.",
            routine="finalize",
            remedy='False (the variable: 0), "auto", "wait" or "check"',
        )
    return _FUSE[given]


def read_times(times: Any) -> int:
    """Return a number of replays, which may be one of NumPy's. Raise ArgumentError if it is
    none."""
    number = int(times) if isinstance(times, (int, integer)) and times is not True else 0
    if not 1 <= number < 1 << 32:
        raise _client.ArgumentError(
            "times must be a whole number from 1 to 4294967295.",
            routine="replay",
            remedy="replay(queue, times=1)",
        )
    return number


def list_waits(wait_for: Iterable[Any] | None, context: int) -> list[int]:
    """Return the handles of the events that a replay waits for.

    Args:
        wait_for: what `replay` was given.
        context: the context of the graph, a handle.

    Raises:
        ArgumentError: it is not a list of events.
        OpenCLError: an event is of another context, or has failed.
    """
    events: list[int] = []
    if not (wait_for is None or isinstance(wait_for, Iterable)) or (
        getattr(wait_for, "shape", None) == ()
    ):
        raise _client.ArgumentError(
            "wait_for is not a list of events.",
            routine="replay",
            remedy="replay(queue, wait_for=[event])",
        )
    for event in () if wait_for is None else wait_for:
        events.append(_client.get_handle(event, "Event", "replay"))
        if event.context.int_ptr != context:
            raise error(
                CL_INVALID_CONTEXT,
                "replay",
                "An event of the wait list is foreign.",
                "wait for events of the graph's context",
            )
        if query_status(events[-1]) < 0:  # on PoCL 3.0 what waits for it never ends
            raise error(
                CL_EXEC_STATUS_ERROR_FOR_EVENTS_IN_WAIT_LIST,
                "replay",
                "An event of the wait list has failed.",
                "find out why its command failed, and replay without waiting for it",
            )
    return events


def check_flag(until: Any, context: int) -> tuple[int, int]:
    """Return the memory object (a handle) and the offset of a flag, in bytes.

    Args:
        until: what `replay` was given.
        context: the context of the graph, a handle.

    Raises:
        ArgumentError: it is not a buffer, or has no room for a word.
        SYCLError: it is of another context.
    """
    import pyopencl

    buffer, offset = getattr(until, "base_data", until), getattr(until, "offset", 0)
    if (
        not isinstance(buffer, pyopencl.MemoryObjectHolder)
        or isinstance(buffer, pyopencl.Image)
        or find_entry(until) is not None
        or buffer.size < offset + 4
    ):
        raise _client.ArgumentError(
            "until is not a buffer with a word of 32 bits.",
            routine="replay",
            remedy="give the pyopencl.Buffer or Array whose first word a kernel of the graph sets",
        )
    check_context("the flag of until", MEMORY, buffer.int_ptr, context)
    return buffer.int_ptr, offset


def has_property(queue: Any, name: str) -> bool:
    """Whether a pyopencl queue has a property."""
    import pyopencl

    return bool(queue.properties & getattr(pyopencl.command_queue_properties, name))
