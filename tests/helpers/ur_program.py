"""A program for any Unified Runtime adapter on OpenCL: USM, a copy, a kernel, profiling.

It uses only our tables. As a script, in a process of its own, `ur_program.py LIBRARY [PLATFORM]`
prints its results as JSON.
"""

from __future__ import annotations

import ctypes
import json
import sys
from typing import Any

from fairlead.api import make_nested_environment
from fairlead.icd.abi import OPENCL
from fairlead.loader.base.memory import read_word
from fairlead.loader.base.table import DispatchTable
from fairlead.loader.ur.abi import UR, check
from fairlead.loader.ur.adapters import load
from fairlead.loader.ur.devices import PluginDevice
from fairlead.loader.ur.discovery import PluginCandidate

COUNT = 1000
SOURCE = b"kernel void triple(global int *a) { a[get_global_id(0)] *= 3; }"


class Handle(ctypes.c_void_p):
    """A handle that a function gives back; true once it has."""


def call(table: DispatchTable, routine: str, *arguments: Any) -> None:
    """Call, and raise for anything but success."""
    check(getattr(table, routine)(*arguments), routine)


def native_program(table: DispatchTable, device: PluginDevice, context: Any) -> int:
    """Make a cl_program of the context's OpenCL objects, which the adapter imports.

    The adapter itself takes SPIR-V, which not every driver does.
    """
    native_context, native_device = ctypes.c_void_p(), ctypes.c_void_p()
    call(table, "urContextGetNativeHandle", context, ctypes.byref(native_context))
    call(table, "urDeviceGetNativeHandle", device.handle, ctypes.byref(native_device))
    cl = DispatchTable(OPENCL, read_word(native_context.value or 0) or 0)
    code, source = ctypes.c_int32(), (ctypes.c_char_p * 1)(SOURCE)
    program = cl.clCreateProgramWithSource(native_context, 1, source, None, ctypes.byref(code))
    assert code.value == 0, code.value
    assert cl.clBuildProgram(program, 1, ctypes.byref(native_device), None, None, None) == 0
    return program


def run(device: PluginDevice) -> dict[str, Any]:
    """The program on one device; what it came to."""
    table, device_handle = device.platform.plugin.table, ctypes.c_void_p(device.handle)
    context, queue, program, kernel = Handle(), Handle(), Handle(), Handle()
    call(table, "urContextCreate", 1, ctypes.byref(device_handle), None, ctypes.byref(context))
    properties = UR.get_struct("ur_queue_properties_t")(
        stype=UR["UR_STRUCTURE_TYPE_QUEUE_PROPERTIES"], flags=UR["UR_QUEUE_FLAG_PROFILING_ENABLE"]
    )
    call(
        table,
        "urQueueCreate",
        context,
        device_handle,
        ctypes.byref(properties),
        ctypes.byref(queue),
    )
    size = COUNT * 4
    memory, event = ctypes.c_void_p(), Handle()
    call(table, "urUSMDeviceAlloc", context, device_handle, None, None, size, ctypes.byref(memory))
    numbers, back = (ctypes.c_int32 * COUNT)(*range(COUNT)), (ctypes.c_int32 * COUNT)()
    call(table, "urEnqueueUSMMemcpy", queue, True, memory, numbers, size, 0, None, None)
    native = native_program(table, device, context)
    owned = UR.get_struct("ur_program_native_properties_t")(
        stype=UR["UR_STRUCTURE_TYPE_PROGRAM_NATIVE_PROPERTIES"], isNativeHandleOwned=True
    )
    call(
        table,
        "urProgramCreateWithNativeHandle",
        native,
        context,
        ctypes.byref(owned),
        ctypes.byref(program),
    )
    call(table, "urKernelCreate", program, b"triple", ctypes.byref(kernel))
    argument = UR.get_struct("ur_exp_kernel_arg_properties_t")(
        stype=UR["UR_STRUCTURE_TYPE_EXP_KERNEL_ARG_PROPERTIES"],
        type=UR["UR_EXP_KERNEL_ARG_TYPE_POINTER"],
        index=0,
        size=8,
    )
    argument.value.pointer = memory
    global_size, offset = (ctypes.c_size_t * 3)(COUNT, 1, 1), (ctypes.c_size_t * 3)()
    launch = (
        queue,
        kernel,
        1,
        offset,
        global_size,
        None,
        1,
        ctypes.byref(argument),
        None,
        0,
        None,
        ctypes.byref(event),
    )
    call(table, "urEnqueueKernelLaunchWithArgsExp", *launch)
    call(table, "urEnqueueUSMMemcpy", queue, True, back, memory, size, 1, ctypes.byref(event), None)
    times = [ctypes.c_uint64(), ctypes.c_uint64()]
    for name, time in zip(
        ("UR_PROFILING_INFO_COMMAND_START", "UR_PROFILING_INFO_COMMAND_END"), times, strict=True
    ):
        call(table, "urEventGetProfilingInfo", event, UR[name], 8, ctypes.byref(time), None)
    unsupported = table.urIPCGetMemHandleExp(context, memory, None, None)
    call(table, "urUSMFree", context, memory)
    for routine, handle in (
        ("urEventRelease", event),
        ("urKernelRelease", kernel),
        ("urProgramRelease", program),
        ("urQueueRelease", queue),
        ("urContextRelease", context),
    ):
        call(table, routine, handle)
    return {
        "right": list(back) == [3 * number for number in range(COUNT)],
        "nanoseconds": times[1].value - times[0].value,
        "unsupported": unsupported,
    }


def main(library: str, platform: str = "") -> None:
    adapter = load(
        PluginCandidate(library, "test", backend="opencl"), environment=make_nested_environment()
    )
    answer: dict[str, Any] = {
        "platforms": [p.name for p in adapter.platforms],
        "devices": [f"{d.backend} {d.type} {d.name}" for d in adapter.devices],
        "layout": adapter.binding.layout,
    }
    chosen = [device for device in adapter.devices if platform and platform in device.platform.name]
    if chosen:
        answer.update(run(chosen[0]))
    adapter.close()
    print(json.dumps(answer))


if __name__ == "__main__":
    main(*sys.argv[1:])
