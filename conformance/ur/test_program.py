"""Programs: from IL, binaries and native handles; build, compile, link, logs, constants."""

from __future__ import annotations

import ctypes
from typing import Any

from fairlead.conformance.arrays import handles, ints
from fairlead.conformance.checks import equal, expect, failed, rule, unsupported
from fairlead.conformance.ur import kernels, spirv
from fairlead.conformance.ur.calls import URCalls
from fairlead.conformance.ur.objects import COUNT, URObjects
from fairlead.conformance.ur.values import BufferValue
from fairlead.loader.ur.abi import UR


def run_store(make: URObjects, queue: int, program: int, buffer: int, value: int) -> list[int]:
    """Run a program's kernel `store` and return what it wrote."""
    make.launch(queue, make.kernel(program=program), BufferValue(buffer), ints([value]))
    return make.read(queue, buffer)


def query_binary(ur: URCalls, program: int) -> bytes:
    """Return the first binary of a program."""
    length = ur.info("urProgramGetInfo", program, "UR_PROGRAM_INFO_BINARY_SIZES")[0]
    room = ctypes.create_string_buffer(max(length, 1))
    places = (ctypes.c_void_p * 1)(ctypes.addressof(room))
    ur.ok(
        "urProgramGetInfo", program, UR["UR_PROGRAM_INFO_BINARIES"], ctypes.sizeof(places), places
    )
    return room.raw[:length]


def make_from_binary(ur: URCalls, make: URObjects, context: int, data: bytes) -> int:
    """Make a program from a binary."""
    room = ctypes.create_string_buffer(data, len(data))
    lengths = (ctypes.c_size_t * 1)(len(data))
    places = (ctypes.c_void_p * 1)(ctypes.addressof(room))
    given: tuple[Any, ...] = (context, 1, handles(make.device), lengths, places, None)
    return make.own("urProgramRelease", ur.new("urProgramCreateWithBinary", *given))


@rule("urProgramCreateWithIL", "a program from SPIR-V is built and run")
def test_il(ur: URCalls, make: URObjects, context: int, queue: int, buffer: int) -> None:
    program = make.il_program()
    ur.ok("urProgramBuild", context, program)
    equal(run_store(make, queue, program, buffer, 12), [12] * COUNT, "what its kernel wrote")


@rule("urProgramBuildExp", "builds for the devices that are named")
def test_build_exp(ur: URCalls, make: URObjects, queue: int, buffer: int) -> None:
    program = make.il_program()
    ur.ok("urProgramBuildExp", program, 1, handles(make.device), 0)
    equal(run_store(make, queue, program, buffer, 13), [13] * COUNT, "what its kernel wrote")


@rule("urProgramGetInfo", "the IL of a program from IL is that which it was made from")
def test_il_is_kept(ur: URCalls, make: URObjects) -> None:
    program = make.il_program()
    equal(
        ur.raw_info("urProgramGetInfo", program, "UR_PROGRAM_INFO_IL") == spirv.make_store(),
        True,
        "whether it is the same",
    )


@rule("urProgramLink", "a program that was compiled and linked can be run")
def test_compile_and_link(
    ur: URCalls, make: URObjects, context: int, queue: int, buffer: int
) -> None:
    program = make.il_program()
    ur.ok("urProgramCompile", context, program)
    kind = ur.info(
        "urProgramGetBuildInfo", program, "UR_PROGRAM_BUILD_INFO_BINARY_TYPE", make.device
    )
    linked = make.own("urProgramRelease", ur.new("urProgramLink", context, 1, handles(program)))
    equal(run_store(make, queue, linked, buffer, 14), [14] * COUNT, "what its kernel wrote")
    equal(
        kind, UR["UR_PROGRAM_BINARY_TYPE_COMPILED_OBJECT"], "the binary type after urProgramCompile"
    )


@rule("urProgramLinkExp", "a program that was compiled and linked for named devices can be run")
def test_compile_and_link_exp(
    ur: URCalls, make: URObjects, context: int, queue: int, buffer: int
) -> None:
    program = make.il_program()
    ur.ok("urProgramCompileExp", program, 1, handles(make.device), 0)
    given = context, 1, handles(make.device), 0, 1, handles(program), None
    linked = make.own("urProgramRelease", ur.new("urProgramLinkExp", *given))
    equal(run_store(make, queue, linked, buffer, 15), [15] * COUNT, "what its kernel wrote")


@rule("urProgramCreateWithIL", "what is not IL is refused here, or by urProgramBuild")
def test_no_il(ur: URCalls, make: URObjects, context: int) -> None:
    make.il_program()
    made = ctypes.c_void_p()
    data = b"this is not a module of any intermediate language at all, surely."
    code = ur.code("urProgramCreateWithIL", context, data, len(data), None, made)
    if code == "UR_RESULT_SUCCESS":
        make.own("urProgramRelease", made.value or 0)
        ur.fails("urProgramBuild", "PROGRAM_BUILD_FAILURE|INVALID_BINARY", context, made)
    else:
        equal(code, "UR_RESULT_ERROR_INVALID_BINARY", "the answer")


@rule("urProgramCreateWithBinary", "a program from its own binary is built and run")
def test_binary(
    ur: URCalls, make: URObjects, context: int, queue: int, program: int, buffer: int
) -> None:
    again = make_from_binary(ur, make, context, query_binary(ur, program))
    ur.ok("urProgramBuild", context, again)
    equal(run_store(make, queue, again, buffer, 16), [16] * COUNT, "what its kernel wrote")


@rule("urProgramCreateWithBinary", "INVALID_BINARY or INVALID_NATIVE_BINARY for what is none")
def test_no_binary(ur: URCalls, make: URObjects, context: int) -> None:
    data = ctypes.create_string_buffer(b"no binary" * 8)
    lengths = (ctypes.c_size_t * 1)(len(data))
    places = (ctypes.c_void_p * 1)(ctypes.addressof(data))
    given = context, 1, handles(make.device), lengths, places, None, ctypes.byref(ctypes.c_void_p())
    ur.fails("urProgramCreateWithBinary", "INVALID_BINARY|INVALID_NATIVE_BINARY", *given)


@rule("urProgramGetInfo", "a built program tells its kernels, devices and context")
def test_info(ur: URCalls, context: int, device: int, program: int) -> None:
    names = ur.info("urProgramGetInfo", program, "UR_PROGRAM_INFO_KERNEL_NAMES").split(";")
    if "store" not in names:
        failed("the kernel store among its kernels", names)
    equal(
        ur.info("urProgramGetInfo", program, "UR_PROGRAM_INFO_NUM_KERNELS"),
        len(names),
        "the number of kernels",
    )
    equal(
        ur.info("urProgramGetInfo", program, "UR_PROGRAM_INFO_NUM_DEVICES"),
        1,
        "the number of devices",
    )
    equal(ur.info("urProgramGetInfo", program, "UR_PROGRAM_INFO_DEVICES"), (device,), "the devices")
    equal(ur.info("urProgramGetInfo", program, "UR_PROGRAM_INFO_CONTEXT"), context, "the context")


@rule("urProgramGetBuildInfo", "a built program has the status SUCCESS and an executable")
def test_build_info(ur: URCalls, device: int, program: int) -> None:
    status = ur.info("urProgramGetBuildInfo", program, "UR_PROGRAM_BUILD_INFO_STATUS", device)
    equal(status, UR["UR_PROGRAM_BUILD_STATUS_SUCCESS"], "the status")
    kind = ur.info("urProgramGetBuildInfo", program, "UR_PROGRAM_BUILD_INFO_BINARY_TYPE", device)
    equal(kind, UR["UR_PROGRAM_BINARY_TYPE_EXECUTABLE"], "the binary type")


@rule("urProgramBuild", "PROGRAM_BUILD_FAILURE, and a log that says why")
def test_build_failure(ur: URCalls, make: URObjects, context: int, device: int) -> None:
    program = make.source_program(kernels.BROKEN, build=False)
    ur.fails("urProgramBuild", "PROGRAM_BUILD_FAILURE", context, program)
    log = ur.info("urProgramGetBuildInfo", program, "UR_PROGRAM_BUILD_INFO_LOG", device)
    if "undeclared" not in log:
        failed("a log that names `undeclared`", repr(log[:80]))
    status = ur.info("urProgramGetBuildInfo", program, "UR_PROGRAM_BUILD_INFO_STATUS", device)
    equal(status, UR["UR_PROGRAM_BUILD_STATUS_ERROR"], "the status")


@rule("urProgramBuild", "options are those that urProgramGetBuildInfo gives")
def test_options(ur: URCalls, make: URObjects, context: int, device: int) -> None:
    program = make.source_program(kernels.SOURCE, build=False)
    ur.ok("urProgramBuild", context, program, b"-DNAME=1")
    options = ur.info("urProgramGetBuildInfo", program, "UR_PROGRAM_BUILD_INFO_OPTIONS", device)
    if "-DNAME=1" not in options:
        failed("-DNAME=1", repr(options))


@rule("urProgramSetSpecializationConstants", "a constant that is set before the build is used")
def test_specialisation(
    ur: URCalls, make: URObjects, context: int, queue: int, buffer: int
) -> None:
    program = make.il_program()
    ur.require("UR_DEVICE_INFO_PROGRAM_SET_SPECIALIZATION_CONSTANTS")
    value = ctypes.c_int32(100)
    info = UR.get_struct("ur_specialization_constant_info_t")(
        spirv.SPEC_ID, 4, ctypes.addressof(value)
    )
    ur.ok("urProgramSetSpecializationConstants", program, 1, ctypes.byref(info))
    ur.ok("urProgramBuild", context, program)
    equal(run_store(make, queue, program, buffer, 5), [105] * COUNT, "value and constant")


@rule(
    "urProgramSetSpecializationConstants", "INVALID_SPEC_ID for an id that the module does not have"
)
def test_unknown_specialisation(ur: URCalls, make: URObjects) -> None:
    program = make.il_program()
    ur.require("UR_DEVICE_INFO_PROGRAM_SET_SPECIALIZATION_CONSTANTS")
    value = ctypes.c_int32(1)
    info = UR.get_struct("ur_specialization_constant_info_t")(4711, 4, ctypes.addressof(value))
    code = ur.table.urProgramSetSpecializationConstants(program, 1, ctypes.byref(info))
    expect(UR, code, "UR_RESULT_ERROR_INVALID_SPEC_ID")


@rule("urProgramSetSpecializationConstants", "INVALID_VALUE for a size that is not the constant's")
def test_specialisation_of_wrong_size(ur: URCalls, make: URObjects) -> None:
    program = make.il_program()
    ur.require("UR_DEVICE_INFO_PROGRAM_SET_SPECIALIZATION_CONSTANTS")
    value = ctypes.c_int64(1)
    info = UR.get_struct("ur_specialization_constant_info_t")(
        spirv.SPEC_ID, 1, ctypes.addressof(value)
    )
    code = ur.table.urProgramSetSpecializationConstants(program, 1, ctypes.byref(info))
    expect(UR, code, "UR_RESULT_ERROR_INVALID_VALUE")


@rule("urProgramGetFunctionPointer", "FUNCTION_ADDRESS_NOT_AVAILABLE or an address for a kernel")
def test_function_pointer(ur: URCalls, device: int, program: int) -> None:
    pointer = ctypes.c_void_p()
    code = ur.table.urProgramGetFunctionPointer(device, program, b"store", ctypes.byref(pointer))
    ur.check_supported("urProgramGetFunctionPointer", code)
    if code == 0 and not pointer.value:
        failed("an address", "NULL")
    expect(UR, code, "UR_RESULT_SUCCESS", "UR_RESULT_ERROR_FUNCTION_ADDRESS_NOT_AVAILABLE")


@rule("urProgramCreateWithIL", "SPIR-V is taken where UR_DEVICE_INFO_IL_VERSION names it")
def test_il_version(ur: URCalls, make: URObjects, device: int) -> None:
    if not ur.info("urDeviceGetInfo", device, "UR_DEVICE_INFO_IL_VERSION"):
        unsupported("the device names no IL")
    make.il_program()


# Variables of programs


def make_with_variable(ur: URCalls, make: URObjects, context: int) -> int:
    """Make a program with the variable `variable`."""
    ur.require("UR_DEVICE_INFO_GLOBAL_VARIABLE_SUPPORT")
    program = make.source_program(kernels.VARIABLE_SOURCE, build=False)
    ur.ok("urProgramBuild", context, program, b"-cl-std=CL3.0")
    return program


@rule("urProgramGetGlobalVariablePointer", "gives the variable's size and address")
def test_variable_pointer(ur: URCalls, make: URObjects, context: int, device: int) -> None:
    program, size = make_with_variable(ur, make, context), ctypes.c_size_t()
    place = ctypes.c_void_p()
    ur.ok("urProgramGetGlobalVariablePointer", device, program, b"variable", size, place)
    equal((size.value, bool(place.value)), (4, True), "the size, and whether there is an address")


@rule(
    "urEnqueueDeviceGlobalVariableRead",
    "gives what the program or urEnqueueDeviceGlobalVariableWrite put in",
)
def test_variable(ur: URCalls, make: URObjects, context: int, queue: int) -> None:
    program, out = make_with_variable(ur, make, context), ints([0])
    seen = []
    for value in (0, 8):
        if value:
            given = queue, program, b"variable", True, 4, 0, ints([value]), 0, None, None
            ur.ok("urEnqueueDeviceGlobalVariableWrite", *given)
        ur.ok("urEnqueueDeviceGlobalVariableRead", queue, program, b"variable", True, 4, 0, out)
        seen.append(out[0])
    equal(seen, [5, 8], "what was read")
