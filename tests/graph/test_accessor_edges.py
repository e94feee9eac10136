"""Edges that follow from accessors (spec row A15).

DPC++ does not order a write after reads and writes; this does.
"""

from __future__ import annotations

import numpy
import pytest
from helpers.graphs import edges
from helpers.sycl import N

from fairlead.graph import CommandGraph
from fairlead.runtime import Buffer, Handler, Program, Queue

#: Edges are found before a driver is asked.
pytestmark = pytest.mark.one_driver


@pytest.fixture
def graph(queue: Queue) -> CommandGraph:
    return CommandGraph(queue, assume_buffer_outlives_graph=True)


@pytest.fixture
def buffer() -> Buffer:
    return Buffer(numpy.zeros(N, numpy.int32), write_back=False)


def uses(*accesses: tuple[Buffer, str]):
    """A command group that accesses buffers."""

    def group(handler: Handler) -> None:
        for buffer, mode in accesses:
            handler.access(buffer, mode)
        handler.host_task(lambda: None)

    return group


def test_parts_of_one_buffer_are_ordered_as_the_whole(graph: CommandGraph, buffer: Buffer) -> None:
    graph.add(lambda h: h.fill(h.access(buffer, "write", 4, 0), 1))
    graph.add(lambda h: h.fill(h.access(buffer, "write", 4, 8), 2))
    assert edges(graph) == {(0, 1)}


def test_a_sub_graph_uses_what_its_nodes_use(
    queue: Queue, graph: CommandGraph, buffer: Buffer
) -> None:
    inner, other = CommandGraph(queue, assume_buffer_outlives_graph=True), Buffer(N, numpy.int32)
    inner.add(uses((buffer, "read")))
    inner.add(uses((buffer, "write"), (other, "read")))
    executable = inner.finalize()
    graph.add(uses((other, "write")))
    graph.add(lambda h: h.graph_execution(executable))
    graph.add(uses((other, "read")))
    graph.add(uses((buffer, "read")))
    assert edges(graph) == {(0, 1), (0, 2), (1, 3)}


def test_the_order_holds_when_it_runs(
    queue: Queue, graph: CommandGraph, program: Program, buffer: Buffer
) -> None:
    copies = [Buffer(N, numpy.int32) for _ in range(4)]
    for number, copy in enumerate(
        copies
    ):  # each write must wait for the copy before it, each copy for the write
        graph.add(
            lambda h, number=number: h.parallel_for(
                N, program.store, h.access(buffer, "discard"), numpy.int32(number)
            )
        )
        graph.add(lambda h, copy=copy: h.copy(h.access(buffer, "read"), h.access(copy, "discard")))
    executable = graph.finalize()
    for _ in range(5):
        queue.graph(executable)
    assert [set(copy.numpy()) for copy in copies] == [{0}, {1}, {2}, {3}]


def test_executions_and_other_commands_are_ordered_by_their_buffers(
    queue: Queue, graph: CommandGraph, program: Program, buffer: Buffer
) -> None:
    graph.add(lambda h: h.parallel_for(N, program.mul, h.access(buffer), numpy.int32(3)))
    executable = graph.finalize()
    queue.submit(
        lambda h: h.parallel_for(N, program.store, h.access(buffer, "discard"), numpy.int32(2))
    )
    queue.graph(executable)
    queue.submit(lambda h: h.parallel_for(N, program.add, h.access(buffer), numpy.int32(1)))
    queue.graph(executable)
    with buffer.host_access() as array:
        assert (array == 21).all()
        array[:] = 1
    queue.graph(executable)
    assert (buffer.numpy() == 3).all()


def test_finalize_waits_until_the_contents_of_buffers_are_there(
    queue: Queue, graph: CommandGraph, program: Program, buffer: Buffer
) -> None:
    written = queue.submit(
        lambda h: h.parallel_for(N, program.slow, h.access(buffer), numpy.int32(3_000_000))
    )
    graph.add(lambda h: h.parallel_for(N, program.add, h.access(buffer), numpy.int32(1)))
    executable = graph.finalize()
    assert written.status == "complete"
    contents = buffer.numpy()
    queue.graph(executable)
    assert (buffer.numpy() == contents + 1).all()


def test_a_buffer_begins_with_its_array_whatever_uses_it_first(
    queue: Queue, graph: CommandGraph, program: Program
) -> None:
    buffer, result = (
        Buffer(numpy.arange(N, dtype=numpy.int32), write_back=False),
        Buffer(N, numpy.int32),
    )
    graph.add(
        lambda h: h.parallel_for(
            N, program.copy, h.access(buffer, "read"), h.access(result, "discard")
        )
    )
    queue.graph(graph.finalize())
    assert (result.numpy() == numpy.arange(N)).all()
