"""Graphs from several threads at once (spec row A36): every function may be called from any."""

from __future__ import annotations

import numpy
from helpers.graphs import edges
from helpers.sycl import N, zeros

from fairlead.conformance.threads import in_threads
from fairlead.graph import CommandGraph, DynamicCommandGroup, DynamicParameter
from fairlead.runtime import USM, Program, Queue, SYCLError

THREADS = 6
ROUNDS = 10


def test_one_thread_gets_a_queue(queue: Queue) -> None:
    graphs = [CommandGraph(queue) for _ in range(THREADS)]

    def begin(number: int) -> bool:
        try:
            return graphs[number].begin_recording(queue)
        except SYCLError:
            return False

    for _ in range(ROUNDS):
        won = in_threads(THREADS, begin)
        assert won.count(True) == 1 and queue.get_graph() is graphs[won.index(True)]
        graphs[won.index(True)].end_recording(queue)


def test_recordings_of_several_threads_in_one_graph(
    queue: Queue, graph: CommandGraph, program: Program
) -> None:
    memories = [zeros(queue) for _ in range(THREADS)]

    def record(number: int) -> None:
        own = Queue(queue.device, in_order=True)
        for _ in range(ROUNDS):
            graph.begin_recording(own)
            own.parallel_for(N, program.add, memories[number], numpy.int32(1))
            own.parallel_for(N, program.mul, memories[number], numpy.int32(2))
            graph.end_recording(own)

    in_threads(THREADS, record)
    assert len(graph) == 2 * ROUNDS * THREADS and not graph.is_recording
    assert len(edges(graph)) == (2 * ROUNDS - 1) * THREADS
    queue.graph(graph.finalize()).wait()
    expected = 0
    for _ in range(ROUNDS):
        expected = (expected + 1) * 2
    assert all((memory.array == numpy.int32(expected)).all() for memory in memories)


def test_one_queue_recorded_by_several_threads(
    queue: Queue, graph: CommandGraph, program: Program, memory: USM
) -> None:
    in_order = Queue(queue.device, in_order=True)
    with graph.recording(in_order):
        in_threads(
            THREADS,
            lambda number: [
                in_order.parallel_for(N, program.add, memory, numpy.int32(1)) for _ in range(ROUNDS)
            ],
        )
    count = THREADS * ROUNDS
    assert edges(graph) == {(node, node + 1) for node in range(count - 1)}
    queue.graph(graph.finalize()).wait()
    assert (memory.array == count).all()


def test_nodes_and_edges_of_several_threads(queue: Queue, graph: CommandGraph) -> None:
    root = graph.add()

    def add(number: int) -> None:
        last = root
        for _ in range(ROUNDS):
            node = graph.add(depends_on_all_leaves=number == 0)
            graph.make_edge(last, node)
            last = node

    in_threads(THREADS, add)
    ids = [node.id for node in graph.nodes]
    assert len(graph) == 1 + THREADS * ROUNDS and len(set(ids)) == len(ids)
    assert edges(graph) and graph.roots == [root]
    queue.graph(graph.finalize()).wait()


def test_finalize_submit_and_print_of_several_threads(
    queue: Queue, graph: CommandGraph, program: Program, memory: USM
) -> None:
    add = graph.add(lambda h: h.parallel_for(N, program.add, memory, numpy.int32(1)))
    graph.add(lambda h: h.host_task(lambda: None), depends_on=add)
    shared = graph.finalize()
    texts = set()

    def work(number: int) -> None:
        for _ in range(ROUNDS):
            queue.graph(shared).wait()
            texts.add(shared.to_dot(verbose=True))
            assert len(graph.finalize()) == 2 and len(graph.nodes) == 2

    in_threads(THREADS, work)
    assert (memory.array == THREADS * ROUNDS).all() and len(texts) == 1


def test_updates_and_submissions_of_several_threads(
    queue: Queue, graph: CommandGraph, program: Program, memory: USM
) -> None:
    value = DynamicParameter(graph, numpy.int32(1))
    groups = DynamicCommandGroup(
        graph, [lambda h, n=n: h.parallel_for(N, program.add, memory, value) for n in range(2)]
    )
    node = graph.add(groups)
    task = graph.add(lambda h: h.host_task(lambda: None), depends_on=node)
    executable = graph.finalize(updatable=True)

    def work(number: int) -> None:
        for turn in range(ROUNDS):
            if number % 2:
                queue.graph(executable)
            else:
                value.update(numpy.int32(1))
                groups.active_index = turn % 2
                executable.update([node, task] if turn % 3 else graph)

    in_threads(THREADS, work)
    queue.wait()
    assert (memory.array == ROUNDS * (THREADS // 2)).all()


def test_queues_join_a_recording_from_several_threads(
    queue: Queue, graph: CommandGraph, memory: USM
) -> None:
    with graph.recording(queue):
        event = queue.memset(memory, 0)

        def join(number: int) -> str:
            own = Queue(queue.device)
            own.memset(memory, 0, depends_on=[event])
            return own.state

        assert set(in_threads(THREADS, join)) == {"recording"}
    assert edges(graph) == {(0, node) for node in range(1, THREADS + 1)}
