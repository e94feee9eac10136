"""Barriers in recordings (spec row A23): they order the commands of their own queue, and nothing is
enqueued for them."""

from __future__ import annotations

import numpy
import pytest
from helpers.graphs import edges
from helpers.sycl import N, zeros

from fairlead.graph import CommandGraph
from fairlead.runtime import USM, Program, Queue


@pytest.fixture
def graph(queue: Queue) -> CommandGraph:
    return CommandGraph(queue)


def test_a_barrier_comes_after_all_exits_of_its_queue_and_before_what_follows(
    queue: Queue, graph: CommandGraph, memory: USM
) -> None:
    with graph.recording(queue):
        first = queue.memset(memory, 0)
        queue.memset(memory, 0)
        queue.memset(memory, 0, depends_on=[first])
        queue.barrier()
        queue.memset(memory, 0)
        queue.memset(memory, 0)
    assert edges(graph) == {(0, 2), (1, 3), (2, 3), (3, 4), (3, 5)}
    assert graph.nodes[3].type == "ext_oneapi_barrier"


def test_a_barrier_after_a_barrier(queue: Queue, graph: CommandGraph, memory: USM) -> None:
    with graph.recording(queue):
        queue.barrier()
        queue.barrier()
        queue.memset(memory, 0)
        queue.barrier()
    assert edges(graph) == {(0, 1), (1, 2), (2, 3)}


def test_a_barrier_of_events_comes_after_these_alone(
    queue: Queue, graph: CommandGraph, memory: USM
) -> None:
    with graph.recording(queue):
        first = queue.memset(memory, 0)
        queue.memset(memory, 0)
        queue.barrier([first])
        queue.memset(memory, 0)
        queue.barrier()
    assert edges(graph) == {(0, 2), (2, 3), (1, 4), (3, 4)}


def test_barriers_of_events_add_up(queue: Queue, graph: CommandGraph, memory: USM) -> None:
    with graph.recording(queue):
        first, second = queue.memset(memory, 0), queue.memset(memory, 0)
        queue.barrier([first])
        queue.barrier([second])
        queue.memset(memory, 0)
    assert {(0, 2), (1, 3), (2, 3), (3, 4)} <= edges(graph)  # what follows comes after both


def test_other_queues_go_past_a_barrier(queue: Queue, graph: CommandGraph, memory: USM) -> None:
    other = Queue(queue.device)
    with graph.recording(queue, other):
        queue.memset(memory, 0)
        other.memset(memory, 0)
        queue.barrier()
        other.memset(memory, 0)
        queue.memset(memory, 0)
    assert edges(graph) == {(0, 2), (2, 4)}


def test_a_barrier_may_wait_for_another_queue(
    queue: Queue, graph: CommandGraph, memory: USM
) -> None:
    other = Queue(queue.device)
    with graph.recording(queue, other):
        event = other.memset(memory, 0)
        barrier = queue.barrier([event])
        queue.memset(memory, 0)
        other.memset(memory, 0, depends_on=[barrier])
    assert edges(graph) == {(0, 1), (1, 2), (1, 3)}


def test_explicit_nodes_are_no_business_of_a_barrier(
    queue: Queue, graph: CommandGraph, memory: USM
) -> None:
    graph.add()
    with graph.recording(queue):
        queue.memset(memory, 0)
        queue.barrier()
    graph.add()
    assert edges(graph) == {(1, 2)}


def test_a_barrier_goes_on_with_the_next_recording(
    queue: Queue, graph: CommandGraph, memory: USM
) -> None:
    with graph.recording(queue):
        queue.memset(memory, 0)
        queue.barrier()
    with graph.recording(queue):
        queue.memset(memory, 0)
    assert edges(graph) == {(0, 1), (1, 2)}


def test_a_barrier_orders_what_another_queue_has_taken_over(
    queue: Queue, graph: CommandGraph, memory: USM
) -> None:
    other = Queue(queue.device)
    with graph.recording(queue, other):
        event = queue.memset(memory, 0)
        other.memset(
            memory, 0, depends_on=[event]
        )  # so that the node has a successor, in another queue
        queue.barrier()
    assert edges(graph) == {(0, 1), (0, 2)}


@pytest.mark.parametrize("in_order", [False, True])
def test_nothing_is_enqueued_for_barriers_and_the_order_holds(
    queue: Queue, program: Program, in_order: bool
) -> None:
    recorded = Queue(queue.device, in_order=in_order)
    graph, a, b = CommandGraph(recorded), zeros(queue), zeros(queue)
    with graph.recording(recorded):
        recorded.parallel_for(N, program.store, a, numpy.int32(2))
        recorded.parallel_for(N, program.store, b, numpy.int32(3))
        recorded.barrier()
        recorded.barrier()
        recorded.parallel_for(N, program.sum, a, b, a)
        recorded.barrier()
        recorded.parallel_for(N, program.mul, a, numpy.int32(10))
        recorded.barrier()
    executable = graph.finalize()
    for _ in range(5):
        queue.graph(executable)
    queue.wait()
    assert (a.array == 50).all() and len(executable.partitions.partitions) == 1


def test_a_graph_of_barriers_alone(queue: Queue, graph: CommandGraph) -> None:
    with graph.recording(queue):
        queue.barrier()
        queue.barrier()
    event = queue.graph(graph.finalize())
    event.wait()
    assert event.status == "complete"
