"""The errors of the extensions' functions, as the specification lists them.

Each table has, for each case, the code and a call that gets it. A call that should succeed is there
to show that nothing else is wrong with the others.
"""

from __future__ import annotations

import pytest
from helpers.drivers import Driver

from .conftest import Calls

BEGIN = """
other_context = new_context()
other_queue = new_queue(0, other_context)
unordered, alien = new_queue(OUT_OF_ORDER), buffer(8, other_context)
timed = new_queue(PROFILING)
a, b, junk = buffer(64), buffer(64), uints(*[0] * 256)
add, unset = kernel("add", a, (1,)), kernel("add")
pairs, flat = kernel("pairs", a), kernel("flat", a)
alien_kernel = kernel("add", alien, (1,), program=build(SOURCE, other_context))
cb, both = create(), create(QUEUE, unordered)
launch(cb, add, 8)
done = create(properties=(FLAGS, MUTABLE, 0))
handle, fixed, foreign = out(), out(), out()
ASSERTS = OPENCL["CL_MUTABLE_DISPATCH_ASSERTS_KHR"]
launch(done, add, 8, handle=handle)
FIELDS = OPENCL["CL_MUTABLE_DISPATCH_UPDATABLE_FIELDS_KHR"]
launch(done, add, 8, handle=fixed, properties=(FIELDS, 0, 0))
finalize(done)
frozen, dead = create(), create()
deferred = create(properties=(FLAGS, MUTABLE, 0))
launch(deferred, unset, 8, properties=(FIELDS, 8, 0))
finalize(deferred)
open_ = create(properties=(FLAGS, MUTABLE, 0))
promised = create(properties=(0x12B7, 1, 0))
launch(frozen, add, 8, handle=foreign)
finalize(frozen)
ok(cl.clReleaseCommandBufferKHR(dead))
class Region(ctypes.Structure):
    _fields_ = (("origin", ctypes.c_size_t), ("size", ctypes.c_size_t))
class Format(ctypes.Structure):
    _fields_ = (("order", ctypes.c_uint32), ("type", ctypes.c_uint32))
class Desc(ctypes.Structure):
    _fields_ = (("type", ctypes.c_uint32), *((n, ctypes.c_size_t) for n in "whdars"),
                ("levels", ctypes.c_uint32), ("samples", ctypes.c_uint32),
                ("memory", ctypes.c_void_p))
whole = buffer(1024)
def part(origin):
    region = Region(origin, 64)
    return cl.clCreateSubBuffer(whole, 1, 0x1220, ctypes.addressof(region), None)
straight = part(1024)
def image(order, kind):
    form, desc = Format(order, kind), Desc(0x10F1, 4, 4)
    return cl.clCreateImage(CONTEXT, 1, ctypes.addressof(form), ctypes.addressof(desc), None, None)
picture, gray = image(0x10B5, 0x10DC), image(0x10B5, 0x10DE)
event, alien_event = make(cl.clCreateUserEvent, CONTEXT), make(cl.clCreateUserEvent, other_context)
ok(cl.clSetUserEventStatus(event, 0))
F = words(FLAGS, 0, 0)
tail, zero, one, huge = (0, None, None, None), words(0, 0, 0), words(1, 1, 1), 2**62

def create_(count, queues, properties=None):
    return refusal(cl.clCreateCommandBufferKHR, count, queues, properties)
def enqueue_(count, queues, which, wait_count=0, waits=None):
    return name(cl.clEnqueueCommandBufferKHR(count, queues, which, wait_count, waits, None))
def launch_(k, dim, size, local=None, offset=None, which=None, queue=None, given=None, tail=tail):
    given = which or cb, queue, given, k, dim, offset, size, local, *tail
    return name(cl.clCommandNDRangeKernelKHR(*given))
def copy_(x, y, start, to, size, which=None, queue=None, given=None, tail=tail):
    return name(cl.clCommandCopyBufferKHR(which or cb, queue, given, x, y, start, to, size, *tail))
def fill_(x, pattern, size, start, length):
    return name(cl.clCommandFillBufferKHR(cb, None, None, x, pattern, size, start, length, *tail))
def rect_(x, y, start, to, region, *pitches):
    given = cb, None, None, x, y, start, to, region, *pitches, *tail
    return name(cl.clCommandCopyBufferRectKHR(*given))
def fill_image_(x, color, start, size):
    return name(cl.clCommandFillImageKHR(cb, None, None, x, color, start, size, *tail))
def copy_image_(x, y, start, to, size):
    return name(cl.clCommandCopyImageKHR(cb, None, None, x, y, start, to, size, *tail))
def to_image_(x, y, start, to, size):
    return name(cl.clCommandCopyBufferToImageKHR(cb, None, None, x, y, start, to, size, *tail))
def from_image_(x, y, start, size, to):
    return name(cl.clCommandCopyImageToBufferKHR(cb, None, None, x, y, start, size, to, *tail))
def barrier_(which, queue, count=0, points=None, given=None):
    return name(cl.clCommandBarrierWithWaitListKHR(which, queue, given, count, points, None, None))
def raw(which, count, types, configs):
    return name(cl.clUpdateMutableCommandsKHR(which, count, types, configs))
def asked(constant, size, into):
    return name(cl.clGetCommandBufferInfoKHR(cb, constant, size, into, None))
def told(which, constant, size, into):
    return name(cl.clGetMutableCommandInfoKHR(which, constant, size, into, None))
def remap_(which, automatic, count, queues, handles=(0, None, None)):
    return refusal(cl.clRemapCommandBufferKHR, which, automatic, count, queues, *handles)
"""

TABLES = {
    "create": """
CL_INVALID_VALUE: create_(0, words(QUEUE))
CL_INVALID_VALUE: create_(1, None)
CL_INVALID_COMMAND_QUEUE: create_(1, words(0))
CL_INVALID_COMMAND_QUEUE: create_(2, words(QUEUE, 0))
CL_INVALID_CONTEXT: create_(2, words(QUEUE, other_queue))
CL_INVALID_VALUE: create_(1, words(QUEUE), words(1, 1, 0))
CL_INVALID_VALUE: create_(1, words(QUEUE), words(FLAGS, 0, FLAGS, 0, 0))
CL_INVALID_VALUE: create_(1, words(QUEUE), words(FLAGS, 1 << 9, 0))
CL_INVALID_VALUE: create_(1, words(QUEUE), words(0x12B7, 2, 0))
CL_SUCCESS: name(cl.clCreateCommandBufferKHR(1, words(QUEUE), F, None) and 0)
""",
    "retain, release and finalize": """
CL_INVALID_COMMAND_BUFFER_KHR: name(cl.clRetainCommandBufferKHR(None))
CL_INVALID_COMMAND_BUFFER_KHR: name(cl.clRetainCommandBufferKHR(junk))
CL_INVALID_COMMAND_BUFFER_KHR: name(cl.clRetainCommandBufferKHR(dead))
CL_INVALID_COMMAND_BUFFER_KHR: name(cl.clRetainCommandBufferKHR(cb + 8))
CL_INVALID_COMMAND_BUFFER_KHR: name(cl.clRetainCommandBufferKHR(handle.value))
CL_INVALID_COMMAND_BUFFER_KHR: name(cl.clReleaseCommandBufferKHR(QUEUE))
CL_INVALID_COMMAND_BUFFER_KHR: name(cl.clReleaseCommandBufferKHR(dead))
CL_INVALID_COMMAND_BUFFER_KHR: name(cl.clFinalizeCommandBufferKHR(None))
CL_INVALID_OPERATION: name(cl.clFinalizeCommandBufferKHR(frozen))
""",
    "enqueue": """
CL_INVALID_COMMAND_BUFFER_KHR: enqueue_(0, None, None)
CL_INVALID_COMMAND_BUFFER_KHR: enqueue_(0, None, dead)
CL_INVALID_OPERATION: enqueue_(0, None, cb)
CL_INVALID_VALUE: enqueue_(1, None, frozen)
CL_INVALID_VALUE: enqueue_(0, words(QUEUE), frozen)
CL_INVALID_VALUE: enqueue_(2, words(QUEUE, QUEUE), frozen)
CL_INVALID_COMMAND_QUEUE: enqueue_(1, words(0), frozen)
CL_SUCCESS: enqueue_(1, words(unordered), frozen)
CL_SUCCESS: enqueue_(1, words(timed), frozen)
CL_INVALID_OPERATION: enqueue_(0, None, deferred)
CL_INVALID_CONTEXT: enqueue_(1, words(other_queue), frozen)
CL_INVALID_EVENT_WAIT_LIST: enqueue_(0, None, frozen, 1, None)
CL_INVALID_EVENT_WAIT_LIST: enqueue_(0, None, frozen, 0, words(event))
CL_INVALID_EVENT_WAIT_LIST: enqueue_(0, None, frozen, 1, words(0))
CL_INVALID_CONTEXT: enqueue_(0, None, frozen, 1, words(alien_event))
CL_SUCCESS: enqueue_(1, words(QUEUE), frozen, 1, words(event))
""",
    "launch": """
CL_INVALID_COMMAND_BUFFER_KHR: launch_(add, 1, one, which=dead)
CL_INVALID_OPERATION: launch_(add, 1, one, which=frozen)
CL_INVALID_COMMAND_QUEUE: launch_(add, 1, one, queue=unordered)
CL_INVALID_COMMAND_QUEUE: launch_(add, 1, one, which=both)
CL_INVALID_SYNC_POINT_WAIT_LIST_KHR: launch_(add, 1, one, tail=(1, None, None, None))
CL_INVALID_SYNC_POINT_WAIT_LIST_KHR: launch_(add, 1, one, tail=(0, uints(1), None, None))
CL_INVALID_SYNC_POINT_WAIT_LIST_KHR: launch_(add, 1, one, tail=(1, uints(99), None, None))
CL_INVALID_SYNC_POINT_WAIT_LIST_KHR: launch_(add, 1, one, tail=(1, uints(0), None, None))
CL_INVALID_VALUE: launch_(add, 1, one, given=words(1, 1, 0))
CL_INVALID_VALUE: launch_(add, 1, one, given=words(FIELDS, 1 << 20, 0))
CL_INVALID_VALUE: launch_(add, 1, one, given=words(FIELDS, 0, FIELDS, 0, 0))
CL_INVALID_VALUE: launch_(add, 1, one, given=words(0x12B8, 2, 0))
CL_INVALID_KERNEL: launch_(None, 1, one)
CL_INVALID_CONTEXT: launch_(alien_kernel, 1, one)
CL_INVALID_KERNEL_ARGS: launch_(unset, 1, one)
CL_INVALID_KERNEL_ARGS: launch_(unset, 1, one, which=open_)
CL_INVALID_KERNEL_ARGS: launch_(unset, 1, one, which=open_, given=words(FIELDS, 2, 0))
CL_INVALID_KERNEL_ARGS: launch_(unset, 1, one, given=words(FIELDS, 8, 0))
CL_SUCCESS: launch_(unset, 1, one, which=open_, given=words(FIELDS, 8, 0))
CL_INVALID_VALUE: launch_(add, 1, one, given=words(ASSERTS, 1, 0))
CL_INVALID_VALUE: launch_(add, 1, one, which=promised)
CL_SUCCESS: launch_(add, 1, one, one, which=promised)
CL_INVALID_WORK_DIMENSION: launch_(add, 0, one)
CL_INVALID_WORK_DIMENSION: launch_(add, 4, one)
CL_INVALID_GLOBAL_WORK_SIZE: launch_(add, 1, None)
CL_INVALID_GLOBAL_OFFSET: launch_(add, 1, words(huge), offset=words(2**64 - 1))
CL_INVALID_WORK_GROUP_SIZE: launch_(pairs, 1, words(8), words(4))
CL_INVALID_WORK_GROUP_SIZE: launch_(add, 1, words(8), words(3))
CL_INVALID_WORK_GROUP_SIZE: launch_(add, 1, words(8), words(0))
CL_INVALID_WORK_ITEM_SIZE: launch_(add, 1, words(huge), words(huge))
CL_SUCCESS: launch_(pairs, 1, words(8), words(2))
CL_SUCCESS: launch_(flat, 2, words(4, 4), words(2, 2), words(0, 0), given=words(FIELDS, 31, 0))
""",
    "copy": """
CL_INVALID_COMMAND_BUFFER_KHR: copy_(a, b, 0, 0, 4, which=dead)
CL_INVALID_OPERATION: copy_(a, b, 0, 0, 4, which=frozen)
CL_INVALID_COMMAND_QUEUE: copy_(a, b, 0, 0, 4, queue=other_queue)
CL_INVALID_VALUE: copy_(a, b, 0, 0, 4, given=words(FIELDS, 0, 0))
CL_INVALID_SYNC_POINT_WAIT_LIST_KHR: copy_(a, b, 0, 0, 4, tail=(1, uints(99), None, None))
CL_INVALID_MEM_OBJECT: copy_(None, b, 0, 0, 4)
CL_INVALID_MEM_OBJECT: copy_(a, None, 0, 0, 4)
CL_INVALID_CONTEXT: copy_(a, alien, 0, 0, 4)
CL_INVALID_VALUE: copy_(a, b, 252, 0, 8)
CL_INVALID_VALUE: copy_(a, b, 0, 252, 8)
CL_INVALID_VALUE: copy_(a, b, huge, 0, 4)
CL_INVALID_VALUE: copy_(a, b, 0, 0, 0)
CL_MEM_COPY_OVERLAP: copy_(a, a, 0, 4, 8)
CL_INVALID_VALUE: copy_(a, b, 0, 0, 4, tail=(0, None, None, out().at))
CL_SUCCESS: copy_(a, a, 0, 8, 8)
""",
    "fill": """
CL_INVALID_MEM_OBJECT: fill_(None, junk, 4, 0, 16)
CL_INVALID_CONTEXT: fill_(alien, junk, 4, 0, 16)
CL_INVALID_VALUE: fill_(a, None, 4, 0, 16)
CL_INVALID_VALUE: fill_(a, junk, 0, 0, 16)
CL_INVALID_VALUE: fill_(a, junk, 3, 0, 15)
CL_INVALID_VALUE: fill_(a, junk, 256, 0, 256)
CL_INVALID_VALUE: fill_(a, junk, 4, 2, 16)
CL_INVALID_VALUE: fill_(a, junk, 4, 0, 18)
CL_INVALID_VALUE: fill_(a, junk, 4, 252, 16)
CL_SUCCESS: fill_(a, junk, 128, 128, 128)
""",
    "part of a buffer": """
CL_MEM_COPY_OVERLAP: copy_(straight, whole, 0, 1020, 8)
CL_INVALID_VALUE: copy_(straight, b, 60, 0, 8)
CL_SUCCESS: copy_(straight, whole, 0, 2048, 8)
""",
    "SVM": """
CL_INVALID_VALUE: name(cl.clCommandSVMMemcpyKHR(cb, None, None, None, junk, 4, *tail))
CL_INVALID_VALUE: name(cl.clCommandSVMMemcpyKHR(cb, None, None, junk, None, 4, *tail))
CL_MEM_COPY_OVERLAP: name(cl.clCommandSVMMemcpyKHR(cb, None, None, junk.value + 4, junk, 8, *tail))
CL_INVALID_VALUE: name(cl.clCommandSVMMemFillKHR(cb, None, None, None, junk, 4, 16, *tail))
CL_INVALID_VALUE: name(cl.clCommandSVMMemFillKHR(cb, None, None, junk, None, 4, 16, *tail))
CL_INVALID_VALUE: name(cl.clCommandSVMMemFillKHR(cb, None, None, junk, junk, 3, 15, *tail))
CL_INVALID_VALUE: name(cl.clCommandSVMMemFillKHR(cb, None, None, junk, junk, 4, 18, *tail))
CL_INVALID_OPERATION: name(cl.clCommandSVMMemcpyKHR(frozen, None, None, junk, a, 4, *tail))
""",
    "image": """
CL_INVALID_MEM_OBJECT: fill_image_(None, junk, zero, one)
CL_INVALID_MEM_OBJECT: fill_image_(a, junk, zero, one)
CL_INVALID_VALUE: fill_image_(picture, None, zero, one)
CL_INVALID_VALUE: fill_image_(picture, junk, zero, words(9, 1, 1))
CL_INVALID_VALUE: fill_image_(picture, junk, zero, zero)
CL_INVALID_VALUE: copy_image_(picture, picture, words(0, 0, 1), zero, one)
CL_IMAGE_FORMAT_MISMATCH: copy_image_(picture, gray, zero, zero, one)
CL_MEM_COPY_OVERLAP: copy_image_(picture, picture, zero, words(1, 0, 0), words(2, 1, 1))
CL_INVALID_MEM_OBJECT: to_image_(picture, picture, 0, zero, one)
CL_INVALID_VALUE: to_image_(a, picture, 250, zero, one)
CL_INVALID_MEM_OBJECT: from_image_(a, a, zero, one, 0)
CL_INVALID_VALUE: from_image_(picture, a, zero, words(4, 4, 1), 16)
CL_SUCCESS: copy_image_(picture, picture, zero, words(2, 0, 0), words(2, 1, 1))
""",
    "rectangle": """
CL_INVALID_MEM_OBJECT: rect_(None, b, zero, zero, one, 0, 0, 0, 0)
CL_INVALID_CONTEXT: rect_(a, alien, zero, zero, one, 0, 0, 0, 0)
CL_INVALID_VALUE: rect_(a, b, None, zero, one, 0, 0, 0, 0)
CL_INVALID_VALUE: rect_(a, b, zero, zero, None, 0, 0, 0, 0)
CL_INVALID_VALUE: rect_(a, b, zero, zero, words(4, 0, 1), 0, 0, 0, 0)
CL_INVALID_VALUE: rect_(a, b, zero, zero, words(8, 2, 1), 4, 0, 0, 0)
CL_INVALID_VALUE: rect_(a, b, zero, zero, words(8, 2, 1), 8, 12, 8, 0)
CL_INVALID_VALUE: rect_(a, b, zero, zero, words(8, 2, 2), 8, 20, 8, 0)
CL_INVALID_VALUE: rect_(a, b, words(250, 0, 0), zero, words(8, 1, 1), 0, 0, 0, 0)
CL_INVALID_VALUE: rect_(a, a, zero, words(64, 0, 0), words(8, 1, 1), 16, 0, 32, 0)
CL_MEM_COPY_OVERLAP: rect_(a, a, zero, words(4, 1, 0), words(8, 2, 1), 16, 0, 16, 0)
CL_SUCCESS: rect_(a, a, zero, words(8, 0, 0), words(8, 2, 1), 16, 0, 16, 0)
""",
    "barrier": """
CL_INVALID_COMMAND_BUFFER_KHR: barrier_(dead, None)
CL_INVALID_OPERATION: barrier_(frozen, None)
CL_INVALID_COMMAND_QUEUE: barrier_(cb, unordered)
CL_INVALID_COMMAND_QUEUE: barrier_(both, None)
CL_INVALID_VALUE: barrier_(cb, None, given=words(FIELDS, 0, 0))
CL_INVALID_SYNC_POINT_WAIT_LIST_KHR: barrier_(cb, None, 1, uints(1000))
CL_INVALID_VALUE: name(cl.clCommandBarrierWithWaitListKHR(cb, None, None, *tail[:3], junk))
CL_SUCCESS: barrier_(cb, QUEUE, 1, uints(1))
""",
    "info": """
CL_INVALID_VALUE: asked(0x1, 8, junk)
CL_INVALID_VALUE: asked(OPENCL["CL_COMMAND_BUFFER_CONTEXT_KHR"], 4, junk)
CL_INVALID_COMMAND_BUFFER_KHR: name(cl.clGetCommandBufferInfoKHR(dead, 0x1295, 4, junk, None))
CL_INVALID_MUTABLE_COMMAND_KHR: told(None, 0x12A0, 8, junk)
CL_INVALID_MUTABLE_COMMAND_KHR: told(cb, 0x12A0, 8, junk)
CL_INVALID_VALUE: told(handle.value, 0x1, 8, junk)
CL_INVALID_VALUE: told(handle.value, 0x12A0, 4, junk)
CL_SUCCESS: told(handle.value, 0x12A0, 4, None)
""",
    "update": """
CL_INVALID_COMMAND_BUFFER_KHR: raw(dead, 0, None, None)
CL_INVALID_OPERATION: raw(cb, 0, None, None)
CL_INVALID_OPERATION: raw(frozen, 0, None, None)
CL_INVALID_VALUE: raw(done, 1, None, None)
CL_INVALID_VALUE: raw(done, 1, uints(0), None)
CL_INVALID_VALUE: raw(done, 1, None, words(1))
CL_INVALID_VALUE: raw(done, 0, uints(0), None)
CL_INVALID_VALUE: raw(done, 1, uints(7), words(junk.value))
CL_INVALID_VALUE: raw(done, 1, uints(0), words(0))
CL_INVALID_MUTABLE_COMMAND_KHR: update(done, config(None))
CL_INVALID_MUTABLE_COMMAND_KHR: update(done, config(done))
CL_INVALID_MUTABLE_COMMAND_KHR: update(done, config(foreign.value))
CL_INVALID_OPERATION: update(done, config(fixed.value, number_argument(1, 1)))
CL_INVALID_OPERATION: update(done, config(fixed.value, size=[4]))
CL_INVALID_OPERATION: update(done, config(fixed.value, local=[4]))
CL_INVALID_OPERATION: update(done, config(fixed.value, offset=[4]))
CL_INVALID_OPERATION: update(done, config(handle.value, work_dim=2, size=[4, 4]))
CL_INVALID_VALUE: update(done, config(handle.value, num_args=1))
CL_INVALID_VALUE: update(done, config(handle.value, arg_list=junk))
CL_INVALID_VALUE: update(done, config(handle.value, num_svm_args=1))
CL_INVALID_VALUE: update(done, config(handle.value, arg_svm_list=junk))
CL_INVALID_VALUE: update(done, config(handle.value, num_exec_infos=1))
CL_INVALID_VALUE: update(done, config(handle.value, exec_info_list=junk))
CL_INVALID_ARG_INDEX: update(done, config(handle.value, number_argument(2, 1)))
CL_INVALID_ARG_SIZE: update(done, config(handle.value, Argument(0, 3, junk)))
CL_INVALID_GLOBAL_WORK_SIZE: update(done, config(handle.value, size=[0]))
CL_INVALID_WORK_GROUP_SIZE: update(done, config(handle.value, size=[8], local=[3]))
CL_SUCCESS: update(done, config(handle.value, number_argument(1, 5), size=[4], local=[2]))
CL_SUCCESS: raw(done, 0, None, None)
""",
    "remap": """
CL_INVALID_COMMAND_BUFFER_KHR: remap_(dead, 0, 1, words(QUEUE))
CL_INVALID_VALUE: remap_(done, 0, 0, words(QUEUE))
CL_INVALID_VALUE: remap_(done, 0, 1, None)
CL_INVALID_VALUE: remap_(done, 0, 2, words(QUEUE, QUEUE))
CL_INVALID_VALUE: remap_(done, 0, 1, words(QUEUE), (1, None, None))
CL_INVALID_VALUE: remap_(done, 0, 1, words(QUEUE), (1, words(handle.value), None))
CL_INVALID_VALUE: remap_(done, 0, 1, words(QUEUE), (0, words(handle.value), junk))
CL_INVALID_VALUE: remap_(done, 0, 1, words(QUEUE), (1, words(foreign.value), junk))
CL_INVALID_VALUE: remap_(done, 0, 1, words(QUEUE), (1, words(done), junk))
CL_INVALID_COMMAND_QUEUE: remap_(done, 0, 1, words(0))
CL_INVALID_CONTEXT: remap_(done, 0, 1, words(other_queue))
""",
}


@pytest.mark.one_driver
def test_every_listed_error(calls: Calls, each_driver: Driver) -> None:
    """One process makes the calls of all tables, each table on objects of its own."""
    cases = {
        name: [line.split(": ", 1) for line in text.strip().splitlines()]
        for name, text in TABLES.items()
    }
    code = "".join(BEGIN + "".join(f"say({call})\n" for _, call in rows) for rows in cases.values())
    found = iter(calls(code, each_driver))
    for name, rows in cases.items():
        said = [(next(found, None), call) for _, call in rows]
        assert said == [(expected, call) for expected, call in rows], name
    assert next(found, None) is None
