"""Threads that record, change and execute lists, on queues that they share; build modules; and
signal events to each other."""

from __future__ import annotations

import _thread
import ctypes
import gc
import threading
from ctypes import c_int
from typing import Any

import pytest
from helpers.ze_bench import FOREVER, ZeBench, argument
from helpers.ze_calls import array

from fairlead.conformance.threads import in_threads
from fairlead.plugins.level_zero import mutable
from fairlead.plugins.level_zero.streams import get_order_lock

THREADS = 8


def work(bench: ZeBench, queue: int, number: int, turns: int) -> None:
    """Change a list, record another one, execute both and look at what they have written."""
    out, other = bench.ints(count=4), bench.ints(count=4)
    kernel, adding = bench.kernel("add", out.pointer, c_int(0)), bench.kernel("add", other.pointer)
    made, plain = bench.list(mutable=True), bench.list(in_order=True)
    command = bench.next_id(made)
    bench.launch(made, kernel, 4)
    bench.close_list(made)
    expected = added = 0
    for turn in range(turns):
        value = number * turns + turn
        assert bench.update(made, argument(command, 1, c_int(value))) == "SUCCESS"
        bench.close_list(made)
        bench.ze.ok("zeCommandListReset", plain)
        for part in (1, 2):
            bench.set(adding, 1, c_int(part))
            bench.launch(plain, adding, 4)
        bench.close_list(plain)
        bench.run(made, queue=queue, wait=False)
        bench.run(plain, queue=queue)
        expected, added = (expected + value) & 0x7FFFFFFF, added + 3
        assert (out.all, other.all) == ([expected] * 4, [added] * 4), (number, turn)


def build_and_signal(bench: ZeBench, number: int, turns: int) -> None:
    """Build a module of its own, and launch its kernel between two events of the host."""
    out, immediate = bench.ints(count=4), bench.immediate()
    begun, done = bench.events(2)
    for turn in range(turns):
        text = f"kernel void set(global int *out) {{ out[get_global_id(0)] = {turn + number}; }}"
        module = bench.module(text.encode())
        kernel = bench.kernel("set", out.pointer, module=module)
        bench.launch(immediate, kernel, 4, done, begun)
        bench.ze.ok("zeEventHostSignal", begun)
        bench.ze.ok("zeEventHostSynchronize", done, FOREVER)
        assert out.all == [turn + number] * 4
        for event in (begun, done):
            bench.ze.ok("zeEventHostReset", event)
        bench.ze.ok("zeKernelDestroy", kernel)
    bench.ze.ok("zeCommandListDestroy", immediate)


def together(bench: ZeBench, turns: int, builds: int) -> None:
    """Let threads work. Two of them share a queue."""
    queues = [bench.new_queue() for _ in range(THREADS // 2)]

    def begin(number: int) -> None:
        build_and_signal(bench, number, builds)
        work(bench, queues[number // 2], number, turns)

    in_threads(THREADS, begin)
    for queue in queues:
        bench.ze.ok("zeCommandQueueDestroy", queue)


#: Long enough for a thread to wait while another one does.
LONG = b"""
kernel void count(global int *out, int turns) {
    int sum = 0;
    for (int i = 0; i < turns; i++)
        sum = (sum ^ i) * 3 + 1;
    out[get_global_id(0)] += 1 | (sum == 1 << 30);
}
"""


@pytest.mark.parametrize("others", [FOREVER, FOREVER - 1])
def test_a_wait_is_for_all_that_other_threads_wait_for(bench: ZeBench, others: int) -> None:
    """Four threads execute lists on one queue, and wait for it. C waits for ever, and Python for
    any other time. Each of them may have taken the event that the next one looks for."""
    queue, module = bench.new_queue(), bench.module(LONG)
    wait = "zeCommandQueueSynchronize"

    def run_and_look(number: int) -> None:
        out, made = bench.ints(count=4), bench.list(in_order=True)
        bench.launch(made, bench.kernel("count", out.pointer, c_int(20_000), module=module), 4)
        bench.close_list(made)
        for turn in range(1, 201):
            bench.run(made, queue=queue, wait=False)
            bench.ze.ok(wait, queue, others if number % 2 else FOREVER)
            assert out.all == [turn] * 4, (number, turn)
        bench.ze.ok("zeCommandListDestroy", made)

    in_threads(4, run_and_look)
    bench.ze.ok("zeCommandQueueDestroy", queue)


def test_a_queue_goes_on_after_a_host_function_that_had_no_thread(
    bench: ZeBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    out, seen, queue = bench.ints(0), list[int](), bench.new_queue()
    function = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(lambda data: seen.append(out[0]))
    made = bench.list(in_order=True)
    host_step = made, ctypes.cast(function, ctypes.c_void_p), None, None, None, 0, None
    bench.ze.ok("zeCommandListAppendHostFunction", *host_step)
    bench.launch(made, bench.kernel("add", out.pointer, c_int(1)))
    bench.close_list(made)

    def refuse(*given: object) -> int:
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as patch:
        patch.setattr(_thread, "start_new_thread", refuse)
        execute = "zeCommandQueueExecuteCommandLists"
        assert bench.ze.code(execute, queue, 1, array(made), None) != "SUCCESS"
    bench.ze.ok("zeCommandQueueSynchronize", queue, FOREVER)
    out[0] = 0
    for _ in range(2):
        bench.run(made, queue=queue)
    assert seen == [0, 1]
    bench.ze.ok("zeCommandQueueDestroy", queue)


def test_a_new_thread_may_collect_a_queue(bench: ZeBench) -> None:
    """A list starts the thread of its queue, under the lock that the end of a queue needs."""
    function = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(lambda data: None)
    made, queue, here = bench.list(), bench.new_queue(), threading.get_ident()
    host_step = made, ctypes.cast(function, ctypes.c_void_p), None, None, None, 0, None
    bench.ze.ok("zeCommandListAppendHostFunction", *host_step)
    bench.close_list(made)

    def collect(phase: str, info: dict[str, int]) -> None:
        if threading.get_ident() != here:
            with get_order_lock():
                pass

    thresholds = gc.get_threshold()
    gc.callbacks.append(collect)
    gc.set_threshold(1)
    try:
        bench.run(made, queue=queue)
    finally:
        gc.set_threshold(*thresholds)
        gc.callbacks.remove(collect)
    bench.ze.ok("zeCommandQueueDestroy", queue)


@pytest.mark.slow
def test_threads(bench: ZeBench) -> None:
    together(bench, 20, 3)


@pytest.mark.thorough
def test_threads_for_a_minute(bench: ZeBench) -> None:
    """As many turns as take about a minute on two cores."""
    together(bench, 4000, 40)


def test_threads_get_different_identifiers(bench: ZeBench, monkeypatch: pytest.MonkeyPatch) -> None:
    """They may ask for those of one list at the same time."""
    made = bench.list(mutable=True)
    both_ask, make_command = threading.Barrier(2), mutable.MutableCommand

    def make_together(*arguments: Any) -> mutable.MutableCommand:
        both_ask.wait()
        return make_command(*arguments)

    monkeypatch.setattr(mutable, "MutableCommand", make_together)
    assert sorted(in_threads(2, lambda _: bench.next_id(made))) == [1, 2]
