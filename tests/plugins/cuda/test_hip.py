"""The adapter for HIP, where HIP differs from CUDA. The other tests here run on both."""

from __future__ import annotations

import ctypes
import struct
from typing import Any

import pytest
from helpers.hip import bundle
from helpers.launching import last_error
from helpers.ur_calls import Calls, array

from fairlead.conformance.ur.values import LocalValue
from fairlead.loader.hip.abi import HipError
from fairlead.loader.ur.abi import UR
from fairlead.loader.ur.devices import PluginDevice

from .conftest import COUNT, SIZE, SOURCE, Adapted, Knobs, Work, only_hip

pytestmark = only_hip

PLACES = b"""
kernel void places(global int *out, int width, char gap) {
    size_t x = get_global_id(0), y = get_global_id(1), z = get_global_id(2);
    out[x + width * (y + width * z)] = (int)(x + 10 * y + 100 * z) + N;
}
"""


def _build(work: Work, source: bytes, options: bytes | None = None) -> int:
    made = work.ur.make("urProgramCreateWithIL", work.context, source, len(source))
    work.ur.ok("urProgramBuild", work.context, made, options)
    return made.value or 0


def _kernel(work: Work, program: int, name: bytes) -> int:
    return work.ur.make("urKernelCreate", program, name).value or 0


def test_launches_have_global_offsets(work: Work) -> None:
    kernel, out = _kernel(work, _build(work, PLACES, b"-DN=5"), b"places"), work.memory()
    work.put(out, bytes(SIZE))
    offset, size = ((ctypes.c_size_t * 3)(*sizes) for sizes in ((1, 2, 3), (2, 1, 1)))
    rows = work.arguments(out, ctypes.c_int32(4), ctypes.c_int8(0))
    given = work.queue, kernel, 3, offset, size, None, *rows, None, 0, None, None
    work.ur.ok("urEnqueueKernelLaunchWithArgsExp", *given)
    expected = [0] * COUNT
    expected[1 + 4 * (2 + 4 * 3)], expected[2 + 4 * (2 + 4 * 3)] = 326, 327
    assert work.numbers(out) == expected


def test_offsets_of_recorded_launches_can_be_updated(work: Work) -> None:
    """The offset is an argument of the node, so an update has nothing else to change."""
    from .test_command_buffers import Updatable

    out, buffer = work.memory(), Updatable(work)
    work.put(out, bytes(SIZE))
    command = buffer.launch(work.kernel("store"), out, ctypes.c_int32(1))[2]
    buffer.finalize()
    assert buffer.update(command, size=8, offset=16) == "SUCCESS"
    buffer.run()
    assert work.numbers(out) == [0] * 16 + [1] * 8 + [0] * (COUNT - 24)


def test_places_in_local_memory_begin_behind_what_the_kernel_has(adapted: Adapted) -> None:
    objects, kernels = adapted.module("code_objects"), adapted.module("kernels")
    plain = objects.CodeObjectParameter
    known = objects.CodeObjectKernel(
        "f", (plain(0, 4, "dynamic_shared_pointer"), plain(4, 4, "by_value")), 8, 28, 256, None, 64
    )
    image = adapted.module("device_code").HipCode(objects.CodeObject(b"", "", {"f": known}))
    kernel = object.__new__(kernels.CuKernel)
    kernel.name, kernel.parameter_sizes = "f", image.list_parameter_sizes("f", 0)
    argument = kernels.URKernelArgument
    two = {index: argument(argument.LOCAL, 20, None) for index in range(2)}
    packed = kernel.pack(two, image)
    places = [ctypes.c_uint32.from_address(address).value for address in packed.pointers]
    assert (places, packed.shared) == ([32, 64], 84 - 28)


def _binary(work: Work, data: bytes) -> int:
    """Return a program of a binary."""
    room = ctypes.create_string_buffer(data, len(data))
    lengths = (ctypes.c_size_t * 1)(len(data))
    places = (ctypes.c_void_p * 1)(ctypes.addressof(room))
    given = work.context, 1, array(work.device), lengths, places, None
    return work.ur.make("urProgramCreateWithBinary", *given).value or 0


def test_a_bundle_runs_its_code_for_the_device(work: Work, adapted: Adapted) -> None:
    """The other part is no code object, so it would not do."""
    comgr, name = adapted.module("compilers").find_compiler("OpenCL C"), "amdgcn-amd-amdhsa--"
    data = comgr.compile_opencl(SOURCE, f"{name}gfx90a")
    other = f"hipv4-{name}gfx1030"
    program = _binary(work, bundle(**{other: b"other", f"hipv4-{name}gfx90a:xnack-": data}))
    work.ur.ok("urProgramBuild", work.context, program)
    out = work.memory()
    work.launch(_kernel(work, program, b"store"), out, ctypes.c_int32(6))
    assert work.numbers(out) == [6] * COUNT


def test_hip_c_goes_to_its_compiler(
    work: Work, adapted: Adapted, monkeypatch: pytest.MonkeyPatch
) -> None:
    """hipRTC and clang are tested in tests/plugins/hip. Here another one gives what runs."""
    compilers, given = adapted.module("compilers"), list[tuple[bytes, str, str]]()
    comgr = compilers.find_compiler("OpenCL C")

    class Compiler:
        name = "a compiler of HIP C++"

        def compile_hip(self, source: bytes, architecture: str, options: str) -> bytes:
            given.append((source, architecture, options))
            return comgr.compile_opencl(SOURCE, "amdgcn-amd-amdhsa--gfx90a")

    monkeypatch.setitem(compilers.COMPILERS, "HIP C++", (lambda: None, Compiler))
    program, out = _build(work, b"__global__ void store() {}", b"-DN=1"), work.memory()
    work.launch(_kernel(work, program, b"store"), out, ctypes.c_int32(8))
    assert work.numbers(out) == [8] * COUNT
    ((source, architecture, options),) = given
    assert source.startswith(b"__global__") and options == "-DN=1"
    assert architecture == "gfx90a:sramecc+:xnack-"


def test_a_binary_is_given_back_unchanged(work: Work, adapted: Adapted) -> None:
    """What the driver loads is changed, so a second program of it would lack its parameters."""
    comgr = adapted.module("compilers").find_compiler("OpenCL C")
    data = comgr.compile_opencl(SOURCE, "amdgcn-amd-amdhsa--gfx90a")
    program = _binary(work, data)
    work.ur.ok("urProgramBuild", work.context, program)
    back = ctypes.create_string_buffer(len(data))
    pointers = (ctypes.c_void_p * 1)(ctypes.addressof(back))
    name = UR["UR_PROGRAM_INFO_BINARIES"]
    work.ur.ok("urProgramGetInfo", program, name, 8, pointers)
    assert back.raw == data
    local = LocalValue(32), ctypes.c_int8(3), LocalValue(32)
    out = work.memory()
    work.launch(_kernel(work, program, b"local_sum"), out, *local, local=8)
    assert work.numbers(out) == [sum(range(8)) + 8 * 3] * COUNT


def test_kernels_are_known_from_the_code_object(work: Work) -> None:
    program = _build(work, SOURCE)
    size, name = ctypes.c_size_t(), UR["UR_PROGRAM_INFO_KERNEL_NAMES"]
    work.ur.ok("urProgramGetInfo", program, name, 0, None, size)
    text = ctypes.create_string_buffer(size.value)
    work.ur.ok("urProgramGetInfo", program, name, size.value, text)
    assert {b"axpy", b"local_sum"} < set(text.value.split(b";"))
    kernel = _kernel(work, program, b"axpy")
    assert work.ur.number("urKernelGetInfo", kernel, "UR_KERNEL_INFO_NUM_ARGS") == 3
    made = ctypes.c_void_p()
    given = program, b"no_such_kernel", ctypes.byref(made)
    assert work.ur("urKernelCreate", *given) == "INVALID_KERNEL_NAME"


def test_kernels_of_foreign_modules_are_refused(work: Work) -> None:
    program, native, made = _build(work, SOURCE), ctypes.c_void_p(), ctypes.c_void_p()
    work.ur.ok("urProgramGetNativeHandle", program, native)
    foreign = work.ur.make("urProgramCreateWithNativeHandle", native.value, work.context)
    assert work.ur("urKernelCreate", foreign, b"store", made) == "UNSUPPORTED_FEATURE"
    kernel = _kernel(work, program, b"store")
    work.ur.ok("urKernelGetNativeHandle", kernel, native)
    given = native.value, work.context, program, None, ctypes.byref(made)
    assert work.ur("urKernelCreateWithNativeHandle", *given) == "UNSUPPORTED_FEATURE"


def test_a_bundle_without_the_devices_processor_is_a_build_failure(work: Work) -> None:
    name = b"hipv4-amdgcn-amd-amdhsa--gfx1100"
    data = b"__CLANG_OFFLOAD_BUNDLE__" + struct.pack("<4Q", 1, 0, 0, len(name)) + name
    program = _binary(work, data)
    assert work.ur("urProgramBuild", work.context, program) == "PROGRAM_BUILD_FAILURE"


@pytest.mark.parametrize("source", [b"__global__ void f() {}", b"kernel void f() {}"])
def test_without_a_compiler_there_are_binaries_only(
    work: Work, adapted: Adapted, monkeypatch: pytest.MonkeyPatch, source: bytes
) -> None:
    compilers = adapted.module("compilers").COMPILERS
    for language in compilers:
        monkeypatch.setitem(compilers, language, (lambda: None,))
    made = work.ur.make("urProgramCreateWithIL", work.context, source, len(source))
    assert work.ur("urProgramBuild", work.context, made) == "COMPILER_NOT_AVAILABLE"
    assert "clang with rocm-device-libs" in last_error(work.ur)[0]


def test_cooperative_launches_need_the_function(
    ur: Calls, device: PluginDevice, adapted: Adapted
) -> None:
    found = ur.number("urDeviceGetInfo", device.handle, "UR_DEVICE_INFO_KERNEL_LAUNCH_CAPABILITIES")
    expected = UR["UR_KERNEL_LAUNCH_PROPERTIES_FLAG_COOPERATIVE"]
    assert found == (expected if adapted.driver.generation == 6 else 0)


def test_a_stream_of_the_program_becomes_a_queue(work: Work, adapted: Adapted) -> None:
    stream, table = ctypes.c_void_p(), adapted.driver.table
    assert table.hipStreamCreateWithFlags(ctypes.byref(stream), 0) == 0
    given = stream.value, work.context, work.device, None
    queue = work.ur.make("urQueueCreateWithNativeHandle", *given)
    out, value = work.memory(), b"\7\0\0\0"
    work.ur.ok("urEnqueueUSMFill", queue, out, 4, value, SIZE)
    work.ur.ok("urQueueFinish", queue)
    assert work.numbers(out) == [7] * COUNT
    work.ur.ok("urQueueRelease", queue)
    assert table.hipStreamDestroy(stream) == 0


def test_a_host_task_that_the_driver_refuses_is_forgotten(
    work: Work, adapted: Adapted, fake: Knobs
) -> None:
    api, function = adapted.module("api"), "hipStreamAddCallback"
    if adapted.driver.generation == 6:
        function = "hipLaunchHostFunc"
    task = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(lambda data: None)
    fake.fail_exported(function, 2)
    given = work.queue, task, None, None, 0, None, None
    assert work.ur("urEnqueueHostTaskExp", *given) == "OUT_OF_DEVICE_MEMORY"
    fake.fail_exported(function, 0)
    work.ur.ok("urEnqueueHostTaskExp", *given)
    work.ur.ok("urQueueFinish", work.queue)
    assert api._tasks == {}


class _Device:
    """A device, and the driver's functions for the device of a thread."""

    def __init__(self, native: int) -> None:
        self.native, self.table, self.now, self.set = native, self, 0, list[int]()

    def hipGetDevice(self, place: Any) -> int:
        place._obj.value = self.now
        return 0

    def hipSetDevice(self, number: int) -> int:
        self.now = number
        self.set.append(number)
        return 0 if number < 4 else 101


def test_a_thread_gets_its_device_back(adapted: Adapted) -> None:
    api = adapted.module("api").API
    same, other = _Device(0), _Device(1)
    with api.make_current(same):
        assert same.now == 0
    with pytest.raises(ZeroDivisionError), api.make_current(other):
        assert other.now == 1
        raise ZeroDivisionError
    assert (same.set, other.set) == ([], [1, 0])
    with pytest.raises(HipError, match="hipSetDevice"), api.make_current(_Device(4)):
        pass
