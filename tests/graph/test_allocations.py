"""Memory that graphs own: async_malloc and async_free (spec rows A34, A35)."""

from __future__ import annotations

import gc
from collections.abc import Sequence

import numpy
import pytest
from helpers.graphs import refused
from helpers.sycl import N, zeros

from fairlead.graph import CommandGraph, Node, async_free, async_malloc
from fairlead.runtime import USM, Context, Device, Handler, Program, Queue, malloc_device


def allocated(
    graph: CommandGraph, after: Node | tuple[Node, ...] = (), **options
) -> tuple[Node, USM]:
    """A node that allocates N int32, and its memory."""
    got: list[USM] = []
    node = graph.add(
        lambda h: got.append(async_malloc(h, N, numpy.int32, **options)), depends_on=after
    )
    return node, got[0]


def freed(graph: CommandGraph, memory: USM, after: Node) -> Node:
    """A node that frees memory."""
    return graph.add(lambda h: async_free(h, memory), depends_on=after)


def test_memory_is_used_between_the_two_nodes(
    queue: Queue, graph: CommandGraph, program: Program
) -> None:
    out = zeros(queue)
    begin, memory = allocated(graph)
    store = graph.add(
        lambda h: h.parallel_for(N, program.store, memory, numpy.int32(3)), depends_on=begin
    )
    copy = graph.add(lambda h: h.parallel_for(N, program.copy, memory, out), depends_on=store)
    end = freed(graph, memory, copy)
    assert (begin.type, end.type) == ("async_malloc", "async_free")
    executable = graph.finalize()
    assert executable.required_memory() == N * 4
    for _ in range(2):
        queue.graph(executable).wait()
    assert (out.array == 3).all()


def test_it_is_recorded_too(in_order: Queue, program: Program) -> None:
    graph, out, got = CommandGraph(in_order), zeros(in_order), []
    with graph.recording(in_order):
        in_order.submit(lambda h: got.append(async_malloc(h, N, numpy.int32)))
        in_order.parallel_for(N, program.store, got[0], numpy.int32(4))
        in_order.memcpy(out, got[0])
        in_order.submit(lambda h: async_free(h, got[0]))
        in_order.submit(lambda h: got.append(async_malloc(h, N, numpy.int32)))
    assert got[1].pointer == got[0].pointer
    in_order.graph(graph.finalize()).wait()
    assert (out.array == 4).all()


def test_freed_memory_is_given_again_to_what_comes_after(graph: CommandGraph) -> None:
    begin, first = allocated(graph)
    end = freed(graph, first, begin)
    _, beside = allocated(graph, begin)
    between = graph.add(depends_on=end)
    _, after = allocated(graph, between)
    _, again = allocated(graph, end)
    assert (
        beside.pointer != first.pointer
        and after.pointer == first.pointer
        and again.pointer not in (first.pointer, beside.pointer)
    )
    assert graph.finalize().required_memory() == 3 * N * 4


def test_a_larger_allocation_takes_no_smaller_memory(graph: CommandGraph) -> None:
    begin, first = allocated(graph)
    end = freed(graph, first, begin)
    got: list[USM] = []
    graph.add(lambda h: got.append(async_malloc(h, 2 * N, numpy.int32)), depends_on=end)
    smaller: list[USM] = []
    graph.add(lambda h: smaller.append(async_malloc(h, 3, numpy.int16)), depends_on=end)
    assert got[0].pointer != first.pointer and smaller[0].pointer == first.pointer
    assert smaller[0].nbytes == 6 and smaller[0].dtype == numpy.int16


@pytest.mark.parametrize("count", [0, -1])
def test_an_allocation_has_an_element(graph: CommandGraph, count: int) -> None:
    begin, memory = allocated(graph)
    end = freed(graph, memory, begin)
    with refused("an allocation has at least one element"):
        graph.add(lambda h: async_malloc(h, count, numpy.int32), depends_on=end)


def test_zeros_whenever_the_graph_is_finalized(
    queue: Queue, graph: CommandGraph, program: Program
) -> None:
    out = zeros(queue)
    begin, memory = allocated(graph, zero_init=True)
    add = graph.add(
        lambda h: h.parallel_for(N, program.add, memory, numpy.int32(1)), depends_on=begin
    )
    graph.add(lambda h: h.parallel_for(N, program.copy, memory, out), depends_on=add)
    for _ in range(2):
        executable = graph.finalize()
        for count in (1, 2):
            queue.graph(executable).wait()
            assert (out.array == count).all()
        del executable


def test_one_executable_at_a_time(queue: Queue, graph: CommandGraph) -> None:
    allocated(graph)
    executable = graph.finalize()
    with refused(
        "Graphs containing allocations can only have a single executable graph alive at any one "
        "time."
    ):
        graph.finalize()
    queue.graph(executable).wait()
    del executable
    gc.collect()
    queue.graph(graph.finalize()).wait()


def test_no_update_and_no_sub_graph(queue: Queue, graph: CommandGraph) -> None:
    allocated(graph)
    with refused("Graphs containing allocations cannot be updated."):
        graph.finalize(updatable=True)
    executable = graph.finalize()
    parent = CommandGraph(queue)
    with refused("Graphs containing allocations cannot be used as sub-graphs."):
        parent.add(lambda h: h.graph_execution(executable))
    assert parent.empty()


@pytest.mark.parametrize("kind", ["host", "shared"])
def test_only_device_memory(graph: CommandGraph, kind: str) -> None:
    with refused("only device memory can be allocated in a graph"):
        graph.add(lambda h: async_malloc(h, N, numpy.int32, kind=kind))
    assert graph.empty()


def test_memory_is_freed_once_and_in_its_own_graph(queue: Queue, graph: CommandGraph) -> None:
    begin, memory = allocated(graph)
    other = CommandGraph(queue)
    message = "the memory was not allocated in this graph, or was freed already"
    for wrong, where in (
        (memory, other),
        (malloc_device(N, numpy.int32, queue), graph),
        (memory + 1, graph),
    ):
        with refused(message):
            where.add(lambda h, wrong=wrong: async_free(h, wrong))
    freed(graph, memory, begin)
    with refused(message):
        freed(graph, memory, begin)
    assert len(graph) == 2 and other.empty()


def test_outside_of_graphs_memory_is_there_at_once_and_freed_in_order(
    queue: Queue, program: Program
) -> None:
    out, got = zeros(queue), []
    queue.submit(lambda h: got.append(async_malloc(h, N, numpy.int32)))
    stored = queue.parallel_for(N, program.store, got[0], numpy.int32(9))
    copied = queue.memcpy(out, got[0], depends_on=[stored])

    def free(handler: Handler) -> None:
        handler.depends_on(copied)
        async_free(handler, got.pop())

    queue.submit(free).wait()
    assert (out.array == 9).all() and not got


def test_outside_of_graphs_memory_is_of_the_device_of_the_queue(parts: Sequence[Device]) -> None:
    """Not of the first of the context."""
    second, got = Queue(Context(parts), parts[1]), list[USM]()
    second.submit(lambda h: got.append(async_malloc(h, N, numpy.int32)))
    assert got[0].device is parts[1]
    second.wait()
