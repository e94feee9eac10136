"""Self-tests of drivers: what engines do without the driver must give the driver's own results.

A self-test runs in a child process, once for each driver file. Its result is remembered like those
of probes (loader/base/probe_verdicts.py). If it fails, crashes, hangs or cannot run, the engine is
off.

`find_difference` is the test itself. Its kernel writes what work-items see: every id, size and
offset, values of several types, NULL, constant and local memory.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from typing import Any, Final

from ...loader.base.children import Outcome, Request, run_all
from ...loader.base.probe_verdicts import judge
from ...loader.base.search import Candidate, filter_environ
from .._native import ffi, lib
from ..abi import OPENCL
from ..calls import build_program, call, create_context, get_address, make_queue
from ..errors import check
from .commands import CommandArray, CommandList
from .engine import BuiltCommands, QueueKind
from .engines.replay import Replay
from .queue_release import release_queue

_SECONDS: Final = 60.0  # it compiles kernels, on a machine that may be busy


@dataclass(frozen=True)
class _SelfTestReport:
    """What a self-test came to, as `judge` takes it."""

    candidate: Candidate
    ok: bool
    reason: str
    remedy: str
    probed: bool


def why_not_library(path: str, kind: str, module: str) -> str | None:
    """Why a driver's file is not trusted, None if its self-test has passed.

    Args:
        path: of the file.
        kind: what the verdict is remembered for, beside the file.
        module: the module whose `main` is the self-test.
    """
    if not path:
        return "the driver's file is not known"
    if filter_environ().get("FAIRLEAD_PROBE") == "0":
        return "FAIRLEAD_PROBE=0 forbids its self-test"
    candidate = Candidate(path, "the driver of a device", None)
    refusals = judge((candidate,), lambda found: _run_tests(found, module), kind)
    return refusals[candidate].reason if refusals else None


def try_library(path: str, module: str) -> str | None:
    """Run the self-test of a driver's file anew; nothing is remembered.

    Args:
        path: of the file.
        module: the module whose `main` is the self-test.

    Returns:
        Why it is not trusted, None if it is.
    """
    (report,) = _run_tests((Candidate(path, "the driver of a device", None),), module)
    return report.reason or None


def _run_tests(candidates: Sequence[Candidate], module: str) -> list[_SelfTestReport]:
    outcomes = run_all([Request(module, asdict(one)) for one in candidates], _SECONDS)
    return [_report(*both) for both in zip(candidates, outcomes, strict=True)]


def _report(candidate: Candidate, outcome: Outcome) -> _SelfTestReport:
    found = outcome.report
    reason = (
        "its self-test did not run" if not outcome.probed else f"its self-test: {outcome.reason}"
    )
    if found is not None:
        reason = f"its self-test: {found['difference']}" if found["difference"] else ""
    if not outcome.probed:
        reason = "; ".join((reason, *outcome.notes))
    return _SelfTestReport(
        candidate, not reason, reason, "the other engines do its work", outcome.probed
    )


# The test

#: Makes what runs commands without the driver, for a kernel (a handle).
Builder = Callable[[int], Callable[[CommandList], BuiltCommands]]

_WORDS: Final = 48  # that an item writes, of eight bytes
_SHAPES: Final = (  # offset, global size, local size
    ((0, 0, 0), (24, 1, 1), (8, 1, 1)),
    ((5, 0, 0), (7, 1, 1), (1, 1, 1)),
    ((0, 0, 0), (6, 4, 1), (3, 2, 1)),
    ((1, 2, 3), (4, 6, 2), (2, 3, 2)),
    ((0, 0, 0), (3, 5, 2), (3, 5, 1)),
)
_MOST_ITEMS: Final = 64

#: With HOST it also writes what only the host's memory and processor have.
SOURCE: Final = b"""
typedef struct { char a; int b; double2 c; } mixed;
#ifndef HOST
constant int primes[4] = {2, 3, 5, 7};
__attribute__((noinline)) ulong where(uint i) {
    return get_global_id(0) * 1000 + get_work_dim() * 10 + primes[i % 4];
}
#endif
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
    given[inside] = item; own[inside] = item * 3;
    barrier(CLK_LOCAL_MEM_FENCE);
    *o++ = given[others - 1 - inside]; *o++ = own[others - 1 - inside];
    *o++ = as_uint(as_float(3u) * four.y);
#ifdef HOST
    *o++ = (ulong)given % 128; *o++ = (ulong)own % 64;
    *o++ = __builtin_ia32_stmxcsr() & ~0x3fu;  /* PoCL 5.0 and 6.0 abort on inline assembly */
#else
    *o++ = where(inside);
#endif
}
""".replace(b"WORDS", str(_WORDS).encode())


def find_difference(
    device: int, options: Iterable[str], builder_in: Callable[[int], Builder], progress: Any
) -> str:
    """Return the first difference between the driver's results and an engine's, or "".

    Args:
        device: a handle.
        options: what the kernel is built with, one after the other.
        builder_in: what makes the engine's launches in a context, a handle.
        progress: called with the next step.

    Raises:
        FairleadError: the driver, or what the engine needs of it, is not as it should be.
    """
    context = create_context(device)
    target, builder = QueueKind(context, device, 0), builder_in(context)
    for one in options:
        progress(f"compiling its kernel {one}")
        with _make_kernel(context, device, one) as kernel, _make_buffers(context) as (out, table):
            build = builder(kernel)
            for shape in _SHAPES:
                progress(f"running {shape} {one}")
                commands = _launch(target, kernel, out, table, shape)
                theirs = _run_launch(Replay().build(commands, target), target, out)
                ours = _run_launch(build(commands), target, out)
                if ours != theirs:
                    return f"results differ for {shape} {one}".rstrip()
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
        global_offset=offset,
        global_size=size,
        local_size=local,
        work_dim=dimensions,
        has_offset=True,
        has_local=True,
        kernel=kernel,
        arguments=arguments,
    )
    return CommandList(target.context, [target.device], commands.array, commands.order, commands)


def _run_launch(built: BuiltCommands, target: QueueKind, out: int) -> bytes:
    """What a launch writes: it is enqueued once, and read after it."""
    queue = make_queue(target.context, target.device)
    try:
        data = ffi.new("unsigned char[]", _WORDS * 8 * _MOST_ITEMS)
        size, failed = len(data), ffi.new("uint32_t *")
        for routine in ("clEnqueueWriteBuffer", "clEnqueueReadBuffer"):
            if routine == "clEnqueueReadBuffer":
                queues = ffi.new("void *[]", [ffi.cast("void *", queue)])
                native = built.native
                check(
                    native.enqueue(native.self, queues, 1, 1, 0, ffi.NULL, ffi.NULL, failed),
                    "launch",
                )
            code = call(queue, routine, out, 1, 0, size, get_address(data), 0, None, None)
            check(code, routine)
        return bytes(ffi.buffer(data))
    finally:
        built.close()
        release_queue(queue)


@contextmanager
def _make_kernel(context: int, device: int, options: str) -> Iterator[int]:
    program = build_program(context, device, SOURCE, options.encode())
    code = ffi.new("int32_t *")
    kernel = call(program, "clCreateKernel", b"fairlead_everything", get_address(code))
    check(code[0], "clCreateKernel")
    yield kernel
    call(kernel, "clReleaseKernel")
    call(program, "clReleaseProgram")


@contextmanager
def _make_buffers(context: int) -> Iterator[tuple[int, int]]:
    """The buffer of results, and a table of four numbers."""
    code, numbers = ffi.new("int32_t *"), ffi.new("int32_t[]", [7, -5, 11, 1 << 30])
    copies = OPENCL["CL_MEM_COPY_HOST_PTR"]
    size = _WORDS * 8 * _MOST_ITEMS
    out = call(context, "clCreateBuffer", 0, size, None, get_address(code))
    check(code[0], "clCreateBuffer")
    table = call(context, "clCreateBuffer", copies, 16, get_address(numbers), get_address(code))
    check(code[0], "clCreateBuffer")
    yield out, table
    call(table, "clReleaseMemObject")
    call(out, "clReleaseMemObject")
