"""Events, fences and queues: what waits for what, and what blocks nobody.

A completion says that its command has failed.
"""

from __future__ import annotations

import ctypes
from ctypes import byref, c_int
from typing import Any

import pyopencl as cl
import pytest
from helpers.ze_bench import FOREVER, Ints, ZeBench
from helpers.ze_calls import array, new

import fairlead
from fairlead.conformance.threads import in_threads
from fairlead.icd.calls import call, find_device_profile
from fairlead.loader.ze.abi import ZE, LevelZeroError
from fairlead.plugins.level_zero.completions import Completion

#: Nanoseconds that two readings of the clocks may differ by, on a busy machine, too.
_DRIFT = 10_000_000_000


def state(bench: ZeBench, event: int) -> str:
    return bench.ze.code("zeEventQueryStatus", event)


def adding(bench: ZeBench, out: Ints, value: int, signal: int = 0, *waits: int) -> int:
    """Return a closed list that adds a value."""
    made = bench.list()
    bench.launch(made, bench.kernel("add", out.pointer, c_int(value)), 1, signal, *waits)
    bench.close_list(made)
    return made


def test_a_list_that_waits_for_the_host_blocks_no_other_queue(bench: ZeBench) -> None:
    out, (gate, done) = bench.ints(0, 0), bench.events(2)
    other = bench.new_queue()
    bench.run(adding(bench, out, 1, done, gate), wait=False)
    bench.run(adding(bench, out, 10), queue=other)
    assert out[0] == 10
    assert state(bench, done) == "NOT_READY"
    assert bench.ze.code("zeCommandQueueSynchronize", bench.queue, 1000) == "NOT_READY"
    bench.ze.ok("zeEventHostSignal", gate)
    bench.ze.ok("zeEventHostSynchronize", done, FOREVER)
    assert out[0] == 11
    bench.ze.ok("zeCommandQueueDestroy", other)


def test_an_event_that_a_list_resets_is_waited_for_again(bench: ZeBench) -> None:
    out, (event,) = bench.ints(0), bench.events(1)
    bench.ze.ok("zeEventHostSignal", event)
    made = bench.list()
    bench.ze.ok("zeCommandListAppendWaitOnEvents", made, 1, array(event))
    bench.launch(made, bench.kernel("add", out.pointer, c_int(1)))
    bench.ze.ok("zeCommandListAppendEventReset", made, event)
    bench.ze.ok("zeCommandListAppendWaitOnEvents", made, 1, array(event))
    bench.launch(made, bench.kernel("add", out.pointer, c_int(10)))
    bench.close_list(made)
    bench.run(made, wait=False)
    assert bench.ze.code("zeCommandQueueSynchronize", bench.queue, 0) == "NOT_READY"
    assert state(bench, event) == "NOT_READY"
    bench.ze.ok("zeEventHostSignal", event)
    bench.ze.ok("zeCommandQueueSynchronize", bench.queue, FOREVER)
    assert out[0] == 11


def test_a_fence_of_another_queue_is_refused(bench: ZeBench) -> None:
    other, out = bench.new_queue(), bench.ints(0)
    fence = bench.ze.make("zeFenceCreate", other, new("ze_fence_desc_t"))
    lists = array(adding(bench, out, 1))
    code = bench.ze.code("zeCommandQueueExecuteCommandLists", bench.queue, 1, lists, fence)
    assert code == "INVALID_SYNCHRONIZATION_OBJECT"
    bench.ze.ok("zeFenceDestroy", fence)
    bench.ze.ok("zeCommandQueueDestroy", other)


def test_an_immediate_list_keeps_the_arguments_of_what_waits(bench: ZeBench) -> None:
    out, (gate,) = bench.ints(0), bench.events(1)
    made, kernel = bench.immediate(flags=2), bench.kernel("add", out.pointer, c_int(1))
    bench.launch(made, kernel, 1, 0, gate)
    bench.set(kernel, 1, c_int(100))
    bench.launch(made, kernel, 1)
    bench.set(kernel, 1, c_int(1000))
    assert bench.ze.code("zeCommandListHostSynchronize", made, 0) == "NOT_READY"
    assert out[0] == 0
    bench.ze.ok("zeEventHostSignal", gate)
    bench.ze.ok("zeCommandListHostSynchronize", made, FOREVER)
    assert out[0] == 101
    bench.ze.ok("zeCommandListDestroy", made)


def test_a_host_function_runs_in_its_turn(bench: ZeBench) -> None:
    out, seen, (gate,) = bench.ints(1), list[tuple[int, int | None]](), bench.events(1)
    function = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(lambda data: seen.append((out[0], data)))
    made, add = bench.list(), bench.kernel("add", out.pointer, c_int(1))
    bench.launch(made, add, 1, 0, gate)
    bench.ze.ok(
        "zeCommandListAppendHostFunction",
        *(made, ctypes.cast(function, ctypes.c_void_p), 77, None, None, 0, None),
    )
    bench.launch(made, add)
    bench.close_list(made)
    bench.run(made, wait=False)
    assert seen == []
    bench.ze.ok("zeEventHostSignal", gate)
    bench.ze.ok("zeCommandQueueSynchronize", bench.queue, FOREVER)
    assert (seen, out[0]) == ([(2, 77)], 3)
    bench.run(made)
    assert seen == [(2, 77), (4, 77)]


def test_a_list_writes_timestamps(bench: ZeBench) -> None:
    out, (timed, done) = bench.ints(0), bench.events(2, flags=5)
    times, clock = bench.ints(count=24), bench.ints(count=2)
    made = bench.list()
    bench.launch(made, bench.kernel("add", out.pointer, c_int(1)), 1, timed)
    bench.ze.ok("zeCommandListAppendBarrier", made)
    bench.ze.ok(
        "zeCommandListAppendQueryKernelTimestamps",
        *(made, 1, array(timed), times.address, byref(ctypes.c_size_t(64)), done, 0, None),
    )
    bench.ze.ok("zeCommandListAppendWriteGlobalTimestamp", made, clock.address)
    bench.close_list(made)
    bench.run(made)
    assert state(bench, done) == "SUCCESS"
    row = new("ze_kernel_timestamp_result_t")
    bench.ze.ok("zeEventQueryKernelTimestamp", timed, row)
    assert times.all[:16] == [0] * 16
    assert times.raw[64:96] == bytes(row)
    assert any(clock.all)


def test_threads_share_a_context(bench: ZeBench) -> None:
    """Each has a queue and an immediate list of its own, and they signal a common event."""
    (gate,) = bench.events(1)
    outs = [bench.ints(0) for _ in range(4)]

    def work(out: Ints) -> None:
        queue, immediate = bench.new_queue(), bench.immediate()
        first, second = adding(bench, out, 1, 0, gate), adding(bench, out, 10)
        bench.run(first, queue=queue, wait=False)
        kernel = bench.kernel("add", out.pointer, c_int(100))
        bench.ze.ok("zeEventHostSignal", gate)
        bench.run(second, queue=queue)
        bench.launch(immediate, kernel)
        bench.ze.ok("zeCommandListHostSynchronize", immediate, FOREVER)
        for made in (immediate, first, second):
            bench.ze.ok("zeCommandListDestroy", made)
        bench.ze.ok("zeCommandQueueDestroy", queue)

    bench.module()
    in_threads(4, lambda number: work(outs[number]))
    assert [out[0] for out in outs] == [111] * 4


def read_times(bench: ZeBench, event: int) -> Any:
    struct = "ze_kernel_timestamp_result_t"
    return bench.ze.properties("zeEventQueryKernelTimestamp", struct, event).context


def read_clocks(bench: ZeBench) -> tuple[int, int]:
    host, device = ctypes.c_uint64(), ctypes.c_uint64()
    bench.ze.ok("zeDeviceGetGlobalTimestamps", bench.device, host, device)
    return host.value, device.value


@pytest.mark.parametrize("is_counter_based", [False, True])
def test_an_event_has_the_times_of_the_lists_before_it(
    bench: ZeBench, is_counter_based: bool
) -> None:
    out, regular = bench.ints(count=4), bench.list()
    for _ in range(3):
        bench.launch(regular, bench.kernel("add", out.pointer, c_int(1)), 4)
    bench.close_list(regular)
    event = bench.events(1, flags=5)[0]
    if is_counter_based:
        desc = new("ze_event_counter_based_desc_t")
        desc.flags = ZE["ZE_EVENT_COUNTER_BASED_FLAG_IMMEDIATE"]
        desc.flags |= ZE["ZE_EVENT_COUNTER_BASED_FLAG_DEVICE_TIMESTAMP"]
        event = bench.ze.make("zeEventCounterBasedCreate", bench.context, bench.device, desc)
    made = bench.immediate(flags=ZE["ZE_COMMAND_QUEUE_FLAG_IN_ORDER"])
    append = "zeCommandListImmediateAppendCommandListsExp"
    bench.ze.ok(append, made, 1, array(regular), event, 0, None)
    bench.ze.ok("zeEventHostSynchronize", event, FOREVER)
    times, clocks = read_times(bench, event), read_clocks(bench)
    assert 0 < times.kernelStart < times.kernelEnd <= clocks[1]
    kernel_times = new("ze_kernel_timestamp_result_t")
    synchronized = new("ze_synchronized_timestamp_result_ext_t")
    pointers = {
        "pKernelTimestampsBuffer": kernel_times,
        "pSynchronizedTimestampsBuffer": synchronized,
    }
    row = new("ze_event_query_kernel_timestamps_results_ext_properties_t", **pointers)
    routine = "zeEventQueryKernelTimestampsExt"
    bench.ze.ok(routine, event, bench.device, byref(ctypes.c_uint32(1)), byref(row))
    assert kernel_times.context.kernelStart == times.kernelStart
    span = synchronized.context.kernelEnd - synchronized.context.kernelStart
    assert span == times.kernelEnd - times.kernelStart
    assert 0 < synchronized.context.kernelEnd <= read_clocks(bench)[0] + _DRIFT


@pytest.mark.parametrize("waits", [False, True])
def test_a_command_behind_a_failed_event_has_failed(waits: bool) -> None:
    """Intel's driver says that such a command is complete. The completion does not."""
    for device in fairlead.devices():
        own = device.to_pyopencl()
        profile = find_device_profile(own.int_ptr)
        context = cl.Context([own])
        queue, gate = cl.CommandQueue(context), cl.UserEvent(context)
        event = cl.enqueue_marker(queue, wait_for=[gate])
        call(event.int_ptr, "clRetainEvent")
        end = Completion(event.int_ptr, None, profile.waits_one_at_a_time)
        queue.flush()
        assert end.is_pending
        gate.set_status(-5)
        with pytest.raises(LevelZeroError, match="DEVICE_LOST"):
            assert end.wait(None) if waits else end.is_done
        assert not end.is_pending
