"""oclgrind, a driver that simulates a device: found, called, captured, and given command-buffers.

`make test` unpacks Debian's package. Without apt-get, or without the LLVM that it needs, these
tests are left out.
"""

from __future__ import annotations

import ctypes
import json
import os
import sys
from pathlib import Path

import pytest
from helpers.support import RunPython

PROGRAM = """
import fairlead.preload, fairlead
import json, numpy, pyopencl, warnings

warnings.simplefilter("ignore")
(platform,) = pyopencl.get_platforms()
context = pyopencl.Context(platform.get_devices())
queue = pyopencl.CommandQueue(context)
code = "kernel void add(global int *a, int n) { a[get_global_id(0)] += n; }"
add = pyopencl.Program(context, code).build().add
buffer = pyopencl.Buffer(
    context, pyopencl.mem_flags.COPY_HOST_PTR, hostbuf=numpy.arange(4, dtype="i")
)
result = numpy.empty(4, "i")
add(queue, (4,), None, buffer, numpy.int32(10))
with fairlead.capture(queue) as graph:
    for n in (1, 2):
        add(queue, (4,), None, buffer, numpy.int32(n))
loop = graph.finalize()
for _ in range(5):
    loop.replay(queue)
pyopencl.enqueue_copy(queue, result, buffer)
print(json.dumps([platform.name, result.tolist()]))
"""
LIST = """
import json
from fairlead.icd.drivers import drivers
found = drivers()
print(json.dumps([(p.name, p.icd_version, len(p.devices)) for p in found.platforms]))
"""


@pytest.fixture(scope="module")
def oclgrind() -> dict[str, str]:
    """The variables that make oclgrind the only driver."""
    root = Path(os.environ.get("OCLGRIND", ""), "usr/lib")
    driver = root / "oclgrind/liboclgrind-rt-icd.so"
    if not driver.exists():
        pytest.skip("OCLGRIND names no oclgrind: `make test` fetches it where apt-get is")
    library = next(root.glob("*/liboclgrind-[0-9]*.so"))
    try:
        ctypes.CDLL(str(library))
    except OSError as error:
        pytest.skip(f"oclgrind cannot be opened here: {error}")
    headers = next(library.parent.glob("oclgrind/*/opencl-c.h")).parent
    return {
        "OCL_ICD_VENDORS": str(driver),
        "LD_LIBRARY_PATH": str(library.parent),
        "OCLGRIND_PCH_DIR": str(headers),
    }


def test_it_is_found(run_python: RunPython, oclgrind: dict[str, str]) -> None:
    assert json.loads(run_python(LIST, env=oclgrind).out) == [["Oclgrind", 1, 1]]


def test_pyopencl_under_preload_and_a_captured_graph(
    run_python: RunPython, oclgrind: dict[str, str]
) -> None:
    output = run_python(PROGRAM, env=oclgrind)
    expected = [number + 10 + 5 * 3 for number in range(4)]
    assert json.loads(output.out.splitlines()[-1]) == ["Oclgrind", expected]


def test_it_gets_command_buffers(run_python: RunPython, oclgrind: dict[str, str]) -> None:
    """It has none of its own, so the device's extensions are the layer's."""
    main = "from fairlead.cli.main import main; main()"
    ask = "import pyopencl; print(pyopencl.get_platforms()[0].get_devices()[0].extensions.split())"
    command = ("run", "--layers", "command-buffer", "--", sys.executable, "-c", ask)
    assert "'cl_khr_command_buffer'" in run_python(main, *command, env=oclgrind).out
