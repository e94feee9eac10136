"""Queues that are given up: the final release is deferred where the driver needs that.

The habit `deferred-final-release` (icd/driver_profiles.py) says which drivers these are. Their last
command of an out-of-order queue destroys the queue in the driver's own thread. That thread then
waits for all commands of the queue, its own among them, and blocks every other wait of the process.
An event is complete, and clFinish returns, before the thread has let go of its command, and nothing
tells when it has. So such a queue is released some time after its commands have ended.
"""

from __future__ import annotations

from contextlib import suppress
from time import monotonic
from typing import Final

from ...loader.base.forks import in_child, new_lock
from .._native import ffi
from ..abi import OPENCL
from ..errors import OpenCLError, check
from .commands import address, call, enqueue_marker, profile_of_device, properties_of

_OUT_OF_ORDER: Final = OPENCL["CL_QUEUE_OUT_OF_ORDER_EXEC_MODE_ENABLE"]

#: Queues with commands, and the event of a marker behind these, 0 as long as others have a reference too and may enqueue more.
_leaving: Final[dict[int, int]] = {}
#: Of each queue above: how long it rests, in seconds. Its device may be gone by then.
_delays: Final[dict[int, float]] = {}
#: Queues whose commands were found to have ended, and until when each rests.
_resting: Final[dict[int, float]] = {}
_lock: Final = new_lock()


def leave(queue: int) -> None:
    """Give up a reference to a queue, at once or by and by. Nothing is waited for: this may be a thread of the driver's."""
    delay = _rest_of(queue) if properties_of(queue) & _OUT_OF_ORDER else None
    if delay is None:
        call(queue, "clReleaseCommandQueue")
        return
    with _lock:
        if queue in _leaving:  # one reference is enough
            call(queue, "clReleaseCommandQueue")
        else:
            _leaving[queue], _delays[queue] = _marker(queue), delay


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
                _resting[queue] = now + _delays.pop(queue)
        rested = [queue for queue, until in _resting.items() if until <= now]
        for queue in rested:
            del _resting[queue]
        busy = any(_leaving.values())
    for queue in rested:
        call(queue, "clReleaseCommandQueue")
    return busy


def _rest_of(queue: int) -> float | None:
    """How long a queue rests, in seconds; None: it is released at once."""
    device = ffi.new("uintptr_t *")
    check(
        call(queue, "clGetCommandQueueInfo", OPENCL["CL_QUEUE_DEVICE"], 8, address(device), None),
        "clGetCommandQueueInfo",
    )
    return profile_of_device(device[0]).final_release_delay


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
    _delays.clear()
    _resting.clear()
