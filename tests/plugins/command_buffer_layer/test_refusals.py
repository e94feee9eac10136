"""Errors of the extensions' functions that the conformance suite does not ask for.

Each row has the code and a call that gets it. A call that should succeed is there to show that
nothing else is wrong with the others.
"""

from __future__ import annotations

import pytest
from helpers.drivers import Driver

from .conftest import Calls

BEGIN = """
other_queue = new_queue(0, new_context())
unordered, timed = new_queue(OUT_OF_ORDER), new_queue(PROFILING)
a, b, whole, junk = buffer(64), buffer(64), buffer(1024), uints(*[0] * 256)
straight = make(cl.clCreateSubBuffer, whole, 1, 0x1220, words(1024, 64))
add, unset = kernel("add", a, (1,)), kernel("add")
pairs, flat = kernel("pairs", a), kernel("flat", a)
FIELDS = OPENCL["CL_MUTABLE_DISPATCH_UPDATABLE_FIELDS_KHR"]
cb, both, frozen, dead = create(), create(QUEUE, unordered), create(), create()
handle, foreign = out(), out()
done, deferred, open_ = (create(properties=(FLAGS, MUTABLE, 0)) for _ in range(3))
promised = create(properties=(0x12B7, 1, 0))
launch(cb, add, 8)
launch(done, add, 8, handle=handle)
launch(deferred, unset, 8, properties=(FIELDS, 8, 0))
launch(frozen, add, 8, handle=foreign)
for one in (done, deferred, frozen):
    finalize(one)
ok(cl.clReleaseCommandBufferKHR(dead))
F = words(FLAGS, 0, 0)
tail, zero, one, huge = (0, None, None, None), words(0, 0, 0), words(1, 1, 1), 2**62

def create_(count, queues, properties=None):
    return refusal(cl.clCreateCommandBufferKHR, count, queues, properties)
def enqueue_(count, queues, which):
    return name(cl.clEnqueueCommandBufferKHR(count, queues, which, 0, None, None))
def launch_(k, dim, size, local=None, offset=None, which=None, given=None, tail=tail):
    given = which or cb, None, given, k, dim, offset, size, local, *tail
    return name(cl.clCommandNDRangeKernelKHR(*given))
def copy_(x, y, start, to, size):
    return name(cl.clCommandCopyBufferKHR(cb, None, None, x, y, start, to, size, *tail))
def rect_(x, y, start, to, region, *pitches):
    given = cb, None, None, x, y, start, to, region, *pitches, *tail
    return name(cl.clCommandCopyBufferRectKHR(*given))
def barrier_(which, queue, *points):
    given = len(points), uints(*points) if points else None, None, None
    return name(cl.clCommandBarrierWithWaitListKHR(which, queue, None, *given))
def remap_(which, automatic, count, queues, handles=(0, None, None)):
    return refusal(cl.clRemapCommandBufferKHR, which, automatic, count, queues, *handles)
"""

ROWS = """
CL_INVALID_COMMAND_QUEUE: create_(2, words(QUEUE, 0))
CL_INVALID_CONTEXT: create_(2, words(QUEUE, other_queue))
CL_INVALID_VALUE: create_(1, words(QUEUE), words(0x12B7, 2, 0))
CL_SUCCESS: name(cl.clCreateCommandBufferKHR(1, words(QUEUE), F, None) and 0)
CL_INVALID_COMMAND_BUFFER_KHR: name(cl.clRetainCommandBufferKHR(junk))
CL_INVALID_COMMAND_BUFFER_KHR: name(cl.clRetainCommandBufferKHR(cb + 8))
CL_INVALID_COMMAND_BUFFER_KHR: name(cl.clRetainCommandBufferKHR(handle.value))
CL_INVALID_COMMAND_BUFFER_KHR: name(cl.clReleaseCommandBufferKHR(QUEUE))
CL_SUCCESS: enqueue_(1, words(unordered), frozen)
CL_SUCCESS: enqueue_(1, words(timed), frozen)
CL_INVALID_OPERATION: enqueue_(0, None, deferred)
CL_INVALID_COMMAND_QUEUE: launch_(add, 1, one, which=both)
CL_INVALID_SYNC_POINT_WAIT_LIST_KHR: launch_(add, 1, one, tail=(1, uints(0), None, None))
CL_INVALID_VALUE: launch_(add, 1, one, given=words(0x12B8, 2, 0))
CL_INVALID_KERNEL_ARGS: launch_(unset, 1, one, which=open_)
CL_INVALID_KERNEL_ARGS: launch_(unset, 1, one, which=open_, given=words(FIELDS, 2, 0))
CL_INVALID_KERNEL_ARGS: launch_(unset, 1, one, given=words(FIELDS, 8, 0))
CL_SUCCESS: launch_(unset, 1, one, which=open_, given=words(FIELDS, 8, 0))
CL_INVALID_VALUE: launch_(add, 1, one, which=promised)
CL_SUCCESS: launch_(add, 1, one, one, which=promised)
CL_INVALID_GLOBAL_WORK_SIZE: launch_(add, 1, None)
CL_INVALID_GLOBAL_OFFSET: launch_(add, 1, words(huge), offset=words(2**64 - 1))
CL_INVALID_WORK_GROUP_SIZE: launch_(add, 1, words(8), words(3))
CL_INVALID_WORK_GROUP_SIZE: launch_(add, 1, words(8), words(0))
CL_SUCCESS: launch_(pairs, 1, words(8), words(2))
CL_SUCCESS: launch_(flat, 2, words(4, 4), words(2, 2), words(0, 0), given=words(FIELDS, 31, 0))
CL_INVALID_VALUE: copy_(a, b, 0, 0, 0)
CL_SUCCESS: copy_(a, a, 0, 8, 8)
CL_MEM_COPY_OVERLAP: copy_(straight, whole, 0, 1020, 8)
CL_INVALID_VALUE: copy_(straight, b, 60, 0, 8)
CL_SUCCESS: copy_(straight, whole, 0, 2048, 8)
CL_INVALID_OPERATION: name(cl.clCommandSVMMemcpyKHR(frozen, None, None, junk, a, 4, *tail))
CL_INVALID_VALUE: rect_(a, b, None, zero, one, 0, 0, 0, 0)
CL_INVALID_VALUE: rect_(a, b, zero, zero, words(8, 2, 1), 8, 12, 8, 0)
CL_INVALID_VALUE: rect_(a, b, zero, zero, words(8, 2, 2), 8, 20, 8, 0)
CL_INVALID_VALUE: rect_(a, a, zero, words(64, 0, 0), words(8, 1, 1), 16, 0, 32, 0)
CL_SUCCESS: rect_(a, a, zero, words(8, 0, 0), words(8, 2, 1), 16, 0, 16, 0)
CL_INVALID_COMMAND_QUEUE: barrier_(both, None)
CL_SUCCESS: barrier_(cb, QUEUE, 1)
CL_INVALID_MUTABLE_COMMAND_KHR: update(done, config(done))
CL_INVALID_GLOBAL_WORK_SIZE: update(done, config(handle.value, size=[0]))
CL_INVALID_WORK_GROUP_SIZE: update(done, config(handle.value, size=[8], local=[3]))
CL_SUCCESS: update(done, config(handle.value, number_argument(1, 5), size=[4], local=[2]))
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
"""


@pytest.mark.one_driver
def test_errors_that_the_suite_does_not_ask(calls: Calls, each_driver: Driver) -> None:
    rows = [line.split(": ", 1) for line in ROWS.strip().splitlines()]
    found = calls(BEGIN + "".join(f"say({call})\n" for _, call in rows), each_driver)
    assert [[code, call] for code, (_, call) in zip(found, rows, strict=True)] == rows
