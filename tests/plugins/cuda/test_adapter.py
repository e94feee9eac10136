"""The adapters for CUDA and HIP: queues, memory, programs and launches, with results that were
computed."""

from __future__ import annotations

import ctypes
import os
import shutil
import struct
import subprocess
import threading
from pathlib import Path

import pytest
from helpers.ur_calls import Calls, array

from fairlead.conformance.ur.values import BufferValue, LocalValue
from fairlead.loader.ur.abi import UR
from fairlead.loader.ur.devices import PluginDevice
from fairlead.loader.ur.plugin import Plugin
from fairlead.plugins.cuda.devices import MOST_STREAMS

from .conftest import COUNT, SIZE, Adapted, Knobs, Work, only_cuda, only_hip

HostTask = ctypes.CFUNCTYPE(None, ctypes.c_void_p)


def test_the_device_is_a_gpu(ur: Calls, device: PluginDevice) -> None:
    ask = "urDeviceGetInfo", device.handle
    assert ur.number(*ask, "UR_DEVICE_INFO_TYPE") == UR["UR_DEVICE_TYPE_GPU"]
    assert ur.number(*ask, "UR_DEVICE_INFO_MAX_WORK_GROUP_SIZE") == 1024
    assert ur.number(*ask, "UR_DEVICE_INFO_GLOBAL_MEM_FREE") <= ur.number(
        *ask, "UR_DEVICE_INFO_GLOBAL_MEM_SIZE"
    )


def test_two_local_arguments_do_not_overlap(work: Work) -> None:
    out, local = work.memory(), (LocalValue(32), ctypes.c_int8(3), LocalValue(32))
    work.launch(work.kernel("local_sum"), out, *local, local=8)
    assert work.numbers(out) == [sum(range(8)) + 8 * 3] * COUNT


@only_cuda
def test_a_kernel_asks_for_more_local_memory(work: Work) -> None:
    """Than 48 KiB. The next launch with little does not take it back."""
    ur, kernel, out = work.ur, work.kernel("local_sum"), work.memory()
    most = ur.number("urDeviceGetInfo", work.device, "UR_DEVICE_INFO_LOCAL_MEM_SIZE")
    assert most > 48 << 10
    for size in (60_000, 32, 60_000):
        work.launch(kernel, out, LocalValue(size), ctypes.c_int8(3), LocalValue(32), local=8)
        assert work.numbers(out) == [sum(range(8)) + 8 * 3] * COUNT

    def count_groups(dynamic: int) -> int:
        local, count = (ctypes.c_size_t * 1)(8), ctypes.c_uint32()
        given = kernel, work.device, 1, local, dynamic, ctypes.byref(count)
        ur.ok("urKernelSuggestMaxCooperativeGroupCount", *given)
        return count.value

    assert count_groups(0) > count_groups(most // 4) > count_groups(most) > 0
    assert count_groups(most + 1) == 0


@pytest.mark.parametrize("length", [1, 2, 3, 4, 8, 12, 16, 64, 128, 256])
def test_a_fill_repeats_a_pattern_of_any_length(work: Work, length: int) -> None:
    size = length * 6
    memory, pattern = work.memory(size=size + 16), bytes(range(1, 1 + length % 256)) or b"\7" * 256
    pattern = (pattern * length)[:length]
    work.put(memory, bytes(size + 16))
    work.ur.ok("urEnqueueUSMFill", work.queue, memory + 8, length, pattern, size)
    assert work.get(memory, size + 16) == bytes(8) + pattern * 6 + bytes(8)


@pytest.mark.parametrize(("length", "waits"), [(4, 0), (256, 1)])
def test_the_host_waits_while_a_pattern_of_its_own_is_copied(
    work: Work, fake: Knobs, length: int, waits: int
) -> None:
    memory, before = work.memory(), fake.calls("StreamSynchronize")
    given = work.queue, memory, length, bytes(range(length)), SIZE, 0, None, None
    work.ur.ok("urEnqueueUSMFill", *given)
    assert fake.calls("StreamSynchronize") - before == waits
    assert work.get(memory) == bytes(range(length)) * (SIZE // length)


def _sets(adapted: Adapted, address: int, pattern: bytes, size: int) -> list[tuple[int, int, int]]:
    """The sets of a fill: bytes of an element, elements of a row, rows."""
    found = adapted.module("transfers").make_sets(address, pattern, size)
    return [(one.elementSize, one.width, one.height) for one in found]


def test_a_fill_is_as_few_sets_as_can_be(adapted: Adapted) -> None:
    assert _sets(adapted, 0, b"\1", 100) == [(1, 100, 1)]
    assert _sets(adapted, 0, b"\1" * 16, 160) == [(1, 160, 1)]  # the same bytes
    assert _sets(adapted, 0, bytes(range(4)), 100) == [(4, 25, 1)]


@only_cuda
def test_cuda_sets_columns_of_four_bytes(adapted: Adapted) -> None:
    assert _sets(adapted, 2, bytes(range(4)), 100) == [(2, 1, 25), (2, 1, 25)]
    assert _sets(adapted, 0, bytes(range(16)), 160) == [(4, 1, 10)] * 4
    assert adapted.module("transfers").make_sets(0, bytes(range(129)), 129 * 2) is None


@only_hip
def test_hip_sets_columns_of_single_bytes(adapted: Adapted) -> None:
    assert _sets(adapted, 0, bytes(range(16)), 160) == [(1, 1, 10)] * 16
    assert adapted.module("transfers").make_sets(0, bytes(range(33)), 66) is None


def test_rows_are_copied_and_filled(work: Work) -> None:
    one, two = work.memory(), work.memory()
    work.put(one, bytes(range(SIZE % 256)) or bytes(range(256)))
    work.put(two, bytes(SIZE))
    rows = two, 32, one, 16, 10, 4, 0, None, None
    work.ur.ok("urEnqueueUSMMemcpy2D", work.queue, True, *rows)
    expected = b"".join(bytes(range(16 * y, 16 * y + 10)) + bytes(22) for y in range(4))
    assert work.get(two, 128) == expected
    pattern = b"\1\2"
    rows = one, 16, 2, pattern, 4, 3, 0, None, None
    work.ur.ok("urEnqueueUSMFill2D", work.queue, *rows)
    assert work.get(one, 6) == pattern * 2 + bytes([4, 5])


def test_a_mapped_buffer_of_the_program_is_written_back(work: Work) -> None:
    ur, host = work.ur, (ctypes.c_int32 * COUNT)(*range(COUNT))
    how = UR.get_struct("ur_buffer_properties_t")(
        UR["UR_STRUCTURE_TYPE_BUFFER_PROPERTIES"], None, ctypes.addressof(host)
    )
    flags = UR["UR_MEM_FLAG_USE_HOST_POINTER"]
    buffer = ur.make("urMemBufferCreate", work.context, flags, SIZE, ctypes.byref(how)).value
    both = UR["UR_MAP_FLAG_READ"] | UR["UR_MAP_FLAG_WRITE"]
    given = work.queue, buffer, True, both, 16, 16, 0, None, None
    place = ur.make("urEnqueueMemBufferMap", *given).value
    assert place == ctypes.addressof(host) + 16
    host[4] = 1000
    ur.ok("urEnqueueMemUnmap", work.queue, buffer, place)
    seen = (ctypes.c_int32 * COUNT)()
    ur.ok("urEnqueueMemBufferRead", work.queue, buffer, True, 0, SIZE, seen)
    assert list(seen) == [0, 1, 2, 3, 1000, *range(5, COUNT)]
    assert ur("urEnqueueMemUnmap", work.queue, buffer, place) == "INVALID_VALUE"
    ur.ok("urMemRelease", buffer)


def test_a_map_that_fails_is_none_and_an_unmap_can_be_tried_again(work: Work, fake: Knobs) -> None:
    ur, flag = work.ur, UR["UR_MEM_FLAG_READ_WRITE"]
    buffer = ur.make("urMemBufferCreate", work.context, flag, SIZE).value or 0
    both, place = UR["UR_MAP_FLAG_READ"] | UR["UR_MAP_FLAG_WRITE"], ctypes.c_void_p()
    given = work.queue, buffer, True, both, 0, SIZE, 0, None, None
    before = fake.calls("MemFreeHost")
    fake.fail("MemcpyAsync", 2)
    code = ur("urEnqueueMemBufferMap", *given, place)
    assert (code, fake.calls("MemFreeHost")) == ("OUT_OF_DEVICE_MEMORY", before + 1)
    fake.fail("MemcpyAsync", 0)
    mapped = ur.make("urEnqueueMemBufferMap", *given).value or 0
    ctypes.memset(mapped, 7, SIZE)
    unmap = work.queue, buffer, mapped, 0, None, None
    fake.fail("MemcpyAsync", 2)
    assert ur("urEnqueueMemUnmap", *unmap) == "OUT_OF_DEVICE_MEMORY"
    fake.fail("MemcpyAsync", 0)
    ur.ok("urEnqueueMemUnmap", *unmap)
    out = ctypes.create_string_buffer(SIZE)
    ur.ok("urEnqueueMemBufferRead", work.queue, buffer, True, 0, SIZE, out)
    assert out.raw == b"\7" * SIZE
    ur.ok("urMemRelease", buffer)


def test_what_c_knows_of_a_device_is_made_once(
    adapted: Adapted, device: PluginDevice, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Queues have its address. A second thread asks for it while the first one makes it."""
    kind, registry = adapted.module("devices").CuDevice, adapted.module("core").adapter.registry
    known = registry.list_owned("ur_device_handle_t")[device.handle]
    made, make = kind(known.platform, known.found), kind._make_in_c
    others = list[object]()

    def make_after_another_thread(self: object) -> object:
        monkeypatch.setattr(kind, "_make_in_c", make)
        others.append(made.in_c)
        return make(self)

    monkeypatch.setattr(kind, "_make_in_c", make_after_another_thread)
    assert made.in_c is others[0] is made.in_c


def test_two_threads_find_the_same_platform(
    adapted: Adapted, monkeypatch: pytest.MonkeyPatch
) -> None:
    platforms = adapted.module("devices")

    def open_platforms() -> tuple[()]:
        assert platforms._opening._is_owned(), "another thread would make a second platform"
        return ()

    monkeypatch.setattr(platforms, "_open_platforms", open_platforms)
    assert platforms.list_platforms() == ()


def test_commands_of_an_out_of_order_queue_wait_for_events(
    ur: Calls, device: PluginDevice, context: int, fake: Knobs
) -> None:
    """A GPU's driver may call all host functions in one thread, so that none may wait there."""
    work = Work(ur, device.handle, context, "OUT_OF_ORDER_EXEC_MODE_ENABLE")
    released, seen = threading.Event(), list[str]()
    hold = HostTask(lambda data: (released.wait(), seen.append("held"))[0])
    after = HostTask(lambda data: seen.append("after"))
    free = HostTask(lambda data: (seen.append("free"), released.set())[0])
    first = ctypes.c_void_p()
    ur.ok("urEnqueueHostTaskExp", work.queue, hold, None, None, 0, None, first)
    waits = 1, array(first), None
    ur.ok("urEnqueueHostTaskExp", work.queue, after, None, None, *waits)
    ur.ok("urEnqueueHostTaskExp", work.queue, free)
    ur.ok("urQueueFinish", work.queue)
    assert seen == ["free", "held", "after"]


def test_commands_use_events_and_buffers_of_another_context_of_the_device(
    work: Work, ur: Calls, context: int
) -> None:
    other = ur.make("urContextCreate", 1, array(work.device))
    far, flags = Work(ur, work.device, other.value or 0), UR["UR_MEM_FLAG_READ_WRITE"]
    near, source = (ur.make("urMemBufferCreate", where, flags, SIZE) for where in (context, other))
    may_go, numbers = threading.Event(), (ctypes.c_int32 * COUNT)()
    hold = HostTask(lambda data: (may_go.wait(), None)[1])
    ur.ok("urEnqueueHostTaskExp", far.queue, hold)
    fill = source, ctypes.byref(ctypes.c_int32(7)), 4, 0, SIZE, 0, None
    event = ur.make("urEnqueueMemBufferFill", far.queue, *fill)
    end = ur.make("urEnqueueMemBufferCopy", work.queue, source, near, 0, 0, SIZE, 1, array(event))
    status = "urEventGetInfo", end, "UR_EVENT_INFO_COMMAND_EXECUTION_STATUS"
    before = ur.number(*status)
    may_go.set()
    ur.ok("urEnqueueMemBufferRead", work.queue, near, True, 0, SIZE, numbers)
    assert before != UR["UR_EVENT_STATUS_COMPLETE"] and list(numbers) == [7] * COUNT
    launch = work.arguments(BufferValue(source.value or 0), ctypes.c_int32(5))
    shape = 1, (ctypes.c_size_t * 1)(0), (ctypes.c_size_t * 1)(COUNT), None
    given = work.kernel("store"), *shape, *launch, None, 0, None, None
    ur.ok("urEnqueueKernelLaunchWithArgsExp", work.queue, *given)
    ur.ok("urEnqueueMemBufferRead", work.queue, source, True, 0, SIZE, numbers)
    assert list(numbers) == [5] * COUNT
    for kind, handle in (("Event", event), ("Event", end), ("Mem", near), ("Mem", source)):
        ur.ok(f"ur{kind}Release", handle)
    ur.ok("urQueueRelease", far.queue)
    ur.ok("urContextRelease", other)


def test_a_context_never_has_more_streams_than_are_good(work: Work, fake: Knobs) -> None:
    before = fake.calls("StreamCreateWithPriority")
    queues = [work.new_queue("OUT_OF_ORDER_EXEC_MODE_ENABLE") for _ in range(20)]
    for queue in queues:
        work.ur.ok("urEnqueueEventsWait", queue)
        work.ur.ok("urQueueRelease", queue)
    assert fake.calls("StreamCreateWithPriority") - before <= MOST_STREAMS


def test_times_are_those_of_the_host_and_in_order(
    ur: Calls, device: PluginDevice, context: int
) -> None:
    import time

    work, event = Work(ur, device.handle, context, "PROFILING_ENABLE"), ctypes.c_void_p()
    before = time.monotonic_ns()
    given = work.queue, None, None, None, 0, None, ctypes.byref(event)
    task = HostTask(lambda data: None)
    ur.ok("urEnqueueHostTaskExp", work.queue, task, None, None, *given[4:])
    ur.ok("urEventWait", 1, array(event))
    names = ("QUEUED", "SUBMIT", "START", "END")
    times = [
        ur.number("urEventGetProfilingInfo", event, f"UR_PROFILING_INFO_COMMAND_{name}")
        for name in names
    ]
    assert times == sorted(times)
    second = 1_000_000_000  # the two clocks may differ by some µs
    assert before - second <= times[0] and times[-1] <= time.monotonic_ns() + second


def test_a_command_that_waits_says_when_it_was_enqueued(
    ur: Calls, device: PluginDevice, context: int
) -> None:
    work, may_go = Work(ur, device.handle, context, "PROFILING_ENABLE"), threading.Event()
    hold = HostTask(lambda data: (may_go.wait(), None)[1])
    ur.ok("urEnqueueHostTaskExp", work.queue, hold)
    event = ur.make("urEnqueueEventsWait", work.queue)
    names = ("QUEUED", "SUBMIT", "START")
    queries = [(event, UR[f"UR_PROFILING_INFO_COMMAND_{name}"], 8) for name in names]
    found = ctypes.c_uint64()
    try:
        for query in queries[:2]:
            ur.ok("urEventGetProfilingInfo", *query, found)
        first = found.value
        code = ur("urEventGetProfilingInfo", *queries[2], found)
    finally:
        may_go.set()
    ur.ok("urEventWait", 1, array(event))
    assert code == "PROFILING_INFO_NOT_AVAILABLE"
    last = ur.number("urEventGetProfilingInfo", event, "UR_PROFILING_INFO_COMMAND_QUEUED")
    assert 0 < last <= first
    ur.ok("urEventRelease", event)


def test_device_time_and_host_time_are_on_one_scale(ur: Calls, device: PluginDevice) -> None:
    times = [ctypes.c_uint64() for _ in range(4)]
    ur.ok("urDeviceGetGlobalTimestamps", device.handle, *map(ctypes.byref, times[:2]))
    ur.ok("urDeviceGetGlobalTimestamps", device.handle, *map(ctypes.byref, times[2:]))
    assert times[0].value <= times[2].value and times[1].value <= times[3].value


@pytest.mark.parametrize(
    ("function", "code", "expected"),
    [
        ("MemAlloc", 2, "OUT_OF_DEVICE_MEMORY"),
        ("MemAlloc", 719, "DEVICE_LOST"),
        ("MemAlloc", 801, "UNSUPPORTED_FEATURE"),
        ("MemAlloc", 201, "INVALID_CONTEXT"),
    ],
)
def test_the_drivers_codes_become_those_of_unified_runtime(
    work: Work, fake: Knobs, function: str, code: int, expected: str
) -> None:
    made = ctypes.c_void_p()
    given = work.context, work.device, None, None, SIZE, ctypes.byref(made)
    fake.fail(function, code)
    failed = work.ur("urUSMDeviceAlloc", *given)
    fake.fail(function, 0)
    assert failed == expected
    work.ur.ok("urUSMDeviceAlloc", *given)
    work.ur.ok("urUSMFree", work.context, made)


@only_cuda
def test_a_context_that_cannot_become_current_is_an_error(work: Work, fake: Knobs) -> None:
    made = ctypes.c_void_p()
    given = work.context, work.device, None, None, SIZE, ctypes.byref(made)
    fake.fail("CtxPushCurrent", 201)
    failed = work.ur("urUSMDeviceAlloc", *given)
    fake.fail("CtxPushCurrent", 0)
    assert failed == "INVALID_CONTEXT"


def test_a_launch_that_the_driver_refuses_leaves_the_queue_usable(work: Work, fake: Knobs) -> None:
    kernel, out = work.kernel("store"), work.memory()
    work.launch(kernel, out, ctypes.c_int32(1))
    fake.fail("LaunchKernel", 701)
    size = (ctypes.c_size_t * 1)(COUNT)
    given = work.queue, kernel, 1, (ctypes.c_size_t * 1)(0), size, None
    rows = work.arguments(out, ctypes.c_int32(2))
    code = work.ur("urEnqueueKernelLaunchWithArgsExp", *given, *rows)
    fake.fail("LaunchKernel", 0)
    assert code == "OUT_OF_RESOURCES"
    assert work.numbers(out) == [1] * COUNT


PTX = b""".version 8.0
.target sm_50
.address_size 64
.visible .global .align 4 .b8 answer[8];
.visible .entry scale(
    .param .u64 scale_param_0, .param .u32 scale_param_1, .param .u32 scale_param_2
)
{
    .reg .b32 %r<8>;
    .reg .b64 %d<4>;
    ld.param.u64 %d1, [scale_param_0];
    ld.param.u32 %r1, [scale_param_1];
    ld.param.u32 %r2, [scale_param_2];
    mov.u32 %r3, %ntid.x;
    mov.u32 %r4, %ctaid.x;
    mov.u32 %r5, %tid.x;
    mad.lo.s32 %r6, %r3, %r4, %r5;
    mul.wide.s32 %d2, %r6, 4;
    add.s64 %d3, %d1, %d2;
    ld.global.u32 %r7, [%d3];
    mad.lo.s32 %r7, %r7, %r1, %r2;
    st.global.u32 [%d3], %r7;
    ret;
}
"""
#: Both kernels that DPC++ makes of one. The second one adds the global offset of x.
WITH_OFFSET = PTX + (
    PTX[PTX.index(b".visible .entry") :]
    .replace(b"scale", b"scale_with_offset")
    .replace(b"param_2\n)", b"param_2,\n    .param .align 4 .b8 scale_with_offset_param_3[12]\n)")
    .replace(b"%r<8>", b"%r<9>")
    .replace(b"mov.u32 %r3", b"ld.param.u32 %r8, [scale_with_offset_param_3];\nmov.u32 %r3")
    .replace(b"mad.lo.s32 %r7", b"add.s32 %r2, %r2, %r8;\n    mad.lo.s32 %r7")
)


def cubin_of(work: Work, ptx: bytes, folder: Path, architecture: int = 0) -> bytes:
    """Return what NVIDIA's assembler makes of PTX for the device, or for an architecture."""
    ptxas = os.environ.get("PTXAS") or shutil.which("ptxas")
    if not ptxas:
        pytest.skip("needs ptxas: pip install nvidia-cuda-nvcc, or PTXAS=PATH")
    source, made = folder / "program.ptx", folder / "program.cubin"
    source.write_bytes(ptx)
    version = work.ur.info("urDeviceGetInfo", work.device, "UR_DEVICE_INFO_VERSION")
    number = architecture or version.rstrip(b"\0").decode().replace(".", "")
    command = [ptxas, f"-arch=sm_{number}", str(source), "-o", str(made)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return made.read_bytes()


def program_of_binary(work: Work, data: bytes) -> int:
    """Return a program of a binary, which is not built."""
    lengths, binaries = (ctypes.c_size_t * 1)(len(data)), ctypes.create_string_buffer(data)
    places = (ctypes.c_void_p * 1)(ctypes.addressof(binaries))
    given = work.context, 1, array(work.device), lengths, places, None
    return work.ur.make("urProgramCreateWithBinary", *given).value or 0


@only_cuda
@pytest.mark.parametrize("form", ["ptx", "cubin"])
def test_a_binary_with_a_device_global(work: Work, form: str, tmp_path: Path) -> None:
    ur, data = work.ur, PTX if form == "ptx" else cubin_of(work, PTX, tmp_path)
    assert (data[:4] == b"\x7fELF") is (form == "cubin")
    program = program_of_binary(work, data)
    ur.ok("urProgramBuild", work.context, program)
    kernel = ur.make("urKernelCreate", program, b"scale").value or 0
    out = work.memory()
    work.put(out, struct.pack(f"{COUNT}i", *range(COUNT)))
    work.launch(kernel, out, ctypes.c_int32(3), ctypes.c_int32(1))
    assert work.numbers(out) == [3 * number + 1 for number in range(COUNT)]
    value, seen = (ctypes.c_int32 * 1)(42), (ctypes.c_int32 * 1)()
    name, rest = b"answer", (4, 4)
    given = work.queue, program, name, True, *rest
    ur.ok("urEnqueueDeviceGlobalVariableWrite", *given, value)
    ur.ok("urEnqueueDeviceGlobalVariableRead", *given, seen)
    assert seen[0] == 42
    far = work.queue, program, name, True, 4, 8
    assert ur("urEnqueueDeviceGlobalVariableRead", *far, seen) == "INVALID_VALUE"


@only_cuda
@pytest.mark.parametrize(
    ("ptx", "offset", "code"),
    [(WITH_OFFSET, 5, "SUCCESS"), (WITH_OFFSET, 0, "SUCCESS"), (PTX, 5, "UNSUPPORTED_FEATURE")],
)
def test_a_kernel_of_dpcpp_has_a_variant_for_global_offsets(
    work: Work, ptx: bytes, offset: int, code: str
) -> None:
    ur, program = work.ur, program_of_binary(work, ptx)
    ur.ok("urProgramBuild", work.context, program)
    names = ur.info("urProgramGetInfo", program, "UR_PROGRAM_INFO_KERNEL_NAMES")
    assert names.rstrip(b"\0") == b"scale"
    kernel, out = ur.make("urKernelCreate", program, b"scale").value or 0, work.memory()
    work.put(out, struct.pack(f"{COUNT}i", *range(COUNT)))
    given = work.queue, kernel, 1, (ctypes.c_size_t * 1)(offset), (ctypes.c_size_t * 1)(COUNT), None
    rows = work.arguments(out, ctypes.c_int32(3), ctypes.c_int32(1))
    assert ur("urEnqueueKernelLaunchWithArgsExp", *given, *rows) == code
    added = 1 + offset if code == "SUCCESS" else 0
    expected = [3 * number + added if added else number for number in range(COUNT)]
    assert work.numbers(out) == expected


def test_files_that_are_for_no_gpu_are_no_programs(work: Work) -> None:
    program = program_of_binary(work, Path("/proc/self/exe").read_bytes())
    assert work.ur("urProgramBuild", work.context, program) != "SUCCESS"
    native = ctypes.c_void_p()
    assert work.ur("urProgramGetNativeHandle", program, native) == "UNSUPPORTED_FEATURE"


def test_sub_groups_are_warps(work: Work, ur: Calls) -> None:
    ask = "urDeviceGetInfo", work.device
    sizes = ur.info(*ask, "UR_DEVICE_INFO_SUB_GROUP_SIZES_INTEL")
    size = int.from_bytes(sizes, "little")
    most = ur.number(*ask, "UR_DEVICE_INFO_MAX_WORK_GROUP_SIZE") // size
    assert len(sizes) in (4, 8) and size in (32, 64)
    assert ur.number(*ask, "UR_DEVICE_INFO_MAX_NUM_SUB_GROUPS") == most
    kernel, room = work.kernel("store"), ctypes.c_uint32()
    expected = ("MAX_SUB_GROUP_SIZE", size), ("MAX_NUM_SUB_GROUPS", most)
    for name, value in (*expected, ("COMPILE_NUM_SUB_GROUPS", 0), ("SUB_GROUP_SIZE_INTEL", 0)):
        number = UR[f"UR_KERNEL_SUB_GROUP_INFO_{name}"]
        ur.ok("urKernelGetSubGroupInfo", kernel, work.device, number, 4, room)
        assert room.value == value, name


@only_hip
def test_the_code_object_says_how_large_sub_groups_are(
    work: Work, adapted: Adapted, monkeypatch: pytest.MonkeyPatch
) -> None:
    image = adapted.module("device_code").HipCode
    kernel, room = work.kernel("store"), ctypes.c_uint32()
    monkeypatch.setattr(image, "find_sub_group_size", lambda self, name: 16)
    number = UR["UR_KERNEL_SUB_GROUP_INFO_MAX_NUM_SUB_GROUPS"]
    work.ur.ok("urKernelGetSubGroupInfo", kernel, work.device, number, 4, room)
    assert room.value == 1024 // 16


@pytest.mark.parametrize("kind", ["Device", "Shared"])
def test_contexts_of_a_device_have_each_others_memory(work: Work, ur: Calls, kind: str) -> None:
    context = ur.make("urContextCreate", 1, array(work.device)).value or 0
    other, memory = Work(ur, work.device, context), work.memory(kind)
    work.put(memory, bytes(SIZE))
    ur.ok("urEnqueueUSMFill", other.queue, memory + 4, 4, b"\7\0\0\0", 8)
    other.launch(other.kernel("add_one"), memory)
    assert other.numbers(memory, 4) == [1, 8, 8, 1]
    room = ctypes.c_uint64()
    for name, value in (("TYPE", UR[f"UR_USM_TYPE_{kind.upper()}"]), ("BASE_PTR", memory)):
        number, size = UR[f"UR_USM_ALLOC_INFO_{name}"], 4 if name == "TYPE" else 8
        ur.ok("urUSMGetMemAllocInfo", context, memory + 8, number, size, room)
        assert room.value == value
    assert ur("urUSMFree", context, memory) == "INVALID_MEM_OBJECT"
    far = other.queue, True, memory + 4, bytes(SIZE), SIZE, 0, None, None
    assert ur("urEnqueueUSMMemcpy", *far) == "INVALID_SIZE"
    ur.ok("urUSMFree", work.context, memory)


def test_devices_reach_each_others_memory(gpu_plugin: Plugin, ur: Calls, fake: Knobs) -> None:
    device = gpu_plugin.devices[0].handle
    given = device, device, UR["UR_EXP_PEER_INFO_UR_PEER_ACCESS_SUPPORT"], 4
    value = ctypes.c_int(7)
    ur.ok("urUsmP2PPeerAccessGetInfoExp", *given, value)
    assert value.value == 0  # not its own
    fake.fail("CtxEnablePeerAccess", 217)
    assert ur("urUsmP2PEnablePeerAccessExp", device, device) == "UNSUPPORTED_FEATURE"


def test_physical_memory_is_mapped_and_used(work: Work) -> None:
    ur, step = work.ur, ctypes.c_size_t()
    name = UR["UR_VIRTUAL_MEM_GRANULARITY_INFO_MINIMUM"]
    given = work.context, work.device, 1, name, 8, ctypes.byref(step), None
    ur.ok("urVirtualMemGranularityGetInfo", *given)
    size = step.value
    physical = ur.make("urPhysicalMemCreate", work.context, work.device, size)
    start = ur.make("urVirtualMemReserve", work.context, None, size).value or 0
    write = UR["UR_VIRTUAL_MEM_ACCESS_FLAG_READ_WRITE"]
    given = work.context, start, size
    assert ur("urVirtualMemUnmap", *given) == "INVALID_VALUE"
    ur.ok("urVirtualMemMap", *given, physical, 0, write)
    work.launch(work.kernel("store"), start, ctypes.c_int32(8))
    assert work.numbers(start) == [8] * COUNT
    assert ur("urUSMFree", work.context, start) == "INVALID_MEM_OBJECT"
    pattern = b"\1\0\0\0"
    given_fill = work.queue, start, 4, pattern, SIZE, 0, None, None
    ur.ok("urEnqueueUSMFill", *given_fill)
    assert work.numbers(start) == [1] * COUNT
    ur.ok("urVirtualMemUnmap", *given)
    ur.ok("urVirtualMemFree", *given)
    ur.ok("urPhysicalMemRelease", physical)


@only_cuda
def test_device_memory_is_exported_as_a_descriptor(work: Work) -> None:
    ur, place = work.ur, (work.context, work.device)
    kind = UR["UR_EXP_EXTERNAL_MEM_TYPE_OPAQUE_FD"]
    memory = ur.make("urMemoryExportAllocExportableMemoryExp", *place, 0, SIZE, kind).value or 0
    work.put(memory, bytes(range(256))[:SIZE])
    assert work.get(memory) == bytes(range(256))[:SIZE]
    descriptor, export = ctypes.c_int(-1), "urMemoryExportExportMemoryHandleExp"
    ur.ok(export, *place, kind, memory, ctypes.byref(descriptor))
    os.close(descriptor.value)
    assert ur(export, *place, kind, memory + 4, ctypes.byref(descriptor)) == "INVALID_VALUE"
    assert ur("urUSMFree", work.context, memory) == "INVALID_MEM_OBJECT"
    ur.ok("urMemoryExportFreeExportableMemoryExp", *place, memory)
    assert ur(export, *place, kind, memory, ctypes.byref(descriptor)) == "INVALID_VALUE"


@only_cuda
def test_memory_that_cannot_be_mapped_for_export_leaves_nothing(work: Work, fake: Knobs) -> None:
    ur, kind = work.ur, UR["UR_EXP_EXTERNAL_MEM_TYPE_OPAQUE_FD"]
    given = work.context, work.device, 0, SIZE, kind, ctypes.byref(ctypes.c_void_p())
    for name in ("MemAddressReserve", "MemMap", "MemSetAccess"):
        before = fake.calls("MemRelease")
        fake.fail(name, 2)
        code = ur("urMemoryExportAllocExportableMemoryExp", *given)
        fake.fail(name, 0)
        assert (code, fake.calls("MemRelease") - before) == ("OUT_OF_DEVICE_MEMORY", 1)


def test_a_buffer_of_the_program_s_usm_does_not_own_it(work: Work) -> None:
    ur, address, take = work.ur, work.memory(), "urMemBufferCreateWithNativeHandle"
    ur.ok("urMemRelease", ur.make(take, address, work.context, None))
    ur.ok("urUSMFree", work.context, address)
    made = ctypes.byref(ctypes.c_void_p())
    codes = [ur(take, native, work.context, None, made) for native in (0, 0x1000)]
    assert codes == ["INVALID_NULL_HANDLE", "INVALID_VALUE"]
