"""A replay like the last one takes a shorter way. It is as right, and as wary."""

from __future__ import annotations

import ast
import inspect
import sys
import threading
from functools import partial
from types import FrameType
from typing import Any

import numpy as np
import pyopencl as cl
import pyopencl.array
import pytest
from helpers.captures import Numbers

import fairlead
from fairlead.captured_graphs import executable
from fairlead.captured_graphs.block import CapturedBlock
from fairlead.captured_graphs.context import capture
from fairlead.captured_graphs.executable import Executable, ReplayError
from fairlead.captured_graphs.pyopencl_client import ArgumentError
from fairlead.captured_graphs.segment import CapturedSegment
from fairlead.conformance.threads import in_threads
from fairlead.icd.calls import call
from fairlead.icd.capture.recording import CaptureError
from fairlead.icd.command_buffer.routes import Route
from fairlead.runtime import NDRange


@pytest.fixture
def loop(numbers: Numbers) -> Executable:
    """A graph that adds 1, replayed twice. No kernel is made for it meanwhile."""
    with capture(numbers.queue) as graph:
        numbers.add(1)
    made = graph.finalize(updatable=True, fuse=False)
    for _ in range(2):
        made.replay(numbers.queue)
    return made


def test_every_replay_has_an_event_of_its_own(numbers: Numbers, loop: Executable) -> None:
    events = [loop.replay(numbers.queue) for _ in range(100)]
    assert len({event.int_ptr for event in events}) == 100
    cl.wait_for_events(events)
    assert numbers.value() == 102
    assert all(
        event.command_execution_status == cl.command_execution_status.COMPLETE for event in events
    )


def test_wrong_arguments_are_refused(numbers: Numbers, loop: Executable) -> None:
    for wrong in (True, 0, 1.0, None):
        with pytest.raises(ArgumentError, match="times must be a whole number"):
            loop.replay(numbers.queue, wrong)  # type: ignore[arg-type]
    for wrong in (numbers.buffer, None, numbers.queue.int_ptr):
        with pytest.raises(ArgumentError, match=r"expected a pyopencl\.CommandQueue"):
            loop.replay(wrong)  # pyright: ignore
    with pytest.raises(ArgumentError, match="wait_for is not a list"):
        loop.replay(numbers.queue, wait_for=5)  # type: ignore[arg-type]
    assert numbers.value() == 2


def test_times_may_be_a_number_of_numpy(numbers: Numbers, loop: Executable) -> None:
    for two in (np.int64(2), np.uint8(2)):
        loop.replay(numbers.queue, times=two).wait()  # pyright: ignore
    assert numbers.value() == 6


def test_replays_need_no_adapter(numbers: Numbers, monkeypatch: pytest.MonkeyPatch) -> None:
    """The runtime's context loads one, which takes longer than ten thousand replays."""
    monkeypatch.setattr(CapturedBlock, "context", property(lambda _: pytest.fail("it was made")))
    by, flag = fairlead.Parameter(np.int32(1)), pyopencl.array.zeros(numbers.queue, 1, np.int32)
    with capture(numbers.queue) as graph:
        numbers.add(by)
    loop = graph.finalize()
    loop.replay(numbers.queue, by=2)
    loop.replay(numbers.queue, times=3, by=[1, 2, 3])
    loop.replay(numbers.queue, times=4, until=flag, every=2)
    loop.replay(numbers.queue, wait=True)
    assert numbers.value() == 23  # the last of a series stays


def test_a_captured_queue_is_refused(numbers: Numbers, loop: Executable) -> None:
    with capture(numbers.queue) as other:
        with pytest.raises(CaptureError, match="the queue is being captured"):
            loop.replay(numbers.queue)
        numbers.add(5)
    assert len(other) == 1
    loop.replay(numbers.queue)
    assert numbers.value() == 3


def test_it_comes_after_events_and_the_last_replay(numbers: Numbers, loop: Executable) -> None:
    elsewhere, gate = cl.CommandQueue(numbers.queue.context), cl.UserEvent(numbers.queue.context)
    ends = [loop.replay(numbers.queue, wait_for=[gate])]
    try:
        ends += [loop.replay(queue) for queue in (numbers.queue, elsewhere, elsewhere)]
        assert all(end.command_execution_status for end in ends)  # 0 is complete
    finally:
        gate.set_status(cl.command_execution_status.COMPLETE)
    cl.wait_for_events(ends)
    assert numbers.value() == 6


def test_ctrl_c_leaves_the_queue_of_a_replay_alive(
    numbers: Numbers, loop: Executable, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It comes when C has enqueued on another queue: the next replay comes after that one."""
    other, enqueue = cl.CommandQueue(numbers.queue.context), Route.enqueue

    def interrupted(*arguments: Any, **options: Any) -> Any:
        _, event, *_ = enqueue(*arguments, **options)
        call(event, "clReleaseEvent")
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(Route, "enqueue", interrupted)
        with pytest.raises(KeyboardInterrupt):
            loop.replay(other)
    other.finish()
    assert other.reference_count > 1  # pyright: ignore[reportAttributeAccessIssue]
    loop.replay(numbers.queue, wait=True)
    assert numbers.value() == 4
    loop.replay(numbers.queue).wait()
    assert other.reference_count == 1  # pyright: ignore[reportAttributeAccessIssue]


def test_a_failure_names_its_command_and_enqueues_nothing_twice(numbers: Numbers) -> None:
    with capture(numbers.queue) as graph:
        numbers.add(1)
        numbers.program.add(numbers.queue, (64,), (64,), numbers.buffer, np.int32(1))
    loop = graph.finalize(updatable=True)
    for _ in range(2):
        loop.replay(numbers.queue)
    graph[1].update_nd_range(NDRange(1 << 20, 1 << 20))  # no device has so large a work-group
    loop.update(graph[1])
    for count in (1, 2):
        with pytest.raises(ReplayError) as caught:
            loop.replay(numbers.queue)
        assert caught.value.node == 1 and numbers.value() == 4 + count


def test_queues_are_not_confused(loop: Executable, numbers: Numbers) -> None:
    """Neither two objects of Python for one queue, nor those that come one after the other."""
    for _ in range(4):
        loop.replay(numbers.queue, wait=True)
    again = loop._repeat
    same = cl.CommandQueue.from_int_ptr(numbers.queue.int_ptr)
    loop.replay(same, wait=True)
    loop.replay(numbers.queue, wait=True)
    assert again is not None and loop._repeat is again
    others = {loop.replay(cl.CommandQueue(numbers.queue.context)).command_queue for _ in range(8)}
    assert numbers.queue not in others and len(others) == 8
    for queue in others:
        queue.finish()
    assert numbers.value() == 16


def test_it_takes_the_short_way(loop: Executable, numbers: Numbers) -> None:
    for _ in range(4):  # by then engines have measured what they want to know
        loop.replay(numbers.queue).wait()
    again = loop._repeat
    assert again is not None
    loop.replay(numbers.queue)
    assert loop._repeat is again
    loop.replay(cl.CommandQueue(numbers.queue.context))
    loop.replay(numbers.queue, times=2)
    loop.replay(numbers.queue)
    assert numbers.value() == 11


def test_it_takes_the_short_way_when_it_is_waited_for(
    loop: Executable, numbers: Numbers, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also after an update, and after replays on another queue and in other threads."""
    other = cl.CommandQueue(numbers.queue.context)
    for _ in range(4):
        loop.replay(numbers.queue, wait=True)
    again = loop._repeat
    numbers.queue.finish()
    if "one native kernel" in loop.explain(numbers.queue):  # in this thread, by one call of C
        with monkeypatch.context() as patch:
            patch.setattr(CapturedSegment, "run_here", None)
            assert loop.replay(numbers.queue, wait=True).command_execution_status == 0
        assert loop._repeat is again is not None
        assert numbers.value() == 7
    else:
        loop.replay(numbers.queue, wait=True)
    loop.graph[0].set_arg(1, np.int32(10))
    loop.update(loop.graph[0])
    loop.replay(numbers.queue, wait=True)
    assert numbers.value() == 17
    loop.replay(other)
    loop.replay(numbers.queue, wait=True)
    in_threads(4, lambda _: loop.replay(numbers.queue, wait=True))
    loop.replay(numbers.queue, wait=True)
    assert numbers.value() == 87
    with capture(numbers.queue), pytest.raises(CaptureError, match="the queue is being captured"):
        loop.replay(numbers.queue, wait=True)


def test_c_repeats_a_replay(loop: Executable, numbers: Numbers) -> None:
    """No Python function of ours is called. Each other form of the call gives the same."""
    for _ in range(4):
        loop.replay(numbers.queue).wait()
    called: list[str] = []

    def note(frame: FrameType, what: str, _: Any) -> None:
        if what == "call" and "fairlead" in frame.f_code.co_filename:
            called.append(frame.f_code.co_name)

    sys.setprofile(note)
    try:
        first = loop.replay(numbers.queue)
    finally:
        sys.setprofile(None)
    assert (called, type(first)) == ([], cl.Event)
    for form in (
        lambda: loop.replay(queue=numbers.queue),
        lambda: loop.replay(numbers.queue, 1),
        lambda: loop.replay(numbers.queue, wait=False),
        lambda: loop.replay(numbers.queue, **{"".join(("wa", "it")): True}),  # pyright: ignore
        lambda: loop.replay(numbers.queue, wait_for=[first]),
        lambda: Executable.replay(loop, numbers.queue),
        partial(loop.replay, numbers.queue, times=1),
    ):
        form().wait()
    assert numbers.value() == 14


def test_a_wrong_call_says_what_python_would(loop: Executable, numbers: Numbers) -> None:
    with pytest.raises(TypeError, match=r"missing 1 required positional argument: 'queue'"):
        loop.replay()  # type: ignore[call-overload]
    with pytest.raises(TypeError, match=r"missing 1 required positional argument: 'queue'"):
        loop.replay(wait=True)  # type: ignore[call-overload]
    with pytest.raises(TypeError, match="takes from 2 to 4 positional arguments but 5"):
        loop.replay(numbers.queue, 1, None, True)  # type: ignore[call-overload]
    with pytest.raises(TypeError, match="'replay' for 'Executable' objects doesn't apply"):
        Executable.replay(numbers.queue, numbers.queue)  # type: ignore[arg-type]
    assert numbers.value() == 2


def test_c_has_the_signature_of_the_method() -> None:
    """Tools read it of the method, and people its definition."""
    (defined,) = (
        node
        for node in ast.walk(ast.parse(inspect.getsource(executable)))
        if isinstance(node, ast.FunctionDef) and node.name == "replay" and not node.decorator_list
    )
    for argument in (*defined.args.args, *defined.args.kwonlyargs, defined.args.kwarg):
        assert argument is not None
        argument.annotation = None
    text = str(inspect.signature(Executable.replay)).replace("/, ", "")
    assert text == f"({ast.unparse(defined.args)})"
    assert inspect.getdoc(Executable.replay) == ast.get_docstring(defined)


def test_buffers_that_alternate(numbers: Numbers) -> None:
    """Replays alone, several at once, and on another queue take turns."""
    other = cl.CommandQueue(numbers.queue.context)
    u, v = numbers.new(), numbers.new(100)
    with capture(numbers.queue, swap=(u, v)) as graph:
        numbers.add(1, u)
    loop = graph.finalize(fuse=False)
    for queue in (numbers.queue, numbers.queue, numbers.queue, other, other, numbers.queue):
        loop.replay(queue).wait()
    again = loop._repeat
    loop.replay(numbers.queue)
    assert loop._repeat is again and again is not None and loop.is_swapped
    loop.replay(numbers.queue, times=3)
    loop.replay(numbers.queue)
    assert (numbers.value(u), numbers.value(v)) == (6, 105)


def test_threads_replay_and_change_a_graph(numbers: Numbers) -> None:
    """A thread replays it as often as it can while another one updates it, and asks about it."""
    target = fairlead.Parameter(numbers.buffer)
    with capture(numbers.queue) as graph:
        numbers.add(1, target)
        numbers.add(0, numbers.buffer)
    loop, others = graph.finalize(updatable=True), [numbers.new() for _ in range(4)]
    turns = 300

    def replay() -> None:
        for _ in range(turns):
            loop.replay(numbers.queue)

    thread = threading.Thread(target=replay)
    thread.start()
    elsewhere = cl.CommandQueue(numbers.queue.context)
    for turn in range(60):
        loop.set(target=others[turn % 4])
        loop.set(graph[1], 1, np.int32(0))
        if turn % 10 == 0:
            loop.replay(elsewhere)
            loop.explain(elsewhere)
    thread.join()
    elsewhere.finish()
    total = sum(numbers.value(buffer) for buffer in (*others, numbers.buffer))
    assert total == turns + 6


@pytest.mark.parametrize("times", [1, 3])
@pytest.mark.parametrize("has_host_task", [False, True])
def test_a_replay_that_is_waited_for_gives_an_event(
    numbers: Numbers, times: int, has_host_task: bool
) -> None:
    """It is complete, and others can wait for it."""
    with fairlead.capture(numbers.queue) as graph:
        numbers.add(1)
    if has_host_task:
        graph.add(lambda handler: handler.host_task(lambda: None), depends_on=graph[0])
    loop = graph.finalize()
    for turn in range(3):
        event = loop.replay(numbers.queue, times, wait=True)
        assert event.command_execution_status == cl.command_execution_status.COMPLETE
        event.wait()
        numbers.add(1, wait_for=[event]).wait()
        assert numbers.value() == (turn + 1) * (times + 1)
