"""The adapters for CUDA and HIP in one process: they share code, and no state.

fairlead's runtime loads both, and so does the real loader of Unified Runtime, in dpctl.
"""

from __future__ import annotations

import inspect
import sys
import sysconfig
from importlib import import_module
from pathlib import Path

import pytest
from helpers.clients import PREFIX_LIB, run
from helpers.cuda import build_fake_cuda
from helpers.hip import PROFILES, build_fake_hip
from helpers.support import RunPython

from fairlead import plugins
from fairlead.icd.driver_profiles import locate
from fairlead.loader.base.search import Candidate
from fairlead.loader.cuda.driver import CudaDriver

LIBRARIES = plugins.cuda_adapter(), plugins.hip_adapter()

#: Both adapters do each step before one of them does the next.
RUNTIME = """
import numpy
from fairlead.runtime import Program, Queue, SYCLError, devices, malloc_device

SOURCE = '''kernel void add(global int *a, int by) { a[get_global_id(0)] += by; }
kernel void twice(global int *a) { a[get_global_id(0)] *= 2; }'''
chosen = {name: [one for one in devices() if one.backend == name] for name in ("cuda", "hip")}
print({name: len(found) for name, found in chosen.items()})
queues = [Queue(found[0], profiling=True) for found in chosen.values()]
programs = [Program(queue, SOURCE) for queue in queues]
memory = [malloc_device(8, "int32", queue) for queue in queues]
filled = [queue.fill(one, numpy.int32(5)) for queue, one in zip(queues, memory)]
for by, (queue, program, one) in enumerate(zip(queues, programs, memory), 1):
    queue.parallel_for(8, program.add, one, numpy.int32(by), depends_on=[filled[by - 1]]).wait()
for queue, program, one in zip(queues, programs, memory):
    queue.parallel_for(8, program.twice, one).wait()
for queue, one in zip(queues, memory):
    copied = numpy.empty(8, "int32")
    queue.memcpy(copied, one).wait()
    print(queue.device.platform.name, copied.tolist())
for queue in queues:
    try:
        Program(queue, "kernel void broken(")
    except SYCLError as error:
        print(error.code)
"""


@pytest.fixture(scope="module")
def environment(
    real_driver: CudaDriver | None, pocl_wheel: Candidate, tmp_path_factory: pytest.TempPathFactory
) -> dict[str, str]:
    """The variables with which a program finds a driver of each API."""
    if real_driver is not None:
        pytest.skip("needs the drivers of the tests, but there is a GPU")
    cuda = build_fake_cuda(tmp_path_factory.mktemp("cuda"))
    hip = build_fake_hip(tmp_path_factory.mktemp("hip"), list(PROFILES)[-1])
    return {
        "LD_LIBRARY_PATH": f"{cuda.parent}:{hip.parent}",
        "FAKE_CUDA_OPENCL": locate(pocl_wheel)[0],
        "ONEAPI_DEVICE_SELECTOR": "cuda:*;hip:*",
    }


def test_the_runtime_computes_on_both(run_python: RunPython, environment: dict[str, str]) -> None:
    forced = {"UR_ADAPTERS_FORCE_LOAD": ",".join(LIBRARIES)}
    lines = run_python(RUNTIME, env=environment | forced).out.splitlines()
    assert lines == [
        "{'cuda': 1, 'hip': 1}",
        "CUDA (fairlead) [12, 12, 12, 12, 12, 12, 12, 12]",
        "HIP (fairlead) [14, 14, 14, 14, 14, 14, 14, 14]",
        *["UR_RESULT_ERROR_PROGRAM_BUILD_FAILURE"] * 2,
    ]


@pytest.mark.parametrize("name", ["api", "device_code"])
def test_hip_has_the_names_of_cudas_modules(name: str) -> None:
    """The shared modules import these names, and call functions with the same arguments."""
    ours, theirs = (import_module(f"fairlead.plugins.{one}.{name}") for one in ("hip", "cuda"))
    names = getattr(theirs, "__all__", ["API"])
    assert getattr(ours, "__all__", ["API"]) == names
    for function in filter(inspect.isfunction, (getattr(theirs, one) for one in names)):
        wanted = list(inspect.signature(function).parameters)
        assert list(inspect.signature(getattr(ours, function.__name__)).parameters) == wanted


DPCTL = """
import dpctl, dpctl.memory, numpy

numbers = numpy.arange(8, dtype="int32").view("uint8")
queues = [dpctl.SyclQueue(name) for name in ("cuda", "hip")]
memory = [dpctl.memory.MemoryUSMDevice(32, queue=queue) for queue in queues]
for one in memory:
    one.copy_from_host(numbers)
for one in memory:
    one.memset(3)
for queue, one, other in zip(queues, memory, reversed(memory)):
    other.copy_from_host(numbers)
    one.copy_from_device(other)  # through the host
    copied = numpy.frombuffer(one.copy_to_host(), "int32")
    print(queue.backend.name, queue.sycl_device.vendor, copied)
"""


@pytest.mark.slow
def test_the_real_loader_has_both(clients: Path, environment: dict[str, str]) -> None:
    home = clients / "now"
    if not (home / f"dpctl/_sycl_device{sysconfig.get_config_var('EXT_SUFFIX')}").exists():
        pytest.skip("the dpctl that was fetched is for another Python")
    folders = f"{home / 'lib'}:{PREFIX_LIB}:{environment['LD_LIBRARY_PATH']}"
    output = run(
        [sys.executable, "-c", DPCTL],
        home,
        environment["FAKE_CUDA_OPENCL"],
        ",".join(LIBRARIES),
        **environment | {"LD_LIBRARY_PATH": folders},
        PYTHONPATH=home,
    )
    expected = [
        "cuda NVIDIA Corporation [0 1 2 3 4 5 6 7]",
        "hip Advanced Micro Devices, Inc. [0 1 2 3 4 5 6 7]",
    ]
    assert (output.out.splitlines(), output.code) == (expected, 0), output.err
