"""Dynamic command-groups: several command groups, one of which is active (spec rows A30, B9;
SYCL-Graph, "Dynamic Command Groups")."""

from __future__ import annotations

import gc
from collections.abc import Callable

import numpy
import pytest
from helpers.graphs import edges, refused
from helpers.sycl import N

from fairlead.graph import CommandGraph, DynamicCommandGroup, DynamicParameter
from fairlead.runtime import USM, Buffer, Handler, Program, Queue


def additions(program: Program, memory: USM, *numbers: int) -> list[Callable[[Handler], object]]:
    """A command group for each number, which adds it to the memory."""
    return [
        lambda h, n=number: h.parallel_for(N, program.add, memory, numpy.int32(n))
        for number in numbers
    ]


def test_functions_are_called_once_in_order(
    queue: Queue, graph: CommandGraph, program: Program, memory: USM
) -> None:
    calls: list[int] = []

    def numbered(number: int):
        def group(handler: Handler) -> None:
            calls.append(number)
            handler.parallel_for(N, program.add, memory, numpy.int32(number))

        return group

    groups = DynamicCommandGroup(graph, [numbered(0), numbered(1), numbered(2)])
    node = graph.add(groups)
    executable = graph.finalize(updatable=True)
    groups.active_index = 2
    executable.update(node)
    queue.graph(executable).wait()
    assert calls == [0, 1, 2] and (memory.array == 2).all()


def test_host_tasks(queue: Queue, graph: CommandGraph) -> None:
    log: list[str] = []
    groups = DynamicCommandGroup(
        graph,
        [
            lambda h: h.host_task(lambda: log.append("a")),
            lambda h: h.host_task(lambda: log.append("b")),
        ],
    )
    node = graph.add(groups)
    executable = graph.finalize(updatable=True)
    queue.graph(executable).wait()
    groups.active_index = 1
    executable.update(node)
    queue.graph(executable).wait()
    assert log == ["a", "b"] and node.type == "host_task"


def test_events_order_all_of_them(
    queue: Queue, graph: CommandGraph, program: Program, memory: USM
) -> None:
    first = graph.add(lambda h: h.parallel_for(N, program.store, memory, numpy.int32(3)))

    def after(value: int):
        def group(handler: Handler) -> None:
            handler.depends_on(first.event())
            handler.parallel_for(N, program.mul, memory, numpy.int32(value))

        return group

    graph.add(DynamicCommandGroup(graph, [after(2), after(3)]))
    assert edges(graph) == {(0, 1)}
    queue.graph(graph.finalize()).wait()
    assert (memory.array == 6).all()


def test_the_alternatives_are_the_other_kernels(
    queue: Queue, graph: CommandGraph, program: Program, memory: USM
) -> None:
    groups = DynamicCommandGroup(
        graph,
        [
            lambda h: h.parallel_for(N, program.add, memory, numpy.int32(1)),
            lambda h: h.parallel_for(N, program.mul, memory, numpy.int32(1)),
            lambda h: h.parallel_for(N, program.add, memory, numpy.int32(2)),
        ],
    )
    graph.add(groups)
    alternatives = [[kernel.name for kernel in command.alternatives] for command in groups.commands]  # pyright: ignore
    assert alternatives == [["mul"], ["add"], ["mul"]]


def test_nothing_is_kept_of_nodes_and_graphs_that_are_gone(
    queue: Queue, program: Program, memory: USM
) -> None:
    graph = CommandGraph(queue)
    functions = additions(program, memory, 1, 2)
    groups = DynamicCommandGroup(graph, functions)
    graph.add(groups)
    executable = graph.finalize()
    del graph
    gc.collect()
    groups.active_index = 1
    assert groups.graph is None
    queue.graph(executable).wait()
    assert (memory.array == 1).all()


# misuse


def test_none_is_refused(graph: CommandGraph) -> None:
    with refused("Dynamic command-group cannot be created with an empty CGF list."):
        DynamicCommandGroup(graph, [])


@pytest.mark.parametrize(
    "operation",
    [
        lambda h, m: h.memset(m, 0),
        lambda h, m: h.memcpy(m, m),
        lambda h, m: h.barrier(),
        lambda h, m: None,
        lambda h, m: h.prefetch(m),
    ],
)
def test_other_kinds_are_refused(graph: CommandGraph, memory: USM, operation) -> None:
    with refused(
        "The only type of command-groups that can be used in a dynamic command-group is kernels "
        "and host-tasks."
    ):
        DynamicCommandGroup(graph, [lambda h: operation(h, memory)])


def test_kernels_and_host_tasks_do_not_mix(
    graph: CommandGraph, program: Program, memory: USM
) -> None:
    functions = [*additions(program, memory, 1), lambda h: h.host_task(lambda: None)]
    with refused("have to be all of one type"):
        DynamicCommandGroup(graph, functions)


def test_dynamic_parameters_of_host_tasks_are_refused(graph: CommandGraph) -> None:
    def group(handler: Handler) -> None:
        handler.set_arg(0, DynamicParameter(graph, numpy.int32(1)))
        handler.host_task(lambda: None)

    with refused("Cannot use dynamic parameters in a host_task"):
        DynamicCommandGroup(graph, [group])


@pytest.mark.parametrize("index", [-1, 2, 100])
def test_an_index_out_of_range_is_refused(graph: CommandGraph, index: int) -> None:
    groups = DynamicCommandGroup(graph, [lambda h: h.host_task(lambda: None)] * 2)
    with refused("Index is out of range"):
        groups.active_index = index
    assert groups.active_index == 0


def test_another_graph_s_group_is_refused(queue: Queue, graph: CommandGraph) -> None:
    groups = DynamicCommandGroup(CommandGraph(queue), [lambda h: h.host_task(lambda: None)])
    with refused(
        "Cannot add dynamic command-group to a graph other than the one it was created with."
    ):
        graph.add(groups)


def test_different_dependencies_are_refused(
    queue: Queue, graph: CommandGraph, program: Program
) -> None:
    message = (
        "Command-groups in dynamic command-group don't have equivalent dependencies to "
        "other graph nodes."
    )
    one, other = Buffer(N, numpy.int32), Buffer(N, numpy.int32)

    def use(buffer: Buffer, mode: str = "read_write"):
        return lambda h: h.parallel_for(N, program.add, h.access(buffer, mode), numpy.int32(1))

    for functions in ([use(one), use(other)], [use(one), use(one, "read")]):
        with refused(message):
            DynamicCommandGroup(graph, functions)
    node = graph.add()

    def after(handler: Handler) -> None:
        handler.depends_on(node.event())
        handler.host_task(lambda: None)

    with refused(message):
        DynamicCommandGroup(graph, [after, lambda h: h.host_task(lambda: None)])


def test_buffers_obey_the_graph_s_rules(queue: Queue, program: Program) -> None:
    graph, buffer = CommandGraph(queue), Buffer(N, numpy.int32)
    with refused("without passing the assume_buffer_outlives_graph property"):
        DynamicCommandGroup(
            graph, [lambda h: h.parallel_for(N, program.add, h.access(buffer), numpy.int32(1))]
        )


def test_while_a_queue_records_none_is_added(queue: Queue, graph: CommandGraph) -> None:
    groups = DynamicCommandGroup(graph, [lambda h: h.host_task(lambda: None)])
    with graph.recording(queue), refused('Explicit API "Add()" function cannot be called'):
        graph.add(groups)
