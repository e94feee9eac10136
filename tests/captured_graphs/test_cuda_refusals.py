"""What the engine `cuda` leaves to others, and kernels that fail, on the fake CUDA driver."""

from __future__ import annotations

import sys
from functools import partial

import numpy as np
import pyopencl as cl
import pytest
from helpers.cuda_program import PIXEL, READ_WRITE, SIZE, Program, find_refusal, make_countdown

import fairlead
from fairlead.captured_graphs.context import capture
from fairlead.icd.command_buffer import command_buffer


def test_refusals_name_the_command(program: Program) -> None:
    y, host = program.buffer(1), np.zeros(SIZE, np.int32)
    alone = cl.Buffer(program.context, READ_WRITE | cl.mem_flags.USE_HOST_PTR, hostbuf=host)
    queue = program.queue
    assert find_refusal(program, lambda: program.scale(alone, 1, 1)) == (
        "command 0 (kernel): a buffer of it is not shared with CUDA: it is of host memory, or was "
        "made before the sharing began. Create it after import fairlead.cuda_sharing, without "
        "USE_HOST_PTR and ALLOC_HOST_PTR"
    )
    prints = cl.Kernel(program.program, "prints")
    assert find_refusal(program, lambda: prints(queue, (SIZE,), None, y)) == (
        "command 0 (kernel): the kernel prints: it prints; it can run outside the block"
    )
    image = cl.create_image(program.context, READ_WRITE, cl.ImageFormat(*PIXEL), shape=(4, 4))
    black = np.zeros(4, np.uint32)
    fill = partial(cl.enqueue_fill_image, queue, image, black, (0, 0), (4, 4))
    assert find_refusal(program, fill) == (
        "command 0 (fill_image): it uses images: use buffers, or run it outside the block"
    )


@pytest.mark.parametrize(
    "function",
    [
        "cuModuleLoadDataEx",
        "cuModuleGetFunction",
        "cuGraphAddKernelNode_v2",
        "cuGraphAddMemcpyNode",
        "cuGraphAddMemsetNode",
        "cuGraphAddChildGraphNode",
        "cuGraphInstantiateWithFlags",
    ],
)
def test_where_cuda_refuses_a_graph_another_engine_runs_it(program: Program, function: str) -> None:
    y, found = program.buffer(1), np.zeros(SIZE, np.int32)
    program.fake.fail(function, 218)

    def body() -> None:
        program.scale(y, 2, 1)
        cl.enqueue_copy(program.queue, found, y, is_blocking=False)
        cl.enqueue_fill_buffer(program.queue, y, np.arange(2, dtype=np.int32), 0, y.size)

    assert "CUDA" in find_refusal(program, body) or function
    assert (program.values(y), set(found)) == ([0, 1], {3})


@pytest.mark.parametrize("given", ["", "step"])
@pytest.mark.parametrize("waited", [True, False])
def test_a_kernel_that_fails_ends_the_engine_and_not_the_graph(
    program: Program,
    capfd: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    waited: bool,
    given: str,
) -> None:
    monkeypatch.setattr(command_buffer, "_said", set())
    y = program.buffer(1)
    line = sys._getframe().f_lineno + 1
    with capture(program.queue, name=given) as graph:
        program.scale(y, 2, 1)
    name = f'"{given}"' if given else f"captured at test_cuda_refusals.py:{line}"
    loop = graph.finalize()
    loop.replay(program.queue, wait=True)
    other, z = make_countdown(program)
    other.replay(program.queue, wait=True)
    program.fake.fail("cuStreamSynchronize", 700)
    queue = cl.CommandQueue(program.context)
    with pytest.raises((cl.Error, fairlead.OpenCLError)) as failure:
        loop.replay(queue, wait=waited).wait()
    named = f"a kernel of the graph {name} has ended CUDA's context: CUDA_ERROR_ILLEGAL_ADDRESS"
    if waited:
        assert named in str(failure.value) and "compute-sanitizer" in str(failure.value)
    now = program.values(y)[0]
    capfd.readouterr()
    other.replay(program.queue, wait=True)  # one that needs Python no more
    assert program.values(z) == [4]
    for _ in range(2):
        loop.replay(program.queue, wait=True)
    assert program.values(y) == [2 * (2 * now + 1) + 1]
    assert capfd.readouterr().err.count(f"fairlead: warning: {named}") == 1
    assert named in loop.explain(program.queue)
    with capture(program.queue) as another:
        program.scale(y, 0, 5)
    after = another.finalize()
    after.replay(program.queue, wait=True)
    assert program.values(y) == [5] and named in after.explain(program.queue)
