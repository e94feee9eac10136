"""Updates of recorded launches, and queries of commands."""

from __future__ import annotations

from helpers.drivers import Driver

from .conftest import Calls

BEGIN = """
info = cl.clGetMutableCommandInfoKHR
def mutable(k, size, **more):
    cb, handle = create(properties=(FLAGS, MUTABLE, 0)), out()
    launch(cb, k, size, handle=handle, **more)
    finalize(cb)
    return cb, handle.value
"""


def test_an_argument_may_end_before_the_update(calls: Calls, each_driver: Driver) -> None:
    """The memory of the array and of its values is the program's again after the call."""
    code = """
import gc
a = buffer(4)
cb, command = mutable(kernel("add", a, (1,)), 4)
value = (ctypes.c_int32 * 1)(5)
changed = config(command, Argument(1, 4, ctypes.addressof(value)))
say(update(cb, changed))
value[0] = 777
memory = buffer(4)
say(update(cb, config(command, memory_argument(0, memory))))
ok(cl.clRetainMemObject(memory))
for _ in range(2):
    ok(cl.clReleaseMemObject(memory)) if _ else None
enqueue(cb)
say(read(memory, 4))
"""
    assert calls(BEGIN + code, each_driver) == ["CL_SUCCESS", "CL_SUCCESS", [5] * 4]


def test_replaced_memory_is_given_up(calls: Calls, each_driver: Driver) -> None:
    """It is kept until what was enqueued has ended, and no longer."""
    code = """
old, new = buffer(4), buffer(4)
k = kernel("add", old, (1,))
cb, command = mutable(k, 4)
other = buffer(4)
set_args(k, other, (1,))
ok(cl.clRetainMemObject(old))
before = answer(cl.clGetMemObjectInfo, old, "CL_MEM_REFERENCE_COUNT", ctypes.c_uint32)
user = make(cl.clCreateUserEvent, CONTEXT)
ok(cl.clEnqueueCommandBufferKHR(0, None, cb, 1, words(user), None))
say(update(cb, config(command, memory_argument(0, new))))
ok(cl.clReleaseMemObject(old))
ok(cl.clSetUserEventStatus(user, 0))
ok(cl.clFinish(QUEUE))
say(read(old, 4))
for _ in range(2):
    enqueue(cb)
    say(update(cb, config(command, memory_argument(0, new))))
say(read(new, 4))
ok(cl.clFinish(QUEUE))
ok(cl.clReleaseCommandBufferKHR(create()))
after = answer(cl.clGetMemObjectInfo, old, "CL_MEM_REFERENCE_COUNT", ctypes.c_uint32)
say(after, before)
"""
    env = {"FAIRLEAD_COMMAND_BUFFER": "replay"}  # the engine `direct` keeps it for a while
    *values, (after, before) = calls(BEGIN + code, each_driver, env)
    assert values == ["CL_SUCCESS", [1] * 4, "CL_SUCCESS", "CL_SUCCESS", [2] * 4]
    assert after == before - 2, "the program's second reference, and that of the command-buffer"


DEFERRED = """
FIELDS = OPENCL["CL_MUTABLE_DISPATCH_UPDATABLE_FIELDS_KHR"]
def state(cb):
    return answer(cl.clGetCommandBufferInfoKHR, cb, "CL_COMMAND_BUFFER_STATE_KHR", ctypes.c_uint32)
def deferred(k, count, **more):
    cb, handles = create(properties=(FLAGS, MUTABLE, 0)), [out() for _ in range(count)]
    for one in handles:
        launch(cb, k, 4, handle=one, properties=(FIELDS, 8, 0), **more)
    return cb, [one.value for one in handles]
"""


def test_arguments_may_be_set_after_recording(calls: Calls, each_driver: Driver) -> None:
    """The command-buffer can be enqueued once each launch has all of them."""
    code = """
a, k = buffer(4), kernel("add")
set_args(k, a)
cb, (one, two) = deferred(k, 2)
say(state(cb))
finalize(cb)
say(state(cb), name(cl.clEnqueueCommandBufferKHR(0, None, cb, 0, None, None)))
say(update(cb, config(one, number_argument(1, 3))), state(cb))
say(update(cb, config(two, number_argument(1, 4)), config(one, number_argument(9, 4))), state(cb))
say(name(cl.clEnqueueCommandBufferKHR(0, None, cb, 0, None, None)))
say(update(cb, config(two, number_argument(1, 4))), state(cb))
for _ in range(3):
    enqueue(cb)
say(read(a, 4))
say(update(cb, config(one, number_argument(1, 10))), state(cb))
enqueue(cb)
say(read(a, 4))
"""
    refused = "CL_INVALID_OPERATION"
    assert calls(BEGIN + DEFERRED + code, each_driver) == [
        0,
        [2, refused],
        ["CL_SUCCESS", 2],
        ["CL_INVALID_ARG_INDEX", 2],
        refused,
        ["CL_SUCCESS", 1],
        [21] * 4,
        ["CL_SUCCESS", 1],
        [35] * 4,
    ]


def test_a_copy_of_a_deferred_launch_lacks_the_same(calls: Calls, each_driver: Driver) -> None:
    code = """
a = buffer(4)
cb, (one,) = deferred(kernel("add"), 1)
finalize(cb)
new = out()
copy = make(cl.clRemapCommandBufferKHR, cb, 0, 1, words(new_queue()), 1, words(one), new.at)
say(update(cb, config(one, memory_argument(0, a), number_argument(1, 1))), state(cb), state(copy))
say(update(copy, config(new.value, memory_argument(0, a), number_argument(1, 2))), state(copy))
enqueue(cb); enqueue(copy)
say(read(a, 4))
"""
    done = "CL_SUCCESS"
    assert calls(BEGIN + DEFERRED + code, each_driver) == [[done, 1, 2], [done, 1], [3] * 4]


def test_an_update_keeps_groups_of_one_size(calls: Calls, each_driver: Driver) -> None:
    """Where a kernel allows groups of several sizes, an update goes to none and from none."""
    code = """
if not text(cl.clGetDeviceInfo, DEVICE, "CL_DEVICE_OPENCL_C_VERSION").startswith("OpenCL C 2"):
    say(None); sys.exit()
k = kernel("groups", buffer(16), program=build(SOURCE, options=b"-cl-std=CL2.0"))
even, one = mutable(k, 8, local=[4])
odd, other = mutable(k, 6, local=[4])
say(update(even, config(one, size=[6])), update(even, config(one, size=[4])))
say(update(odd, config(other, size=[8])), update(odd, config(other, size=[5])))
"""
    found = calls(BEGIN + code, each_driver)
    answers = ["CL_INVALID_OPERATION", "CL_SUCCESS"]
    assert found in ([answers, answers], [None])


def test_a_part_of_a_buffer_is_checked_in_updates(calls: Calls, each_driver: Driver) -> None:
    """Where it begins, as in a launch that is recorded."""
    code = """
whole = buffer(1024)
bits = answer(cl.clGetDeviceInfo, DEVICE, "CL_DEVICE_MEM_BASE_ADDR_ALIGN", ctypes.c_uint32)
k = kernel("add", whole, (1,))
cb, command = mutable(k, 4)
part = make(cl.clCreateSubBuffer, whole, 1, 0x1220, words(bits // 8, 64))
say(update(cb, config(command, memory_argument(0, part))))
enqueue(cb)
say(read(whole, 4, offset=bits // 32))
"""
    assert calls(BEGIN + code, each_driver) == ["CL_SUCCESS", [1] * 4]
