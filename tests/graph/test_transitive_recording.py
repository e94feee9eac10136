"""A queue whose command comes after a recorded one begins to record, too (spec row A18; SYCL-Graph,
transitive queue recording)."""

from __future__ import annotations

from collections.abc import Sequence

import numpy
import pytest
from helpers.graphs import edges, refused
from helpers.sycl import N

from fairlead.graph import CommandGraph, Node, async_malloc
from fairlead.runtime import USM, Context, Device, Handler, Program, Queue, malloc_shared


@pytest.fixture
def second(queue: Queue) -> Queue:
    return Queue(queue.device)


def submit(queue: Queue, event, memory: USM):
    """The long way."""

    def group(handler: Handler) -> None:
        handler.depends_on(event)
        handler.memset(memory, 1)

    return queue.submit(group)


WAYS = {
    "submit": submit,
    "shortcut": lambda queue, event, memory: queue.memset(memory, 1, depends_on=[event]),
    "barrier": lambda queue, event, memory: queue.barrier([event]),
    "host task": lambda queue, event, memory: queue.host_task(lambda: None, depends_on=[event]),
    "sub-graph": lambda queue, event, memory: queue.graph(
        CommandGraph(queue).finalize(), depends_on=[event]
    ),
}


@pytest.mark.parametrize("way", WAYS)
def test_every_way_of_submitting_joins_the_recording(
    queue: Queue, second: Queue, graph: CommandGraph, memory: USM, way: str
) -> None:
    graph.begin_recording(queue)
    event = queue.memset(memory, 2)
    joined = WAYS[way](second, event, memory)
    assert second.state == "recording" and second.get_graph() is graph
    assert Node.of_event(joined).predecessors == [Node.of_event(event)] and edges(graph) == {(0, 1)}
    graph.end_recording()
    assert queue.state == second.state == "executing"
    assert (memory.array == 0).all()


def test_the_queue_records_from_then_on_and_others_follow_it(
    queue: Queue, second: Queue, graph: CommandGraph, memory: USM
) -> None:
    third = Queue(queue.device, in_order=True)
    graph.begin_recording(queue)
    first = queue.memset(memory, 0)
    other = second.memset(memory, 0, depends_on=[first])
    second.memset(memory, 0)  # without dependencies, recorded all the same
    third.memset(memory, 0, depends_on=[other])
    third.memset(memory, 0)
    assert edges(graph) == {(0, 1), (1, 3), (3, 4)} and len(graph) == 5
    graph.end_recording(third)
    assert second.state == "recording" and third.state == "executing"
    graph.end_recording()
    assert second.state == "executing"


def test_the_block_ends_what_has_joined(
    queue: Queue, second: Queue, graph: CommandGraph, program: Program, memory: USM
) -> None:
    with graph.recording(queue):
        event = queue.parallel_for(N, program.add, memory, numpy.int32(2))
        second.parallel_for(N, program.mul, memory, numpy.int32(3), depends_on=[event])
    assert second.state == "executing"
    second.graph(graph.finalize()).wait()
    assert (memory.array == 6).all()


def test_events_of_explicit_nodes_join_too_while_the_graph_is_recorded(
    queue: Queue, second: Queue, graph: CommandGraph, memory: USM
) -> None:
    node = graph.add()
    with refused("cannot be depended on outside of the graph"):
        second.memset(memory, 0, depends_on=[node.event()])
    with graph.recording(queue):
        second.memset(memory, 0, depends_on=[node.event()])
    assert edges(graph) == {(0, 1)}


def test_a_queue_that_records_to_another_graph_does_not_join(
    queue: Queue, second: Queue, graph: CommandGraph, memory: USM
) -> None:
    other = CommandGraph(queue)
    with graph.recording(queue), other.recording(second):
        event = queue.memset(memory, 0)
        with refused("Graph nodes cannot depend on events from outside the graph."):
            second.memset(memory, 0, depends_on=[event])
        assert second.get_graph() is other
    assert other.empty()


def test_a_queue_of_another_context_does_not_join(
    queue: Queue, graph: CommandGraph, memory: USM
) -> None:
    other = Queue(Context(queue.device))
    theirs = malloc_shared(N, numpy.int32, other)
    with graph.recording(queue):
        event = queue.memset(memory, 0)
        with refused("whose context differs from the graph context"):
            other.memset(theirs, 0, depends_on=[event])
    assert other.state == "executing" and len(graph) == 1


def test_a_queue_of_another_device_does_not_join(parts: Sequence[Device]) -> None:
    context = Context(parts)
    first, second = (Queue(context, part) for part in parts[:2])
    graph = CommandGraph(first)
    with graph.recording(first):
        event = first.barrier()
        with refused("whose device differs from the graph device"):
            second.barrier([event])
    assert second.state == "executing" and len(graph) == 1


def test_a_graph_that_owns_memory_does_not_become_a_sub_graph_by_joining(
    queue: Queue, second: Queue, graph: CommandGraph
) -> None:
    owner = CommandGraph(queue)
    owner.add(lambda h: async_malloc(h, N, numpy.int32))
    executable = owner.finalize()
    with graph.recording(queue):
        event = queue.barrier()
        with refused("Graphs containing allocations cannot be used as sub-graphs."):
            second.graph(executable, depends_on=[event])
    assert len(graph) == 1
