"""A recorded command in words: its label, and by name what it was given (sizes and offsets in bytes, work sizes in work-items)."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any, Final

from ...loader.base.query import text
from .._native import ffi, lib
from ..abi import OPENCL
from ..capture.recording import OPS
from ..driver_profiles import DriverProfile, profile_for
from ..errors import check

#: What the numbers in `fl_command.n` are, for the commands that have some.
_NUMBERS: Final[dict[str, tuple[str, ...]]] = {
    "copy": ("source_offset", "target_offset", "size"),
    "fill": ("offset", "size"),
    "read": ("offset", "size"),
    "write": ("offset", "size"),
    "svm_copy": ("size",),
    "svm_fill": ("offset", "size"),
}


def address(pointer: Any) -> int:
    """A C pointer as a number."""
    return int(ffi.cast("uintptr_t", pointer))


def call(handle: int, name: str, *arguments: Any) -> Any:
    """Call an OpenCL function through the dispatch table of the object that `handle` is."""
    table = lib.fl_table_of(ffi.cast("void *", handle))
    return _function(name, address(table[OPENCL.functions[name].slot]))(handle, *arguments)


@lru_cache(maxsize=256)
def _function(name: str, pointer: int) -> Any:
    return OPENCL.functions[name].prototype(pointer)


def kernel_name(kernel: int) -> str:
    """The function name of a kernel (handle), "kernel" if the driver does not tell."""
    text = ffi.new("char[512]")
    code = call(
        kernel, "clGetKernelInfo", OPENCL["CL_KERNEL_FUNCTION_NAME"], 512, address(text), None
    )
    return ffi.string(text).decode(errors="replace") if code == 0 else "kernel"


def _kernel(command: Any) -> tuple[str, dict[str, object]]:
    name, dimensions = kernel_name(address(command.kernel)), range(command.work_dim)
    global_size = tuple(command.n[3 + i] for i in dimensions)
    details: dict[str, object] = {"kernel": name, "global_size": global_size}
    if command.has_local:
        details["local_size"] = tuple(command.n[6 + i] for i in dimensions)
    if command.has_offset:
        details["global_offset"] = tuple(command.n[i] for i in dimensions)
    return f"{name}({'×'.join(map(str, global_size))})", details


def describe(command: Any) -> tuple[str, dict[str, object]]:
    """Label and details of an `fl_command`."""
    op = OPS[command.op]
    if op == "kernel":
        return _kernel(command)
    details: dict[str, object] = {name: command.n[i] for i, name in enumerate(_NUMBERS.get(op, ()))}
    if op.endswith("_rect"):
        details = {"region": tuple(command.n[6:9])}
        return f"{op}({'×'.join(map(str, command.n[6:9]))})", details
    if command.pattern_size:
        details["pattern"] = bytes(ffi.buffer(command.pattern, command.pattern_size))
    return f"{op}({details['size']} bytes)" if "size" in details else op, details


def new_queue(context: int, device: int, properties: int = 0) -> int:
    """A queue of our own, in order unless `properties` says otherwise. Raises OpenCLError."""
    code = ffi.new("int32_t *")
    queue = call(context, "clCreateCommandQueue", device, properties, address(code))
    check(code[0], "clCreateCommandQueue")
    return queue


def properties_of(queue: int) -> int:
    """CL_QUEUE_PROPERTIES of a queue."""
    value = ffi.new("uint64_t *")
    check(
        call(
            queue, "clGetCommandQueueInfo", OPENCL["CL_QUEUE_PROPERTIES"], 8, address(value), None
        ),
        "clGetCommandQueueInfo",
    )
    return value[0]


def enqueue_marker(queue: int, waits: Sequence[int], name: str) -> int:
    """Enqueue a marker or a barrier (`name` is the function) after `waits`: its event, a reference for the caller. Raises OpenCLError."""
    event, listed = ffi.new("uintptr_t *"), ffi.new("uintptr_t[]", list(waits))
    check(call(queue, name, len(waits), address(listed) if waits else None, address(event)), name)
    return event[0]


def compute_units(device: int) -> int:
    """CL_DEVICE_MAX_COMPUTE_UNITS of a device."""
    value = ffi.new("uint32_t *")
    check(
        call(
            device,
            "clGetDeviceInfo",
            OPENCL["CL_DEVICE_MAX_COMPUTE_UNITS"],
            4,
            address(value),
            None,
        ),
        "clGetDeviceInfo",
    )
    return value[0]


def profile_of_device(device: int) -> DriverProfile:
    """The profile of the driver of a device (handle). Raises OpenCLError."""
    platform, routine = ffi.new("uintptr_t *"), "clGetPlatformInfo"
    what = OPENCL["CL_DEVICE_PLATFORM"]
    check(call(device, "clGetDeviceInfo", what, 8, address(platform), None), "clGetDeviceInfo")
    texts = []
    for name in ("CL_PLATFORM_NAME", "CL_PLATFORM_VENDOR", "CL_PLATFORM_VERSION"):
        value = ffi.new("char[1024]")
        check(call(platform[0], routine, OPENCL[name], 1024, address(value), None), routine)
        texts.append(text(bytes(ffi.buffer(value))))
    return profile_for(*texts)


def wait_for(event: int) -> None:
    """Wait for an event, whatever became of its command."""
    events = ffi.new("uintptr_t[]", [event])
    prototype = OPENCL.functions["clWaitForEvents"].prototype
    table = lib.fl_table_of(ffi.cast("void *", event))
    prototype(address(table[OPENCL.functions["clWaitForEvents"].slot]))(1, address(events))
