"""A device as the engine `direct` knows it: its limits, and a queue of our own for queries."""

from __future__ import annotations

from typing import Any, Final
from weakref import WeakValueDictionary, finalize

from ...loader.base.forks import make_lock
from ...loader.base.processes import count_cores
from .._native import ffi, lib
from ..abi import OPENCL
from ..calls import (
    call,
    get_address,
    identify_device,
    make_queue,
    query_compute_units,
    query_number,
)
from ..errors import check
from .group_functions import query_binary
from .queue_release import release_queue

#: Other threads help where a thread alone needs so many ns, and where it takes at most so many
#: percent of that time. Waking them costs some microseconds.
_LEAST, _PERCENT = 4_000, 90

_SOURCE: Final = b"""
kernel void fairlead_shape(global ulong *sizes) {
    if (get_global_id(0) + get_global_id(1) + get_global_id(2) == 0)
        for (uint i = 0; i < 3; i++)
            sizes[i] = get_local_size(i);
}
"""


class DirectDevice:
    """A device of a context. Raises OpenCLError if the driver refuses what it needs.

    Args:
        context, device: handles.

    Attributes:
        native: what C knows of it, an `fl_direct_device *`.
    """

    def __init__(self, context: int, device: int) -> None:
        self._objects: list[tuple[int, str]] = []
        queue = make_queue(context, device)
        # Not by __del__: while that runs, `_devices` still gives the object to other threads.
        finalize(self, _release, self._objects, queue).atexit = False
        self.native: Any = ffi.new("fl_direct_device *")
        self.native.queue = ffi.cast("void *", queue)
        sizes, ask = ffi.new("size_t[3]"), "clGetDeviceInfo"
        name = OPENCL["CL_DEVICE_MAX_WORK_ITEM_SIZES"]
        check(call(device, ask, name, ffi.sizeof(sizes), get_address(sizes), None), ask)
        self.native.most_items = sizes
        self.native.local_memory = query_number(device, ask, "CL_DEVICE_LOCAL_MEM_SIZE", "uint64_t")
        self._context, self._device = context, device
        self.count_threads()

    def count_threads(self) -> None:
        """Take as many threads as the process may use now."""
        units = min(query_compute_units(self._device), count_cores(), lib.FL_MOST_THREADS)
        self.native.thread_limits = {"threads": units, "least": _LEAST, "percent": _PERCENT}

    def ask_for_local_sizes(self) -> None:
        """Make what the driver is asked with which local sizes it chooses. Raises OpenCLError."""
        with _lock:
            if not self.native.shape:
                self._make_shape()

    def _make_shape(self) -> None:
        context, code = self._context, ffi.new("int32_t *")
        devices = ffi.new("uintptr_t[]", [self._device])

        def check_made(handle: int, routine: str, release: str) -> int:
            check(code[0], routine)
            self._objects.append((handle, release))
            return handle

        identity = identify_device(self._device)
        if identity in _shapes:  # compiling it anew would take a hundred times as long
            binary = ffi.new("unsigned char[]", _shapes[identity])
            sizes = ffi.new("size_t *", len(_shapes[identity]))
            binaries = ffi.new("unsigned char *[]", [binary])
            values = (
                1,
                get_address(devices),
                get_address(sizes),
                get_address(binaries),
                None,
                get_address(code),
            )
            routine = "clCreateProgramWithBinary"
        else:
            source = ffi.new("char[]", _SOURCE)
            sources = ffi.new("char *[]", [source])
            values = (1, get_address(sources), None, get_address(code))
            routine = "clCreateProgramWithSource"
        program = check_made(call(context, routine, *values), routine, "clReleaseProgram")
        built = call(program, "clBuildProgram", 1, get_address(devices), None, None, None)
        check(built, "clBuildProgram")
        _shapes.setdefault(identity, query_binary(program))
        kernel = check_made(
            call(program, "clCreateKernel", b"fairlead_shape", get_address(code)),
            "clCreateKernel",
            "clReleaseKernel",
        )
        answer = check_made(
            call(context, "clCreateBuffer", 0, 24, None, get_address(code)),
            "clCreateBuffer",
            "clReleaseMemObject",
        )
        value = ffi.new("uintptr_t *", answer)
        check(call(kernel, "clSetKernelArg", 0, 8, get_address(value)), "clSetKernelArg")
        self.native.shape = ffi.cast("void *", kernel)
        self.native.answer = ffi.cast("void *", answer)


def _release(objects: list[tuple[int, str]], queue: int) -> None:
    """Release the objects, each a handle and the function that releases it, and the queue."""
    for handle, release in reversed(objects):
        call(handle, release)
    release_queue(queue)


#: By device: the binary of the program that tells local sizes.
_shapes: Final[dict[tuple[str, ...], bytes]] = {}

_devices: Final[WeakValueDictionary[tuple[int, int], DirectDevice]] = WeakValueDictionary()
_lock: Final = make_lock()


def get_device(context: int, device: int) -> DirectDevice:
    """The device of a context (handles), made when nobody has it. Raises OpenCLError."""
    with _lock:  # while it lives its queue holds the context: no other has the handle
        found = _devices.get((context, device))
        if found is None:
            found = _devices[context, device] = DirectDevice(context, device)
        return found
