"""Transfers of buffers by the reference adapter."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator

import pytest
from helpers.memory_calls import content, finish, new_buffer, new_queue, opencl, struct
from helpers.tables import table
from helpers.ur_calls import Calls, array

from fairlead.icd.abi import OPENCL
from fairlead.loader.ur.devices import PluginDevice

pytestmark = pytest.mark.usefixtures("begins_in")

SIZE = 4096
DATA = bytes(range(256)) * 16


@pytest.fixture(params=["in order", "out of order"])
def queue(
    request: pytest.FixtureRequest, ur: Calls, context: int, device: PluginDevice
) -> Iterator[int]:
    """A queue of either kind, with profiling."""
    flags = ["OUT_OF_ORDER_EXEC_MODE_ENABLE"] if request.param == "out of order" else []
    made = new_queue(ur, context, device.handle, "PROFILING_ENABLE", *flags)
    yield made.value or 0
    ur.ok("urQueueRelease", made)


@pytest.fixture
def buffer(ur: Calls, context: int) -> Iterator[ctypes.c_void_p]:
    made = new_buffer(ur, context, SIZE, DATA)
    yield made
    ur.ok("urMemRelease", made)


def test_nothing_to_transfer_has_its_place_in_the_order(
    ur: Calls, queue: int, buffer: ctypes.c_void_p
) -> None:
    event = ctypes.c_void_p()
    for name, arguments in (
        ("Read", (buffer, True, SIZE, 0, b"x")),
        ("Write", (buffer, False, 0, 0, b"x")),
        ("Copy", (buffer, buffer, 0, 8, 0)),
    ):
        ur.ok(f"urEnqueueMemBuffer{name}", queue, *arguments, 0, None, ctypes.byref(event))
        finish(ur, event, f"MEM_BUFFER_{name.upper()}")
    ur.ok("urEnqueueMemBufferRead", queue, buffer, True, 0, 0, b"x")


# fills


@table("count", [1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096])
def test_fills_with_patterns_of_any_power_of_two(
    ur: Calls, context: int, queue: int, count: int
) -> None:
    pattern = bytes((7 * number + count) % 251 for number in range(count))
    buffer = new_buffer(ur, context, 3 * SIZE, b"\0" * 3 * SIZE)
    event = ctypes.c_void_p()
    ur.ok("urEnqueueMemBufferFill", queue, buffer, pattern, count, SIZE, SIZE, 0, None, event)
    finish(ur, event, "MEM_BUFFER_FILL")
    arguments = ur, queue, buffer, 3 * SIZE
    assert content(*arguments) == b"\0" * SIZE + pattern * (SIZE // count) + b"\0" * SIZE
    ur.ok("urEnqueueMemBufferFill", queue, buffer, pattern, count, 0, 3 * SIZE)
    ur.ok("urQueueFinish", queue)
    assert content(ur, queue, buffer, 3 * SIZE) == pattern * (3 * SIZE // count)


# device global variables

SOURCE = (
    b"global int answer[4] = {1, 2, 3, 4}; kernel void use(global int *out) { "
    b"out[get_global_id(0)] = answer[get_global_id(0)]; }"
)
WITHOUT_GLOBALS = b"kernel void use(global int *out) { out[get_global_id(0)] = 1; }"


def test_device_global_variables_where_the_driver_reaches_them(
    ur: Calls, context: int, device: PluginDevice, queue: int
) -> None:
    table, native_context = opencl(ur, context)
    native_device = ur.make("urDeviceGetNativeHandle", device.handle)
    code, room = ctypes.c_int32(), ctypes.c_size_t()
    most = OPENCL["CL_DEVICE_MAX_GLOBAL_VARIABLE_SIZE"]
    assert table.clGetDeviceInfo(native_device, most, 8, ctypes.byref(room), None) == 0
    source = SOURCE if room.value else WITHOUT_GLOBALS  # PoCL 7.1 has no such variables
    given = native_context, 1, array(ctypes.cast(ctypes.c_char_p(source), ctypes.c_void_p)), None
    native = table.clCreateProgramWithSource(*given, ctypes.byref(code))
    if (
        table.clBuildProgram(native, 1, ctypes.byref(native_device), b"-cl-std=CL3.0", None, None)
        != 0
    ):
        passed = native, 1, ctypes.byref(native_device), b"-cl-std=CL2.0", None, None
        assert table.clBuildProgram(*passed) == 0
    owned = struct(
        "ur_program_native_properties_t", "PROGRAM_NATIVE_PROPERTIES", isNativeHandleOwned=True
    )
    program = ur.make("urProgramCreateWithNativeHandle", native, context, owned)
    numbers, event = (ctypes.c_int32 * 2)(50, 60), ctypes.c_void_p()
    arguments = (queue, program, b"answer", False, 8, 4, numbers, 0, None, ctypes.byref(event))
    written = ur("urEnqueueDeviceGlobalVariableWrite", *arguments)
    if "Intel" in device.platform.name:
        assert written == "SUCCESS"
        finish(ur, event, "DEVICE_GLOBAL_VARIABLE_WRITE")
        back = (ctypes.c_int32 * 4)()
        arguments = (queue, program, b"answer", True, 16, 0, back, 0, None, ctypes.byref(event))
        ur.ok("urEnqueueDeviceGlobalVariableRead", *arguments)
        finish(ur, event, "DEVICE_GLOBAL_VARIABLE_READ")
        assert list(back) == [1, 50, 60, 4]
        arguments = queue, program, b"none", True, 4, 0, back
        assert ur("urEnqueueDeviceGlobalVariableRead", *arguments) == "INVALID_VALUE"
    else:
        assert written == "UNSUPPORTED_FEATURE"
