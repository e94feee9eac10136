"""Explicit graphs: add, make_edge, dependencies, kinds of nodes (spec rows A11 to A14, A21, A27,
A34)."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Sequence

import numpy
import pytest
from helpers.graphs import edges, refused
from helpers.sycl import SOURCE, Gate, N, zeros

from fairlead.graph import CommandGraph, Node
from fairlead.runtime import (
    USM,
    Buffer,
    Context,
    Device,
    Errc,
    Event,
    Handler,
    LocalMemory,
    NDRange,
    Program,
    Queue,
    SYCLError,
    malloc_device,
    malloc_shared,
)


def nothing(handler: Handler) -> None:
    """A command group that names no operation."""


# nodes


def test_a_graph_is_a_sequence_of_its_nodes(graph: CommandGraph) -> None:
    first, second = graph.add(), graph.add()
    third = graph.add(depends_on=first)
    graph.make_edge(third, second)
    assert list(graph) == graph.nodes == graph[:] == [first, second, third] and len(graph) == 3
    assert (graph[0], graph[-1], graph[1:]) == (first, third, [second, third]) and second in graph
    assert set(graph.edges) == {(0, 2), (2, 1)}
    with pytest.raises(IndexError, match="the graph has 3 nodes, there is no node 3"):
        graph[3]


# add


def test_nothing_and_a_function_that_names_nothing_are_empty_nodes(graph: CommandGraph) -> None:
    assert [graph.add().type, graph.add(nothing).type] == ["empty", "empty"]


def test_a_function_is_called_once(
    queue: Queue, graph: CommandGraph, program: Program, memory: USM
) -> None:
    calls: list[Handler] = []

    def add(handler: Handler) -> None:
        calls.append(handler)
        handler.parallel_for(N, program.add, memory, numpy.int32(len(calls)))

    graph.add(add)
    executable = graph.finalize()
    for _ in range(3):
        queue.graph(executable)
    queue.wait()
    assert len(calls) == 1 and (memory.array == 3).all()


def test_what_the_function_raises_is_raised_and_leaves_no_node(graph: CommandGraph) -> None:
    with pytest.raises(ZeroDivisionError):
        graph.add(lambda h: 1 / 0)
    assert graph.empty()


def test_a_function_names_one_operation(graph: CommandGraph, memory: USM) -> None:
    def two(handler: Handler) -> None:
        handler.memset(memory, 0)
        handler.memset(memory, 1)

    with refused("names a second operation"):
        graph.add(two)
    assert graph.empty()


def test_add_is_refused_while_a_queue_records(queue: Queue, graph: CommandGraph) -> None:
    a, b = graph.add(), graph.add()
    with graph.recording(queue):
        with refused(
            'Explicit API "Add()" function cannot be called when a queue is currently '
            "recording commands to a graph."
        ):
            graph.add()
        with refused(
            'Explicit API "Make_edge()" function cannot be called when a queue is '
            "currently recording"
        ):
            graph.make_edge(a, b)
    graph.make_edge(a, b)
    assert edges(graph) == {(0, 1)}


def test_a_device_of_another_graph_is_refused(graph: CommandGraph, parts: Sequence[Device]) -> None:
    with refused("is not a device of the graph"):
        graph.add(device=parts[0])


# depends_on


def test_depends_on_adds_to_what_the_command_group_says(
    graph: CommandGraph, program: Program
) -> None:
    buffer = Buffer(N, numpy.int32)
    writer = graph.add(
        lambda h: h.parallel_for(N, program.store, h.access(buffer, "write"), numpy.int32(1))
    )
    other = graph.add()
    last = graph.add(
        lambda h: h.parallel_for(N, program.add, h.access(buffer), numpy.int32(1)),
        depends_on=[other, other],
    )
    assert set(last.predecessors) == {writer, other} and len(last.predecessors) == 2
    assert writer.successors == [last] and graph.roots == [writer, other] and graph.leaves == [last]


def test_depends_on_takes_one_node_or_several(graph: CommandGraph) -> None:
    a = graph.add()
    assert graph.add(depends_on=a).predecessors == [a]
    assert graph.add(depends_on=(node for node in [a])).predecessors == [a]


def test_a_node_of_another_graph_is_refused(queue: Queue, graph: CommandGraph) -> None:
    foreign = CommandGraph(queue).add()
    with refused("Node must be a node inside the graph."):
        graph.add(depends_on=foreign)
    with refused("int is not a Node"):
        graph.add(depends_on=[42])  # pyright: ignore[reportArgumentType]
    assert graph.empty()


# make_edge


def test_make_edge_leads_forward_and_back(
    queue: Queue, graph: CommandGraph, program: Program, memory: USM
) -> None:
    later = graph.add(lambda h: h.parallel_for(N, program.mul, memory, numpy.int32(10)))
    earlier = graph.add(lambda h: h.parallel_for(N, program.add, memory, numpy.int32(1)))
    graph.make_edge(earlier, later)
    assert edges(graph) == {(1, 0)} and graph.roots == [earlier]
    queue.graph(graph.finalize()).wait()
    assert (memory.array == 10).all()


@pytest.mark.parametrize("check", [True, False])
def test_what_make_edge_refuses_leaves_the_graph_as_it_was(queue: Queue, check: bool) -> None:
    graph = CommandGraph(queue, no_cycle_check=not check)
    a, b, foreign = graph.add(), graph.add(), CommandGraph(queue).add()
    graph.make_edge(a, b)
    with refused("make_edge() cannot be called when Src and Dest are the same."):
        graph.make_edge(a, a)
    with refused("Src must be a node inside the graph."):
        graph.make_edge(foreign, a)
    with refused("Dest must be a node inside the graph."):
        graph.make_edge(a, foreign)
    assert edges(graph) == {(0, 1)} and not foreign.predecessors and not foreign.successors


# events


def test_events_of_recorded_nodes_order_explicit_ones(
    queue: Queue, graph: CommandGraph, program: Program, memory: USM
) -> None:
    with graph.recording(queue):
        event = queue.parallel_for(N, program.add, memory, numpy.int32(1))

    def after(handler: Handler) -> None:
        handler.depends_on(event)
        handler.parallel_for(N, program.mul, memory, numpy.int32(5))

    node = graph.add(after)
    assert node.predecessors == [Node.of_event(event)]
    queue.graph(graph.finalize()).wait()
    assert (memory.array == 5).all()


def test_events_from_outside_are_refused(queue: Queue, graph: CommandGraph, memory: USM) -> None:
    other = CommandGraph(queue)
    with other.recording(queue):
        foreign = queue.memset(memory, 0)
    for event in (queue.memset(memory, 0), Event(), foreign):
        with refused("Graph nodes cannot depend on events from outside the graph."):
            graph.add(lambda h, event=event: h.depends_on(event))
    assert graph.empty()


def test_the_node_of_an_event(queue: Queue, graph: CommandGraph, memory: USM) -> None:
    with graph.recording(queue):
        event = queue.memset(memory, 0)
    assert (
        Node.of_event(event) is graph.nodes[0]
        and Node.of_event(event.node.event()) is graph.nodes[0]
    )
    with refused("No event associated with a node"):
        Node.of_event(queue.memset(memory, 0))
    with refused("No event associated with a node"):
        Node.of_event(Queue(queue.device, in_order=True).barrier())


# what nodes can be


def test_every_kind_of_node_says_what_it_is_and_runs(
    queue: Queue, graph: CommandGraph, program: Program
) -> None:
    a, b, c = (zeros(queue) for _ in range(3))
    one, other = Buffer(N, numpy.int32), Buffer(N, numpy.int32)
    host, ran = numpy.full(N, 3, numpy.int32), []
    empty = CommandGraph(queue).finalize()
    kinds = [
        ("kernel", lambda h: h.parallel_for(N, program.store, a, numpy.int32(1))),
        ("kernel", lambda h: h.parallel_for(NDRange(N, 8), program.add, a, numpy.int32(1))),
        ("kernel", lambda h: h.single_task(program.store, c, numpy.int32(9))),
        ("memcpy", lambda h: h.memcpy(b, a)),
        ("memcpy", lambda h: h.copy(a, b)),
        ("memcpy", lambda h: h.copy(host, h.access(one, "write"))),
        ("memcpy", lambda h: h.copy(h.access(one, "read"), h.access(other, "write"))),
        ("memcpy", lambda h: h.copy(h.access(other, "read"), host)),
        ("memset", lambda h: h.memset(a, 0)),
        ("memfill", lambda h: h.fill(c, numpy.int32(4))),
        ("memfill", lambda h: h.fill(h.access(one, "discard"), 5)),
        ("prefetch", lambda h: h.prefetch(a)),
        ("memadvise", lambda h: h.mem_advise(a)),
        ("host_task", lambda h: h.host_task(lambda: ran.append(1))),
        ("subgraph", lambda h: h.graph_execution(empty)),
        ("empty", nothing),
    ]
    for _, function in kinds:
        graph.add(function, depends_on_all_leaves=True)
    assert [node.type for node in graph.nodes] == [kind for kind, _ in kinds]
    for policy in ("seed", "rank"):
        queue.graph(graph.finalize(policy=policy)).wait()
    assert (
        (a.array == 0).all() and (b.array == 2).all() and (c.array == 4).all() and (host == 3).all()
    )
    assert (one.numpy() == 5).all() and (other.numpy() == 3).all() and len(ran) == 2


def test_parts_of_buffers_are_copied_as_rectangles(queue: Queue, graph: CommandGraph) -> None:
    picture, part = (
        numpy.arange(48, dtype=numpy.int32).reshape(6, 8),
        numpy.zeros((2, 3), numpy.int32),
    )
    source, target = (
        Buffer(picture, write_back=False),
        Buffer(numpy.zeros((6, 8), numpy.int32), write_back=False),
    )
    graph.add(
        lambda h: h.copy(
            h.access(source, "read", (2, 3), (1, 2)), h.access(target, "write", (2, 3), (3, 4))
        )
    )
    graph.add(lambda h: h.copy(h.access(target, "read", (2, 3), (3, 4)), part))
    graph.add(lambda h: h.copy(part, h.access(target, "write", (2, 3), (0, 0))))
    queue.graph(graph.finalize()).wait()
    assert (part == picture[1:3, 2:5]).all()
    assert (target.numpy()[3:5, 4:7] == part).all()


def test_a_native_command_is_recorded_into_the_native_command_buffer_or_refused(
    queue: Queue, graph: CommandGraph
) -> None:
    seen: list[tuple[int, int]] = []

    def native(handler: Handler) -> None:
        handler.native_command(
            lambda interop: seen.append((interop.native_queue(), interop.native_command_buffer()))
        )

    node = graph.add(native)
    assert node.type == "native_command" and not seen
    try:
        executable = graph.finalize()
    except SYCLError as error:
        assert error.errc is Errc.feature_not_supported
        assert error.message == "node 0: native command command not supported by graph backend"
    else:
        assert len(seen) == 1 and seen[0][0] == 0 and seen[0][1] != 0
        queue.graph(executable).wait()


def test_local_memory_and_structures_are_frozen_with_the_node(
    queue: Queue, graph: CommandGraph, context
) -> None:
    program = Program(
        context,
        "typedef struct { int a, b; } pair; kernel void both(global int *out, pair p, local int "
        "*scratch) {"
        " scratch[get_local_id(0)] = p.a * 100 + p.b; barrier(CLK_LOCAL_MEM_FENCE); "
        "out[get_global_id(0)] = scratch[0]; }",
    )
    out = zeros(queue)
    pair = numpy.array((1, 2), dtype=[("a", "i4"), ("b", "i4")])[()]
    graph.add(
        lambda h: h.parallel_for(
            NDRange(N, 8), program.both, out, pair, LocalMemory(8, numpy.int32)
        )
    )
    pair["a"] = 7
    queue.graph(graph.finalize()).wait()
    assert (out.array == 102).all()


def test_memory_of_nodes_lives_as_long_as_the_executable(
    queue: Queue, graph: CommandGraph, program: Program
) -> None:
    source, result = malloc_device(N, numpy.int32, queue), zeros(queue)
    fill = graph.add(
        lambda h, source=source: h.parallel_for(N, program.store, source, numpy.int32(6))
    )
    graph.add(
        lambda h, source=source: h.parallel_for(N, program.copy, source, result), depends_on=fill
    )
    executable = graph.finalize()
    del source, graph, fill
    queue.graph(executable).wait()
    assert (result.array == 6).all()


@pytest.mark.parametrize("kind", ["gate", "device_gate"])
def test_host_memory_of_a_graph_that_is_dropped_lives_until_it_has_run(
    queue: Queue, kind: str, request: pytest.FixtureRequest
) -> None:
    """An adapter knows its address alone, and one that waits for a host task not even that."""
    gate: Gate = request.getfixturevalue(kind)
    array, target = numpy.full(N, 6, numpy.int32), malloc_device(N, numpy.int32, queue)
    graph, gone = CommandGraph(queue), weakref.ref(array)
    graph.add(lambda h, array=array: h.memcpy(target, array))
    event = queue.graph(graph.finalize(), depends_on=[gate.event])
    del array, graph
    gc.collect()
    assert gone() is not None
    gate.open()
    event.wait()
    gc.collect()
    assert gone() is None


def test_times_on_queues_of_several_devices(parts: Sequence[Device]) -> None:
    """A first submission without times does not take those of a later one."""
    context = Context(parts)
    memory = malloc_shared(N, numpy.int32, (context, parts[0]))
    program, graph = Program(context, SOURCE), CommandGraph(context, parts)
    for part in parts[:2]:
        graph.add(
            lambda h: h.parallel_for(N, program.store, memory, numpy.int32(1)),
            device=part,
            depends_on_all_leaves=True,
        )
    executable = graph.finalize(enable_profiling=True)
    Queue(context, parts[0]).graph(executable).wait()
    event = Queue(context, parts[0], profiling=True).graph(executable)
    assert 0 < event.profiling("start") <= event.profiling("end")


def test_a_barrier_is_refused(graph: CommandGraph) -> None:
    message = (
        "The sycl_ext_oneapi_enqueue_barrier feature is not available with SYCL Graph "
        "Explicit API. Please use empty nodes instead."
    )
    with refused(message):
        graph.add(lambda h: h.barrier())
    with refused(message):
        graph.add(lambda h: h.barrier([graph.add().event()]))
    assert len(graph) == 1


def test_nodes_of_several_devices_and_an_empty_one_among_them(parts: Sequence[Device]) -> None:
    context = Context(parts)
    queue, program = Queue(context, parts[0]), Program(context, SOURCE)
    buffer = Buffer(numpy.zeros(N, numpy.int32), write_back=False)
    graph = CommandGraph(context, parts, assume_buffer_outlives_graph=True)
    first = graph.add(device=parts[0])
    second = graph.add(
        lambda h: h.parallel_for(N, program.store, h.access(buffer, "discard"), numpy.int32(3)),
        depends_on=first,
        device=parts[1],
    )
    executable = graph.finalize()
    assert second.device is parts[1] and len(executable.partitions.partitions) == 1
    graph.add(
        lambda h: h.parallel_for(N, program.mul, h.access(buffer), numpy.int32(7)), device=parts[0]
    )
    both = graph.finalize()
    assert len(both.partitions.partitions) == 2
    queue.graph(executable).wait()
    assert (buffer.numpy() == 3).all()
    queue.graph(both).wait()
    assert (buffer.numpy() == 21).all()
