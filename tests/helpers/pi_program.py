"""A program that uses PI as a client of 2024 does.

It runs unchanged on a PI plugin, and on a table that is served from a UR adapter. `run` returns its
results as plain values that can be compared. `infos` returns the raw answers of every info query.
As a script it opens the library that it is given, as a "plugin" or an "adapter", and prints both as
JSON.
"""

from __future__ import annotations

import ctypes
import json
import sys
import threading
from collections.abc import Callable
from typing import Any

from fairlead.loader.base import library
from fairlead.loader.base.query import decode_text, query, query_handles
from fairlead.loader.base.table import DispatchTable
from fairlead.loader.pi.abi import PI, PIError, check, serve
from fairlead.loader.ur import binding

COUNT = 1024
FATAL = {
    "PI_DEVICE_INFO_PARTITION_TYPE"
}  # the plugin of 2024 aborts the process when it is asked for one of these
KERNEL = b"""
kernel void scale(global const int *in, global int *out, int factor, local int *scratch) {
    scratch[get_local_id(0)] = in[get_global_id(0)];
    barrier(CLK_LOCAL_MEM_FENCE);
    out[get_global_id(0)] = factor * scratch[get_local_id(0)] + (int)get_global_id(0);
}
"""


class Client:
    """PI calls that raise PIError."""

    def __init__(self, pi: DispatchTable) -> None:
        self.pi = pi

    def __getattr__(self, name: str) -> Callable[..., None]:
        function = getattr(self.pi, name)

        def call(*arguments: Any) -> None:
            check(function(*arguments), name)

        return call

    def make(self, name: str, *arguments: Any) -> int:
        """The handle or pointer that a function writes where its argument is `...`."""
        made = ctypes.c_uint64()
        getattr(self, name)(
            *(ctypes.byref(made) if argument is ... else argument for argument in arguments)
        )
        return made.value

    def info(self, name: str, *arguments: Any) -> bytes:
        """The answer of an info query; the last argument is the constant's name."""
        return query(getattr(self.pi, name), name, check, *arguments[:-1], PI[arguments[-1]])

    def number(self, name: str, *arguments: Any) -> int:
        """The same, of a number."""
        return int.from_bytes(self.info(name, *arguments), "little")


def first_device(client: Client) -> tuple[int, int]:
    """The first platform that has a CPU, and it."""
    for platform in query_handles(client.pi.piPlatformsGet, "piPlatformsGet", check):
        for device in query_handles(
            client.pi.piDevicesGet, "piDevicesGet", check, platform, PI["PI_DEVICE_TYPE_CPU"]
        ):
            return platform, device
    raise LookupError("no platform has a CPU")


def native_program(context: int) -> int:
    """Make a cl_program of the kernel's source, for a cl_context.

    PI itself takes SPIR-V and binaries.
    """
    create = ctypes.CDLL("libOpenCL.so.1").clCreateProgramWithSource
    create.argtypes = [
        ctypes.c_void_p,
        ctypes.c_uint32,
        ctypes.c_void_p,
        ctypes.c_void_p,
        ctypes.c_void_p,
    ]
    create.restype = ctypes.c_void_p
    code = ctypes.c_int32()
    program = create(context, 1, ctypes.byref(ctypes.c_char_p(KERNEL)), None, ctypes.byref(code))
    assert program, f"clCreateProgramWithSource: {code.value}"
    return program


def make_queue(client: Client, context: int, device: int) -> int:
    flags = PI["PI_QUEUE_FLAG_OUT_OF_ORDER_EXEC_MODE_ENABLE"] | PI["PI_QUEUE_FLAG_PROFILING_ENABLE"]
    properties = (ctypes.c_uint64 * 3)(PI["PI_QUEUE_FLAGS"], flags, 0)
    return client.make("piextQueueCreate", context, device, properties, ...)


def build(client: Client, context: int, device: int) -> int:
    """The program, built for the device."""
    native = native_program(client.make("piextContextGetNativeHandle", context, ...))
    program = client.make("piextProgramCreateWithNativeHandle", native, context, True, ...)
    client.piProgramBuild(
        program, 1, ctypes.byref(ctypes.c_void_p(device)), b"-cl-mad-enable", None, None
    )
    return program


def events(*given: int) -> tuple[int, Any]:
    return len(given), (ctypes.c_void_p * len(given))(*given)


def launch(client: Client, queue: int, kernel: int, *wait: int) -> int:
    sizes = (ctypes.c_size_t * 1)(COUNT), (ctypes.c_size_t * 1)(64)
    return client.make("piEnqueueKernelLaunch", queue, kernel, 1, None, *sizes, *events(*wait), ...)


def set_arguments(client: Client, kernel: int, source: int, target: int, factor: int) -> None:
    for index, pointer in enumerate((source, target)):
        client.piextKernelSetArgPointer(kernel, index, 8, ctypes.byref(ctypes.c_uint64(pointer)))
    client.piKernelSetArg(kernel, 2, 4, ctypes.byref(ctypes.c_int32(factor)))
    client.piKernelSetArg(kernel, 3, 4 * 64, None)


def run(pi: DispatchTable) -> dict[str, Any]:
    """A kernel over USM and one over buffers, with all that is around it."""
    client = Client(pi)
    found: dict[str, Any] = {}
    platform, device = first_device(client)
    found["platform"] = decode_text(
        client.info("piPlatformGetInfo", platform, "PI_PLATFORM_INFO_NAME")
    )
    found["device"] = decode_text(client.info("piDeviceGetInfo", device, "PI_DEVICE_INFO_NAME"))
    for kind in ("CPU", "GPU", "ACC", "ALL", "DEFAULT"):
        count = ctypes.c_uint32(99)
        code = pi.piDevicesGet(platform, PI[f"PI_DEVICE_TYPE_{kind}"], 0, None, ctypes.byref(count))
        found[f"devices {kind}"] = code, count.value
    context = client.make(
        "piContextCreate", None, 1, ctypes.byref(ctypes.c_void_p(device)), None, None, ...
    )
    queue = make_queue(client, context, device)
    found["queue"] = client.number("piQueueGetInfo", queue, "PI_QUEUE_INFO_PROPERTIES")
    program = build(client, context, device)
    found["build"] = [
        client.number("piProgramGetBuildInfo", program, device, f"PI_PROGRAM_BUILD_INFO_{name}")
        for name in ("STATUS", "BINARY_TYPE")
    ]
    kernel = client.make("piKernelCreate", program, b"scale", ...)
    found["kernel"] = decode_text(
        client.info("piKernelGetInfo", kernel, "PI_KERNEL_INFO_FUNCTION_NAME")
    )
    found["arguments"] = client.number("piKernelGetInfo", kernel, "PI_KERNEL_INFO_NUM_ARGS")
    found.update(over_usm(client, context, device, queue, kernel))
    for name, what in (
        ("buffers", over_buffers),
        ("command-buffer", over_command_buffer),
        ("odds", odds),
    ):
        # The plugin of 2024 fails on a driver of 2026, which lacks
        # clCreateBufferWithPropertiesINTEL.
        try:
            found[name] = what(client, context, device, queue, kernel)
        except PIError as error:
            found[name] = str(error.code)
    for name, handle in (
        ("Kernel", kernel),
        ("Program", program),
        ("Queue", queue),
        ("Context", context),
    ):
        getattr(client, f"pi{name}Release")(handle)
    return found


def over_usm(client: Client, context: int, device: int, queue: int, kernel: int) -> dict[str, Any]:
    """Memset → memcpy → kernel → memcpy, each after the other by events alone."""
    size = 4 * COUNT
    shared = client.make("piextUSMSharedAlloc", ..., context, device, None, size, 64)
    private = client.make("piextUSMDeviceAlloc", ..., context, device, None, size, 64)
    seen = (ctypes.c_int32 * COUNT)()
    cleared = client.make("piextUSMEnqueueMemset", queue, shared, 0x01, size, 0, None, ...)
    copied = client.make(
        "piextUSMEnqueueMemcpy", queue, False, private, shared, size, *events(cleared), ...
    )
    set_arguments(client, kernel, private, shared, 3)
    indirect = ctypes.c_uint32(1)
    client.piKernelSetExecInfo(kernel, PI["PI_USM_INDIRECT_ACCESS"], 4, ctypes.byref(indirect))
    done = launch(client, queue, kernel, copied)
    client.piextUSMEnqueueMemcpy(queue, True, seen, shared, size, *events(done), None)
    client.piEventsWait(*events(cleared, copied, done))
    times = [
        client.number("piEventGetProfilingInfo", done, f"PI_PROFILING_INFO_COMMAND_{at}")
        for at in ("QUEUED", "SUBMIT", "START", "END")
    ]
    kind = client.number("piextUSMGetMemAllocInfo", context, shared, "PI_MEM_ALLOC_TYPE")
    found = {
        "usm": [
            kind == PI["PI_MEM_TYPE_SHARED"],
            list(seen) == [3 * 0x01010101 + at for at in range(COUNT)],
        ],
        "times ascend": times == sorted(times) and times[3] > 0,
        "status": client.number("piEventGetInfo", done, "PI_EVENT_INFO_COMMAND_EXECUTION_STATUS"),
        "command": client.number("piEventGetInfo", done, "PI_EVENT_INFO_COMMAND_TYPE"),
    }
    for event in (cleared, copied, done):
        client.piEventRelease(event)
    for pointer in (shared, private):
        client.piextUSMFree(context, pointer)
    return found


def over_command_buffer(
    client: Client, context: int, device: int, queue: int, kernel: int
) -> dict[str, Any]:
    """A copy and a kernel, recorded once and submitted twice."""
    source, target = (
        client.make("piextUSMSharedAlloc", ..., context, device, None, 4 * COUNT, 0)
        for _ in range(2)
    )
    (ctypes.c_int32 * COUNT).from_address(source)[:] = range(COUNT)
    desc = PI.get_struct("pi_ext_command_buffer_desc")()
    buffer = client.make("piextCommandBufferCreate", context, device, ctypes.byref(desc), ...)
    points = (ctypes.c_uint32 * 2)()
    client.piextCommandBufferMemcpyUSM(buffer, target, source, 4 * COUNT, 0, None, points)
    set_arguments(client, kernel, target, source, 2)
    sizes = (ctypes.c_size_t * 1)(COUNT), (ctypes.c_size_t * 1)(64)
    client.piextCommandBufferNDRangeKernel(
        buffer, kernel, 1, (ctypes.c_size_t * 1)(), *sizes, 1, points, ctypes.byref(points, 4)
    )
    client.piextCommandBufferFinalize(buffer)
    first = client.make("piextEnqueueCommandBuffer", buffer, queue, 0, None, ...)
    second = client.make("piextEnqueueCommandBuffer", buffer, queue, *events(first), ...)
    client.piEventsWait(*events(second))
    right = list((ctypes.c_int32 * COUNT).from_address(source)) == [
        2 * (3 * at) + at for at in range(COUNT)
    ]
    client.piextCommandBufferRelease(buffer)
    for pointer in (source, target):
        client.piextUSMFree(context, pointer)
    return {"right": right, "points differ": points[0] != points[1]}


def odds(client: Client, context: int, device: int, queue: int, kernel: int) -> dict[str, Any]:
    """Sub-devices, the timers, some infos, and what is refused."""
    parts = (ctypes.c_uint64 * 4)(PI["PI_DEVICE_PARTITION_BY_COUNTS"], 1, 0, 0)
    times = (ctypes.c_uint64 * 2)()
    client.piGetDeviceAndHostTimer(device, times, ctypes.byref(times, 8))
    program = client.number("piKernelGetInfo", kernel, "PI_KERNEL_INFO_PROGRAM")
    return {
        "parts": len(
            query_handles(client.pi.piDevicePartition, "piDevicePartition", check, device, parts)
        ),
        "timers": all(times),
        "group": client.number(
            "piKernelGetGroupInfo", kernel, device, "PI_KERNEL_GROUP_INFO_WORK_GROUP_SIZE"
        ),
        "context": client.number("piContextGetInfo", context, "PI_CONTEXT_INFO_NUM_DEVICES"),
        "queue is the context's": client.number("piQueueGetInfo", queue, "PI_QUEUE_INFO_CONTEXT")
        == context,
        "no such kernel": client.pi.piKernelCreate(
            program, b"none", ctypes.byref(ctypes.c_void_p())
        ),
    }


def beyond(pi: DispatchTable) -> dict[str, Any]:
    """Do what aborts the plugin of 2024: callbacks, user events, and the partition of a root
    device."""
    client = Client(pi)
    platform, device = first_device(client)
    context = client.make(
        "piContextCreate", None, 1, ctypes.byref(ctypes.c_void_p(device)), None, None, ...
    )
    queue = make_queue(client, context, device)
    done, told = threading.Event(), []

    @ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int32, ctypes.c_void_p)
    def notify(event: int, status: int, data: int) -> None:
        told.append((status, data))
        done.set()

    memory = client.make("piextUSMHostAlloc", ..., context, None, 64, 8)
    event = client.make("piextUSMEnqueueMemset", queue, memory, 7, 64, 0, None, ...)
    client.piEventSetCallback(
        event, PI["PI_EVENT_COMPLETE"], ctypes.cast(notify, ctypes.c_void_p), 42
    )
    client.piQueueFinish(queue)
    return {
        "called": [done.wait(60), told],
        "user event": pi.piEventCreate(context, ctypes.byref(ctypes.c_void_p())),
        "partition": client.info("piDeviceGetInfo", device, "PI_DEVICE_INFO_PARTITION_TYPE").hex(),
        "context's platform": client.number("piContextGetInfo", context, "PI_CONTEXT_INFO_PLATFORM")
        == platform,
        "atomics": client.number(
            "piContextGetInfo", context, "PI_EXT_CONTEXT_INFO_ATOMIC_MEMORY_ORDER_CAPABILITIES"
        ),
    }


def over_buffers(
    client: Client, context: int, device: int, queue: int, kernel: int
) -> dict[str, Any]:
    """A rectangle of a buffer that copies the host's memory, a part of it, and a map."""
    rows = (ctypes.c_uint8 * 64)(*range(64))
    flags = PI["PI_MEM_FLAGS_ACCESS_RW"] | PI["PI_MEM_FLAGS_HOST_PTR_COPY"]
    buffer = client.make("piMemBufferCreate", context, flags, 64, rows, ..., None)
    corner, block = (ctypes.c_size_t * 3)(2, 1, 0), (ctypes.c_size_t * 3)(3, 2, 1)
    out = (ctypes.c_uint8 * 6)()
    origin = (ctypes.c_size_t * 3)()
    client.piEnqueueMemBufferReadRect(
        queue, buffer, True, corner, origin, block, 8, 0, 3, 0, out, 0, None, None
    )
    part = (ctypes.c_uint8 * 2)(7, 9)
    client.piEnqueueMemBufferFill(queue, buffer, part, 2, 0, 8, 0, None, None)
    client.piQueueFinish(queue)
    mapped = client.make(
        "piEnqueueMemBufferMap", queue, buffer, True, PI["PI_MAP_READ"], 0, 64, 0, None, None, ...
    )
    start = list((ctypes.c_uint8 * 10).from_address(mapped))
    client.piEnqueueMemUnmap(queue, buffer, mapped, 0, None, None)
    client.piQueueFinish(queue)
    size = client.number("piMemGetInfo", buffer, "PI_MEM_SIZE")
    client.piMemRelease(buffer)
    return {"rectangle": list(out), "filled": start, "buffer size": size}


def infos(pi: DispatchTable) -> dict[str, tuple[int, str]]:
    """Return every info of the device and its platform: the pi_result and the answer as hexadecimal
    digits."""
    client = Client(pi)
    platform, device = first_device(client)
    found = {}
    for group, function, handle in (
        ("pi_platform_info", pi.piPlatformGetInfo, platform),
        ("pi_device_info", pi.piDeviceGetInfo, device),
    ):
        for value, name in PI.groups[group].items():
            if name in FATAL:
                continue
            size = ctypes.c_size_t()
            code = function(handle, value, 0, None, ctypes.byref(size))
            answer = ctypes.create_string_buffer(max(size.value, 1))
            code = code or function(handle, value, size.value, answer, None)
            found[name] = code, "" if code else answer.raw[: size.value].hex()
    return found


def main(kind: str, path: str, *folders: str) -> None:
    opened = library.open_with_siblings(path, folders)
    assert opened, path
    pi = (
        serve(binding.bind_adapter(opened).table)
        if kind == "adapter"
        else binding.bind_plugin(opened).table
    )
    found: dict[str, Any] = {"run": run(pi), "infos": infos(pi)}
    if kind == "adapter":
        found["beyond"] = beyond(pi)
    torn = ctypes.c_bool()
    found["end"] = [pi.piTearDown(ctypes.byref(torn)), torn.value]
    if kind == "adapter":
        found["after"] = pi.piPlatformsGet(0, None, None)
    print(json.dumps(found))


if __name__ == "__main__":
    main(*sys.argv[1:])
