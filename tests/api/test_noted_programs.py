"""The options of PyOpenCL's programs are known wherever they were built after `import fairlead`."""

from __future__ import annotations

import pytest
from helpers.support import RunPython

pytestmark = pytest.mark.slow

#: Intel's driver forgets the options of a program that only kernels keep.
PROGRAM = """
{imports}
SOURCE = "kernel void more(global float *a) {{ a[get_global_id(0)] += 1; }}"

def make_kernel(context):
    return cl.Program(context, SOURCE).build().more

contexts = [cl.Context(one.get_devices()[:1]) for one in cl.get_platforms()]
kernels = [make_kernel(context) for context in contexts]
for context, more in zip(contexts, kernels):
    queue = cl.CommandQueue(context)
    memory = cl.Buffer(context, cl.mem_flags.READ_WRITE, 4096)
    with fairlead.capture(queue) as graph:
        for _ in range(2):
            more(queue, (1024,), None, memory)
    print(len(graph.finalize(fuse="wait").fused), queue.device.platform.name)
"""


@pytest.mark.parametrize(
    "imports",
    [
        "import fairlead, pyopencl as cl",
        "import pyopencl as cl, fairlead",
        "import fairlead, importlib.util\n"
        "importlib.util.find_spec('pyopencl')  # imports nothing\n"
        "import pyopencl as cl",
    ],
    ids=["before PyOpenCL", "after PyOpenCL", "after a search for PyOpenCL"],
)
def test_a_program_may_be_built_before_the_first_capture(
    run_python: RunPython, wheel_drivers: dict[str, str], imports: str
) -> None:
    done = run_python(PROGRAM.format(imports=imports), env=wheel_drivers, fresh=True)
    fused = {tuple(line.split()[:2]) for line in done.out.splitlines()}
    assert fused == {("1", "Intel(R)"), ("1", "Portable")}


def test_python_says_that_pyopencl_is_missing(run_python: RunPython) -> None:
    code = """
import sys, fairlead
sys.path[:] = [one for one in sys.path if "site-packages" not in one]
import pyopencl
"""
    done = run_python(code, check=False, fresh=True)
    assert done.err.endswith("ModuleNotFoundError: No module named 'pyopencl'\n")
