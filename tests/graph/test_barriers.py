"""Barriers in recordings (spec row A23): they order the commands of their own queue, and nothing is
enqueued for them."""

from __future__ import annotations

import numpy
import pytest
from helpers.sycl import N, zeros

from fairlead.graph import CommandGraph
from fairlead.runtime import Program, Queue


@pytest.mark.parametrize("in_order", [False, True])
def test_nothing_is_enqueued_for_barriers_and_the_order_holds(
    queue: Queue, program: Program, in_order: bool
) -> None:
    recorded = Queue(queue.device, in_order=in_order)
    graph, a, b = CommandGraph(recorded), zeros(queue), zeros(queue)
    with graph.recording(recorded):
        recorded.parallel_for(N, program.store, a, numpy.int32(2))
        recorded.parallel_for(N, program.store, b, numpy.int32(3))
        recorded.barrier()
        recorded.barrier()
        recorded.parallel_for(N, program.sum, a, b, a)
        recorded.barrier()
        recorded.parallel_for(N, program.mul, a, numpy.int32(10))
        recorded.barrier()
    executable = graph.finalize()
    for _ in range(5):
        queue.graph(executable)
    queue.wait()
    assert (a.array == 50).all() and len(executable.partitions.partitions) == 1
