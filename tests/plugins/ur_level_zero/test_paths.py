"""Command-buffers by both paths: what is called, in which order, and what comes of it."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any, Final

import pytest

from fairlead.conformance.arrays import ints
from fairlead.conformance.ur.calls import URCalls
from fairlead.conformance.ur.objects import COUNT, URObjects
from fairlead.conformance.ur.recording import Update, URRecording
from fairlead.conformance.ur.values import BufferValue
from fairlead.loader.ur.abi import UR
from fairlead.loader.ze.abi import ZE
from fairlead.plugins.ur_level_zero.command_buffer import command_buffers
from fairlead.plugins.ur_level_zero.command_buffer.command_buffers import LZCommandBuffer
from fairlead.plugins.ur_level_zero.command_buffer.paths import VARIABLE
from fairlead.plugins.ur_level_zero.core import adapter
from fairlead.plugins.ur_level_zero.devices import LZDevice, QueueGroup

REFUSED: Final = ZE.codes["ZE_RESULT_ERROR_OUT_OF_HOST_MEMORY"]
PATHS: Final = "wait-event", "immediate-append", "one-append"
#: What the tests look at, by the ends of the names.
WATCHED: Final = (
    *("AppendBarrier", "AppendEventReset", "AppendSignalEvent", "AppendLaunchKernel"),
    *("CommandQueueExecuteCommandLists", "ImmediateAppendCommandListsExp", "CommandListClose"),
    *("EventHostSignal", "FenceCreate", "FenceHostSynchronize", "AppendQueryKernelTimestamps"),
)


@pytest.fixture(params=PATHS)
def path(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Each path in turn. The last one is chosen by default, where it can be."""
    monkeypatch.setenv(VARIABLE, "auto" if request.param == "one-append" else request.param)
    return request.param


@pytest.fixture
def watch(behind: LZDevice, monkeypatch: pytest.MonkeyPatch) -> Callable[[], list[str]]:
    """Returns the functions of Level Zero that were called since the last time."""
    seen: list[str] = []
    table = behind.table
    for name in sorted({*dir(table)}):
        if name.startswith("ze") and name.endswith(WATCHED):
            function, short = getattr(table, name), name.removeprefix("ze")
            short = short.removeprefix("CommandList").removeprefix("CommandQueue")

            def call(*arguments: Any, function: Any = function, short: str = short) -> int:
                seen.append(short)
                return function(*arguments)

            monkeypatch.setattr(table, name, call)

    def take() -> list[str]:
        taken, seen[:] = list(seen), []
        return taken

    return take


def python_object(kind: str, handle: int) -> Any:
    return adapter.objects.list_owned(kind)[handle]


def behind_buffer(recording: URRecording) -> LZCommandBuffer:
    return python_object("ur_exp_command_buffer_handle_t", recording.handle)


class Chain:
    """A command-buffer of a fill, a launch that adds 1, and a copy."""

    def __init__(self, make: URObjects, program: int, **how: bool) -> None:
        self.source, self.target = make.buffer(), make.buffer()
        self.recording = URRecording(make, **how)
        filled = self.recording.fill(self.source, 5)
        self.step = self.recording.launch(
            make.kernel("add_one", program=program),
            BufferValue(self.source),
            after=(filled.point,),
            command=how.get("isUpdatable", False),
        )
        self.recording.copy(self.source, self.target, after=(self.step.point,))


def test_calls_of_the_wait_event_path(
    monkeypatch: pytest.MonkeyPatch, watch: Callable[[], list[str]], make: URObjects, program: int
) -> None:
    monkeypatch.setenv(VARIABLE, "wait-event")
    queue = make.queue()
    watch()
    recording = URRecording(make)
    recording.launch(make.kernel("nothing", program=program))
    assert watch() == ["AppendBarrier", "AppendLaunchKernel"]
    recording.finalize()
    reset = ["AppendEventReset", "AppendEventReset", "AppendSignalEvent"]  # finished, the launch's
    assert watch() == [*reset, "AppendBarrier", "AppendBarrier", "Close", "Close"]
    event = recording.enqueue(queue)
    execute = ["FenceCreate", "ExecuteCommandLists"]
    suffix = ["AppendBarrier"] * 2 + ["AppendEventReset"] * 2 + ["AppendBarrier"]
    assert watch() == ["EventHostSignal", *execute, *execute, *suffix]
    recording.enqueue(queue, event)  # a wait list needs a prefix, and the host waits
    synchronize = ["FenceHostSynchronize"] * 2
    assert watch() == [*synchronize, "AppendBarrier", *execute, *execute, *suffix]


def test_calls_of_the_immediate_append_path(
    monkeypatch: pytest.MonkeyPatch, watch: Callable[[], list[str]], make: URObjects, program: int
) -> None:
    monkeypatch.setenv(VARIABLE, "immediate-append")
    queue = make.queue()
    watch()
    recording = URRecording(make)
    recording.launch(make.kernel("nothing", program=program))
    recording.finalize()
    resets = ["AppendBarrier", "AppendEventReset", "AppendEventReset", "AppendBarrier"]
    main = ["AppendBarrier", "AppendEventReset", "Close", "Close", "EventHostSignal"]
    assert watch() == ["AppendBarrier", "AppendLaunchKernel", *resets, *main]
    for _ in range(2):  # the host does not wait
        recording.enqueue(queue)
        append = "ImmediateAppendCommandListsExp"
        assert watch() == [append, "AppendBarrier", append]


@pytest.mark.parametrize("in_order", [False, True])
def test_a_command_buffer_without_times_is_one_append(
    monkeypatch: pytest.MonkeyPatch,
    watch: Callable[[], list[str]],
    make: URObjects,
    program: int,
    in_order: bool,
) -> None:
    monkeypatch.delenv(VARIABLE, raising=False)
    queue = make.queue()
    watch()
    recording = URRecording(make, isInOrder=in_order)
    recording.launch(make.kernel("nothing", program=program))
    recording.finalize()
    resets = [] if in_order else ["AppendBarrier", "AppendEventReset", "AppendBarrier"]
    assert watch() == ["AppendLaunchKernel", *resets, "Close"]
    recording.enqueue(queue)
    assert watch() == ["ImmediateAppendCommandListsExp"]


def test_copies_have_a_list_of_their_own(
    path: str, monkeypatch: pytest.MonkeyPatch, behind: LZDevice, make: URObjects, program: int
) -> None:
    """Where a device has queues that only copy. Ours has none, so its group of all queues stands
    in."""
    monkeypatch.setitem(behind.__dict__, "copy_group", QueueGroup(0, 1, 128))
    chain = Chain(make, program)
    chain.recording.finalize()
    buffer = behind_buffer(chain.recording)
    copies = [record.index for record in buffer.records if record.list is buffer.copies]
    assert copies == [0, 2]
    queue, other = make.queue(), make.queue("OUT_OF_ORDER_EXEC_MODE_ENABLE")
    for one in (queue, other, queue):
        make.write(queue, chain.target, [0] * COUNT)
        make.wait(chain.recording.enqueue(one))
        assert make.read(queue, chain.target) == [6] * COUNT
    assert "lists of kernels and of copies" in buffer.explain()


@pytest.mark.parametrize("has_host_memory", [True, False])
def test_a_profiled_execution_has_the_times_of_its_commands(
    path: str,
    has_host_memory: bool,
    make: URObjects,
    program: int,
    calls: URCalls,
    behind: LZDevice,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Also where OpenCL has SVM of coarse grain only, as NVIDIA's."""
    if not has_host_memory:
        monkeypatch.setattr(behind.access, "hostAllocCapabilities", 0)
        monkeypatch.setattr(command_buffers, "allocate_plain", None)
    queue = make.queue("PROFILING_ENABLE")
    chain = Chain(make, program, enableProfiling=True)
    chain.recording.finalize()
    before = 0
    for _ in range(2):
        event = chain.recording.enqueue(queue)
        make.wait(event)
        times = [
            calls.info("urEventGetProfilingInfo", event, f"UR_PROFILING_INFO_COMMAND_{name}")
            for name in ("QUEUED", "SUBMIT", "START", "END")
        ]
        assert times == sorted(times) and before < times[2] < times[3]
        before = times[3]


def test_a_refused_update_changes_nothing(
    path: str, make: URObjects, program: int, queue: int
) -> None:
    target = make.buffer()
    recording = URRecording(make, isUpdatable=True)
    first = recording.launch(
        make.kernel(program=program), BufferValue(target), ints([1]), command=True
    )
    recording.finalize()
    wrong = Update(first.command, {0: BufferValue(target), 1: ctypes.c_int64(2)})
    assert recording.try_update(wrong) == UR.codes["UR_RESULT_ERROR_INVALID_KERNEL_ARGUMENT_SIZE"]
    recording.run(queue)
    assert make.read(queue, target) == [1] * COUNT
    recording.update(Update(first.command, {1: ints([3])}, size=(COUNT // 2,)))
    recording.run(queue)
    assert make.read(queue, target) == [3] * (COUNT // 2) + [1] * (COUNT // 2)


def test_an_update_of_which_the_driver_refuses_a_part_changes_nothing(
    path: str,
    make: URObjects,
    program: int,
    queue: int,
    behind: LZDevice,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    targets = [make.buffer() for _ in range(2)]
    recording = URRecording(make, isUpdatable=True)
    commands = [
        recording.launch(
            make.kernel(program=program), BufferValue(one), ints([1]), command=True
        ).command
        for one in targets
    ]
    recording.finalize()
    change, codes = behind.table.zeCommandListUpdateMutableCommandsExp, iter([0, REFUSED])
    monkeypatch.setattr(
        behind.table,
        "zeCommandListUpdateMutableCommandsExp",
        lambda *given: next(codes, 0) or change(*given),
    )
    code = recording.try_update(*(Update(one, {1: ints([2])}) for one in commands))
    assert code == UR.codes["UR_RESULT_ERROR_OUT_OF_HOST_MEMORY"]
    recording.run(queue)
    assert [make.read(queue, one) for one in targets] == [[1] * COUNT] * 2
    recording.update(*(Update(one, {1: ints([3])}) for one in commands))
    recording.run(queue)
    assert [make.read(queue, one) for one in targets] == [[3] * COUNT] * 2


def test_an_update_of_waits_without_an_identifier_changes_nothing(
    make: URObjects, program: int, queue: int
) -> None:
    """The driver gives a command none whose events it cannot change."""
    events = [make.barrier(queue) for _ in range(2)]
    recording = URRecording(make, isUpdatable=True)
    given = make.kernel(program=program), BufferValue(make.buffer()), ints([1])
    command = recording.launch(*given, wait=events[:1], command=True).command
    recording.finalize()
    record = behind_buffer(recording).records[0]
    before, record.identifier = record.outside, 0
    update = command, 1, (ctypes.c_void_p * 1)(events[1])
    code = make.ur.table.urCommandBufferUpdateWaitEventsExp(*update)
    assert code == UR.codes["UR_RESULT_ERROR_UNSUPPORTED_FEATURE"]
    assert record.outside is before


def test_explain_says_the_path_and_why(
    monkeypatch: pytest.MonkeyPatch, make: URObjects, program: int
) -> None:
    monkeypatch.delenv(VARIABLE, raising=False)
    chain = Chain(make, program)
    chain.recording.finalize()
    handle = chain.recording.handle
    name = "UR_EXP_COMMAND_BUFFER_INFO_EXPLANATION_FAIRLEAD"
    assert make.ur.info("urCommandBufferGetInfoExp", handle, name) == (
        "3 commands: one-append, because the driver has "
        "zeCommandListImmediateAppendCommandListsExp; a list of commands, by events; "
        "regular events, because only in-order lists have others"
    )


def test_an_unknown_path_is_refused(
    monkeypatch: pytest.MonkeyPatch, make: URObjects, context: int, calls: URCalls
) -> None:
    monkeypatch.setenv(VARIABLE, "fast")
    description = calls.struct("ur_exp_command_buffer_desc_t")
    out = ctypes.byref(ctypes.c_void_p())
    given = context, make.device, ctypes.byref(description), out
    assert calls.code("urCommandBufferCreateExp", *given) == "UR_RESULT_ERROR_INVALID_VALUE"


def test_a_queue_keeps_nothing_of_executions_that_have_ended(
    path: str, make: URObjects, program: int, queue: int
) -> None:
    chain = Chain(make, program)
    chain.recording.finalize()
    for _ in range(3):
        make.wait(chain.recording.enqueue(queue))
    make.ur.ok("urQueueFinish", queue)
    assert python_object("ur_queue_handle_t", queue).is_idle
