"""Executions that C makes, beside those of Python on the same queue."""

from __future__ import annotations

from ctypes import byref, c_int

import pytest
from helpers.ze_bench import FOREVER, ZeBench
from helpers.ze_calls import array, new
from helpers.ze_entries import asked_of_python, begin_in_c


def adding(bench: ZeBench, out: object, value: int = 1) -> int:
    """Return a closed list that adds a number."""
    made = bench.list(in_order=True)
    for _ in range(3):
        bench.launch(made, bench.kernel("add", out, c_int(value)), 4)
    bench.ze.ok("zeCommandListClose", made)
    return made


def run_until_c_does(bench: ZeBench, made: int) -> int:
    """Run a list until Python is not asked any more, and return how often it has run."""
    if not begin_in_c():
        pytest.skip("FAIRLEAD_CALLS=python")
    with asked_of_python() as asked:
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
    fence = bench.ze.made("zeFenceCreate", bench.queue, byref(new("ze_fence_desc_t")))
    empty = bench.list()
    bench.ze.ok("zeCommandListClose", empty)
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
    bench.ze.ok("zeCommandListClose", gate)
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
