"""Queues that are given up: the last reference to an out-of-order one is released when its commands have ended, and rested.

Else, in Intel's CPU driver (2026.22.10), the last command of an out-of-order queue destroys the queue where it is run, and waits there for
all commands of the queue: for itself, and with it whatever waits in the process. Its event is complete, and clFinish returns, before the
driver's thread has let go of it. Nothing tells when it has; it is a matter of microseconds, or of that thread's next turn.
"""

from __future__ import annotations

from contextlib import suppress
from time import monotonic
from typing import Final

from ...loader.base.forks import in_child, new_lock
from .._native import ffi
from ..abi import OPENCL
from ..calls import address, call, enqueue_marker, platform_name, properties_of
from ..errors import OpenCLError, check

_OUT_OF_ORDER: Final = OPENCL["CL_QUEUE_OUT_OF_ORDER_EXEC_MODE_ENABLE"]

_RESTING: Final = frozenset({"Intel(R) OpenCL"})  # platforms
_REST: Final = 1.0  # seconds, where they rest at all

#: Queues with commands, and the event of a marker behind these, 0 as long as others have a reference too and may enqueue more.
_leaving: Final[dict[int, int]] = {}
#: Queues whose commands were found to have ended, and until when each rests.
_resting: Final[dict[int, float]] = {}
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
    """Release the queues whose commands have ended, if they have rested; only in a thread of the program's. Whether others have commands
    still. Those that rest when the program ends are never released."""
    now = monotonic()
    with _lock:
        for queue, marker in list(_leaving.items()):
            if not marker:
                _leaving[queue] = _marker(queue)
            elif _number(marker, "clGetEventInfo", "CL_EVENT_COMMAND_EXECUTION_STATUS") <= 0:
                call(marker, "clReleaseEvent")
                del _leaving[queue]
                _resting[queue] = now + _rest_of(queue)
        rested = [queue for queue, until in _resting.items() if until <= now]
        for queue in rested:
            del _resting[queue]
        busy = any(_leaving.values())
    for queue in rested:
        call(queue, "clReleaseCommandQueue")
    return busy


def _rest_of(queue: int) -> float:
    """How long a queue rests."""
    device = ffi.new("uintptr_t *")
    check(
        call(queue, "clGetCommandQueueInfo", OPENCL["CL_QUEUE_DEVICE"], 8, address(device), None),
        "clGetCommandQueueInfo",
    )
    return _REST if platform_name(device[0]) in _RESTING else 0.0


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
    _resting.clear()
