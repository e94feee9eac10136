"""Releases of queues. The final one is deferred where the driver needs that.

The habit `deferred-final-release` (icd/driver_profiles.py) says which drivers these are. Their last
command of an out-of-order queue destroys the queue in the driver's own thread. That thread then
waits for all commands of the queue, its own among them, and blocks every other wait of the process.
An event is complete, and clFinish returns, before the thread has released its command, and nothing
tells when it has. So such a queue is released some time after its commands have ended.

When Python ends, queues that still run are released at once, as PyOpenCL does. Intel's driver
crashes at the end of a process that has such a queue. Queues that are idle stay.
"""

from __future__ import annotations

from contextlib import suppress
from time import monotonic
from typing import Any, Final, NamedTuple

from ...loader.base.ends import call_at_end
from ...loader.base.forks import call_in_child, make_lock
from ...loader.base.snapshots import list_items
from ..abi import OPENCL
from ..calls import (
    call,
    enqueue_marker,
    find_device_profile,
    query_device,
    query_number,
    query_properties,
    query_status,
)
from ..driver_profiles import DriverProfile
from ..errors import OpenCLError

_OUT_OF_ORDER: Final = OPENCL["CL_QUEUE_OUT_OF_ORDER_EXEC_MODE_ENABLE"]


class _Unreleased(NamedTuple):
    """A queue with commands, as it was when it was released.

    `marker` is the event of a marker behind its commands, 0 while others have a reference and may
    enqueue more. `delay` is in seconds. `device` keeps the device alive: some drivers delete a
    device that has queues.
    """

    marker: int
    delay: float
    device: Any


#: Queues that still have commands.
_running: Final[dict[int, _Unreleased]] = {}
#: Queues whose commands have ended: the time of each release, and its device.
_idle: Final[dict[int, tuple[float, Any]]] = {}
_lock: Final = make_lock()
_is_ending = False


def release_queue(
    queue: int, profile: DriverProfile | None = None, *, marker: int = 0, device: Any = None
) -> None:
    """Release a reference to a queue, at once or later.

    It waits for nothing: a driver's thread may call it.

    Args:
        queue: a cl_command_queue.
        profile: its driver's. None asks the queue's device, which must then be alive.
        marker: the event of a marker behind all commands of a queue to which nobody else has a
            reference. It is released.
        device: is kept alive until the queue is released.
    """
    delay = None
    if query_properties(queue) & _OUT_OF_ORDER:
        delay = (profile or _find_profile(queue)).final_release_delay
    with _lock:
        is_new = delay is not None and queue not in _running and not _is_ending  # one is enough
        if is_new:
            _running[queue] = _Unreleased(marker or _enqueue_marker(queue), delay or 0.0, device)
    if not is_new:
        call(queue, "clReleaseCommandQueue")
        if marker:
            call(marker, "clReleaseEvent")


def release_ended() -> bool:
    """Release the queues whose commands ended long enough ago. Only a program's thread may call it.

    Returns:
        Whether other queues still have commands.
    """
    now = monotonic()
    ended: list[int] = []
    with _lock:
        for queue, one in list_items(_running):
            if not one.marker:
                _running[queue] = one._replace(marker=_enqueue_marker(queue))
            elif query_status(one.marker) <= 0:
                ended.append(one.marker)
                del _running[queue]
                _idle[queue] = now + one.delay, one.device
        due = {queue: device for queue, (until, device) in _idle.items() if until <= now}
        for queue in due:
            del _idle[queue]
        busy = any(one.marker for _, one in list_items(_running))
    for marker in ended:
        call(marker, "clReleaseEvent")
    for queue in due:
        call(queue, "clReleaseCommandQueue")
    return busy


@call_at_end("queues")
def _release_running() -> None:
    """Release the queues that still run, and from now on each at once."""
    global _is_ending
    release_ended()
    with _lock:
        _is_ending = True
        running = [(queue, one.marker) for queue, one in list_items(_running)]
        _running.clear()
    for queue, marker in running:
        call(queue, "clReleaseCommandQueue")
        if marker:
            call(marker, "clReleaseEvent")


def _find_profile(queue: int) -> DriverProfile:
    """Return the profile of a queue's driver, found by its device."""
    return find_device_profile(query_device(queue))


def _enqueue_marker(queue: int) -> int:
    """Enqueue a marker behind a queue's commands, if nobody else can enqueue any more.

    Returns its event.
    """
    if query_number(queue, "clGetCommandQueueInfo", "CL_QUEUE_REFERENCE_COUNT", "uint32_t") > 1:
        return 0
    with suppress(OpenCLError):  # it is asked again
        made = enqueue_marker(queue, ())
        call(queue, "clFlush")
        return made
    return 0


@call_in_child
def _forget() -> None:
    """Forget the queues, which are the parent's."""
    _running.clear()
    _idle.clear()
