"""Command lists and queues: recorded, executed again and again, in order, immediate."""

from __future__ import annotations

import ctypes
from ctypes import byref, c_int32

from fairlead.conformance.checks import equal, rule
from fairlead.conformance.ze.calls import ZECalls, handles, new
from fairlead.conformance.ze.objects import ZEObjects

EXECUTE = "zeCommandQueueExecuteCommandLists"


@rule(EXECUTE, "a list runs as often as it is executed")
def test_again(make: ZEObjects, queue: int) -> None:
    out = make.ints(1)
    made, kernel = make.list(in_order=True), make.kernel("twice", out.pointer)
    for _ in range(2):
        make.launch(made, kernel, 1)
    make.close_list(made)
    for expected in (4, 16, 64):
        make.check_result(queue, made, out, expected)
    make.run(queue, made, made, wait=False)
    make.check_result(queue, made, out, 4096)


@rule("zeCommandListAppendLaunchKernel", "takes arguments, sizes and offset of this moment")
def test_moment(make: ZEObjects, ze: ZECalls, queue: int) -> None:
    out = make.ints(count=4)
    made, kernel = make.list(), make.kernel("store", out.pointer, c_int32(1))
    make.launch(made, kernel, 1)
    make.set(kernel, 1, c_int32(2))
    make.set(kernel, 0, ctypes.c_void_p(out.address + 4))
    ze.ok("zeKernelSetGroupSize", kernel, 3, 1, 1)
    make.launch(made, kernel, 1)
    make.set(kernel, 1, c_int32(9))
    make.close_list(made)
    make.check_result(queue, made, out, 1, 2, 2, 2)


@rule(EXECUTE, "runs several lists one after the other")
def test_several(make: ZEObjects, queue: int) -> None:
    out, lists = make.ints(count=2), []
    for value, groups in ((1, 2), (2, 1)):
        lists.append(make.list())
        make.launch(lists[-1], make.kernel("store", out.pointer, c_int32(value)), groups)
        make.close_list(lists[-1])
    make.run(queue, *lists)
    equal(out.all, [2, 1], "what both lists have written")


@rule("zeCommandListReset", "an executed list records anew")
def test_reset(make: ZEObjects, ze: ZECalls, queue: int) -> None:
    out = make.ints(count=2)
    made = make.list()
    for value in (1, 2):
        make.launch(made, make.kernel("store", out.pointer, c_int32(value)), 2)
        make.close_list(made)
        make.check_result(queue, made, out, value, value)
        ze.ok("zeCommandListReset", made)


@rule("zeCommandListClose", "an empty list can be executed")
def test_empty(make: ZEObjects, queue: int) -> None:
    made = make.list()
    make.close_list(made)
    make.run(queue, made)


@rule(EXECUTE, "refuses a list that is not closed, and no list")
def test_not_closed(make: ZEObjects, ze: ZECalls, queue: int) -> None:
    ze.refuses("INVALID_ARGUMENT", EXECUTE, queue, 1, handles(make.list()))
    ze.refuses("INVALID_SIZE", EXECUTE, queue, 0, handles(make.list()))


@rule(EXECUTE, "refuses NULL")
def test_null(make: ZEObjects, ze: ZECalls, queue: int) -> None:
    ze.refuses("INVALID_NULL_HANDLE", EXECUTE, None, 1, handles(make.list()))
    ze.refuses("INVALID_NULL_POINTER", EXECUTE, queue, 1, None)


@rule("zeCommandListAppendLaunchKernel", "an immediate list runs at once, in order")
def test_immediate(make: ZEObjects) -> None:
    out, made = make.ints(count=2), make.immediate(flags=2)
    kernel = make.kernel("store", out.pointer, c_int32(1))
    make.launch(made, kernel, 2)
    make.set(kernel, 1, c_int32(5))
    make.launch(made, kernel, 1)
    make.finish(made)
    equal(out.all, [5, 1], "what both kernels have written")


@rule("zeCommandListCreateImmediate", "a synchronous list has run when an append returns")
def test_synchronous(make: ZEObjects) -> None:
    out, made = make.ints(count=2), make.immediate(mode=1)
    make.launch(made, make.kernel("store", out.pointer, c_int32(1)), 2)
    equal(out.all, [1, 1], "what the kernel has written")


@rule("zeCommandListAppendMemoryCopy", "copies, and the kernel after a barrier sees it")
def test_copy(make: ZEObjects, ze: ZECalls, queue: int) -> None:
    source, out = make.ints(1, 2, 3), make.ints(count=3)
    made = make.list()
    ze.ok("zeCommandListAppendMemoryCopy", made, out.address, source.address, 12)
    make.barrier(made)
    make.launch(made, make.kernel("store", out.pointer, c_int32(9)), 1)
    make.close_list(made)
    make.check_result(queue, made, out, 9, 2, 3)


@rule("zeCommandListAppendMemoryFill", "fills with patterns of 1, 2 and 4 bytes")
def test_fill(make: ZEObjects, ze: ZECalls, queue: int) -> None:
    out = make.ints(count=4)
    for size, expected in ((1, 0x11111111), (2, 0x22112211), (4, 0x44332211)):
        made, pattern = make.list(), (ctypes.c_ubyte * size)(0x11, *(0x22, 0x33, 0x44)[: size - 1])
        ze.ok("zeCommandListAppendMemoryFill", made, out.address, pattern, size, 16)
        make.close_list(made)
        make.check_result(queue, made, out, *[expected] * 4)


@rule("zeCommandListCreate", "refuses NULL")
def test_create(make: ZEObjects, ze: ZECalls) -> None:
    desc, made = new("ze_command_list_desc_t"), ctypes.c_void_p()
    given = byref(desc), byref(made)
    routine = "zeCommandListCreate"
    ze.refuses("INVALID_NULL_HANDLE", routine, None, make.device, *given)
    ze.refuses("INVALID_NULL_HANDLE", routine, make.context, None, *given)
    ze.refuses("INVALID_NULL_POINTER", routine, make.context, make.device, None, byref(made))


@rule("zeCommandQueueSynchronize", "answers NOT_READY while a list waits")
def test_not_ready(make: ZEObjects, ze: ZECalls, queue: int) -> None:
    (event,) = make.events()
    made = make.list()
    make.barrier(made, 0, event)
    make.close_list(made)
    make.run(queue, made, wait=False)
    ze.answers("NOT_READY", "zeCommandQueueSynchronize", queue, 1000)
    ze.ok("zeEventHostSignal", event)
    make.finish(queue)
