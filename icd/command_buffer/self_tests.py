"""Self-tests of drivers: what engines do without the driver must give the driver's own results.

A self-test runs in a child process, once for each driver file. Its result is remembered like those
of probes (loader/base/probe_verdicts.py). If it fails, crashes, hangs or cannot run, the engine is
off.

`find_difference` is the test itself. Its kernel writes what work-items see: every id, size and
offset, values of several types, NULL, constant and local memory.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from typing import Any, Final, NamedTuple

from ...loader.base.children import Outcome, Request, run_all
from ...loader.base.frozen_value import Value
from ...loader.base.probe_verdicts import is_probing, judge
from ...loader.base.search import Candidate
from .._native import ffi, lib
from ..abi import OPENCL
from ..calls import build_program, call, create_context, get_address, make_queue
from ..errors import check
from .commands import CommandArray, CommandList
from .engine import BuiltCommands, QueueKind
from .engines.replay import Replay
from .queue_release import release_queue

_SECONDS: Final = 120.0  # it compiles kernels, on a machine that may be busy


class _SelfTestReport(Value):
    """What a self-test came to, as `judge` takes it."""

    candidate: Candidate
    ok: bool
    reason: str
    remedy: str
    probed: bool


def why_not_library(path: str, kind: str, module: str) -> str | None:
    """Why a driver's file is not trusted, None if its self-test has passed.

    Args:
        kind: what the verdict is remembered for, beside the file.
        module: the module whose `main` is the self-test.
    """
    return (
        judge_libraries((path,), kind, module)[path] if path else "the driver's file is not known"
    )


def judge_libraries(paths: Sequence[str], kind: str, module: str) -> dict[str, str | None]:
    """Return the same of several files. What is not known of them is tested side by side."""
    if not is_probing():
        return dict.fromkeys(paths, "FAIRLEAD_PROBE=0 forbids its self-test")
    candidates = {path: Candidate(path, "the driver of a device") for path in paths}
    refusals = judge(list(candidates.values()), lambda found: _run_tests(found, module), kind)
    reasons = {refused.library: refusal.reason for refused, refusal in refusals.items()}
    return {path: reasons.get(path) for path in paths}


def try_library(path: str, module: str) -> str | None:
    """Run the self-test of a driver's file anew; nothing is remembered.

    Args:
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

#: Offset, global size and local size of a launch.
Shape = tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]


class Local(NamedTuple):
    """An argument: local memory of so many bytes."""

    size: int


_WORDS: Final = 48  # that an item writes, of eight bytes
_SHAPES: Final[tuple[Shape, ...]] = (
    ((0, 0, 0), (24, 1, 1), (8, 1, 1)),
    ((5, 0, 0), (7, 1, 1), (1, 1, 1)),
    ((0, 0, 0), (6, 4, 1), (3, 2, 1)),
    ((1, 2, 3), (4, 6, 2), (2, 3, 2)),
    ((0, 0, 0), (3, 5, 2), (3, 5, 1)),
)
_MOST_ITEMS: Final = 64
_NOTHING: Final = bytes(_WORDS * 8 * _MOST_ITEMS)

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
    /* PoCL 5.0 and 6.0 abort on inline assembly */
#ifdef __x86_64__
    *o++ = __builtin_ia32_stmxcsr() & ~0x3fu;
#elif defined __aarch64__
    *o++ = __builtin_arm_rsr64("fpcr");
#endif
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
                theirs = run_built(Replay().build(commands, target), target, out, _NOTHING)
                if run_built(build(commands), target, out, _NOTHING) != theirs:
                    return f"results differ for {shape} {one}".rstrip()
    progress("ending")
    return ""


def _launch(target: QueueKind, kernel: int, out: int, table: int, shape: Shape) -> CommandList:
    values = (
        out,
        struct.pack("B", 201),
        struct.pack("Q", 0x0123456789ABCDEF),
        struct.pack("4f", 1.5, -2.0, 3.0, 0.25),
        bytes(range(1, 33)),
        table,
        bytes(8),
        Local(_MOST_ITEMS * 8),
    )
    commands = CommandArray()
    add_launch(commands, (), kernel, values, shape)
    return list_commands(commands, target)


def list_commands(commands: CommandArray, target: QueueKind) -> CommandList:
    """Return commands as engines take them."""
    return CommandList(target.context, [target.device], commands.array, commands.order, commands)


def add_launch(
    commands: CommandArray,
    dependencies: Sequence[int],
    kernel: int,
    values: Sequence[int | bytes | Local],
    shape: Shape,
) -> int:
    """Append a launch of a kernel. Returns its number.

    Args:
        dependencies: the numbers of the commands that it comes after.
        kernel: a handle.
        values: its arguments: memory objects (handles), bytes, or local memory.
        shape: offset, global size and local size.
    """
    offset, size, local = shape
    dimensions = max(i + 1 for i in range(3) if size[i] > 1 or i == 0)
    rows = [(number, *_make_argument(value)) for number, value in enumerate(values)]
    changes = ffi.new("fl_change[]", rows)
    arguments = lib.fl_change_arguments(ffi.NULL, len(rows), changes, len(rows))
    return commands.add(
        "kernel",
        dependencies,
        global_offset=offset,
        global_size=size,
        local_size=local,
        work_dim=dimensions,
        has_offset=True,
        has_local=True,
        kernel=kernel,
        arguments=arguments,
    )


def _make_argument(value: int | bytes | Local) -> tuple[int, int, Any]:
    if isinstance(value, int):
        return lib.FL_ARG_MEM, 8, ffi.new("uintptr_t *", value)
    if isinstance(value, bytes):
        return lib.FL_ARG_VALUE, len(value), ffi.new("unsigned char[]", value)
    return lib.FL_ARG_VALUE, value.size, ffi.NULL


def run_built(
    built: BuiltCommands, target: QueueKind, buffer: int, before: bytes, times: int = 1
) -> bytes:
    """Run what an engine has built, and close it. Returns what the buffer then has.

    Args:
        buffer: a handle.
    """
    queue = make_queue(target.context, target.device)
    try:
        data = ffi.new("unsigned char[]", before)
        size, failed = len(before), ffi.new("uint32_t *")
        for routine in ("clEnqueueWriteBuffer", "clEnqueueReadBuffer"):
            if routine == "clEnqueueReadBuffer":
                queues = ffi.new("void *[]", [ffi.cast("void *", queue)])
                run, run_self = built.native.enqueue, built.native.self
                check(run(run_self, queues, 1, times, 0, ffi.NULL, ffi.NULL, failed), "launch")
            code = call(queue, routine, buffer, 1, 0, size, get_address(data), 0, None, None)
            check(code, routine)
        return bytes(ffi.buffer(data, size))
    finally:
        built.close()
        release_queue(queue)


def make_kernel(program: int, name: str) -> int:
    """Return a kernel (a handle) of a program."""
    code = ffi.new("int32_t *")
    kernel = call(program, "clCreateKernel", name.encode(), get_address(code))
    check(code[0], "clCreateKernel")
    return kernel


@contextmanager
def _make_kernel(context: int, device: int, options: str) -> Iterator[int]:
    program = build_program(context, device, SOURCE, options.encode())
    kernel = make_kernel(program, "fairlead_everything")
    yield kernel
    call(kernel, "clReleaseKernel")
    call(program, "clReleaseProgram")


def make_buffer(context: int, size: int) -> int:
    """Return a buffer (a handle) of so many bytes."""
    code = ffi.new("int32_t *")
    buffer = call(context, "clCreateBuffer", 0, size, None, get_address(code))
    check(code[0], "clCreateBuffer")
    return buffer


@contextmanager
def _make_buffers(context: int) -> Iterator[tuple[int, int]]:
    """The buffer of results, and a table of four numbers."""
    code, numbers = ffi.new("int32_t *"), ffi.new("int32_t[]", [7, -5, 11, 1 << 30])
    copies = OPENCL["CL_MEM_COPY_HOST_PTR"]
    size = _WORDS * 8 * _MOST_ITEMS
    out = make_buffer(context, size)
    table = call(context, "clCreateBuffer", copies, 16, get_address(numbers), get_address(code))
    check(code[0], "clCreateBuffer")
    yield out, table
    call(table, "clReleaseMemObject")
    call(out, "clReleaseMemObject")
