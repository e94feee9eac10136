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
