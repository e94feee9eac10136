"""Captures of what C modules do on a queue, whichever loader they were linked with.

A module made by hand, by pybind11, by Cython or by another binding is such a library.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from helpers.support import ROOT, RunPython, once

from fairlead.icd import libopencl
from fairlead.loader.base.search import Candidate

pytestmark = pytest.mark.slow
LOADERS = {
    "fairlead": Path(libopencl.find_library()),
    "ocl-icd": Path("/usr/lib/x86_64-linux-gnu/libOpenCL.so.1"),
    "Khronos": Path(sys.prefix, "lib/libOpenCL.so.1"),
}
CODE = """
import ctypes, sys, warnings

if sys.argv[2] == "preload":
    import fairlead.preload
import fairlead, numpy, pyopencl

fairlead.platforms()  # repairs the driver, without preload, too
warnings.simplefilter("ignore")
library = ctypes.CDLL(sys.argv[1])
(platform,) = pyopencl.get_platforms()
context = pyopencl.Context(platform.get_devices())
queue = pyopencl.CommandQueue(context)
program = pyopencl.Program(
    context, "kernel void add(global int *a, int n) { a[get_global_id(0)] += n; }"
).build()
memory = pyopencl.Buffer(
    context, pyopencl.mem_flags.COPY_HOST_PTR, hostbuf=numpy.arange(4, dtype="i")
)
handles = [ctypes.c_void_p(one.int_ptr) for one in (context, queue, program, memory)]


def add_steps(steps):
    assert library.add_steps(*handles, ctypes.c_size_t(4), steps) == 0


def read():
    result = numpy.empty(4, "i")
    pyopencl.enqueue_copy(queue, result, memory)
    return result.tolist()


with fairlead.capture(queue) as graph:
    add_steps(3)
print(len(graph), read())
loop = graph.finalize()
for _ in range(10):
    loop.replay(queue)
print(read())
add_steps(4)
print(read())
"""


@pytest.mark.parametrize("under", ["preload", "wheel"])
@pytest.mark.parametrize("linked", LOADERS)
def test_what_a_c_module_does_is_captured(
    run_python: RunPython,
    native_headers: Path,
    pocl_wheel: Candidate,
    tmp_path_factory: pytest.TempPathFactory,
    linked: str,
    under: str,
) -> None:
    """PyOpenCL calls our library, which serves the module as well, or the loader in its wheel."""
    loader = LOADERS[linked]
    if not loader.exists():
        pytest.skip(f"there is no {loader}")

    def build(path: Path) -> None:
        source = ROOT / "tests/captured_graphs/c_client.c"
        flags = ["-shared", "-fPIC", "-Wall", "-Wextra", "-Werror", f"-I{native_headers}"]
        command = ["cc", *flags, source, "-o", path, loader, f"-Wl,-rpath,{loader.parent}"]
        subprocess.run(command, check=True)

    module = once(tmp_path_factory, f"c_client-{linked}.so", build)
    # Intel's wheel links its copy of Khronos' loader with the libsvml.so beside it.
    env = {"OCL_ICD_VENDORS": pocl_wheel.library, "LD_LIBRARY_PATH": str(loader.parent)}
    output = run_python(CODE, str(module), under, env=env).out.splitlines()
    assert output == [
        "5 [0, 1, 2, 3]",
        str([number + 60 for number in range(4)]),
        str([number + 70 for number in range(4)]),
    ]
