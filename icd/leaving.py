"""Queues that are given up while commands run: their last reference is released when these have ended.

Else, in Intel's CPU driver (2026.22.10), the last command of an out-of-order queue destroys the queue where it is run, and waits there for
all commands of the queue: for itself, and with it whatever waits in the process.
"""

from __future__ import annotations

from contextlib import suppress
from typing import Final

from ..loader.forks import in_child, new_lock
from ._native import ffi
from .abi import OPENCL
from .commands import address, call, enqueue_marker, properties_of
from .errors import OpenCLError, check

_OUT_OF_ORDER: Final = OPENCL["CL_QUEUE_OUT_OF_ORDER_EXEC_MODE_ENABLE"]

#: The queues, and the event of a marker behind their commands, 0 as long as others have a reference too and may enqueue more.
_leaving: Final[dict[int, int]] = {}
_lock: Final = new_lock()


def leave(queue: int) -> None:
    """Give up a reference to a queue, at once or by and by. Nothing is waited for: this may be a thread of the driver's."""
    if not properties_of(queue) & _OUT_OF_ORDER:
        call(queue, "clReleaseCommandQueue")
        return
    with _lock:
        if queue in _leaving:  # one reference is enough
            call(queue, "clReleaseCommandQueue")
        else:
            _leaving[queue] = _marker(queue)


def release_ended() -> bool:
    """Release the queues whose commands have ended; only in a thread of the program's. Whether others have commands still."""
    ended = list[tuple[int, int]]()
    with _lock:
        for queue, marker in list(_leaving.items()):
            if not marker:
                _leaving[queue] = _marker(queue)
            elif _number(marker, "clGetEventInfo", "CL_EVENT_COMMAND_EXECUTION_STATUS") <= 0:
                del _leaving[queue]
                ended.append((queue, marker))
        busy = any(_leaving.values())
    for queue, marker in ended:
        call(marker, "clReleaseEvent")
        call(queue, "clFinish")  # an event is complete before its command has been left
        call(queue, "clReleaseCommandQueue")
    return busy


def _marker(queue: int) -> int:
    """The event of a marker behind a queue's commands, if nobody else can enqueue any more."""
    if _number(queue, "clGetCommandQueueInfo", "CL_QUEUE_REFERENCE_COUNT") > 1:
        return 0
    with suppress(OpenCLError):  # it is asked again
        made = enqueue_marker(queue, (), "clEnqueueMarkerWithWaitList")
        call(queue, "clFlush")
        return made
    return 0


def _number(handle: int, routine: str, name: str) -> int:
    value = ffi.new("int32_t *")
    check(call(handle, routine, OPENCL[name], 4, address(value), None), routine)
    return value[0]


@in_child
def _forget() -> None:
    """They are the parent's."""
    _leaving.clear()
