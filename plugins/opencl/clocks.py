"""The time of a device whose driver has no timer to be asked: that of a marker, in a queue that takes the times of its commands."""

from __future__ import annotations

import time
from typing import Final

from ...icd.abi import OPENCL
from ...icd.tables import query
from ...loader.base.forks import new_lock
from ...loader.ur.abi import UR
from .contexts import Context, urContextCreate
from .core import adapter
from .devices import Device
from .queues import Queue, create_queue

_lock = new_lock()
_queues: Final[dict[Device, Queue]] = {}  # of root devices, which live as long as the process
adapter.on_close.append(_queues.clear)


def times(device: Device) -> tuple[int, int]:
    """The device's time in nanoseconds, as the profiling of its commands has it, and the host's at that moment.

    A part of a device has the clock of the whole. Raises OpenCLError.
    """
    while device.parent is not None:
        device = device.parent
    with _lock:
        if device not in _queues:
            context: Context = urContextCreate([device])
            _queues[device] = create_queue(context, device, UR["UR_QUEUE_FLAG_PROFILING_ENABLE"])
        queue = _queues[device]
    before = time.monotonic_ns()
    marker = queue.enqueue("clEnqueueMarkerWithWaitList", "EVENTS_WAIT", (), (), True)
    assert marker is not None
    queue.drain()
    after = time.monotonic_ns()
    ended = query(
        queue.table, "clGetEventProfilingInfo", marker.cl, OPENCL["CL_PROFILING_COMMAND_END"]
    )
    return int.from_bytes(ended, "little"), (before + after) // 2
