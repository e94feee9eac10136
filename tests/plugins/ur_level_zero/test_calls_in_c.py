"""Executions that C makes, beside those of Python: what C does, and what Python learns of it."""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final
from unittest.mock import Mock

import pytest
from helpers.entries import asked_of_python

from fairlead.conformance.arrays import ints
from fairlead.conformance.threads import in_threads
from fairlead.conformance.ur.calls import URCalls
from fairlead.conformance.ur.objects import COUNT, URObjects
from fairlead.conformance.ur.recording import Update, URRecording
from fairlead.conformance.ur.values import BufferValue
from fairlead.loader.base.layers import Layer
from fairlead.loader.ur.abi import UR
from fairlead.loader.ze.abi import ZE
from fairlead.plugins.sdk.start import do_calls_begin_in_c
from fairlead.plugins.ur_level_zero import in_c
from fairlead.plugins.ur_level_zero.command_buffer.paths import VARIABLE
from fairlead.plugins.ur_level_zero.core import adapter
from fairlead.plugins.ur_level_zero.in_c import LZEventsInC

ENQUEUE: Final = "urEnqueueCommandBufferExp"
SOURCE: Final = b"""
kernel void nothing(void) {}
kernel void add_value(global int *a, int value) { a[get_global_id(0)] += value; }
"""
FLAGS: Final = "", "OUT_OF_ORDER_EXEC_MODE_ENABLE"


@pytest.fixture
def program(build: Callable[[bytes], int]) -> int:
    """The kernels of SOURCE."""
    return build(SOURCE)


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """The entry points that Python is asked for, of those that begin in C."""
    monkeypatch.delenv(VARIABLE, raising=False)
    if not do_calls_begin_in_c(lambda *_: None):
        pytest.skip("FAIRLEAD_CALLS=python")
    with asked_of_python(adapter) as names:
        yield names


class Adding:
    """A command-buffer that adds a number to a buffer."""

    def __init__(self, make: URObjects, program: int, *, in_order: bool = True) -> None:
        self.make, self.total, self.reader = make, make.buffer(), make.queue()
        make.write(self.reader, self.total, [0] * COUNT)
        self.recording = URRecording(make, isInOrder=in_order, isUpdatable=True)
        values = BufferValue(self.total), ints([1])
        kernel = make.kernel("add_value", program=program)
        self.step = self.recording.launch(kernel, *values, command=True)
        self.recording.finalize()

    def run(self, queue: int) -> int:
        """Enqueue it, and return the event."""
        return self.recording.enqueue(queue)

    @property
    def sum(self) -> int:
        """Return what was added, once all queues have run."""
        self.make.ur.ok("urDeviceWaitExp", self.make.device)
        numbers = set(self.make.read(self.reader, self.total))
        assert len(numbers) == 1
        return numbers.pop()


@pytest.fixture(params=["in-order", "any-order"])
def adding(request: pytest.FixtureRequest, make: URObjects, program: int) -> Adding:
    """The command-buffer. One of any order resets the events of its commands."""
    return Adding(make, program, in_order=request.param == "in-order")


def in_thread(function: Callable[[], Any]) -> None:
    """Call a function where a wait need not look for Ctrl-C."""
    failed = list[BaseException]()

    def run() -> None:
        try:
            function()
        except BaseException as error:
            failed.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    assert not failed


def begin(adding: Adding, queue: int, asked: list[str]) -> None:
    """Enqueue it until C does, which needs events of Python's."""
    for _ in range(2):
        adding.make.release(adding.run(queue))
    adding.make.ur.ok("urQueueFinish", queue)
    assert 0 < asked.count(ENQUEUE) <= 2  # the context may have events from before
    asked.clear()


@pytest.mark.parametrize("flags", FLAGS)
def test_c_enqueues_again_and_waits(
    flags: str, make: URObjects, adding: Adding, asked: list[str]
) -> None:
    queue = make.queue(flags)
    begin(adding, queue, asked)

    def use() -> None:
        for _ in range(200):
            event = adding.run(queue)
            make.wait(event)
            make.release(event)
        for _ in range(20):
            make.release(adding.run(queue))
        make.ur.ok("urQueueFinish", queue)

    in_thread(use)
    assert asked == []
    assert adding.sum == 222


def test_events_are_made_when_c_has_none(
    make: URObjects, queue: int, adding: Adding, asked: list[str]
) -> None:
    events = [adding.run(queue) for _ in range(200)]
    make.wait(*events)
    assert 2 <= asked.count(ENQUEUE) <= 6  # 64 events at a time
    status = "UR_EVENT_INFO_COMMAND_EXECUTION_STATUS"
    assert {make.ur.info("urEventGetInfo", event, status) for event in events} == {0}
    assert adding.sum == 200


def test_python_knows_an_event_of_c(
    make: URObjects, queue: int, adding: Adding, asked: list[str], calls: URCalls
) -> None:
    begin(adding, queue, asked)
    event = adding.run(queue)
    assert asked == []
    assert calls.info("urEventGetInfo", event, "UR_EVENT_INFO_COMMAND_QUEUE") == queue
    kind = calls.info("urEventGetInfo", event, "UR_EVENT_INFO_COMMAND_TYPE")
    assert kind == UR["UR_COMMAND_ENQUEUE_COMMAND_BUFFER_EXP"]
    other = make.queue()
    behind = make.barrier(other, event)
    make.wait(behind)
    assert calls.info("urEventGetInfo", event, "UR_EVENT_INFO_COMMAND_EXECUTION_STATUS") == 0
    assert adding.sum == 3


def test_an_event_of_c_outlives_its_queue(
    make: URObjects, adding: Adding, asked: list[str]
) -> None:
    queue = make.queue()
    begin(adding, queue, asked)
    event = adding.run(queue)
    make.release(queue)
    make.wait(event)
    assert adding.sum == 3


def test_an_update_waits_for_what_c_has_enqueued(
    queue: int, adding: Adding, asked: list[str]
) -> None:
    begin(adding, queue, asked)
    for number in range(2, 40):
        adding.run(queue)
        adding.recording.update(Update(adding.step.command, {1: ints([number])}))
    assert asked == []
    assert adding.sum == 2 + 1 + sum(range(2, 39))


def test_executions_by_c_and_by_python_follow_each_other(
    make: URObjects, adding: Adding, asked: list[str]
) -> None:
    """On two queues, where each execution waits for the one before."""
    queues = [make.queue(flags) for flags in FLAGS]
    begin(adding, queues[0], asked)
    for turn in range(60):
        adding.run(queues[turn // 3 % 2])
    assert 0 < asked.count(ENQUEUE) < 60
    assert adding.sum == 62


def test_a_wait_list_is_python_s(
    make: URObjects, queue: int, adding: Adding, asked: list[str]
) -> None:
    begin(adding, queue, asked)
    last = adding.run(queue)
    assert asked == []
    adding.recording.enqueue(queue, last)
    assert asked == [ENQUEUE]
    assert adding.sum == 4


@pytest.mark.parametrize("flags", FLAGS)
def test_what_c_has_enqueued_runs_to_its_end(
    flags: str, make: URObjects, program: int, asked: list[str]
) -> None:
    """The command-buffer is released while it runs, and then the queue."""
    for _ in range(10):
        adding, queue = Adding(make, program), make.queue(flags)
        begin(adding, queue, asked)
        events = [adding.run(queue) for _ in range(20)]
        assert asked == []
        for handle in (adding.recording.handle, queue, *events):
            make.release(handle)
        assert adding.sum == 22


def test_threads_enqueue_on_one_queue(
    make: URObjects, queue: int, adding: Adding, asked: list[str]
) -> None:
    begin(adding, queue, asked)

    def use() -> None:
        for turn in range(100):
            event = ctypes.c_void_p()
            make.ur.ok(ENQUEUE, queue, adding.recording.handle, 0, None, event)
            if turn % 3 == 0:
                make.ur.ok("urEventWait", 1, ctypes.byref(event))
            make.ur.ok("urEventRelease", event)

    in_threads(4, lambda _: use())
    assert adding.sum == 402


def test_a_second_thread_that_finishes_a_queue_waits_too(
    make: URObjects, context: int, queue: int, adding: Adding, asked: list[str]
) -> None:
    begin(adding, queue, asked)
    make.release(adding.run(queue))
    table = adapter.objects.list_owned("ur_context_handle_t")[context].table
    entered, go_on, waits = threading.Event(), threading.Event(), list[int]()
    wait = ZE.functions["zeCommandListHostSynchronize"].slot

    def before(slot: int, arguments: Sequence[int]) -> None:
        if slot == wait:
            waits.append(arguments[0])
            if len(waits) == 1:
                entered.set()
                go_on.wait()

    layer = Layer(ZE, table.top)
    layer.handle(before)
    table.push(layer)
    first = threading.Thread(target=make.ur.ok, args=("urQueueFinish", queue))
    try:
        first.start()
        entered.wait()
        in_thread(lambda: make.ur.ok("urQueueFinish", queue))
        assert len(waits) == 2
    finally:
        go_on.set()
        first.join()
        table.remove(layer)
        layer.release()
    assert adding.sum == 3


@pytest.mark.parametrize("how", ["profiling", "immediate-append", "wait-event"])
def test_what_needs_more_than_an_append_is_python_s(
    how: str, make: URObjects, program: int, asked: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    profiles = how == "profiling"
    if not profiles:
        monkeypatch.setenv(VARIABLE, how)
    queue = make.queue("PROFILING_ENABLE" if profiles else "")
    recording = URRecording(make, isInOrder=True)
    recording.launch(make.kernel("nothing", program=program))
    recording.finalize()
    for _ in range(5):
        make.wait(recording.enqueue(queue))
    assert asked.count(ENQUEUE) == 5


def test_events_for_which_there_is_no_room_are_not_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    given = LZEventsInC(Mock(address_of_top=0), False)
    cells = [Mock(ze=number) for number in (1, 2)]
    make_room = Mock(return_value=False)
    monkeypatch.setattr(in_c, "lib", Mock(fl_lz_make_room=make_room))
    for _ in range(2):
        with pytest.raises(MemoryError):
            given.add(cells)
    assert [call.args[1] for call in make_room.call_args_list] == [4, 4]
