"""Binaries of programs, which threads ask for at the same time."""

from __future__ import annotations

import secrets
from typing import Any

import pyopencl as cl
import pytest
from helpers.drivers import Driver

from fairlead.conformance.threads import in_threads
from fairlead.icd.drivers import platforms
from fairlead.icd.program_binaries import query_binaries, query_sizes

THREADS, TIMES = 4, 5


@pytest.mark.slow
def test_threads_read_the_binary_of_one_program(each_driver: Driver) -> None:
    """Without a lock, PoCL 3.0 gives 256 MiB, or crashes.

    Each program is one that no run has compiled before: PoCL compiles it for its binary.
    """
    platform = next(one for one in platforms() if each_driver.has(one))
    context = cl.Context([platform.devices[0].to_pyopencl()])
    sizes, binaries = set[int](), set[bytes]()
    for turn in range(20):
        new = secrets.randbits(30)
        source = f"kernel void put(global int *out) {{ out[{turn}] = {new}; }}"
        build: Any = cl.Program(context, source).build
        program = build(cache_dir=False)

        def read(_: int, program: int = program.int_ptr) -> None:
            for _ in range(TIMES):
                binaries.update(query_binaries(program))
                sizes.update(query_sizes(program))

        in_threads(THREADS, read)
        assert len(binaries) == 1
        assert sizes == {len(binaries.pop())}
        sizes.clear()


def test_a_program_that_is_not_built_has_no_binary(each_driver: Driver) -> None:
    platform = next(one for one in platforms() if each_driver.has(one))
    context = cl.Context([platform.devices[0].to_pyopencl()])
    program = cl.Program(context, "kernel void put(global int *out) { out[0] = 1; }")
    assert query_sizes(program.int_ptr) == [0]
    assert query_binaries(program.int_ptr) == [b""]
