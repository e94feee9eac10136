"""Calls about small buffers, shared with CUDA and not: `python -m bench.buffer_calls`.

The calls are a C program's. What CUDA needs for a piece of memory is beside them: it is paid once
for a slab of 128 buffers. Without NVIDIA's driver the calls of any other driver are measured.
"""

from __future__ import annotations

import ctypes
import json
import os
import runpy
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

_ROOT: Final = Path(__file__).parents[1]
_INSIDE: Final = "FAIRLEAD_BENCH_BUFFERS"
#: The lines, in the order of buffer_calls.c.
LINES: Final = (
    *("clCreateBuffer", "clReleaseMemObject of it"),
    *("clCreateSubBuffer", "clReleaseMemObject of it, with a callback"),
    *("clSetMemObjectDestructorCallback", "clGetContextInfo"),
)


def calls(context: int) -> dict[str, float]:
    """Return µs of each call.

    Args:
        context: a cl_context.
    """
    with TemporaryDirectory() as folder:
        header = runpy.run_path(str(_ROOT / "icd/native/build.py"))["emit_header"]()
        Path(folder, "opencl_abi.h").write_text(header, encoding="utf-8")
        library = Path(folder, "buffer_calls.so")
        options = ["-std=gnu11", "-O2", "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC"]
        source = str(Path(__file__).with_name("buffer_calls.c"))
        compiler = os.environ.get("CC", "cc").split()
        command = [*compiler, *options, f"-I{folder}", source, "-o", str(library)]
        subprocess.run(command, check=True)
        figures = (ctypes.c_double * len(LINES))()
        code = ctypes.CDLL(str(library)).measure(ctypes.c_void_p(context), figures)
    if code:
        sys.exit(f"a call failed: {code}")
    return {name: value / 1e3 for name, value in zip(LINES, figures, strict=True)}


def pieces(times: int = 20) -> Iterator[tuple[str, float]]:
    """Yield what CUDA needs for a piece of memory that is exported, in µs."""
    import fairlead
    from fairlead.loader.cuda.abi import CUDA, check

    table = fairlead.cuda().table
    context, handle, address = ctypes.c_void_p(), ctypes.c_uint64(), ctypes.c_uint64()
    descriptor, size = ctypes.c_int(), 2 << 20
    kind, access = CUDA.get_struct("CUmemAllocationProp")(), CUDA.get_struct("CUmemAccessDesc")()
    kind.type, kind.requestedHandleTypes, kind.location.type = 1, 1, 1
    access.location.type, access.flags = 1, 3
    least: dict[str, float] = {}

    def call(name: str, *given: Any) -> None:
        begin = time.perf_counter()
        check(getattr(table, name)(*given), name)
        took = (time.perf_counter() - begin) * 1e6
        least[name] = min(took, least.get(name, took))

    call("cuInit", 0)
    call("cuDevicePrimaryCtxRetain", ctypes.byref(context), 0)
    call("cuCtxPushCurrent_v2", context)
    for _ in range(times):
        call("cuMemCreate", ctypes.byref(handle), size, ctypes.byref(kind), 0)
        call("cuMemAddressReserve", ctypes.byref(address), size, 0, 0, 0)
        call("cuMemMap", address, size, 0, handle, 0)
        call("cuMemSetAccess", address, size, ctypes.byref(access), 1)
        call("cuMemExportToShareableHandle", ctypes.byref(descriptor), handle, 1, 0)
        os.close(descriptor.value)
        call("cuMemUnmap", address, size)
        call("cuMemAddressFree", address, size)
        call("cuMemRelease", handle)
    yield from ((name, value) for name, value in least.items() if name.startswith("cuMem"))


def inside() -> dict[str, float]:
    """Return `calls` in this process."""
    import pyopencl as cl

    import fairlead

    found = fairlead.platforms()
    chosen = next((one for one in found if "NVIDIA" in one.name), found[0])
    context = cl.Context([chosen.devices[0].to_pyopencl()])
    return calls(context.int_ptr)


def main() -> None:
    """Measure in a process each, and print."""
    if os.environ.get(_INSIDE):
        print(json.dumps(inside()))
        return
    for shared in ("0", "1", "0", "1"):
        environment = {**os.environ, _INSIDE: "1", "FAIRLEAD_CUDA": shared}
        command = [sys.executable, "-m", "bench.buffer_calls"]
        done = subprocess.run(
            command, env=environment, check=True, stdout=subprocess.PIPE, text=True
        )
        print("shared" if shared == "1" else "not shared")
        for name, value in json.loads(done.stdout.splitlines()[-1]).items():
            print(f"    {name}: {value:.2f} µs")
    try:
        for name, value in pieces():
            print(f"{name}: {value:.0f} µs")
    except Exception as error:  # without CUDA the rest is of use
        print(error)


if __name__ == "__main__":
    main()
