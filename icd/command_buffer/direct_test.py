"""The self-test of the engine `direct`: the driver and direct calls must give equal results.

direct_trust.py runs `main` in a child process. The kernels write what a work-group function gets:
every id, size and offset, values of several types, NULL, constant and local memory, and the flags
of the floating point unit.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final

from ...loader.base.children import candidate_from
from .._native import ffi, lib
from ..abi import OPENCL
from ..calls import address, call, function_of, new_queue
from ..drivers import load
from ..errors import check
from ..pocl_kernels import version_of
from .commands import CommandArray, CommandList
from .direct_device import device_in
from .engine import QueueKind
from .engines.direct import BuiltDirect, Found
from .engines.replay import Replay
from .group_functions import GroupFunctions
from .leaving import leave

_WORDS: Final = 48  # that an item writes, of eight bytes
_SHAPES: Final = (  # offset, global size, local size
    ((0, 0, 0), (24, 1, 1), (8, 1, 1)),
    ((5, 0, 0), (7, 1, 1), (1, 1, 1)),
    ((0, 0, 0), (6, 4, 1), (3, 2, 1)),
    ((1, 2, 3), (4, 6, 2), (2, 3, 2)),
    ((0, 0, 0), (3, 5, 2), (3, 5, 1)),
)
_MOST_ITEMS: Final = 64

_SOURCE: Final = b"""
typedef struct { char a; int b; double2 c; } mixed;
kernel void fairlead_everything(global ulong *out, uchar small, ulong large, float4 four,
                                mixed both, constant int *table, global int *nothing,
                                local ulong *given) {
    local ulong own[64];
    size_t x = get_global_id(0) - get_global_offset(0), y = get_global_id(1) - get_global_offset(1);
    size_t z = get_global_id(2) - get_global_offset(2);
    size_t item = (z * get_global_size(1) + y) * get_global_size(0) + x;
    size_t inside = (get_local_id(2) * get_local_size(1) + get_local_id(1)) * get_local_size(0);
    inside += get_local_id(0);
    size_t others = get_local_size(0) * get_local_size(1) * get_local_size(2);
    global ulong *o = out + item * WORDS;
    for (uint i = 0; i < 4; i++) {
        *o++ = get_global_id(i); *o++ = get_local_id(i); *o++ = get_group_id(i);
        *o++ = get_global_size(i); *o++ = get_local_size(i);
        *o++ = get_num_groups(i); *o++ = get_global_offset(i);
    }
    *o++ = get_work_dim(); *o++ = small; *o++ = large; *o++ = as_uint(four.x + four.w);
    *o++ = both.a; *o++ = both.b; *o++ = as_ulong(both.c.y);
    *o++ = table[item % 4]; *o++ = nothing == 0;
    *o++ = (ulong)given % 128; *o++ = (ulong)own % 64;
    given[inside] = item; own[inside] = item * 3;
    barrier(CLK_LOCAL_MEM_FENCE);
    *o++ = given[others - 1 - inside]; *o++ = own[others - 1 - inside];
    uint flags;
    __asm__ volatile("stmxcsr %0" : "=m"(flags));
    *o++ = flags & ~0x3fu;
    *o++ = as_uint(as_float(3u) * four.y);
}
""".replace(b"WORDS", str(_WORDS).encode())


def main(data: dict[str, Any], progress: Callable[[str], None]) -> dict[str, Any]:
    """Called in the child, for the driver whose candidate's `asdict` is `data`."""
    progress("opening the library")
    platform = load(candidate_from(data)).platforms[0]
    progress("looking at its devices")
    cpus = [device for device in platform.devices if device.info("CL_DEVICE_TYPE") & _CPU]
    if version_of(platform.version) is None or not cpus:
        return {"difference": f"{platform.version} is not known, or it has no CPU"}
    return {"difference": difference(cpus[0].handle, platform.version, progress)}


_CPU: Final = OPENCL["CL_DEVICE_TYPE_CPU"]


def difference(device: int, platform_version: str, progress: Callable[[str], None]) -> str:
    """Return the first difference between the driver's results and those of direct calls, or "".

    Args:
        device: a handle.
        platform_version: CL_PLATFORM_VERSION of its platform.
        progress: called with the next step.

    Raises:
        OpenCLError, PoclBinaryError: the driver or its binaries are not as they should be.
    """
    version = version_of(platform_version)
    assert version is not None
    code, devices = ffi.new("int32_t *"), ffi.new("uintptr_t[]", [device])
    create = function_of(device, "clCreateContext")
    context = create(None, 1, address(devices), None, None, address(code))
    check(code[0], "clCreateContext")
    target, known = QueueKind(context, device, 0), device_in(context, device, False)
    for options in (b"", b"-cl-denorms-are-zero"):
        progress(f"compiling its kernel {options.decode()}")
        with _kernel(context, device, options) as kernel, _buffers(context) as (out, table):
            found = Found(known, GroupFunctions([kernel], device, version))
            if found.functions.why_not:
                return found.functions.why_not[kernel]
            for shape in _SHAPES:
                progress(f"running {shape} {options.decode()}")
                commands = _launch(target, kernel, out, table, shape)
                theirs = _result(Replay().build(commands, target), target, out)
                ours = _result(BuiltDirect(commands, target, found), target, out)
                if ours != theirs:
                    return f"results differ for {shape} {options.decode()}".rstrip()
    progress("ending")
    return ""


def _launch(
    target: QueueKind, kernel: int, out: int, table: int, shape: tuple[tuple[int, ...], ...]
) -> CommandList:
    offset, size, local = shape
    dimensions = max(i + 1 for i in range(3) if size[i] > 1 or i == 0)
    values = {
        0: (lib.FL_ARG_MEM, ffi.new("uintptr_t *", out)),
        1: (lib.FL_ARG_VALUE, ffi.new("uint8_t *", 201)),
        2: (lib.FL_ARG_VALUE, ffi.new("uint64_t *", 0x0123456789ABCDEF)),
        3: (lib.FL_ARG_VALUE, ffi.new("float[4]", [1.5, -2.0, 3.0, 0.25])),
        4: (lib.FL_ARG_VALUE, ffi.new("unsigned char[]", bytes(range(1, 33)))),
        5: (lib.FL_ARG_MEM, ffi.new("uintptr_t *", table)),
        6: (lib.FL_ARG_VALUE, ffi.new("uintptr_t *", 0)),
    }
    sizes = {0: 8, 1: 1, 2: 8, 3: 16, 4: 32, 5: 8, 6: 8}
    rows = [(i, kind, sizes[i], value) for i, (kind, value) in values.items()]
    rows.append((7, lib.FL_ARG_VALUE, _MOST_ITEMS * 8, ffi.NULL))
    changes = ffi.new("fl_change[]", rows)
    arguments = lib.fl_change_arguments(ffi.NULL, len(rows), changes, len(rows))
    commands = CommandArray()
    commands.add(
        "kernel",
        (),
        (*offset, *size, *local),
        work_dim=dimensions,
        has_offset=True,
        has_local=True,
        kernel=kernel,
        arguments=arguments,
    )
    return CommandList(target.context, [target.device], commands.array, commands.order, commands)


def _result(built: Any, target: QueueKind, out: int) -> bytes:
    """What a launch writes: it is enqueued once, and read after it."""
    queue = new_queue(target.context, target.device)
    try:
        data = ffi.new("unsigned char[]", _WORDS * 8 * _MOST_ITEMS)
        size, failed = len(data), ffi.new("uint32_t *")
        for routine in ("clEnqueueWriteBuffer", "clEnqueueReadBuffer"):
            if routine == "clEnqueueReadBuffer":
                lanes = ffi.new("void *[]", [ffi.cast("void *", queue)])
                native = built.native
                check(
                    native.enqueue(native.self, lanes, 1, 1, 0, ffi.NULL, ffi.NULL, failed),
                    "launch",
                )
            code = call(queue, routine, out, 1, 0, size, address(data), 0, None, None)
            check(code, routine)
        return bytes(ffi.buffer(data))
    finally:
        built.close()
        leave(queue)


@contextmanager
def _kernel(context: int, device: int, options: bytes) -> Iterator[int]:
    source, code = ffi.new("char[]", _SOURCE), ffi.new("int32_t *")
    sources, devices = ffi.new("char *[]", [source]), ffi.new("uintptr_t[]", [device])
    program = call(context, "clCreateProgramWithSource", 1, address(sources), None, address(code))
    check(code[0], "clCreateProgramWithSource")
    built = call(program, "clBuildProgram", 1, address(devices), options, None, None)
    check(built, "clBuildProgram")
    kernel = call(program, "clCreateKernel", b"fairlead_everything", address(code))
    check(code[0], "clCreateKernel")
    yield kernel
    call(kernel, "clReleaseKernel")
    call(program, "clReleaseProgram")


@contextmanager
def _buffers(context: int) -> Iterator[tuple[int, int]]:
    """The buffer of results, and a table of four numbers."""
    code, numbers = ffi.new("int32_t *"), ffi.new("int32_t[]", [7, -5, 11, 1 << 30])
    copies = OPENCL["CL_MEM_COPY_HOST_PTR"]
    size = _WORDS * 8 * _MOST_ITEMS
    out = call(context, "clCreateBuffer", 0, size, None, address(code))
    check(code[0], "clCreateBuffer")
    table = call(context, "clCreateBuffer", copies, 16, address(numbers), address(code))
    check(code[0], "clCreateBuffer")
    yield out, table
    call(table, "clReleaseMemObject")
    call(out, "clReleaseMemObject")
