"""Command graphs: what building, finalizing, submitting and updating them costs.

Only the calling thread works here, and its CPU time is measured. Drivers' threads and other
programs do not count. A node is a launch of a small kernel. A *chain* is a path. In a *branching*
graph all nodes come after the first one.
"""

from __future__ import annotations

import ctypes
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from random import Random
from typing import Any

import numpy

from fairlead.graph import CommandGraph, DynamicParameter, ExecutableGraph, Node
from fairlead.graph.segments import BufferSegment
from fairlead.runtime import Program, Queue, devices, malloc_device
from fairlead.runtime.queue_order import QueueOrder

from .measuring import Row, Target, ratio, summary

_SOURCE = "kernel void add(global int *a, int n) { a[get_global_id(0)] += n; }"
_ITEMS = 16
_NODES = 10_000
_SIZES = (1_000, 10_000, 100_000)
_ONE = numpy.int32(1)


class _Work:
    """A queue, a kernel and memory for it, and the graphs that are made of them."""

    def __init__(self) -> None:
        self.queue = Queue(devices()[0])
        self.recorded = Queue(self.queue.context, self.queue.device, in_order=True)
        self.kernel: Any = Program(self.queue.context, _SOURCE).kernel("add")
        self.memory = malloc_device(_ITEMS, numpy.int32, self.queue)
        self.queue.memset(self.memory, 0).wait()

    def launch(self, number: Any = _ONE) -> Callable[[Any], None]:
        """Return the command-group function of a node."""
        return lambda handler: handler.parallel_for(_ITEMS, self.kernel, self.memory, number)

    def chain(self, size: int, number: Any = _ONE) -> CommandGraph:
        """Make a path of nodes by adding them."""
        graph, before, launch = CommandGraph(self.queue), (), self.launch(number)
        for _ in range(size):
            before = graph.add(launch, depends_on=before)
        return graph

    def branching(self, size: int) -> CommandGraph:
        """Make one node, and all others after it."""
        graph, launch = CommandGraph(self.queue), self.launch()
        first = graph.add(launch)
        for _ in range(size - 1):
            graph.add(launch, depends_on=first)
        return graph

    def recording(self, size: int) -> CommandGraph:
        """Record a path from an in-order queue."""
        graph, queue = CommandGraph(self.queue), self.recorded
        with graph.recording(queue):
            for _ in range(size):
                queue.parallel_for(_ITEMS, self.kernel, self.memory, _ONE)
        return graph

    def alternating(self, tasks: int) -> ExecutableGraph:
        """Make so many kernels, and a host task after each: twice as many partitions."""
        graph, before = CommandGraph(self.queue), ()
        for _ in range(tasks):
            before = graph.add(
                lambda handler: handler.host_task(_nothing),
                depends_on=graph.add(self.launch(), depends_on=before),
            )
        return graph.finalize()


def _nothing() -> None:
    pass


def measure(quick: bool) -> list[Row]:
    """Measure everything on the first device."""
    work = _Work()
    sizes = _SIZES[:1] if quick else _SIZES
    rounds = 3 if quick else 9
    return [
        *_building(work, _SIZES[0] if quick else _NODES, rounds),
        *_finalizing(work, sizes, 5),
        *_submissions(work, 20 if quick else 100, rounds),
        _partitions(work, 3 if quick else 51),
        _one_update(work, 20 if quick else 1000, rounds),
        _whole_update(work, rounds),
    ]


def _turns(
    actions: Mapping[str, Callable[[], object]],
    rounds: int,
    after: Callable[[], object] = lambda: None,
) -> dict[str, list[float]]:
    """Return microseconds of this thread's CPU time of every action.

    Each action runs once beforehand, and once a round, in a random order. `after` is not measured,
    and neither is dropping what an action made.
    """
    names, lot = list(actions), Random(1)
    samples: dict[str, list[float]] = {name: [] for name in names}
    for turn in range(rounds + 1):
        lot.shuffle(names)
        for name in names:
            start = time.thread_time_ns()
            made = actions[name]()
            taken = time.thread_time_ns() - start
            after()
            del made
            if turn:
                samples[name].append(taken / 1000)
    return samples


def _each(samples: Iterable[float], count: int) -> list[float]:
    return [sample / count for sample in samples]


def _building(work: _Work, size: int, rounds: int) -> list[Row]:
    ways = {"added": work.chain, "added, branching": work.branching, "recorded": work.recording}
    samples = _turns({name: lambda way=way: way(size) for name, way in ways.items()}, rounds)
    rows = []
    for name, taken in samples.items():
        series = {"node": summary(_each(taken, size))}
        rows.append(
            Row(
                f"building {size:,} nodes, {name}",
                series["node"]["median"],
                "µs",
                Target("≤", 20),
                series,
                "µs per node",
            )
        )
    return rows


def _finalizing(work: _Work, sizes: Sequence[int], rounds: int) -> list[Row]:
    rows = []
    for name, way in {"a chain": work.chain, "a branching graph": work.branching}.items():
        taken = _turns({f"{size:,} nodes": way(size).finalize for size in sizes}, rounds)
        samples = {
            what: _each(one, size) for (what, one), size in zip(taken.items(), sizes, strict=True)
        }
        series = {what: summary(one) for what, one in samples.items()}
        last, first = f"{sizes[-1]:,} nodes", f"{sizes[0]:,} nodes"
        rows.append(
            Row(
                f"finalizing {name}",
                series[last]["median"],
                "µs",
                Target("≤", 25),
                series,
                "µs per node",
            )
        )
        what = f"{name}: a node of {sizes[-1]:,} ÷ one of {sizes[0]:,}"
        rows.append(ratio(what, samples, last, first, Target("≤", 1.2), "µs per node"))
    return rows


def _submissions(work: _Work, times: int, rounds: int) -> list[Row]:
    kinds = (True, False)
    return [
        *(_submission(work, times, rounds, in_order) for in_order in kinds),
        *(_python_of_submission(work, times, rounds, in_order) for in_order in kinds),
    ]


def _submission(work: _Work, times: int, rounds: int, in_order: bool) -> Row:
    """Measure what `queue.graph` adds to the same submission by the adapter's function.

    On an out-of-order queue both wait for the submission before, since adapters may run a
    command-buffer twice at a time. Both release their events.
    """
    queue, executable = work.recorded if in_order else work.queue, work.chain(1).finalize()
    ur, handle = queue.adapter.ur, _command_buffer(executable)

    def bare() -> None:
        before: ctypes.c_void_p | None = None
        for _ in range(times):
            event, waits = ctypes.c_void_p(), None if before is None else ctypes.byref(before)
            ur.urEnqueueCommandBufferExp(
                queue.handle, handle, int(before is not None), waits, ctypes.byref(event)
            )
            if in_order:
                ur.urEventRelease(event)
                continue
            if before is not None:
                ur.urEventRelease(before)
            before = event
        if before is not None:
            ur.urEventRelease(before)

    def graph() -> None:
        for _ in range(times):
            queue.graph(executable)

    samples = _turns(
        {"queue.graph": graph, "urEnqueueCommandBufferExp": bare}, 3 * rounds, queue.wait
    )
    series = {name: summary(_each(taken, times)) for name, taken in samples.items()}
    value = series["queue.graph"]["median"] - series["urEnqueueCommandBufferExp"]["median"]
    name = "in order" if in_order else "out of order"
    return Row(
        f"submission of one partition, {name}: queue.graph beyond the adapter",
        value,
        "µs",
        Target("≤", 10),
        series,
        "µs",
    )


def _python_of_submission(work: _Work, times: int, rounds: int, in_order: bool) -> Row:
    """Measure what `queue.graph` costs if the adapter's functions do nothing.

    With a driver that works in the same caches it costs more.
    """
    queue, executable = work.recorded if in_order else work.queue, work.chain(1).finalize()
    queue.wait()
    ur = queue.adapter.ur
    names = "urEnqueueCommandBufferExp", "urEventRelease"
    real = [getattr(ur, name) for name in names]

    def enqueue(queue: int, buffer: int, count: int, waits: Any, event: Any) -> int:
        event._obj.value = 1
        return 0

    def graph() -> None:
        for _ in range(times):
            queue.graph(executable)

    for name, nothing in zip(names, (enqueue, lambda event: 0), strict=True):
        setattr(ur, name, nothing)
    try:
        series = {
            "queue.graph": summary(
                _each(_turns({"queue.graph": graph}, 3 * rounds)["queue.graph"], times)
            )
        }
    finally:
        executable._last = None  # its event and the queue's do not belong to the adapter
        queue._order = QueueOrder()
        for name, function in zip(names, real, strict=True):
            setattr(ur, name, function)
    order = "in order" if in_order else "out of order"
    what = f"submission of one partition, {order}: queue.graph on an adapter that does nothing"
    return Row(what, series["queue.graph"]["median"], "µs", Target("≤", 10), series, "µs")


def _command_buffer(executable: ExecutableGraph) -> int:
    (segment,) = executable._segments
    assert isinstance(segment, BufferSegment)
    return segment.buffer.handle


def _partitions(work: _Work, rounds: int) -> Row:
    few, many, queue = work.alternating(1), work.alternating(11), work.queue
    graphs = {"2 partitions": few, "22 partitions": many}
    samples = _turns(
        {name: lambda one=one: queue.graph(one) for name, one in graphs.items()}, rounds, queue.wait
    )
    series = {name: summary(taken) for name, taken in samples.items()}
    value = (series["22 partitions"]["median"] - series["2 partitions"]["median"]) / 20
    return Row(
        "submission: each further partition",
        value,
        "µs",
        Target("≤", 30),
        series,
        "µs per submission",
    )


def _one_update(work: _Work, times: int, rounds: int) -> Row:
    graph = CommandGraph(work.queue)
    number = DynamicParameter(graph, numpy.int32(0))
    node: Node = graph.add(work.launch(number))
    executable, values = (
        graph.finalize(updatable=True),
        [numpy.int32(value) for value in range(times)],
    )
    work.queue.graph(executable)

    def update() -> None:
        for value in values:
            number.update(value)
            executable.update(node)

    series = {"update": summary(_each(_turns({"update": update}, rounds)["update"], times))}
    return Row(
        "update of one parameter", series["update"]["median"], "µs", Target("≤", 15), series, "µs"
    )


def _whole_update(work: _Work, rounds: int) -> Row:
    one, other = work.chain(1000), work.chain(1000, numpy.int32(2))
    executable = one.finalize(updatable=True)
    work.queue.graph(executable)

    def update() -> None:
        executable.update(other)
        executable.update(one)

    series = {
        "update": summary([taken / 2000 for taken in _turns({"update": update}, rounds)["update"]])
    }
    return Row(
        "update by a whole graph of 1,000 nodes",
        series["update"]["median"],
        "ms",
        Target("≤", 10),
        series,
        "ms",
    )
