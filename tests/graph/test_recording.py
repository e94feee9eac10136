"""Recording of queues: begin, end, what is refused meanwhile, and what order is recorded (spec rows
A16, A17, A19, A20, A37, A38)."""

from __future__ import annotations

import gc
from collections.abc import Sequence

import numpy
import pyopencl as cl
import pytest
from helpers.graphs import edges, refused
from helpers.support import RunPython
from helpers.sycl import N, zeros

from fairlead.graph import CommandGraph, DynamicParameter, Node
from fairlead.runtime import USM, Context, Device, Event, Program, Queue

#: Recording asks no driver.
pytestmark = pytest.mark.one_driver


@pytest.fixture
def second(queue: Queue) -> Queue:
    return Queue(queue.device)


ALREADY = "begin_recording cannot be called for a queue which is already in the recording state."


def test_a_block_records_and_nothing_runs(
    queue: Queue, graph: CommandGraph, program: Program, memory: USM
) -> None:
    assert queue.state == "executing"
    with graph.recording(queue) as recorded:
        assert (
            recorded is graph
            and queue.state == "recording"
            and queue.get_graph() is graph
            and graph.is_recording
        )
        first = queue.parallel_for(N, program.add, memory, numpy.int32(1))
        queue.parallel_for(N, program.mul, memory, numpy.int32(3), depends_on=[first])
    assert queue.state == "executing" and not graph.is_recording
    queue.wait()
    assert (memory.array == 0).all() and edges(graph) == {(0, 1)}
    assert [node.queue for node in graph.nodes] == [queue, queue]
    executable = graph.finalize()
    for _ in range(3):
        queue.graph(executable)
    queue.wait()
    assert (memory.array == 39).all()


def test_a_block_within_a_block_ends_what_it_began(
    queue: Queue, second: Queue, graph: CommandGraph, memory: USM
) -> None:
    third = Queue(queue.device)
    with graph.recording(queue):
        event = queue.memset(memory, 0)
        with graph.recording(second):
            third.memset(memory, 0, depends_on=[event])
            assert second.state == third.state == "recording"
        assert queue.state == "recording" and second.state == third.state == "executing"
    assert not graph.is_recording


def test_what_is_no_queue_is_refused(queue: Queue, graph: CommandGraph) -> None:
    theirs = cl.CommandQueue(cl.Context.from_int_ptr(queue.context.native(), True))
    for call in (graph.begin_recording, graph.end_recording):
        with refused("CommandQueue is not a queue that records"):
            call([queue, theirs])  # pyright: ignore[reportArgumentType]
    assert queue.state == "executing"


def test_a_block_that_fails_ends_the_recording(queue: Queue, graph: CommandGraph) -> None:
    with pytest.raises(ZeroDivisionError), graph.recording(queue):
        raise ZeroDivisionError
    assert queue.state == "executing"


def test_shortcuts_are_recorded(
    queue: Queue, graph: CommandGraph, program: Program, memory: USM
) -> None:
    other, empty = zeros(queue), CommandGraph(queue).finalize()
    with graph.recording(queue):
        queue.parallel_for(N, program.store, memory, numpy.int32(7))
        queue.barrier()
        queue.memcpy(other, memory)
        queue.barrier()
        queue.memset(memory, 0)
        queue.fill(memory, numpy.int32(1))
        queue.copy(memory, other)
        queue.prefetch(memory)
        queue.mem_advise(memory)
        queue.host_task(lambda: None)
        queue.graph(empty)
    assert [node.type for node in graph.nodes] == [
        "kernel",
        "ext_oneapi_barrier",
        "memcpy",
        "ext_oneapi_barrier",
        "memset",
        "memfill",
        "memcpy",
        "prefetch",
        "memadvise",
        "host_task",
        "subgraph",
    ]


def test_a_function_s_other_code_runs_once(queue: Queue, graph: CommandGraph, memory: USM) -> None:
    calls: list[int] = []

    def group(handler) -> None:
        calls.append(1)
        handler.memset(memory, 1)

    with graph.recording(queue):
        queue.submit(group)
    executable = graph.finalize()
    queue.graph(executable)
    queue.graph(executable).wait()
    assert calls == [1]


# begin


def test_a_queue_records_once(queue: Queue, graph: CommandGraph) -> None:
    graph.begin_recording(queue)
    with refused(ALREADY):
        graph.begin_recording(queue)
    with refused(ALREADY):
        CommandGraph(queue).begin_recording(queue)
    assert queue.get_graph() is graph
    assert graph.end_recording(queue)
    assert graph.begin_recording(queue)
    graph.end_recording()


def test_several_queues_begin_together_or_not_at_all(
    queue: Queue, second: Queue, graph: CommandGraph
) -> None:
    other = CommandGraph(queue)
    third = Queue(queue.device)
    other.begin_recording(third)
    with refused(ALREADY):
        graph.begin_recording([queue, second, third])
    assert [one.state for one in (queue, second, third)] == ["executing", "executing", "recording"]
    assert not graph.is_recording and third.get_graph() is other
    other.end_recording()
    graph.begin_recording([queue, second, third])
    assert {one.get_graph() for one in (queue, second, third)} == {graph}
    graph.end_recording([queue, second])
    assert [one.state for one in (queue, second, third)] == ["executing", "executing", "recording"]
    graph.end_recording()
    assert third.state == "executing"


def test_a_queue_of_another_context_is_refused(queue: Queue, graph: CommandGraph) -> None:
    other = Queue(Context(queue.device))
    with refused(
        "begin_recording called for a queue whose context differs from the graph context."
    ):
        graph.begin_recording([queue, other])
    assert queue.state == other.state == "executing"


def test_a_queue_of_another_device_is_refused(parts: Sequence[Device]) -> None:
    context = Context(parts)
    graph = CommandGraph(context, parts[0])
    with refused("begin_recording called for a queue whose device differs from the graph device."):
        graph.begin_recording(Queue(context, parts[1]))


# end


def test_end_of_a_queue_that_does_not_record_is_nothing(queue: Queue, graph: CommandGraph) -> None:
    assert (
        graph.end_recording(queue) and graph.end_recording() and graph.end_recording([queue, queue])
    )


def test_end_of_a_queue_that_records_to_another_graph_is_refused(
    queue: Queue, second: Queue, graph: CommandGraph
) -> None:
    other = CommandGraph(queue)
    other.begin_recording(queue)
    graph.begin_recording(second)
    with refused("end_recording called for a queue which is recording to a different graph."):
        graph.end_recording([second, queue])
    assert queue.get_graph() is other and second.get_graph() is graph
    graph.end_recording()
    assert queue.get_graph() is other
    other.end_recording()


# state


def test_only_a_recording_queue_has_a_graph(queue: Queue) -> None:
    with refused("ext_oneapi_get_graph() can only be called on recording queues"):
        queue.get_graph()


def test_waiting_for_a_recording_queue_is_refused(queue: Queue, graph: CommandGraph) -> None:
    with (
        graph.recording(queue),
        refused("wait cannot be called for a queue which is recording to a command graph"),
    ):
        queue.wait()


@pytest.mark.parametrize("recording", [True, False])
def test_events_of_a_recording_cannot_be_asked(
    queue: Queue, graph: CommandGraph, memory: USM, recording: bool
) -> None:
    graph.begin_recording(queue)
    event = queue.memset(memory, 0)
    if not recording:
        graph.end_recording()
    with refused("wait method cannot be used for an event associated with a command graph"):
        event.wait()
    with refused("wait method cannot be used for an event associated with a command graph"):
        Event.wait_all([event])
    with refused("the status of an event associated with a command graph cannot be asked"):
        assert event.status
    with refused("whether an event associated with a command graph is complete cannot be asked"):
        assert event.done
    message = (
        "Profiling information is unavailable for events returned from a submission to "
        "a queue in the recording state"
    )
    for what in ("submit", "start", "end"):
        with refused(message):
            event.profiling(what)
    with refused("never completes"):
        event.add_callback(lambda event: None)
    graph.end_recording()


@pytest.mark.parametrize("operation", ["memset", "barrier", "host_task"])
def test_events_of_a_recording_cannot_be_used_outside(
    queue: Queue, second: Queue, graph: CommandGraph, memory: USM, operation
) -> None:
    with graph.recording(queue):
        event = queue.memset(memory, 0)
    submit = {
        "memset": lambda: second.memset(memory, 1, depends_on=[event]),
        "barrier": lambda: second.barrier([event]),
        "host_task": lambda: second.host_task(lambda: None, depends_on=[event]),
    }[operation]
    with refused("an event of a graph cannot be depended on outside of the graph"):
        submit()
    second.wait()
    assert (memory.array == 0).all() and second.state == "executing"


def test_events_from_outside_are_refused(queue: Queue, graph: CommandGraph, memory: USM) -> None:
    outside = queue.memset(memory, 0)
    other = CommandGraph(queue)
    with other.recording(queue):
        foreign = queue.memset(memory, 0)
    with graph.recording(queue):
        for event in (outside, foreign):
            with refused("Graph nodes cannot depend on events from outside the graph."):
                queue.memset(memory, 0, depends_on=[event])
            with refused("Graph nodes cannot depend on events from outside the graph."):
                queue.barrier([event])
    assert graph.empty() and len(other) == 1


def test_dynamic_parameters_are_not_recorded(
    queue: Queue, graph: CommandGraph, program: Program, memory: USM
) -> None:
    value = DynamicParameter(graph, numpy.int32(1))
    with (
        graph.recording(queue),
        refused("cannot be registered with nodes that are recorded from a queue"),
    ):
        queue.parallel_for(N, program.add, memory, value)
    assert graph.empty()


# in-order queues


def test_an_in_order_queue_records_a_path(in_order: Queue, program: Program, memory: USM) -> None:
    graph = CommandGraph(in_order)
    other = zeros(in_order)
    with graph.recording(in_order):
        in_order.parallel_for(N, program.add, memory, numpy.int32(1))
        in_order.host_task(lambda: None)
        in_order.parallel_for(N, program.mul, memory, numpy.int32(4))
        in_order.barrier()
        in_order.memcpy(other, memory)
    assert edges(graph) == {(0, 1), (1, 2), (2, 3), (3, 4)} and len(graph.roots) == 1
    in_order.graph(graph.finalize()).wait()
    assert (other.array == 4).all()


def test_each_graph_has_a_path_of_its_own(in_order: Queue, memory: USM) -> None:
    graph, other = CommandGraph(in_order), CommandGraph(in_order)
    for one in (graph, other, graph):
        with one.recording(in_order):
            in_order.memset(memory, 0)
    assert edges(graph) == {(0, 1)} and len(other) == 1


def test_what_an_in_order_queue_executes_comes_after_what_it_executed(
    in_order: Queue, program: Program, memory: USM
) -> None:
    graph = CommandGraph(in_order)
    in_order.parallel_for(N, program.store, memory, numpy.int32(2))
    with graph.recording(in_order):
        in_order.parallel_for(N, program.mul, memory, numpy.int32(5))
    in_order.graph(graph.finalize())
    in_order.parallel_for(N, program.add, memory, numpy.int32(1)).wait()
    assert (memory.array == 11).all()


# ownership


def test_a_graph_that_goes_ends_its_recordings(
    queue: Queue, second: Queue, program: Program, memory: USM
) -> None:
    graph = CommandGraph(queue)
    graph.begin_recording([queue, second])
    event = queue.memset(memory, 1)
    node = Node.of_event(event)
    del graph
    assert queue.state == second.state == "executing" and node.graph is None
    queue.parallel_for(N, program.add, memory, numpy.int32(1)).wait()
    assert (memory.array == 1).all()
    with refused("an event of a graph cannot be depended on outside of the graph"):
        second.memset(memory, 0, depends_on=[event])


def test_an_executable_does_not_keep_the_graph_recording(queue: Queue) -> None:
    graph = CommandGraph(queue)
    executable = graph.finalize()
    graph.begin_recording(queue)
    del graph
    assert queue.state == "executing"
    queue.graph(executable).wait()


def test_a_queue_that_goes_is_no_longer_recorded(
    queue: Queue, graph: CommandGraph, memory: USM
) -> None:
    passing = Queue(queue.device)
    graph.begin_recording(passing)
    passing.memset(memory, 1)
    del passing
    gc.collect()
    assert not graph.is_recording and graph.nodes[0].queue is None
    graph.add(depends_on=graph.nodes)
    queue.graph(graph.finalize()).wait()
    assert (memory.array == 0x01010101).all()


FORKED = """
import os
from fairlead.graph import CommandGraph
from fairlead.runtime import Queue, SYCLError
queue = Queue()
graph = CommandGraph(queue)
graph.begin_recording(queue)
if os.fork() == 0:
    del graph
    try:
        queue.host_task(lambda: None)
    except SYCLError as error:
        print("forked" in str(error), flush=True)
    os._exit(0)
os.wait()
graph.end_recording()
print(queue.state)
"""


def test_a_forked_child_lets_a_graph_go_that_records(run_python: RunPython) -> None:
    done = run_python(FORKED)
    assert done.out == "True\nexecuting\n" and "Exception ignored" not in done.err
