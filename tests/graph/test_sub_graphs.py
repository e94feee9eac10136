"""Sub-graphs, and submissions of executable graphs (spec rows A25, A26; the seed, "Multiple Roots
Execution Flow")."""

from __future__ import annotations

import gc
import json
from collections.abc import Sequence

import numpy
import pytest
from helpers.graphs import edges, refused
from helpers.support import RunPython
from helpers.sycl import Gate, N, zeros

from fairlead.graph import CommandGraph, ExecutableGraph
from fairlead.runtime import USM, Buffer, Context, Device, Errc, Program, Queue
from fairlead.runtime.commands import UNSUPPORTED


@pytest.fixture
def inner(queue: Queue, program: Program, memory: USM) -> ExecutableGraph:
    """memory = (memory + 1) * 2, in two nodes."""
    graph = CommandGraph(queue)
    first = graph.add(lambda h: h.parallel_for(N, program.add, memory, numpy.int32(1)))
    graph.add(lambda h: h.parallel_for(N, program.mul, memory, numpy.int32(2)), depends_on=first)
    return graph.finalize()


def test_a_sub_graph_is_one_node_and_runs_in_its_place(
    queue: Queue, graph: CommandGraph, inner: ExecutableGraph, program: Program, memory: USM
) -> None:
    before = graph.add(lambda h: h.parallel_for(N, program.store, memory, numpy.int32(10)))
    node = graph.add(lambda h: h.graph_execution(inner), depends_on=before)
    graph.add(lambda h: h.parallel_for(N, program.add, memory, numpy.int32(100)), depends_on=node)
    assert [one.type for one in graph.nodes] == ["kernel", "subgraph", "kernel"] and edges(
        graph
    ) == {(0, 1), (1, 2)}
    executable = graph.finalize()
    assert len(executable) == 4 and len(executable.partitions.partitions) == 1
    queue.graph(executable)
    queue.graph(executable).wait()
    assert (memory.array == 122).all()


def test_a_child_twice_in_one_parent(
    queue: Queue, graph: CommandGraph, inner: ExecutableGraph, memory: USM
) -> None:
    first = graph.add(lambda h: h.graph_execution(inner))
    graph.add(lambda h: h.graph_execution(inner), depends_on=first)
    queue.graph(graph.finalize()).wait()
    assert (memory.array == 6).all()


def test_graphs_nest(
    queue: Queue, graph: CommandGraph, inner: ExecutableGraph, program: Program, memory: USM
) -> None:
    middle = CommandGraph(queue)
    node = middle.add(lambda h: h.graph_execution(inner))
    middle.add(lambda h: h.parallel_for(N, program.mul, memory, numpy.int32(3)), depends_on=node)
    between = middle.finalize()
    node = graph.add(lambda h: h.graph_execution(between))
    graph.add(lambda h: h.graph_execution(between), depends_on=node)
    executable = graph.finalize()
    assert len(executable) == 6
    queue.graph(executable).wait()
    assert (memory.array == ((0 + 1) * 2 * 3 + 1) * 2 * 3).all()


def test_roots_and_exits_of_a_sub_graph_are_joined_to_its_neighbours(
    queue: Queue, graph: CommandGraph
) -> None:
    wide = CommandGraph(queue)
    a, b = wide.add(), wide.add()
    c = wide.add(depends_on=[a, b])
    wide.add(depends_on=c)
    wide.add(depends_on=c)
    executable = wide.finalize()
    first = graph.add()
    node = graph.add(lambda h: h.graph_execution(executable), depends_on=first)
    graph.add(depends_on=node)
    snapshot = graph.finalize().snapshot
    assert [*map(list, snapshot.predecessors)] == [[], [0], [0], [1, 2], [3], [3], [4, 5]]


def test_a_child_of_another_context_is_refused(queue: Queue, graph: CommandGraph) -> None:
    other = CommandGraph(Context(queue.device)).finalize()
    with refused("the graph was made for another context"):
        graph.add(lambda h: h.graph_execution(other))
    assert graph.empty()


def test_a_child_of_another_device_is_refused(parts: Sequence[Device]) -> None:
    context = Context(parts)
    graph = CommandGraph(context, parts[0])
    with refused("the sub-graph was made for another device than the graph"):
        graph.add(lambda h: h.graph_execution(CommandGraph(context, parts[1]).finalize()))
    assert graph.empty()


# submissions


@pytest.mark.parametrize("tasks", [0, 1])
def test_on_an_in_order_queue_a_graph_is_one_command(
    in_order: Queue, program: Program, tasks: int
) -> None:
    memory, graph = zeros(in_order), CommandGraph(in_order)
    for begin in range(0, N, 16):  # four branches
        part = memory + begin
        node = graph.add(lambda h, part=part: h.parallel_for(16, program.add, part, numpy.int32(1)))
        if tasks:
            graph.add(lambda h: h.host_task(lambda: None), depends_on=node)
    executable = graph.finalize()
    in_order.parallel_for(N, program.store, memory, numpy.int32(1))
    in_order.graph(executable)
    in_order.parallel_for(N, program.mul, memory, numpy.int32(10))
    in_order.graph(executable)
    in_order.parallel_for(N, program.mul, memory, numpy.int32(2)).wait()
    assert (memory.array == 42).all()


def test_a_submission_depends_on_events_and_others_on_it(
    queue: Queue, graph: CommandGraph, program: Program, memory: USM, gate: Gate
) -> None:
    graph.add(lambda h: h.parallel_for(N, program.add, memory, numpy.int32(1)))
    executable = graph.finalize()
    stored = queue.parallel_for(N, program.store, memory, numpy.int32(5), depends_on=[gate.event])
    first = queue.graph(executable, depends_on=[stored])

    def group(handler) -> None:
        handler.depends_on(first)
        handler.graph_execution(executable)

    second = queue.submit(group)
    last = queue.parallel_for(N, program.mul, memory, numpy.int32(2), depends_on=[second])
    assert {event.status for event in (first, second, last)} == {"submitted"}
    gate.open()
    last.wait()
    assert (memory.array == 14).all() and second.status == "complete"


def test_the_dependencies_of_one_submission_are_none_of_the_next(
    queue: Queue, graph: CommandGraph, program: Program, memory: USM
) -> None:
    first = graph.add(lambda h: h.parallel_for(N, program.add, memory, numpy.int32(1)))
    graph.add(lambda h: h.host_task(lambda: None), depends_on=first)
    executable = graph.finalize()
    failed = queue.host_task(lambda: 1 / 0)
    event = queue.graph(executable, depends_on=[failed])
    with pytest.raises(ZeroDivisionError):
        event.wait()
    with pytest.raises(ZeroDivisionError):
        queue.wait()
    queue.graph(executable).wait()
    assert (memory.array == 1).all()


def test_a_queue_of_another_context_is_refused(queue: Queue, graph: CommandGraph) -> None:
    executable = graph.finalize()
    with refused("the graph was made for another context"):
        Queue(Context(queue.device)).graph(executable)


def test_a_queue_of_another_device_is_refused(parts: Sequence[Device]) -> None:
    context = Context(parts)
    with refused("the graph was made for another device or context than the queue's"):
        Queue(context, parts[1]).graph(CommandGraph(context, parts[0]).finalize())


def test_a_modifiable_graph_is_refused(queue: Queue, graph: CommandGraph) -> None:
    with refused("a modifiable graph cannot be submitted"):
        queue.graph(graph)
    with refused("a modifiable graph cannot be submitted"):
        graph.add(lambda h: h.graph_execution(CommandGraph(queue)))
    assert graph.empty()


def test_a_graph_may_go_while_it_runs(queue: Queue, program: Program, device_gate: Gate) -> None:
    result = zeros(queue)

    def submit() -> None:
        memory, graph = zeros(queue), CommandGraph(queue)
        node = graph.add(lambda h: h.parallel_for(N, program.store, memory, numpy.int32(8)))
        graph.add(lambda h: h.parallel_for(N, program.copy, memory, result), depends_on=node)
        queue.graph(graph.finalize(), depends_on=[device_gate.event])

    gc.disable()
    try:
        submit()
        assert not result.array.any()
        device_gate.open()
        queue.wait()
    finally:
        gc.enable()
    assert (result.array == 8).all()


def test_a_graph_that_waits_for_a_host_task_may_go(
    queue: Queue, graph: CommandGraph, program: Program, memory: USM, gate: Gate
) -> None:
    graph.add(lambda h: h.parallel_for(N, program.add, memory, numpy.int32(1)))
    event = queue.graph(graph.finalize(), depends_on=[gate.event])
    del graph
    gc.collect()
    gate.open()
    event.wait()
    assert (memory.array == 1).all()


def test_buffers_make_submissions_wait_for_the_scheduler(
    queue: Queue, program: Program, gate: Gate
) -> None:
    graph, buffer = (
        CommandGraph(queue, assume_buffer_outlives_graph=True),
        Buffer(numpy.zeros(N, numpy.int32), write_back=False),
    )
    graph.add(lambda h: h.parallel_for(N, program.add, h.access(buffer), numpy.int32(1)))
    executable = graph.finalize()

    def after(handler) -> None:
        handler.depends_on(gate.event)
        handler.parallel_for(N, program.store, handler.access(buffer, "discard"), numpy.int32(4))

    queue.submit(after)
    event = queue.graph(executable)
    assert event.status == "submitted"
    gate.open()
    assert (buffer.numpy() == 5).all()


# what adapters lack

LACKING = {
    "urCommandBufferAppendUSMMemcpyExp": ("USM copy", lambda h, m, b: h.memcpy(m + 32, m, 128)),
    "urCommandBufferAppendUSMFillExp": ("USM fill", lambda h, m, b: h.fill(m, numpy.int32(1))),
    "urCommandBufferAppendUSMFillExp ": ("memset", lambda h, m, b: h.memset(m, 1)),
    "urCommandBufferAppendUSMPrefetchExp": ("prefetch", lambda h, m, b: h.prefetch(m)),
    "urCommandBufferAppendUSMAdviseExp": ("mem_advise", lambda h, m, b: h.mem_advise(m)),
    "urCommandBufferAppendMemBufferReadExp": (
        "buffer read",
        lambda h, m, b: h.copy(h.access(b, "read"), m),
    ),
    "urCommandBufferAppendMemBufferWriteExp": (
        "buffer write",
        lambda h, m, b: h.copy(m, h.access(b, "write")),
    ),
}


@pytest.mark.parametrize("routine", LACKING)
def test_finalize_names_the_command_that_the_adapter_lacks(
    queue: Queue, memory: USM, routine: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    title, operation = LACKING[routine]
    graph, buffer = CommandGraph(queue, assume_buffer_outlives_graph=True), Buffer(N, numpy.int32)
    graph.add(lambda h: operation(h, memory, buffer))
    with monkeypatch.context() as patched:
        patched.setattr(queue.adapter.ur, routine.strip(), lambda *arguments: UNSUPPORTED)
        with refused(f"{title} command not supported by graph backend", Errc.feature_not_supported):
            graph.finalize()
    queue.graph(graph.finalize()).wait()


INTEL = """
import json, fairlead, numpy
from fairlead.graph import CommandGraph
from fairlead.runtime import Buffer, Queue, SYCLError, devices, malloc_device

(device,) = (device for device in devices(fairlead.adapters()) if "Intel" in device.platform.name)
queue = Queue(device)
a, b = malloc_device(64, "int32", queue), malloc_device(64, "int32", queue)
B, C = (
    Buffer(numpy.zeros(64, "int32"), write_back=False),
    Buffer(numpy.zeros(64, "int32"), write_back=False),
)
host, said = numpy.zeros(64, "int32"), {}
for name, group in {
    "prefetch": lambda h: h.prefetch(a),
    "mem_advise": lambda h: h.mem_advise(a),
    "buffer read": lambda h: h.copy(h.access(B, "read"), host),
    "buffer write": lambda h: h.copy(host, h.access(B, "write")),
    "buffer copy": lambda h: h.copy(h.access(B, "read"), h.access(C, "write")),
}.items():
    graph = CommandGraph(queue, assume_buffer_outlives_graph=True)
    graph.add(group)
    try:
        graph.finalize()
        said[name] = ["", ""]
    except SYCLError as error:
        said[name] = [error.errc.name, error.message]
print(json.dumps(said))
"""


def test_what_intels_adapter_lacks(other_adapter: dict[str, str], run_python: RunPython) -> None:
    said = json.loads(run_python(INTEL, env=other_adapter).out)
    assert said.pop("buffer copy") == ["", ""]
    for name, (errc, message) in said.items():
        assert (
            errc == "feature_not_supported"
            and message == f"node 0: {name} command not supported by graph backend"
        )
