"""Replays that follow each other on a queue, on the fake CUDA driver: they share a stream."""

from __future__ import annotations

import gc
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from random import Random

import numpy as np
import pyopencl as cl
import pytest
from helpers.cuda_program import SIZE, Program, make_countdown
from hypothesis import given, settings
from hypothesis import strategies as st

import fairlead
from fairlead.captured_graphs.context import capture
from fairlead.captured_graphs.executable import Executable
from fairlead.icd._native import lib
from fairlead.icd.command_buffer.engines.cuda import BuiltCuda

COMPLETE = cl.command_execution_status.COMPLETE


@pytest.fixture
def held(program: Program) -> Iterator[Program]:
    """A driver whose streams can be held."""
    yield program
    program.fake.let_go()


def make_step(program: Program, factor: int, summand: int) -> tuple[cl.Buffer, Executable]:
    """A buffer of zeros, and a graph that multiplies and adds, which was measured."""
    y = program.buffer(0)
    with capture(program.queue) as graph:
        program.scale(y, factor, summand)
    loop = graph.finalize()
    for _ in range(lib.FL_CUDA_MEASURED):
        loop.replay(program.queue, wait=True)
    cl.enqueue_fill_buffer(program.queue, y, np.zeros(1, np.int32), 0, y.size)
    program.queue.finish()
    return y, loop


def begin_lane(program: Program, loop: Executable) -> cl.Event:
    """Replay, hold the streams, and replay again: the second replay is in a stream."""
    loop.replay(program.queue).wait()
    program.fake.hold()
    return loop.replay(program.queue)


def launches(program: Program) -> int:
    return program.fake.calls("cuGraphLaunch")


def test_replays_are_launched_behind_each_other(held: Program) -> None:
    y, loop = make_step(held, 3, 1)
    begin_lane(held, loop)
    before = launches(held)
    ends = [loop.replay(held.queue) for _ in range(5)]
    assert launches(held) - before == 5  # by this thread: each call has returned since
    assert all(end.command_execution_status > COMPLETE for end in ends)
    held.fake.let_go()
    ends[-1].wait()
    assert [end.command_execution_status for end in ends] == [COMPLETE] * 5
    assert held.values(y) == [(3**7 - 1) // 2]


def test_one_replay_of_several_times_is_one_job(held: Program) -> None:
    y, loop = make_step(held, 1, 1)
    begin_lane(held, loop)
    before = launches(held)
    end = loop.replay(held.queue, times=4)
    assert launches(held) - before == 4
    held.fake.let_go()
    end.wait()
    assert held.values(y) == [6]


@pytest.mark.parametrize("what", ["kernel", "fill", "read", "marker", "map"])
def test_a_command_between_two_replays_is_between_them(held: Program, what: str) -> None:
    y, loop = make_step(held, 3, 1)
    end, found = begin_lane(held, loop), np.zeros(y.size // 4, np.int32)
    if what == "kernel":
        between = held.scale(y, 5, 2)
    elif what == "fill":
        between = cl.enqueue_fill_buffer(held.queue, y, np.full(1, 7, np.int32), 0, y.size)
    elif what == "read":
        between = cl.enqueue_copy(held.queue, found, y, is_blocking=False)
    elif what == "marker":
        between = cl.enqueue_marker(held.queue)
    else:
        _, between = cl.enqueue_map_buffer(
            held.queue, y, cl.map_flags.READ, 0, (1,), np.dtype(np.int32), is_blocking=False
        )
    before = launches(held)
    last = loop.replay(held.queue)
    assert launches(held) == before  # its thread waits for the command
    assert between.command_execution_status > COMPLETE
    held.fake.let_go()
    between.wait()
    assert end.command_execution_status == COMPLETE
    last.wait()
    assert set(found.tolist()) == ({4} if what == "read" else {0})
    assert held.values(y) == [{"kernel": 3 * 22 + 1, "fill": 22}.get(what, 13)]


def test_finish_waits_for_replays_in_the_stream(program: Program) -> None:
    y, loop = make_step(program, 2, 1)
    ends = [loop.replay(program.queue) for _ in range(20)]
    program.queue.finish()
    assert {end.command_execution_status for end in ends} == {COMPLETE}
    before = launches(program)
    loop.replay(program.queue)  # the queue is empty, so nothing comes before it
    assert launches(program) - before == 1
    assert program.values(y) == [2**21 - 1]


def test_waited_replays_come_after_the_others(program: Program) -> None:
    y, loop = make_step(program, 2, 1)
    for _ in range(5):
        loop.replay(program.queue)
        loop.replay(program.queue, wait=True)
    assert program.values(y) == [2**10 - 1]


def test_nothing_is_launched_before_a_wait_list_is_complete(held: Program) -> None:
    y, loop = make_step(held, 3, 1)
    gate = cl.UserEvent(held.context)
    loop.replay(held.queue).wait()
    before = launches(held)
    loop.replay(held.queue, wait_for=[gate])
    ends = [loop.replay(held.queue) for _ in range(3)]
    assert launches(held) == before
    gate.set_status(COMPLETE)
    ends[-1].wait()
    assert launches(held) - before == 4
    assert held.values(y) == [(3**5 - 1) // 2]


def test_two_graphs_in_turns_keep_their_order(program: Program) -> None:
    y, loop = make_step(program, 3, 1)
    with capture(program.queue) as graph:
        program.scale(y, 2, 5)
    other, expected = graph.finalize(), 0
    for _ in range(12):
        loop.replay(program.queue)
        other.replay(program.queue)
        expected = (expected * 3 + 1) * 2 + 5
    assert program.values(y) == [(expected + 2**31) % 2**32 - 2**31]


def test_another_queue_comes_after_the_first(held: Program) -> None:
    y, loop = make_step(held, 3, 1)
    other = cl.CommandQueue(held.context)
    begin_lane(held, loop)
    before = launches(held)
    end = loop.replay(other)
    assert launches(held) == before
    held.fake.let_go()
    end.wait()
    assert held.values(y) == [13]


def test_values_of_replays_in_the_stream_stay(held: Program) -> None:
    loop, y = make_countdown(held)  # 6
    for _ in range(lib.FL_CUDA_MEASURED):
        loop.replay(held.queue, by=0, wait=True)
    begin_lane(held, loop)
    for by in (1, 10, 100):
        loop.replay(held.queue, by=by)
    held.fake.let_go()
    assert held.values(y) == [6 + 111]


def test_an_update_does_not_reach_replays_in_the_stream(held: Program) -> None:
    y = held.buffer(0)
    with capture(held.queue) as graph:
        held.scale(y, 10, 1)
    loop = graph.finalize(updatable=True)
    for _ in range(lib.FL_CUDA_MEASURED):
        loop.replay(held.queue, wait=True)
    cl.enqueue_fill_buffer(held.queue, y, np.zeros(1, np.int32), 0, y.size)
    built = held.fake.calls("cuGraphInstantiateWithFlags")
    begin_lane(held, loop)
    graph[0].set_arg(2, np.int32(2))
    loop.update(graph)
    loop.replay(held.queue)
    held.fake.let_go()
    assert held.values(y) == [112]
    assert held.fake.calls("cuGraphInstantiateWithFlags") == built


def test_a_graph_that_is_dropped_ends_before_what_comes_next(held: Program) -> None:
    y, loop = make_step(held, 3, 1)
    begin_lane(held, loop)
    del loop
    gc.collect()
    after = held.scale(y, 5, 0)
    assert after.command_execution_status > COMPLETE
    held.fake.let_go()
    after.wait()
    assert held.values(y) == [20]


def test_a_failure_in_the_stream_arrives_at_its_event(program: Program) -> None:
    y, loop = make_step(program, 2, 1)
    loop.replay(program.queue).wait()
    program.fake.fail("cuStreamSynchronize", 700)
    program.fake.fail("cuEventSynchronize", 700)
    end = loop.replay(program.queue)
    with pytest.raises((cl.Error, fairlead.OpenCLError)):
        end.wait()
    program.fake.fail("cuStreamSynchronize", 0)
    program.fake.fail("cuEventSynchronize", 0)
    program.fake.drain()  # who waits for the failed event does not wait for the device
    now = program.values(y)[0]
    loop.replay(program.queue, wait=True)  # by OpenCL
    assert program.values(y) == [2 * now + 1]
    assert "has ended CUDA's context" in loop.explain(program.queue)


def test_a_refused_launch_fails_and_the_next_one_runs(program: Program) -> None:
    y, loop = make_step(program, 2, 1)
    loop.replay(program.queue).wait()
    program.fake.fail("cuGraphLaunch", 2)
    end = loop.replay(program.queue)
    program.fake.fail("cuGraphLaunch", 0)
    with pytest.raises((cl.Error, fairlead.OpenCLError)):
        end.wait()
    loop.replay(program.queue, wait=True)
    assert program.values(y) == [3]


def test_replays_whose_events_nobody_has_end_with_one_event(held: Program) -> None:
    y, loop = make_step(held, 3, 1)
    kept = begin_lane(held, loop)
    before = launches(held)
    events = [loop.replay(held.queue).int_ptr for _ in range(3)]
    assert len({kept.int_ptr, *events}) == 2
    mine = loop.replay(held.queue)  # and with this one
    assert mine.int_ptr == events[0]
    others = [loop.replay(held.queue) for _ in range(2)]
    assert len({event.int_ptr for event in (kept, mine, *others)}) == 4
    assert launches(held) - before == 6
    assert mine.command_execution_status > COMPLETE
    held.fake.let_go()
    mine.wait()
    others[-1].wait()
    assert others[0].command_execution_status == kept.command_execution_status == COMPLETE
    assert held.values(y) == [(3**8 - 1) // 2]


def test_new_values_have_an_event_of_their_own(held: Program) -> None:
    loop, y = make_countdown(held)  # 6
    for _ in range(lib.FL_CUDA_MEASURED):
        loop.replay(held.queue, by=0, wait=True)
    begin_lane(held, loop)
    events = [loop.replay(held.queue, by=by).int_ptr for by in (1, 1, 10)]
    assert events[0] == events[1] != events[2]
    held.fake.let_go()
    assert held.values(y) == [6 + 12]


def make_two_steps(program: Program) -> tuple[cl.Buffer, Executable, Executable]:
    """A buffer of zeros, and two graphs that change it, in a stream that is held."""
    y, loop = make_step(program, 3, 1)
    with capture(program.queue) as graph:
        program.scale(y, 2, 5)
    other = graph.finalize()
    for _ in range(lib.FL_CUDA_MEASURED):
        other.replay(program.queue, wait=True)
    cl.enqueue_fill_buffer(program.queue, y, np.zeros(1, np.int32), 0, y.size)
    program.queue.finish()
    loop.replay(program.queue).wait()  # 1
    program.fake.hold()
    return y, loop, other


def test_two_graphs_in_turns_share_the_stream(held: Program) -> None:
    y, loop, other = make_two_steps(held)
    before, value, events = launches(held), 1, list[cl.Event]()
    for _ in range(3):
        events += loop.replay(held.queue), other.replay(held.queue)
        value = (value * 3 + 1) * 2 + 5
    assert launches(held) - before == 6
    between = held.scale(y, 5, 2)  # after both
    loop.replay(held.queue)  # its thread waits for that
    last = other.replay(held.queue)
    assert launches(held) - before == 6
    held.fake.let_go()
    between.wait()
    assert [event.command_execution_status for event in events] == [COMPLETE] * 6
    last.wait()
    assert held.values(y) == [((value * 5 + 2) * 3 + 1) * 2 + 5]


def test_a_wait_list_of_one_graph_holds_the_other_one(held: Program) -> None:
    y, loop, other = make_two_steps(held)
    other.replay(held.queue)
    before, gate = launches(held), cl.UserEvent(held.context)
    loop.replay(held.queue, wait_for=[gate])
    ends = [one.replay(held.queue) for one in (other, loop, other)]
    held.fake.let_go()
    assert launches(held) == before
    gate.set_status(COMPLETE)
    ends[-1].wait()
    value = 1 * 2 + 5
    for _ in range(2):
        value = (value * 3 + 1) * 2 + 5
    assert held.values(y) == [value]


def test_a_graph_that_is_measured_again_leaves_the_stream_to_no_other(held: Program) -> None:
    y, loop, other = make_two_steps(held)
    other.replay(held.queue)
    before = launches(held)
    for built in [one for one in gc.get_objects() if isinstance(one, BuiltCuda) and one._graph]:
        built.measure_again()
    loop.replay(held.queue)  # its thread launches it
    last = other.replay(held.queue)
    assert launches(held) == before
    held.fake.let_go()
    last.wait()
    assert held.values(y) == [((1 * 2 + 5) * 3 + 1) * 2 + 5]


def test_two_graphs_that_are_waited_for_keep_their_order(program: Program) -> None:
    y, loop, other = make_two_steps(program)
    program.fake.let_go()
    value = 1
    for number in range(6):
        loop.replay(program.queue, wait=number % 2 == 0)
        other.replay(program.queue, wait=number % 3 == 0)
        value = (value * 3 + 1) * 2 + 5
    program.queue.finish()
    assert program.values(y) == [(value + 2**31) % 2**32 - 2**31]


ACTIONS = "replay", "keep", "wait", "several", "wait list", "kernel", "finish", "look"


def act_in_turns(program: Program, actions: Sequence[tuple[str, int]]) -> None:
    """Replay two graphs between other calls on a queue, and compare the memory with numbers."""
    queue, y, value = cl.CommandQueue(program.context), program.buffer(0), 0
    steps, loops = ((3, 1), (2, 5)), list[Executable]()
    for step in steps:
        with capture(queue) as graph:
            program.scale(y, *step, queue=queue)
        loops.append(graph.finalize())
    for loop in loops:
        for _ in range(lib.FL_CUDA_MEASURED):
            loop.replay(queue, wait=True)
    cl.enqueue_fill_buffer(queue, y, np.zeros(1, np.int32), 0, y.size)
    kept = list[cl.Event]()
    for what, which in actions:
        loop, (factor, summand) = loops[which], steps[which]
        times = 3 if what == "several" else 0 if what in ("finish", "look") else 1
        if what == "kernel":
            program.scale(y, factor, summand, queue=queue)
        elif what == "finish":
            queue.finish()
            assert all(event.command_execution_status == COMPLETE for event in kept)
        elif what == "look":
            for event in kept:
                event.wait()
        elif what == "wait list":
            gate = cl.UserEvent(program.context)
            kept.append(loop.replay(queue, wait_for=[gate]))
            gate.set_status(COMPLETE)
        elif what in ("keep", "several"):
            kept.append(loop.replay(queue, times=times))
        else:
            loop.replay(queue, wait=what == "wait")
        for _ in range(times):
            value = (value * factor + summand) % 2**32
    found = np.empty(SIZE, np.int32)
    cl.enqueue_copy(queue, found, y)
    assert set((found.astype(np.int64) % 2**32).tolist()) == {value}
    for event in kept:
        event.wait()


def test_whatever_comes_between_replays_keeps_its_order(program: Program) -> None:
    @settings(max_examples=20)
    @given(st.lists(st.tuples(st.sampled_from(ACTIONS), st.integers(0, 1)), max_size=25))
    def law(actions: list[tuple[str, int]]) -> None:
        act_in_turns(program, actions)

    law()


def test_queues_of_several_threads_keep_their_orders(program: Program) -> None:
    def work(seed: int) -> None:
        random = Random(seed)
        act_in_turns(program, [(random.choice(ACTIONS), random.randrange(2)) for _ in range(200)])

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(work, range(8)))
