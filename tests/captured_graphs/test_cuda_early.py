"""Kernels that start before the one before them in a CUDA Graph ends, on the fake CUDA driver."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pyopencl as cl
import pytest
from helpers.cuda import FakeCuda
from helpers.cuda_program import READ_WRITE, Program, count_launches

from fairlead.captured_graphs.context import capture
from fairlead.icd import cuda_sharing
from fairlead.icd.command_buffer import cuda_functions
from fairlead.icd.nvidia_ptx import PtxProgram, Variant


@pytest.fixture
def early(cuda_on_pocl: FakeCuda, monkeypatch: pytest.MonkeyPatch) -> Program:
    """A program on a GPU where kernels start early."""
    program = Program(cuda_on_pocl)
    device = cuda_sharing.find_shared_device(program.context.devices[0].int_ptr)
    assert device is not None and device.why_not_early
    monkeypatch.setattr(device, "early_threads", 100_000)
    monkeypatch.setattr(device, "why_not_early", "")
    return program


def _count_early(program: Program, loop: Any, queue: Any = None) -> int:
    """How many nodes of a graph start early."""
    text = loop.explain(queue or program.queue)
    found = re.search(r"a CUDA Graph of \d+ nodes in [^,;]*(?:, (\d+) of which start early)?", text)
    assert found
    return int(found[1] or 0)


def test_kernels_of_a_chain_start_early(early: Program) -> None:
    y, x = early.buffer(1), early.buffer(10)
    with capture(early.queue) as graph:
        early.scale(y, 2, 3)
        early.scale(y, 2, 1)
        early.total(y, x)
        cl.enqueue_copy(early.queue, x, y, byte_count=y.size)  # no kernel
        early.total(y, x)
        early.scale(y, 2, 0)
    loop = graph.finalize()
    assert _count_early(early, loop) == 3
    loop.replay(early.queue, wait=True)
    assert early.values(y) == [2 * 4 * ((1 * 2 + 3) * 2 + 1) * 3 + 2 * 4 * 10]


def test_at_forks_and_joins_none_starts_early(early: Program) -> None:
    queue = cl.CommandQueue(
        early.context, properties=cl.command_queue_properties.OUT_OF_ORDER_EXEC_MODE_ENABLE
    )
    a, b = early.buffer(1), early.buffer(2)
    with capture(queue) as graph:
        root = early.scale(a, 2, 1, queue=queue)
        left = early.scale(a, 3, 1, queue=queue, wait_for=[root])
        right = early.scale(b, 3, 1, queue=queue, wait_for=[root])
        join = early.total(a, b, queue=queue, wait_for=[left, right])
        early.scale(a, 2, 1, queue=queue, wait_for=[join])
    loop = graph.finalize()
    assert _count_early(early, loop, queue) == 1  # the last one
    loop.replay(queue).wait()
    assert early.values(a) == [2 * (10 * 3 + 7) + 1]


def test_in_many_chains_none_starts_early(early: Program) -> None:
    queue = cl.CommandQueue(
        early.context, properties=cl.command_queue_properties.OUT_OF_ORDER_EXEC_MODE_ENABLE
    )
    buffers = [early.buffer(number) for number in range(5)]
    with capture(queue) as graph:
        for one in buffers:
            first = early.scale(one, 2, 1, queue=queue)
            early.scale(one, 2, 1, queue=queue, wait_for=[first])
    assert _count_early(early, graph.finalize(), queue) == 0


def test_where_the_driver_refuses_it_no_kernel_starts_early(early: Program) -> None:
    y = early.buffer(1)
    early.fake.fail("cuGraphAddDependencies_v2", 801)
    with capture(early.queue) as graph:
        early.scale(y, 2, 3)
        early.scale(y, 2, 1)
    loop = graph.finalize()
    assert _count_early(early, loop) == 0
    assert count_launches(early, lambda: loop.replay(early.queue, wait=True)) == 1
    assert early.values(y) == [11]


def test_explain_says_why_no_kernel_starts_early(program: Program) -> None:
    y = program.buffer(1)
    with capture(program.queue) as graph:
        program.scale(y, 2, 3)
    why = "none of which starts early: the driver's profile does not allow it"
    assert why in graph.finalize().explain(program.queue)


@pytest.mark.parametrize(("count", "lets"), [(64, 0), (8192, 1), (128_000, 0)])
def test_kernels_of_some_thousand_threads_let_the_next_one_start(
    early: Program, monkeypatch: pytest.MonkeyPatch, count: int, lets: int
) -> None:
    texts: list[str] = []
    translate = PtxProgram.translate

    def noted(self: PtxProgram, variant: Variant) -> str:
        texts.append(translate(self, variant))
        return texts[-1]

    monkeypatch.setattr(PtxProgram, "translate", noted)
    cuda_functions._modules.clear()
    y, large = early.buffer(1), cl.Buffer(early.context, READ_WRITE, 4 * count)
    kernel = cl.Kernel(early.program, "scale")
    with capture(early.queue) as graph:
        early.scale(y, 2, 3)
        kernel(early.queue, (count,), None, large, np.int32(1), np.int32(1))
        early.scale(y, 2, 3)
    loop = graph.finalize()
    assert _count_early(early, loop) == 2
    loop.replay(early.queue, wait=True)
    assert early.values(y) == [13]
    found = [text.count("launch_dependents") for text in texts]
    assert sum(found) == 3 * lets and len(found) == 1 + lets  # three kernels in a text
