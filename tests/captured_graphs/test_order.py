"""What comes after what: the edges that queues and events make, and that every schedule honours
them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyopencl as cl
import pytest
from helpers.programs import build_once

from fairlead.captured_graphs.context import capture

#: Each launch appends its number to the log, so that the log is the order in which the launches
#: ran.
SOURCE = """
__kernel void note(__global int *log, int number) { log[atomic_inc(log) + 1] = number; }
"""


@pytest.fixture
def program(context: cl.Context) -> cl.Program:
    return build_once(context, SOURCE)


class Log:
    """A buffer that launches write their numbers into."""

    def __init__(self, queue: cl.CommandQueue, program: cl.Program) -> None:
        self.queue, self.kernel = queue, program.note
        self.buffer = cl.Buffer(queue.context, cl.mem_flags.READ_WRITE, 4096)
        cl.enqueue_fill_buffer(queue, self.buffer, np.full(1, 0, np.int32), 0, 4096).wait()

    def note(
        self,
        number: int,
        wait_for: list[cl.Event] | None = None,
        queue: cl.CommandQueue | None = None,
    ) -> cl.Event:
        return self.kernel(
            queue or self.queue, (1,), None, self.buffer, np.int32(number), wait_for=wait_for
        )

    def read(self) -> list[int]:
        self.queue.finish()
        values = np.empty(1024, np.int32)
        cl.enqueue_copy(self.queue, values, self.buffer)
        return [int(value) for value in values[1 : values[0] + 1]]


@pytest.fixture
def log(queue: cl.CommandQueue, program: cl.Program) -> Log:
    return Log(queue, program)


def test_an_in_order_queue_makes_a_path(queue: cl.CommandQueue, log: Log) -> None:
    with capture(queue) as graph:
        for number in range(4):
            log.note(number)
    assert list(graph.edges) == [(0, 1), (1, 2), (2, 3)] and graph.block.order.is_path
    assert graph.block.order.levels == [0, 1, 2, 3]


def test_events_barriers_and_markers_of_an_out_of_order_queue(
    out_of_order: cl.CommandQueue, log: Log
) -> None:
    queue = out_of_order
    with capture(queue) as graph:
        a = log.note(0, queue=queue)
        b = log.note(1, queue=queue)
        log.note(2, [a, b], queue=queue)
        marker = cl.enqueue_marker(queue)  # 3: after all before it
        log.note(4, queue=queue)  # after nothing
        cl.enqueue_barrier(queue, wait_for=[a])  # 5: after a; all later commands after it
        log.note(6, queue=queue)
        cl.enqueue_barrier(queue)  # 7: after 6 and what is not behind 5
        log.note(8, [marker], queue=queue)
    edges = set(graph.edges)
    assert edges >= {
        (0, 2),
        (1, 2),
        (0, 3),
        (1, 3),
        (2, 3),
        (0, 5),
        (5, 6),
        (5, 7),
        (6, 7),
        (3, 7),
        (4, 7),
        (7, 8),
        (3, 8),
    }
    assert not edges & {(3, 4), (2, 4), (1, 5), (2, 5), (4, 5), (4, 6), (2, 6)}
    assert not graph.block.order.is_path


def test_two_queues_and_the_events_between_them(
    context: cl.Context, queue: cl.CommandQueue, log: Log
) -> None:
    other = cl.CommandQueue(context)
    with capture(queue, other) as graph:
        first = log.note(0)
        log.note(1)
        second = log.note(2, [first], queue=other)
        log.note(3, queue=other)
        log.note(4, [second])
    assert set(graph.edges) == {(0, 1), (0, 2), (2, 3), (1, 4), (2, 4)}
    assert [node.queue for node in graph] == [queue, queue, other, other, queue]
    graph.finalize().replay(queue).wait()
    ran = log.read()
    assert sorted(ran) == [0, 1, 2, 3, 4]
    assert all(ran.index(before) < ran.index(after) for before, after in graph.edges)


@pytest.mark.slow
@pytest.mark.parametrize("schedule", ["auto", "in-order", "queues", "levels", "events"])
@pytest.mark.parametrize("seed", range(4))
def test_every_schedule_honours_every_edge(
    queue: cl.CommandQueue, out_of_order: cl.CommandQueue, log: Log, schedule: str, seed: int
) -> None:
    """A random graph, recorded on an out-of-order queue and replayed on both kinds, several times
    in a row."""
    random = np.random.default_rng(seed)
    with capture(out_of_order) as graph:
        events: list[cl.Event] = []
        for number in range(40):
            kind = random.integers(0, 12)
            chosen = (
                [events[i] for i in random.integers(0, len(events), min(len(events), 3))]
                if events
                else None
            )
            if kind == 0:
                events.append(
                    cl.enqueue_barrier(out_of_order, wait_for=chosen if number % 2 else None)
                )
            elif kind == 1:
                events.append(
                    cl.enqueue_marker(out_of_order, wait_for=chosen if number % 2 else None)
                )
            else:
                events.append(
                    log.note(number, chosen if random.integers(0, 3) else None, queue=out_of_order)
                )
    loop = graph.finalize(schedule=schedule)
    commands = [node.index for node in graph if node.type != "ext_oneapi_barrier"]
    for used in (out_of_order, queue):
        cl.enqueue_fill_buffer(queue, log.buffer, np.full(1, 0, np.int32), 0, 4096).wait()
        loop.replay(used, times=3).wait()
        ran = log.read()
        assert len(ran) == 3 * len(commands)
        for one in range(3):
            part = ran[one * len(commands) : (one + 1) * len(commands)]
            assert sorted(part) == commands
            behind = {
                node: set(before) for node, before in enumerate(graph.block.order.dependencies)
            }
            for node in range(len(graph)):
                for before in graph.block.order.dependencies[node]:
                    behind[node] |= behind[before]
            for place, node in enumerate(part):
                assert not behind[node] & set(part[place + 1 :])


def test_explain_says_how_and_why(
    queue: cl.CommandQueue, out_of_order: cl.CommandQueue, log: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    with capture(out_of_order) as path:
        log.note(1, [log.note(0, queue=out_of_order)], queue=out_of_order)
    with capture(out_of_order) as branches:
        first = log.note(0, queue=out_of_order)
        for number in (1, 2, 3):
            log.note(number, [first], queue=out_of_order)
    monkeypatch.setenv("FAIRLEAD_COMMAND_BUFFER", "replay")
    for line in (
        "2 commands\n",
        "  direct  not chosen: FAIRLEAD_COMMAND_BUFFER=replay\n",
        "  native  not chosen: FAIRLEAD_COMMAND_BUFFER=replay\n",
        "  replay  in-order, 0 events in one pass: the queue keeps the order; FAIRLEAD",
    ):
        assert line in path.finalize().explain(queue)
    assert "single path" in path.finalize().explain(out_of_order)
    with capture(out_of_order) as single:
        log.note(0, queue=out_of_order)
    assert "replay  events, 0 events in one pass: so few" in single.finalize().explain(out_of_order)
    how = (
        "replay  events"
        if "Portable" in out_of_order.device.platform.name
        else f"replay  queues ({min(3, out_of_order.device.max_compute_units)} of its own), "
    )
    assert how in branches.finalize().explain(out_of_order)
    assert "levels" in branches.finalize(schedule="levels").explain(out_of_order)
    with pytest.raises(TypeError, match="there is no schedule 'best'"):
        branches.finalize(schedule="best")


def test_replay_waits_for_its_wait_list_and_for_events_from_before_the_block(
    queue: cl.CommandQueue, context: cl.Context, log: Log
) -> None:
    pending, gate = cl.UserEvent(context), cl.UserEvent(context)
    done = log.note(0)
    done.wait()
    with capture(queue) as graph:
        log.note(1, [pending, done])
        log.note(2)
    assert list(graph.edges) == [(0, 1)]
    other = cl.CommandQueue(context)
    event = graph.finalize().replay(other, wait_for=[gate])
    assert log.read() == [0]
    gate.set_status(cl.command_execution_status.COMPLETE)
    assert event.command_execution_status != cl.command_execution_status.COMPLETE
    pending.set_status(cl.command_execution_status.COMPLETE)
    event.wait()
    assert log.read() == [0, 1, 2]


def test_a_failed_event_from_before_the_block_is_named(
    queue: cl.CommandQueue, context: cl.Context, log: Log
) -> None:
    pending = cl.UserEvent(context)
    with capture(queue) as graph:
        log.note(1, [pending])
    loop = graph.finalize()
    pending.set_status(-5)
    with pytest.raises(Exception, match=r"CL_OUT_OF_RESOURCES.*from before the capture block"):
        loop.replay(queue)


def test_devices_of_one_context_wait_for_each_other(device: cl.Device) -> None:
    """The two halves of one device stand for two devices."""
    try:
        partition: Any = [
            cl.device_partition_property.EQUALLY,
            max(1, device.max_compute_units // 2),
        ]
        halves = device.create_sub_devices(partition)[:2]
        context = cl.Context(halves)
    except cl.Error:
        halves, context = [device], cl.Context([device])
    queues = (
        [cl.CommandQueue(context, half) for half in halves]
        if len(halves) == 2
        else [cl.CommandQueue(context) for _ in range(2)]
    )
    program = build_once(context, SOURCE)
    log = Log(queues[0], program)
    with capture(*queues) as graph:
        event = None
        for number in range(12):
            event = log.note(number, [event] if event else None, queue=queues[number % 2])
    loop = graph.finalize()
    loop.replay(queues[0], times=2).wait()
    loop.replay(queues[1]).wait()
    assert log.read() == 3 * list(range(12))
    if len(halves) == 2:
        assert "several devices" in loop.explain(queues[0])


def test_wrong_queues_and_events_are_refused(
    device: cl.Device, queue: cl.CommandQueue, log: Log
) -> None:
    with capture(queue) as graph:
        log.note(1)
    loop = graph.finalize()
    elsewhere = cl.Context([device])
    foreign = cl.UserEvent(elsewhere)
    foreign.set_status(
        cl.command_execution_status.COMPLETE
    )  # some drivers wait for it when its context goes
    with pytest.raises(
        Exception, match=r"replay \[CL_INVALID_COMMAND_QUEUE\].*not of the graph's context"
    ):
        loop.replay(cl.CommandQueue(elsewhere))
    with pytest.raises(Exception, match=r"replay \[CL_INVALID_CONTEXT\].*foreign"):
        loop.replay(queue, wait_for=[foreign])
    with pytest.raises(TypeError, match=r"expected a pyopencl\.Event, got int"):
        loop.replay(queue, wait_for=[1])  # pyright: ignore
    with pytest.raises(TypeError, match=r"expected a pyopencl\.CommandQueue"):
        loop.replay(elsewhere)  # pyright: ignore
    wrong: Any
    for wrong in (0, -1, 1.5, True, 1 << 32):
        with pytest.raises(TypeError, match="times must be a whole number from 1"):
            loop.replay(queue, times=wrong)
    with pytest.raises(Exception, match="the queue is being captured"), capture(queue):
        loop.replay(queue)
    one: Any = foreign
    with pytest.raises(TypeError, match=r"wait_for=\[event\]"):
        loop.replay(queue, wait_for=one)
    assert log.read() == []
    loop.replay(queue).wait()
    assert log.read() == [1]
    with pytest.raises(
        Exception, match="not of the graph's context"
    ):  # also once it knows how to run
        loop.replay(cl.CommandQueue(elsewhere))
    with pytest.raises(Exception, match=r"explain .*not of the graph's context"):
        loop.explain(cl.CommandQueue(elsewhere))


def test_a_failed_replay_names_the_command_and_leaves_the_graph_usable(
    queue: cl.CommandQueue, program: cl.Program, log: Log
) -> None:
    from fairlead.captured_graphs.executable import ReplayError

    with capture(queue) as graph:
        log.note(1)
        program.note(queue, (7,), (2,), log.buffer, np.int32(5), allow_empty_ndrange=True)
        program.note(
            queue, (1,), (1 << 20,), log.buffer, np.int32(5)
        )  # no device has so large a work-group
        log.note(2)
    loop = graph.finalize()
    for _ in range(2):
        with pytest.raises(
            ReplayError,
            match=r"node \d, note\(\d\), recorded at .*test_order.py:\d+, could not be enqueued",
        ) as caught:
            loop.replay(queue)
        assert caught.value.node in (1, 2) and caught.value.code.startswith("CL_INVALID_WORK_")
    assert log.read()[:1] == [1]
    assert len(graph) == 4


def test_an_empty_graph_and_one_of_order_only(
    queue: cl.CommandQueue, out_of_order: cl.CommandQueue
) -> None:
    with capture(queue) as empty:
        pass
    with capture(out_of_order) as order:
        cl.enqueue_barrier(out_of_order)
        cl.enqueue_marker(out_of_order)
    for graph in (empty, order):
        for one in (queue, out_of_order):
            graph.finalize().replay(one, times=2).wait()


def test_the_graph_shows_itself(queue: cl.CommandQueue, program: cl.Program, log: Log) -> None:
    with capture(queue) as graph:
        program.note(queue, (8, 4), (2, 2), log.buffer, np.int32(1))
        cl.enqueue_fill_buffer(queue, log.buffer, np.full(1, 3, np.int32), 16, 64)
        cl.enqueue_barrier(queue)
    kernel, fill, barrier = graph
    assert (kernel.op, kernel.type, kernel.label, kernel.predecessors) == (
        "kernel",
        "kernel",
        "note(8×4)",
        [],
    )
    assert kernel.details["local_size"] == (2, 2) and kernel.where.startswith(__file__)
    assert fill.details == {
        "offset": 16,
        "size": 64,
        "pattern": np.int32(3).tobytes(),
    } and fill.predecessors == [kernel]
    assert (kernel.index, fill.index, fill.type, barrier.type) == (
        0,
        1,
        "memfill",
        "ext_oneapi_barrier",
    )
    dot = graph.to_dot()
    assert dot.startswith("digraph") and f'"{kernel.id}" -> "{fill.id}"' in dot
    assert "note(8×4)" in graph.to_dot(verbose=True)
    assert graph[-1].op == barrier.op == "barrier" and len(graph[0:2]) == 2
    with pytest.raises(IndexError):
        graph[3]
    assert repr(graph) == "<CapturedGraph of 3 nodes>"
