"""Launches over the same items become one kernel, and give the same bits.

Each program runs three times: by PyOpenCL's calls, replayed as captured, and replayed with fusion.
"""

from __future__ import annotations

import random
import re
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyopencl as cl
import pyopencl.array as cl_array
import pytest
from helpers.fusion_programs import list_plans
from pyopencl.elementwise import ElementwiseKernel

from fairlead import noted_programs
from fairlead.captured_graphs.context import capture
from fairlead.captured_graphs.executable import Executable
from fairlead.captured_graphs.pyopencl_client import ArgumentError, find_sources
from fairlead.icd.command_buffer.rewrites import kernels as kernels_read
from fairlead.icd.command_buffer.rewrites import launches

SOURCE = """
constant float table[2] = {0.5f, 3.0f};
float helper(float x) { return x * table[0]; }
kernel void half_of(global const float *x, global float *out) {
    size_t i = get_global_id(0);
    out[i] = helper(x[i]);
}
kernel void next_of(global const float *x, global float *out) {
    size_t i = get_global_id(0);
    out[i] = x[i + 1 < get_global_size(0) ? i + 1 : 0] + 1.0f;
}
kernel void neighbours(global const float *x, global float *out, int n) {
    int i = get_global_id(0);
    out[i] = x[i > 0 ? i - 1 : i] + x[i < n - 1 ? i + 1 : i];
}
kernel void running_sum(global float *x, int n) {
    for (int i = get_global_id(0); i < n; i += get_global_size(0))
        if (i > 0)
            x[i] = x[i] + x[i - 1];
}
kernel void kept(global const float *x, global float *out, int n) {
    float before = 0.0f;
    for (int i = get_global_id(0); i < n; i += get_global_size(0)) {
        out[i] = x[i] + before;
        before = x[i];
    }
}
kernel void some(global float *out, int n) {
    if (get_local_id(0) > 3)
        return;
    for (int i = get_global_id(0); i < n; i += get_global_size(0))
        out[i] += 1.0f;
}
kernel void who(global float *out) { out[get_global_id(0)] = get_local_id(0) + get_group_id(0); }
"""
OTHER = """
float helper(float x) { return x + 7.0f; }
kernel void seven_more(global const float *x, global float *out) {
    size_t i = get_global_id(0);
    out[i] = helper(x[i]);
}
"""
SIZES = (1, 127, 128, 1000)


def _fused(loop: Executable) -> list[str]:
    """Return the sources of a graph's fused kernels."""
    segments = loop._list_captured_segments()
    found: list[Any] = [one._buffer.plans.rewriting for one in segments]
    return [source for one in found for source in dict.fromkeys(one.wait().sources.values())]


class Arrays:
    """Arrays of random numbers, and a program with them.

    Args:
        queue: where it runs.
        size: of the arrays.
        kind: of their elements.
    """

    def __init__(self, queue: cl.CommandQueue, size: int, kind: Any = np.float32) -> None:
        self.queue, made = queue, np.random.default_rng(size)
        if np.issubdtype(kind, np.integer):
            numbers = [made.integers(1, 100, size).astype(kind) for _ in range(3)]
        else:
            numbers = [(made.random(size) + 0.5).astype(kind) for _ in range(3)]
        self.inputs = [cl_array.to_device(queue, one) for one in numbers]
        self._before = numbers

    def reset(self) -> None:
        """Give the arrays their first contents."""
        for array, before in zip(self.inputs, self._before, strict=True):
            array.set(before)

    def read(self, outputs: list[Any]) -> list[bytes]:
        """Return the bytes of the arrays, and of a program's results."""
        return [one.get().tobytes() for one in (*self.inputs, *outputs)]


def list_unwritten(source: str) -> set[str]:
    """Return the variables of a fused kernel whose values no memory gets.

    On GPUs values that are written are in variables, too (rewrites/isolation.py).
    """
    return set(re.findall(r"^ *\w+ (fl_own_\d+);$", source, re.MULTILINE)) - set(
        re.findall(r"^ *\*\(global .* = (fl_own_\d+);$", source, re.MULTILINE)
    )


def check(arrays: Arrays, program: Callable[..., list[Any]], *, is_fused: bool = True) -> list[str]:
    """Run a program by calls, as captured, and fused. Returns the sources of its fused kernels.

    There are none if Intel's driver has forgotten the options of PyOpenCL's arrays. It has, if
    another test made their kernels before fairlead noted options.
    """
    expected = arrays.read(program(*arrays.inputs))
    arrays.reset()
    with capture(arrays.queue) as graph:
        outputs = program(*arrays.inputs)
    sources: list[str] = []
    for fuse in ("wait", False):  # memory that only the graph has must not be held by another loop
        loop, replays = graph.finalize(fuse=fuse), 0
        while not replays or replays < len(list_plans(loop)):  # each plan has its turn
            arrays.reset()
            for one in outputs:
                if all(one is not array for array in arrays.inputs):
                    one.fill(0)
            loop.replay(arrays.queue)
            replays += 1
            assert arrays.read(outputs) == expected, (fuse, list_plans(loop), replays)
        sources += _fused(loop) if fuse else []
        assert not fuse or ("fused" in list_plans(loop)) == bool(sources)
        if fuse and is_fused and not sources:
            lines = loop.explain(arrays.queue)
            assert "does not tell its build options" in lines, lines
            pytest.skip("the driver does not tell the build options of PyOpenCL's arrays")
    return sources


@pytest.mark.parametrize(
    ("kind", "size"), [(np.float32, 1000), (np.int32, 127), (np.int16, 128), (np.float64, 1)]
)
def test_array_operations_become_one_kernel(queue: cl.CommandQueue, kind: Any, size: int) -> None:
    def program(x: Any, y: Any, z: Any) -> list[Any]:
        first = x * y + z
        second = first - x
        second *= first
        return [second + second * y]

    (source,) = check(Arrays(queue, size, kind), program)
    assert source.count("kernel void") == 1
    assert "fl_own_0" in source, "what only the graph has is in variables"


_EITHER = """
#if {}
x[get_global_id(0)] += 1;
#else
x[get_global_id(0)] = 7;
#endif
"""
_STRIDES = "for (int i = get_global_id(0){}; i < n; i += {}) {{ x[i] += {}; }}"


@pytest.mark.parametrize(
    ("outside", "inside"),
    [
        ("", _STRIDES.format(", k = 0", "get_global_size(0)", "k++")),
        ("", _STRIDES.format(", k = get_group_id(0)", "get_global_size(0)", "k")),
        (
            "",
            "int2 k = 0; k[0] = get_group_id(0);"
            + _STRIDES.format("", "get_global_size(0)", "k.x"),
        ),
        (
            "size_t step(int *k) { return (*k)++ < 0 ? get_global_size(0) : get_global_size(0); }",
            "int k = 0;" + _STRIDES.format("", "step(&k)", "k"),
        ),
        (
            "int next(int *k) { return (*k)++; }",
            "int k = 0, *to = &k;" + _STRIDES.format("", "get_global_size(0)", "next(to)"),
        ),
        ("", "x[get_global_id(0)] += __LINE__;"),
        ("", "x[get_global_id(0)] += __COUNTER__;"),
        ("", "x[get_global_id(0)] += sizeof(__func__);"),
        (
            '_Pragma("OPENCL FP_CONTRACT OFF")',
            "int i = get_global_id(0); x[i] = x[i] * y[i] + z[i];",
        ),
        ("#pragma clang fp contract(off)", "int i = get_global_id(0); x[i] = x[i] * y[i] + z[i];"),
        ("", "typedef uchar T; ((global T *)x)[get_global_id(0)] += 1;"),
        ("", "struct S { uchar k; }; ((global struct S *)x)[get_global_id(0)].k += 1;"),
        ("", "x[get_global_id(0)] += 1; // goes on \\ \nx[get_global_id(0)] += 5;\n"),
        ("", "x[get_global_id(0)] += 1; // goes on ??/\nx[get_global_id(0)] += 5;\n"),
        *(
            ("", _EITHER.format(one))
            for one in ("-1 > 0u", "defined as_float", "defined cl_khr_icd")
        ),
        ("", _EITHER.format("defined UCHAR_MAX")),
    ],
)
def test_programs_that_read_otherwise(queue: cl.CommandQueue, outside: str, inside: str) -> None:
    """Kernels that a fused program could change, before one that changes the same elements."""
    named = "typedef uint T; struct S { uint k; };" * ("typedef" in inside or "struct" in inside)
    arguments = "global float *x, global const float *y, global const float *z, int n"
    source = f"""{outside}
        kernel void first(global float *x, global const float *y, global const float *z, int n) {{
            {inside}
        }}
        {named}
        kernel void second({arguments}) {{
            int i = get_global_id(0);
            x[i] = x[i] * y[i] - z[i];
        }}"""
    built = cl.Program(queue.context, source).build()
    kernels = built.first, built.second

    def program(*arrays: Any) -> list[Any]:
        for kernel, size in zip(kernels, (16 if "for" in inside else 64, 64), strict=True):
            kernel(queue, (size,), (4,), *(one.data for one in arrays), np.int32(64))
        return []

    check(Arrays(queue, 64), program, is_fused=False)


@pytest.mark.parametrize("is_edited", [False, True])
def test_a_file_that_a_program_includes(
    queue: cl.CommandQueue, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_edited: bool
) -> None:
    """A text that fairlead has read may be another one when a program is built again."""
    (tmp_path / "by.h").write_text("#define BY 3", encoding="utf-8")
    if not is_edited:  # as if it was there before Python began
        monkeypatch.setattr(
            kernels_read, "_find_start", lambda: (tmp_path / "by.h").stat().st_ctime + 1
        )
    source = """#include "by.h"
        kernel void add(global float *x) { x[get_global_id(0)] += BY; }
        kernel void times(global float *x) { x[get_global_id(0)] *= BY; }"""
    for number in range(1 + is_edited):
        if number:
            (tmp_path / "by.h").write_text("#define BY 5", encoding="utf-8")
        built = cl.Program(queue.context, source).build(["-I", str(tmp_path)])
        kernels = built.add, built.times

        def program(x: Any, *_: Any, kernels: Any = kernels) -> list[Any]:
            for kernel in kernels:
                kernel(queue, (64,), None, x.data)
            return []

        assert bool(check(Arrays(queue, 64), program, is_fused=False)) == (not is_edited)


def test_a_part_of_memory_that_only_the_graph_has(queue: cl.CommandQueue) -> None:
    """The program sees the memory through a part of it, also where drivers do not count that."""
    source = """
        kernel void first(global const float *x, global float *z) {
            z[get_global_id(0)] = x[get_global_id(0)] * 3;
        }
        kernel void second(global const float *z, global float *x) {
            x[get_global_id(0)] = z[get_global_id(0)] + 1;
        }"""
    built = cl.Program(queue.context, source).build()
    kernels = built.first, built.second

    def program(x: Any, y: Any, z: Any) -> list[Any]:
        whole = cl.Buffer(queue.context, cl.mem_flags.READ_WRITE, x.nbytes)
        kernels[0](queue, (64,), None, x.data, whole)
        kernels[1](queue, (64,), None, whole, x.data)
        part = whole.get_sub_region(0, x.nbytes // 2)
        return [cl_array.Array(queue, 32, x.dtype, data=part)]

    (fused,) = check(Arrays(queue, 64), program)
    assert not list_unwritten(fused)


def test_an_array_that_a_kernel_hides(queue: cl.CommandQueue) -> None:
    """A variable stands for memory, and not for an array of the kernel that has its name."""
    source = """kernel void first(global const float *x, global float *z) {
            int i = get_global_id(0);
            z[i] = x[i];
            { float z[2]; z[0] = x[i] * 5; z[1] = z[0]; }
        }
        kernel void second(global const float *z, global float *x) {
            x[get_global_id(0)] = z[get_global_id(0)] + 1;
        }"""
    built = cl.Program(queue.context, source).build()
    kernels = built.first, built.second

    def program(x: Any, y: Any, z: Any) -> list[Any]:
        own = cl.Buffer(queue.context, cl.mem_flags.READ_WRITE, x.nbytes)
        kernels[0](queue, (64,), None, x.data, own)
        kernels[1](queue, (64,), None, own, x.data)
        return []

    is_gpu = queue.device.type == cl.device_type.GPU  # whose fused kernels have no arrays
    check(Arrays(queue, 64), program, is_fused=not is_gpu)


@pytest.mark.parametrize("changes", ["", "t[0] += 1"])
def test_an_array_before_a_loop_over_items(queue: cl.CommandQueue, changes: str) -> None:
    """A table is the same for each item, unless items change it."""
    body, table = f"z[i] = x[i] * t[i % 2]; {changes}", "float t[2] = {1, 3}"
    kernel = ElementwiseKernel(
        queue.context, "float *x, float *z", body, f"tabled{len(changes)}", loop_prep=table
    )

    def program(x: Any, y: Any, z: Any) -> list[Any]:
        kernel(x, z)
        z += y
        return []

    found = "".join(check(Arrays(queue, 1000), program, is_fused=False))
    if queue.device.type & cl.device_type.CPU:
        assert ("float t[2]" in found) == (not changes)


@pytest.mark.parametrize(
    ("body", "left"),
    [
        ("z[i] = a * (float)x[i] + b * (float)y[i];", False),
        ("z[i] = a * (float)x[i] + b * y[i];", True),  # of which a compiler contracts one
        ("z[i] = a * (float)x[i] + b * (float)(x[i] * y[i]);", True),
        ("{ float a = 3; z[i] = a * (float)x[i] + b * (float)y[i]; }", True),
        ("z[i] = a * (float)x[i] + b * (float)y[i] + b;", True),
    ],
)
def test_factors_of_one_are_left_out(queue: cl.CommandQueue, body: str, left: bool) -> None:
    arguments = "float a, float *x, float b, float *y, float *z"
    kernel = ElementwiseKernel(queue.context, arguments, body, f"sum_{abs(hash(body))}")
    arrays = Arrays(queue, 1000)
    x, y, _ = arrays._before
    x[::7], x[3::11], y[5::13] = np.inf, -0.0, 1e-40
    y[::7], y[1::17], x[2::17] = np.inf, np.nan, np.nan
    arrays.reset()

    def program(x: Any, y: Any, z: Any) -> list[Any]:
        first, second, third = (cl_array.zeros_like(x) for _ in range(3))
        kernel(1, x, -1, y, first)
        kernel(1, first, 1, z, second)
        kernel(0.5, second, 1, x, third)
        return [third]

    source = "".join(check(arrays, program))
    if queue.device.type & cl.device_type.CPU:
        assert source.count("(a * ((float)") == (3 if left else 1), source


def test_groups_are_large_where_items_are_quick(queue: cl.CommandQueue) -> None:
    text = """kernel void quick(global float *x) { x[get_global_id(0)] += 1; }
    kernel void slow(global float *x) {
        for (int k = 0; k < 9; k++) x[get_global_id(0)] *= 1.5f;
    }"""
    program = cl.Program(queue.context, text).build()
    memory, found = cl.Buffer(queue.context, cl.mem_flags.READ_WRITE, 1 << 18), []
    for name, items in (("quick", 1 << 16), ("quick", 1 << 10), ("quick", 1000), ("slow", 1 << 16)):
        kernel = cl.Kernel(program, name)
        with capture(queue) as graph:
            for _ in range(2):
                kernel(queue, (items,), None, memory)
        (segment,) = graph.finalize(fuse="wait")._list_captured_segments()
        rewriting: Any = segment._buffer.plans.rewriting
        commands = rewriting.wait().commands
        found.append(commands.array[0].n[6] if commands is not None else 0)
    if queue.device.type & cl.device_type.CPU:
        each = max(1024, (1 << 16) // (2 * queue.device.max_compute_units))  # for all threads
        most = min(queue.device.max_work_group_size, 8192, each)
        assert found == [1 << most.bit_length() - 1, min(1024, most), 128, 128]


def test_what_the_program_holds_is_written(queue: cl.CommandQueue) -> None:
    def program(x: Any, y: Any, z: Any) -> list[Any]:
        first = x * y
        return [first, first + z]

    (source,) = check(Arrays(queue, 1000), program)
    assert not list_unwritten(source)


def test_arrays_that_change_in_place(queue: cl.CommandQueue) -> None:
    def program(x: Any, y: Any, z: Any) -> list[Any]:
        x += y
        y *= x
        x -= z
        z += x
        return []

    assert len(check(Arrays(queue, 777), program)) == 1


def test_views_of_an_array(queue: cl.CommandQueue) -> None:
    """Views that overlap are other bytes of the same buffer."""

    def program(x: Any, y: Any, z: Any) -> list[Any]:
        low, high = x[:500], x[500:]
        low += high
        middle = x[250:750]
        middle *= y[:500]
        high -= low
        return [middle + z[100:600]]

    check(Arrays(queue, 1000), program, is_fused=False)


@pytest.mark.parametrize("what", ["fill", "copy"])
def test_transfers_beside_items_of_several_elements(queue: cl.CommandQueue, what: str) -> None:
    """An item of the transfer is as wide as one of the kernel, which is not one element."""
    text = """kernel void pairs(global const float *x, global float *out) {
        size_t i = get_global_id(0);
        out[2 * i] = x[2 * i] + 1;
        out[2 * i + 1] = x[2 * i + 1] - 1;
    }"""
    pairs, flags = cl.Program(queue.context, text).build().pairs, cl.mem_flags.READ_WRITE
    host = np.arange(640, dtype=np.float32)
    x, kept, out, other = (cl.Buffer(queue.context, flags, host.nbytes) for _ in range(4))
    cl.enqueue_copy(queue, x, host)
    with capture(queue) as graph:
        if what == "fill":
            cl.enqueue_fill_buffer(queue, kept, np.array([3, 5], np.float32), 0, host.nbytes)
        else:
            cl.enqueue_copy(queue, kept, x)
        pairs(queue, (320,), None, x, other)
        pairs(queue, (320,), None, kept, out)
    loop, expected = graph.finalize(fuse="wait"), host if what == "copy" else np.tile([3, 5], 320)
    found = np.empty((2, 640), np.float32)
    for _ in range(20):
        cl.enqueue_copy(queue, kept, host * 0)  # so that nothing is there from before
        loop.replay(queue)
        for row, buffer in zip(found, (kept, out), strict=True):
            cl.enqueue_copy(queue, row, buffer)
        assert (found[0] == expected).all()
        assert (found[1] == expected + np.tile([1, -1], 320)).all()


def test_fills_copies_and_other_sizes_end_a_run(queue: cl.CommandQueue) -> None:
    def program(x: Any, y: Any, z: Any) -> list[Any]:
        first = x + y
        short = z[:10] * 2
        copied = first.copy()
        copied.fill(3)
        return [first * copied, short + 1]

    check(Arrays(queue, 1000), program, is_fused=False)


def test_runs_that_differ_by_their_memory_only_are_planned_once(
    queue: cl.CommandQueue, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each launch has other memory. It is read as often as one that has the same every time."""
    read, make = list[Any](), launches.make_launch

    def note(*arguments: Any, **options: Any) -> Any:
        read.append(arguments)
        return make(*arguments, **options)

    monkeypatch.setattr(launches, "make_launch", note)

    def program(x: Any, y: Any, z: Any) -> list[Any]:
        for _ in range(300):
            x = x + y
        return [x * z]

    sources = check(Arrays(queue, 128), program)
    assert len(sources) == 2  # of 128 launches, and of the last ones
    assert len(read) == 2  # the sum and the product


def test_runs_that_share_their_memory_otherwise(queue: cl.CommandQueue) -> None:
    def program(x: Any, y: Any, z: Any) -> list[Any]:
        found: list[Any] = []
        for one, other in ((x, y), (x, x), (y, x), (z, y)):
            one *= other
            found += [(one + other) - one, x[:10] + 1]  # another size ends a run
        whole = x + y
        half, rest = whole[:500], whole[500:]
        for one, other in ((half, rest), (half, half), (rest, half)):
            one += other
            found += [one * other, x[:10] + 1]
        return found

    check(Arrays(queue, 1000), program)


def test_an_element_may_be_left_out(queue: cl.CommandQueue) -> None:
    """`continue`, branches, and loops in a kernel's body."""
    kernel = ElementwiseKernel(
        queue.context,
        "float *x, float *out",
        """
        if (x[i] < 1) PYOPENCL_ELWISE_CONTINUE;
        float sum = 0;
        for (int k = 0; k < 4; k++) { if (k == 2) continue; sum += x[i] * k; }
        out[i] = sum
        """,
        "some_of_them",
    )

    def program(x: Any, y: Any, z: Any) -> list[Any]:
        kernel(x, y)
        return [y + z]

    sources = check(Arrays(queue, 1000), program)
    assert len(sources) == 1 and "fl_own" not in sources[0], "it does not write all of y"


@pytest.fixture
def kernels(context: cl.Context) -> Iterator[Any]:
    yield cl.Program(context, SOURCE).build()


@pytest.mark.parametrize("name", ["next_of", "neighbours"])
def test_a_kernel_that_reads_its_neighbours(
    queue: cl.CommandQueue, kernels: Any, name: str
) -> None:
    """It may come before one that writes elsewhere, not after one that writes what it reads."""

    def program(x: Any, y: Any, z: Any) -> list[Any]:
        number = [np.int32(x.size)] if name == "neighbours" else []
        kernels.half_of(queue, (x.size,), None, x.data, y.data)
        getattr(kernels, name)(queue, (x.size,), None, y.data, z.data, *number)
        kernels.half_of(queue, (x.size,), None, z.data, x.data)
        return []

    check(Arrays(queue, 1024), program, is_fused=name == "neighbours")


@pytest.mark.parametrize("name", ["running_sum", "kept", "some", "who"])
def test_loops_that_are_not_over_items(queue: cl.CommandQueue, kernels: Any, name: str) -> None:
    """One work-item runs such a loop, turn by turn; or an id is a result."""

    def program(x: Any, y: Any, z: Any) -> list[Any]:
        size = np.int32(x.size)
        if name == "running_sum":
            kernels.running_sum(queue, (1,), None, x.data, size)
        elif name == "kept":
            kernels.kept(queue, (1,), None, x.data, y.data, size)
        elif name == "some":
            kernels.some(queue, (64,), (8,), y.data, size)
        else:
            kernels.who(queue, (x.size,), (8,), y.data)
        return [x + y]

    assert not any(name in source for source in check(Arrays(queue, 512), program, is_fused=False))


def test_attributes_of_types_are_kept(queue: cl.CommandQueue) -> None:
    """The syntax tree lacks them: a packed struct would lie otherwise."""
    packed = cl.Program(
        queue.context,
        """
        typedef struct __attribute__((packed)) { char a; float b; } pair;
        kernel void pairs(global pair *x) { x[get_global_id(0)].b += 1.0f; }
        """,
    ).build()

    def program(x: Any, y: Any, z: Any) -> list[Any]:
        for _ in range(2):
            packed.pairs(queue, (100,), None, x.data)
        return []

    assert check(Arrays(queue, 512), program, is_fused=False) == []


def test_two_programs_with_helpers_of_one_name(queue: cl.CommandQueue, kernels: Any) -> None:
    other = cl.Program(queue.context, OTHER).build()

    def program(x: Any, y: Any, z: Any) -> list[Any]:
        kernels.half_of(queue, (x.size,), None, x.data, y.data)
        other.seven_more(queue, (x.size,), None, y.data, z.data)
        return []

    check(Arrays(queue, 256), program, is_fused=False)


def test_random_programs(queue: cl.CommandQueue) -> None:
    for seed in range(4):
        made = random.Random(seed)

        def program(*arrays: Any, made: random.Random = made, seed: int = seed) -> list[Any]:
            made.seed(seed)
            pool = list(arrays)
            for _ in range(10):
                one, other = made.choice(pool), made.choice(pool)
                action = made.randrange(6)
                if action == 0:
                    one += other
                elif action == 1:
                    one *= np.float32(made.random())
                elif action == 2:
                    pool.append(one * other)
                elif action == 3:
                    pool.append(one - other)
                elif action == 4:
                    pool.append(abs(one))
                else:
                    pool.append(one / (abs(other) + 1))
            return made.sample(pool, 2)

        assert check(Arrays(queue, made.choice(SIZES)), program), seed


def test_it_is_fused_in_the_background(queue: cl.CommandQueue) -> None:
    """Replays run as captured until the kernel is there. Then both take turns."""
    arrays = Arrays(queue, 1000)
    x, y, _ = arrays.inputs
    with capture(queue) as graph:
        out = (x + y) * x - y
    loop = graph.finalize(fuse="auto")
    expected = ((x + y) * x - y).get()
    for _ in range(100):
        out.fill(0)
        loop.replay(queue)
        assert (out.get() == expected).all()
    _fused(loop)
    for _ in range(100):
        loop.replay(queue, wait=True)
    assert (out.get() == expected).all()
    text = loop.explain(queue)
    assert "one fused kernel" in text


def test_memory_of_two_types(queue: cl.CommandQueue) -> None:
    """A compiler may take floats and integers for different memory, as C lets it."""
    x: Any = cl_array.to_device(queue, np.linspace(0.5, 2, 1000, dtype=np.float32))
    y, out = cl_array.empty_like(x), cl_array.zeros(queue, x.shape, np.uint32)
    add: Any = ElementwiseKernel(queue.context, "float *x, float a, float *y", "y[i] = x[i] + a")
    take: Any = ElementwiseKernel(queue.context, "uint *y, uint *o", "o[i] = y[i]")
    with capture(queue) as graph:
        for a in (1, 2):
            add(x, np.float32(a), y)
            if a == 1:
                take(y, out)
    loop = graph.finalize(fuse="wait")
    assert "does not join" in loop.explain(queue)
    loop.replay(queue)
    assert (out.get().view(np.float32) == x.get() + 1).all()


@pytest.mark.parametrize("options", [[], ["-cl-fast-relaxed-math"]])
def test_options_of_programs_that_only_kernels_keep(
    queue: cl.CommandQueue, options: list[str]
) -> None:
    """Intel's driver forgets them."""
    context = cl.Context([queue.device])  # arrays have new kernels in it
    queue = cl.CommandQueue(context)
    x: Any = cl_array.arange(queue, 1000, dtype=np.float32)
    out: Any = cl_array.zeros_like(x)
    twice = ElementwiseKernel(context, "float *x, float *o", "o[i] = 2 * x[i]", options=options)
    twice(x, out)
    with capture(queue) as graph:
        twice(x, out)
        out += x
    loop = graph.finalize(fuse="wait")
    text = loop.explain(queue)
    if options:
        assert "command 0 is not fused: " in text and f"built with {options[0]}" in text
    else:
        assert "commands 0–1 are one fused kernel" in text
    loop.replay(queue)
    assert (out.get() == 3 * x.get()).all()


def test_who_asks_for_it(queue: cl.CommandQueue, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("FAIRLEAD_FUSE", raising=False)
    with capture(queue) as graph:
        _ = cl_array.zeros(queue, 10, np.float32) + 1
    assert graph.finalize().fuse == "auto"
    assert graph.finalize(fuse=False).fuse is False
    monkeypatch.setenv("FAIRLEAD_FUSE", "0")
    assert graph.finalize().fuse is False
    assert graph.finalize(fuse="auto").fuse == "auto"
    monkeypatch.setenv("FAIRLEAD_FUSE", "please")
    with pytest.raises(ArgumentError, match="FAIRLEAD_FUSE is 'please'"):
        graph.finalize()
    with pytest.raises(ArgumentError, match="fuse is 3"):
        graph.finalize(fuse=3)  # type: ignore[arg-type]


def test_the_search_for_sources_disturbs_no_other_thread(
    context: cl.Context, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Python lists the tuples, too, that other threads are filling."""
    monkeypatch.setattr(noted_programs, "noted", {})  # all objects are searched
    program = cl.Program(context, SOURCE).build()
    failures, ended, interval = list[SystemError](), threading.Event(), sys.getswitchinterval()

    def fill() -> None:
        while not ended.is_set():
            try:
                _ = tuple(number for number in range(300))
            except SystemError as error:
                failures.append(error)

    thread = threading.Thread(target=fill)
    sys.setswitchinterval(1e-6)
    thread.start()
    try:
        for _ in range(20):
            assert find_sources({program.int_ptr}) == {program.int_ptr: SOURCE}
    finally:
        ended.set()
        thread.join()
        sys.setswitchinterval(interval)
    assert not failures
