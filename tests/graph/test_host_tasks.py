"""Host tasks in graphs: when they run, what they see, what they raise (spec row A24; the seed,
"Graph Partitioning")."""

from __future__ import annotations

import threading

import numpy
import pytest
from helpers.graphs import refused
from helpers.sycl import N

from fairlead.graph import CommandGraph
from fairlead.runtime import USM, Buffer, Handler, Program, Queue


def test_a_host_task_runs_in_each_execution_between_its_neighbours(
    queue: Queue, graph: CommandGraph, program: Program, memory: USM
) -> None:
    seen: list[int] = []

    def task() -> None:
        seen.append(int(memory.array[0]))
        memory.array[:] += 100

    before = graph.add(lambda h: h.parallel_for(N, program.add, memory, numpy.int32(1)))
    node = graph.add(lambda h: h.host_task(task), depends_on=before)
    graph.add(lambda h: h.parallel_for(N, program.mul, memory, numpy.int32(2)), depends_on=node)
    executable = graph.finalize()
    assert not seen and len(executable.partitions.partitions) == 3
    for _ in range(3):
        queue.graph(executable)
    queue.wait()
    assert seen == [1, 203, 607] and (memory.array == 1414).all()


def test_branches_run_at_the_same_time(queue: Queue, graph: CommandGraph) -> None:
    meeting = threading.Barrier(2, timeout=20)
    for _ in range(2):
        start = graph.add()
        graph.add(lambda h: h.host_task(meeting.wait), depends_on=start)
    queue.graph(graph.finalize()).wait()
    assert not meeting.broken


def test_the_event_is_complete_when_every_branch_is(queue: Queue, graph: CommandGraph) -> None:
    opened, last = threading.Event(), []
    graph.add(lambda h: h.host_task(opened.wait))
    graph.add(lambda h: h.host_task(lambda: last.append(1)))
    executable = graph.finalize()
    assert len(executable.partitions.exits) == 2
    event = queue.graph(executable)
    assert event.status != "complete"
    opened.set()
    event.wait()
    assert last == [1] and event.status == "complete"


def test_what_a_host_task_raises_is_raised_by_wait_and_stops_what_comes_after(
    queue: Queue, graph: CommandGraph, program: Program, memory: USM
) -> None:
    fails = [True]

    def task() -> None:
        if fails[0]:
            raise ZeroDivisionError("in the host task")

    node = graph.add(lambda h: h.host_task(task))
    graph.add(lambda h: h.parallel_for(N, program.add, memory, numpy.int32(1)), depends_on=node)
    executable = graph.finalize()
    event = queue.graph(executable)
    with pytest.raises(ZeroDivisionError, match="in the host task"):
        event.wait()
    with pytest.raises(ZeroDivisionError):
        queue.wait()
    assert (memory.array == 0).all()


@pytest.mark.parametrize("waits", [True, False], ids=["waits", "goes-on"])
def test_an_execution_does_not_depend_on_a_failed_one(
    queue: Queue, graph: CommandGraph, program: Program, memory: USM, waits: bool
) -> None:
    """It only comes after it, also if that has not failed yet. The error is in one of two exits."""
    opened, fails, last = threading.Event(), [False, True], []

    def task() -> None:
        opened.wait()
        if fails.pop():
            raise ZeroDivisionError

    begin = graph.add(lambda h: h.host_task(lambda: None))
    graph.add(lambda h: h.host_task(task), depends_on=begin)
    graph.add(lambda h: h.parallel_for(N, program.add, memory, numpy.int32(1)), depends_on=begin)
    graph.add(lambda h: h.host_task(lambda: last.append(1)), depends_on=begin)
    executable = graph.finalize()
    assert len(executable.partitions.exits) > 1
    failing = queue.graph(executable)
    if waits:
        opened.set()
        with pytest.raises(ZeroDivisionError):
            failing.wait()
    following = queue.graph(executable)
    opened.set()
    following.wait()
    assert (memory.array == 2).all() and last == [1, 1]
    with pytest.raises(ZeroDivisionError):
        queue.wait()


def test_buffers_are_arrays_in_host_tasks(
    queue: Queue, graph: CommandGraph, program: Program
) -> None:
    buffer, seen = Buffer(numpy.arange(N, dtype=numpy.int32), write_back=False), []

    def double(handler: Handler) -> None:
        accessor = handler.access(buffer)

        def task() -> None:
            seen.append(int(accessor.array[1]))
            accessor.array[:] *= 2

        handler.host_task(task)

    graph.add(lambda h: h.parallel_for(N, program.add, h.access(buffer), numpy.int32(1)))
    graph.add(double)
    graph.add(lambda h: h.parallel_for(N, program.add, h.access(buffer), numpy.int32(1)))
    executable = graph.finalize()
    queue.graph(executable)
    queue.graph(executable).wait()
    assert seen == [2, 6]
    assert (buffer.numpy() == ((numpy.arange(N) + 1) * 2 + 2) * 2 + 1).all()


def test_a_host_task_writes_a_part_of_a_buffer_and_reads_another(
    queue: Queue, graph: CommandGraph, program: Program
) -> None:
    source = Buffer(numpy.full(N, 5, numpy.int32), write_back=False)
    target = Buffer(numpy.zeros(N, numpy.int32), write_back=False)

    def group(handler: Handler) -> None:
        read, write = handler.access(source, "read"), handler.access(target, "write", 4, 8)

        def task() -> None:
            write.array[:] = read.array[:4]
            with pytest.raises(ValueError, match="read-only"):
                read.array[0] = 1

        handler.host_task(task)

    graph.add(
        lambda h: h.parallel_for(N, program.store, h.access(target, "discard"), numpy.int32(1))
    )
    graph.add(group)
    queue.graph(graph.finalize()).wait()
    expected = numpy.ones(N, numpy.int32)
    expected[8:12] = 5
    assert (target.numpy() == expected).all() and (source.numpy() == 5).all()


def test_an_accessor_is_an_array_in_its_host_task_alone(queue: Queue, graph: CommandGraph) -> None:
    buffer, kept = Buffer(N, numpy.int32), []

    def group(handler: Handler) -> None:
        kept.append(handler.access(buffer))
        handler.host_task(lambda: None)

    graph.add(group)
    queue.graph(graph.finalize()).wait()
    with refused("an accessor has an array only inside its host task"):
        assert kept[0].array is None


def test_two_graphs_run_one_host_task_at_the_same_time(queue: Queue, graph: CommandGraph) -> None:
    buffer, seen = Buffer(numpy.full(N, 3, numpy.int32), write_back=False), list[int]()
    both, first_has_ended = threading.Barrier(2), threading.Event()

    def group(handler: Handler) -> None:
        accessor = handler.access(buffer, "read")

        def task() -> None:
            if both.wait():
                first_has_ended.wait()
            seen.append(int(accessor.array[0]))

        handler.host_task(task)

    graph.add(group)
    events = [queue.graph(graph.finalize()) for _ in range(2)]
    for event in events:
        event.add_callback(lambda _: first_has_ended.set())
    for event in events:
        event.wait()
    assert seen == [3, 3]


def test_what_is_not_a_function_is_refused(graph: CommandGraph) -> None:
    with refused("int is not a function"):
        graph.add(lambda h: h.host_task(42))  # pyright: ignore[reportArgumentType]
    assert graph.empty()


def test_a_task_may_submit_its_own_graph_again(queue: Queue, graph: CommandGraph) -> None:
    log, again = [], []
    graph.add(
        lambda h: h.host_task(
            lambda: log.append(1) or (len(log) < 3 and again.append(queue.graph(executable)))
        )
    )
    executable = graph.finalize()
    queue.graph(executable).wait()
    while len(again) < 2:
        again[-1].wait()
    again[-1].wait()
    assert log == [1, 1, 1]
