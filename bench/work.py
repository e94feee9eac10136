"""What measures work with: this process's one driver, and many tiny launches with new arguments."""

from __future__ import annotations

import ctypes
import os
import subprocess
import warnings
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pyopencl as cl

import fairlead
from fairlead.icd.abi import OPENCL

warnings.filterwarnings(
    "ignore", category=cl.CompilerWarning
)  # some drivers print a line for every program

WORK_ITEMS = 64
_BUFFERS = 8
_ENGINES = "FAIRLEAD_COMMAND_BUFFER"
_SOURCE = """
kernel void add(global float *a, global const float *b, float s) {
    size_t i = get_global_id(0);
    a[i] += s * b[i];
}
"""


def finalize_for(graph: Any, engines: str) -> Any:
    """Finalize a captured graph for engines that FAIRLEAD_COMMAND_BUFFER can name."""
    before = os.environ.get(_ENGINES)
    os.environ[_ENGINES] = engines
    try:
        return graph.finalize()
    finally:
        if before is None:
            del os.environ[_ENGINES]
        else:
            os.environ[_ENGINES] = before


def device() -> Any:
    """Return the first device of the process's first platform. The process has one driver only."""
    return fairlead.devices()[0]


@cache
def _context() -> Any:
    """Return the context, which lives as long as the process.

    Some drivers call a context invalid that only a queue refers to.
    """
    return cl.Context([device().to_pyopencl()])


def make_queue(out_of_order: bool = False) -> Any:
    """Make a pyopencl.CommandQueue on `device()`."""
    properties: Any = (
        cl.command_queue_properties.OUT_OF_ORDER_EXEC_MODE_ENABLE if out_of_order else 0
    )
    return cl.CommandQueue(_context(), properties=properties)


class Launches:
    """`count` launches of `a[i] += s * b[i]` over 64 work-items.

    No two consecutive ones have the same arguments. They write to `targets` buffers in turn. With
    as many buffers as launches no two write to the same one, so they need no order.
    """

    def __init__(self, queue: Any, count: int, targets: int = _BUFFERS) -> None:
        self.queue, self.count = queue, count
        self._program = cl.Program(
            queue.context, _SOURCE
        ).build()  # kept: some drivers call a program invalid that only its kernels refer to
        self.kernel, self.typed_kernel = (
            cl.Kernel(self._program, "add"),
            cl.Kernel(self._program, "add"),
        )
        self.typed_kernel.set_scalar_arg_dtypes([None, None, np.float32])
        random = np.random.default_rng(1).random((targets + _BUFFERS, WORK_ITEMS), np.float32)
        flags = cl.mem_flags.READ_WRITE | cl.mem_flags.COPY_HOST_PTR
        self._buffers = [cl.Buffer(queue.context, flags, hostbuf=row) for row in random]
        self._first = random[0].nbytes
        self._targets, sources = self._buffers[:targets], self._buffers[targets:]
        self.arguments = [
            (
                self._targets[i % targets],
                sources[i * 3 % (_BUFFERS - 1)],
                np.float32(1e-3 * (1 + i % 97)),
            )
            for i in range(count)
        ]

    def call(self) -> None:
        """Enqueue the launches, as a PyOpenCL program writes them, without a wait."""
        kernel, queue = self.kernel, self.queue
        for a, b, s in self.arguments:
            kernel(queue, (WORK_ITEMS,), (WORK_ITEMS,), a, b, s)

    def call_and_finish(self) -> None:
        """Enqueue the launches and wait for the last."""
        self.call()
        self.queue.finish()

    def call_typed(self) -> None:
        """Enqueue the launches of a program that told PyOpenCL its argument types.

        PyOpenCL then sets a number much faster.
        """
        kernel, queue = self.typed_kernel, self.queue
        for a, b, s in self.arguments:
            kernel(queue, (WORK_ITEMS,), (WORK_ITEMS,), a, b, s)
        queue.finish()

    def result_of(self, action: Any) -> bytes:
        """Return the bytes of the buffers after `action` on zeros.

        All actions must give the same bytes.
        """
        for buffer in self._targets:
            cl.enqueue_fill_buffer(self.queue, buffer, np.zeros(1, np.float32), 0, self._first)
        self.queue.finish()
        action()
        rows = np.empty((len(self._targets), WORK_ITEMS), np.float32)
        for row, buffer in zip(rows, self._targets, strict=True):
            cl.enqueue_copy(self.queue, row, buffer)
        return rows.tobytes()

    def clones(self) -> list[Any]:
        """Make a kernel for each launch and set its arguments, by clCloneKernel where the driver
        has it."""
        made = []
        for arguments in self.arguments:
            self.kernel.set_args(*arguments)
            try:
                kernel = self.kernel.clone()
            except (cl.Error, AttributeError):
                kernel = cl.Kernel(self.kernel.program, "add")
                kernel.set_args(*arguments)
            made.append(kernel)
        return made


def check_same(launches: Launches, **actions: Any) -> None:
    """Stop unless every action leaves the same bytes in the buffers as the PyOpenCL calls do."""
    expected = launches.result_of(launches.call_and_finish)
    for name, action in actions.items():
        if launches.result_of(action) != expected:
            raise SystemExit(f"{name} does not compute what the PyOpenCL calls compute")


@cache
def c_loop() -> ctypes.CDLL:
    """Return c_loop.c, compiled."""
    return compiled("c_loop.c", "-O2")


@cache
def two_threads() -> ctypes.CDLL:
    """Return two_threads.c, compiled for this processor."""
    return compiled("two_threads.c", "-O3", "-march=native", "-pthread")


@cache
def ze_lists() -> ctypes.CDLL:
    """Return ze_lists.c, compiled."""
    return compiled("ze_lists.c", "-O2")


def compiled(name: str, *options: str) -> ctypes.CDLL:
    """Return a C file of this folder, compiled."""
    with TemporaryDirectory() as folder:
        library = Path(folder, "library.so")
        source = Path(__file__).with_name(name)
        subprocess.run(["cc", *options, "-shared", "-fPIC", "-o", library, source], check=True)
        return ctypes.CDLL(str(library))


def driver_function(name: str) -> ctypes.c_void_p:
    """Return a pointer to the driver's own function, from its dispatch table."""
    slot = OPENCL.functions[name].slot
    assert slot is not None
    return ctypes.c_void_p(device().table.get_pointer(slot))
