"""The time of a device: what the driver's timer says, or the time of a marker in a queue with profiling where there is none."""

from __future__ import annotations

import ctypes
import time
from typing import Final

from ...icd.abi import CL_INVALID_OPERATION, OPENCL
from ...icd.tables import query
from ...loader.base.forks import new_lock
from ...loader.ur.abi import UR
from .contexts import URContext, urContextCreate
from .core import adapter, check
from .devices import URDevice
from .queues import URQueue, create_queue

_lock = new_lock()
_queues: Final[dict[URDevice, URQueue]] = {}  # of root devices, which live as long as the process
adapter.on_close.append(_queues.clear)


@adapter.entry
def urDeviceGetGlobalTimestamps(hDevice: URDevice) -> tuple[int, int]:
    device, host = ctypes.c_uint64(), ctypes.c_uint64()
    if hDevice.has((2, 1)):
        code = hDevice.table.clGetDeviceAndHostTimer(
            hDevice.cl, ctypes.byref(device), ctypes.byref(host)
        )
        if code != CL_INVALID_OPERATION:  # which is said where there is no such timer
            check(code, "clGetDeviceAndHostTimer")
            return device.value, host.value
    return _times_of_a_marker(hDevice)


def _times_of_a_marker(device: URDevice) -> tuple[int, int]:
    """The device's time in nanoseconds, as the profiling of its commands has it, and the host's at that moment.

    A sub-device has the clock of its root device. Raises OpenCLError.
    """
    while device.parent is not None:
        device = device.parent
    with _lock:
        if device not in _queues:
            context: URContext = urContextCreate([device])
            _queues[device] = create_queue(context, device, UR["UR_QUEUE_FLAG_PROFILING_ENABLE"])
        queue = _queues[device]
    before = time.monotonic_ns()
    marker = queue.mark()
    queue.drain()
    after = time.monotonic_ns()
    ended = query(
        queue.table, "clGetEventProfilingInfo", marker.cl, OPENCL["CL_PROFILING_COMMAND_END"]
    )
    return int.from_bytes(ended, "little"), (before + after) // 2
