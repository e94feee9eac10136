"""Executions that C makes, beside those of Python on the same queue."""

from __future__ import annotations

import threading
from ctypes import byref, c_int
from typing import Any

import pytest
from helpers.entries import asked_of_python, begin_in_c
from helpers.ze_bench import FOREVER, ZeBench
from helpers.ze_calls import array, new

from fairlead.icd.abi import OPENCL
from fairlead.icd.calls import query_properties
from fairlead.loader.ze.abi import ZE
from fairlead.plugins.level_zero.core import driver
from fairlead.plugins.level_zero.lists import ZeCommandList

PROFILING = OPENCL["CL_QUEUE_PROFILING_ENABLE"]


def adding(bench: ZeBench, out: object, value: int = 1) -> int:
    """Return a closed list that adds a number."""
    made = bench.list(in_order=True)
    for _ in range(3):
        bench.launch(made, bench.kernel("add", out, c_int(value)), 4)
    bench.close_list(made)
    return made


def run_until_c_does(bench: ZeBench, made: int) -> int:
    """Run a list until Python is not asked any more, and return how often it has run."""
    if not begin_in_c(driver):
        pytest.skip("FAIRLEAD_CALLS=python")
    with asked_of_python(driver) as asked:
        for turn in range(1, 200):
            asked.clear()
            bench.run(made)
            if not asked:
                return turn
    pytest.skip("no engine may enqueue this list without Python")


def test_c_executes_a_list_again(bench: ZeBench) -> None:
    out = bench.ints(count=4)
    made = adding(bench, out.pointer)
    times = run_until_c_does(bench, made)
    assert out.all == [3 * times] * 4


def test_a_wait_of_python_is_for_what_c_has_enqueued(bench: ZeBench) -> None:
    out = bench.ints(count=4)
    made = adding(bench, out.pointer)
    times = run_until_c_does(bench, made)
    for _ in range(5):
        bench.run(made, wait=False)
    while bench.ze.code("zeCommandQueueSynchronize", bench.queue, 1_000_000) != "SUCCESS":
        pass
    assert out.all == [3 * (times + 5)] * 4


def test_a_fence_is_after_what_c_has_enqueued(bench: ZeBench) -> None:
    out = bench.ints(count=4)
    made = adding(bench, out.pointer)
    times = run_until_c_does(bench, made)
    fence = bench.ze.make("zeFenceCreate", bench.queue, new("ze_fence_desc_t"))
    empty = bench.list()
    bench.close_list(empty)
    bench.run(made, wait=False)
    bench.ze.ok("zeCommandQueueExecuteCommandLists", bench.queue, 1, array(empty), fence)
    bench.ze.ok("zeFenceHostSynchronize", fence, FOREVER)
    assert out.all == [3 * (times + 1)] * 4
    bench.ze.ok("zeFenceDestroy", fence)


def test_c_waits_its_turn_behind_a_step_of_python(bench: ZeBench) -> None:
    """A list that waits for an event keeps everything behind it waiting."""
    out, (event,) = bench.ints(count=4), bench.events(1)
    made = adding(bench, out.pointer)
    times = run_until_c_does(bench, made)
    gate = bench.list()
    bench.ze.ok("zeCommandListAppendWaitOnEvents", gate, 1, array(event))
    bench.close_list(gate)
    bench.run(gate, made, wait=False)
    bench.run(made, wait=False)
    assert bench.ze.code("zeCommandQueueSynchronize", bench.queue, 0) == "NOT_READY"
    assert out.all == [3 * times] * 4
    bench.ze.ok("zeEventHostSignal", event)
    bench.ze.ok("zeCommandQueueSynchronize", bench.queue, FOREVER)
    assert out.all == [3 * (times + 2)] * 4


def test_a_destroyed_queue_runs_to_its_end(bench: ZeBench) -> None:
    out, queue = bench.ints(count=4), bench.new_queue()
    made = adding(bench, out.pointer)
    times = run_until_c_does(bench, made)
    turns = 0
    for _ in range(40):
        bench.run(made, queue=queue, wait=False)
        turns += 1
    bench.ze.ok("zeCommandQueueSynchronize", queue, FOREVER)
    bench.run(made, queue=queue, wait=False)
    bench.ze.ok("zeCommandQueueDestroy", queue)
    bench.run(made)
    assert out.all == [3 * (times + turns + 2)] * 4


# immediate lists, and events that C signals


APPEND = "zeCommandListImmediateAppendCommandListsExp"


def append(bench: ZeBench, to: int, made: int, signal: int = 0, *waits: int) -> None:
    """Append a list to an immediate list."""
    waiting = len(waits), array(*waits) if waits else None
    bench.ze.ok(APPEND, to, 1, array(made), signal, *waiting)


def append_until_c_does(bench: ZeBench, to: int, made: int) -> int:
    """Append a list until Python is not asked any more, and return how often it has run."""
    if not begin_in_c(driver):
        pytest.skip("FAIRLEAD_CALLS=python")
    with asked_of_python(driver) as asked:
        for turn in range(1, 200):
            bench.ze.ok("zeCommandListHostSynchronize", to, FOREVER)
            asked.clear()
            append(bench, to, made)
            if APPEND not in asked:
                return turn
    pytest.skip("no engine may enqueue this list without Python")


def test_c_appends_lists_and_signals_events(bench: ZeBench) -> None:
    out, (event,) = bench.ints(count=4), bench.events(1)
    made, to = adding(bench, out.pointer), bench.immediate(flags=2)
    times = append_until_c_does(bench, to, made)
    bench.ze.ok("zeCommandListHostSynchronize", to, FOREVER)
    bench.ze.ok("zeEventHostReset", event)
    with asked_of_python(driver) as asked:
        for turn in range(1, 20):
            assert bench.ze.code("zeEventQueryStatus", event) == "NOT_READY"
            append(bench, to, made, event)
            while bench.ze.code("zeEventQueryStatus", event) == "NOT_READY":
                pass
            assert out.all == [3 * (times + turn)] * 4
            bench.ze.ok("zeEventHostReset", event)
    assert asked == []


def test_a_thread_waits_in_c_for_an_event_of_c(bench: ZeBench) -> None:
    out, (event,) = bench.ints(count=4), bench.events(1)
    made, to = adding(bench, out.pointer), bench.immediate(flags=2)
    times = append_until_c_does(bench, to, made)
    seen = list[list[int]]()

    def use() -> None:
        bench.ze.ok("zeCommandListHostSynchronize", to, FOREVER)  # also for Python's last
        asked.clear()
        append(bench, to, made, event)
        bench.ze.ok("zeEventHostSynchronize", event, FOREVER)
        seen.append(out.all)

    with asked_of_python(driver) as asked:
        thread = threading.Thread(target=use)
        thread.start()
        thread.join()
    assert seen == [[3 * (times + 1)] * 4]
    assert asked == []


def test_python_waits_for_an_event_of_c(bench: ZeBench) -> None:
    """Then Python has it, until it is reset."""
    out, (event,) = bench.ints(count=4), bench.events(1)
    made, to, other = adding(bench, out.pointer), bench.immediate(flags=2), bench.immediate()
    times = append_until_c_does(bench, to, made)
    append(bench, to, made, event)
    bench.launch(other, bench.kernel("mul", out.pointer, c_int(0)), 4, 0, event)
    bench.ze.ok("zeCommandListHostSynchronize", other, FOREVER)
    assert out.all == [0] * 4
    with asked_of_python(driver) as asked:
        for expected in (["zeEventHostReset"], []):
            asked.clear()
            bench.ze.ok("zeEventHostReset", event)
            assert asked == expected
    append(bench, to, made, event)
    assert bench.ze.code("zeEventHostSynchronize", event, FOREVER) == "SUCCESS"
    assert out.all == [3] * 4 and times


def test_what_waits_for_an_event_goes_on_when_c_would_signal_it(bench: ZeBench) -> None:
    out, (event,) = bench.ints(count=4), bench.events(1)
    made, to, other = adding(bench, out.pointer), bench.immediate(flags=2), bench.immediate()
    append_until_c_does(bench, to, made)
    bench.launch(other, bench.kernel("mul", out.pointer, c_int(0)), 4, 0, event)
    assert bench.ze.code("zeCommandListHostSynchronize", other, 0) == "NOT_READY"
    append(bench, to, made, event)
    bench.ze.ok("zeCommandListHostSynchronize", other, FOREVER)
    assert out.all == [0] * 4


def test_events_with_times_and_captures_are_python_s(bench: ZeBench) -> None:
    out, (event,) = bench.ints(count=4), bench.events(1, 5)
    made, to = adding(bench, out.pointer), bench.immediate(flags=2)
    append_until_c_does(bench, to, made)
    with asked_of_python(driver) as asked:
        append(bench, to, made, event)
        bench.ze.ok("zeEventHostSynchronize", event, FOREVER)
        bench.ze.ok("zeEventQueryKernelTimestamp", event, byref(new_times()))
        assert asked == [APPEND, "zeEventHostSynchronize"]
        asked.clear()
        bench.ze.ok("zeCommandListBeginGraphCaptureExt", to)
        code = bench.ze.code(APPEND, to, 1, array(made))
        assert (code, asked) == ("GRAPH_CAPTURE_UNSUPPORTED", [APPEND])


def new_times() -> Any:
    return ZE.get_struct("ze_kernel_timestamp_result_t")()


def test_a_destroyed_event_of_c(bench: ZeBench) -> None:
    out, (event,) = bench.ints(count=4), bench.events(1)
    made, to = adding(bench, out.pointer), bench.immediate(flags=2)
    times = append_until_c_does(bench, to, made)
    append(bench, to, made, event)
    bench.ze.ok("zeEventDestroy", event)
    bench.ze.ok("zeCommandListHostSynchronize", to, FOREVER)
    assert out.all == [3 * (times + 1)] * 4


def test_c_runs_a_list_that_leaves_its_own_events_reset(bench: ZeBench) -> None:
    """Python runs it where one of them is signaled before."""
    out, (event,) = bench.ints(0), bench.events(1)
    made, to = bench.list(), bench.immediate(flags=2)
    bench.launch(made, bench.kernel("add", out.pointer, c_int(3)), 1, event)
    bench.launch(made, bench.kernel("mul", out.pointer, c_int(2)), 1, 0, event)
    bench.ze.ok("zeCommandListAppendBarrier", made)
    bench.ze.ok("zeCommandListAppendEventReset", made, event)
    bench.close_list(made)
    times = append_until_c_does(bench, to, made)
    bench.ze.ok("zeCommandListHostSynchronize", to, FOREVER)
    expected = 0
    for _ in range(times):
        expected = to_int(2 * (expected + 3))
    assert out[0] == expected
    with asked_of_python(driver) as asked:
        for by_host in (False, True, False):
            if by_host:
                bench.ze.ok("zeEventHostSignal", event)
            asked.clear()
            append(bench, to, made)
            assert asked == ([APPEND] if by_host else [])
            bench.ze.ok("zeCommandListHostSynchronize", to, FOREVER)
            assert bench.ze.code("zeEventQueryStatus", event) == "NOT_READY"
            expected = to_int(2 * (expected + 3))
            assert out[0] == expected


def to_int(value: int) -> int:
    """Return what a number becomes in an int of C."""
    return c_int(value).value


def test_times_begin_behind_what_c_has_enqueued(bench: ZeBench) -> None:
    """The queue of OpenCL profiles from then on. Before that it costs nothing more."""
    out, (event,) = bench.ints(count=4), bench.events(1, 5)
    made, to = adding(bench, out.pointer), bench.immediate(flags=2)
    times = append_until_c_does(bench, to, made)
    stream = driver.objects.list_owned(ZeCommandList.type)[to].stream
    assert stream is not None and not query_properties(stream.cl) & PROFILING
    for _ in range(5):
        append(bench, to, made)
    bench.launch(to, bench.kernel("mul", out.pointer, c_int(2)), 4, event)
    for _ in range(5):
        append(bench, to, made)
    bench.ze.ok("zeCommandListHostSynchronize", to, FOREVER)
    assert out.all == [3 * (times + 5) * 2 + 3 * 5] * 4
    assert query_properties(stream.cl) & PROFILING
    row = new_times()
    bench.ze.ok("zeEventQueryKernelTimestamp", event, byref(row))
    assert 0 < row.context.kernelStart < row.context.kernelEnd
    assert append_until_c_does(bench, to, made)
