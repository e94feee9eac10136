"""A call through a fairlead dispatch table against a bare ctypes function on the same pointer."""

from __future__ import annotations

import ctypes

from fairlead.icd.abi import OPENCL

from .measuring import Row, Target, in_turns, ratio
from .work import device, driver_function, make_queue


def measure(quick: bool) -> list[Row]:
    """Measure clGetCommandQueueInfo, which a driver answers at once."""
    queue, table = make_queue(), device().table
    handle, name, answer = queue.int_ptr, OPENCL["CL_QUEUE_PROPERTIES"], ctypes.c_uint64()
    address, size = ctypes.addressof(answer), ctypes.sizeof(answer)
    pointer = driver_function("clGetCommandQueueInfo").value
    assert pointer
    bare = ctypes.CFUNCTYPE(ctypes.c_int32)(pointer)
    bare.argtypes = [
        ctypes.c_void_p,
        ctypes.c_uint32,
        ctypes.c_size_t,
        ctypes.c_void_p,
        ctypes.c_void_p,
    ]
    bare.restype = ctypes.c_int32
    calls = range(100 if quick else 5000)

    def through_table() -> None:
        for _ in calls:
            table.clGetCommandQueueInfo(handle, name, size, address, None)

    def through_ctypes() -> None:
        for _ in calls:
            bare(handle, name, size, address, None)

    samples = in_turns(
        {"table": through_table, "ctypes": through_ctypes}, 5 if quick else 101, len(calls)
    )
    return [
        ratio(
            "a call through a table ÷ bare ctypes",
            samples,
            "table",
            "ctypes",
            Target("≤", 1.2),
            unit="µs per call",
        )
    ]
