"""Random graphs of random kernels: what the engine `direct` leaves is bit for bit what the driver
leaves.

`make test` runs the same graphs each time. FAIRLEAD_FUZZ=SECONDS runs others for so long; what
fails is printed with the FAIRLEAD_FUZZ_SEED that leads to it again.
"""

from __future__ import annotations

import itertools
import os
import random
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import pyopencl as cl
import pytest
from helpers.captures import OUT_OF_ORDER, new_queue
from helpers.drivers import Driver

from fairlead.captured_graphs.context import capture
from fairlead.icd.command_buffer import direct_device
from fairlead.icd.drivers import platforms

pytestmark = pytest.mark.fuzz

SECONDS = float(os.environ.get("FAIRLEAD_FUZZ") or 0)
#: The seeds of the graphs: `make test` takes the first ones.
FIRST = range(24)
SEEDS = [FIRST, pytest.param(range(24, 60), marks=pytest.mark.thorough)]
TYPES = {"char": np.int8, "ushort": np.uint16, "int": np.int32, "ulong": np.uint64}
TYPES |= {"float": np.float32, "double": np.float64}
if not SECONDS:  # compiling takes most of the time
    TYPES = {name: TYPES[name] for name in ("char", "ulong", "float")}
BYTES = 4096  # of each buffer


class Sizes(NamedTuple):
    """The sizes of launches. PoCL compiles a kernel anew for each local size.

    Attributes:
        one: local sizes in one dimension.
        several: those of the kernel `places`.
        groups: numbers of work-groups. Where the driver chooses, there is one group.
    """

    one: tuple[int, ...]
    several: list[tuple[int, ...]]
    groups: range


ALL_SIZES = Sizes(
    (1, 3, 8, 16, 64, 200),
    [sides for count in (1, 2, 3) for sides in itertools.product((1, 2, 3, 4), repeat=count)],
    range(1, 13),
)
#: Those of the first seeds, with which `make test` compiles half as many kernels.
FEW_SIZES = Sizes((3, 64), [(4,), (3, 2), (2, 1, 3)], range(1, 5, 3))

_TYPED = """
kernel void map_T(global T *a, T value, uint n) {
    size_t i = get_global_id(0);
    if (i < n) a[i] = a[i] * value + (T)(i % 5);
}
kernel void gather_T(global const T *a, global T *b, global const uint *places, uint n) {
    size_t i = get_global_id(0) - get_global_offset(0);
    if (i < n) b[i] = (T)(b[i] / (T)2 + a[places[i % 256] % n]);
}
kernel void turn_T(global T *a, local T *given, uint n) {
    local T own[256];
    size_t i = get_global_id(0), k = get_local_id(0), size = get_local_size(0);
    given[k] = i < n ? a[i] : (T)1;
    own[k] = (T)(k + 1);
    barrier(CLK_LOCAL_MEM_FENCE);
    if (i < n) a[i] = (T)(given[size - 1 - k] + own[(k * 7) % size]);
}
"""
_PLAIN = """
typedef struct { char a; short b; double c; float d[3]; } mixed;
kernel void places(global uint *out, float4 four, mixed both, global const int *nothing, uint n) {
    size_t x = get_global_id(0) - get_global_offset(0), y = get_global_id(1) - get_global_offset(1);
    size_t z = get_global_id(2) - get_global_offset(2);
    size_t i = (z * get_global_size(1) + y) * get_global_size(0) + x;
    if (i >= n) return;
    uint h = get_global_id(2) * 3 + get_local_id(0) * 5 + get_local_id(1) * 7 + get_group_id(2)
        * 11;
    h += get_num_groups(0) * 13 + get_local_size(1) * 17 + get_work_dim() * 19 + (nothing == 0)
        * 23;
    out[i] = out[i] * 31 + h + as_uint(four.y * both.d[2]) + both.a + both.b + (uint)both.c;
}
kernel void count(global int *sums, global const int *values, uint n) {
    size_t i = get_global_id(0);
    if (i < n) { atomic_add(&sums[i % 7], values[i]); atomic_max(&sums[8 + i % 3], values[i]); }
}
kernel __attribute__((reqd_work_group_size(8, 1, 1))) void fixed(global float *a, constant float *c,
    uint n) {
    size_t i = get_global_id(0);
    if (i < n) a[i] = fma(sin(a[i]), c[i % 4], native_sqrt(fabs(a[i])));
}
kernel void tiny(global float *a, float by, uint n) {
    size_t i = get_global_id(0);
    if (i < n) a[i] = (float)(i + 1) * 1e-40f * by + a[i] * 1e-3f;
}
"""
_MIXED = np.dtype(
    [("a", "i1"), ("b", "i2"), ("c", "f8"), ("d", "f4", 3), ("end", "i4")], align=True
)


class World:
    """A queue, programs that are compiled once, and buffers whose contents are set before each
    run."""

    def __init__(self, driver: Driver) -> None:
        platform = next(one for one in platforms() if driver.has(one))
        self.context = cl.Context([platform.devices[0].to_pyopencl()])
        self.queue = cl.CommandQueue(self.context)
        self.free = new_queue(self.context, OUT_OF_ORDER)
        typed = "".join(_TYPED.replace("T", name) for name in TYPES)
        self.kernels: dict[str, cl.Kernel] = {}
        for options, source in ([], typed), ([], _PLAIN), (["-cl-denorms-are-zero"], _PLAIN):
            program = cl.Program(self.context, source).build(options)
            for kernel in program.all_kernels():
                name = kernel.function_name
                if not options:
                    self.kernels[name] = kernel
                elif name in ("fixed", "tiny"):  # the others have no small numbers to flush
                    self.kernels[f"{name} flushed"] = kernel
        make, flags = cl.Buffer, cl.mem_flags
        host = np.zeros(BYTES + 64, np.uint8)[1:]  # an address that is not aligned
        parent = make(self.context, flags.READ_WRITE, 2 * BYTES)
        self.parents = [make(self.context, flags.READ_WRITE, BYTES) for _ in range(3)]
        self.parents.append(
            make(self.context, flags.READ_WRITE | flags.USE_HOST_PTR, BYTES, hostbuf=host[:BYTES])
        )
        self.parents.append(parent)
        self.buffers = self.parents[:4] + [
            parent.get_sub_region(place * BYTES, BYTES) for place in (0, 1)
        ]
        self.hosts = [np.zeros(BYTES, np.uint8) for _ in range(2)]
        self.kept = host
        self.sizes = ALL_SIZES

    def fill(self, seed: int) -> None:
        """Set everything to bytes that a seed gives; numbers that are no NaNs, whose bits may
        differ."""
        numbers = np.random.default_rng(seed)
        for parent in self.parents:
            cl.enqueue_copy(
                self.queue, parent, numbers.integers(0, 100, parent.size // 4, np.uint32)
            )
        for host in self.hosts:
            host[:] = numbers.integers(0, 60, BYTES, np.uint8)

    def state(self) -> list[bytes]:
        """All that a graph can have changed."""
        found = [host.tobytes() for host in self.hosts]
        for parent in self.parents:
            data = np.empty(parent.size, np.uint8)
            cl.enqueue_copy(self.queue, data, parent)
            found.append(data.tobytes())
        return found


@pytest.fixture(scope="module")
def world(direct_pocl: Driver) -> Iterator[World]:
    made = World(direct_pocl)
    yield made
    made.queue.finish()
    made.free.finish()


def _launch(world: World, pick: random.Random, queue: Any) -> Callable[..., Any]:
    """A launch of a random kernel with random sizes and arguments."""
    name = pick.choice(sorted(world.kernels))
    kernel, plain = world.kernels[name], name.split()[0]
    a, b, c = pick.sample(world.buffers, 3)
    local: Any = pick.choice(world.sizes.one)
    size: Any = (local * pick.choice(world.sizes.groups),)
    offset: Any = pick.choice((None, None, (pick.randint(1, 9),)))
    kind = plain.split("_")[-1]
    number = np.uint32(pick.randint(1, 512))
    if plain.startswith("map"):
        arguments: tuple[Any, ...] = (a, TYPES[kind](pick.randint(0, 3)), number)
    elif plain.startswith("gather"):
        arguments = (a, b, c, number)
    elif plain.startswith("turn"):
        arguments = (a, cl.LocalMemory(local * np.dtype(TYPES[kind]).itemsize), number)
    elif plain == "places":
        mixed = np.array((3, -4, 5.5, (1, 2, 3.5), 0), _MIXED)
        four = np.array([1, pick.random(), 3, 4], np.float32)
        arguments = (a, four, mixed, pick.choice((None, b)), number)
        local = pick.choice(world.sizes.several)
        size = tuple(side * min(4, pick.choice(world.sizes.groups)) for side in local)
        offset = pick.choice((None, tuple(pick.randint(0, 5) for _ in local)))
    elif plain == "count":
        arguments = (a, b, number)
    elif plain == "fixed":
        arguments, local, size = (a, b, number), 8, (8 * pick.randint(1, 20),)
    else:
        arguments = (a, np.float32(pick.random()), number)
    local = (local,) if isinstance(local, int) else local
    if pick.random() < 0.2 and not plain.startswith("turn") and plain != "fixed":
        local = None

    def run(**waits: Any) -> Any:
        return kernel(queue, size, local, *arguments, global_offset=offset, **waits)

    return run


def _transfer(world: World, pick: random.Random, queue: Any) -> Callable[..., Any]:
    """A copy, fill, read or write, of bytes or of a rectangle."""
    a, b = pick.sample(world.buffers, 2)
    host = pick.choice(world.hosts)
    size, first, second = pick.randint(1, 1024), pick.randint(0, 3000), pick.randint(0, 3000)
    region = (pick.randint(1, 40), pick.randint(1, 8), pick.randint(1, 3))
    rect = {
        "region": region,
        "buffer_origin": (pick.randint(0, 9), pick.randint(0, 3), pick.randint(0, 1)),
        "host_origin": (pick.randint(0, 9), 0, pick.randint(0, 1)),
        "buffer_pitches": (50, 600),
        "host_pitches": pick.choice(((49, 490), (0, 0))) if region[0] > 9 else (64, 1024),
    }
    pattern = np.frombuffer(pick.randbytes(pick.choice((1, 2, 4, 16))), np.uint8)
    return pick.choice(
        (
            lambda **w: cl.enqueue_copy(
                queue, a, b, byte_count=size, src_offset=first, dst_offset=second, **w
            ),
            lambda **w: cl.enqueue_fill_buffer(
                queue, a, pattern, first // 16 * 16, 16 * pick.randint(1, 60), **w
            ),
            lambda **w: cl.enqueue_copy(queue, host, a, is_blocking=False, **w),
            lambda **w: cl.enqueue_copy(queue, a, host, is_blocking=False, **w),
            lambda **w: cl.enqueue_copy(queue, host, a, is_blocking=False, **rect, **w),
            lambda **w: cl.enqueue_copy(queue, a, host, is_blocking=False, **rect, **w),
        )
    )


def _record(world: World, seed: int) -> tuple[Any, Any]:
    """A graph that a seed gives, and the queue that it was recorded on."""
    pick = random.Random(seed)
    is_first = not SECONDS and seed in FIRST
    world.sizes = FEW_SIZES if is_first else ALL_SIZES
    queue = world.queue if pick.random() < 0.7 else world.free
    before: list[Any] = []
    with capture(queue) as graph:
        for _ in range(pick.choice((1, 2, 5, 12, 30))):
            make = _launch if pick.random() < 0.75 else _transfer
            waits = {} if queue is world.queue else {"wait_for": before[-1:]}
            before.append(make(world, pick, queue)(**waits))
    return graph, queue


def _check(world: World, seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    found = []
    for engine in "replay", "direct":
        monkeypatch.setenv("FAIRLEAD_COMMAND_BUFFER", engine)
        world.fill(seed)
        graph, queue = _record(world, seed)
        loop = graph.finalize()
        if engine == "direct" and seed % 3 == 0:
            loop.replay(queue, wait=True)
            loop.replay(queue, times=2, wait=True)
        else:
            loop.replay(queue)
            loop.replay(queue, times=2)
        queue.finish()
        found.append(world.state())
        how = loop.explain(queue)
        assert engine == "replay" or "one native kernel" in how, f"FAIRLEAD_FUZZ_SEED={seed}: {how}"
    assert found[0] == found[1], f"FAIRLEAD_FUZZ_SEED={seed} leads to it"


def _chosen(seeds: Sequence[int]) -> Iterator[int]:
    """These seeds, or others for SECONDS."""
    if not SECONDS:
        yield from seeds
        return
    first = int(os.environ.get("FAIRLEAD_FUZZ_SEED") or time.time())
    end = time.monotonic() + SECONDS
    seed = first
    while time.monotonic() < end:
        yield seed
        seed += 1
    print(f"{seed - first} graphs from FAIRLEAD_FUZZ_SEED={first}")


@pytest.mark.parametrize("seeds", SEEDS, ids=["some", "others"])
def test_random_graphs(world: World, monkeypatch: pytest.MonkeyPatch, seeds: range) -> None:
    for seed in _chosen(seeds):
        _check(world, seed, monkeypatch)


def _left_by(world: World, seed: int) -> tuple[list[bytes], str]:
    """What a graph leaves when it is replayed so often that nothing is measured any more.

    Numbers do not grow that long: of a NaN, functions for different sizes have different bits.
    """
    world.fill(seed)
    graph, queue = _record(world, seed)
    loop = graph.finalize()
    for _ in range(2):
        loop.replay(queue, times=16, wait=True)
        queue.finish()
        world.fill(seed)
    loop.replay(queue, times=16, wait=True)
    queue.finish()
    return world.state(), loop.explain(queue)


@pytest.mark.parametrize("seeds", SEEDS, ids=["some", "others"])
def test_random_graphs_that_several_threads_run(
    world: World, monkeypatch: pytest.MonkeyPatch, seeds: range
) -> None:
    """They leave what one thread leaves. Also launches that are too short, or slower so."""
    monkeypatch.setenv("FAIRLEAD_COMMAND_BUFFER", "direct")
    monkeypatch.setattr(direct_device, "count_cores", lambda: 8)
    monkeypatch.setattr(direct_device, "_LEAST", 0)
    monkeypatch.setattr(direct_device, "_PERCENT", 1 << 30)
    shared: list[bool] = []
    for seed in _chosen(seeds[::2]):
        monkeypatch.setattr(direct_device, "query_compute_units", lambda device: 1)
        expected, how = _left_by(world, seed)
        assert "threads run" not in how
        monkeypatch.setattr(direct_device, "query_compute_units", lambda device: 3)
        found, how = _left_by(world, seed)
        shared.append("3 threads run" in how)
        assert found == expected, f"FAIRLEAD_FUZZ_SEED={seed} leads to it"
    assert sum(shared) > len(shared) // 2
