"""Events, pools and fences."""

from __future__ import annotations

import ctypes
from ctypes import c_int32

from fairlead.conformance.checks import equal, failed, rule
from fairlead.conformance.ze.calls import FOREVER, ZECalls, handles, new
from fairlead.conformance.ze.objects import ZEObjects

QUERY = "zeEventQueryStatus"


@rule("zeEventCreate", "a new event is not signaled")
def test_new(make: ZEObjects, ze: ZECalls) -> None:
    for event in make.events(3):
        ze.answers("NOT_READY", QUERY, event)


@rule("zeEventHostSignal", "signals, again without effect, until a reset")
def test_host(make: ZEObjects, ze: ZECalls) -> None:
    event, other = make.events(2)
    for _ in range(2):
        ze.ok("zeEventHostSignal", event)
        ze.ok("zeEventHostSignal", event)
        ze.ok(QUERY, event)
        ze.ok("zeEventHostSynchronize", event, FOREVER)
        ze.ok("zeEventHostReset", event)
        ze.answers("NOT_READY", QUERY, event)
    ze.answers("NOT_READY", QUERY, other)


@rule("zeEventHostSynchronize", "answers NOT_READY when the time is over")
def test_timeout(make: ZEObjects, ze: ZECalls) -> None:
    (event,) = make.events()
    for timeout in (0, 1000):
        ze.answers("NOT_READY", "zeEventHostSynchronize", event, timeout)


@rule("zeCommandListAppendSignalEvent", "signals in the order of the list")
def test_signal(make: ZEObjects, ze: ZECalls, queue: int) -> None:
    first, second = make.events(2)
    made = make.list()
    ze.ok("zeCommandListAppendWaitOnEvents", made, 1, handles(first))
    ze.ok("zeCommandListAppendSignalEvent", made, second)
    make.close_list(made)
    make.run(queue, made, wait=False)
    ze.answers("NOT_READY", QUERY, second)
    ze.ok("zeEventHostSignal", first)
    ze.ok("zeEventHostSynchronize", second, FOREVER)


@rule("zeCommandListAppendEventReset", "resets in the order of the list")
def test_reset(make: ZEObjects, ze: ZECalls, queue: int) -> None:
    (event,) = make.events()
    made = make.list()
    ze.ok("zeCommandListAppendEventReset", made, event)
    make.close_list(made)
    ze.ok("zeEventHostSignal", event)
    make.run(queue, made)
    ze.answers("NOT_READY", QUERY, event)


@rule("zeCommandListAppendLaunchKernel", "signals its event after the kernel")
def test_launch_signals(make: ZEObjects, ze: ZECalls, queue: int) -> None:
    out, (event,) = make.ints(count=4), make.events()
    made = make.list()
    make.launch(made, make.kernel("store", out.pointer, c_int32(3)), 4, event)
    make.close_list(made)
    make.run(queue, made, wait=False)
    ze.ok("zeEventHostSynchronize", event, FOREVER)
    equal(out.all, [3] * 4, "what the kernel has written")
    make.finish(queue)


@rule("zeCommandListAppendLaunchKernel", "waits for all its events")
def test_launch_waits(make: ZEObjects, ze: ZECalls, queue: int) -> None:
    out, events = make.ints(count=4), make.events(2)
    made = make.list()
    make.launch(made, make.kernel("store", out.pointer, c_int32(3)), 4, 0, *events)
    make.close_list(made)
    make.run(queue, made, wait=False)
    for event in events:
        equal(out.all, [0] * 4, "the memory before all events are signaled")
        ze.ok("zeEventHostSignal", event)
    make.finish(queue)
    equal(out.all, [3] * 4, "what the kernel has written")


@rule("zeCommandListAppendBarrier", "what comes after it waits for its events")
def test_barrier(make: ZEObjects, ze: ZECalls, queue: int) -> None:
    out, (event, end) = make.ints(count=2), make.events(2)
    made = make.list()
    make.barrier(made, 0, event)
    make.launch(made, make.kernel("store", out.pointer, c_int32(4)), 2)
    make.barrier(made, end)
    make.close_list(made)
    make.run(queue, made, wait=False)
    ze.answers("NOT_READY", QUERY, end)
    ze.ok("zeEventHostSignal", event)
    make.finish(queue, end)
    equal(out.all, [4, 4], "what the kernel has written")


@rule("zeCommandQueueExecuteCommandLists", "one queue's list waits for another queue's")
def test_two_queues(make: ZEObjects) -> None:
    out, (event,) = make.ints(count=2), make.events()
    first, second = make.list(), make.list()
    make.launch(first, make.kernel("store", out.pointer, c_int32(1)), 2, event)
    make.launch(second, make.kernel("store", out.pointer, c_int32(2)), 1, 0, event)
    for made in (first, second):
        make.close_list(made)
    queues = make.queue(), make.queue()
    make.run(queues[1], second, wait=False)
    make.run(queues[0], first, wait=False)
    for queue in queues:
        make.finish(queue)
    equal(out.all, [2, 1], "what both kernels have written")


@rule("zeEventQueryKernelTimestamp", "a kernel's times are in order")
def test_timestamps(make: ZEObjects, ze: ZECalls, queue: int) -> None:
    out, (event,) = make.ints(count=4), make.events(flags=1 | 4)
    made = make.list()
    make.launch(made, make.kernel("store", out.pointer, c_int32(3)), 4, event)
    make.close_list(made)
    make.run(queue, made)
    times = new("ze_kernel_timestamp_result_t")
    ze.ok("zeEventQueryKernelTimestamp", event, times)
    for found in (getattr(times, "global"), times.context):
        if not 0 < found.kernelStart <= found.kernelEnd:
            failed("0 < kernelStart ≤ kernelEnd", f"{found.kernelStart}, {found.kernelEnd}")


@rule("zeFenceHostSynchronize", "a fence is signaled after the lists before it")
def test_fence(make: ZEObjects, ze: ZECalls, queue: int) -> None:
    out, (event,) = make.ints(count=2), make.events()
    fence, made = make.fence(queue), make.list()
    make.launch(made, make.kernel("store", out.pointer, c_int32(6)), 2, 0, event)
    make.close_list(made)
    ze.answers("NOT_READY", "zeFenceQueryStatus", fence)
    ze.ok("zeCommandQueueExecuteCommandLists", queue, 1, handles(made), fence)
    ze.answers("NOT_READY", "zeFenceHostSynchronize", fence, 1000)
    ze.ok("zeEventHostSignal", event)
    ze.ok("zeFenceHostSynchronize", fence, FOREVER)
    equal(out.all, [6, 6], "what the kernel has written")
    ze.ok("zeFenceReset", fence)
    ze.answers("NOT_READY", "zeFenceQueryStatus", fence)


@rule("zeEventPoolCreate", "refuses a pool without events")
def test_empty_pool(make: ZEObjects, ze: ZECalls) -> None:
    desc, pool = new("ze_event_pool_desc_t", count=0), ctypes.c_void_p()
    ze.refuses("INVALID_SIZE", "zeEventPoolCreate", make.context, desc, 0, None, pool)
