"""OpenCL adapter: the time of a device: that of the driver's timer, or else that of a marker that
is profiled.
"""

from __future__ import annotations

import ctypes
import time
from typing import Final

from ...icd.abi import CL_INVALID_OPERATION
from ...loader.base.forks import make_lock
from ...loader.ur.abi import UR
from .contexts import URContext, create_context
from .core import adapter, check, query_number
from .devices import URDevice
from .queues import URQueue, create_queue

_lock = make_lock()
_queues: Final[dict[URDevice, URQueue]] = {}  # by root device, which lives as long as the process
adapter.after_queues.append(_queues.clear)


@adapter.entry
def urDeviceGetGlobalTimestamps(hDevice: URDevice) -> tuple[int, int]:
    device, host = ctypes.c_uint64(), ctypes.c_uint64()
    if hDevice.has((2, 1)):
        code = hDevice.table.clGetDeviceAndHostTimer(
            hDevice.cl, ctypes.byref(device), ctypes.byref(host)
        )
        if code != CL_INVALID_OPERATION:  # the answer of a driver without a timer
            check(code, "clGetDeviceAndHostTimer")
            return device.value, host.value
    return _measure_marker(hDevice)


def _measure_marker(device: URDevice) -> tuple[int, int]:
    """Return a device's time when a marker ended, and the host's at that moment, in nanoseconds.

    A sub-device has the clock of its root device. Raises OpenCLError.
    """
    device = device.root
    with _lock:
        if device not in _queues:
            context: URContext = create_context([device])
            _queues[device] = create_queue(context, device, UR["UR_QUEUE_FLAG_PROFILING_ENABLE"])
        queue = _queues[device]
    before = time.monotonic_ns()
    marker = queue.mark()
    queue.drain()
    after = time.monotonic_ns()
    name = "CL_PROFILING_COMMAND_END"
    ended = query_number(queue.table, "clGetEventProfilingInfo", marker.cl, name)
    return ended, (before + after) // 2
