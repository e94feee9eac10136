"""`fairlead.runtime` and `fairlead.graph` on the adapters for CUDA and HIP, in a process of its
own.

Every kind of update of a SYCL graph, on the adapters for CUDA and HIP: bit for bit what the
reference adapter gives on the same device.
"""

from __future__ import annotations

import pytest
from helpers.graph_updates import compare_updates
from helpers.support import RunPython

from fairlead import plugins
from tests.plugins.cuda.conftest import CudaDriver, Installed, newer_hip

PROGRAM = """
import numpy as np
from fairlead.graph import CommandGraph, DynamicParameter
from fairlead.runtime import (
    Buffer, Program, Queue, SYCLError, from_dlpack, malloc_device, malloc_host, malloc_shared,
)

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
print(loop.explain())

if queue.device.backend == "cuda":
    class Theirs:
        __cuda_array_interface__ = x.__cuda_array_interface__
    queue.memset(Theirs(), 0).wait()
    queue.parallel_for(8, program.add, Theirs(), np.float32(3)).wait()
    print(x.array.tolist())
else:
    print(hasattr(x, "__cuda_array_interface__"))

makers = malloc_device, malloc_host, malloc_shared
print([make(8, "f4", queue).__dlpack_device__() for make in makers])
same = from_dlpack(x, queue)
for one in (queue, Queue(in_order=True)):
    one.parallel_for(8, program.add, from_dlpack(x, one), np.float32(1)).wait()
print(same.pointer == x.pointer, same.kind, (np.from_dlpack(x, device="cpu") == x.array).all())
class Elsewhere:
    def __dlpack_device__(self):
        return x.__dlpack_device__()[0], 7
    def __dlpack__(self, **how):
        return x.__dlpack__(**how)
try:
    from_dlpack(Elsewhere(), queue)
except SYCLError as error:
    print(error.message)
"""


def test_the_runtime_computes_on_it(
    run_python: RunPython, selected: dict[str, str], installed: Installed
) -> None:
    lines = run_python(PROGRAM, env=selected).out.splitlines()
    assert lines[:-1] == [
        "[14.0] [1.0, 3.0, 5.0, 7.0, 9.0, 11.0, 13.0, 15.0]",
        "[5.0, 5.0, 5.0, 5.0, 5.0, 5.0, 5.0, 5.0]",
        f"[14.0, 1.0, 4.0] 40.0 {installed.backend}",
        "4 nodes in 3 partitions, by policy seed",
        "  0: 2 nodes, in order",
        f"     2 commands: a {installed.backend.upper()} Graph of 2 nodes in a chain",
        "  1: host task, after 0",
        "  2: 1 nodes, in order, after 1",
        f"     1 commands: a {installed.backend.upper()} Graph of 1 nodes in a chain",
        str([3.0] * 8) if installed.backend == "cuda" else "False",
        str(
            [(2, 0), (3, 0), (13, 0)]
            if installed.backend == "cuda"
            else [(10, 0), (11, 0), (10, 0)]
        ),
        "True shared True",
    ]
    assert " is not memory of " in lines[-1]


@newer_hip
def test_updates_give_what_the_reference_adapter_gives(
    installed: Installed,
    selected: dict[str, str],
    real_driver: CudaDriver | None,
    run_python: RunPython,
) -> None:
    if real_driver is not None:
        pytest.skip("NVIDIA's OpenCL has no shared memory, so the reference adapter has none")
    reference = {
        "OCL_ICD_FILENAMES": installed.opencl,
        "OCL_ICD_VENDORS": installed.opencl,
        "UR_ADAPTERS_FORCE_LOAD": str(plugins.reference_adapter()),
    }
    compare_updates(run_python, reference, selected)
