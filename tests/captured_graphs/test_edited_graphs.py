"""Captured graphs that were changed replay as others do.

They get host tasks, empty nodes, commands of the runtime, and edges.

Captured graphs are drawn like all command graphs: modifiable and executable, as they were
recorded and changed.
"""

from __future__ import annotations

import gc
import re
import threading
import time
from pathlib import Path

import numpy as np
import pyopencl as cl
import pyopencl.array
import pytest
from helpers.captures import Numbers, seen_between, shared_numbers

from fairlead.captured_graphs.context import capture
from fairlead.graph import CommandGraph, Node
from fairlead.runtime import Program, SYCLError


def test_a_captured_graph_is_a_command_graph(numbers: Numbers) -> None:
    graph, _ = seen_between(numbers)
    assert isinstance(graph.command_graph, CommandGraph) and all(
        isinstance(node, Node) for node in graph
    )
    assert [node.type for node in graph] == ["kernel", "memcpy", "kernel", "host_task"]
    assert set(graph.edges) == {(0, 1), (1, 2), (1, 3), (3, 2)}
    assert graph.roots == [graph[0]] and graph.leaves == [graph[2]] and len(graph) == 4
    assert graph[0] is graph.nodes[0] and graph[0].graph is graph.command_graph
    assert graph.device.native() == numbers.queue.device.int_ptr and graph[0].device is graph.device


def test_a_graph_may_end_while_python_takes_its_module_down(
    numbers: Numbers, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Names of a module are None then."""
    with capture(numbers.queue) as graph:
        numbers.add(1)
    assert list(graph) and graph._command_graph is None
    monkeypatch.setattr("fairlead.captured_graphs.graph.cut_edges", None)
    graph.__del__()


def test_a_host_task_in_the_middle(numbers: Numbers) -> None:
    graph, seen = seen_between(numbers)
    loop = graph.finalize()
    assert len(loop.partitions.partitions) == 3 and "host task" in loop.explain()
    loop.replay(numbers.queue).wait()
    assert (numbers.value(), seen) == (3, [1])
    loop.replay(numbers.queue, times=3)
    assert (numbers.value(), seen) == (120, [1, 4, 13, 40])


@pytest.mark.parametrize("kind", ["queue", "out_of_order"])
def test_the_queue_goes_on_after_the_replay(
    request: pytest.FixtureRequest, numbers: Numbers, kind: str
) -> None:
    """A replay comes after what was enqueued before it, and before what is enqueued later. On an
    out-of-order queue barriers say so.

    Python takes part in this replay.
    """
    queue = request.getfixturevalue(kind)
    graph, seen = seen_between(numbers)
    goes_on = threading.Event()
    graph.make_edge(graph.add(lambda handler: handler.host_task(goes_on.wait)), graph[2])
    loop = graph.finalize()
    numbers.add(10, queue=queue)
    cl.enqueue_barrier(queue)
    end = loop.replay(queue)
    cl.enqueue_barrier(queue)
    last = numbers.add(5, queue=queue)
    assert end.command_execution_status != cl.command_execution_status.COMPLETE
    goes_on.set()
    last.wait()
    assert (numbers.value(), seen) == (38, [11])


def test_replays_wait_for_their_wait_list(numbers: Numbers) -> None:
    graph, seen = seen_between(numbers)
    gate = cl.UserEvent(numbers.queue.context)
    other = cl.CommandQueue(numbers.queue.context)
    end = graph.finalize().replay(other, wait_for=[gate])
    assert numbers.value() == 0
    gate.set_status(cl.command_execution_status.COMPLETE)
    end.wait()
    assert (numbers.value(), seen) == (3, [1])


def test_what_a_host_task_raises_is_raised_by_the_event_and_the_queue_goes_on(
    numbers: Numbers,
) -> None:
    graph, _ = seen_between(numbers)
    fails = [True]

    def fail() -> None:
        if fails[0]:
            raise ZeroDivisionError("in a host task")

    graph.make_edge(
        graph.add(lambda handler: handler.host_task(fail), depends_on=graph[0]), graph[2]
    )
    loop = graph.finalize()
    for _ in range(2):
        with pytest.raises(ZeroDivisionError, match="in a host task"):
            loop.replay(numbers.queue).wait()
        numbers.queue.finish()
    assert numbers.value() == 2  # nothing that comes after the host task has run
    fails[0] = False
    loop.replay(numbers.queue).wait()
    assert numbers.value() == 9


def test_many_replays_that_nobody_waits_for(numbers: Numbers) -> None:
    """More of them than the scheduler has threads."""
    graph, seen = seen_between(numbers)
    graph[2].set_arg(1, np.int32(1))
    loop = graph.finalize()
    ends = [loop.replay(numbers.queue) for _ in range(150)]
    ends[-1].wait()
    assert seen == list(range(1, 151)) and numbers.value() == 150


def test_an_error_that_nobody_waits_for_is_a_warning(numbers: Numbers) -> None:
    graph, _ = seen_between(numbers)
    graph.add(lambda handler: handler.host_task(lambda: [][0]))
    loop = graph.finalize()
    end, ended = loop.replay(numbers.queue), threading.Event()
    end.released.set_callback(cl.command_execution_status.COMPLETE, lambda status: ended.set())
    assert ended.wait(60)
    with pytest.warns(RuntimeWarning, match=r"nobody waited for its event: IndexError"):
        del end


def test_pyopencl_array_code_with_a_host_task(queue: cl.CommandQueue) -> None:
    x = pyopencl.array.to_device(queue, np.arange(256, dtype=np.float32))
    host = np.empty(256, np.float32)
    with capture(queue) as graph:
        y = 2 * x + 1
        y.get_async(queue, host)
        z = y * y
    steps = len(graph)
    read = next(node for node in graph if node.op == "read")
    sums: list[float] = []
    graph.add(
        lambda handler: handler.host_task(lambda: sums.append(float(host.sum()))), depends_on=read
    )
    loop = graph.finalize()
    del x
    gc.collect()
    for _ in range(2):
        z.fill(0)
        loop.replay(queue).wait()
        assert (z.get() == (2 * np.arange(256, dtype=np.float32) + 1) ** 2).all()
    assert len(loop) == steps + 1 and sums == [256.0 * 256] * 2


def test_empty_nodes_leave_it_one_command_buffer(numbers: Numbers) -> None:
    with capture(numbers.queue) as graph:
        numbers.add(1)
        numbers.mul(3)
    graph.make_edge(graph.add(depends_on=graph[0]), graph[1])
    loop = graph.finalize()
    assert len(loop) == 3 and len(loop.partitions.partitions) == 1
    assert "2 commands\n" in loop.explain(numbers.queue)
    loop.replay(numbers.queue, times=2).wait()
    assert numbers.value() == 12


def test_looking_changes_nothing(numbers: Numbers) -> None:
    with capture(numbers.queue) as graph:
        numbers.add(1)
        numbers.mul(3)
    assert (
        graph.is_as_recorded
        and [node.label for node in graph] == ["add(64)", "mul(64)"]
        and graph.is_as_recorded
    )
    before = graph.finalize()
    graph.add()
    assert not graph.is_as_recorded and (len(before), len(graph.finalize())) == (2, 3)
    assert before.to_dot().count("->") == 1 and len(before) == 2  # which looks at it


def test_edges_turn_the_order_of_an_out_of_order_queue(
    numbers: Numbers, out_of_order: cl.CommandQueue
) -> None:
    numbers.queue.finish()
    with capture(out_of_order) as graph:
        numbers.add(1, queue=out_of_order)
        numbers.mul(3, queue=out_of_order)
    assert list(graph.edges) == []
    graph.make_edge(graph[1], graph[0])  # back to an earlier one
    with pytest.raises(SYCLError, match="Command graphs cannot contain cycles"):
        graph.make_edge(graph[0], graph[1])
    loop = graph.finalize()
    for queue in (out_of_order, numbers.queue):
        loop.replay(queue, times=2).wait()
    assert numbers.value() == 40


def test_kernels_of_the_runtimes_are_added(numbers: Numbers) -> None:
    """Two engines in one graph: captured commands and the adapter's command-buffer wait for each
    other."""
    graph, seen = seen_between(numbers)
    code = Program(graph.context, "kernel void twice(global int *m) { m[get_global_id(0)] *= 2; }")
    memory = shared_numbers(graph.device, (graph.context, graph.device))
    memory.array[:] = 1
    first = graph.add(
        lambda handler: handler.parallel_for(64, code.twice, memory), depends_on=graph[2]
    )
    copied = np.zeros(64, np.int32)
    graph.add(lambda handler: handler.memcpy(copied, memory), depends_on=first)
    loop = graph.finalize()
    loop.replay(numbers.queue, times=2).wait()
    assert (numbers.value(), seen) == (12, [1, 4])
    assert (copied == 4).all()


def test_mixed_graphs_without_host_tasks_end_with_an_event_of_the_drivers(numbers: Numbers) -> None:
    with capture(numbers.queue) as graph:
        numbers.add(1)
    memory = shared_numbers(graph.device, (graph.context, graph.device))
    graph.add(lambda handler: handler.memset(memory, 1), depends_on=graph[0])
    graph.add(lambda handler: handler.memset(memory + 32, 2), depends_on=graph[0])
    end = graph.finalize().replay(numbers.queue)
    assert type(end) is cl.Event
    end.wait()
    assert memory.array[0] == 0x01010101 and numbers.value() == 1


def test_several_devices(device: cl.Device) -> None:
    """Each command runs on its queue's device, even if a host task divides the graph.

    The two queues' devices are the same here.
    """
    context = cl.Context([device])
    queues = [cl.CommandQueue(context) for _ in range(2)]
    numbers = Numbers(queues[0])
    with capture(*queues) as graph:
        first = numbers.add(1)
        numbers.mul(5, queue=queues[1], wait_for=[first])
    seen: list[int] = []
    task = graph.add(lambda handler: handler.host_task(lambda: seen.append(1)), depends_on=graph[0])
    graph.make_edge(task, graph[1])
    graph.finalize().replay(queues[1], times=2).wait()
    assert (numbers.value(), seen) == (30, [1, 1])


def test_a_graph_is_not_changed_inside_its_block(numbers: Numbers) -> None:
    with capture(numbers.queue) as graph:
        numbers.add(1)
        assert len(graph) == 0 and graph.is_recording
        with pytest.raises(SYCLError, match="cannot be called when a queue is currently recording"):
            graph.add()
    graph.add()
    assert len(graph) == 2


def test_a_graph_that_was_looked_at_gives_everything_back(numbers: Numbers) -> None:
    numbers.queue.finish()
    before = numbers.buffer.reference_count
    with capture(numbers.queue) as graph:
        numbers.add(1)
        numbers.mul(2)
    task = graph.add(lambda handler: handler.host_task(lambda: None), depends_on=graph[0])
    graph.make_edge(task, graph[1])
    loop = graph.finalize()
    loop.replay(numbers.queue).wait()
    numbers.queue.finish()
    gc.disable()  # reference counts alone do it
    try:
        del graph, loop, task
        deadline = (
            time.monotonic() + 60
        )  # a thread may be on its way out of the host task, and have the graph until then
        while numbers.buffer.reference_count != before and time.monotonic() < deadline:
            numbers.queue.finish()
        assert numbers.buffer.reference_count == before
    finally:
        gc.enable()


def test_pictures_of_a_changed_graph(numbers: Numbers, tmp_path: Path) -> None:
    with capture(numbers.queue) as graph:
        numbers.add(1)
        numbers.read()
    task = graph.add(lambda handler: handler.host_task(lambda: None), depends_on=graph[1])
    dot = graph.to_dot()
    assert re.findall(r"TYPE = (\w+)", dot) == ["kernel", "memcpy", "host_task"]
    assert re.findall(r'"(\d+)" -> "(\d+)"', dot) == [
        (str(graph[0].id), str(graph[1].id)),
        (str(graph[1].id), str(task.id)),
    ]
    graph.print_graph(tmp_path / "graph.dot", verbose=True)
    text = (tmp_path / "graph.dot").read_text(encoding="utf-8")
    memory = f"source: {numbers.buffer.int_ptr:#x}", f"host: {numbers.host.ctypes.data:#x}"
    for shown in ("add(64)", "read(256 bytes)", *memory, "captures.py:"):
        assert shown in text, text
    with pytest.raises(SYCLError, match="DOT graph is the only format"):
        graph.print_graph(tmp_path / "graph.png")


def test_what_repeats_is_one_box(numbers: Numbers) -> None:
    with capture(numbers.queue) as graph:
        for _ in range(20):
            numbers.add(1)
            numbers.mul(3)
    assert "0–39: add(64) → mul(64), 20 ×</title>" in graph.finalize()._repr_html_()


def test_pictures_of_an_executable(numbers: Numbers) -> None:
    with capture(numbers.queue) as graph:
        numbers.add(1)
        numbers.mul(3)
    loop = graph.finalize()
    assert re.findall(r'"(\d+)" -> "(\d+)"', loop.to_dot()) == [
        ("0", "1")
    ] and "mul(64)" in loop.to_dot(verbose=True)
    assert loop.explain() == "2 nodes in 1 partitions, by policy seed\n  0: 2 nodes, in order"
    for drawn in (graph, loop):
        assert "0: add(64)</title>" in drawn._repr_html_()
        assert "1: mul(64)\nafter 0</title>" in drawn._repr_svg_()
    graph[0].update_range(16)
    assert "add(16)" in graph.to_dot(verbose=True) and "add(64)" in loop.to_dot(verbose=True)
