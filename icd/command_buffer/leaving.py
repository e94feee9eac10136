"""Queues that are given up: the last reference to an out-of-order one is released when its commands have ended, and rested.

Else, in Intel's CPU driver (2026.22.10), the last command of an out-of-order queue destroys the queue where it is run, and waits there for
all commands of the queue: for itself, and with it whatever waits in the process. Its event is complete, and clFinish returns, before the
driver's thread has let go of it. Nothing tells when it has; it is a matter of microseconds, or of that thread's next turn.
"""

from __future__ import annotations

from contextlib import suppress
from time import monotonic
from typing import Any, Final, NamedTuple

from ...loader.base.forks import in_child, new_lock
from .._native import ffi
from ..abi import OPENCL
from ..errors import OpenCLError, check
from .commands import address, call, enqueue_marker, platform_name, properties_of

_OUT_OF_ORDER: Final = OPENCL["CL_QUEUE_OUT_OF_ORDER_EXEC_MODE_ENABLE"]

_RESTING: Final = frozenset({"Intel(R) OpenCL"})  # platforms
_REST: Final = 1.0  # seconds, where they rest at all


class _Leaving(NamedTuple):
    """A queue with commands, as it was when it was given up.

    `marker` is the event of a marker behind its commands, 0 as long as others have a reference too and may enqueue more. `rest` is
    known from the beginning and `keep` is its device: some drivers delete a device that has queues.
    """

    marker: int
    rest: float
    keep: Any


#: Queues with commands.
_leaving: Final[dict[int, _Leaving]] = {}
#: Queues whose commands were found to have ended, until when each rests, and its device.
_resting: Final[dict[int, tuple[float, Any]]] = {}
_lock: Final = new_lock()


def leave(queue: int, platform: str = "", *, marker: int = 0, keep: Any = None) -> None:
    """Give up a reference to a queue, at once or later. Nothing is waited for: this may be a thread of the driver's.

    Args:
        queue: a cl_command_queue.
        platform: CL_PLATFORM_NAME; "" has the queue's device asked, which must then be alive.
        marker: the event of a marker behind all commands of a queue to which nobody else has a reference. It is taken over.
        keep: is held until the queue is released, as its device is.
    """
    if not properties_of(queue) & _OUT_OF_ORDER:
        call(queue, "clReleaseCommandQueue")
        return
    with _lock:
        is_new = queue not in _leaving  # one reference is enough
        if is_new:
            _leaving[queue] = _Leaving(marker or _marker(queue), _rest_of(queue, platform), keep)
    if not is_new:
        call(queue, "clReleaseCommandQueue")
        if marker:
            call(marker, "clReleaseEvent")


def release_ended() -> bool:
    """Release the queues whose commands have ended, if they have rested; only in a thread of the program's. Whether others have commands
    still. Those that rest when the program ends are never released."""
    now = monotonic()
    ended: list[int] = []
    with _lock:
        for queue, left in list(_leaving.items()):
            if not left.marker:
                _leaving[queue] = left._replace(marker=_marker(queue))
            elif _number(left.marker, "clGetEventInfo", "CL_EVENT_COMMAND_EXECUTION_STATUS") <= 0:
                ended.append(left.marker)
                del _leaving[queue]
                _resting[queue] = now + left.rest, left.keep
        rested = {queue: keep for queue, (until, keep) in _resting.items() if until <= now}
        for queue in rested:
            del _resting[queue]
        busy = any(left.marker for left in _leaving.values())
    for marker in ended:
        call(marker, "clReleaseEvent")
    for queue in rested:
        call(queue, "clReleaseCommandQueue")
    return busy


def _rest_of(queue: int, platform: str) -> float:
    """How long a queue rests, in seconds."""
    if not platform:
        device = ffi.new("uintptr_t *")
        check(
            call(
                queue, "clGetCommandQueueInfo", OPENCL["CL_QUEUE_DEVICE"], 8, address(device), None
            ),
            "clGetCommandQueueInfo",
        )
        platform = platform_name(device[0])
    return _REST if platform in _RESTING else 0.0


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
