"""Programs and kernels: building, binaries, native handles, arguments, ND-ranges."""

from __future__ import annotations

import ctypes
import sys

import pytest

from fairlead.conformance.arrays import NO_EVENTS, handles, sizes
from fairlead.conformance.checks import equal, rule
from fairlead.conformance.pi.objects import PIObjects, PIPointer, codes
from fairlead.conformance.shared_cases import global_ids
from fairlead.loader.pi.abi import PI

LAUNCH = "piEnqueueKernelLaunch"


@rule("piProgramBuild", "PI_ERROR_BUILD_PROGRAM_FAILURE for a wrong program, whose log says why")
def test_build_failure(objects: PIObjects) -> None:
    program = objects.unbuilt("kernel void broken(global int *a) { a[0] = no_such_name; }")
    codes(
        objects.pi.piProgramBuild(program, 1, handles(objects.device), b"", None, None),
        "BUILD_PROGRAM_FAILURE",
    )
    log = objects.info(
        "piProgramGetBuildInfo", program, objects.device, "PI_PROGRAM_BUILD_INFO_LOG"
    )
    equal(b"no_such_name" in log, True, "the log names what is wrong")
    status = objects.info(
        "piProgramGetBuildInfo", program, objects.device, "PI_PROGRAM_BUILD_INFO_STATUS"
    )
    equal(
        int.from_bytes(status, sys.byteorder, signed=True),
        PI["PI_PROGRAM_BUILD_STATUS_ERROR"],
        "the status",
    )


@rule("piProgramGetBuildInfo", "says that a program is built, and an executable")
def test_build_info(objects: PIObjects) -> None:
    names = ("STATUS", "BINARY_TYPE")
    answers = [
        objects.number(
            "piProgramGetBuildInfo",
            objects.program,
            objects.device,
            f"PI_PROGRAM_BUILD_INFO_{name}",
        )
        for name in names
    ]
    equal(
        answers,
        [PI["PI_PROGRAM_BUILD_STATUS_SUCCESS"], PI["PI_PROGRAM_BINARY_TYPE_EXECUTABLE"]],
        "status and type",
    )


@rule("piProgramBuild", "passes options on")
def test_options(objects: PIObjects, queue: int) -> None:
    program = objects.unbuilt("kernel void option(global int *a) { a[0] = OPTION; }")
    objects.call("piProgramBuild", program, 1, handles(objects.device), b"-DOPTION=42", None, None)
    memory, kernel = (
        objects.usm("shared", [0]),
        objects.make("piKernelCreate", program, b"option", ...),
    )
    objects.set_argument(kernel, 0, PIPointer(memory))
    objects.launch(queue, kernel, 1)
    equal(objects.numbers(queue, memory, 1), [42], "the memory")


@rule("piProgramLink", "links what piProgramCompile has compiled")
def test_compile_and_link(objects: PIObjects, queue: int) -> None:
    parts = []
    for source in (
        "int twice(int x) { return 2 * x; }",
        "int twice(int); kernel void use(global int *a) { a[0] = twice(a[0]); }",
    ):
        parts.append(objects.unbuilt(source))
        objects.call(
            "piProgramCompile",
            parts[-1],
            1,
            handles(objects.device),
            b"",
            0,
            None,
            None,
            None,
            None,
        )
    devices = (1, handles(objects.device))
    program = objects.make(
        "piProgramLink", objects.context, *devices, b"", 2, handles(*parts), None, None, ...
    )
    memory, kernel = (
        objects.usm("shared", [21]),
        objects.make("piKernelCreate", program, b"use", ...),
    )
    objects.set_argument(kernel, 0, PIPointer(memory))
    objects.launch(queue, kernel, 1)
    equal(objects.numbers(queue, memory, 1), [42], "the memory")


@rule("piProgramCreateWithBinary", "a program of the binaries of another")
def test_binary(objects: PIObjects, queue: int) -> None:
    lengths = objects.number("piProgramGetInfo", objects.program, "PI_PROGRAM_INFO_BINARY_SIZES")
    binary = (ctypes.c_ubyte * lengths)()
    place = handles(ctypes.addressof(binary))
    objects.call(
        "piProgramGetInfo", objects.program, PI["PI_PROGRAM_INFO_BINARIES"], 8, place, None
    )
    status = ctypes.c_int32(-99)
    arguments = (1, handles(objects.device), sizes(lengths), place, 0, None, ctypes.byref(status))
    program = objects.make("piProgramCreateWithBinary", objects.context, *arguments, ...)
    objects.call("piProgramBuild", program, 1, handles(objects.device), b"", None, None)
    memory, kernel = (
        objects.usm("shared", [1] * 4),
        objects.make("piKernelCreate", program, b"increment", ...),
    )
    objects.set_argument(kernel, 0, PIPointer(memory))
    objects.launch(queue, kernel, 4)
    equal(
        (status.value, objects.numbers(queue, memory, 4)),
        (0, [2] * 4),
        "the binary's status, and the memory",
    )


@rule("piProgramCreate", "an error if there is no IL")
def test_no_il(bare_objects: PIObjects) -> None:
    program = ctypes.c_void_p()
    code = bare_objects.pi.piProgramCreate(bare_objects.context, None, 0, ctypes.byref(program))
    codes(code, "INVALID_VALUE", "INVALID_BINARY", "UNKNOWN", "COMPILER_NOT_AVAILABLE")


@rule("piextProgramGetNativeHandle", "is that of the program that it was made of")
def test_native_program(objects: PIObjects) -> None:
    native = objects.native_program("kernel void nothing() {}")
    program = objects.make("piextProgramCreateWithNativeHandle", native, objects.context, True, ...)
    equal(objects.make("piextProgramGetNativeHandle", program, ...), native, "the native handle")


@rule("piKernelCreate", "PI_ERROR_INVALID_KERNEL_NAME for a kernel that there is not")
def test_kernel_name(objects: PIObjects) -> None:
    kernel = ctypes.c_void_p()
    codes(
        objects.pi.piKernelCreate(objects.program, b"no_such_kernel", ctypes.byref(kernel)),
        "INVALID_KERNEL_NAME",
    )


@rule("piKernelGetInfo", "says name, arguments, program and context")
def test_kernel_info(objects: PIObjects) -> None:
    kernel = objects.kernel("add")
    name = objects.info("piKernelGetInfo", kernel, "PI_KERNEL_INFO_FUNCTION_NAME")
    numbers = [
        objects.number("piKernelGetInfo", kernel, f"PI_KERNEL_INFO_{what}")
        for what in ("NUM_ARGS", "PROGRAM", "CONTEXT")
    ]
    equal((name, numbers), (b"add\0", [2, objects.program, objects.context]), "the answers")


@rule(
    "piextKernelGetNativeHandle",
    "piextKernelCreateWithNativeHandle gives a kernel of the same native handle",
)
def test_native_kernel(objects: PIObjects) -> None:
    native = objects.make("piextKernelGetNativeHandle", objects.kernel("increment"), ...)
    again = objects.make(
        "piextKernelCreateWithNativeHandle", native, objects.context, objects.program, False, ...
    )
    equal(objects.make("piextKernelGetNativeHandle", again, ...), native, "the native handle")


@rule(
    "piKernelGetGroupInfo", "PI_KERNEL_GROUP_INFO_COMPILE_WORK_GROUP_SIZE is what the source says"
)
def test_group_info(objects: PIObjects) -> None:
    kernel, name = objects.kernel("groups_of_four"), "PI_KERNEL_GROUP_INFO_COMPILE_WORK_GROUP_SIZE"
    answer = objects.info("piKernelGetGroupInfo", kernel, objects.device, name)
    equal(list((ctypes.c_size_t * 3).from_buffer_copy(answer)), [4, 1, 1], "the size")


#: Index, size and value of an argument of `add(global int *, int)`, and the expected code.
ARGUMENTS = {
    "index": (2, 4, ctypes.byref(ctypes.c_int32()), ("INVALID_ARG_INDEX",)),
    "size": (1, 8, ctypes.byref(ctypes.c_int64()), ("INVALID_ARG_SIZE",)),
    "no-value": (1, 4, None, ("INVALID_ARG_VALUE", "INVALID_VALUE")),
}


@rule("piKernelSetArg", "refuses wrong indices, sizes and values")
@pytest.mark.parametrize("case", ARGUMENTS)
def test_argument_errors(objects: PIObjects, case: str) -> None:
    index, size, value, expected = ARGUMENTS[case]
    codes(objects.pi.piKernelSetArg(objects.kernel("add"), index, size, value), *expected)


@rule("piKernelSetArg", "NULL with a size is local memory")
def test_local_memory(objects: PIObjects, queue: int) -> None:
    memory = objects.usm("shared", [0] * 4)
    kernel = objects.kernel("local_sum", PIPointer(memory))
    objects.call("piKernelSetArg", kernel, 1, 64 * 4, None)
    objects.set_argument(kernel, 2, ctypes.c_int32(64))
    objects.call(LAUNCH, queue, kernel, 1, sizes(0), sizes(4), sizes(4), 0, None, None)
    equal(objects.numbers(queue, memory, 4), [sum(range(64))] * 4, "the sums")


@rule("piextKernelSetArgPointer", "takes a pointer into the middle of USM, and NULL")
def test_pointers(objects: PIObjects, queue: int) -> None:
    memory, out = objects.usm("shared", [0] * 8), objects.usm("shared", [5] * 2)
    objects.launch(queue, objects.kernel("increment", PIPointer(memory + 8)), 4)
    kernel = objects.kernel("is_null", PIPointer(out))
    objects.call("piextKernelSetArgPointer", kernel, 1, 8, ctypes.byref(ctypes.c_uint64(0)))
    objects.launch(queue, kernel, 2)
    found = objects.numbers(queue, memory, 8), objects.numbers(queue, out, 2)
    equal(
        found, ([0, 0, 1, 1, 1, 1, 0, 0], [1, 1]), "the memory, and whether the kernel found NULL"
    )


@rule(LAUNCH, "PI_ERROR_INVALID_KERNEL_ARGS if an argument has not been set")
def test_arguments_not_set(objects: PIObjects, queue: int) -> None:
    code = objects.pi.piEnqueueKernelLaunch(
        queue, objects.kernel("add"), 1, sizes(0), sizes(1), None, 0, None, None
    )
    codes(code, "INVALID_KERNEL_ARGS")


@rule(LAUNCH, "PI_ERROR_INVALID_WORK_DIMENSION if there are none, or more than 3")
@pytest.mark.parametrize("dimensions", [0, 4])
def test_dimensions(objects: PIObjects, queue: int, dimensions: int) -> None:
    kernel, four = (
        objects.kernel("increment", PIPointer(objects.usm("shared", [0] * 4))),
        sizes(1, 1, 1, 1),
    )
    code = objects.pi.piEnqueueKernelLaunch(
        queue, kernel, dimensions, sizes(0, 0, 0, 0), four, None, 0, None, None
    )
    codes(code, "INVALID_WORK_DIMENSION", "INVALID_VALUE")


@rule(LAUNCH, "an error if the local size is not what the source requires")
def test_local_size(objects: PIObjects, queue: int) -> None:
    kernel = objects.kernel("groups_of_four", PIPointer(objects.usm("shared", [0] * 8)))
    code = objects.pi.piEnqueueKernelLaunch(
        queue, kernel, 1, sizes(0), sizes(8), sizes(2), 0, None, None
    )
    codes(code, "INVALID_WORK_GROUP_SIZE")


@rule(LAUNCH, "uses offset, sizes and dimensions")
@pytest.mark.parametrize("dimensions", [1, 2, 3])
def test_range(objects: PIObjects, queue: int, dimensions: int) -> None:
    size, offset, expected = global_ids(dimensions)
    memory = objects.usm("shared", [0] * len(expected))
    arguments = (dimensions, sizes(*offset), sizes(*size), None, 0, None, None)
    objects.call(LAUNCH, queue, objects.kernel("ids", PIPointer(memory)), *arguments)
    equal(objects.numbers(queue, memory, len(expected)), expected, "the ids")


@rule(LAUNCH, "global_work_offset may be NULL")
def test_no_offset(objects: PIObjects, queue: int) -> None:
    memory = objects.usm("shared", [0] * 4)
    objects.call(
        LAUNCH, queue, objects.kernel("ids", PIPointer(memory)), 1, None, sizes(4), None, *NO_EVENTS
    )
    equal(objects.numbers(queue, memory, 4), [0, 1, 2, 3], "the ids")


@rule(LAUNCH, "a kernel has the arguments of the time of the call")
def test_arguments_of_each(objects: PIObjects, queue: int) -> None:
    memory = objects.usm("shared", [0] * 8)
    kernel = objects.kernel("add", PIPointer(memory))
    for value in (1, 20, 300):
        objects.set_argument(kernel, 1, ctypes.c_int32(value))
        objects.launch(queue, kernel, 8)
    equal(objects.numbers(queue, memory, 8), [321] * 8, "the memory")
