"""`ExecutableGraph.explain` says how each command-buffer runs, on the reference adapter."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from helpers.support import RunPython

from fairlead.graph import CommandGraph
from fairlead.runtime import Device, Program, Queue, malloc_shared

_SOURCE = "kernel void add(global int *x, int by) { x[get_global_id(0)] += by; }"


def _graph(queue: Queue) -> Any:
    add, x = Program(queue, _SOURCE).add, malloc_shared(8, np.int32, queue)
    graph = CommandGraph(queue)
    one = graph.add(lambda h: h.parallel_for(8, add, x, np.int32(1)))
    told = graph.add(lambda h: h.host_task(lambda: None), depends_on=one)
    graph.add(lambda h: h.parallel_for(8, add, x, np.int32(2)), depends_on=told)
    return graph.finalize()


def test_it_names_the_engines_of_the_last_submission(
    device: Device, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FAIRLEAD_COMMAND_BUFFER", "replay")
    queue = Queue(device)
    loop = _graph(queue)
    before = "     1 commands: an enqueue on a queue chooses the engine"
    assert loop.explain().splitlines() == [
        "3 nodes in 3 partitions, by policy seed",
        "  0: 1 nodes, in order",
        before,
        "  1: host task, after 0",
        "  2: 1 nodes, in order, after 1",
        before,
    ]
    queue.graph(loop).wait()
    lines = loop.explain().splitlines()
    assert lines.count("     1 commands") == 2 and before not in lines
    assert "       direct  not chosen: FAIRLEAD_COMMAND_BUFFER=replay" in lines
    assert sum(line.startswith("       replay  ") for line in lines) == 2


_OTHERS = """
from fairlead import adapters
from fairlead.graph import CommandGraph
from fairlead.runtime import Buffer, Queue, devices
import numpy as np
queue = Queue(devices(adapters())[0])
graph = CommandGraph(queue, assume_buffer_outlives_graph=True)
a, b = (Buffer(np.zeros(8, np.int32), write_back=False) for _ in range(2))
graph.add(lambda h: h.copy(h.access(a), h.access(b)))
loop = graph.finalize()
print(type(loop.segments[0]).__name__)
print(loop.explain())
"""


def test_adapters_of_others_do_not_say_it(
    other_adapter: dict[str, str], run_python: RunPython
) -> None:
    lines = run_python(_OTHERS, env=other_adapter).out.splitlines()
    assert lines == [
        "BufferSegment",
        "1 nodes in 1 partitions, by policy seed",
        "  0: 1 nodes, in order",
        "     the adapter does not say how it runs them",
    ]
