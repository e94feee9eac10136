"""Kernels: names, queries, execution infos, native copies."""

from __future__ import annotations

import ctypes

from fairlead.conformance.arrays import ints
from fairlead.conformance.checks import equal, failed, rule, unsupported
from fairlead.conformance.ur.calls import URCalls
from fairlead.conformance.ur.objects import COUNT, URObjects
from fairlead.conformance.ur.values import BufferValue, PointerValue
from fairlead.loader.ur.abi import UR


@rule("urKernelCreate", "INVALID_KERNEL_NAME for a kernel that the program does not have")
def test_unknown_name(ur: URCalls, program: int) -> None:
    ur.fails("urKernelCreate", "INVALID_KERNEL_NAME", program, b"no_such_kernel", ctypes.c_void_p())


@rule("urKernelCreate", "INVALID_KERNEL_NAME for an empty name")
def test_empty_name(ur: URCalls, program: int) -> None:
    ur.fails("urKernelCreate", "INVALID_KERNEL_NAME", program, b"", ctypes.c_void_p())


@rule(
    "urKernelCreate",
    "INVALID_PROGRAM_EXECUTABLE, or INVALID_PROGRAM, for a program that is not built",
)
def test_not_built(ur: URCalls, make: URObjects) -> None:
    program = make.il_program()
    code = ur.code("urKernelCreate", program, b"store", ctypes.c_void_p())
    if code == "UR_RESULT_SUCCESS":
        failed("an error", code)


@rule("urKernelGetInfo", "name, number of arguments, program and context")
def test_info(ur: URCalls, make: URObjects, context: int, program: int) -> None:
    kernel = make.kernel()
    found = {
        name: ur.info("urKernelGetInfo", kernel, f"UR_KERNEL_INFO_{name}")
        for name in ("FUNCTION_NAME", "NUM_ARGS", "CONTEXT", "PROGRAM")
    }
    equal(
        found,
        {"FUNCTION_NAME": "store", "NUM_ARGS": 2, "CONTEXT": context, "PROGRAM": program},
        "what it says of itself",
    )


@rule("urKernelGetGroupInfo", "a work-group size that the device has, and its preferred multiple")
def test_group_info(ur: URCalls, make: URObjects, device: int) -> None:
    kernel = make.kernel()
    largest = ur.info(
        "urKernelGetGroupInfo", kernel, "UR_KERNEL_GROUP_INFO_WORK_GROUP_SIZE", device
    )
    limit = ur.info("urDeviceGetInfo", device, "UR_DEVICE_INFO_MAX_WORK_GROUP_SIZE")
    if not 1 <= largest <= limit:
        failed(f"1 to {limit}", largest)
    if (
        ur.info(
            "urKernelGetGroupInfo",
            kernel,
            "UR_KERNEL_GROUP_INFO_PREFERRED_WORK_GROUP_SIZE_MULTIPLE",
            device,
        )
        < 1
    ):
        failed("a preferred multiple of 1 or more", 0)


@rule("urKernelGetSubGroupInfo", "a largest sub-group")
def test_sub_group_info(ur: URCalls, make: URObjects, device: int) -> None:
    if not ur.info("urDeviceGetInfo", device, "UR_DEVICE_INFO_SUB_GROUP_SIZES_INTEL"):
        unsupported("the device has no sub-groups")
    kernel = make.kernel()
    if (
        ur.info(
            "urKernelGetSubGroupInfo", kernel, "UR_KERNEL_SUB_GROUP_INFO_MAX_SUB_GROUP_SIZE", device
        )
        < 1
    ):
        failed("1 or more", 0)


@rule("urKernelSetExecInfo", "USM_INDIRECT_ACCESS can be set, and the kernel runs")
def test_indirect_access(ur: URCalls, make: URObjects, queue: int, memory: int) -> None:
    kernel, yes = make.kernel(), ctypes.c_bool(True)
    query = UR["UR_KERNEL_EXEC_INFO_USM_INDIRECT_ACCESS"]
    ur.ok("urKernelSetExecInfo", kernel, query, 1, None, yes)
    make.launch(queue, kernel, PointerValue(memory), ints([3]))
    equal(make.get(queue, memory), [3] * COUNT, "what the kernel wrote")


@rule("urKernelSetExecInfo", "USM_PTRS can be set, and the kernel runs")
def test_pointers(ur: URCalls, make: URObjects, queue: int, memory: int) -> None:
    kernel, places = make.kernel(), (ctypes.c_void_p * 1)(memory)
    ur.ok(
        "urKernelSetExecInfo",
        kernel,
        UR["UR_KERNEL_EXEC_INFO_USM_PTRS"],
        ctypes.sizeof(places),
        None,
        places,
    )
    make.launch(queue, kernel, PointerValue(memory), ints([4]))
    equal(make.get(queue, memory), [4] * COUNT, "what the kernel wrote")


@rule("urKernelCreate", "two kernels of one name have arguments of their own")
def test_two_kernels(make: URObjects, queue: int) -> None:
    first, second = make.buffer(), make.buffer()
    one, two = make.kernel(), make.kernel()
    make.launch(queue, one, BufferValue(first), ints([1]))
    make.launch(queue, two, BufferValue(second), ints([2]))
    equal(
        (make.read(queue, first), make.read(queue, second)),
        ([1] * COUNT, [2] * COUNT),
        "what the kernels wrote",
    )


@rule("urKernelSuggestMaxCooperativeGroupCount", "1 or more")
def test_cooperative(ur: URCalls, make: URObjects, device: int) -> None:
    count = ctypes.c_uint32()
    size = (ctypes.c_size_t * 3)(1, 1, 1)
    ur.ok("urKernelSuggestMaxCooperativeGroupCount", make.kernel(), device, 1, size, 0, count)
    if count.value < 1:
        failed("1 or more", count.value)
