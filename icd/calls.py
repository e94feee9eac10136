"""Calls of OpenCL functions through an object's own dispatch table, and queries of queues and
devices.

Handles are numbers here. Classes for platforms and devices are in objects.py.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from functools import lru_cache
from typing import Any, Final

from ..loader.base.library import find_file
from ..loader.base.query import decode_text
from ._native import ffi, lib
from .abi import OPENCL
from .driver_profiles import DriverProfile, find_profile_by_names
from .errors import check

_OUT_OF_ORDER: Final = OPENCL["CL_QUEUE_OUT_OF_ORDER_EXEC_MODE_ENABLE"]


def get_address(pointer: Any) -> int:
    """Return a C pointer as a number."""
    return int(ffi.cast("uintptr_t", pointer))


def call(handle: int, name: str, *arguments: Any) -> Any:
    """Call an OpenCL function through the dispatch table of the object that `handle` is."""
    return find_function(handle, name)(handle, *arguments)


def find_function(handle: int, name: str) -> Any:
    """Return an OpenCL function of the driver of an object, as a ctypes function."""
    return _make_function(name, get_address(find_driver_function(handle, name)))


def find_driver_function(handle: int, name: str) -> Any:
    """Return an OpenCL function of the driver of an object, as a C pointer."""
    return lib.fl_table_of(ffi.cast("void *", handle))[OPENCL.functions[name].slot]


@lru_cache(maxsize=256)
def _make_function(name: str, pointer: int) -> Any:
    return OPENCL.functions[name].prototype(pointer)


#: The C types of answers: an object that makes room for one, and its size in bytes.
_ANSWERS: Final = {
    name: (ffi.typeof(f"{name} *"), ffi.sizeof(name))
    for name in ("int32_t", "uint32_t", "uint64_t", "uintptr_t")
}


def query_number(handle: int, routine: str, name: str, kind: str) -> int:
    """Return a number that a query answers. Raises OpenCLError.

    Args:
        kind: its C type, one of those above.
    """
    answer, size = _ANSWERS[kind]
    value = ffi.new(answer)
    check(call(handle, routine, OPENCL[name], size, get_address(value), None), routine)
    return value[0]


def query_bytes(handle: int, routine: str, name: str | int, *between: int) -> bytes | None:
    """Return what a query answers, None if the driver does not answer it.

    Args:
        routine: the function, "clGetKernelInfo".
        name: the query, by its name or number.
        between: what the function takes between the object and the query.
    """
    query = OPENCL[name] if isinstance(name, str) else name
    size = ffi.new("size_t *")
    if call(handle, routine, *between, query, 0, None, get_address(size)):
        return None
    room = ffi.new("char[]", size[0])
    if size[0] and call(handle, routine, *between, query, size[0], get_address(room), None):
        return None
    return bytes(ffi.buffer(room, size[0]))


def query_integer(handle: int, routine: str, name: str) -> int | None:
    """Return a number that a query answers, None if the driver does not answer it."""
    value, size = ffi.new("uint64_t *"), ffi.new("size_t *")
    code = call(handle, routine, OPENCL[name], 8, get_address(value), get_address(size))
    return None if code or not size[0] else value[0]


# queues


def make_queue(context: int, device: int, properties: int = 0) -> int:
    """Make an in-order queue, unless `properties` says otherwise. Raises OpenCLError."""
    code = ffi.new("int32_t *")
    queue = call(context, "clCreateCommandQueue", device, properties, get_address(code))
    check(code[0], "clCreateCommandQueue")
    return queue


def query_properties(queue: int) -> int:
    """Return CL_QUEUE_PROPERTIES of a queue. Raises OpenCLError."""
    return query_number(queue, "clGetCommandQueueInfo", "CL_QUEUE_PROPERTIES", "uint64_t")


def query_device(queue: int) -> int:
    """Return CL_QUEUE_DEVICE of a queue, a handle. Raises OpenCLError."""
    return query_number(queue, "clGetCommandQueueInfo", "CL_QUEUE_DEVICE", "uintptr_t")


def is_in_order(properties: int) -> bool:
    """Return whether a queue with these CL_QUEUE_PROPERTIES is in order."""
    return not properties & _OUT_OF_ORDER


def enqueue_marker(queue: int, waits: Sequence[int]) -> int:
    """Enqueue a marker after `waits` or, if there are none, after everything in the queue.

    Returns:
        Its event, a reference for the caller.

    Raises:
        OpenCLError: the driver refuses it.
    """
    event, listed = ffi.new("uintptr_t *"), ffi.new("uintptr_t[]", list(waits))
    name, where = "clEnqueueMarkerWithWaitList", get_address(listed) if waits else None
    check(call(queue, name, len(waits), where, get_address(event)), name)
    return event[0]


def enqueue_place(queue: int, waits: Sequence[int]) -> int:
    """Enqueue a place in an out-of-order queue: after its barriers and after `waits`.

    It comes after nothing else in the queue, and holds nothing up.

    Returns:
        Its event, a reference for the caller.

    Raises:
        OpenCLError: the driver refuses it.
    """
    by_transfer = find_device_profile(query_device(queue)).markers_have_no_place
    return _put(lib.fl_put_place, "clEnqueueMarkerWithWaitList", queue, by_transfer, waits)


def enqueue_barrier(queue: int, waits: Sequence[int]) -> int:
    """Enqueue a barrier after `waits` and everything in the queue.

    Returns:
        Its event, a reference for the caller.

    Raises:
        OpenCLError: the driver refuses it.
    """
    in_order = is_in_order(query_properties(queue))
    return _put(lib.fl_put_barrier, "clEnqueueBarrierWithWaitList", queue, in_order, waits)


def _put(function: Any, routine: str, queue: int, how: bool, waits: Sequence[int]) -> int:
    """Call `fl_put_place` or `fl_put_barrier`. Returns the event; an error names `routine`."""
    event = ffi.new("void **")
    listed = ffi.new("void *[]", [ffi.cast("void *", one) for one in waits])
    check(function(ffi.cast("void *", queue), how, len(waits), listed, event), routine)
    return get_address(event[0])


def read_word(queue: int, memory: int, offset: int, waits: Sequence[int]) -> tuple[int, int]:
    """Read 32 bits at an offset (bytes) of a memory object, after `waits` (events, handles).

    Returns:
        OpenCL's code, and the word.
    """
    word, listed = ffi.new("uint32_t *"), ffi.new("uintptr_t[]", list(waits))
    place = (memory, True, offset, 4, get_address(word))
    after = (len(waits), get_address(listed) if waits else None, None)
    return call(queue, "clEnqueueReadBuffer", *place, *after), word[0]


# events


def query_status(event: int) -> int:
    """Return CL_EVENT_COMMAND_EXECUTION_STATUS of an event: 0 is complete, below 0 is a failure.

    A command that waited for a failed event has failed, too, whatever the driver says of it. If the
    event cannot be asked, the code is a failure.
    """
    return lib.fl_status_of(ffi.cast("void *", event))


# devices and kernels


def query_compute_units(device: int) -> int:
    """Return CL_DEVICE_MAX_COMPUTE_UNITS of a device. Raises OpenCLError."""
    return query_number(device, "clGetDeviceInfo", "CL_DEVICE_MAX_COMPUTE_UNITS", "uint32_t")


def query_platform(device: int) -> int:
    """Return CL_DEVICE_PLATFORM of a device, a handle. Raises OpenCLError."""
    return query_number(device, "clGetDeviceInfo", "CL_DEVICE_PLATFORM", "uintptr_t")


def find_device_profile(device: int) -> DriverProfile:
    """Return the profile of the driver of a device (a handle). Raises OpenCLError."""
    platform, names = query_platform(device), ("NAME", "VENDOR", "VERSION")
    profile = find_profile_by_names(
        *(_query_text(platform, "clGetPlatformInfo", f"CL_PLATFORM_{name}") for name in names)
    )
    if profile.hides_failures:
        lib.fl_ask_callbacks(lib.fl_table_of(ffi.cast("void *", device)))
    return profile


def find_context_profile(context: int) -> DriverProfile:
    """Return the profile of the driver of a context (a handle). Raises OpenCLError."""
    devices = query_bytes(context, "clGetContextInfo", "CL_CONTEXT_DEVICES") or bytes(8)
    return find_device_profile(int.from_bytes(devices[:8], sys.byteorder))


def identify_device(device: int) -> tuple[str, ...]:
    """Return what identifies a device in any context and process.

    It is the platform and its version, the device, and the driver's version.
    """
    platform = query_platform(device)
    of_platform = (
        _query_text(platform, "clGetPlatformInfo", f"CL_PLATFORM_{name}")
        for name in ("NAME", "VERSION")
    )
    return *of_platform, *(
        _query_text(device, "clGetDeviceInfo", name)
        for name in ("CL_DEVICE_NAME", "CL_DRIVER_VERSION")
    )


def find_driver_file(device: int) -> str:
    """Return the file that the functions of a device's driver lie in, "" if it is not known."""
    # fairlead exchanges other slots of the table, which would name its own file.
    return find_file(get_address(find_driver_function(device, "clGetContextInfo")))


def query_kernel_name(kernel: int) -> str:
    """Return the function name of a kernel (a handle), "kernel" if the driver does not answer."""
    text = ffi.new("char[512]")
    code = call(
        kernel, "clGetKernelInfo", OPENCL["CL_KERNEL_FUNCTION_NAME"], 512, get_address(text), None
    )
    return ffi.string(text).decode(errors="replace") if code == 0 else "kernel"


def _query_text(handle: int, routine: str, name: str) -> str:
    value = ffi.new("char[1024]")
    check(call(handle, routine, OPENCL[name], 1024, get_address(value), None), routine)
    return decode_text(bytes(ffi.buffer(value)))


# contexts and programs


def create_context(device: int) -> int:
    """Make a context of a device, a handle. Raises OpenCLError."""
    code, devices = ffi.new("int32_t *"), ffi.new("uintptr_t[]", [device])
    create = find_function(device, "clCreateContext")
    context = create(None, 1, get_address(devices), None, None, get_address(code))
    check(code[0], "clCreateContext")
    return context


def build_program(context: int, device: int, source: bytes, options: bytes = b"") -> int:
    """Build OpenCL C for a device, and return the program, a handle. Raises OpenCLError."""
    text, code = ffi.new("char[]", source), ffi.new("int32_t *")
    texts, devices = ffi.new("char *[]", [text]), ffi.new("uintptr_t[]", [device])
    routine = "clCreateProgramWithSource"
    program = call(context, routine, 1, get_address(texts), None, get_address(code))
    check(code[0], routine)
    built = call(program, "clBuildProgram", 1, get_address(devices), options, None, None)
    if built:
        call(program, "clReleaseProgram")
    check(built, "clBuildProgram")
    return program


def query_program(kernel: int) -> int:
    """Return the program of a kernel (handles). Raises OpenCLError."""
    return query_number(kernel, "clGetKernelInfo", "CL_KERNEL_PROGRAM", "uintptr_t")


def query_kernel_count(program: int) -> int:
    """Return CL_PROGRAM_NUM_KERNELS of a program, a handle. Raises OpenCLError."""
    return query_number(program, "clGetProgramInfo", "CL_PROGRAM_NUM_KERNELS", "uint64_t")
