"""Command-buffers of the reference adapter, replayed and native, on every driver."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import pytest
from helpers.command_bench import (
    COUNT,
    SOURCE,
    Bench,
    Offset,
    Region,
    arguments,
    bumped,
    explain,
    memory,
    pointer,
    sizes,
    update,
    value,
)
from helpers.ur_calls import Calls, array

from fairlead.icd.command_buffer.driver_command_buffer import find_support
from fairlead.loader.ur.abi import UR
from fairlead.loader.ur.devices import PluginDevice
from fairlead.loader.ur.plugin import Plugin
from fairlead.plugins.opencl.core import adapter as reference


def test_a_path_runs_in_order_as_often_as_it_is_enqueued(bench: Bench, mode: str) -> None:
    buffer = bench.buffer()
    for add in (1, 2, 3):
        bench.launch(buffer, "bump", pointer(bench.address), value(add))
    bench.finalize(buffer)
    assert bench.run(buffer, 4) == bumped(list(range(COUNT)), *(1, 2, 3) * 4)
    said = explain(buffer, bench.queue)
    registry = reference.registry
    assert registry is not None
    native = (
        mode == "native"
        and find_support(registry.list_owned("ur_device_handle_t")[bench.device].cl) is not None
    )
    assert (
        ("native  cl_khr_command_buffer" in said) if native else mode == "auto" or "replay" in said
    )
    bench.ur.ok("urCommandBufferReleaseExp", buffer)


def test_an_unknown_engine_is_an_error_when_it_is_finalized(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    buffer = bench.buffer()
    bench.launch(buffer, "bump", pointer(bench.address), value(1))
    monkeypatch.setenv("FAIRLEAD_COMMAND_BUFFER", "warp")
    assert bench.ur("urCommandBufferFinalizeExp", buffer) == "INVALID_VALUE"
    monkeypatch.setenv("FAIRLEAD_COMMAND_BUFFER", "replay")
    bench.finalize(buffer)
    assert bench.run(buffer) == bumped(list(range(COUNT)), 1)
    bench.ur.ok("urCommandBufferReleaseExp", buffer)


def test_enqueues_follow_each_other_also_across_queues(
    bench: Bench, free_queue: int, mode: str
) -> None:
    buffer = bench.buffer(in_order=False)
    point = 0
    for add in (1, 2):
        point, _ = bench.launch(
            buffer, "bump", pointer(bench.address), value(add), after=(point,) if point else ()
        )
    bench.finalize(buffer)
    order = [bench.queue, free_queue, free_queue, bench.queue, free_queue]
    for queue in order:
        bench.ur.ok("urEnqueueCommandBufferExp", queue, buffer, 0, None, None)
    for queue in order:
        bench.ur.ok("urQueueFinish", queue)
    assert list(bench.cells) == bumped(list(range(COUNT)), *(1, 2) * len(order))
    bench.ur.ok("urCommandBufferReleaseExp", buffer)


def test_sync_points_order_an_out_of_order_command_buffer(
    bench: Bench, free_queue: int, mode: str
) -> None:
    """Two branches on two halves, joined by a third launch."""
    ur, buffer = bench.ur, bench.buffer(in_order=False)
    half = sizes(COUNT // 2)
    low, _ = bench.launch(buffer, "bump", pointer(bench.address), value(7), size=half)
    high, _ = bench.launch(buffer, "bump", pointer(bench.address + 2 * COUNT), value(9), size=half)
    joined, _ = bench.launch(buffer, "scale", pointer(bench.address), value(2), after=(low, high))
    assert (low, high, joined) == (1, 2, 3)
    bench.finalize(buffer)
    start = list(range(COUNT))
    for queue in (bench.queue, free_queue):
        bench.reset()
        expected = [
            2 * cell for cell in bumped(start[: COUNT // 2], 7) + bumped(start[COUNT // 2 :], 9)
        ]
        assert bench.run(buffer, queue=queue) == expected
    ur.ok("urCommandBufferReleaseExp", buffer)


def test_every_transfer(bench: Bench, mode: str) -> None:
    ur, buffer, size = bench.ur, bench.buffer(), 4 * COUNT
    flags = UR["UR_MEM_FLAG_READ_WRITE"]
    first, second = (
        ur.make("urMemBufferCreate", bench.context, flags, size, None) for _ in range(2)
    )
    source, target = (ctypes.c_int * COUNT)(*range(100, 100 + COUNT)), (ctypes.c_int * COUNT)()
    window = (ctypes.c_int * COUNT)(*[-1] * COUNT)
    none = (0, None, 0, None, None, None, None)
    append = "urCommandBufferAppend"
    origin, region = Offset(0, 0, 0), Region(8, 2, 1)
    ur.ok(f"{append}MemBufferWriteExp", buffer, first, 0, size, source, *none)
    ur.ok(f"{append}MemBufferCopyExp", buffer, first, second, 0, 0, size, *none)
    ur.ok(
        f"{append}MemBufferFillExp", buffer, second, ctypes.byref(ctypes.c_int(5)), 4, 0, 8, *none
    )
    ur.ok(
        f"{append}MemBufferCopyRectExp",
        buffer,
        first,
        second,
        origin,
        Offset(8, 1, 0),
        region,
        16,
        0,
        16,
        0,
        *none,
    )
    ur.ok(
        f"{append}MemBufferWriteRectExp",
        buffer,
        second,
        Offset(0, 3, 0),
        origin,
        Region(8, 1, 1),
        16,
        0,
        8,
        0,
        source,
        *none,
    )
    ur.ok(
        f"{append}MemBufferReadRectExp",
        buffer,
        second,
        Offset(8, 0, 0),
        origin,
        region,
        16,
        0,
        8,
        0,
        window,
        *none,
    )
    ur.ok(f"{append}MemBufferReadExp", buffer, second, 0, size, target, *none)
    ur.ok(f"{append}USMMemcpyExp", buffer, bench.address, target, size // 2, *none)
    ur.ok(f"{append}USMFillExp", buffer, bench.address + size // 2, b"\1\2\3", 3, 24, *none)
    ur.ok(
        f"{append}USMFillExp",
        buffer,
        bench.address + size - 8,
        ctypes.byref(ctypes.c_int(9)),
        4,
        8,
        *none,
    )
    ur.ok(f"{append}USMPrefetchExp", buffer, bench.address, size, 1, *none)
    ur.ok(f"{append}USMAdviseExp", buffer, bench.address, size, 1, *none)
    bench.finalize(buffer)
    for start in (100, 200):
        source[:] = range(start, start + COUNT)  # host memory is read when the command runs
        bench.run(buffer)
        expected = list(source)
        expected[0:2] = 5, 5
        expected[6:8], expected[10:12] = source[0:2], source[4:6]
        expected[12:14] = source[0:2]
        assert list(target) == expected
        assert list(window[:4]) == [*expected[2:4], *expected[6:8]]
        assert list(bench.cells[: COUNT // 2]) == expected[: COUNT // 2]
        assert bytes(bench.cells)[size // 2 : size - 8] == b"\1\2\3" * 8
        assert list(bench.cells[-2:]) == [9, 9]
    ur.ok("urCommandBufferReleaseExp", buffer)
    for made in (first, second):
        ur.ok("urMemRelease", made)


def test_everything_may_be_released_while_it_executes(bench: Bench, mode: str) -> None:
    ur, buffer = bench.ur, bench.buffer()
    filled = ur.make(
        "urMemBufferCreate", bench.context, UR["UR_MEM_FLAG_READ_WRITE"], 4 * COUNT, None
    )
    none = (0, None, 0, None, None, None, None)
    for add in range(50):
        bench.launch(buffer, "bump", pointer(bench.address), value(add))
        ur.ok(
            "urCommandBufferAppendMemBufferFillExp",
            buffer,
            filled,
            b"abc" * 4,
            12,
            0,
            4 * COUNT - 4,
            *none,
        )
    bench.finalize(buffer)
    for _ in range(3):
        ur.ok("urEnqueueCommandBufferExp", bench.queue, buffer, 0, None, None)
    ur.ok("urCommandBufferReleaseExp", buffer)
    ur.ok("urMemRelease", filled)
    assert ur("urCommandBufferFinalizeExp", buffer) == "INVALID_COMMAND_BUFFER_EXP"
    ur.ok("urQueueFinish", bench.queue)
    assert list(bench.cells) == bumped(list(range(COUNT)), *[*range(50)] * 3)


# contexts


@dataclass
class Elsewhere:
    """A context with a queue, a buffer, an event and a kernel of its own."""

    ur: Calls
    context: int

    def __post_init__(self) -> None:
        ur = self.ur
        device = int.from_bytes(
            ur.info("urContextGetInfo", self.context, "UR_CONTEXT_INFO_DEVICES")[:8], "little"
        )
        self.queue = ur.make("urQueueCreate", self.context, device, None)
        self.memory = ur.make(
            "urMemBufferCreate", self.context, UR["UR_MEM_FLAG_READ_WRITE"], 4 * COUNT, None
        )
        self.event = ur.make("urEnqueueEventsWait", self.queue, 0, None)
        self.program = ur.make("urProgramCreateWithIL", self.context, SOURCE, len(SOURCE), None)
        ur.ok("urProgramBuild", self.context, self.program, None)
        self.kernel = ur.make("urKernelCreate", self.program, b"bump")

    def release(self) -> None:
        """Everything."""
        for kind, handle in (
            ("Kernel", self.kernel),
            ("Program", self.program),
            ("Event", self.event),
            ("Mem", self.memory),
            ("Queue", self.queue),
            ("Context", self.context),
        ):
            self.ur.ok(f"ur{kind}Release", handle)

    def uses(self, bench: Bench, buffer: int, command: int) -> Iterator[str]:
        """The codes of everything in a command-buffer, or with one, that a context matters to: the
        buffers are written to first."""
        ur, origin, region, host = (
            self.ur,
            Offset(0, 0, 0),
            Region(4 * COUNT, 1, 1),
            (ctypes.c_int * COUNT)(*range(COUNT)),
        )
        none, mine, append = (
            (0, None, 0, None, None, None, None),
            self.memory,
            "urCommandBufferAppendMemBuffer",
        )
        waits = (0, None, 1, array(self.event), None, None, None)
        yield ur(f"{append}WriteExp", buffer, mine, 0, 4 * COUNT, host, *none)
        yield ur(f"{append}ReadExp", buffer, mine, 0, 4 * COUNT, host, *none)
        yield ur(f"{append}CopyExp", buffer, mine, mine, 0, 4 * COUNT // 2, 4 * COUNT // 2, *none)
        yield ur(
            f"{append}CopyRectExp",
            buffer,
            mine,
            mine,
            origin,
            Offset(0, 1, 0),
            Region(32, 1, 1),
            32,
            0,
            32,
            0,
            *none,
        )
        yield ur(
            f"{append}WriteRectExp", buffer, mine, origin, origin, region, 0, 0, 0, 0, host, *none
        )
        yield ur(
            f"{append}ReadRectExp", buffer, mine, origin, origin, region, 0, 0, 0, 0, host, *none
        )
        yield ur(f"{append}FillExp", buffer, mine, b"abcd", 4, 0, 8, *none)
        rows = arguments(memory(mine), value(1))
        launch, sizes_ = (
            "urCommandBufferAppendKernelLaunchWithArgsExp",
            (1, None, sizes(COUNT), None, len(rows), rows),
        )
        yield ur(launch, buffer, self.kernel, *sizes_, 0, None, *none)
        yield ur(launch, buffer, bench.kernels["bump"], *sizes_, 0, None, *none)
        yield ur("urCommandBufferAppendUSMAdviseExp", buffer, bench.address, 4, 1, *waits)
        bench.finalize(buffer)
        yield bench.update(buffer, update(command, memory={0: mine}))
        yield ur("urCommandBufferUpdateWaitEventsExp", command, 1, array(self.event))
        yield ur("urEnqueueCommandBufferExp", self.queue, buffer, 0, None, None)
        ur.ok("urQueueFinish", self.queue)


def uses(bench: Bench, context: int) -> set[str]:
    """What is answered to everything that a command-buffer does with objects of a context."""
    elsewhere, buffer = Elsewhere(bench.ur, context), bench.buffer(updatable=True)
    event = bench.ur.make("urEnqueueEventsWait", bench.queue, 0, None)
    _, command = bench.launch(
        buffer, "bump", pointer(bench.address), value(1), waits=(event.value or 0,), handle=True
    )
    codes = set(elsewhere.uses(bench, buffer, command))
    bench.ur.ok("urCommandBufferReleaseExp", buffer)
    bench.ur.ok("urEventRelease", event)
    elsewhere.release()
    return codes


def test_objects_of_another_context_are_refused(bench: Bench) -> None:
    assert uses(
        bench, bench.ur.make("urContextCreate", 1, array(bench.device), None).value or 0
    ) == {"INVALID_CONTEXT"}


def test_contexts_of_one_native_handle_are_the_same(bench: Bench, adapter: Plugin) -> None:
    native = bench.ur.make("urContextGetNativeHandle", bench.context).value
    assert uses(
        bench,
        bench.ur.make(
            "urContextCreateWithNativeHandle", native, adapter.handles[0], 0, None, None
        ).value
        or 0,
    ) == {"SUCCESS"}


# profiling, queries, misuse


def test_the_event_of_an_enqueue_tells_the_time_of_it_all(
    bench: Bench, ur: Calls, device: PluginDevice, context: int, mode: str
) -> None:
    properties = UR.get_struct("ur_queue_properties_t")(
        UR["UR_STRUCTURE_TYPE_QUEUE_PROPERTIES"], None, 2
    )
    queue = ur.make("urQueueCreate", context, device.handle, ctypes.byref(properties))
    buffer, event = bench.buffer(profiling=True), ctypes.c_void_p()
    for add in range(20):
        bench.launch(buffer, "bump", pointer(bench.address), value(add))
    bench.finalize(buffer)
    ur.ok("urEnqueueCommandBufferExp", queue, buffer, 0, None, ctypes.byref(event))
    ur.ok("urEventWait", 1, array(event))
    names = ("QUEUED", "SUBMIT", "START", "END")
    times = [
        ur.number("urEventGetProfilingInfo", event, f"UR_PROFILING_INFO_COMMAND_{name}")
        for name in names
    ]
    assert times == sorted(times) and times[2] < times[3]
    assert (
        ur.number("urEventGetInfo", event, "UR_EVENT_INFO_COMMAND_TYPE")
        == UR["UR_COMMAND_ENQUEUE_COMMAND_BUFFER_EXP"]
    )
    for release, handle in (
        ("urEventRelease", event),
        ("urCommandBufferReleaseExp", buffer),
        ("urQueueRelease", queue),
    ):
        ur.ok(release, handle)


def test_queries(bench: Bench) -> None:
    ur, buffer = bench.ur, bench.buffer(updatable=True, in_order=False, profiling=True)
    assert (
        ur.number("urCommandBufferGetInfoExp", buffer, "UR_EXP_COMMAND_BUFFER_INFO_REFERENCE_COUNT")
        == 1
    )
    desc = UR.get_struct("ur_exp_command_buffer_desc_t").from_buffer_copy(
        ur.info("urCommandBufferGetInfoExp", buffer, "UR_EXP_COMMAND_BUFFER_INFO_DESCRIPTOR")
    )
    assert (desc.isUpdatable, desc.isInOrder, desc.enableProfiling) == (1, 0, 1)
    ur.ok("urCommandBufferReleaseExp", buffer)


MISUSES: list[tuple[str, Callable[[Bench, int], str]]] = [
    (
        "INVALID_OPERATION",
        lambda b, cb: b.ur("urEnqueueCommandBufferExp", b.queue, cb, 0, None, None),
    ),
    ("INVALID_OPERATION", lambda b, cb: b.ur("urCommandBufferFinalizeExp", b.finalize(cb))),
    ("INVALID_OPERATION", lambda b, cb: b.update(b.finalize(cb), update(0))),
    (
        "INVALID_COMMAND_BUFFER_SYNC_POINT_EXP",
        lambda b, cb: b.advise(cb, 1, (ctypes.c_uint32 * 1)(7), 0),
    ),
    ("INVALID_COMMAND_BUFFER_SYNC_POINT_WAIT_LIST_EXP", lambda b, cb: b.advise(cb, 1, None, 0)),
    ("INVALID_EVENT_WAIT_LIST", lambda b, cb: b.advise(cb, 0, None, 1)),
    (
        "INVALID_OPERATION",
        lambda b, cb: b.advise(cb, 0, None, 0, command=ctypes.byref(ctypes.c_void_p())),
    ),
    ("INVALID_OPERATION", lambda b, cb: b.advise(b.finalize(cb), 0, None, 0)),
    (
        "INVALID_SIZE",
        lambda b, cb: b.ur(
            "urCommandBufferAppendUSMFillExp",
            cb,
            b.address,
            b"abc",
            3,
            4,
            0,
            None,
            0,
            None,
            None,
            None,
            None,
        ),
    ),
    ("INVALID_KERNEL_ARGUMENT_INDEX", lambda b, cb: b.try_launch(cb, [pointer(b.address)])),
    (
        "INVALID_VALUE",
        lambda b, cb: b.try_launch(cb, [pointer(b.address), value(1)], b.kernels["bump"]),
    ),
]


@pytest.mark.parametrize(
    ("code", "misuse"),
    MISUSES,
    ids=[f"{number}-{code}" for number, (code, _) in enumerate(MISUSES)],
)
def test_misuse_gets_the_code_of_the_specification(
    bench: Bench, code: str, misuse: Callable[[Bench, int], str]
) -> None:
    buffer = bench.buffer(in_order=False)
    assert misuse(bench, buffer) == code
    bench.ur.ok("urCommandBufferReleaseExp", buffer)


def test_an_argument_of_a_wrong_size_is_refused_when_it_is_appended(bench: Bench) -> None:
    ur, buffer = bench.ur, bench.buffer()
    wrong = value(1)
    wrong.size, wrong.keep = 8, ctypes.c_int64(1)
    wrong.value.value = ctypes.addressof(wrong.keep)
    for _ in range(2):
        given = [pointer(bench.address), wrong]
        assert bench.try_launch(buffer, given) == "INVALID_KERNEL_ARGUMENT_SIZE"
        bench.launch(buffer, "bump", pointer(bench.address), value(1))
    bench.finalize(buffer)
    assert bench.run(buffer) == bumped(list(range(COUNT)), 1, 1)
    ur.ok("urCommandBufferReleaseExp", buffer)


@pytest.mark.parametrize("pattern", [b"four", b"123", b"x" * 60])
def test_a_fill_of_the_program_s_own_memory(bench: Bench, pattern: bytes) -> None:
    """Some drivers have no fill for memory that is not theirs; PoCL 7.1 crashes."""
    ur, buffer, host = bench.ur, bench.buffer(), ctypes.create_string_buffer(60)
    rest = (0, None, 0, None, None, None, None)
    ur.ok("urCommandBufferAppendUSMFillExp", buffer, host, pattern, len(pattern), 60, *rest)
    bench.finalize(buffer)
    for _ in range(2):
        ctypes.memset(host, 0, 60)
        bench.run(buffer)
        assert host.raw == pattern * (60 // len(pattern))
    ur.ok("urCommandBufferReleaseExp", buffer)


def test_transfers_of_nothing_have_their_place_in_the_order(bench: Bench) -> None:
    """As on queues, where libsycl leaves them out."""
    ur, buffer, zero = bench.ur, bench.buffer(), ctypes.create_string_buffer(8)
    rest = (0, None, 0, None, None, None, None)
    bench.launch(buffer, "bump", pointer(bench.address), value(1))
    ur.ok("urCommandBufferAppendUSMMemcpyExp", buffer, bench.address, zero, 0, *rest)
    ur.ok("urCommandBufferAppendUSMFillExp", buffer, bench.address, zero, 1, 0, *rest)
    bench.launch(buffer, "bump", pointer(bench.address), value(2))
    bench.finalize(buffer)
    assert bench.run(buffer) == bumped(list(range(COUNT)), 1, 2)
    ur.ok("urCommandBufferReleaseExp", buffer)


def test_a_launch_of_nothing_has_its_place_in_the_order(bench: Bench) -> None:
    """As on queues. Drivers may divide by the sizes of what they get."""
    ur, buffer = bench.ur, bench.buffer()
    bench.launch(buffer, "bump", pointer(bench.address), value(1))
    bench.launch(buffer, "bump", pointer(bench.address), value(5), size=sizes(0))
    bench.launch(buffer, "bump", pointer(bench.address), value(2))
    bench.finalize(buffer)
    assert bench.run(buffer) == bumped(list(range(COUNT)), 1, 2)
    ur.ok("urCommandBufferReleaseExp", buffer)
