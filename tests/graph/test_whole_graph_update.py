"""Updates by another graph of the same topology (spec rows A32, B5; the seed, "Whole-Graph
Update")."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy
import pytest
from helpers.graphs import refused
from helpers.sycl import N, zeros

from fairlead.graph import CommandGraph
from fairlead.runtime import USM, Buffer, Context, Device, Handler, NDRange, Program, Queue
from fairlead.runtime.command_buffer import AdapterCommandBuffer
from fairlead.runtime.launch_updates import Change

Group = Callable[[Handler], object]


def make(
    queue: Queue, *groups: Group | None, edges: tuple[tuple[int, int], ...] = ()
) -> CommandGraph:
    """A graph of command groups and edges between them."""
    graph = CommandGraph(queue, assume_buffer_outlives_graph=True)
    nodes = [graph.add(group) for group in groups]
    for source, destination in edges:
        graph.make_edge(nodes[source], nodes[destination])
    return graph


def test_arguments_and_ranges(queue: Queue, program: Program) -> None:
    first, second = zeros(queue), zeros(queue)

    def graph(memory: USM, value: int, size: int) -> CommandGraph:
        return make(
            queue,
            lambda h: h.parallel_for(size, program.add, memory, numpy.int32(value)),
            lambda h: h.parallel_for(NDRange(size, 8), program.mul, memory, numpy.int32(value)),
            edges=((0, 1),),
        )

    executable = graph(first, 3, N).finalize(updatable=True)
    executable.update(graph(second, 5, 16))
    queue.graph(executable).wait()
    assert not first.array.any() and (second.array[:16] == 25).all() and not second.array[16:].any()
    executable.update(graph(first, 3, N))
    queue.graph(executable).wait()
    assert (first.array == 9).all() and (second.array[:16] == 25).all()


def test_launches_that_are_alike_are_not_updated(
    queue: Queue, program: Program, memory: USM, monkeypatch: pytest.MonkeyPatch
) -> None:
    given, update = list[int](), AdapterCommandBuffer.update

    def counted(buffer: AdapterCommandBuffer, changes: Sequence[Change]) -> None:
        given.append(len(changes))
        update(buffer, changes)

    def graph(*values: int, to: USM = memory) -> CommandGraph:
        edges = tuple((before, before + 1) for before in range(len(values) - 1))
        groups = [
            lambda h, one=value: h.parallel_for(N, program.add, to, numpy.int32(one))
            for value in values
        ]
        return make(queue, *groups, edges=edges)

    monkeypatch.setattr(AdapterCommandBuffer, "update", counted)
    executable, other = graph(1, 2, 3).finalize(updatable=True), zeros(queue)
    executable.update(graph(1, 2, 3))
    executable.update(graph(1, 20, 3))
    executable.update(graph(1, 20, 30))
    assert given == [1, 1]
    queue.graph(executable).wait()
    assert (memory.array == 51).all()
    executable.update(graph(1, 20, 30, to=other))
    assert given == [1, 1, 3]
    queue.graph(executable).wait()
    assert (memory.array == 51).all() and (other.array == 51).all()


def test_buffers(queue: Queue, program: Program) -> None:
    buffers = [Buffer(numpy.zeros(N, numpy.int32), write_back=False) for _ in range(2)]

    def graph(buffer: Buffer) -> CommandGraph:
        return make(
            queue,
            lambda h: h.parallel_for(N, program.store, h.access(buffer, "discard"), numpy.int32(2)),
            lambda h: h.parallel_for(N, program.mul, h.access(buffer), numpy.int32(7)),
        )

    executable = graph(buffers[0]).finalize(updatable=True)
    executable.update(graph(buffers[1]))
    queue.graph(executable)
    assert (buffers[1].numpy() == 14).all() and not buffers[0].numpy().any()


def test_sub_graphs(queue: Queue, program: Program, memory: USM) -> None:
    def graph(value: int) -> CommandGraph:
        inner = make(
            queue, lambda h: h.parallel_for(N, program.add, memory, numpy.int32(value))
        ).finalize()
        return make(
            queue,
            lambda h: h.graph_execution(inner),
            lambda h: h.graph_execution(inner),
            edges=((0, 1),),
        )

    executable = graph(1).finalize(updatable=True)
    executable.update(graph(10))
    queue.graph(executable).wait()
    assert (memory.array == 20).all()


def test_copies_and_fills_may_be_there_if_they_are_the_same(
    queue: Queue, program: Program, memory: USM
) -> None:
    other = zeros(queue)

    def graph(value: int, fill: int = 3, nbytes: int | None = None) -> CommandGraph:
        return make(
            queue,
            lambda h: h.fill(memory, numpy.int32(fill)),
            lambda h: h.parallel_for(N, program.add, memory, numpy.int32(value)),
            lambda h: h.memcpy(other, memory, nbytes),
            edges=((0, 1), (1, 2)),
        )

    executable = graph(1).finalize(updatable=True)
    executable.update(graph(2))
    queue.graph(executable).wait()
    assert (other.array == 5).all()
    with refused("node_type::memfill nodes are not supported for update, and node 0 differs"):
        executable.update(graph(2, fill=4))
    with refused("node_type::memcpy nodes are not supported for update, and node 2 differs"):
        executable.update(graph(2, nbytes=4))


def test_copies_of_other_buffers_differ(queue: Queue) -> None:
    one, other, target = (Buffer(numpy.zeros(N, numpy.int32), write_back=False) for _ in range(3))

    def graph(source: Buffer) -> CommandGraph:
        return make(queue, lambda h: h.copy(h.access(source, "read"), h.access(target, "write")))

    executable = graph(one).finalize(updatable=True)
    executable.update(graph(one))
    with refused("node 0 differs"):
        executable.update(graph(other))


# what differs


@pytest.fixture
def add(program: Program, memory: USM) -> Group:
    return lambda h: h.parallel_for(N, program.add, memory, numpy.int32(1))


def test_another_number_of_nodes(queue: Queue, add: Group) -> None:
    executable = make(queue, add, add).finalize(updatable=True)
    for count in (1, 3):
        with refused(
            "Cannot update using a graph with a different topology. Mismatch found in the number "
            "of nodes"
        ):
            executable.update(make(queue, *[add] * count))


def test_another_number_of_edges(queue: Queue, add: Group) -> None:
    executable = make(queue, add, add, add, edges=((0, 1),)).finalize(updatable=True)
    for edges in ((), ((0, 1), (0, 2)), ((0, 2),), ((1, 0),)):
        with refused(
            "Cannot update using a graph with a different topology. Mismatch found in the number "
            "of edges"
        ):
            executable.update(make(queue, add, add, add, edges=edges))


def test_other_edges_of_the_same_number_are_a_difference_if_it_is_strict(
    queue: Queue, add: Group
) -> None:
    executable = make(queue, *[add] * 4, edges=((0, 2), (1, 3))).finalize(updatable=True)
    crossed = make(queue, *[add] * 4, edges=((0, 3), (1, 2)))
    executable.update(crossed)
    with refused(
        "Cannot update using a graph with a different topology. Node 0 leads to [3], not [2]."
    ):
        executable.update(crossed, strict=True)
    executable.update(make(queue, *[add] * 4, edges=((1, 3), (0, 2))), strict=True)


def test_other_kinds_of_node(queue: Queue, add: Group, memory: USM) -> None:
    executable = make(queue, add).finalize(updatable=True)
    for other in (None, lambda h: h.host_task(lambda: None), lambda h: h.memset(memory, 0)):
        with refused("Cannot update using a graph with mismatched node types."):
            executable.update(make(queue, other))
    copying = make(queue, lambda h: h.memset(memory, 0)).finalize(updatable=True)
    with refused("Cannot update using a graph with mismatched node types. Node 0: memset, memcpy."):
        copying.update(make(queue, lambda h: h.memcpy(memory, memory)))


def test_other_kernels(queue: Queue, add: Group, program: Program, memory: USM) -> None:
    executable = make(queue, add).finalize(updatable=True)
    message = (
        "Cannot update using a graph with mismatched kernel types. Source node type mul, target add"
    )
    with refused(message):
        executable.update(
            make(queue, lambda h: h.parallel_for(N, program.mul, memory, numpy.int32(1)))
        )


def test_another_context(queue: Queue, add: Group) -> None:
    executable = make(queue, add).finalize(updatable=True)
    other = Context(queue.device)
    with refused("Cannot update using a graph created with a different context."):
        executable.update(CommandGraph(other, queue.device))


def test_another_device(queue: Queue, add: Group, parts: Sequence[Device]) -> None:
    executable = make(queue, add).finalize(updatable=True)
    with refused("Cannot update using a graph created with a different device."):
        executable.update(CommandGraph(Context(parts[:1])))


def test_a_graph_that_differs_somewhere_changes_nothing(
    queue: Queue, add: Group, program: Program, memory: USM
) -> None:
    executable = make(queue, add, add).finalize(updatable=True)
    wrong = make(
        queue,
        lambda h: h.parallel_for(N, program.add, memory, numpy.int32(100)),
        lambda h: h.parallel_for(N, program.mul, memory, numpy.int32(100)),
    )
    with refused("mismatched kernel types"):
        executable.update(wrong)
    queue.graph(executable).wait()
    assert (memory.array[0]) in (1, 2)  # both add one, in no order
    with refused("not created with property::updatable"):
        make(queue, add).finalize().update(make(queue, add))


def test_the_whole_graph_is_looked_at_and_left_alone(
    queue: Queue, add: Group, program: Program, memory: USM
) -> None:
    source = make(queue, lambda h: h.parallel_for(N, program.add, memory, numpy.int32(10)))
    executable = make(queue, add).finalize(updatable=True)
    executable.update(source)
    source.nodes[0].update_range(8)  # later changes of the source do not reach it
    queue.graph(executable).wait()
    assert (memory.array == 10).all()
