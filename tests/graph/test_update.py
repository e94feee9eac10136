"""Updates of nodes of executable graphs: ranges, refusals, all or nothing, submissions in flight
(spec rows A8, A28, A31, B8)."""

from __future__ import annotations

import threading

import numpy
import pytest
from helpers.graphs import refused
from helpers.sycl import Gate, N, zeros

from fairlead.graph import CommandGraph, DynamicParameter, Node
from fairlead.runtime import USM, Accessor, Buffer, Errc, NDRange, Program, Queue, SYCLError


@pytest.fixture
def value(graph: CommandGraph) -> DynamicParameter:
    """A number to add, at first 1."""
    return DynamicParameter(graph, numpy.int32(1))


@pytest.fixture
def node(graph: CommandGraph, program: Program, memory: USM, value: DynamicParameter) -> Node:
    """Adds it to the memory."""
    return graph.add(lambda h: h.parallel_for(N, program.add, memory, value))


# ranges


def test_an_nd_range_with_groups_and_offset(
    queue: Queue, graph: CommandGraph, program: Program
) -> None:
    out = zeros(queue)
    node = graph.add(lambda h: h.parallel_for(NDRange(N, 8), program.ids, out))
    executable = graph.finalize(updatable=True)
    node.update_nd_range(NDRange(32, 16, 5))
    executable.update(node)
    queue.graph(executable).wait()
    expected = numpy.arange(32) + 5 + 16_000_000
    assert (out.array[:32] == expected).all() and not out.array[32:].any()
    node.update_nd_range(NDRange(N, 4))
    executable.update(node)
    queue.graph(executable).wait()
    assert (out.array == numpy.arange(N) + 4_000_000).all()


def test_only_kernels_have_a_range(graph: CommandGraph, memory: USM) -> None:
    nodes = [
        graph.add(),
        graph.add(lambda h: h.memset(memory, 0)),
        graph.add(lambda h: h.host_task(lambda: None)),
    ]
    for node in nodes:
        with refused("Cannot update execution range of nodes which are not kernel nodes"):
            node.update_range(8)
        with refused("Cannot update execution range of nodes which are not kernel nodes"):
            node.update_nd_range(NDRange(8, 8))


def test_a_range_keeps_its_kind_and_dimensions(
    queue: Queue, graph: CommandGraph, program: Program, memory: USM
) -> None:
    plain = graph.add(lambda h: h.parallel_for(N, program.add, memory, numpy.int32(1)))
    grouped = graph.add(
        lambda h: h.parallel_for(NDRange(N, 8), program.add, memory, numpy.int32(1)),
        depends_on=plain,
    )
    with refused("it was created with a range"):
        plain.update_nd_range(NDRange(N, 8))
    with refused("it was created with an nd-range"):
        grouped.update_range(N)
    with refused("it has 1 dimensions, not 2"):
        plain.update_range((8, 8))
    with refused("it has 1 dimensions, not 2"):
        grouped.update_nd_range(NDRange((8, 8), (8, 8)))
    with refused("do not divide", Errc.nd_range):
        grouped.update_nd_range(NDRange(N, 7))
    queue.graph(graph.finalize()).wait()
    assert (memory.array == 2).all()


# what can be updated


def test_a_graph_that_was_not_finalized_for_it_is_not_updated(
    graph: CommandGraph, program: Program, memory: USM
) -> None:
    node = graph.add(lambda h: h.parallel_for(N, program.add, memory, numpy.int32(1)))
    message = (
        "update() cannot be called on an executable graph which was not created with "
        "property::updatable"
    )
    for what in (node, [node], [], graph):
        with refused(message):
            graph.finalize().update(what)


def test_nodes_of_other_graphs_and_later_nodes_are_refused(
    queue: Queue, graph: CommandGraph, program: Program, memory: USM
) -> None:
    graph.add(lambda h: h.parallel_for(N, program.add, memory, numpy.int32(1)))
    executable = graph.finalize(updatable=True)
    later, foreign = graph.add(), CommandGraph(queue).add()
    for node in (later, foreign):
        with refused("Node passed to update() is not part of the graph."):
            executable.update(node)
    with refused("int is not a Node"):
        executable.update([42])  # pyright: ignore[reportArgumentType]


KINDS = {
    "memcpy": lambda h, m: h.memcpy(m + 8, m, 4),
    "memset": lambda h, m: h.memset(m, 1),
    "memfill": lambda h, m: h.fill(m, numpy.int32(1)),
    "prefetch": lambda h, m: h.prefetch(m),
    "memadvise": lambda h, m: h.mem_advise(m),
    "subgraph": lambda h, m: h.graph_execution(
        CommandGraph((h.context), h.context.devices[0]).finalize()
    ),
}


@pytest.mark.parametrize("kind", KINDS)
def test_nodes_that_cannot_be_updated_are_refused(
    queue: Queue, graph: CommandGraph, memory: USM, kind: str
) -> None:
    node = graph.add(lambda h: KINDS[kind](h, memory))
    executable = graph.finalize(updatable=True)
    message = (
        f"node_type::{kind} nodes are not supported for update. Only kernel, host_task, "
        "barrier and empty nodes are supported."
    )
    with refused(message):
        executable.update(node)


def test_nodes_that_do_nothing_can_be_updated(queue: Queue, graph: CommandGraph) -> None:
    nodes = [graph.add()]
    with graph.recording(queue):
        nodes.append(Node.of_event(queue.barrier()))
    executable = graph.finalize(updatable=True)
    executable.update(nodes)
    executable.update(nodes[0])
    queue.graph(executable).wait()


def test_a_host_task_keeps_what_it_sees(queue: Queue, graph: CommandGraph) -> None:
    log: list[int] = []
    node = graph.add(lambda h: h.host_task(lambda: log.append(1)))
    executable = graph.finalize(updatable=True)
    executable.update(node)
    queue.graph(executable).wait()
    assert log == [1]


# all or nothing


def test_a_list_with_a_wrong_node_changes_nothing(
    queue: Queue, graph: CommandGraph, memory: USM, value: DynamicParameter, node: Node
) -> None:
    executable = graph.finalize(updatable=True)
    value.update(numpy.int32(10))
    with refused("Node passed to update() is not part of the graph."):
        executable.update([node, CommandGraph(queue).add()])
    queue.graph(executable).wait()
    assert (memory.array == 1).all()


def test_what_the_adapter_refuses_in_one_partition_changes_none(
    queue: Queue, graph: CommandGraph, program: Program, memory: USM, monkeypatch
) -> None:
    value = DynamicParameter(graph, numpy.int32(1))
    first = graph.add(lambda h: h.parallel_for(N, program.add, memory, value))
    task = graph.add(lambda h: h.host_task(lambda: None), depends_on=first)
    second = graph.add(lambda h: h.parallel_for(N, program.add, memory, value), depends_on=task)
    executable = graph.finalize(updatable=True)
    refusing = executable._segments[2].buffer  # pyright: ignore
    value.update(numpy.int32(10))

    def refuse(updates) -> None:
        raise SYCLError(
            Errc.runtime, "it does not want to", routine="urCommandBufferUpdateKernelLaunchExp"
        )

    with monkeypatch.context() as patched:
        patched.setattr(refusing, "update", refuse)
        with refused("it does not want to", Errc.runtime):
            executable.update([first, second])
    queue.graph(executable).wait()
    assert (memory.array == 2).all()
    executable.update([first, second])
    queue.graph(executable).wait()
    assert (memory.array == 22).all()


# submissions in flight


@pytest.mark.parametrize("kind", ["gate", "device_gate"])
def test_submissions_that_wait_are_not_reached(
    queue: Queue,
    graph: CommandGraph,
    memory: USM,
    value: DynamicParameter,
    node: Node,
    kind: str,
    request: pytest.FixtureRequest,
) -> None:
    """For a host task, or on the device."""
    gate: Gate = request.getfixturevalue(kind)
    executable = graph.finalize(updatable=True)
    queue.graph(executable, depends_on=[gate.event])
    value.update(numpy.int32(10))
    executable.update(node)
    after = queue.graph(executable)
    assert (memory.array == 0).all()
    gate.open()
    after.wait()
    assert (memory.array == 11).all()


def test_submissions_in_the_middle_of_a_host_task_are_not_reached(
    queue: Queue, graph: CommandGraph, program: Program, memory: USM
) -> None:
    begun, opened, log = threading.Event(), threading.Event(), []
    value = DynamicParameter(graph, numpy.int32(1))

    def task() -> None:
        begun.set()
        opened.wait()
        log.append(int(memory.array[0]))

    first = graph.add(lambda h: h.host_task(task))
    node = graph.add(lambda h: h.parallel_for(N, program.add, memory, value), depends_on=first)
    executable = graph.finalize(updatable=True)
    queue.graph(executable)
    begun.wait()
    value.update(numpy.int32(10))
    executable.update(node)
    opened.set()
    queue.graph(executable).wait()
    assert log == [0, 1] and (memory.array == 11).all()


def test_a_buffer_that_an_update_brings_is_waited_for_by_later_commands(
    queue: Queue, graph: CommandGraph, program: Program
) -> None:
    first, second = (Buffer(numpy.zeros(N, numpy.int32), write_back=False) for _ in range(2))
    where = DynamicParameter(graph, Accessor(first))
    node = graph.add(lambda h: h.parallel_for(N, program.add, where, numpy.int32(1)))
    executable = graph.finalize(updatable=True)
    where.update(Accessor(second))
    executable.update(node)
    for _ in range(3):
        queue.graph(executable)
        queue.submit(lambda h: h.parallel_for(N, program.mul, h.access(second), numpy.int32(2)))
    assert (second.numpy() == 14).all() and (first.numpy() == 0).all()
