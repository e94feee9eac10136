"""Clones of command lists: what they share with their source, and what not."""

from __future__ import annotations

import ctypes
from ctypes import c_int

from helpers.ze_bench import FOREVER, ZeBench, argument, group_count
from helpers.ze_calls import array, new

from fairlead.conformance.threads import in_threads
from fairlead.loader.ze.abi import ZE

CLONE = "zeCommandListCreateCloneExp"
CLONEABLE = ZE["ZE_COMMAND_LIST_FLAG_EXP_CLONEABLE"]
TIMES = ZE["ZE_EVENT_POOL_FLAG_HOST_VISIBLE"] | ZE["ZE_EVENT_POOL_FLAG_KERNEL_TIMESTAMP"]


def clone(bench: ZeBench, source: int) -> int:
    return bench.ze.make(CLONE, source)


def cloned(bench: ZeBench, source: int) -> int:
    """Return a clone of a list that is closed, and outlives its source."""
    bench.close_list(source)
    made = clone(bench, source)
    bench.ze.ok("zeCommandListDestroy", source)
    return made


def code(bench: ZeBench, source: int) -> str:
    return bench.ze.code(CLONE, source, ctypes.c_void_p())


def test_which_lists_cannot_be_cloned(bench: ZeBench) -> None:
    plain, open_ = bench.list(), bench.list(flags=CLONEABLE)
    bench.close_list(plain)
    assert code(bench, plain) == "INVALID_ARGUMENT"
    assert code(bench, open_) == "INVALID_ARGUMENT"
    assert code(bench, bench.immediate()) == "INVALID_COMMAND_LIST_TYPE"
    mutable = bench.list(mutable=True, flags=CLONEABLE)
    number = bench.next_id(mutable)
    bench.launch(mutable, bench.kernel("add", bench.ints(0).pointer, c_int(1)), 1)
    bench.close_list(mutable)
    assert bench.update(mutable, argument(number, 1, c_int(2))) == "SUCCESS"
    assert code(bench, mutable) == "INVALID_ARGUMENT"  # it has to be closed again


def test_launches_that_c_has_appended(bench: ZeBench) -> None:
    out, source = bench.ints(count=4), bench.list(in_order=True, flags=CLONEABLE)
    kernel = bench.kernel("add", out.pointer)
    for value in range(1, 6):
        bench.set(kernel, 1, c_int(value))
        bench.launch(source, kernel, 4)
    made = cloned(bench, source)
    bench.set(kernel, 1, c_int(100))
    bench.run(made)
    assert out.all == [15] * 4
    bench.run(made)
    assert out.all == [30] * 4


def test_arguments_that_c_has_changed(bench: ZeBench) -> None:
    """Both lists have them, and are changed alone from then on: also the sizes of launches."""
    out, source = bench.ints(count=4), bench.list(mutable=True, flags=CLONEABLE)
    number = bench.next_id(source)
    bench.launch(source, bench.kernel("add", out.pointer, c_int(1)), 2)
    bench.close_list(source)
    for value in (2, 3):
        assert bench.update(source, argument(number, 1, c_int(value))) == "SUCCESS"
        bench.close_list(source)
    made = clone(bench, source)
    bench.run(made)
    assert out.all == [3, 3, 0, 0]
    assert bench.update(made, argument(number, 1, c_int(10)), group_count(number, 4)) == "SUCCESS"
    bench.close_list(made)
    bench.run(made, source)
    assert out.all == [16, 16, 10, 10]


def test_another_kernel(bench: ZeBench) -> None:
    out, source = bench.ints(1, 1), bench.list(mutable=True, flags=CLONEABLE)
    kernels = [bench.kernel(name, out.pointer, c_int(3)) for name in ("add", "mul")]
    number = bench.next_id(source, 0x7F, *kernels)
    bench.launch(source, kernels[0], 2)
    made = cloned(bench, source)
    ids, changed = (ctypes.c_uint64 * 1)(number), array(kernels[1])
    bench.ze.ok("zeCommandListUpdateMutableCommandKernelsExp", made, 1, ids, changed)
    changes = argument(number, 0, out.pointer), argument(number, 1, c_int(5))
    assert bench.update(made, *changes, group_count(number, 2)) == "SUCCESS"
    bench.close_list(made)
    bench.run(made)
    assert out.all == [5, 5]


def test_an_event_that_was_changed(bench: ZeBench) -> None:
    """The clone signals what the source signals now, and takes events like its first one."""
    first, second, third = bench.events(3)
    source = bench.list(mutable=True, flags=CLONEABLE)
    number = bench.next_id(source)
    bench.launch(source, bench.kernel("add", bench.ints(0).pointer, c_int(1)), 1, first)
    bench.close_list(source)
    change = "zeCommandListUpdateMutableCommandSignalEventExp"
    bench.ze.ok(change, source, number, second)
    made = cloned(bench, source)
    bench.run(made)
    found = [bench.ze.code("zeEventQueryStatus", one) for one in (first, second, third)]
    assert found == ["NOT_READY", "SUCCESS", "NOT_READY"]
    bench.ze.ok(change, made, number, third)
    bench.close_list(made)
    bench.run(made)
    bench.ze.ok("zeEventQueryStatus", third)


def test_what_the_host_writes(bench: ZeBench) -> None:
    """The source and its clone write times through memory of their own, also at the same time."""
    rows, called = bench.ints(count=32), list[int]()
    function = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(lambda data: called.append(data or 0))
    (timed,), (gate, end) = bench.events(1, TIMES), bench.events(2)
    source = bench.list(flags=CLONEABLE)
    bench.launch(source, bench.kernel("add", bench.ints(0).pointer, c_int(1)), 1, timed, gate)
    query = "zeCommandListAppendQueryKernelTimestamps"
    events = array(timed)
    bench.ze.ok(query, source, 1, events, rows.address, None, 0, 1, events)
    write = "zeCommandListAppendWriteGlobalTimestamp"
    bench.ze.ok(write, source, rows.address + 64, end, 0, None)
    pointer = ctypes.cast(function, ctypes.c_void_p)
    bench.ze.ok("zeCommandListAppendHostFunction", source, pointer, 77, None, None, 1, array(end))
    made = cloned(bench, source)
    bench.run(made, wait=False)
    bench.ze.ok("zeEventHostSignal", gate)
    bench.ze.ok("zeCommandQueueSynchronize", bench.queue, FOREVER)
    assert called == [77]
    times = new("ze_kernel_timestamp_result_t")
    bench.ze.ok("zeEventQueryKernelTimestamp", timed, times)
    assert bytes(times) == rows.raw[:32]
    assert any(rows.all[16:18])


def test_threads_clone_one_list_and_run_their_clones(bench: ZeBench) -> None:
    out, source = bench.ints(count=8), bench.list(mutable=True, flags=CLONEABLE)
    number = bench.next_id(source)
    bench.launch(source, bench.kernel("add", out.pointer, c_int(1)), 1)
    bench.close_list(source)

    def work(place: int) -> None:
        queue = bench.new_queue()
        for _ in range(5):
            made = clone(bench, source)
            own = ctypes.c_void_p(out.address + 4 * place)
            assert bench.update(made, argument(number, 0, own)) == "SUCCESS"
            bench.close_list(made)
            for _ in range(10):
                bench.run(made, queue=queue)
            bench.ze.ok("zeCommandListDestroy", made)
        bench.ze.ok("zeCommandQueueDestroy", queue)

    in_threads(8, work)
    assert out.all == [50] * 8
