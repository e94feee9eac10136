"""Launches whose group counts are in memory: they are read when the launch runs."""

from __future__ import annotations

from ctypes import byref, c_int, c_uint64, c_void_p
from pathlib import Path

import pytest
from helpers.drivers import Driver
from helpers.support import RunPython
from helpers.ze_bench import FOREVER, Ints, ZeBench, argument, group_count, group_size
from helpers.ze_calls import array

from fairlead.loader.base.operations import TransferCommand
from fairlead.loader.ur.abi import UR, URError
from fairlead.plugins.level_zero import group_counts
from fairlead.plugins.opencl.contexts import URContext

ONE = "zeCommandListAppendLaunchKernelIndirect"
SEVERAL = "zeCommandListAppendLaunchMultipleKernelsIndirect"


def waiting(*events: int) -> tuple[int, object]:
    return len(events), array(*events) if events else None


def append(
    bench: ZeBench, made: int, kernel: int, counts: Ints, signal: int = 0, *waits: int
) -> None:
    bench.ze.ok(ONE, made, kernel, c_void_p(counts.address), signal, *waiting(*waits))


def append_all(
    bench: ZeBench,
    made: int,
    kernels: list[int],
    number: Ints,
    counts: Ints,
    signal: int = 0,
    *waits: int,
) -> None:
    given = array(*kernels), c_void_p(number.address), c_void_p(counts.address)
    bench.ze.ok(SEVERAL, made, len(kernels), *given, signal, *waiting(*waits))


def close(bench: ZeBench, made: int) -> None:
    bench.close_list(made)


@pytest.fixture(params=[False, True], ids=["any-order", "in-order"])
def in_order(request: pytest.FixtureRequest) -> bool:
    return bool(request.param)


def test_three_dimensions_an_offset_and_group_sizes(bench: ZeBench) -> None:
    out, counts, made = bench.ints(count=9), bench.ints(2, 3, 4), bench.list()
    kernel = bench.kernel("shape", out.pointer, size=2)
    bench.ze.ok("zeKernelSetGlobalOffsetExp", kernel, 5, 0, 1)
    append(bench, made, kernel, counts)
    bench.ze.ok("zeKernelSetGroupSize", kernel, 1, 1, 1)  # comes too late for this launch
    close(bench, made)
    bench.run(made)
    assert out.all == [4, 3, 4, 2, 1, 1, 5, 0, 1]


def test_other_queues_go_on_meanwhile(bench: ZeBench) -> None:
    out, other, counts, (gate,) = bench.ints(0), bench.ints(0), bench.ints(1, 1, 1), bench.events(1)
    made, immediate = bench.list(), bench.immediate()
    append(bench, made, bench.kernel("add", out.pointer, c_int(1)), counts, 0, gate)
    close(bench, made)
    bench.run(made, wait=False)
    bench.launch(immediate, bench.kernel("add", other.pointer, c_int(2)))
    bench.finish(immediate)
    assert (out[0], other[0]) == (0, 2)
    bench.ze.ok("zeEventHostSignal", gate)
    bench.ze.ok("zeCommandQueueSynchronize", bench.queue, FOREVER)
    assert out[0] == 1


@pytest.mark.parametrize("kind", ["any-order", "in-order", "immediate"])
@pytest.mark.parametrize("most", [0, 1, 2, 3])
def test_several_kernels_wait_for_an_event(bench: ZeBench, kind: str, most: int) -> None:
    """They are one command: their counts are read once, after the event."""
    number, counts = bench.ints(9), bench.ints(count=9)
    outs, (gate, end) = [bench.ints(1) for _ in range(3)], bench.events(2)
    kernels = [bench.kernel("add", out.pointer, c_int(5)) for out in outs]
    is_immediate = kind == "immediate"
    made = bench.immediate() if is_immediate else bench.list(in_order=kind == "in-order")
    append_all(bench, made, kernels, number, counts, end, gate)
    if not is_immediate:
        close(bench, made)
        bench.run(made, wait=False)
    number.fill(most)
    counts.fill(*[1] * 9)
    assert bench.ze.code("zeEventQueryStatus", end) == "NOT_READY"
    bench.ze.ok("zeEventHostSignal", gate)
    bench.ze.ok("zeEventHostSynchronize", end, FOREVER)
    assert [out[0] for out in outs] == [6] * most + [1] * (3 - most)


# mutable lists


def test_what_a_mutable_list_changes(bench: ZeBench) -> None:
    """Everything but the group count, which is in memory."""
    out, other, counts = bench.ints(count=8), bench.ints(count=8), bench.ints(2, 1, 1)
    kernels = [bench.kernel(name, out.pointer, c_int(1)) for name in ("add", "mul")]
    made = bench.list(mutable=True)
    number = bench.next_id(made, 0x7F, *kernels)
    append(bench, made, kernels[0], counts)
    close(bench, made)
    bench.run(made)
    assert out.all == [1, 1, 0, 0, 0, 0, 0, 0]
    assert bench.update(made, group_count(number, 4)) == "INVALID_ARGUMENT"
    changes = argument(number, 1, c_int(5)), group_size(number, 2)
    assert bench.update(made, *changes) == "SUCCESS"
    close(bench, made)
    bench.run(made)
    assert out.all == [6, 6, 5, 5, 0, 0, 0, 0]
    commands = (c_uint64 * 1)(number)
    routine = "zeCommandListUpdateMutableCommandKernelsExp"
    bench.ze.ok(routine, made, 1, commands, array(kernels[1]))
    changes = argument(number, 0, out.pointer), argument(number, 1, c_int(2))
    assert bench.update(made, *changes) == "SUCCESS"
    close(bench, made)
    counts[0] = 3
    bench.run(made)
    assert out.all == [12, 12, 10, 5, 0, 0, 0, 0]
    assert bench.update(made, argument(number, 0, other.pointer)) == "SUCCESS"
    close(bench, made)
    bench.run(made)
    assert out.all == [12, 12, 10, 5, 0, 0, 0, 0]


def test_events_of_a_mutable_list_change(bench: ZeBench) -> None:
    out, counts, events = bench.ints(0), bench.ints(1, 1, 1), bench.events(4)
    made = bench.list(mutable=True)
    number = bench.next_id(made)
    append(bench, made, bench.kernel("add", out.pointer, c_int(1)), counts, *events[:2])
    close(bench, made)
    wait, signal = "WaitEvents", "SignalEvent"
    for name, *given in ((wait, 1, array(events[3])), (signal, events[2])):
        bench.ze.ok(f"zeCommandListUpdateMutableCommand{name}Exp", made, number, *given)
    close(bench, made)
    bench.run(made, wait=False)
    bench.ze.ok("zeEventHostSignal", events[3])
    bench.ze.ok("zeEventHostSynchronize", events[2], FOREVER)
    assert (out[0], bench.ze.code("zeEventQueryStatus", events[0])) == (1, "NOT_READY")


def test_several_kernels_of_one_command_do_not_change(bench: ZeBench) -> None:
    out, number, counts = bench.ints(0), bench.ints(1), bench.ints(1, 1, 1)
    made, kernel = bench.list(mutable=True), bench.kernel("add", out.pointer, c_int(1))
    bench.next_id(made)
    pointers = c_void_p(number.address), c_void_p(counts.address)
    given = made, 1, array(kernel), *pointers, None, 0, None
    assert bench.ze.code(SEVERAL, *given) == "UNSUPPORTED_FEATURE"


# captured graphs


def test_a_captured_launch_reads_at_each_replay(bench: ZeBench) -> None:
    out, counts, made = bench.ints(count=3), bench.ints(1, 1, 1), bench.immediate(flags=2)
    bench.ze.ok("zeCommandListBeginGraphCaptureExt", made)
    append(bench, made, bench.kernel("add", out.pointer, c_int(1)), counts)
    bench.launch(made, bench.kernel("mul", out.pointer, c_int(2)), 3)
    graph = bench.ze.make("zeCommandListEndGraphCaptureExt", made)
    runnable = bench.ze.make("zeGraphInstantiateExt", graph)
    for groups, wanted in ((1, [2, 0, 0]), (3, [6, 2, 2])):
        counts[0] = groups
        bench.ze.ok("zeCommandListAppendGraphExt", made, runnable)
        bench.ze.ok("zeCommandListHostSynchronize", made, FOREVER)
        assert out.all == wanted


# misuse


def test_misuse_is_refused(bench: ZeBench) -> None:
    out, counts, made = bench.ints(0), bench.ints(1, 1, 1), bench.list()
    kernel = bench.kernel("add", out.pointer, c_int(1))
    where = c_void_p(counts.address)
    for code, *given in (
        ("INVALID_NULL_POINTER", kernel, None),
        ("INVALID_NULL_HANDLE", None, where),
        ("INVALID_ARGUMENT", kernel, c_void_p(0x10)),
        ("INVALID_ARGUMENT", bench.kernel("add"), where),
    ):
        assert bench.ze.code(ONE, made, *given) == code, given
    one = byref(c_int(1))
    for code, *given in (
        ("INVALID_SIZE", 0, array(kernel), one, where),
        ("INVALID_NULL_POINTER", 1, array(kernel), None, where),
        ("INVALID_NULL_POINTER", 1, array(kernel), one, None),
        ("INVALID_NULL_POINTER", 1, None, one, where),
    ):
        assert bench.ze.code(SEVERAL, made, *given) == code, given
    close(bench, made)
    assert bench.ze.code(ONE, made, kernel, where) == "INVALID_ARGUMENT"


@pytest.mark.parametrize("lost", [12, 4], ids=["the counts", "how many there are"])
def test_counts_that_cannot_be_read_lose_the_launch(
    bench: ZeBench, monkeypatch: pytest.MonkeyPatch, lost: int
) -> None:
    """The call says why, and the event of the launch says that it is lost."""
    out, number, counts = bench.ints(0), bench.ints(1), bench.ints(1, 1, 1)
    made, (event,) = bench.list(), bench.events(1)
    kernel = bench.kernel("add", out.pointer, c_int(1))
    append_all(bench, made, [kernel], number, counts, event)
    close(bench, made)
    copy = group_counts.make_copy_operation

    def refuse(context: URContext, target: int, source: int, size: int) -> TransferCommand:
        if size != lost:
            return copy(context, target, source, size)
        raise URError.from_code(UR.codes["UR_RESULT_ERROR_OUT_OF_RESOURCES"], "make_copy_operation")

    given = bench.queue, 1, array(made), None
    with monkeypatch.context() as patch:
        patch.setattr(group_counts, "make_copy_operation", refuse)
        execute = "zeCommandQueueExecuteCommandLists"
        assert bench.ze.code(execute, *given) == "OUT_OF_DEVICE_MEMORY"
    bench.ze.ok("zeCommandQueueSynchronize", bench.queue, FOREVER)
    assert bench.ze.code("zeEventQueryStatus", event) == "DEVICE_LOST"
    bench.run(made)
    bench.ze.ok("zeEventQueryStatus", event)
    assert out[0] == 1


LEFT = """
from ctypes import c_int, c_void_p
from helpers.ze_bench import ZeBench
from helpers.ze_calls import ZeCalls
from fairlead.plugins import level_zero_driver
ze = ZeCalls(level_zero_driver())
ze.ok("zeInit", 0)
bench = ZeBench(ze, ze.listed("zeDriverGet")[0])
out, counts, made = bench.ints(count=1 << 16), bench.ints(1 << 10, 1, 1), bench.list()
add = bench.kernel("add", out.pointer, c_int(1), size=64)
for _ in range(20):
    routine = "zeCommandListAppendLaunchKernelIndirect"
    ze.ok(routine, made, add, c_void_p(counts.address), None, 0, None)
ze.ok("zeCommandListClose", made)
bench.run(made, made, wait=False)
print("left")
"""


def test_a_process_may_end_before_the_counts_are_read(
    each_driver: Driver, run_python: RunPython
) -> None:
    env = {"OCL_ICD_FILENAMES": each_driver.library, "OCL_ICD_VENDORS": each_driver.library}
    done = run_python(LEFT, env={**env, "PYTHONPATH": str(Path(__file__).parents[2])})
    assert (done.code, done.out, done.err) == (0, "left\n", "")
