"""Memory of CUDA's goes to another package by DLPack, and comes from it, without a copy."""

from __future__ import annotations

from typing import Final

import pytest
from helpers.support import ROOT, RunPython

from .conftest import Installed

CLIENT: Final = (ROOT / "tests/helpers/dlpack_client.py").read_text(encoding="utf-8")
START: Final = f"""{CLIENT}
import gc, weakref
import numpy as np
from fairlead.runtime import Program, Queue, from_dlpack, malloc_device, malloc_host, malloc_shared

queue, cuda = Queue(), Cuda()
program = Program(queue, "kernel void add(global int *x, int by) {{ x[get_global_id(0)] += by; }}")
"""

pytestmark = [pytest.mark.slow, pytest.mark.parametrize("installed", ["cuda"], indirect=True)]


def test_another_package_has_the_memory_itself(
    run_python: RunPython, selected: dict[str, str], installed: Installed
) -> None:
    """It sees what a kernel wrote that nobody waited for, and kernels see what it writes.

    The memory stays until it calls the deleter.
    """
    code = """
for make in (malloc_device, malloc_host, malloc_shared):
    memory = make(8, np.int32, queue)
    queue.memset(memory, 0).wait()
    queue.parallel_for(8, program.add, memory, np.int32(3))
    theirs = Taken(memory, cuda)
    assert (theirs.address, theirs.count) == (memory.pointer, 8)
    seen = cuda.read(theirs.address, 8)
    cuda.write(theirs.address, list(range(8)))
    queue.parallel_for(8, program.add, memory, np.int32(10)).wait()
    gone = weakref.ref(memory)
    del memory
    gc.collect()
    lives = gone() is not None and cuda.read(theirs.address, 8)
    theirs.release()
    gc.collect()
    print(theirs.device, seen, lives, gone() is None)
"""
    ends = f"{[3] * 8} {list(range(10, 18))} True"
    assert run_python(START + code, env=selected).out.splitlines() == [
        f"{device} {ends}" for device in ((2, 0), (3, 0), (13, 0))
    ]


def test_the_memory_of_another_package_is_usm(
    run_python: RunPython, selected: dict[str, str], installed: Installed
) -> None:
    """Kernels write to it. Its deleter is called once, when the USM is gone."""
    code = """
theirs = Array(cuda, list(range(9)))
for one in (queue, Queue(in_order=True)):
    memory = from_dlpack(theirs, one)
    assert (memory.pointer, memory.size, memory.kind) == (theirs.address + 4, 8, "device")
    one.parallel_for(8, program.add, memory, np.int32(10)).wait()
    print(cuda.read(theirs.address, 9), theirs.releases)
    one.context.finish()  # where something may still run, the deleter is called later
    del memory
    gc.collect()
print(len(theirs.streams), None in theirs.streams)
theirs = Array(cuda, [1, 2])
kept = from_dlpack(theirs, queue)
"""
    assert run_python(START + code, env=selected).out.splitlines() == [
        f"{[0, *range(11, 19)]} 0",
        f"{[0, *range(21, 29)]} 1",
        "2 False",
    ]
