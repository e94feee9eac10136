"""Dynamic parameters: kernel arguments that can be exchanged (spec rows A29, B9; SYCL-Graph,
"Dynamic Parameters")."""

from __future__ import annotations

import gc
import struct

import numpy
import pytest
from helpers.graphs import edges, refused
from helpers.sycl import N, zeros

from fairlead.graph import CommandGraph, DynamicLocalMemory, DynamicParameter
from fairlead.runtime import (
    USM,
    Accessor,
    Buffer,
    Errc,
    Handler,
    LocalMemory,
    NDRange,
    Program,
    Queue,
    RawArgument,
)


def test_pointers_and_numpy_structures_and_raw_bytes(
    queue: Queue, graph: CommandGraph, context
) -> None:
    program = Program(
        context,
        "typedef struct { int a, b; } pair; kernel void put(global int *out, pair p, int n) { "
        "out[get_global_id(0)] = p.a + p.b + n; }",
    )
    first, second = zeros(queue), zeros(queue)
    kind = [("a", "i4"), ("b", "i4")]
    where = DynamicParameter(graph, first)
    pair = DynamicParameter(graph, numpy.array((1, 2), kind)[()])
    raw = DynamicParameter(graph, RawArgument(struct.pack("<i", 10)))
    node = graph.add(lambda h: h.parallel_for(N, program.put, where, pair, raw))
    executable = graph.finalize(updatable=True)
    queue.graph(executable).wait()
    where.update(second)
    pair.update(numpy.array((3, 4), kind)[()])
    raw.update(RawArgument(struct.pack("<i", 20)))
    executable.update(node)
    queue.graph(executable).wait()
    assert (first.array == 13).all() and (second.array == 27).all()


def test_what_a_buffer_is_written_by_before_is_waited_for(
    queue: Queue, graph: CommandGraph, program: Program
) -> None:
    first, second = (Buffer(numpy.zeros(N, numpy.int32), write_back=False) for _ in range(2))
    where = DynamicParameter(graph, Accessor(first))
    node = graph.add(lambda h: h.parallel_for(N, program.add, where, numpy.int32(1)))
    executable = graph.finalize(updatable=True)
    slow = queue.submit(
        lambda h: h.parallel_for(N, program.slow, h.access(second), numpy.int32(2_000_000))
    )
    where.update(Accessor(second))
    executable.update(node)
    assert slow.status == "complete"
    expected = second.numpy() + 1
    queue.graph(executable)
    assert (second.numpy() == expected).all() and not first.numpy().any()


def test_require_takes_a_dynamic_accessor(
    queue: Queue, graph: CommandGraph, program: Program
) -> None:
    buffer = Buffer(numpy.zeros(N, numpy.int32), write_back=False)
    where = DynamicParameter(graph, Accessor(buffer))

    def group(handler: Handler) -> None:
        handler.require(where)
        handler.set_arg(0, where)
        handler.set_arg(1, numpy.int32(4))
        handler.parallel_for(N, program.add)

    graph.add(group)
    graph.add(group)
    assert edges(graph) == {(0, 1)}
    queue.graph(graph.finalize())
    assert (buffer.numpy() == 8).all()


def test_one_parameter_in_many_nodes_and_places(queue: Queue, graph: CommandGraph, context) -> None:
    program = Program(
        context,
        "kernel void put(global int *out, int a, int b) { out[get_global_id(0)] += a * b; }",
    )
    out, value = zeros(queue), DynamicParameter(graph, numpy.int32(2))
    nodes = [
        graph.add(
            lambda h: h.parallel_for(N, program.put, out, value, value), depends_on_all_leaves=True
        ),
        graph.add(
            lambda h: h.parallel_for(N, program.put, out, numpy.int32(1), value),
            depends_on_all_leaves=True,
        ),
    ]
    executable = graph.finalize(updatable=True)
    queue.graph(executable).wait()
    assert (out.array == 6).all()
    value.update(numpy.int32(10))
    executable.update(nodes)
    queue.graph(executable).wait()
    assert (out.array == 116).all()


def test_an_argument_may_have_several_parameters_and_the_last_value_counts(
    queue: Queue, graph: CommandGraph, program: Program, memory: USM
) -> None:
    first, second = DynamicParameter(graph, numpy.int32(1)), DynamicParameter(graph, numpy.int32(2))

    def group(handler: Handler) -> None:
        handler.set_arg(0, memory)
        handler.set_arg(1, first)
        handler.set_arg(1, second)
        handler.parallel_for(N, program.store)

    node = graph.add(group)
    executable = graph.finalize(updatable=True)
    queue.graph(executable).wait()
    assert (memory.array == 2).all()
    for parameter, number in ((second, 20), (first, 10)):
        parameter.update(numpy.int32(number))
        executable.update(node)
        queue.graph(executable).wait()
        assert (memory.array == number).all()


def test_local_memory_of_another_size(queue: Queue, graph: CommandGraph, context) -> None:
    source = """kernel void spread(global int *out, local int *scratch, int count) {
      for (int i = get_local_id(0); i < count; i += get_local_size(0)) scratch[i] = i;
      barrier(CLK_LOCAL_MEM_FENCE);
      int sum = 0; for (int i = 0; i < count; i++) sum += scratch[i];
      out[get_global_id(0)] = sum; }"""
    out, program = zeros(queue), Program(context, source)
    scratch, count = (
        DynamicLocalMemory(graph, 8, numpy.int32),
        DynamicParameter(graph, numpy.int32(8)),
    )
    node = graph.add(lambda h: h.parallel_for(NDRange(N, 8), program.spread, out, scratch, count))
    executable = graph.finalize(updatable=True)
    queue.graph(executable).wait()
    assert (out.array == 28).all()
    for size in (1000, LocalMemory(100, numpy.int32)):
        number = size if isinstance(size, int) else 100
        scratch.update(size)
        count.update(numpy.int32(number))
        executable.update(node)
        queue.graph(executable).wait()
        assert (out.array == number * (number - 1) // 2).all()
    too_much = LocalMemory(queue.device.local_memory + 1)
    with refused("bytes of local memory, the device has"):
        scratch.update(too_much)
    with refused("bytes of local memory, the device has"):
        graph.add(lambda h: h.set_arg(1, DynamicParameter(graph, too_much)))
    assert scratch.argument.size == 400 and len(graph) == 1


def test_nothing_is_kept_of_nodes_and_graphs_that_are_gone(
    queue: Queue, program: Program, memory: USM
) -> None:
    graph = CommandGraph(queue)
    value = DynamicParameter(graph, numpy.int32(1))
    graph.add(lambda h: h.parallel_for(N, program.add, memory, value))
    executable = graph.finalize()
    del graph
    gc.collect()
    value.update(numpy.int32(2))
    queue.graph(executable).wait()
    assert (memory.array == 1).all()


# misuse


def test_another_graph_s_parameter_is_refused(
    queue: Queue, graph: CommandGraph, program: Program, memory: USM
) -> None:
    foreign = DynamicParameter(CommandGraph(queue), numpy.int32(1))
    with refused(
        "Cannot use a Dynamic Parameter with a node associated with a graph other than the one it "
        "was created with."
    ):
        graph.add(lambda h: h.parallel_for(N, program.add, memory, foreign))
    assert graph.empty()


@pytest.mark.parametrize("operation", ["host_task", "memset", "nothing"])
def test_only_kernels_have_parameters(graph: CommandGraph, memory: USM, operation: str) -> None:
    value = DynamicParameter(graph, numpy.int32(1))

    def group(handler: Handler) -> None:
        handler.set_arg(0, value)
        if operation == "host_task":
            handler.host_task(lambda: None)
        elif operation == "memset":
            handler.memset(memory, 0)

    with refused(
        "dynamic_parameters cannot be registered with graph nodes which do not represent kernel "
        "executions"
    ):
        graph.add(group)
    assert graph.empty()


def test_a_parameter_in_an_ordinary_submission_is_refused(
    queue: Queue, graph: CommandGraph, program: Program, memory: USM
) -> None:
    value = DynamicParameter(graph, numpy.int32(1))
    with refused("A dynamic parameter can only be used in a node of a graph"):
        queue.parallel_for(N, program.add, memory, value)
    with refused("A dynamic parameter can only be used in a node of a graph"):
        queue.submit(lambda h: h.require(DynamicParameter(graph, Accessor(Buffer(N, numpy.int32)))))


def test_a_parameter_keeps_its_kind_and_size(
    graph: CommandGraph, queue: Queue, memory: USM
) -> None:
    value, pointer = DynamicParameter(graph, numpy.int32(1)), DynamicParameter(graph, memory)
    with refused("a dynamic parameter keeps its kind"):
        value.update(memory)
    with refused("a dynamic parameter keeps its kind"):
        pointer.update(Accessor(Buffer(N, numpy.int32)))
    with refused("the new value has 8 bytes, not 4"):
        value.update(numpy.int64(1))
    with refused("which does not say how many bytes it has", Errc.kernel_argument):
        value.update(1)
    with refused("a dynamic parameter holds a value"):
        DynamicParameter(graph, value)


def test_buffers_of_parameters_obey_the_graph_s_rules(
    queue: Queue, graph: CommandGraph, program: Program
) -> None:
    strict, buffer = CommandGraph(queue), Buffer(N, numpy.int32)
    with refused("without passing the assume_buffer_outlives_graph property"):
        strict.add(
            lambda h: h.parallel_for(
                N, program.add, DynamicParameter(strict, Accessor(buffer)), numpy.int32(1)
            )
        )
    where = DynamicParameter(graph, Accessor(buffer))
    with Buffer(numpy.zeros(N, numpy.int32)) as written_back, refused("write_back enabled"):
        where.update(Accessor(written_back))
