"""`fairlead.runtime` and `fairlead.graph` on the adapters for CUDA and HIP, in a process of its own."""

from __future__ import annotations

from helpers.support import RunPython

from .conftest import Installed

PROGRAM = """
import numpy as np
from fairlead.graph import CommandGraph, DynamicParameter
from fairlead.runtime import Buffer, Program, Queue, malloc_shared

queue = Queue()
program = Program(queue, '''
kernel void add(global float *x, float by) { x[get_global_id(0)] += by; }
kernel void scale(global float *x, float by) { x[get_global_id(0)] *= by; }
''')
x = malloc_shared(8, np.float32, queue)
x.array[:] = np.arange(8)
scaled = queue.parallel_for(8, program.scale, x, np.float32(2))
seen = []
told = queue.host_task(lambda: seen.append(float(x.array[7])), depends_on=[scaled])
queue.parallel_for(8, program.add, x, np.float32(1), depends_on=[told]).wait()
print(seen, x.array.tolist())

out = np.ones(8, np.float32)
with Buffer(out) as b:
    queue.submit(lambda h: h.parallel_for(8, program.scale, h.access(b), np.float32(5)))
print(out.tolist())

graph = CommandGraph(queue)
by = DynamicParameter(graph, np.float32(1))
first = graph.add(lambda h: h.parallel_for(8, program.add, x, by))
tell = graph.add(lambda h: h.host_task(lambda: seen.append(float(x.array[0]))), depends_on=first)
last = graph.add(lambda h: h.parallel_for(8, program.scale, x, np.float32(10)), depends_on=tell)
zero = graph.add(lambda h: h.memset(x, 0))
graph.make_edge(zero, first)
loop = graph.finalize(updatable=True)
queue.graph(loop).wait()
by.update(np.float32(4))
loop.update([first])
queue.graph(loop).wait()
print(seen, x.array[0], queue.device.platform.backend)
"""


def test_the_runtime_computes_on_it(run_python: RunPython, installed: Installed) -> None:
    environment = {
        **installed.environment,
        "UR_ADAPTERS_FORCE_LOAD": installed.library,
        "ONEAPI_DEVICE_SELECTOR": f"{installed.backend}:*",
    }
    done = run_python(PROGRAM, env=environment)
    assert done.out.splitlines() == [
        "[14.0] [1.0, 3.0, 5.0, 7.0, 9.0, 11.0, 13.0, 15.0]",
        "[5.0, 5.0, 5.0, 5.0, 5.0, 5.0, 5.0, 5.0]",
        f"[14.0, 1.0, 4.0] 40.0 {installed.backend}",
    ]
