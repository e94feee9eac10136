"""Counter-based events: each stands for the last call that signals it."""

from __future__ import annotations

from collections.abc import Callable
from ctypes import byref, c_int

import pytest
from helpers.entries import asked_of_python, begin_in_c
from helpers.ze_bench import FOREVER, Ints, ZeBench
from helpers.ze_calls import array, new

from fairlead.plugins.level_zero.core import driver

IN_ORDER = 2
STATUS, WAIT = "zeEventQueryStatus", "zeEventHostSynchronize"


def of_a_pool(bench: ZeBench) -> int:
    """Return an event of a pool of such events (ZE_experimental_event_pool_counter_based)."""
    return bench.events(1, pNext=new("ze_event_pool_counter_based_exp_desc_t", flags=3))[0]


def of_its_own(bench: ZeBench) -> int:
    """Return an event that needs no pool (Level Zero 1.15)."""
    desc = new("ze_event_counter_based_desc_t", flags=7)
    return bench.ze.make("zeEventCounterBasedCreate", bench.context, bench.device, desc)


@pytest.fixture(params=[of_a_pool, of_its_own])
def event(request: pytest.FixtureRequest, bench: ZeBench) -> int:
    """An event, made in either way."""
    make: Callable[[ZeBench], int] = request.param
    return make(bench)


class Adding:
    """An immediate list, and launches on it that add to a number."""

    def __init__(self, bench: ZeBench) -> None:
        self.bench, self.out = bench, bench.ints(0)
        self.list = bench.immediate(flags=IN_ORDER)

    def add(self, value: int, signal: int = 0, *waits: int) -> None:
        kernel = self.bench.kernel("add", self.out.pointer, c_int(value))
        self.bench.launch(self.list, kernel, 1, signal, *waits)

    def finish(self) -> int:
        self.bench.ze.ok("zeCommandListHostSynchronize", self.list, FOREVER)
        return self.out[0]


def test_it_is_signaled_again_without_a_reset(bench: ZeBench, event: int) -> None:
    adding = Adding(bench)
    for turn in range(1, 6):
        adding.add(1, event)
        bench.ze.ok(WAIT, event, FOREVER)
        assert adding.out[0] == turn
        if turn % 2:
            bench.ze.ok(STATUS, event)


def test_neither_the_host_nor_a_list_resets_or_signals_it(bench: ZeBench, event: int) -> None:
    for routine in ("zeEventHostReset", "zeEventHostSignal"):
        assert bench.ze.code(routine, event) == "INVALID_ARGUMENT"
    made = bench.list(in_order=True)
    assert bench.ze.code("zeCommandListAppendEventReset", made, event) == "INVALID_ARGUMENT"


def test_only_in_order_lists_signal_it(bench: ZeBench, event: int) -> None:
    kernel, count = bench.kernel("add", bench.ints(0).pointer, c_int(1)), new("ze_group_count_t")
    for made in (bench.list(), bench.immediate()):
        given = made, kernel, byref(count), event, 0, None
        assert bench.ze.code("zeCommandListAppendLaunchKernel", *given) == "INVALID_ARGUMENT"
        for routine in ("zeCommandListAppendSignalEvent", "zeCommandListAppendBarrier"):
            more = () if routine.endswith("SignalEvent") else (0, None)
            assert bench.ze.code(routine, made, event, *more) == "INVALID_ARGUMENT"


def test_a_call_that_has_to_wait_makes_it_incomplete(bench: ZeBench, event: int) -> None:
    """Whatever its calls before have come to."""
    (gate,), adding = bench.events(1), Adding(bench)
    adding.add(1, event)
    bench.ze.ok(WAIT, event, FOREVER)
    adding.add(10, event, gate)
    assert bench.ze.code(STATUS, event) == "NOT_READY"
    assert bench.ze.code(WAIT, event, 1000) == "NOT_READY"
    assert adding.out[0] == 1
    bench.ze.ok("zeEventHostSignal", gate)
    bench.ze.ok(WAIT, event, FOREVER)
    assert adding.out[0] == 11


def test_a_wait_is_for_the_call_that_was_the_last_one_then(bench: ZeBench, event: int) -> None:
    """A later call, which waits for the host, does not hold it up."""
    gate, first_gate = bench.events(2)
    first, second, third = Adding(bench), Adding(bench), Adding(bench)
    first.add(1, event, first_gate)
    second.add(1, 0, event)
    third.add(1, event, gate)
    bench.ze.ok("zeEventHostSignal", first_gate)
    assert (first.finish(), second.finish()) == (1, 1)
    assert bench.ze.code(STATUS, event) == "NOT_READY"
    assert third.out[0] == 0
    bench.ze.ok("zeEventHostSignal", gate)
    assert third.finish() == 1
    bench.ze.ok(STATUS, event)


def test_a_list_signals_it_at_each_execution(bench: ZeBench, event: int) -> None:
    (gate,), out = bench.events(1), bench.ints(0)
    made = bench.list(in_order=True)
    bench.ze.ok("zeCommandListAppendWaitOnEvents", made, 1, array(gate))
    bench.launch(made, bench.kernel("add", out.pointer, c_int(1)), 1, event)
    bench.close_list(made)
    for turn in range(1, 4):
        bench.run(made, wait=False)
        assert bench.ze.code(STATUS, event) == "NOT_READY"
        bench.ze.ok("zeEventHostSignal", gate)
        bench.ze.ok(WAIT, event, FOREVER)
        assert out[0] == turn
        bench.ze.ok("zeEventHostReset", gate)


def test_c_signals_it_after_python_has(bench: ZeBench, event: int) -> None:
    """Python hands it over when what signals it is enqueued, and takes it when it looks at it."""
    if not begin_in_c(driver):
        pytest.skip("FAIRLEAD_CALLS=python")
    out, adding, made = bench.ints(0), Adding(bench), bench.list(in_order=True)
    bench.launch(made, bench.kernel("add", out.pointer, c_int(1)), 1)
    bench.close_list(made)
    given = adding.list, 1, array(made), event, 0, None
    in_c, turns = 0, 30
    with asked_of_python(driver) as asked:
        for turn in range(turns):
            adding.add(1, event)  # by Python
            bench.ze.ok(WAIT, event, FOREVER)
            assert adding.out[0] == turn + 1
            asked.clear()
            bench.ze.ok("zeCommandListImmediateAppendCommandListsExp", *given)
            bench.ze.ok(WAIT, event, FOREVER)
            in_c += not asked
            assert out[0] == turn + 1
            adding.add(0, 0, event)  # Python waits for it
    assert in_c > 0


def test_its_times_are_those_of_the_last_call(bench: ZeBench) -> None:
    chained = new("ze_event_pool_counter_based_exp_desc_t", flags=1)
    (event,) = bench.events(1, flags=5, pNext=chained)
    adding, ends = Adding(bench), []
    for _ in range(3):
        adding.add(1, event)
        bench.ze.ok(WAIT, event, FOREVER)
        row = new("ze_kernel_timestamp_result_t")
        bench.ze.ok("zeEventQueryKernelTimestamp", event, row)
        times = getattr(row, "global")
        assert times.kernelStart < times.kernelEnd
        ends.append(times.kernelEnd)
    assert ends == sorted({*ends})


class Timed:
    """A counter-based event with times, and what reads them."""

    def __init__(self, bench: ZeBench) -> None:
        self.bench = bench
        chained = new("ze_event_pool_counter_based_exp_desc_t", flags=1)
        (self.event,) = bench.events(1, flags=5, pNext=chained)

    def now(self) -> bytes:
        """Return the times of its last call, when that has ended."""
        row = new("ze_kernel_timestamp_result_t")
        self.bench.ze.ok(WAIT, self.event, FOREVER)
        self.bench.ze.ok("zeEventQueryKernelTimestamp", self.event, row)
        return bytes(row)

    def append_query(self, made: int, times: Ints, *waits: int) -> None:
        """Append a query of its times to a list."""
        given = made, 1, array(self.event), times.address, None, None
        waiting = len(waits), array(*waits) if waits else None
        self.bench.ze.ok("zeCommandListAppendQueryKernelTimestamps", *given, *waiting)


def bytes_of(times: Ints) -> bytes:
    return times.raw[:32]


def test_an_append_reads_the_times_of_the_last_call_then(bench: ZeBench) -> None:
    """A later call changes nothing, although the query has to wait for the host until then."""
    timed, adding, asking = Timed(bench), Adding(bench), bench.immediate(flags=IN_ORDER)
    (gate,), times = bench.events(1), bench.ints(count=8)
    adding.add(1, timed.event)
    first = timed.now()
    timed.append_query(asking, times, gate)
    adding.add(1, timed.event)
    second = timed.now()
    bench.ze.ok("zeEventHostSignal", gate)
    bench.ze.ok("zeCommandListHostSynchronize", asking, FOREVER)
    assert bytes_of(times) == first != second


def test_a_list_reads_the_times_of_the_last_call_before_each_execution(bench: ZeBench) -> None:
    timed, adding, made = Timed(bench), Adding(bench), bench.list(in_order=True)
    (gate,), times = bench.events(1), bench.ints(count=8)
    timed.append_query(made, times, gate)
    bench.close_list(made)
    for _ in range(2):
        adding.add(1, timed.event)
        before = timed.now()
        bench.run(made, wait=False)
        adding.add(1, timed.event)
        after = timed.now()
        bench.ze.ok("zeEventHostSignal", gate)
        bench.ze.ok("zeCommandQueueSynchronize", bench.queue, FOREVER)
        assert bytes_of(times) == before != after
        bench.ze.ok("zeEventHostReset", gate)


@pytest.mark.parametrize("is_regular", [False, True])
def test_a_call_that_had_to_wait_leaves_the_times_of_a_later_one(
    is_regular: bool, bench: ZeBench
) -> None:
    """The later call is the last one, although it ends before."""
    timed, late, soon = Timed(bench), Adding(bench), Adding(bench)
    (gate,) = bench.events(1)
    if is_regular:
        made = bench.list(in_order=True)
        bench.launch(made, bench.kernel("add", late.out.pointer, c_int(1)), 1, timed.event, gate)
        bench.close_list(made)
        bench.run(made, wait=False)
    else:
        late.add(1, timed.event, gate)
    soon.add(1, timed.event)
    times = timed.now()
    bench.ze.ok("zeEventHostSignal", gate)
    bench.ze.ok("zeCommandQueueSynchronize", bench.queue, FOREVER)
    assert (late.finish(), soon.finish()) == (1, 1)
    assert timed.now() == times
