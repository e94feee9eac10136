"""`fairlead.runtime` and `fairlead.graph` on the adapter for CUDA, in a process of its own."""

from __future__ import annotations

from pathlib import Path

from helpers.support import RunPython

from fairlead import plugins
from fairlead.icd.driver_profiles import locate
from fairlead.loader.base.search import Candidate

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


def test_the_runtime_computes_on_it(
    run_python: RunPython, fake_cuda_path: Path, pocl_wheel: Candidate
) -> None:
    environment = {
        "LD_LIBRARY_PATH": str(fake_cuda_path.parent),
        "FAKE_CUDA_OPENCL": locate(pocl_wheel)[0],
        "UR_ADAPTERS_FORCE_LOAD": plugins.cuda_adapter(),
        "ONEAPI_DEVICE_SELECTOR": "cuda:*",
    }
    done = run_python(PROGRAM, env=environment)
    assert done.out.splitlines() == [
        "[14.0] [1.0, 3.0, 5.0, 7.0, 9.0, 11.0, 13.0, 15.0]",
        "[5.0, 5.0, 5.0, 5.0, 5.0, 5.0, 5.0, 5.0]",
        "[14.0, 1.0, 4.0] 40.0 cuda",
    ]
