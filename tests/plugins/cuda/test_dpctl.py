"""dpctl and `fairlead.runtime` in one process, on the adapters for CUDA and HIP: memory without a
copy.

libsycl and the runtime have a context each. On these adapters both are the device's one context.
"""

from __future__ import annotations

import sys
import sysconfig
from pathlib import Path

import pytest
from helpers.clients import PREFIX_LIB, run

from .conftest import Installed, newer_hip

PROGRAM = """
import dpctl, dpctl.memory, numpy
from fairlead.runtime import Program, Queue, malloc_device, malloc_host, malloc_shared

theirs, ours = dpctl.SyclQueue(), Queue()
add = Program(ours, "kernel void add(global int *a, int by) { a[get_global_id(0)] += by; }").add
numbers = numpy.arange(8, dtype="int32")
for kind in "Device", "Shared", "Host":
    memory = getattr(dpctl.memory, f"MemoryUSM{kind}")(32, queue=theirs)
    memory.copy_from_host(numbers.view("uint8"))
    ours.parallel_for(8, add, memory, numpy.int32(5)).wait()
    ours.memcpy(memory, memory, 4).wait()
    print(kind, numpy.frombuffer(memory.copy_to_host(), "int32").tolist())
for make in malloc_device, malloc_shared, malloc_host:
    memory = make(8, "int32", ours)
    ours.fill(memory, numpy.int32(7)).wait()
    taken = dpctl.memory.as_usm_memory(memory)
    same = taken.__sycl_usm_array_interface__["data"][0] == memory.pointer
    taken.copy_from_host(numbers[:2].view("uint8"))
    copied = numpy.empty(8, "int32")
    ours.memcpy(copied, memory).wait()
    print(type(taken).__name__, taken.nbytes, same, copied.tolist())
"""
EXPECTED = """\
Device [5, 6, 7, 8, 9, 10, 11, 12]
Shared [5, 6, 7, 8, 9, 10, 11, 12]
Host [5, 6, 7, 8, 9, 10, 11, 12]
MemoryUSMDevice 32 True [0, 1, 7, 7, 7, 7, 7, 7]
MemoryUSMShared 32 True [0, 1, 7, 7, 7, 7, 7, 7]
MemoryUSMHost 32 True [0, 1, 7, 7, 7, 7, 7, 7]
"""


@pytest.mark.slow
@newer_hip
def test_dpctl_and_the_runtime_share_memory(clients: Path, installed: Installed) -> None:
    home = clients / "now"
    if not (home / f"dpctl/_sycl_device{sysconfig.get_config_var('EXT_SUFFIX')}").exists():
        pytest.skip("the dpctl that was fetched is for another Python")
    paths = home / "lib", PREFIX_LIB, installed.environment.get("LD_LIBRARY_PATH")
    output = run(
        [sys.executable, "-c", PROGRAM],
        home,
        installed.opencl,
        installed.library,
        **installed.environment
        | {"LD_LIBRARY_PATH": ":".join(str(path) for path in paths if path)},
        PYTHONPATH=home,
        ONEAPI_DEVICE_SELECTOR=f"{installed.backend}:*",
    )
    assert (output.out, output.code) == (EXPECTED, 0), output.err
