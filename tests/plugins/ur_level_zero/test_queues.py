"""Queues and events: what is kept while commands run, and what is used again.

What the adapter on Level Zero says of launches.
"""

from __future__ import annotations

import ctypes
import dataclasses
import gc
import threading
import weakref
from types import SimpleNamespace
from typing import Any, cast

import pytest

from fairlead.conformance.arrays import ints
from fairlead.conformance.ur.calls import URCalls
from fairlead.conformance.ur.objects import COUNT, SIZE, URObjects
from fairlead.conformance.ur.recording import Update, URRecording
from fairlead.conformance.ur.values import BufferValue
from fairlead.loader.ur.abi import UR
from fairlead.loader.ze.abi import LevelZeroError
from fairlead.plugins.ur_level_zero import unfinished_queues
from fairlead.plugins.ur_level_zero.contexts import EventCell, LZContext
from fairlead.plugins.ur_level_zero.core import adapter
from fairlead.plugins.ur_level_zero.devices import LZDevice
from fairlead.plugins.ur_level_zero.event_kinds import EventUse
from fairlead.plugins.ur_level_zero.unfinished_queues import UnfinishedLZQueue, forget_ended


@pytest.mark.parametrize("flags", ["", "OUT_OF_ORDER_EXEC_MODE_ENABLE"])
def test_events_of_level_zero_are_used_again(
    flags: str, behind: LZDevice, make: URObjects, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[Any] = []
    create: Any = behind.table.zeEventCreate
    monkeypatch.setattr(
        behind.table, "zeEventCreate", lambda *given: made.append(given) or create(*given)
    )
    queue = make.queue(flags)
    for _ in range(300):
        event = make.barrier(queue)
        make.wait(event)
        make.release(event)
    assert 0 < len(made) <= 64  # one pool


@pytest.mark.parametrize("flags", ["", "OUT_OF_ORDER_EXEC_MODE_ENABLE", "PROFILING_ENABLE"])
def test_what_commands_use_may_be_released_before_they_end(
    flags: str, make: URObjects, program: int, calls: URCalls
) -> None:
    reader = make.queue()
    for round_ in range(20):
        queue, source, target = (
            make.queue(flags),
            make.buffer(),
            make.buffer(),
        )
        kernel = make.kernel(program=program)
        launch = make.launch(queue, kernel, BufferValue(source), ints([round_]))
        wait = (ctypes.c_void_p * 1)(launch)
        copy = calls.new("urEnqueueMemBufferCopy", queue, source, target, 0, 0, SIZE, 1, wait)
        for handle in (launch, kernel, source, queue):
            make.release(handle)
        make.wait(copy)
        make.events(copy)
        assert make.read(reader, target) == [round_] * COUNT
        make.release(copy)
        make.release(target)
    calls.ok("urDeviceWaitExp", make.device)
    assert not forget_ended()


@pytest.mark.parametrize("flags", ["", "OUT_OF_ORDER_EXEC_MODE_ENABLE"])
def test_a_chain_of_commands_goes_through_contexts_of_one_device(
    flags: str, make: URObjects, calls: URCalls, build: Any
) -> None:
    """Each context has an event before and a buffer beside it. They are released at once."""
    contexts = [make.context() for _ in range(3)]
    queues = [make.queue(flags, context=context) for context in contexts]
    buffers = [make.buffer(context=context) for context in contexts]
    fill = queues[0], buffers[0], ints([7]), 4, 0, SIZE
    event = calls.new("urEnqueueMemBufferFill", *fill)
    for at in (1, 2):
        copy = queues[at], buffers[at - 1], buffers[at], 0, 0, SIZE, 1, (ctypes.c_void_p * 1)(event)
        last = calls.new("urEnqueueMemBufferCopy", *copy)
        make.events(event)
        for handle in (event, buffers[at - 1], queues[at - 1], contexts[at - 1]):
            make.release(handle)
        event = last
    make.events(event)
    make.wait(event)
    assert make.read(queues[2], buffers[2]) == [7] * COUNT


@pytest.mark.parametrize("flags", ["", "OUT_OF_ORDER_EXEC_MODE_ENABLE"])
@pytest.mark.parametrize("way", ["fill", "launch", "command-buffer"])
def test_a_command_waits_for_an_event_of_another_context(
    way: str, flags: str, make: URObjects, program: int, calls: URCalls
) -> None:
    """The other context lives until the command has ended, although it is released before."""
    other = make.context()
    queue, buffer, known = make.queue(flags), make.buffer(), python_context(other)
    gate, lives = known.take_cell(), weakref.ref(known)
    del known
    event = calls.new("urEventCreateWithNativeHandle", gate.ze, other)
    make.events(event)
    waits = 1, (ctypes.c_void_p * 1)(event)
    if way == "launch":
        kernel = make.kernel(program=program)
        end = make.launch(queue, kernel, BufferValue(buffer), ints([7]), after=(event,))
    elif way == "fill":
        fill = queue, buffer, ints([7]), 4, 0, SIZE
        end = calls.new("urEnqueueMemBufferFill", *fill, *waits)
        make.events(end)
    else:
        commands = make.command_buffer()
        fill = commands, buffer, ints([7]), 4, 0, SIZE
        calls.ok("urCommandBufferAppendMemBufferFillExp", *fill, *(0, None) * 2, *(None,) * 3)
        calls.ok("urCommandBufferFinalizeExp", commands)
        end = calls.new("urEnqueueCommandBufferExp", queue, commands, *waits)
        make.events(end)
    make.release(event)
    make.release(other)
    status = "urEventGetInfo", end, "UR_EVENT_INFO_COMMAND_EXECUTION_STATUS"
    assert calls.info(*status) != UR["UR_EVENT_STATUS_COMPLETE"] and lives() is not None
    gate.signal()
    del gate
    make.wait(end)
    assert make.read(queue, buffer) == [7] * COUNT
    calls.ok("urQueueFinish", queue)
    make.release(end)
    make.barrier(queue)
    calls.ok("urQueueFinish", queue)
    gc.collect()
    assert lives() is None


class _RacedList(list[Any]):
    """A list to which another thread appends whenever this one is about to change it.

    Args:
        items: what is in it at first.
        more: what the other thread appends, once.
    """

    def __init__(self, items: list[Any], more: Any) -> None:
        super().__init__(items)
        self._more = [more]

    def __setitem__(self, place: Any, value: Any) -> None:
        self.extend(self._more)
        self._more = []
        super().__setitem__(place, value)

    def remove(self, value: Any) -> None:
        self.extend(self._more)
        self._more = []
        super().remove(value)


def test_a_queue_that_is_released_meanwhile_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    table = SimpleNamespace(zeCommandListDestroy=lambda ze: 0)
    ended, running = (
        UnfinishedLZQueue(
            cast(Any, SimpleNamespace(is_over=over)),
            1,
            cast(Any, SimpleNamespace(table=table)),
            cast(Any, None),
            (),
        )
        for over in (True, False)
    )
    raced = _RacedList([ended], running)
    monkeypatch.setattr(unfinished_queues, "UNFINISHED", raced)
    assert forget_ended()
    assert raced == [running]


def test_a_pool_of_events_that_breaks_off_loses_none(
    behind: LZDevice, make: URObjects, context: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every event that was made is destroyed before its pool."""
    behind_it = python_context(context)
    supply = behind_it._supplies[True, EventUse.ANY]
    create: Any = behind.table.zeEventCreate
    codes = iter([0, 0, 0x70000002])  # the third one: ZE_RESULT_ERROR_OUT_OF_HOST_MEMORY
    with monkeypatch.context() as patch:
        patch.setattr(behind.table, "zeEventCreate", lambda *one: next(codes) or create(*one))
        with pytest.raises(LevelZeroError):
            supply.take(behind_it)
    assert len(supply._made) == 2 and len(supply._pools) == 1
    cells = [supply.take(behind_it) for _ in range(3)]  # the last one is of another pool
    assert {cell.ze for cell in cells[:2]} == set(supply._made[:2])
    assert len(supply._pools) == 2


def python_context(handle: int) -> LZContext:
    return adapter.objects.list_owned("ur_context_handle_t")[handle]


def test_an_in_order_queue_keeps_nothing_for_ever(
    make: URObjects, queue: int, calls: URCalls
) -> None:
    """Its commands need no event, but some get one, so that it learns what has ended."""
    buffer, behind = make.buffer(), adapter.objects.list_owned("ur_queue_handle_t")[queue]
    fill = "urEnqueueMemBufferFill", queue, buffer, ints([1]), 4, 0, SIZE, 0, None, None
    for _ in range(300):
        calls.ok(*fill)
    calls.ok("urQueueFinish", queue)
    assert behind.is_idle
    assert behind.is_empty


@pytest.mark.parametrize("flags", ["", "OUT_OF_ORDER_EXEC_MODE_ENABLE"])
def test_memory_is_freed_after_the_commands_of_a_released_queue(
    flags: str,
    behind: LZDevice,
    make: URObjects,
    context: int,
    calls: URCalls,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A queue's commands go on after its release."""
    gate, ran, ran_at_the_free = threading.Event(), list[int](), list[bool]()
    task = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(lambda _: gate.wait() and ran.append(1))
    wait, free = EventCell.wait, behind.table.zeMemFree

    def wait_and_open(cell: EventCell) -> None:
        gate.set()
        wait(cell)

    def note_and_free(*arguments: Any) -> int:
        ran_at_the_free.append(bool(ran))
        return free(*arguments)

    monkeypatch.setattr(EventCell, "wait", wait_and_open)
    monkeypatch.setattr(behind.table, "zeMemFree", note_and_free)
    queue = make.queue(flags)
    memory = calls.new("urUSMDeviceAlloc", context, make.device, None, None, SIZE)
    try:
        calls.ok("urEnqueueHostTaskExp", queue, task)
        make.release(queue)
        calls.ok("urUSMFree", context, memory)
        assert ran_at_the_free == [True]
    finally:
        gate.set()


def test_a_command_that_waits_says_when_it_was_queued(calls: URCalls, make: URObjects) -> None:
    gate = threading.Event()
    task = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(lambda _: gate.wait() and None)
    queue, found = make.queue("PROFILING_ENABLE"), ctypes.c_uint64()
    calls.ok("urEnqueueHostTaskExp", queue, task)
    event = make.barrier(queue)
    query = calls.table.urEventGetProfilingInfo
    rest = 8, ctypes.byref(found), None
    queued, submit, start = (
        UR[f"UR_PROFILING_INFO_COMMAND_{name}"] for name in ("QUEUED", "SUBMIT", "START")
    )
    try:
        assert query(event, queued, *rest) == query(event, submit, *rest) == 0
        first = found.value
        missing = UR.codes["UR_RESULT_ERROR_PROFILING_INFO_NOT_AVAILABLE"]
        assert query(event, start, *rest) == missing
    finally:
        gate.set()
    make.wait(event)
    assert query(event, queued, *rest) == 0
    assert 0 < found.value <= first


def test_local_memory_limits_how_many_groups_run_at_the_same_time(
    make: URObjects, program: int, calls: URCalls, behind: LZDevice
) -> None:
    """Level Zero does not ask for the bytes that a launch adds."""
    count, local = ctypes.c_uint32(), (ctypes.c_size_t * 3)(1, 1, 1)
    kernel, room = make.kernel(program=program), behind.compute.maxSharedLocalMemory

    def ask(dynamic: int) -> int:
        routine = "urKernelSuggestMaxCooperativeGroupCount"
        calls.ok(routine, kernel, make.device, 1, local, dynamic, ctypes.byref(count))
        return count.value

    assert ask(0) >= 1
    assert 1 <= ask(room // 2) <= ask(0)
    assert ask(room + 1) == 0


@pytest.mark.parametrize("in_order", [False, True])
@pytest.mark.parametrize("local", [(), (2,)])
def test_updates_make_a_launch_empty_and_launch_it_again(
    make: URObjects, program: int, queue: int, in_order: bool, local: tuple[int, ...]
) -> None:
    """An empty launch can be appended, too."""
    buffer = make.buffer()
    make.write(queue, buffer, [0] * COUNT)
    recording = URRecording(make, isUpdatable=True, isInOrder=in_order)
    kernel = make.kernel("add_one", program=program)
    step = recording.launch(kernel, BufferValue(buffer), size=(0,), local=local, command=True)
    recording.launch(kernel, BufferValue(buffer), size=(1,), after=(step.point,))
    recording.finalize()
    expected = [0] * COUNT
    for size in (0, 4, 0, 8):
        recording.update(Update(step.command, size=(size,), local=local or None))
        recording.run(queue)
        expected = [value + (place < size) + (place < 1) for place, value in enumerate(expected)]
        assert make.read(queue, buffer) == expected


def test_work_groups_that_run_at_the_same_time(
    calls: URCalls,
    make: URObjects,
    program: int,
    queue: int,
    behind: LZDevice,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As many as the driver says. On OpenCL that is one."""
    routine, launches = "zeCommandListAppendLaunchCooperativeKernel", list[Any]()
    append: Any = getattr(behind.table, routine)
    monkeypatch.setattr(
        behind.table, routine, lambda *given: launches.append(given) or append(*given)
    )
    together = UR["UR_KERNEL_LAUNCH_PROPERTIES_FLAG_COOPERATIVE"]
    can = "UR_DEVICE_INFO_KERNEL_LAUNCH_CAPABILITIES"
    assert calls.info("urDeviceGetInfo", make.device, can) == together
    buffer, kernel = make.buffer(), make.kernel("add_one", program=program)
    make.write(queue, buffer, [0] * COUNT)
    how = calls.struct(
        "ur_kernel_launch_ext_properties_t", flags=UR["UR_KERNEL_LAUNCH_FLAG_COOPERATIVE"]
    )
    size = (ctypes.c_size_t * 1)(COUNT)
    arguments = make.arguments(BufferValue(buffer))
    routine = "urEnqueueKernelLaunchWithArgsExp"
    tail = *arguments, how
    calls.ok(routine, queue, kernel, 1, None, size, size, *tail)
    assert make.read(queue, buffer) == [1] * COUNT and len(launches) == 1
    single = (ctypes.c_size_t * 1)(1)
    calls.fails(routine, "UNSUPPORTED_FEATURE", queue, kernel, 1, None, size, single, *tail)
    alone = dataclasses.replace(behind.compute_group, is_cooperative=False)
    monkeypatch.setitem(vars(behind), "compute_group", alone)
    assert not calls.info("urDeviceGetInfo", make.device, can)
    calls.fails(routine, "INVALID_OPERATION", queue, kernel, 1, None, size, size, *tail)
