"""Construction of command graphs, their properties, and what devices can do (spec rows A1 to A10,
A34)."""

from __future__ import annotations

import copy
import json
from typing import Any

import numpy
import pyopencl as cl
import pytest
from helpers.graphs import edges, refused
from helpers.support import RunPython
from helpers.sycl import N

from fairlead.graph import CommandGraph
from fairlead.runtime import USM, Buffer, Context, Device, Errc, Program, Queue

#: Properties are checked before a driver is asked.
pytestmark = pytest.mark.one_driver

# aspects


def test_a_device_has_both_aspects(device: Device) -> None:
    assert device.has("ext_oneapi_graph") and device.has("ext_oneapi_limited_graph")


def test_a_device_without_the_aspect_has_no_graphs(
    device: Device, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(
        device.__dict__,
        "aspects",
        device.aspects - {"ext_oneapi_graph", "ext_oneapi_limited_graph"},
    )
    with refused("opencl backend is not supported by SYCL Graph extension."):
        CommandGraph(device)


def test_with_the_limited_aspect_everything_works_but_updates(
    queue: Queue, program: Program, memory: USM, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(
        queue.device.__dict__, "aspects", queue.device.aspects - {"ext_oneapi_graph"}
    )
    graph = CommandGraph(queue)
    graph.add(lambda h: h.parallel_for(N, program.add, memory, numpy.int32(1)))
    queue.graph(graph.finalize()).wait()
    assert (memory.array == 1).all()
    with refused("ext_oneapi_limited_graph", Errc.feature_not_supported):
        graph.finalize(updatable=True)


ASPECTS = """
import json, fairlead
from fairlead.graph import CommandGraph
from fairlead.runtime import SYCLError, devices

answers = {}
for device in devices(fairlead.adapters()):
    graphs = sorted(aspect for aspect in device.aspects if "graph" in aspect)
    said = []
    for make in (
        lambda: CommandGraph(device),
        lambda: CommandGraph(device).finalize(updatable=True),
    ):
        try:
            make()
        except SYCLError as error:
            said.append([error.errc.name, error.message])
    answers[device.platform.version] = graphs, said
print(json.dumps(answers))
"""


def test_what_intels_adapter_can_do_follows_from_cl_khr_command_buffer(
    other_adapter: dict[str, str], run_python: RunPython
) -> None:
    answers = json.loads(run_python(ASPECTS, env=other_adapter).out)
    with_them = [answer for answer in answers.values() if answer[0]]
    without = [answer for answer in answers.values() if not answer[0]]
    assert with_them and without  # Intel's driver, and the PoCL wheel's PoCL 3.0
    for graphs, said in with_them:
        assert graphs == [
            "ext_oneapi_limited_graph"
        ]  # neither driver has all of cl_khr_command_buffer_mutable_dispatch
        ((errc, message),) = said
        assert errc == "feature_not_supported" and "ext_oneapi_limited_graph" in message
    for _, said in without:
        assert said == [["invalid", "opencl backend is not supported by SYCL Graph extension."]] * 2


# constructors


def test_a_graph_can_be_made_of_a_queue_a_device_or_a_context(
    queue: Queue, other_device: Device
) -> None:
    in_order = Queue(queue.context, queue.device, in_order=True, profiling=True)
    for of in (
        CommandGraph(queue),
        CommandGraph(in_order),
        CommandGraph(queue.device),
        CommandGraph(queue.context, queue.device),
    ):
        assert (
            of.context == queue.context
            and of.device is queue.device
            and of.devices == (queue.device,)
        )
    alone = Context(other_device)
    assert CommandGraph(alone).device is other_device


def test_a_graph_can_be_made_of_a_pyopencl_queue(queue: Queue) -> None:
    context = cl.Context.from_int_ptr(queue.context.native(), True)
    graph = CommandGraph(cl.CommandQueue(context))
    assert graph.device is queue.device


def test_a_device_that_is_not_the_context_s_is_refused(queue: Queue, other_device: Device) -> None:
    with refused("is not a device of the context"):
        CommandGraph(queue.context, other_device)


def test_what_no_graph_can_be_made_of_is_refused() -> None:
    with refused("int is not a Queue"):
        CommandGraph(42)


def test_a_variable_names_a_graph(queue: Queue) -> None:
    graph, other = CommandGraph(queue), CommandGraph(queue)
    again = copy.copy(graph)
    assert again is graph and again == graph and hash(again) == hash(graph)
    assert other != graph and len({graph, again, other}) == 2
    again.add()
    assert len(graph) == 1 and len(other) == 0
    executable = graph.finalize()
    assert copy.copy(executable) is executable and executable != graph.finalize()


def test_ids_are_unique_grow_and_stay(queue: Queue) -> None:
    first, second = CommandGraph(queue), CommandGraph(queue)
    assert second.id > first.id
    before = first.id
    with first.recording(queue):
        queue.barrier()
    assert first.id == before


# states


def test_an_empty_graph_runs(queue: Queue) -> None:
    graph = CommandGraph(queue)
    assert graph.empty() and graph.nodes == [] and graph.roots == [] and bool(graph)
    executable = graph.finalize()
    assert len(executable.partitions.partitions) == 1
    event = queue.graph(executable)
    event.wait()
    assert event.status == "complete"


def test_a_graph_grows_after_finalize_and_its_executables_do_not(
    queue: Queue, program: Program, memory: USM
) -> None:
    graph = CommandGraph(queue)
    first = graph.add(lambda h: h.parallel_for(N, program.add, memory, numpy.int32(1)))
    small = graph.finalize()
    graph.add(lambda h: h.parallel_for(N, program.mul, memory, numpy.int32(10)), depends_on=first)
    large, again = graph.finalize(), graph.finalize()
    assert not hasattr(small, "add") and not hasattr(small, "finalize")
    for executable, expected in ((small, 1), (large, 20), (again, 210), (small, 211)):
        queue.graph(executable).wait()
        assert (memory.array == expected).all()


def test_nodes_stay_in_the_order_of_their_making(queue: Queue) -> None:
    graph = CommandGraph(queue)
    first = graph.add()
    second = graph.add(depends_on=first)
    third = graph.add()
    with graph.recording(queue):
        queue.host_task(lambda: None)
    assert graph.nodes[:3] == [first, second, third] and len(graph) == 4
    assert graph.roots == [first, third, graph.nodes[3]] and not graph.empty()
    ids = [node.id for node in graph.nodes]
    assert ids == sorted(set(ids))


# properties


def test_a_cycle_is_refused_and_the_graph_is_as_it_was(queue: Queue) -> None:
    graph = CommandGraph(queue)
    a, b, c = graph.add(), graph.add(), graph.add()
    graph.make_edge(a, b)
    graph.make_edge(b, c)
    before, roots = edges(graph), graph.roots
    for back in ((b, a), (c, a), (c, b)):
        with refused("Command graphs cannot contain cycles."):
            graph.make_edge(*back)
    assert edges(graph) == before and graph.roots == roots
    queue.graph(graph.finalize()).wait()


def test_no_cycle_check_leaves_cycles_to_finalize(queue: Queue) -> None:
    graph = CommandGraph(queue, no_cycle_check=True)
    a, b = graph.add(), graph.add()
    graph.make_edge(a, b)
    graph.make_edge(b, a)
    assert edges(graph) == {(0, 1), (1, 0)}
    with refused("Command graphs cannot contain cycles: nodes 0 → 1 → 0"):
        graph.finalize()


def test_buffers_need_the_promise_that_they_outlive_the_graph(
    queue: Queue, program: Program
) -> None:
    message = (
        "Cannot use buffers in a graph without passing the "
        "assume_buffer_outlives_graph property on Graph construction."
    )
    graph, buffer = CommandGraph(queue), Buffer(N, numpy.int32)
    with refused(message):
        graph.add(lambda h: h.parallel_for(N, program.add, h.access(buffer), numpy.int32(1)))
    with graph.recording(queue), refused(message):
        queue.submit(lambda h: h.copy(h.access(buffer, "read"), numpy.zeros(N, numpy.int32)))
    assert graph.empty()


def test_buffers_that_are_written_back_are_refused(queue: Queue, program: Program) -> None:
    graph = CommandGraph(queue, assume_buffer_outlives_graph=True)
    array = numpy.zeros(N, numpy.int32)
    with Buffer(array) as buffer:

        def add(h):
            h.parallel_for(N, program.add, h.access(buffer), numpy.int32(3))

        message = (
            "Accessors to buffers which have write_back enabled are not allowed to be used "
            "in command graphs."
        )
        with refused(message):
            graph.add(add)
        with graph.recording(queue), refused(message):
            queue.submit(add)
        assert graph.empty()
        buffer.set_write_back(False)
        graph.add(add)
        buffer.set_write_back(True)
        with refused(message):
            graph.add(add)
        buffer.set_final_data(None)
        graph.add(add)
        queue.graph(graph.finalize())
        assert (buffer.numpy() == 6).all()
    assert (array == 0).all()


def test_the_host_keeps_off_a_buffer_while_a_graph_that_uses_it_is_recorded(
    queue: Queue, program: Program
) -> None:
    graph = CommandGraph(queue, assume_buffer_outlives_graph=True)
    buffer, unused = Buffer(N, numpy.int32), Buffer(N, numpy.int32)
    graph.begin_recording(queue)
    with unused.host_access("discard") as array:
        array[:] = 1
    queue.submit(
        lambda h: h.parallel_for(N, program.store, h.access(buffer, "write"), numpy.int32(1))
    )
    with (
        refused(
            "host_accessor cannot be used on a buffer that a graph uses which is being recorded"
        ),
        buffer.host_access(),
    ):
        pass
    graph.end_recording(queue)
    with buffer.host_access("discard") as array:
        array[:] = 7
    graph.begin_recording(queue)
    with refused("host_accessor"):
        buffer.numpy()
    del graph
    assert (buffer.numpy() == 7).all()


def test_assume_data_outlives_buffer_is_accepted(queue: Queue) -> None:
    graph = CommandGraph(queue, assume_data_outlives_buffer=True)
    assert graph.assume_data_outlives_buffer and graph.finalize() is not None


def test_native_recording_is_refused(queue: Queue) -> None:
    with refused("opencl backend does not record natively", Errc.feature_not_supported):
        CommandGraph(queue, enable_native_recording=True)


# profiling


def test_a_graph_s_times_need_the_graph_s_property(
    queue: Queue, program: Program, memory: USM
) -> None:
    graph = CommandGraph(queue)
    graph.add(lambda h: h.parallel_for(N, program.add, memory, numpy.int32(1)))
    event = queue.graph(graph.finalize())
    with refused("finalized without enable_profiling", Errc.profiling):
        event.profiling("start")


def test_a_graph_s_times_need_the_queue_s_property(
    queue: Queue, program: Program, memory: USM
) -> None:
    graph = CommandGraph(queue)
    graph.add(lambda h: h.parallel_for(N, program.add, memory, numpy.int32(1)))
    event = Queue(queue.device).graph(graph.finalize(enable_profiling=True))
    with refused("", Errc.profiling):
        event.profiling("end")


@pytest.mark.parametrize("parts", [1, 3])
def test_a_graph_s_times_are_its_first_start_and_its_last_end(
    queue: Queue, program: Program, memory: USM, parts: int
) -> None:
    graph = CommandGraph(queue)
    node = graph.add(lambda h: h.parallel_for(N, program.add, memory, numpy.int32(1)))
    if parts > 1:
        node = graph.add(lambda h: h.host_task(lambda: None), depends_on=node)
    graph.add(
        lambda h: h.parallel_for(1, program.slow, memory, numpy.int32(1_000_000)), depends_on=node
    )
    executable = graph.finalize(enable_profiling=True)
    assert len(executable.partitions.partitions) == parts
    event = queue.graph(executable)
    alone = queue.parallel_for(1, program.slow, memory, numpy.int32(1_000_000), depends_on=[event])
    submit, start, end = (event.profiling(what) for what in ("submit", "start", "end"))
    assert submit <= start < end <= alone.profiling("end")


def test_profiling_turns_the_in_order_hint_off(
    queue: Queue, program: Program, memory: USM, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The commands of a path are ordered by sync-points then."""
    from fairlead.graph import segments

    hints: list[tuple[bool, bool]] = []
    waits: list[Any] = []

    class Noted(segments.AdapterCommandBuffer):
        def __init__(self, *given: Any, **hint: bool) -> None:
            hints.append((hint["in_order"], hint["profiling"]))
            super().__init__(*given, **hint)

        def append_all(self, commands: Any, after: Any, nodes: Any) -> None:
            waits.append(after)
            super().append_all(commands, after, nodes)

    monkeypatch.setattr(segments, "AdapterCommandBuffer", Noted)
    graph = CommandGraph(queue)
    for _ in range(2):
        graph.add(
            lambda h: h.parallel_for(N, program.add, memory, numpy.int32(1)),
            depends_on_all_leaves=True,
        )
    graph.finalize()
    graph.finalize(enable_profiling=True)
    assert hints == [(True, False), (False, True)]
    assert waits == [None, [(), (0,)]]
