"""For child processes under the layer: OpenCL through the loader that LOADER names, by ctypes.

There is a context of the first device, and there are helpers for buffers. The extensions' functions
are called as `cl.clCommandCopyBufferKHR(...)`. NULL is None, and an array is `words(...)`. Every
call returns what the C function returns.
"""

from __future__ import annotations

import ctypes
import json
import os
from array import array
from typing import Any

from fairlead.icd.abi import OPENCL
from fairlead.loader.base.query import query

_library = ctypes.CDLL(os.environ.get("LOADER", "libOpenCL.so.1"))
CODES = OPENCL.errors
Argument = OPENCL.get_struct("cl_mutable_dispatch_arg_khr")
Config = OPENCL.get_struct("cl_mutable_dispatch_config_khr")
SOURCE = """
kernel void add(global int *a, int n) { a[get_global_id(0)] += n; }
kernel void place(global int *a) { a[get_global_id(0) - get_global_offset(0)] = get_global_id(0); }
kernel void groups(global int *a) { a[get_global_id(0)] = get_local_size(0); }
kernel void twice(global int *a, global const int *b) {
    a[get_global_id(0)] = 2 * b[get_global_id(0)];
}
kernel void local_sum(global int *a, local int *b) {
    b[get_local_id(0)] = get_global_id(0);
    barrier(CLK_LOCAL_MEM_FENCE);
    a[get_global_id(0)] = b[0];
}
kernel __attribute__((reqd_work_group_size(2, 1, 1))) void pairs(global int *a) {
    a[get_global_id(0)] = get_local_id(0);
}
kernel void flat(global int *a) { a[get_global_id(1) * 4 + get_global_id(0)] = get_global_id(1); }
"""


class _Functions:
    """The loader's functions, and those of the extensions for the first platform."""

    def __getattr__(self, name: str) -> Any:
        function = OPENCL.functions[name]
        if function.slot is not None:
            return function.prototype((name, _library))
        ask = OPENCL.functions["clGetExtensionFunctionAddressForPlatform"].prototype
        found = ask(("clGetExtensionFunctionAddressForPlatform", _library))(PLATFORM, name.encode())
        assert found, name
        return function.prototype(found)


cl: Any = _Functions()


def words(*values: int | None, kind: Any = ctypes.c_size_t) -> Any:
    """An array of the program."""
    return ctypes.cast((kind * len(values))(*(value or 0 for value in values)), ctypes.c_void_p)


def uints(*values: int) -> Any:
    """An array of 32-bit numbers."""
    return words(*values, kind=ctypes.c_uint32)


def say(*values: Any) -> None:
    """Print a line of JSON."""
    print(json.dumps(values[0] if len(values) == 1 else values), flush=True)


def name(code: int) -> str:
    """The name of an error code."""
    return CODES[code][0] if code else "CL_SUCCESS"


def make(function: Any, *arguments: Any) -> int:
    """Call a function with an errcode_ret, and return what it makes."""
    code = ctypes.c_int32()
    handle = function(*arguments, ctypes.addressof(code))
    assert code.value == 0, (function, name(code.value))
    return handle


def refusal(function: Any, *arguments: Any) -> str:
    """Call a function with an errcode_ret that makes nothing, and return the name of the code."""
    code = ctypes.c_int32()
    assert not function(*arguments, ctypes.addressof(code))
    return name(code.value)


def ok(code: int) -> None:
    """Check a code."""
    assert code == 0, name(code)


def out(kind: Any = ctypes.c_void_p) -> Any:
    """Room for an answer: `value` is the answer, `at` its address."""
    room = kind()
    room.at = ctypes.addressof(room)
    return room


def ask(function: Any, handle: int, constant: str) -> bytes:
    """Ask an object."""
    return query(function, constant, lambda code, *_: ok(code), handle, OPENCL[constant])


def answer(function: Any, handle: int, constant: str, kind: Any, count: int = 1) -> Any:
    """Ask an object: one number, or a list if `count` is not 1."""
    data = ask(function, handle, constant)
    assert len(data) <= count * ctypes.sizeof(kind)
    found = list((kind * (len(data) // ctypes.sizeof(kind))).from_buffer_copy(data))
    return found[0] if count == 1 and found else found


def text(function: Any, handle: int, constant: str) -> str:
    """Ask an object for a text."""
    return ask(function, handle, constant).rstrip(b"\0").decode()


def versions(function: Any, handle: int, constant: str) -> dict[str, str]:
    """Ask for extensions with versions."""
    found, data = {}, ask(function, handle, constant)
    for start in range(0, len(data), 68):
        version = int.from_bytes(data[start : start + 4], "little")
        label = data[start + 4 : start + 68].split(b"\0")[0].decode()
        found[label] = f"{version >> 22}.{version >> 12 & 1023}.{version & 4095}"
    return found


_platforms = (ctypes.c_void_p * 1)()
ok(cl.clGetPlatformIDs(1, _platforms, None))
PLATFORM: int = _platforms[0]
_devices = (ctypes.c_void_p * 1)()
ok(cl.clGetDeviceIDs(PLATFORM, OPENCL["CL_DEVICE_TYPE_ALL"], 1, _devices, None))
DEVICE: int = _devices[0]
OUT_OF_ORDER = OPENCL["CL_QUEUE_OUT_OF_ORDER_EXEC_MODE_ENABLE"]
PROFILING = OPENCL["CL_QUEUE_PROFILING_ENABLE"]
FLAGS, MUTABLE = OPENCL["CL_COMMAND_BUFFER_FLAGS_KHR"], OPENCL["CL_COMMAND_BUFFER_MUTABLE_KHR"]


def new_context(*devices: int) -> int:
    """A context of devices, by default the first one."""
    listed = devices or (DEVICE,)
    return make(cl.clCreateContext, None, len(listed), words(*listed), None, None)


def new_queue(properties: int = 0, context: int = 0, device: int = 0) -> int:
    """A queue."""
    return make(cl.clCreateCommandQueue, context or CONTEXT, device or DEVICE, properties)


def build(source: str, context: int = 0, options: bytes = b"") -> int:
    """A program for the devices of a context."""
    text = ctypes.c_char_p(source.encode())
    program = make(
        cl.clCreateProgramWithSource, context or CONTEXT, 1, ctypes.addressof(text), None
    )
    ok(cl.clBuildProgram(program, 0, None, options, None, None))
    return program


def build_once(source: str, file: str) -> int:
    """A program for the first device, from the binary in a file, or from the source.

    Intel's compiler takes a third of a second in a new process, and a binary takes 5 ms.
    """
    if not os.path.exists(file):
        program = build(source)
        size = answer(cl.clGetProgramInfo, program, "CL_PROGRAM_BINARY_SIZES", ctypes.c_size_t)
        binary = ctypes.create_string_buffer(size)
        asked = program, OPENCL["CL_PROGRAM_BINARIES"], 8, words(ctypes.addressof(binary)), None
        ok(cl.clGetProgramInfo(*asked))
        with open(f"{file}.{os.getpid()}", "wb") as stream:
            stream.write(binary.raw)
        os.replace(stream.name, file)
        return program
    with open(file, "rb") as stream:
        binary = ctypes.create_string_buffer(stream.read())
    given = words(DEVICE), words(len(binary) - 1), words(ctypes.addressof(binary)), None
    program = make(cl.clCreateProgramWithBinary, CONTEXT, 1, *given)
    ok(cl.clBuildProgram(program, 0, None, b"", None, None))
    return program


def buffer(values: Any, context: int = 0) -> int:
    """A buffer of 32-bit integers with values, or of a number of zeros."""
    data = array("i", values if not isinstance(values, int) else [0] * values)
    flags = OPENCL["CL_MEM_COPY_HOST_PTR"] | OPENCL["CL_MEM_READ_WRITE"]
    return make(
        *(cl.clCreateBuffer, context or CONTEXT, flags, len(data) * 4, data.buffer_info()[0])
    )


def has_images() -> bool:
    """Whether the device has images."""
    return bool(answer(cl.clGetDeviceInfo, DEVICE, "CL_DEVICE_IMAGE_SUPPORT", ctypes.c_uint32))


def image(values: list[int] | None = None, width: int = 4, height: int = 4) -> int:
    """An image of pixels that have four 32-bit numbers, with these numbers or undefined ones."""
    form = OPENCL.get_struct("cl_image_format")(OPENCL["CL_RGBA"], OPENCL["CL_UNSIGNED_INT32"])
    desc = OPENCL.get_struct("cl_image_desc")(OPENCL["CL_MEM_OBJECT_IMAGE2D"], width, height)
    data = array("I", values or [])
    flags = OPENCL["CL_MEM_READ_WRITE"] | (OPENCL["CL_MEM_COPY_HOST_PTR"] if values else 0)
    pointers = (ctypes.addressof(form), ctypes.addressof(desc))
    host = data.buffer_info()[0] if values else None
    return make(cl.clCreateImage, CONTEXT, flags, *pointers, host)


def read(memory: int, count: int, queue: int = 0, offset: int = 0) -> list[int]:
    """The integers of a buffer."""
    data = array("i", [0] * count)
    place = data.buffer_info()[0]
    given = queue or QUEUE, memory, True, offset * 4, count * 4, place, 0, None, None
    ok(cl.clEnqueueReadBuffer(*given))
    return list(data)


def write(memory: int, values: list[int]) -> None:
    """Write integers to a buffer."""
    data = array("i", values)
    given = QUEUE, memory, True, 0, len(data) * 4, data.buffer_info()[0], 0, None, None
    ok(cl.clEnqueueWriteBuffer(*given))


def set_args(kernel: int, *arguments: Any) -> None:
    """Set arguments: a handle is an int, a number a tuple of it, local memory None and bytes."""
    for index, one in enumerate(arguments):
        if isinstance(one, tuple):
            ok(cl.clSetKernelArg(kernel, index, 4, uints(one[0])))
        elif isinstance(one, str):
            ok(cl.clSetKernelArg(kernel, index, int(one), None))
        else:
            ok(cl.clSetKernelArg(kernel, index, 8, words(one)))


def kernel(label: str, *arguments: Any, program: int = 0) -> int:
    """A kernel with arguments, as in `set_args`."""
    found = make(cl.clCreateKernel, program or PROGRAM, label.encode())
    set_args(found, *arguments)
    return found


def create(*queues: int, properties: tuple[int, ...] | None = None) -> int:
    """A command-buffer, by default on the usual queue."""
    listed = queues or (QUEUE,)
    given = None if properties is None else words(*properties)
    return make(cl.clCreateCommandBufferKHR, len(listed), words(*listed), given)


def launch(
    command_buffer: int,
    kernel: int,
    size: int | list[int],
    local: list[int] | None = None,
    offset: list[int] | None = None,
    after: tuple[int, ...] = (),
    queue: int | None = None,
    properties: tuple[int, ...] | None = None,
    handle: Any = None,
) -> int:
    """Record a launch, and return its sync-point."""
    point, sizes = out(ctypes.c_uint32), [size] if isinstance(size, int) else size
    ok(
        cl.clCommandNDRangeKernelKHR(
            command_buffer,
            queue,
            None if properties is None else words(*properties),
            kernel,
            len(sizes),
            None if offset is None else words(*offset),
            words(*sizes),
            None if local is None else words(*local),
            *waits(*after),
            point.at,
            None if handle is None else handle.at,
        )
    )
    return point.value


def waits(*points: int) -> tuple[int, Any]:
    """A list of sync-points: how many, and where."""
    return len(points), uints(*points) if points else None


def finalize(command_buffer: int) -> None:
    """Finalize a command-buffer."""
    ok(cl.clFinalizeCommandBufferKHR(command_buffer))


def enqueue(command_buffer: int, *queues: int, after: tuple[int, ...] = ()) -> int:
    """Enqueue a command-buffer, wait for it, and return its event."""
    event = out()
    ok(
        cl.clEnqueueCommandBufferKHR(
            *(len(queues), words(*queues) if queues else None, command_buffer),
            *(len(after), words(*after) if after else None, event.at),
        )
    )
    ok(cl.clWaitForEvents(1, words(event.value)))
    return event.value


def memory_argument(index: int, handle: int) -> Any:
    """A new argument that is a memory object."""
    return Argument(index, 8, words(handle))


def number_argument(index: int, value: int) -> Any:
    """A new argument that is a 32-bit number."""
    return Argument(index, 4, uints(value))


_KEPT: list[Any] = []
_SIZES = {"offset": "global_work_offset", "size": "global_work_size", "local": "local_work_size"}


def config(command: Any, *arguments: Any, **sizes: list[int]) -> Any:
    """A change of a launch. `sizes` are `offset`, `size` and `local`."""
    listed = (Argument * len(arguments))(*arguments)
    given = {"num_args": len(arguments), "arg_list": ctypes.addressof(listed)} if arguments else {}
    for label, numbers in sizes.items():
        given[_SIZES[label]] = words(*numbers)
    _KEPT.extend([listed, given])
    return Config(command=command, **given)


def update(command_buffer: int, *configs: Any) -> str:
    """Update launches, and return the name of the code."""
    types = uints(*[0] * len(configs))
    return name(
        cl.clUpdateMutableCommandsKHR(
            command_buffer, len(configs), types, words(*(ctypes.addressof(one) for one in configs))
        )
    )


CONTEXT = new_context()
QUEUE = new_queue()
PROGRAM = build_once(SOURCE, os.environ["KEPT"]) if "KEPT" in os.environ else build(SOURCE)
