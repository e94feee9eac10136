"""The engine `cuda` on NVIDIA's driver: each result is that of OpenCL, bit for bit."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyopencl as cl
import pyopencl.array as cl_array
import pyopencl.cltypes as cl_types
import pytest
from helpers.buffer_behaviour import observe
from helpers.support import RunPython
from pyopencl.elementwise import ElementwiseKernel

import fairlead
from fairlead.captured_graphs.context import capture
from fairlead.graph import CommandGraph
from fairlead.icd import cuda_sharing
from fairlead.icd._native import ffi, lib
from fairlead.icd.calls import find_driver_file
from fairlead.icd.command_buffer import cuda_trust
from fairlead.icd.command_buffer.cuda_self_test import find_difference_on_cuda
from fairlead.icd.drivers import platforms
from fairlead.runtime import Queue
from fairlead.runtime.interop import context_of

pytestmark = pytest.mark.driver("nvidia")

_READ_WRITE = cl.mem_flags.READ_WRITE
_IDS = """
kernel void ids(global uint *o) {
    uint i = get_global_id(0) - get_global_offset(0) + get_global_size(0)
        * (get_global_id(1) - get_global_offset(1) + get_global_size(1)
        * (get_global_id(2) - get_global_offset(2)));
    o += 16 * i;
    for (uint d = 0; d < 3; d++) {
        o[d] = get_global_id(d);
        o[3 + d] = get_group_id(d);
        o[6 + d] = get_num_groups(d);
        o[9 + d] = get_local_id(d);
        o[12 + d] = get_local_size(d);
    }
    o[15] = get_work_dim() * 1000 + get_global_linear_id();
}
"""
_LOCAL = """
kernel void turn(global int *x, local int *t, local double *u) {
    local int s[64];
    uint l = get_local_id(0), n = get_local_size(0), i = get_global_id(0);
    t[l] = x[i]; u[l] = t[l] * 0.5; s[l] = t[l] + 7;
    barrier(CLK_LOCAL_MEM_FENCE);
    x[i] = t[n - 1 - l] + (int)(2 * u[(l + 3) % n]) * s[(l + 1) % n];
}
"""
_CONSTANT = """
constant float table[4] = {1, 2.5f, 3, 4};
kernel void look(global float *o, constant float *c) {
    uint i = get_global_id(0);
    o[i] = c[i & 15] * table[i & 3] + sin(o[i]) / 3;
}
"""
_VALUES = """
kernel void mix(global double *o, char3 c, float4 f, long n, ushort s, half h) {
    o[get_global_id(0)] = c.y + f.w * n + s + vload_half(0, (private half *)&h);
}
""".replace(", half h", "").replace(" + vload_half(0, (private half *)&h)", "")
_FUNCTIONS = """
__attribute__((noinline)) uint where(void) { return get_global_id(0) + 1000 * get_work_dim(); }
kernel void place(global uint *o) { o[get_global_id(0) & 127] = where(); }
"""
_REQUIRED = """
__attribute__((reqd_work_group_size(32, 2, 1))) kernel void fixed(global uint *o) {
    o[get_global_id(0) + 64 * get_global_id(1)] = get_local_id(1) * 100 + get_local_size(0);
}
"""


@dataclass(frozen=True)
class Case:
    """A kernel, its arguments after the buffer, and a launch's sizes."""

    source: str
    arguments: tuple[Any, ...]
    global_size: tuple[int, ...]
    local_size: tuple[int, ...] | None = None
    offset: tuple[int, ...] | None = None


_FLOATS = "a buffer of floats"
_CASES = {
    "ids-1": Case(_IDS, (), (96,), None, (5,)),
    "ids-2": Case(_IDS, (), (8, 6), (4, 3), (7, 9)),
    "ids-3": Case(_IDS, (), (8, 4, 2), (4, 2, 1), (5, 7, 9)),
    "local": Case(_LOCAL, (cl.LocalMemory(256), cl.LocalMemory(512)), (256,), (64,)),
    "constant": Case(_CONSTANT, (_FLOATS,), (512,)),
    "values": Case(
        _VALUES,
        (
            np.array([(1, 2, 3, 0)], dtype=cl_types.char4)[0],
            np.array([(1, 2, 3, 4)], dtype=cl_types.float4)[0],
            np.int64(-3_000_000_000),
            np.uint16(9),
        ),
        (100,),
    ),
    "functions": Case(_FUNCTIONS, (), (128,), None, (3,)),
    "required": Case(_REQUIRED, (), (64, 4), (32, 2)),
}


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch) -> Iterator[cl.CommandQueue]:
    """A queue of a context whose buffers are shared."""
    monkeypatch.setenv("FAIRLEAD_COMMAND_BUFFER", "cuda")
    cuda_sharing.share_memory()
    found = next(one for one in platforms() if "NVIDIA" in one.name).devices[0]
    queue = cl.CommandQueue(cl.Context([found.to_pyopencl()]))
    yield queue
    queue.finish()


def _engine(loop: Any, queue: cl.CommandQueue) -> str:
    """What explain says of the engine."""
    return next(one for one in loop.explain(queue).splitlines() if "  cuda" in one)


def test_the_self_test_of_the_compiler_passes(gpu: cl.CommandQueue) -> None:
    device = gpu.device.int_ptr
    assert cuda_trust.try_library(find_driver_file(device)) is None
    shared, steps = cuda_sharing.find_shared_device(device), list[str]()
    assert shared is not None
    assert not find_difference_on_cuda(shared, ("", "-cl-denorms-are-zero"), steps.append)
    assert sum("running" in step for step in steps) == 10


@pytest.mark.parametrize("value", [0, 1])
def test_a_choice_runs_in_cuda(gpu: cl.CommandQueue, value: int) -> None:
    source = "kernel void add(global int *x, int n) { x[get_global_id(0)] += n; }"
    kernel = cl.Program(gpu.context, source).build().add
    kernel.set_scalar_arg_dtypes([None, np.int32])
    flag = cl_array.to_device(gpu, np.full(1, value, np.int32))
    sums, branches = [], []
    for number in (1, 100):
        total = cl_array.zeros(gpu, 64, np.int32)
        buffer: Any = total.data
        with capture(gpu) as graph:
            for _ in range(3):
                kernel(gpu, (64,), None, buffer, number)
        branches.append(graph.finalize())
        sums.append(total)
    context = context_of(gpu.context)
    queue = Queue(context, context.devices[0])
    for then, otherwise in (branches, (branches[0], None), (None, branches[1])):
        graph = CommandGraph(context, context.devices[0])
        graph.if_else(flag, then, otherwise)
        queue.graph(graph.finalize()).wait()
    expected = [(3 * 2 if value else 0), (0 if value else 300 * 2)]
    assert [int(total.get()[0]) for total in sums] == expected
    assert all("CUDA Graph" in _engine(one, gpu) for one in branches)


def test_small_buffers_of_one_piece_of_memory_keep_their_numbers(gpu: cl.CommandQueue) -> None:
    """The driver imports the piece several times. CUDA and OpenCL write to it in turns."""
    flags, count = _READ_WRITE | cl.mem_flags.COPY_HOST_PTR, 1000
    source = "kernel void add(global int *x, int n) { x[get_global_id(0)] += n; }"
    kernel = cl.Program(gpu.context, source).build().add
    kernel.set_scalar_arg_dtypes([None, np.int32])
    buffers = [
        cl.Buffer(gpu.context, flags, hostbuf=np.full(64, number, np.int32))
        for number in range(count)
    ]
    found = np.empty((count, 64), np.int32)

    def read() -> list[int]:
        for row, buffer in zip(found, buffers, strict=True):
            cl.enqueue_copy(gpu, row, buffer)
        assert (found == found[:, :1]).all()
        return found[:, 0].tolist()

    assert read() == list(range(count))
    for buffer in buffers:
        kernel(gpu, (64,), None, buffer, 10)
    with capture(gpu) as graph:
        for number, buffer in enumerate(buffers):
            kernel(gpu, (64,), None, buffer, number)
    loop = graph.finalize()
    loop.replay(gpu, wait=True)
    assert "a CUDA Graph of 1000 nodes" in _engine(loop, gpu)
    assert read() == [2 * number + 10 for number in range(count)]


@pytest.mark.parametrize("name", _CASES)
def test_a_kernel_does_what_it_does_in_opencl(gpu: cl.CommandQueue, name: str) -> None:
    case, random = _CASES[name], np.random.default_rng(1)
    (kernel,) = cl.Program(gpu.context, case.source).build("-cl-std=CL3.0").all_kernels()
    first = random.integers(0, 1000, 4096).astype(np.int32)
    floats = random.random(64).astype(np.float32)
    copied = _READ_WRITE | cl.mem_flags.COPY_HOST_PTR
    target = cl.Buffer(gpu.context, copied, hostbuf=first)
    source = cl.Buffer(gpu.context, copied, hostbuf=floats)
    given = [source if one is _FLOATS else one for one in case.arguments]

    def launch() -> None:
        kernel.set_args(target, *given)
        sizes = case.global_size, case.local_size, case.offset
        cl.enqueue_nd_range_kernel(gpu, kernel, *sizes)

    expected, found = np.empty_like(first), np.empty_like(first)
    with capture(gpu) as graph:
        launch()
    loop = graph.finalize()
    local = case.local_size is None and case.offset is None
    launch()
    cl.enqueue_copy(gpu, expected, target)
    cl.enqueue_copy(gpu, target, first)
    loop.replay(gpu, wait=True)
    cl.enqueue_copy(gpu, found, target)
    assert "a CUDA Graph of 1 nodes" in _engine(loop, gpu)
    if name == "ids-1":  # the driver chooses another local size, which the kernel writes
        columns = [0, 15]
        expected, found = (one.reshape(-1, 16)[:96, columns] for one in (expected, found))
    assert (expected != first[: expected.size].reshape(expected.shape)).any() or local
    assert np.array_equal(expected, found)


def test_a_chain_of_elementwise_kernels(gpu: cl.CommandQueue) -> None:
    x = cl_array.to_device(gpu, np.linspace(0, 1, 1000).astype(np.float32))
    y = cl_array.zeros(gpu, 1000, np.float32)
    step = ElementwiseKernel(
        gpu.context, "float *y, float *x, float a", "y[i] = y[i] * 0.5f + a * x[i]"
    )

    def body() -> None:
        for number in range(200):
            step(y, x, np.float32(1.5 + number % 7))

    body()
    expected = y.get()
    y.fill(0)
    with capture(gpu) as graph:
        body()
    loop = graph.finalize()
    loop.replay(gpu, wait=True)
    assert "a CUDA Graph of 200 nodes in a chain" in _engine(loop, gpu)
    assert np.array_equal(expected.view(np.int32), y.get().view(np.int32))
    for _ in range(3):
        body()
        loop.replay(gpu)
    mixed = y.get()
    y.fill(0)
    for _ in range(7):
        body()
    assert np.array_equal(mixed.view(np.int32), y.get().view(np.int32))


def test_queries_of_a_shared_buffer_are_those_of_any_other(gpu: cl.CommandQueue) -> None:
    host = np.arange(1000, dtype=np.int32)
    for size, flags in ((4000, cl.mem_flags.COPY_HOST_PTR), (4000, 0), (3 << 20, 0)):
        what: dict[str, Any] = {"hostbuf": host} if flags else {"size": size}
        shared = cl.Buffer(gpu.context, cl.mem_flags.READ_ONLY | flags, **what)
        assert lib.fl_cuda_address(ffi.cast("void *", shared.int_ptr))
        assert (shared.size, shared.offset, shared.reference_count) == (size, 0, 1)
        assert shared.flags == cl.mem_flags.READ_ONLY | flags
        assert shared.get_info(cl.mem_info.ASSOCIATED_MEMOBJECT) is None
        part = shared[1024:2048]
        assert part.offset == 1024 and part.get_info(cl.mem_info.ASSOCIATED_MEMOBJECT) == shared
        start = lib.fl_cuda_address(ffi.cast("void *", shared.int_ptr))
        assert lib.fl_cuda_address(ffi.cast("void *", part.int_ptr)) == start + 1024


def test_a_program_sees_of_shared_buffers_what_it_sees_of_others(gpu: cl.CommandQueue) -> None:
    shared = observe(gpu)
    cuda_sharing.stop_sharing()
    plain = observe(cl.CommandQueue(cl.Context([gpu.device])))
    # The driver makes parts that end behind their whole. Behind a shared one others lie.
    too_long = "1000 bytes at 512 of 1000, ", "1024 bytes at 3145216 of 3145728, "
    refused = [name for name in shared if name.startswith(too_long)]
    assert {shared[name] for name in refused} == {"CL_INVALID_VALUE"} and len(refused) == 8
    names = [name for name in {**plain, **shared} if not name.startswith(too_long)]
    assert len(names) > 10_000
    assert [name for name in names if plain.get(name) != shared.get(name)] == []


_FAR = """
import json, sys
import numpy as np, pyopencl as cl
import fairlead, fairlead.cuda_sharing
from fairlead.icd.drivers import platforms

device = next(one for one in platforms() if "NVIDIA" in one.name).devices[0]
queue = cl.CommandQueue(cl.Context([device.to_pyopencl()]))
program = cl.Program(queue.context, '''
kernel void far(global int *x, long by) { x[get_global_id(0) + by] = 1; }
kernel void near(global int *x, int by) { x[get_global_id(0)] += by; }
''').build()
host = np.zeros(64, np.int32)
x = cl.Buffer(queue.context, cl.mem_flags.READ_WRITE | cl.mem_flags.COPY_HOST_PTR, hostbuf=host)

def make(name, kernel, by):
    with fairlead.capture(queue, name=name) as graph:
        kernel(queue, (64,), None, x, by)
    return graph.finalize()

good, bad = make("near", program.near, np.int32(5)), make("far", program.far, np.int64(1 << 40))
good.replay(queue, wait=True)
said = ""
try:
    end = bad.replay(queue, wait=sys.argv[1] == "waited")
    end.wait()
except (cl.Error, fairlead.OpenCLError) as error:
    said = str(error)
good.replay(queue, wait=True)
later = make("later", program.near, np.int32(7))
later.replay(queue, wait=True)
cl.enqueue_copy(queue, host, x)
new = cl.Buffer(queue.context, cl.mem_flags.READ_WRITE, 4096)
cl.enqueue_fill_buffer(queue, new, np.int32(9), 0, 4096)
other = np.empty(1024, np.int32)
cl.enqueue_copy(queue, other, new)
numbers = [sorted(set(one.tolist())) for one in (host, other)]
print(json.dumps([said, *numbers, later.explain(queue)]))
"""


@pytest.mark.parametrize("waited", ["waited", "not waited"])
def test_an_illegal_address_names_its_graph_and_the_driver_goes_on(
    run_python: RunPython, waited: str
) -> None:
    env = {"FAIRLEAD_COMMAND_BUFFER": "cuda"}
    done = run_python(_FAR, waited, env=env, fresh=True)
    said, host, other, explained = json.loads(done.out.splitlines()[-1])
    named = 'a kernel of the graph "far" has ended CUDA\'s context: CUDA_ERROR_ILLEGAL_ADDRESS'
    assert said and (named in said or waited != "waited")
    assert (host, other) == ([5 + 5 + 7], [9])
    assert named in explained and f"fairlead: warning: {named}" in done.err


def test_a_parameter_of_many_launches(gpu: cl.CommandQueue) -> None:
    y = cl_array.zeros(gpu, 64, np.float32)
    program = cl.Program(
        gpu.context, "kernel void add(global float *y, float a) {y[get_global_id(0)] += a; }"
    ).build()
    by, kernel = fairlead.Parameter(np.float32(1), name="by"), program.add
    buffer: Any = y.data
    with capture(gpu) as graph:
        for _ in range(100):
            kernel(gpu, (64,), None, buffer, by)
    loop = graph.finalize()
    expected = 0.0
    for value in (1.0, 2.5, 0.25):
        loop.set(by=value)
        loop.replay(gpu)
        expected += 100 * value
    assert (y.get() == expected).all() and "CUDA Graph" in _engine(loop, gpu)


def test_parameters_of_each_size_and_a_buffer(gpu: cl.CommandQueue) -> None:
    source = """
kernel void mix(global double *to, char a, ushort b, int c, long d, float e, double f) {
        to[get_global_id(0)] += a + b + c + d + e * f;
    }"""
    kernel = cl.Program(gpu.context, source).build().mix
    first, second = (cl_array.zeros(gpu, 64, np.float64) for _ in range(2))
    numbers = {
        "a": np.int8(-3),
        "b": np.uint16(9),
        "c": np.int32(-70000),
        "d": np.int64(1 << 40),
        "e": np.float32(0.5),
        "f": np.float64(3),
    }
    given = [fairlead.Parameter(value, name=name) for name, value in numbers.items()]
    to = fairlead.Parameter(first, name="to")
    with capture(gpu) as graph:
        kernel(gpu, (64,), None, to.data, *given)  # pyright: ignore
    loop = graph.finalize()
    loop.replay(gpu, wait=True)
    expected = -3 + 9 - 70000 + (1 << 40) + 1.5
    assert (first.get() == expected).all()
    loop.replay(gpu, to=second, a=5, f=7.0)
    assert (second.get() == expected + 8 + 2).all() and (first.get() == expected).all()
    assert "CUDA Graph" in _engine(loop, gpu)


def test_kernels_of_chains_start_early_and_see_what_the_last_one_wrote(
    gpu: cl.CommandQueue,
) -> None:
    source = """kernel void mix(global uint *to, global const uint *from, uint n) {
        uint i = get_global_id(0), sum = 0;
        for (uint k = 0; k < 8; k++) sum = sum * 31 + from[(i * 7 + k * 977) % n];
        to[i] = sum + i;
    }"""
    kernel = cl.Program(gpu.context, source).build().mix
    for count in (64, 4096, 100_000, 1 << 20):
        start = np.arange(count, dtype=np.uint32)
        a, b = cl_array.to_device(gpu, start), cl_array.zeros(gpu, count, np.uint32)

        def body(a: Any = a, b: Any = b, count: int = count) -> None:
            for _ in range(50):
                kernel(gpu, (count,), None, b.data, a.data, np.uint32(count))
                kernel(gpu, (count,), None, a.data, b.data, np.uint32(count))

        body()
        expected = a.get()
        a.set(start)
        with capture(gpu) as graph:
            body()
        loop = graph.finalize()
        loop.replay(gpu, wait=True)
        assert np.array_equal(a.get(), expected)
        assert "start early" in _engine(loop, gpu) or "starts early: " in _engine(loop, gpu)


def test_a_loop_until_a_flag_ends_at_the_turn_that_sets_it(gpu: cl.CommandQueue) -> None:
    source = """kernel void count(global int *n, global int *flag, int most) {
        n[0] += 1; if (n[0] >= most) flag[0] = 1;
    }"""
    kernel = cl.Program(gpu.context, source).build().count
    n, flag = (cl_array.zeros(gpu, 1, np.int32) for _ in range(2))
    most = fairlead.Parameter(np.int32(50), name="most")
    arguments: tuple[Any, ...] = n.data, flag.data, most
    with capture(gpu) as graph:
        kernel(gpu, (1,), None, *arguments)
    loop = graph.finalize()
    end = loop.replay(gpu, times=10_000, until=flag)
    assert (end.replays, end.has_stopped, int(n.get()[0])) == (50, True, 50)
    flag.fill(0)
    end = loop.replay(gpu, times=20, until=flag, most=1000)
    assert (end.replays, end.has_stopped, int(n.get()[0])) == (20, False, 70)
    end = loop.replay(gpu, times=10_000, until=flag, most=90)
    assert (end.replays, end.has_stopped, int(n.get()[0])) == (20, True, 90)
