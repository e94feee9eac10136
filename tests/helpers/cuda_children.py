"""Programs that share their buffers with CUDA, in processes of their own: on PoCL and the fake
CUDA.

`SHARING` is what FAIRLEAD_CUDA=1 does at the import of fairlead, with PoCL in the place of NVIDIA's
driver: PoCL imports the memory of the fake driver, and its compiler gives stored PTX.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

import pytest

from helpers.cuda import PTX, SOURCE
from helpers.support import RunPython

SHARING: Final = f"""
import ctypes, gc, itertools, os, sys, threading
import numpy as np, pyopencl as cl
import fairlead
from fairlead.icd import cuda_sharing
from fairlead.icd._native import ffi, lib
from fairlead.icd.command_buffer import cuda_functions, cuda_trust
from fairlead.icd.drivers import platforms
from fairlead.loader.cuda.driver import cuda
devices = next(one for one in platforms() if "Portable" in one.name).devices
found = devices[0]
fake = ctypes.CDLL("libcuda.so.1")
address = ctypes.cast(fake.fake_cuda_import, ctypes.c_void_p).value
share = cuda_sharing.share_device
cuda_sharing._find_opencl_devices = lambda reasons: [(one.handle, one.name) for one in devices]
cuda_sharing.share_opencl_device = lambda opencl, importer: share(
    opencl,
    cuda().devices[[one.handle for one in devices].index(opencl)],
    cuda(),
    ffi.cast("fl_cuda_import *", address),
)
cuda_functions.query_ptx = lambda *_: {PTX!r}
cuda_trust.why_not_device = lambda device: None
os.environ["FAIRLEAD_CUDA"] = "1"
cuda_sharing.follow_environment()
SIZE, READ_WRITE = 64, cl.mem_flags.READ_WRITE
context = cl.Context([found.to_pyopencl()])
program = cl.Program(context, {SOURCE!r}).build()
def buffer(value, context=context):
    host = np.full(SIZE, value, np.int32)
    return cl.Buffer(context, READ_WRITE | cl.mem_flags.COPY_HOST_PTR, hostbuf=host)
def values(queue, buffer):
    host = np.empty(SIZE, np.int32)
    cl.enqueue_copy(queue, host, buffer)
    return sorted(set(host.tolist()))
def scale(queue, *given, of=program):
    cl.Kernel(of, "scale")(queue, (SIZE,), None, given[0], *map(np.int32, given[1:]))
def captured(queue, *given, times=1, of=program):
    with fairlead.capture(queue) as graph:
        for _ in range(times):
            scale(queue, *given, of=of)
    return graph.finalize()
def launches():
    return fake.fake_cuda_calls(b"cuGraphLaunch")
def shared():
    counts = lib.fl_count_shared()
    return counts.small + counts.own
"""


@pytest.fixture
def environment(fake_cuda_path: Path) -> dict[str, str]:
    """The variables with which a child finds the fake driver, and shares with it."""
    return {
        "LD_LIBRARY_PATH": str(fake_cuda_path.parent),
        "FAIRLEAD_CUDA": "0",  # at the import nothing is NVIDIA's
        "FAIRLEAD_COMMAND_BUFFER": "cuda",
    }


def run(run_python: RunPython, environment: dict[str, str], code: str) -> list[str]:
    """Return the lines that a child prints. It has to end without a failure."""
    done = run_python(f"{SHARING}{code}", env=environment)
    assert "warning" not in done.err and "Traceback" not in done.err, done.err
    return done.out.splitlines()
