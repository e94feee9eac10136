"""What dpctl's calls take on one adapter, for dpctl_calls.py: `dpctl_work.py ROUNDS`.

Writes a line for each call: its name, a tab, and nanoseconds. dpctl is today's, which calls
DPC++'s runtime, which calls the adapter that UR_ADAPTERS_FORCE_LOAD names.
"""

from __future__ import annotations

import ctypes
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import dpctl  # pyright: ignore[reportMissingImports]  (it is fetched, not installed)
import dpctl.memory  # pyright: ignore[reportMissingImports]  (it is fetched, not installed)
import dpctl.program  # pyright: ignore[reportMissingImports]  (it is fetched, not installed)

_SOURCE = "kernel void store(global uint *to, uint value) { to[get_global_id(0)] = value; }"
_BYTES = 4096


def _prepare() -> dict[str, tuple[int, Callable[[], Any], Callable[[], Any]]]:
    """Return for each call: how often a batch has it, the call, and what ends a batch."""
    queue, in_order = dpctl.SyclQueue(), dpctl.SyclQueue(property="in_order")
    device = queue.sycl_device
    a, b = (dpctl.memory.MemoryUSMShared(_BYTES, queue=queue) for _ in range(2))
    program = dpctl.program.create_program_from_source(queue, _SOURCE, "-cl-std=CL1.2")
    kernel, arguments = program.get_sycl_kernel("store"), [a, ctypes.c_uint(7)]
    folder = Path(dpctl.memory.__file__).parents[1]
    c = ctypes.CDLL(str(next(folder.glob("libDPCTLSyclInterface.so*"))))
    c.DPCTLQueue_Memset.restype = ctypes.c_void_p
    filled = ctypes.c_void_p(in_order.addressof_ref()), ctypes.c_void_p(a._pointer)

    def fill() -> None:
        event = c.DPCTLQueue_Memset(*filled, 7, ctypes.c_size_t(64))
        c.DPCTLEvent_Delete(ctypes.c_void_p(event))

    def first_allocation() -> float:
        of_it = dpctl.SyclQueue(dpctl.SyclContext([device]), device)
        start = time.perf_counter()
        dpctl.memory.MemoryUSMDevice(64, queue=of_it)
        return time.perf_counter() - start

    def submit(to: Any) -> Callable[[], None]:
        return lambda: to.submit(kernel, arguments, [64]).wait()

    def nothing() -> None:
        pass

    return {
        "memcpy": (200, lambda: queue.memcpy(a, b, 64), nothing),
        "memcpy, in order": (200, lambda: in_order.memcpy(a, b, 64), nothing),
        "submit and wait": (100, submit(queue), nothing),
        "submit and wait, in order": (100, submit(in_order), nothing),
        "malloc and free": (200, lambda: dpctl.memory.MemoryUSMDevice(64, queue=queue), nothing),
        "first USM allocation of a context": (10, first_allocation, nothing),
        "USM support": (200, lambda: device.has_aspect_usm_device_allocations, nothing),
        "name of a device": (200, lambda: device.name, nothing),
        "a context, created and released": (20, lambda: dpctl.SyclContext([device]), nothing),
        "fill": (200, fill, in_order.wait),
    }


def main(rounds: int) -> None:
    for name, (count, call, end) in _prepare().items():
        took = []
        for _ in range(rounds):
            start = time.perf_counter()
            returned = [call() for _ in range(count)]
            # A call may say itself how much of it counts.
            timed = [one for one in returned if isinstance(one, float)]
            seconds = sum(timed) if timed else time.perf_counter() - start
            took.append(seconds / count)
            end()
        print(f"{name}\t{statistics.median(took) * 1e9:.0f}", flush=True)


if __name__ == "__main__":
    main(int(sys.argv[1]))
