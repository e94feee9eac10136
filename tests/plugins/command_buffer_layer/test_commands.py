"""Every command, its order, and queries of devices, command-buffers and events."""

from __future__ import annotations

from helpers.drivers import Driver

from .conftest import Calls

OURS = {
    "cl_khr_command_buffer": "0.9.8",
    "cl_khr_command_buffer_mutable_dispatch": "0.9.5",
    "cl_khr_command_buffer_multi_device": "0.9.2",
}


def test_devices_and_platforms_say_that_they_have_it(calls: Calls, each_driver: Driver) -> None:
    code = """
names = [
    set(text(f, h, c).split())
    for f, h, c in (
        (cl.clGetDeviceInfo, DEVICE, "CL_DEVICE_EXTENSIONS"),
        (cl.clGetPlatformInfo, PLATFORM, "CL_PLATFORM_EXTENSIONS"),
    )
]
say([sorted(one for one in each if "command_buffer" in one) for each in names])
say(len(names[0]) > 3)
for f, h, c in (
    (cl.clGetDeviceInfo, DEVICE, "CL_DEVICE_EXTENSIONS_WITH_VERSION"),
    (cl.clGetPlatformInfo, PLATFORM, "CL_PLATFORM_EXTENSIONS_WITH_VERSION"),
):
    say({n: v for n, v in versions(f, h, c).items() if "command_buffer" in n})
for n in (
    "COMMAND_BUFFER_CAPABILITIES",
    "COMMAND_BUFFER_SUPPORTED_QUEUE_PROPERTIES",
    "COMMAND_BUFFER_REQUIRED_QUEUE_PROPERTIES",
    "MUTABLE_DISPATCH_CAPABILITIES",
):
    say(answer(cl.clGetDeviceInfo, DEVICE, f"CL_DEVICE_{n}_KHR", ctypes.c_uint64))
say(
    answer(
        cl.clGetDeviceInfo, DEVICE, "CL_DEVICE_COMMAND_BUFFER_NUM_SYNC_DEVICES_KHR", ctypes.c_uint32
    )
)
say(
    answer(
        cl.clGetDeviceInfo, DEVICE, "CL_DEVICE_COMMAND_BUFFER_SYNC_DEVICES_KHR", ctypes.c_void_p, 4
    )
)
say(
    answer(
        cl.clGetPlatformInfo,
        PLATFORM,
        "CL_PLATFORM_COMMAND_BUFFER_CAPABILITIES_KHR",
        ctypes.c_uint64,
    )
)
say(bool(cl.clGetDeviceInfo(DEVICE, OPENCL["CL_DEVICE_EXTENSIONS"], 3, uints(0), None)))
"""
    names, many, device, platform, *rest = calls(code, each_driver)
    assert names == [sorted(OURS), sorted(OURS)] and many
    assert device == platform == OURS
    capabilities, supported, required, fields, count, devices, remaps, refused = rest
    assert isinstance(capabilities, int) and capabilities & 0b10101 == 0b10101
    assert (supported, required, fields) == (3, 0, 0x1F)
    assert (count, devices, remaps, refused) == (0, [], 7, True)


def test_buffers_are_copied_and_filled(calls: Calls, each_driver: Driver) -> None:
    code = """
a, b, c, d = buffer(range(16)), buffer(16), buffer(16), buffer(16)
cb = create()
last = (0, None, None, None)
ok(cl.clCommandCopyBufferKHR(cb, None, None, a, b, 16, 8, 20, *last))
ok(cl.clCommandFillBufferKHR(cb, None, None, c, uints(7, 8), 8, 16, 32, *last))
rect = words(8, 1, 0), words(0, 2, 0), words(8, 2, 1)
ok(cl.clCommandCopyBufferRectKHR(cb, None, None, a, d, *rect, 16, 0, 16, 0, *last))
finalize(cb)
event = enqueue(cb)
say(read(b, 16)); say(read(c, 16)); say(read(d, 16))
"""
    copied, filled, rect = calls(code, each_driver)
    assert copied == [0, 0, 4, 5, 6, 7, 8, *[0] * 9]
    assert filled == [*[0] * 4, *[7, 8] * 4, *[0] * 4]
    assert rect == [*[0] * 8, 6, 7, 0, 0, 10, 11, 0, 0]


def test_svm_is_copied_filled_and_an_argument(calls: Calls, each_driver: Driver) -> None:
    code = """
flags = OPENCL["CL_MEM_READ_WRITE"]
one, two = (cl.clSVMAlloc(CONTEXT, flags, 64, 0) for _ in range(2))
if not one or not two:
    say(None); sys.exit()
last = (0, None, None, None)
k = kernel("add")
ok(cl.clSetKernelArgSVMPointer(k, 0, two))
ok(cl.clSetKernelArg(k, 1, 4, uints(5)))
cb = create()
ok(cl.clCommandSVMMemFillKHR(cb, None, None, one, uints(3), 4, 64, *last))
ok(cl.clCommandSVMMemcpyKHR(cb, None, None, two, one, 64, *last))
launch(cb, k, 16)
finalize(cb)
ok(cl.clSetKernelArg(k, 1, 4, uints(500)))
for _ in range(3):
    enqueue(cb)
ok(cl.clEnqueueSVMMap(QUEUE, True, 1, two, 64, 0, None, None))
say(list((ctypes.c_int32 * 16).from_address(two)))
"""
    (found,) = calls(code, each_driver)
    assert found in ([8] * 16, None)


def test_images_are_copied_and_filled(calls: Calls, each_driver: Driver) -> None:
    code = """
if not has_images():
    say(None)
    sys.exit()
a, b, c, d = image(), image(), buffer(range(64)), buffer(64)
last = (0, None, None, None)
origin, whole = words(0, 0, 0), words(4, 4, 1)
cb = create()
ok(cl.clCommandCopyBufferToImageKHR(cb, None, None, c, a, 0, origin, whole, *last))
ok(
    cl.clCommandFillImageKHR(
        cb, None, None, a, uints(9, 9, 9, 9), words(1, 0, 0), words(2, 1, 1), *last
    )
)
ok(cl.clCommandCopyImageKHR(cb, None, None, a, b, origin, origin, whole, *last))
ok(cl.clCommandCopyImageToBufferKHR(cb, None, None, b, d, origin, words(4, 2, 1), 64, *last))
finalize(cb)
enqueue(cb)
say(read(d, 64))
"""
    (found,) = calls(code, each_driver)
    expected = [*[0] * 16, 0, 1, 2, 3, *[9] * 8, *range(12, 32), *[0] * 16]
    assert found in (expected, None)


def test_images_and_samplers_are_arguments(calls: Calls, each_driver: Driver) -> None:
    """Those of the recording, until an update names others; the program may let go of them."""
    code = """
if not has_images():
    say(None); sys.exit()
program = build('''
kernel void pick(read_only image2d_t in, sampler_t how, global uint *out, int shift) {
    int i = get_global_id(0);
    out[i] = read_imageui(in, how, (int2)(i + shift, 0)).x;
}
kernel void put(write_only image2d_t to, uint n) {
    write_imageui(to, (int2)(get_global_id(0), get_global_id(1)), (uint4)(n + get_global_id(0)));
}''')
def sampler(mode):
    return make(cl.clCreateSampler, CONTEXT, False, OPENCL[mode], OPENCL["CL_FILTER_NEAREST"])
first, second = image(list(range(64))), image(list(range(100, 164)))
edge, zero = sampler("CL_ADDRESS_CLAMP_TO_EDGE"), sampler("CL_ADDRESS_CLAMP")
target, later = buffer(8), buffer(8)
pick = kernel("pick", first, edge, target, (2,), program=program)
cb, handle = create(properties=(FLAGS, MUTABLE, 0)), out()
launch(cb, pick, 4, handle=handle)
set_args(pick, second, zero, later)
launch(cb, pick, 4)
launch(cb, kernel("put", first, (7,), program=program), [4, 1])
finalize(cb)
for one in (edge, zero):
    ok(cl.clReleaseSampler(one))
enqueue(cb)
say(read(target, 4), read(later, 4))
enqueue(cb)
say(read(target, 4), read(later, 4))
other = sampler("CL_ADDRESS_CLAMP")
changes = memory_argument(0, second), memory_argument(1, other)
say(update(cb, config(handle.value, *changes)))
ok(cl.clReleaseSampler(other))
enqueue(cb)
say(read(target, 4), read(later, 4))
"""
    found = calls(code, each_driver)
    second = [108, 112, 0, 0]
    assert found == [None] or found == [
        [[8, 12, 12, 12], second],
        [[9, 10, 10, 10], second],
        "CL_SUCCESS",
        [second, second],
    ]


def test_order_on_an_out_of_order_queue(calls: Calls, each_driver: Driver) -> None:
    """Sync-points and barriers order commands; the result does not depend on chance."""
    code = """
queue = new_queue(OUT_OF_ORDER)
a, b = buffer(64), buffer(64)
cb = create(queue)
last = None
for step in range(20):
    k = kernel("add", a, (1,)) if step % 2 else kernel("twice", a, b)
    first = launch(cb, k, 64, after=() if last is None else (last,))
    point = out(ctypes.c_uint32)
    ok(cl.clCommandCopyBufferKHR(cb, None, None, a, b, 0, 0, 256, *waits(first), point.at, None))
    last = point.value
    if step % 5 == 4:
        ok(cl.clCommandBarrierWithWaitListKHR(cb, None, None, 0, None, point.at, None))
        last = point.value if step % 2 else None
finalize(cb)
for _ in range(3):
    enqueue(cb)
say(read(b, 64))
"""
    (found,) = calls(code, each_driver)
    value = 0
    for step in range(60):
        value = value + 1 if step % 2 else 2 * value
        value = (value + 2**31) % 2**32 - 2**31
    assert found == [value] * 64


def test_other_queues_and_wait_lists(calls: Calls, each_driver: Driver) -> None:
    code = """
a = buffer(4)
cb = create(properties=(FLAGS, SIMULTANEOUS, 0))
launch(cb, kernel("add", a, (1,)), 4)
finalize(cb)
other = new_queue()
user = make(cl.clCreateUserEvent, CONTEXT)
event = out()
ok(cl.clEnqueueCommandBufferKHR(1, words(other), cb, 1, words(user), event.at))
for _ in range(5):
    ok(cl.clEnqueueCommandBufferKHR(0, None, cb, 0, None, None))
    ok(cl.clEnqueueCommandBufferKHR(1, words(other), cb, 0, None, None))
status = answer(cl.clGetEventInfo, event.value, "CL_EVENT_COMMAND_EXECUTION_STATUS", ctypes.c_int32)
say(status > 0)
ok(cl.clSetUserEventStatus(user, 0))
ok(cl.clFinish(QUEUE)); ok(cl.clFinish(other))
say(read(a, 4))
"""
    assert calls(code, each_driver) == [True, [11] * 4]


def test_events_are_of_command_buffers(calls: Calls, each_driver: Driver) -> None:
    code = """
queue = new_queue(PROFILING)
a = buffer(4096)
cb = create(queue)
for _ in range(5):
    launch(cb, kernel("add", a, (1,)), 4096)
finalize(cb)
for _ in range(4):
    event = enqueue(cb)
    say(answer(cl.clGetEventInfo, event, "CL_EVENT_COMMAND_TYPE", ctypes.c_uint32)
        == OPENCL["CL_COMMAND_COMMAND_BUFFER_KHR"])
    say(answer(cl.clGetEventInfo, event, "CL_EVENT_COMMAND_QUEUE", ctypes.c_void_p) == queue)
    times = [answer(cl.clGetEventProfilingInfo, event, f"CL_PROFILING_COMMAND_{n}", ctypes.c_uint64)
             for n in ("QUEUED", "SUBMIT", "START", "END")]
    say(times == sorted(times) and times[2] < times[3])
    ok(cl.clRetainEvent(event)); ok(cl.clReleaseEvent(event)); ok(cl.clReleaseEvent(event))
plain = out()
ok(cl.clEnqueueMarkerWithWaitList(queue, 0, None, plain.at))
say(answer(cl.clGetEventInfo, plain.value, "CL_EVENT_COMMAND_TYPE", ctypes.c_uint32)
    == OPENCL["CL_COMMAND_MARKER"])
"""
    assert calls(code, each_driver) == [True] * 13


def test_command_buffers_say_what_they_are(calls: Calls, each_driver: Driver) -> None:
    code = """
queues = QUEUE, new_queue(OUT_OF_ORDER)
given = (FLAGS, MUTABLE | SIMULTANEOUS, 0)
cb, plain = create(*queues, properties=given), create()
info = cl.clGetCommandBufferInfoKHR
def state(one): return answer(info, one, "CL_COMMAND_BUFFER_STATE_KHR", ctypes.c_uint32)
def count(one): return answer(info, one, "CL_COMMAND_BUFFER_REFERENCE_COUNT_KHR", ctypes.c_uint32)
say(answer(info, cb, "CL_COMMAND_BUFFER_QUEUES_KHR", ctypes.c_void_p, 4) == list(queues))
say(answer(info, cb, "CL_COMMAND_BUFFER_NUM_QUEUES_KHR", ctypes.c_uint32))
say(answer(info, cb, "CL_COMMAND_BUFFER_PROPERTIES_ARRAY_KHR", ctypes.c_uint64, 8) == list(given))
say(answer(info, plain, "CL_COMMAND_BUFFER_PROPERTIES_ARRAY_KHR", ctypes.c_uint64, 8))
say(answer(info, cb, "CL_COMMAND_BUFFER_CONTEXT_KHR", ctypes.c_void_p) == CONTEXT)
say(state(cb), count(cb))
finalize(cb)
ok(cl.clRetainCommandBufferKHR(cb))
say(state(cb), count(cb))
enqueue(cb)
ok(cl.clReleaseCommandBufferKHR(cb)); ok(cl.clReleaseCommandBufferKHR(cb))
say(name(cl.clReleaseCommandBufferKHR(cb)))
"""
    assert calls(code, each_driver) == [
        *(True, 2, True, [], True, [0, 1], [1, 2]),
        "CL_INVALID_COMMAND_BUFFER_KHR",
    ]


def test_what_a_command_uses_is_kept(calls: Calls, each_driver: Driver) -> None:
    """The program releases everything but the result, and enqueues."""
    code = """
a, b = buffer(range(8)), buffer(8)
k = kernel("twice", b, a)
cb = create()
launch(cb, k, 8)
finalize(cb)
for release, one in (
    (cl.clReleaseMemObject, a),
    (cl.clReleaseKernel, k),
    (cl.clReleaseProgram, PROGRAM),
):
    ok(release(one))
others = [buffer([99] * 8) for _ in range(4)]
enqueue(cb)
ok(cl.clEnqueueCommandBufferKHR(0, None, cb, 0, None, None))
ok(cl.clReleaseCommandBufferKHR(cb))
say(read(b, 8))
"""
    assert calls(code, each_driver) == [[2 * number for number in range(8)]]


def test_a_copied_kernel_has_its_arguments(calls: Calls, each_driver: Driver) -> None:
    code = """
a = buffer(4)
k = kernel("add", a, (3,))
copy = make(cl.clCloneKernel, k)
cb = create()
launch(cb, copy, 4)
finalize(cb)
enqueue(cb)
say(read(a, 4))
"""
    assert calls(code, each_driver) == [[3] * 4]


def test_local_memory_sizes_and_offsets(calls: Calls, each_driver: Driver) -> None:
    code = """
a, b, c, d = (buffer(16) for _ in range(4))
cb = create()
launch(cb, kernel("local_sum", a, "16"), 16, local=[4])
launch(cb, kernel("place", b), 8, offset=[100])
launch(cb, kernel("groups", c), 16, local=[8])
launch(cb, kernel("flat", d), [4, 4])
finalize(cb)
enqueue(cb)
say(read(a, 16)); say(read(b, 8)); say(read(c, 16)); say(read(d, 16))
"""
    assert calls(code, each_driver) == [
        [number // 4 * 4 for number in range(16)],
        list(range(100, 108)),
        [8] * 16,
        [number // 4 for number in range(16)],
    ]


def test_the_size_that_a_kernel_requires_need_not_be_given(
    calls: Calls, each_driver: Driver
) -> None:
    """PoCL 3.0 and 3.1 refuse such a launch in plain calls."""
    code = """
for dim in (1, 2, 3):
    a, cb = buffer([7] * 6), create()
    launch(cb, kernel("pairs", a), [4, 1, 1][:dim])
    finalize(cb)
    enqueue(cb)
    say(read(a, 6))
"""
    assert calls(code, each_driver) == 3 * [[0, 1, 0, 1, 7, 7]]
