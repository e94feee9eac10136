"""A program on a Unified Runtime adapter: a launch, and a command-buffer that is updated.

`python level_zero_program.py ADAPTER` prints what memory holds on the first device after each step.
Modules are OpenCL C text, which the adapter gives to the Level Zero driver as a native binary.
"""

from __future__ import annotations

import ctypes
import sys
from ctypes import byref
from typing import Any

from fairlead.loader.ur.abi import UR
from fairlead.loader.ur.adapters import load
from fairlead.loader.ur.discovery import PluginCandidate
from helpers.ur_calls import Calls, array

SOURCE = b"kernel void add(global int *out, int value) { out[get_global_id(0)] += value; }"


def arguments(pointer: Any, value: ctypes.c_int) -> Any:
    """Return the arguments of the kernel."""
    rows = (UR.get_struct("ur_exp_kernel_arg_properties_t") * 2)()
    for index, row in enumerate(rows):
        row.stype, row.index = UR["UR_STRUCTURE_TYPE_EXP_KERNEL_ARG_PROPERTIES"], index
    rows[0].type, rows[0].size = UR["UR_EXP_KERNEL_ARG_TYPE_POINTER"], 8
    rows[0].value.pointer = pointer.value
    rows[1].type, rows[1].size = UR["UR_EXP_KERNEL_ARG_TYPE_VALUE"], 4
    rows[1].value.value = ctypes.addressof(value)
    return rows


def update(command: Any, kernel: Any, value: ctypes.c_int) -> Any:
    """Return an update of the value, and what has to live as long."""
    argument = UR.get_struct("ur_exp_command_buffer_update_value_arg_desc_t")()
    argument.stype = UR["UR_STRUCTURE_TYPE_EXP_COMMAND_BUFFER_UPDATE_VALUE_ARG_DESC"]
    argument.argIndex, argument.argSize = 1, 4
    argument.pNewValueArg = ctypes.addressof(value)
    change = UR.get_struct("ur_exp_command_buffer_update_kernel_launch_desc_t")()
    change.stype = UR["UR_STRUCTURE_TYPE_EXP_COMMAND_BUFFER_UPDATE_KERNEL_LAUNCH_DESC"]
    change.hCommand, change.hNewKernel, change.newWorkDim = command.value, kernel.value, 1
    change.numNewValueArgs, change.pNewValueArgList = 1, ctypes.addressof(argument)
    return change, argument


def main(path: str) -> None:
    """Run it on the first device of an adapter."""
    adapter = load(PluginCandidate(path, "test", backend="level_zero"))
    ur, device = Calls(adapter.table), adapter.devices[0].handle
    context = ur.make("urContextCreate", 1, array(device))
    queue = ur.make("urQueueCreate", context, device)
    text = ctypes.create_string_buffer(SOURCE, len(SOURCE))
    sizes, texts = (ctypes.c_size_t * 1)(len(SOURCE)), array(ctypes.addressof(text))
    create = "urProgramCreateWithBinary", context, 1, array(device), sizes, texts, None
    program = ur.make(*create)
    ur.ok("urProgramBuild", context, program)
    kernel = ur.make("urKernelCreate", program, b"add")
    memory = ur.make("urUSMSharedAlloc", context, device, None, None, 256)
    numbers = (ctypes.c_int * 64).from_address(memory.value or 0)
    numbers[:] = [0] * 64
    three = ctypes.c_size_t * 3
    shape = 1, three(0, 0, 0), three(32, 1, 1), three(8, 1, 1)
    value = ctypes.c_int(5)
    given = 2, arguments(memory, value)

    def show() -> None:
        ur.ok("urQueueFinish", queue)
        print(numbers[0], numbers[31], numbers[32])

    ur.ok("urEnqueueKernelLaunchWithArgsExp", queue, kernel, *shape, *given)
    show()
    desc = UR.get_struct("ur_exp_command_buffer_desc_t")(
        UR["UR_STRUCTURE_TYPE_EXP_COMMAND_BUFFER_DESC"], None, True, False, False
    )
    buffer = ur.make("urCommandBufferCreateExp", context, device, byref(desc))
    command, first, append = ctypes.c_void_p(), ctypes.c_uint32(), "AppendKernelLaunchWithArgs"
    value.value = 100
    launch = f"urCommandBuffer{append}Exp", buffer, kernel, *shape, *given, 0, None
    ur.ok(*launch, 0, None, 0, None, byref(first), None, byref(command))
    ur.ok(*launch, 1, byref(first), 0, None, None, None, None)
    ur.ok("urCommandBufferFinalizeExp", buffer)
    for _ in range(3):
        ur.ok("urEnqueueCommandBufferExp", queue, buffer)
    show()
    value.value = 1000
    change, kept = update(command, kernel, value)
    ur.ok("urCommandBufferUpdateKernelLaunchExp", buffer, 1, byref(change))
    ur.ok("urEnqueueCommandBufferExp", queue, buffer)
    show()
    del kept
    ur.ok("urCommandBufferReleaseExp", buffer)
    for name, handle in (("Kernel", kernel), ("Program", program), ("Queue", queue)):
        ur.ok(f"ur{name}Release", handle)
    ur.ok("urUSMFree", context, memory)
    ur.ok("urContextRelease", context)


if __name__ == "__main__":
    main(sys.argv[1])
