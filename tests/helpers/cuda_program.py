"""Kernels on PoCL whose buffers lie in the memory of the fake CUDA driver (tests/fake/cuda).

Its graphs really run, by functions that do what the kernels do.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pyopencl as cl

import fairlead
from fairlead.captured_graphs.context import capture
from fairlead.icd.drivers import platforms
from helpers.cuda import SOURCE, FakeCuda
from helpers.programs import build_once

SIZE = 64
PIXEL = cl.channel_order.RGBA, cl.channel_type.UNSIGNED_INT8
READ_WRITE = cl.mem_flags.READ_WRITE
COPIED = cl.mem_flags.COPY_HOST_PTR


class Program:
    """The kernels of `SOURCE` on PoCL, and buffers that are shared."""

    def __init__(self, fake: FakeCuda) -> None:
        (found,) = next(one for one in platforms() if "Portable" in one.name).devices
        self.fake, self.context = fake, cl.Context([found.to_pyopencl()])
        self.queue = cl.CommandQueue(self.context)
        self.program = build_once(self.context, SOURCE)

    def buffer(self, value: int = 0, flags: int = COPIED) -> cl.Buffer:
        """A buffer of `SIZE` numbers."""
        host = np.full(SIZE, value, np.int32)
        return cl.Buffer(self.context, READ_WRITE | flags, hostbuf=host)

    def values(self, buffer: cl.Buffer) -> list[int]:
        """The different numbers in a buffer, read through OpenCL."""
        host = np.empty(buffer.size // 4, np.int32)
        cl.enqueue_copy(self.queue, host, buffer)
        return sorted(set(host.tolist()))

    def scale(self, buffer: cl.Buffer, factor: Any, summand: Any, **how: Any) -> cl.Event:
        """Launch the kernel `scale`."""
        kernel = cl.Kernel(self.program, "scale")
        kernel.set_scalar_arg_dtypes([None, np.int32, np.int32])
        return kernel(how.pop("queue", self.queue), (SIZE,), None, buffer, factor, summand, **how)

    def total(self, to: cl.Buffer, source: cl.Buffer, **how: Any) -> cl.Event:
        """Launch the kernel `total`."""
        queue = how.pop("queue", self.queue)
        return cl.Kernel(self.program, "total")(queue, (SIZE,), None, to, source, **how)


def count_launches(program: Program, run: Callable[[], object]) -> int:
    """How many graphs CUDA launched in a call."""
    before = program.fake.calls("cuGraphLaunch")
    run()
    program.queue.finish()
    return program.fake.calls("cuGraphLaunch") - before


def find_refusal(program: Program, body: Callable[[], object]) -> str:
    """Why the engine `cuda` does not run what is captured in a call."""
    with capture(program.queue) as graph:
        body()
    loop = graph.finalize()
    loop.replay(program.queue, wait=True)
    (line,) = (one for one in loop.explain(program.queue).splitlines() if "  cuda" in one)
    return line.split("not chosen: ")[1]


def make_countdown(program: Program, **how: Any) -> tuple[Any, cl.Buffer]:
    """A graph that adds a Parameter, -1, to the numbers of a buffer, which are 6."""
    y, by = program.buffer(7), fairlead.Parameter(np.int32(-1), name="by")
    with capture(program.queue, **how) as graph:
        program.scale(y, 1, by)
    loop = graph.finalize()
    loop.replay(program.queue, wait=True)
    return loop, y
