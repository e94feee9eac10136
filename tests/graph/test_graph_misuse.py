"""Errors of wrong calls of graphs name the routine, the argument, and the remedy."""

# What is given wrongly is the point.
# pyright: reportArgumentType=false, reportOperatorIssue=false, reportCallIssue=false
# pyright: reportAttributeAccessIssue=false
from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import numpy
import pytest
from helpers.sycl import N, check_refused, zeros

from fairlead.graph import (
    CommandGraph,
    DynamicCommandGroup,
    DynamicLocalMemory,
    DynamicParameter,
    Node,
    async_free,
    async_malloc,
)
from fairlead.loader.ur.abi import UR
from fairlead.runtime import (
    USM,
    Context,
    Device,
    Errc,
    NDRange,
    Program,
    Queue,
    RawArgument,
    SYCLError,
)

#: What is refused does not depend on the driver.
pytestmark = pytest.mark.one_driver


def test_what_is_given_wrongly(queue: Queue, program: Program, memory: USM) -> None:
    """Each line: what is called, the routine that the error names, words of its message."""
    graph = CommandGraph(queue)
    node = graph.add(lambda h: h.parallel_for(N, program.add, memory, numpy.int32(1)))
    executable = graph.finalize(updatable=True)
    event = queue.host_task(lambda: None)
    add: Any = graph.add
    make: Any = CommandGraph
    group: Any = DynamicCommandGroup
    one: Any = DynamicParameter(graph, numpy.int32(1))
    turns: Any = DynamicCommandGroup(graph, [lambda h: h.host_task(print)])
    table: list[tuple[Any, str, str]] = [
        *((lambda of=of: make(of), "CommandGraph", "is not a Queue") for of in (None, "x", 3)),
        *(
            (lambda of=of: make(queue.context, of), "CommandGraph", "is not a Device")
            for of in ("x", 3, [3])
        ),
        (lambda: make(queue.context, []), "CommandGraph", "needs a device"),
        *(
            (lambda of=of: add(of), "add", "is not a command-group function")
            for of in (3, program.add, node, executable, lambda: 0)
        ),
        *(
            (lambda of=of: add(None, depends_on=of), "add", "is not a Node")
            for of in (3, [3], event)
        ),
        (lambda: add(None, device="cpu"), "add", "is not a device of the graph"),
        *(
            (
                lambda of=of: graph.make_edge(of, node),
                "make_edge",
                "Src must be a node inside the graph.",
            )
            for of in (None, 1)
        ),
        *(
            (
                lambda of=of: graph.make_edge(node, of),
                "make_edge",
                "Dest must be a node inside the graph.",
            )
            for of in (None, 1)
        ),
        *(
            (lambda of=of: node.depends_on(of), "make_edge", "Src must be a node inside the graph.")
            for of in (None, [node])
        ),
        (lambda: Node.of_event(3), "Node.of_event", "No event associated with a node"),
        *(
            (
                lambda of=of: graph.begin_recording(of),
                "begin_recording",
                "is not a queue that records",
            )
            for of in (None, 3, [3])
        ),
        *(
            (lambda of=of: graph.end_recording(of), "end_recording", "is not a queue that records")
            for of in (3, "x")
        ),
        (lambda: graph.begin_recording([]), "begin_recording", "there is no queue to be recorded"),
        (
            lambda: graph.recording().__enter__(),
            "begin_recording",
            "there is no queue to be recorded",
        ),
        (lambda: graph.finalize(policy="x"), "finalize", "there is no policy 'x'"),
        *(
            (lambda of=of: executable.update(of), "update", "is not a Node or CommandGraph")
            for of in (None, 5, [5], executable)
        ),
        *(
            (lambda of=of: DynamicParameter(of, 1), "DynamicParameter", "is not a CommandGraph")
            for of in (None, queue, executable)
        ),
        (lambda: DynamicParameter(graph, one), "DynamicParameter", "holds a value, not another"),
        (lambda: DynamicLocalMemory(None, 4), "DynamicLocalMemory", "None is not a CommandGraph"),
        *(
            (lambda of=of: group(of, [print]), "DynamicCommandGroup", "is not a CommandGraph")
            for of in (None, queue)
        ),
        *(
            (lambda of=of: group(graph, of), "DynamicCommandGroup", "is not a list of functions")
            for of in (None, 3, lambda h: 0)
        ),
        *(
            (
                lambda of=of: group(graph, [of]),
                "DynamicCommandGroup",
                "is not a command-group function",
            )
            for of in (None, 3, lambda: 0)
        ),
        *(
            (lambda of=of: setattr(turns, "active_index", of), "active_index", "is not an index")
            for of in ("a", 0.5)
        ),
        (lambda: async_malloc(queue, 8, "int32"), "async_malloc", "Queue is not a Handler"),
        (
            lambda: add(lambda h: async_malloc(h, "a", "int32")),
            "async_malloc",
            "str is not a number of elements",
        ),
        (
            lambda: queue.submit(lambda h: async_malloc(h, 4, "int32", kind="x")),
            "async_malloc",
            "there is no 'x' memory",
        ),
        (
            lambda: queue.submit(lambda h: async_malloc(h, 0, "int32")),
            "async_malloc",
            "at least one element",
        ),
        (lambda: async_free(queue, memory), "async_free", "Queue is not a Handler"),
        (lambda: add(lambda h: async_free(h, 3)), "async_free", "int is not a USM"),
    ]
    check_refused(table)
    assert len(graph) == 1 and not graph.is_recording


@pytest.mark.parametrize("value", [1, 1.5, "text"])
def test_a_value_of_no_size_names_the_parameter(queue: Queue, value: object) -> None:
    graph = CommandGraph(queue)
    parameter = DynamicParameter(graph, numpy.int32(1))
    for routine, call in (
        ("DynamicParameter", lambda: DynamicParameter(graph, value)),
        ("DynamicParameter.update", lambda: parameter.update(value)),
    ):
        with pytest.raises(SYCLError, match="the value") as caught:
            call()
        assert (caught.value.routine, caught.value.errc) == (routine, Errc.kernel_argument)


def test_a_wrong_range_names_the_update(queue: Queue, program: Program, memory: USM) -> None:
    graph = CommandGraph(queue)
    plain = graph.add(lambda h: h.parallel_for(N, program.add, memory, numpy.int32(1)))
    grouped = graph.add(
        lambda h: h.parallel_for(NDRange(N, 8), program.add, memory, numpy.int32(1))
    )
    wrong: Any = "8"
    for routine, call in (
        ("update_range", lambda: plain.update_range(wrong)),
        ("update_nd_range", lambda: grouped.update_nd_range(NDRange(N, 7))),
    ):
        with pytest.raises(SYCLError) as caught:
            call()
        assert (caught.value.routine, caught.value.errc) == (routine, Errc.nd_range)


def test_what_a_command_group_function_raises_is_its_own(queue: Queue) -> None:
    """A TypeError from within is no misuse of `add`."""
    graph = CommandGraph(queue)

    def fails(handler: object) -> object:
        return 1 + "a"

    for call in (lambda: graph.add(fails), lambda: DynamicCommandGroup(graph, [fails])):
        with pytest.raises(TypeError, match="unsupported operand"):
            call()
    assert graph.empty()


@pytest.mark.parametrize("updatable", [False, True])
def test_an_argument_that_a_kernel_does_not_take_is_named_with_its_node(
    queue: Queue, program: Program, memory: USM, updatable: bool
) -> None:
    graph = CommandGraph(queue)
    amount = DynamicParameter(graph, RawArgument(bytes(8)))
    for value in (numpy.int32(1), amount, numpy.int32(1)):
        graph.add(
            lambda h, value=value: h.parallel_for(N, program.add, memory, value),
            depends_on_all_leaves=True,
        )
    with pytest.raises(
        SYCLError, match=r"node 1: .*argument 1.*kernel, name: add, range: 64"
    ) as caught:
        graph.finalize(updatable=updatable)
    assert caught.value.errc is Errc.kernel_argument
    assert caught.value.routine == "urCommandBufferAppendKernelLaunchWithArgsExp"
    assert caught.value.remedy


SLOW = (
    "kernel void slow(global int *a, int n) { int x = 0; for (int i = 0; i < n; "
    "i++) x = x * 5 + a[0]; a[1] = x | 1; }"
)


def test_who_waits_for_the_queue_waits_for_what_ran_before_an_error(
    parts: Sequence[Device], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its memory may be given up then. The second of two command-buffers is refused."""
    context = Context(parts)
    queue, slow = Queue(context, parts[1]), Program(context, SLOW).kernel("slow")
    memory, calls = zeros(queue), itertools.count()
    graph = CommandGraph(context, parts)
    for part in parts[:2]:
        graph.add(
            lambda h: h.parallel_for(1, slow, memory, numpy.int32(1 << 25)),
            device=part,
            depends_on_all_leaves=True,
        )
    executable = graph.finalize()
    ur, enqueue = queue.adapter.ur, queue.adapter.ur.urEnqueueCommandBufferExp
    refusal = UR.codes["UR_RESULT_ERROR_OUT_OF_RESOURCES"]
    monkeypatch.setattr(
        ur, "urEnqueueCommandBufferExp", lambda *given: refusal if next(calls) else enqueue(*given)
    )
    with pytest.raises(SYCLError, match="OUT_OF_RESOURCES"):
        queue.graph(executable)
    queue.wait()
    assert memory.array[1] & 1


def test_parameters_and_groups_can_be_looked_at(
    queue: Queue, program: Program, memory: USM
) -> None:
    graph = CommandGraph(queue)
    amount, where = DynamicParameter(graph, numpy.int32(1)), DynamicParameter(graph, memory)
    graph.add(lambda h: h.parallel_for(N, program.add, where, amount))
    assert repr(amount) == "<DynamicParameter of 4 bytes, used 1 times>"
    assert repr(where) == "<DynamicParameter of a pointer, used 1 times>"
    given = graph, 4, "int32"
    assert repr(DynamicLocalMemory(*given)) == "<DynamicLocalMemory of 16 bytes, used 0 times>"
    turns = DynamicCommandGroup(
        graph, [lambda h: h.parallel_for(N, program.add, memory, numpy.int32(1))]
    )
    assert repr(turns) == f"<DynamicCommandGroup of 1, active: 0: kernel, name: add, range: {N}>"
