"""Buffers that PoCL shares with the fake CUDA driver, and what sharing would gain."""

from __future__ import annotations

import dataclasses
import gc
import os
import re
import warnings
from itertools import pairwise
from typing import Any, cast

import numpy as np
import pyopencl as cl
import pytest
from helpers.buffer_behaviour import observe
from helpers.cuda_program import COPIED, PIXEL, READ_WRITE, SIZE, Program

from fairlead.captured_graphs.context import capture
from fairlead.captured_graphs.swaps import CaptureWarning
from fairlead.icd import cuda_sharing
from fairlead.icd._native import ffi, lib
from fairlead.icd.command_buffer.engines import cuda as cuda_engine


def _address(buffer: cl.MemoryObject) -> int:
    return lib.fl_cuda_address(ffi.cast("void *", buffer.int_ptr))


def _count_shared() -> tuple[int, int]:
    """How many small and how many large buffers are shared."""
    counts = lib.fl_count_shared()
    return counts.small, counts.own


@pytest.mark.slow
def test_a_small_buffer_is_a_part_of_a_slab_and_does_not_look_like_one(program: Program) -> None:
    first, second = program.buffer(7), program.buffer(8)
    assert _address(second) - _address(first) == 512
    assert (program.values(first), program.values(second)) == ([7], [8])
    assert (first.size, first.offset, first.reference_count) == (4 * SIZE, 0, 1)
    assert first.get_info(cl.mem_info.ASSOCIATED_MEMOBJECT) is None
    plain = cl.Buffer(program.context, READ_WRITE, 4 * SIZE)
    assert first.flags & COPIED and not plain.flags & COPIED


def test_a_block_watches_the_same_slots_and_leaves_them(program: Program) -> None:
    other = program.buffer()
    with pytest.warns(CaptureWarning, match="is filled once"), capture(program.queue) as graph:
        copied = program.buffer(7)
        cl.enqueue_copy(program.queue, other, copied)
    loop = graph.finalize()
    loop.replay(program.queue, wait=True)
    assert program.values(other) == [7] and _address(copied) and _address(program.buffer())


def test_buffers_of_every_size_lie_in_slabs_of_their_own_context(program: Program) -> None:
    sizes = [size + more for size in (1 << n for n in range(9, 20)) for more in (-1, 0, 1)]
    sizes.append((1 << 20) - 1)
    contexts = program.context, cl.Context(program.context.devices)
    buffers = [cl.Buffer(context, READ_WRITE, size) for context in contexts for size in sizes * 2]
    places = sorted((_address(buffer), buffer.size) for buffer in buffers)
    assert _count_shared()[0] >= len(buffers) and all(address for address, _ in places)
    for (address, size), (following, _) in pairwise(places):
        assert address + size <= following
    for context in contexts:  # the last slab of each size is where the next buffer comes from
        again = [cl.Buffer(context, READ_WRITE, size) for size in sizes]
        assert not {_address(buffer) for buffer in again} & {address for address, _ in places}


def _release_garbage(program: Program) -> None:
    """Release what earlier tests have left. A new buffer gives back the memory of old ones."""
    gc.collect()
    program.buffer()


def test_slabs_of_small_buffers_share_a_piece_of_memory(program: Program) -> None:
    def counted() -> tuple[int, int, int]:
        names = "cuMemCreate", "fake_cuda_import", "cuMemRelease"
        made, imported, released = map(program.fake.calls, names)
        return made, imported, released

    _release_garbage(program)
    other, before = Program(program.fake), counted()
    buffers = [other.buffer(number) for number in range(300)]  # of three slabs
    assert counted() == (before[0] + 1, before[1] + 3, before[2])
    places = sorted(map(_address, buffers))
    assert all(following - place >= 512 for place, following in pairwise(places))
    assert [other.values(buffer) for buffer in buffers] == [[number] for number in range(300)]
    last = buffers[-1]
    assert (last.offset, last.size, last.flags & COPIED) == (0, 4 * SIZE, COPIED)
    with capture(other.queue) as graph:
        other.total(last, buffers[0])
        other.total(buffers[0], last)
    loop = graph.finalize()
    loop.replay(other.queue, wait=True)
    assert (other.values(last), other.values(buffers[0])) == ([897], [897])
    del other, buffers, last, graph, loop
    _release_garbage(program)
    assert counted()[2] == before[2] + 1


def test_one_file_descriptor_stays_open_for_all_memory(program: Program) -> None:
    """CUDA makes others faster while the process has one."""
    kept = program.buffer()
    _release_garbage(program)
    descriptors = set(os.listdir("/proc/self/fd"))
    exported = program.fake.calls("cuMemExportToShareableHandle")
    buffers = [program.buffer(number) for number in range(300)]  # of three slabs
    buffers.append(cl.Buffer(program.context, READ_WRITE, 3 << 20))
    assert program.fake.calls("cuMemExportToShareableHandle") - exported >= 3
    assert set(os.listdir("/proc/self/fd")) == descriptors and program.values(kept) == [0]


def test_a_program_sees_of_shared_buffers_what_it_sees_of_others(program: Program) -> None:
    found = observe(program.queue)
    cuda_sharing.stop_sharing()
    plain = observe(cl.CommandQueue(cl.Context(program.context.devices)))
    # PoCL's own habits with parts: it has none of parts, does not look at their size in copies, and
    # counts their mappings with the whole. test_cuda_on_gpu.py has all of it on NVIDIA's driver.
    habits = re.compile(
        r"\d+ bytes at \d+ of|a part of|(references|before the part) of|before the part|"
        r"copy of 1\d* bytes|map .*count"
    )
    names = [name for name in plain if not habits.match(name)]
    assert len(names) > 5000
    for name in names:
        both = plain[name], found[name]
        if name.endswith(": FLAGS"):  # without an access NVIDIA's driver says READ_WRITE
            both = [(*one[:2], one[2] & ~READ_WRITE) for one in both]
        assert both[0] == both[1], name


def test_a_large_buffer_has_memory_of_its_own(program: Program) -> None:
    before = _count_shared()
    large = cl.Buffer(program.context, READ_WRITE, 3 << 20)
    assert _count_shared() == (before[0], before[1] + 1) and _address(large)
    assert (large.size, large.offset) == (3 << 20, 0)
    del large
    gc.collect()
    assert _count_shared() == before


def test_without_a_pool_slabs_are_given_back_with_their_last_buffer(program: Program) -> None:
    lib.fl_limit_kept(0)
    unmapped, before = program.fake.calls("cuMemUnmap"), _count_shared()
    buffers = [cl.Buffer(program.context, READ_WRITE, 300_000) for _ in range(70)]
    assert _count_shared()[0] == before[0] + 70
    assert len({_address(buffer) for buffer in buffers}) == 70
    del buffers
    gc.collect()
    assert _count_shared() == before
    program.buffer()
    assert program.fake.calls("cuMemUnmap") - unmapped >= 2


def test_a_context_that_is_released_leaves_nothing_behind(program: Program) -> None:
    def mapped() -> int:
        return program.fake.calls("cuMemMap") - program.fake.calls("cuMemUnmap")

    _release_garbage(program)
    before = mapped()
    other = Program(program.fake)
    kept, late = other.buffer(1), other.buffer(2)
    assert mapped() == before + 1 and other.values(kept) == [1]
    del kept, other
    gc.collect()
    assert mapped() == before + 1  # a buffer of it lives
    del late
    gc.collect()
    program.buffer()
    assert mapped() == before


def test_host_memory_and_refusals_are_left_to_the_driver(program: Program) -> None:
    host = np.full(SIZE, 3, np.int32)
    for flags in (cl.mem_flags.USE_HOST_PTR, cl.mem_flags.ALLOC_HOST_PTR | COPIED):
        assert _address(cl.Buffer(program.context, READ_WRITE | flags, hostbuf=host)) == 0
    with pytest.raises(cl.LogicError, match="INVALID_BUFFER_SIZE"):
        cl.Buffer(program.context, READ_WRITE, 0)


def test_what_is_larger_than_the_device_says_is_left_to_the_driver(program: Program) -> None:
    most: int = program.queue.device.max_mem_alloc_size
    before = program.fake.calls("cuMemCreate")
    with pytest.raises(cl.Error, match="INVALID_BUFFER_SIZE"):  # PoCL's
        cl.Buffer(program.context, READ_WRITE, most + 1)
    assert program.fake.calls("cuMemCreate") == before


@pytest.mark.parametrize(
    "function", ["cuMemCreate", "cuMemMap", "cuMemSetAccess", "fake_cuda_import", "cuMemcpyHtoD_v2"]
)
def test_where_cuda_has_no_memory_the_driver_makes_the_buffer(
    program: Program, function: str
) -> None:
    program.fake.fail(function, 2)
    host = np.full(1 << 19, 9, np.int32)
    before = _count_shared()
    buffer = cl.Buffer(program.context, READ_WRITE | COPIED, hostbuf=host)
    assert _address(buffer) == 0 and program.values(buffer) == [9] and _count_shared() == before


def test_without_sharing_it_says_how_to_share(program: Program) -> None:
    cuda_sharing.stop_sharing()
    buffer = program.buffer()
    assert _address(buffer) == 0
    with capture(program.queue) as graph:
        program.scale(buffer, 2, 1)
    loop = graph.finalize()
    loop.replay(program.queue, wait=True)
    assert program.values(buffer) == [1]


@pytest.fixture
def alone(program: Program, monkeypatch: pytest.MonkeyPatch) -> Program:
    """A program that does not share its memory, on a device whose compiler gives PTX."""
    cuda_sharing.stop_sharing()
    profile = cuda_engine.find_device_profile(program.context.devices[0].int_ptr)
    found = dataclasses.replace(profile, compiles_to_ptx=True, launch_seconds=5e-6)
    monkeypatch.setattr(cuda_engine, "find_device_profile", lambda device: found)
    monkeypatch.setenv("FAIRLEAD_COMMAND_BUFFER", "auto")
    return program


def _launches(program: Program, count: int, **how: Any) -> Any:
    y = program.buffer(1)
    with capture(program.queue, **how) as graph:
        for _ in range(count):
            program.scale(y, 1, 1)
    return graph


def test_finalize_says_what_sharing_would_gain(alone: Program) -> None:
    graph = _launches(alone, 200, name="steps")
    with pytest.warns(RuntimeWarning) as said:
        graph.finalize()
    assert [str(one.message) for one in said] == [
        'as a CUDA Graph a replay of the graph "steps" would take some 210 instead of 1,000 µs: '
        "import fairlead.cuda_sharing before the program creates its buffers. FAIRLEAD_CUDA=0 asks "
        "for no such line"
    ]
    assert said[0].filename == __file__


def test_finalize_says_nothing_where_little_is_gained(
    alone: Program, monkeypatch: pytest.MonkeyPatch
) -> None:
    image = cl.create_image(alone.context, READ_WRITE, cl.ImageFormat(*PIXEL), shape=(4, 4))
    queue, enqueue_copy = alone.queue, cast(Any, cl.enqueue_copy)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        _launches(alone, 10).finalize()
        y = alone.buffer(1)
        with capture(queue) as graph:  # CUDA could not run it
            for _ in range(200):
                alone.scale(y, 1, 1)
            enqueue_copy(queue, y, image, offset=0, origin=(0, 0), region=(4, 4))
        graph.finalize()
        monkeypatch.setenv("FAIRLEAD_CUDA", "0")  # the user knows
        _launches(alone, 200).finalize()
