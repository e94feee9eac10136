"""Fused kernels for GPUs round as the old kernels did (icd/command_buffer/rewrites/isolation.py).

The programs share products and sums between kernels, in every order, which a compiler of GPUs
would contract otherwise. On CPUs the same kernels are made as if the device were a GPU.
"""

from __future__ import annotations

import random
import re
from typing import Any

import numpy as np
import pyopencl as cl
import pyopencl.array as cl_array
import pytest

from fairlead.captured_graphs.context import capture
from fairlead.icd.command_buffer.rewrites import fusion, vectors
from fairlead.icd.command_buffer.rewrites.opaque import isolate, measure_kind

#: What an item of a kernel calculates. The last ones use other items' memory.
OWN = (
    "x[i] + y[i]",
    "x[i] - y[i]",
    "z[i] + 1.5f",
    "x[i] * 2.5f",
    "x[i] * y[i]",
    "x[i] * y[i] + z[i]",
    "x[i] * y[i] - z[i]",
    "z[i] - x[i] * y[i]",
    "x[i] / y[i] + z[i]",
    "a * x[i] + b",
    "(float)i * 0.37f",
    "(float)i * 0.37f + x[i]",
    "a * b + x[i]",
    "a * b",
    "x[i] * x[i] + y[i] * y[i]",
    "fabs(x[i]) * y[i] + z[i]",
    "sqrt(fabs(x[i])) * a + y[i]",
    "(int)(y[i] * 10.0f) * x[i] + z[i]",
)
OTHERS = ("x[0] * y[i] + z[i]", "x[0] * y[i]", "x[(i + 1) % 64] * y[i] + z[i]")
ALL = OWN + OTHERS
SIZE, ARRAYS = 261, 5
VECTORS = 264  # items that vectors of four divide
PROGRAMS = 12

KERNEL = """
kernel void k{0}(global float *o, global const float *x, global const float *y,
                 global const float *z, float a, float b) {{
    size_t i = get_global_id(0);
    o[i] = {1};
}}
"""
SOURCE = "".join(KERNEL.format(number, text) for number, text in enumerate(ALL))
REFUSED = """
kernel void late(global float *x, global float *o) {
    size_t i = get_global_id(0);
    o[i] = x[i] * 2.0f;
    x[i] = x[i] + 1.0f;
}
kernel void twice(global float *x, global float *o) {
    size_t i = get_global_id(0);
    o[i] = x[i] * 2.0f;
    o[i] += 1.0f;
}
kernel void loops(global const float *x, global float *o) {
    size_t i = get_global_id(0);
    float sum = 0.0f;
    for (int k = 0; k < 3; k++)
        sum += x[i] * k;
    o[i] = sum;
}
kernel void padded(global const float *x, global float *o) {
    size_t i = get_global_id(0);
    o[i] = i < 200 ? x[i] : 0.0f;
}
kernel void guarded(global const float *x, global float *o) {
    size_t i = get_global_id(0);
    if (i < 200)
        o[i] = x[i] + 1.0f;
}
kernel void early(global const float *x, global float *o) {
    size_t i = get_global_id(0);
    if (i >= 200)
        return;
    o[i] = x[i] + 1.0f;
}
kernel void vectors(global const float *x, global float *o) {
    size_t i = get_global_id(0);
    o[i] = vload2(0, x + 0).x;
}
"""


@pytest.fixture(autouse=True)
def as_on_gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make fused kernels as for GPUs."""
    monkeypatch.setattr(fusion, "needs_isolation", lambda commands: True)


class Program:
    """A random program: launches of kernels on a few arrays.

    Args:
        queue: where it runs.
        built: the kernels.
        seed: of its choices.
        size: items of a launch.
    """

    def __init__(
        self, queue: cl.CommandQueue, built: cl.Program, seed: int, size: int = SIZE
    ) -> None:
        made, choose = np.random.default_rng(seed), random.Random(seed)
        self.queue, self._size = queue, size
        self._before = [(made.random(size) + 0.5).astype(np.float32) for _ in range(ARRAYS)]
        self.arrays = [cl_array.to_device(queue, one) for one in self._before]
        self._launches: list[tuple[Any, list[int]]] = []
        for _ in range(choose.randint(2, 7)):
            number = choose.randrange(len(ALL))
            places = [choose.randrange(ARRAYS) for _ in range(4)]
            if ALL[number] in OTHERS and places[0] == places[1]:
                places[1] = (places[0] + 1) % ARRAYS  # else its items would race
            self._launches.append((cl.Kernel(built, f"k{number}"), places))

    def run(self) -> None:
        """Enqueue it."""
        for kernel, places in self._launches:
            buffers = [self.arrays[place].data for place in places]
            kernel(self.queue, (self._size,), None, *buffers, np.float32(1.37), np.float32(0.91))

    def reset(self) -> None:
        """Give the arrays their first contents."""
        for array, before in zip(self.arrays, self._before, strict=True):
            array.set(before)

    def read(self) -> list[bytes]:
        """Return the bytes of the arrays."""
        return [one.get().tobytes() for one in self.arrays]


def find_sources(loop: Any) -> list[str]:
    """Return the sources of a graph's fused kernels."""
    return list(loop._whole._buffer.plans.rewriting.wait().sources.values())


def check(program: Program) -> list[str]:
    """Compare a program's calls with its replays. Returns the sources of its fused kernels."""
    program.run()
    expected = program.read()
    program.reset()
    with capture(program.queue) as graph:
        program.run()
    loop = graph.finalize(fuse="wait")
    for _ in range(3):  # each plan has its turn
        program.reset()
        loop.replay(program.queue)
        assert program.read() == expected
    return find_sources(loop)


def test_random_programs_keep_their_bits(queue: cl.CommandQueue) -> None:
    built = cl.Program(queue.context, SOURCE).build()
    sources = [text for seed in range(PROGRAMS) for text in check(Program(queue, built, seed))]
    assert len(sources) >= PROGRAMS // 2
    for source in sources:
        body = source[source.index("kernel void fairlead_fused") :]
        calls = re.findall(r"^    fl_kernel_\d+\(.*\);$", body, re.MULTILINE)
        zeros = [set(re.findall(r"fl_zero_\d+", call)) for call in calls]
        assert all(len(one) == 1 for one in zeros)  # each call has a zero,
        assert len(set.union(*zeros)) == len(calls)  # which no other one has


def test_random_programs_with_vectors_keep_their_bits(
    queue: cl.CommandQueue, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(vectors, "_WORK_ITEMS", 0)
    built = cl.Program(queue.context, SOURCE).build()
    programs = (Program(queue, built, seed, VECTORS) for seed in range(PROGRAMS))
    sources = [text for program in programs for text in check(program)]
    assert len([text for text in sources if "float4 fl_vector" in text]) >= PROGRAMS // 2
    for source in sources:
        uses = re.findall(r"fl_vector_fl_zero_\d+\.s\d", source)
        assert len(set(uses)) == len(uses)  # each item of a vector has zeros of its own


#: Launches that get vectors, or why they get none: kernels, and what their memory is.
OF_VECTORS = {
    "kernels of float": ("float", VECTORS, "own", "float4"),
    "kernels of double": ("double", VECTORS, "own", "double2"),
    "bytes": ("uchar", VECTORS, "own", "uchar4"),
    "an odd number of items": ("float", VECTORS - 1, "own", ""),
    "parts of one buffer": ("float", VECTORS, "parts", ""),
    "a view that begins at an odd element": ("float", VECTORS, "view", ""),
    "the program's own memory": ("float", VECTORS, "host", ""),
    "each second element": ("float", VECTORS, "strides", ""),
}


@pytest.mark.parametrize("name", OF_VECTORS)
def test_which_launches_get_vectors(
    queue: cl.CommandQueue, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(vectors, "_WORK_ITEMS", 0)
    kind, items, memory, vector = OF_VECTORS[name]
    step = 2 if memory == "strides" else 1
    at = f"{step} * i + {int(memory == 'view')}"
    built: Any = cl.Program(
        queue.context,
        f"""
        kernel void add(global const {kind} *x, global {kind} *o) {{
            size_t i = get_global_id(0);
            o[{at}] = x[{at}] + ({kind})3;
        }}
        """,
    ).build()
    type_ = {"float": np.float32, "double": np.float64, "uchar": np.uint8}[kind]
    flags, size = cl.mem_flags, 4096
    hosts = [np.arange(size, dtype=type_) for _ in range(3)]
    flag = flags.USE_HOST_PTR if memory == "host" else flags.COPY_HOST_PTR
    x, y, z = (cl.Buffer(queue.context, flags.READ_WRITE | flag, hostbuf=one) for one in hosts)
    if memory == "parts":
        whole = cl.Buffer(queue.context, flags.READ_WRITE, 2 * hosts[0].nbytes)
        x, y = whole[: hosts[0].nbytes], whole[hosts[0].nbytes :]
    for buffer, host in zip((x, y, z), hosts, strict=True):
        cl.enqueue_copy(queue, buffer, host)
    # parts of one buffer are only read: a part that is written would end the run
    launches = ((x, z), (y, z)) if memory == "parts" else ((x, y), (y, z))
    expected = np.arange(size, dtype=type_)
    sums = expected[int(memory == "view") :][: step * items : step]
    sums += type_(3 if memory == "parts" else 6)
    with capture(queue) as graph:
        for source, target in launches:
            built.add(queue, (items,), None, source, target)
    loop = graph.finalize(fuse="wait")
    (source,) = find_sources(loop)
    assert f"{vector} fl_vector" in source if vector else "fl_vector" not in source
    for _ in range(3):
        loop.replay(queue)
    found = np.empty_like(expected)
    cl.enqueue_copy(queue, found, z)
    assert found.tobytes() == expected.tobytes()


@pytest.mark.thorough
def test_many_random_programs_keep_their_bits(
    queue: cl.CommandQueue, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(vectors, "_WORK_ITEMS", 0)
    built = cl.Program(queue.context, SOURCE).build()
    for seed in range(PROGRAMS, 500):
        check(Program(queue, built, seed))
        check(Program(queue, built, seed, VECTORS))


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("late", "reads memory after it has written some"),
        ("twice", "reads memory after it has written some"),
        ("loops", "has a loop, in which a GPU's compiler may round otherwise"),
        ("guarded", "an item may leave memory as it is"),
        ("early", "an item may leave memory as it is"),
        ("vectors", "uses memory otherwise than by indices"),
    ],
)
def test_kernels_that_a_gpu_may_round_otherwise_stay(
    queue: cl.CommandQueue, name: str, reason: str
) -> None:
    built = cl.Program(queue.context, REFUSED).build()
    kernel: Any = cl.Kernel(built, name)
    x, out = (cl_array.zeros(queue, SIZE, np.float32) for _ in range(2))
    with capture(queue) as graph:
        for _ in range(2):
            kernel(queue, (SIZE,), None, x.data, out.data)
    loop = graph.finalize(fuse="wait")
    loop.replay(queue)
    assert not find_sources(loop)
    assert reason in loop.explain(queue)


def test_memory_that_some_items_lie_behind_is_not_loaded(queue: cl.CommandQueue) -> None:
    built = cl.Program(queue.context, REFUSED).build()
    kernel: Any = cl.Kernel(built, "padded")
    x = cl_array.to_device(queue, np.arange(200, dtype=np.float32))
    outs = [cl_array.zeros(queue, SIZE, np.float32) for _ in range(2)]
    with capture(queue) as graph:
        for out in outs:
            kernel(queue, (SIZE,), None, x.data, out.data)
    loop = graph.finalize(fuse="wait")
    (source,) = find_sources(loop)
    assert "fl_own" not in source  # as a variable it would be read for all items
    for _ in range(3):
        loop.replay(queue)
    assert all((out.get()[:200] == x.get()).all() and not out.get()[200:].any() for out in outs)


@pytest.mark.parametrize(
    ("kind", "size"), [("float", 4), ("double3", 32), ("uchar", 1), ("half8", 16), ("real", 0)]
)
def test_sizes_of_types(kind: str, size: int) -> None:
    assert measure_kind(kind) == size


def test_values_pass_as_bits() -> None:
    assert isolate("x", "short2", "zero") == "as_short2((ushort2)(as_ushort2(x) + (ushort2)(zero)))"
