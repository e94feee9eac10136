"""Captured graphs in other graphs and on runtime queues, whose objects share PyOpenCL's context."""

from __future__ import annotations

import gc
import threading
from collections.abc import Iterator

import numpy as np
import pyopencl as cl
import pytest
from helpers.captures import Numbers, shared_numbers

from fairlead.captured_graphs.context import capture
from fairlead.captured_graphs.executable import Executable
from fairlead.graph import CommandGraph
from fairlead.runtime import Program, Queue, SYCLError
from fairlead.runtime.interop import context_of, device_of, queue_of, to_pyopencl


@pytest.fixture
def runtime_queue(queue: cl.CommandQueue) -> Iterator[Queue]:
    """A queue of the runtime's in the context of the pyopencl queue."""
    made = Queue(context_of(queue.context), device_of(queue.device))
    yield made
    made.wait()


@pytest.fixture
def steps(numbers: Numbers) -> Executable:
    """Adds 1 and brings the numbers to the host."""
    with capture(numbers.queue) as graph:
        numbers.add(1)
        numbers.read()
    return graph.finalize()


def test_on_a_runtime_queue(numbers: Numbers, steps: Executable, runtime_queue: Queue) -> None:
    opened, seen = threading.Event(), list[int]()
    gate = runtime_queue.host_task(opened.wait)
    event = runtime_queue.graph(steps, depends_on=[gate])
    after = runtime_queue.host_task(lambda: seen.append(int(numbers.host[0])), depends_on=[event])
    assert numbers.value() == 0 and event.status == "submitted"
    opened.set()
    after.wait()
    assert seen == [1] and event.status == "complete"
    steps.replay(numbers.queue)
    runtime_queue.graph(steps).wait()
    assert (numbers.value(), numbers.host[0]) == (3, 3)


def test_a_runtime_queue_made_from_pyopencls(numbers: Numbers, steps: Executable) -> None:
    """One native queue, which is in order: commands of both follow each other."""
    queue = queue_of(numbers.queue)
    numbers.add(10)
    queue.graph(steps)
    numbers.mul(3)
    queue.graph(steps)
    assert numbers.value() == 34


def test_in_a_graph_of_the_runtimes(
    numbers: Numbers, steps: Executable, runtime_queue: Queue
) -> None:
    memory = shared_numbers(runtime_queue.device, runtime_queue)
    memory.array[:] = 7
    copied = np.zeros(64, np.int32)
    graph = CommandGraph(runtime_queue)
    with graph.recording(runtime_queue):
        first = runtime_queue.memcpy(copied, memory)
        inner = runtime_queue.graph(steps, depends_on=[first])
        task = runtime_queue.host_task(
            lambda: memory.array.__setitem__(slice(None), 100 * numbers.host[0]), depends_on=[inner]
        )
        runtime_queue.graph(steps, depends_on=[task])
    assert [node.type for node in graph.nodes] == ["memcpy", "subgraph", "host_task", "subgraph"]
    executable = graph.finalize()
    assert len(executable) == 6 and len(executable.partitions.partitions) == 4
    for _ in range(2):
        runtime_queue.graph(executable)
    runtime_queue.wait()
    assert (numbers.value(), memory.array[5], copied[5]) == (4, 300, 100)
    steps.replay(numbers.queue).wait()  # it can still be submitted by itself
    assert numbers.value() == 5


def test_in_another_captured_graph(numbers: Numbers, steps: Executable) -> None:
    """Commands of both captures are one command-buffer."""
    with capture(numbers.queue) as outer:
        numbers.mul(10)
        numbers.add(5)
    inner = outer.add(lambda handler: handler.graph_execution(steps), depends_on=outer[0])
    outer.make_edge(inner, outer[1])
    loop = outer.finalize()
    assert [node.type for node in outer] == ["kernel", "kernel", "subgraph"]
    assert (
        len(loop) == 4
        and len(loop.partitions.partitions) == 1
        and "4 commands" in loop.explain(numbers.queue)
    )
    del outer, inner
    gc.collect()
    loop.replay(numbers.queue, times=2).wait()
    assert (numbers.host[0], numbers.value()) == (61, 66)


def test_sub_graphs_with_host_tasks_and_of_sub_graphs(numbers: Numbers, steps: Executable) -> None:
    seen: list[int] = []
    with capture(numbers.queue) as middle:
        numbers.mul(2)
    first = middle.add(lambda handler: handler.graph_execution(steps), depends_on=middle[0])
    middle.add(
        lambda handler: handler.host_task(lambda: seen.append(int(numbers.host[0]))),
        depends_on=first,
    )
    with capture(numbers.queue) as outer:
        numbers.add(3)
    inner = outer.add(
        lambda handler: handler.graph_execution(middle.finalize()), depends_on=outer[0]
    )
    outer.add(lambda handler: handler.graph_execution(middle.finalize()), depends_on=inner)
    outer.finalize().replay(numbers.queue, times=2).wait()
    assert seen == [7, 15, 37, 75] and numbers.value() == 75


def test_runtime_kernels_in_both(numbers: Numbers, runtime_queue: Queue) -> None:
    """A captured graph with a command-buffer of the adapter's in it, inside of a runtime graph."""
    memory = shared_numbers(runtime_queue.device, runtime_queue)
    memory.array[:] = 1
    twice = Program(
        runtime_queue.context, "kernel void twice(global int *m) { m[get_global_id(0)] *= 2; }"
    ).twice
    with capture(numbers.queue) as captured:
        numbers.add(1)
    captured.add(lambda handler: handler.parallel_for(64, twice, memory), depends_on=captured[0])
    inner = captured.finalize()
    graph = CommandGraph(runtime_queue)
    before = graph.add(lambda handler: handler.parallel_for(64, twice, memory))
    node = graph.add(lambda handler: handler.graph_execution(inner), depends_on=before)
    graph.add(lambda handler: handler.parallel_for(64, twice, memory), depends_on=node)
    executable = graph.finalize()
    for _ in range(3):
        runtime_queue.graph(executable)
    runtime_queue.wait()
    assert memory.array[0] == 512 and numbers.value() == 3


def test_contexts_go_both_ways(device: cl.Device) -> None:
    """PyOpenCL objects of a runtime queue have its context, and a capture of them fits its
    graphs."""
    runtime_queue = Queue(device_of(device))
    queue = to_pyopencl(runtime_queue)
    assert (
        queue_of(queue).context is runtime_queue.context
        and context_of(queue.context) is runtime_queue.context
    )
    numbers = Numbers(cl.CommandQueue(queue.context))
    with capture(numbers.queue) as graph:
        numbers.add(2)
    assert graph.context is runtime_queue.context
    runtime_queue.graph(graph.finalize()).wait()
    assert numbers.value() == 2


def test_other_contexts_are_refused(numbers: Numbers, steps: Executable, device: cl.Device) -> None:
    elsewhere = Queue(context_of(cl.Context([device])), device_of(device))
    with pytest.raises(SYCLError, match="another context"):
        elsewhere.graph(steps)
    graph = CommandGraph(elsewhere)
    with pytest.raises(SYCLError, match="another context"):
        graph.add(lambda handler: handler.graph_execution(steps))


def test_memory_of_the_host_lives_until_a_submission_has_ended(
    numbers: Numbers, runtime_queue: Queue
) -> None:
    gate = cl.UserEvent(numbers.queue.context)
    target = np.zeros(64, np.int32)
    with capture(numbers.queue) as graph:
        cl.enqueue_copy(numbers.queue, numbers.buffer, np.full(64, 6, np.int32), is_blocking=False)
        cl.enqueue_copy(numbers.queue, target, numbers.buffer, is_blocking=False)
    event = runtime_queue.graph(graph.finalize(), depends_on=[gate])
    del graph
    gc.collect()
    rubbish = [np.full(64, -1, np.int32) for _ in range(500)]
    gate.set_status(cl.command_execution_status.COMPLETE)
    event.wait()
    assert (target == 6).all() and rubbish
