"""The engine `cuda`, on PoCL with a CUDA driver that has no GPU (tests/fake/cuda).

PoCL's buffers lie in the fake driver's memory. Its graphs really run, by functions that do what the
kernels do.
"""

from __future__ import annotations

import ctypes
import dataclasses
import gc
import os
import re
import shutil
import subprocess
import sys
import warnings
import weakref
from collections.abc import Callable
from functools import partial
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyopencl as cl
import pyopencl.array as cl_array
import pytest
from helpers.buffer_behaviour import SMALL, observe
from helpers.cuda import PTX, SOURCE, FakeCuda, TranslatedOpenCL
from helpers.programs import build_once

import fairlead
from fairlead.captured_graphs.context import capture
from fairlead.captured_graphs.graph import CapturedGraph
from fairlead.graph import CommandGraph
from fairlead.icd import cuda_sharing
from fairlead.icd._native import ffi, lib
from fairlead.icd.abi import OPENCL
from fairlead.icd.command_buffer import command_buffer, cuda_functions, cuda_trust
from fairlead.icd.command_buffer.cuda_order import chain_commands
from fairlead.icd.command_buffer.cuda_self_test import find_difference_on_cuda
from fairlead.icd.command_buffer.engines import cuda as cuda_engine
from fairlead.icd.command_buffer.engines.cuda import _unfinished
from fairlead.icd.command_buffer.order import Order
from fairlead.icd.command_buffer.self_tests import SOURCE as SELF_TEST_SOURCE
from fairlead.icd.driver_profiles import locate
from fairlead.icd.drivers import platforms
from fairlead.icd.nvidia_ptx import PtxProgram, Variant
from fairlead.loader.base import interrupts
from fairlead.loader.base.search import Candidate
from fairlead.runtime import Queue
from fairlead.runtime.interop import context_of

_SIZE = 64
_PIXEL = cl.channel_order.RGBA, cl.channel_type.UNSIGNED_INT8
_READ_WRITE = cl.mem_flags.READ_WRITE
_enqueue_copy: Any = cl.enqueue_copy
_COPIED = cl.mem_flags.COPY_HOST_PTR
#: As it is before a test has another one in its place.
WHY_NOT_DEVICE = cuda_trust.why_not_device


class Program:
    """The kernels of `SOURCE` on PoCL, and buffers that are shared."""

    def __init__(self, fake: FakeCuda) -> None:
        (found,) = next(one for one in platforms() if "Portable" in one.name).devices
        self.fake, self.context = fake, cl.Context([found.to_pyopencl()])
        self.queue = cl.CommandQueue(self.context)
        self.program = build_once(self.context, SOURCE)

    def buffer(self, value: int = 0, flags: int = _COPIED) -> cl.Buffer:
        """A buffer of `_SIZE` numbers."""
        host = np.full(_SIZE, value, np.int32)
        return cl.Buffer(self.context, _READ_WRITE | flags, hostbuf=host)

    def values(self, buffer: cl.Buffer) -> list[int]:
        """The different numbers in a buffer, read through OpenCL."""
        host = np.empty(buffer.size // 4, np.int32)
        cl.enqueue_copy(self.queue, host, buffer)
        return sorted(set(host.tolist()))

    def scale(self, buffer: cl.Buffer, factor: Any, summand: Any, **how: Any) -> cl.Event:
        """Launch the kernel `scale`."""
        kernel = cl.Kernel(self.program, "scale")
        kernel.set_scalar_arg_dtypes([None, np.int32, np.int32])
        return kernel(how.pop("queue", self.queue), (_SIZE,), None, buffer, factor, summand, **how)

    def total(self, to: cl.Buffer, source: cl.Buffer, **how: Any) -> cl.Event:
        """Launch the kernel `total`."""
        queue = how.pop("queue", self.queue)
        return cl.Kernel(self.program, "total")(queue, (_SIZE,), None, to, source, **how)


@pytest.fixture
def program(cuda_on_pocl: FakeCuda) -> Program:
    return Program(cuda_on_pocl)


def _address(buffer: cl.MemoryObject) -> int:
    return lib.fl_cuda_address(ffi.cast("void *", buffer.int_ptr))


def _counts() -> tuple[int, int]:
    """How many small and how many large buffers are shared."""
    counts = lib.fl_count_shared()
    return counts.small, counts.own


def _ran(program: Program, run: Callable[[], object]) -> int:
    """How many graphs CUDA launched in a call."""
    before = program.fake.calls("cuGraphLaunch")
    run()
    program.queue.finish()
    return program.fake.calls("cuGraphLaunch") - before


# --- shared memory ---


@pytest.mark.slow
def test_a_small_buffer_is_a_part_of_a_slab_and_does_not_look_like_one(program: Program) -> None:
    first, second = program.buffer(7), program.buffer(8)
    assert _address(second) - _address(first) == 512
    assert (program.values(first), program.values(second)) == ([7], [8])
    assert (first.size, first.offset, first.reference_count) == (4 * _SIZE, 0, 1)
    assert first.get_info(cl.mem_info.ASSOCIATED_MEMOBJECT) is None
    plain = cl.Buffer(program.context, _READ_WRITE, 4 * _SIZE)
    assert first.flags & _COPIED and not plain.flags & _COPIED


def test_buffers_of_every_size_lie_in_slabs_of_their_own_context(program: Program) -> None:
    sizes = [size + more for size in (1 << n for n in range(9, 20)) for more in (-1, 0, 1)]
    sizes.append((1 << 20) - 1)
    contexts = program.context, cl.Context(program.context.devices)
    buffers = [cl.Buffer(context, _READ_WRITE, size) for context in contexts for size in sizes * 2]
    places = sorted((_address(buffer), buffer.size) for buffer in buffers)
    assert _counts()[0] >= len(buffers) and all(address for address, _ in places)
    for (address, size), (following, _) in pairwise(places):
        assert address + size <= following
    for context in contexts:  # the last slab of each size is where the next buffer comes from
        again = [cl.Buffer(context, _READ_WRITE, size) for size in sizes]
        assert not {_address(buffer) for buffer in again} & {address for address, _ in places}


def test_slabs_of_small_buffers_share_a_piece_of_memory(program: Program) -> None:
    def counted() -> tuple[int, int, int]:
        names = "cuMemCreate", "fake_cuda_import", "cuMemRelease"
        made, imported, released = map(program.fake.calls, names)
        return made, imported, released

    other, before = Program(program.fake), counted()
    buffers = [other.buffer(number) for number in range(300)]  # of three slabs
    assert counted() == (before[0] + 1, before[1] + 3, before[2])
    places = sorted(map(_address, buffers))
    assert all(following - place >= 512 for place, following in pairwise(places))
    assert [other.values(buffer) for buffer in buffers] == [[number] for number in range(300)]
    last = buffers[-1]
    assert (last.offset, last.size, last.flags & _COPIED) == (0, 4 * _SIZE, _COPIED)
    with capture(other.queue) as graph:
        other.total(last, buffers[0])
        other.total(buffers[0], last)
    loop = graph.finalize()
    loop.replay(other.queue, wait=True)
    assert (other.values(last), other.values(buffers[0])) == ([897], [897])
    del other, buffers, last, graph, loop
    gc.collect()
    program.buffer()
    assert counted()[2] == before[2] + 1


def test_slabs_of_a_piece_share_its_file_descriptor(program: Program) -> None:
    def counted() -> tuple[int, int]:
        names = "cuMemExportToShareableHandle", "fake_cuda_import"
        made, imported = map(program.fake.calls, names)
        return made, imported

    kept = program.buffer()  # its piece has room
    other, before = Program(program.fake), counted()
    descriptors = set(os.listdir("/proc/self/fd"))
    buffers = [other.buffer(number) for number in range(300)]  # of three slabs
    assert counted() == (before[0] + 1, before[1] + 3)
    del buffers, other
    gc.collect()
    program.buffer()
    assert set(os.listdir("/proc/self/fd")) == descriptors and program.values(kept) == [0]


def test_a_program_sees_of_shared_buffers_what_it_sees_of_others(program: Program) -> None:
    found = observe(program.queue)
    cuda_sharing.stop_sharing()
    plain = observe(cl.CommandQueue(cl.Context(program.context.devices)))
    # PoCL's own habits with parts: it has none of parts, does not look at their size in copies, and
    # counts their mappings with the whole. test_cuda_on_gpu.py has all of it on NVIDIA's driver.
    parts = (
        rf"\d+ bytes at \d+ of {SMALL}, |a part of {SMALL}, |(references|before the "
        rf"part) of {SMALL}"
    )
    habits = re.compile(
        rf"{parts}|before the part|copy of 1\d* bytes .* of {SMALL}|map {SMALL}.*count"
    )
    names = [name for name in plain if not habits.match(name)]
    assert len(names) > 5000
    for name in names:
        both = plain[name], found[name]
        if name.endswith(": FLAGS"):  # without an access NVIDIA's driver says READ_WRITE
            both = [(*one[:2], one[2] & ~_READ_WRITE) for one in both]
        assert both[0] == both[1], name


def test_a_large_buffer_has_memory_of_its_own(program: Program) -> None:
    before = _counts()
    large = cl.Buffer(program.context, _READ_WRITE, 3 << 20)
    assert _counts() == (before[0], before[1] + 1) and _address(large)
    assert (large.size, large.offset) == (3 << 20, 0)
    part = large[4096:8192]
    assert _address(part) == _address(large) + 4096 and part.offset == 4096
    assert part.get_info(cl.mem_info.ASSOCIATED_MEMOBJECT) == large
    del part, large
    gc.collect()
    assert _counts() == before


def test_slabs_are_given_back_when_all_their_buffers_are_gone(program: Program) -> None:
    unmapped, before = program.fake.calls("cuMemUnmap"), _counts()
    buffers = [cl.Buffer(program.context, _READ_WRITE, 300_000) for _ in range(70)]
    assert _counts()[0] == before[0] + 70
    assert len({_address(buffer) for buffer in buffers}) == 70
    del buffers
    gc.collect()
    assert _counts() == before
    program.buffer()
    assert program.fake.calls("cuMemUnmap") - unmapped >= 2


def test_a_context_that_is_released_leaves_nothing_behind(program: Program) -> None:
    def mapped() -> int:
        return program.fake.calls("cuMemMap") - program.fake.calls("cuMemUnmap")

    program.buffer()
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
    host = np.full(_SIZE, 3, np.int32)
    for flags in (cl.mem_flags.USE_HOST_PTR, cl.mem_flags.ALLOC_HOST_PTR | _COPIED):
        assert _address(cl.Buffer(program.context, _READ_WRITE | flags, hostbuf=host)) == 0
    with pytest.raises(cl.LogicError, match="INVALID_BUFFER_SIZE"):
        cl.Buffer(program.context, _READ_WRITE, 0)


@pytest.mark.parametrize(
    "function", ["cuMemCreate", "cuMemMap", "cuMemSetAccess", "fake_cuda_import", "cuMemcpyHtoD_v2"]
)
def test_where_cuda_has_no_memory_the_driver_makes_the_buffer(
    program: Program, function: str
) -> None:
    program.fake.fail(function, 2)
    host = np.full(1 << 19, 9, np.int32)
    before = _counts()
    buffer = cl.Buffer(program.context, _READ_WRITE | _COPIED, hostbuf=host)
    assert _address(buffer) == 0 and program.values(buffer) == [9] and _counts() == before


def test_without_sharing_it_says_how_to_share(program: Program) -> None:
    cuda_sharing.stop_sharing()
    buffer = program.buffer()
    assert _address(buffer) == 0
    with capture(program.queue) as graph:
        program.scale(buffer, 2, 1)
    loop = graph.finalize()
    loop.replay(program.queue, wait=True)
    assert program.values(buffer) == [1]


# --- graphs ---


def test_a_chain_runs_as_one_graph(program: Program) -> None:
    y, x = program.buffer(1), program.buffer(10)
    with capture(program.queue) as graph:
        program.scale(y, 2, 3)
        program.total(y, x)
        cl.enqueue_copy(program.queue, x, y, byte_count=y.size)
        cl.enqueue_fill_buffer(program.queue, y, np.full(1, 4, np.int32), 0, y.size)
        program.total(y, x)
    loop = graph.finalize()
    assert "a CUDA Graph of 5 nodes in a chain" in loop.explain(program.queue)
    assert _ran(program, lambda: loop.replay(program.queue, wait=True)) == 1
    assert (program.values(x), program.values(y)) == ([25], [37])
    assert _ran(program, lambda: loop.replay(program.queue, times=3).wait()) == 3


def test_what_is_enqueued_around_it_keeps_its_order(program: Program) -> None:
    y = program.buffer(0)
    with capture(program.queue) as graph:
        program.scale(y, 2, 1)
    loop, expected = graph.finalize(), 0
    for number in range(30):
        program.scale(y, 3, number)
        loop.replay(program.queue)
        expected = (expected * 3 + number) * 2 + 1
    expected = (expected + 2**31) % 2**32 - 2**31
    assert program.values(y) == [expected]


def test_it_waits_for_events_and_blocks_nobody(program: Program) -> None:
    y, gate = program.buffer(5), cl.UserEvent(program.context)
    with capture(program.queue) as graph:
        program.scale(y, 2, 0)
    loop = graph.finalize()
    end = loop.replay(program.queue, wait_for=[gate])
    assert end.command_execution_status > 0
    gate.set_status(cl.command_execution_status.COMPLETE)
    end.wait()
    assert program.values(y) == [10]


def test_an_enqueue_does_not_wait_for_the_replay_before_it(program: Program) -> None:
    y, gate = program.buffer(5), cl.UserEvent(program.context)
    with capture(program.queue) as graph:
        program.scale(y, 2, 0)
    loop = graph.finalize()
    before = program.fake.calls("cuStreamSynchronize")
    program.fake.library.fake_cuda_hold(1)
    loop.replay(program.queue, wait_for=[gate])
    gate.set_status(cl.command_execution_status.COMPLETE)
    while program.fake.calls("cuStreamSynchronize") == before:
        os.sched_yield()
    end = loop.replay(program.queue)
    program.fake.library.fake_cuda_hold(0)
    end.wait()
    assert program.values(y) == [20]


def test_a_graph_that_is_dropped_runs_to_its_end(program: Program) -> None:
    y, gate = program.buffer(5), cl.UserEvent(program.context)
    with capture(program.queue) as graph:
        program.scale(y, 2, 0)
    loop = graph.finalize()
    end = loop.replay(program.queue, wait_for=[gate])
    del loop, graph
    gc.collect()
    (native,) = _unfinished
    assert not lib.fl_cuda_has_ended(native)
    kept = y.reference_count
    gate.set_status(cl.command_execution_status.COMPLETE)
    end.wait()
    assert program.values(y) == [10]
    while _unfinished:  # its thread ends, and Python hears of it
        pass
    assert y.reference_count < kept


@pytest.mark.parametrize(("count", "lets"), [(64, 0), (8192, 1), (128_000, 0)])
def test_kernels_of_some_thousand_threads_let_the_next_one_start(
    early: Program, monkeypatch: pytest.MonkeyPatch, count: int, lets: int
) -> None:
    texts: list[str] = []
    translate = PtxProgram.translate

    def noted(self: PtxProgram, variant: Variant) -> str:
        texts.append(translate(self, variant))
        return texts[-1]

    monkeypatch.setattr(PtxProgram, "translate", noted)
    cuda_functions._modules.clear()
    y, large = early.buffer(1), cl.Buffer(early.context, _READ_WRITE, 4 * count)
    kernel = cl.Kernel(early.program, "scale")
    with capture(early.queue) as graph:
        early.scale(y, 2, 3)
        kernel(early.queue, (count,), None, large, np.int32(1), np.int32(1))
        early.scale(y, 2, 3)
    loop = graph.finalize()
    assert _early(early, loop) == 2
    loop.replay(early.queue, wait=True)
    assert early.values(y) == [13]
    found = [text.count("launch_dependents") for text in texts]
    assert sum(found) == 3 * lets and len(found) == 1 + lets  # three kernels in a text


def test_branches_become_chains(program: Program) -> None:
    queue = cl.CommandQueue(
        program.context, properties=cl.command_queue_properties.OUT_OF_ORDER_EXEC_MODE_ENABLE
    )
    buffers = [program.buffer(number) for number in range(20)]
    with capture(queue) as graph:
        firsts = [program.scale(one, 2, 1, queue=queue) for one in buffers]
        for before, one in zip(firsts, buffers[:-1], strict=False):
            program.total(one, buffers[-1], queue=queue, wait_for=[before, *firsts])
    loop = graph.finalize()
    assert "a CUDA Graph of 39 nodes in 8 chains" in loop.explain(queue)
    loop.replay(queue).wait()
    for number, buffer in enumerate(buffers[:-1]):
        assert program.values(buffer)[0] == (number * 2 + 1) * 3 + 19 * 2 + 1


def test_kernels_of_a_graph_that_is_gone_are_not_compiled_again(program: Program) -> None:
    y = program.buffer(1)
    before = program.fake.calls("cuModuleLoadDataEx")
    for _ in range(3):
        with capture(program.queue) as graph:
            program.scale(y, 2, 1)
        graph.finalize().replay(program.queue, wait=True)
        del graph
        gc.collect()
    assert program.values(y) == [15]
    assert program.fake.calls("cuModuleLoadDataEx") - before == 1


def test_options_of_a_build_are_those_of_cudas_compiler(
    program: Program, monkeypatch: pytest.MonkeyPatch
) -> None:
    """PoCL takes no options of NVIDIA's compiler, so it is asked in vain."""
    real = cuda_functions.call

    def call(handle: int, name: str, *given: Any) -> int:
        if name != "clGetProgramBuildInfo":
            return real(handle, name, *given)
        text = b"-DA=1 -cl-nv-maxrregcount=24 -cl-nv-opt-level 1\0"
        ctypes.memmove(given[3], text, len(text))
        return 0

    monkeypatch.setattr(cuda_functions, "call", call)
    y = program.buffer(1)
    with capture(program.queue) as graph:
        program.scale(y, 2, 1)
    with fairlead.trace(["cuda"]) as calls:
        graph.finalize().replay(program.queue, wait=True)
    (load,) = [str(one) for one in calls if one.name == "cuModuleLoadDataEx"]
    assert "{CU_JIT_MAX_REGISTERS, CU_JIT_OPTIMIZATION_LEVEL}" in load and "{0x18, 0x1}" in load
    assert program.values(y) == [3]


def test_updates_and_parameters_reach_the_graph(program: Program) -> None:
    y, by = program.buffer(1), fairlead.Parameter(np.int32(3), name="by")
    with capture(program.queue) as graph:
        for _ in range(4):
            program.scale(y, 1, by)
    loop = graph.finalize()
    built = program.fake.calls("cuGraphInstantiateWithFlags")
    loop.replay(program.queue, wait=True)
    assert program.values(y) == [13]
    for value in range(5):
        loop.set(by=value)
        loop.replay(program.queue)
    assert program.values(y) == [13 + 4 * 10]
    assert program.fake.calls("cuGraphInstantiateWithFlags") - built == 1


def test_a_whole_graph_updates_the_launches_that_differ(program: Program) -> None:
    y, calls = program.buffer(0), "cuGraphExecKernelNodeSetParams_v2"

    def step(*summands: int) -> CapturedGraph:
        with capture(program.queue) as graph:
            for summand in summands:
                program.scale(y, 2, summand)
        return graph

    graph, again = step(1, 2, 3), step(1, 20, 3)
    loop = graph.finalize(updatable=True)
    loop.replay(program.queue, wait=True)
    before = program.fake.calls(calls)
    loop.update(graph)
    assert program.fake.calls(calls) == before
    loop.update(again)  # its launches have kernels of their own
    assert program.fake.calls(calls) == before + 3
    again[0].set_arg(2, np.int32(10))
    loop.update(again)
    assert program.fake.calls(calls) == before + 4
    loop.replay(program.queue, wait=True)
    assert program.values(y) == [11 * 8 + 10 * 4 + 20 * 2 + 3]


def test_a_changed_parameter_is_one_copy_for_all_launches(program: Program) -> None:
    y, by = program.buffer(1), fairlead.Parameter(np.int32(3), name="by")
    with capture(program.queue) as graph:
        for _ in range(4):
            program.scale(y, 1, by)
    loop = graph.finalize()
    loop.replay(program.queue, wait=True)
    names = "cuGraphExecKernelNodeSetParams_v2", "cuMemcpyAsync"
    before = [program.fake.calls(name) for name in names]
    for value in (3, 5, 5):
        loop.set(by=value)
        loop.replay(program.queue, wait=True)
    assert program.values(y) == [1 + 4 * (3 + 3 + 5 + 5)]
    assert [program.fake.calls(name) for name in names] == [before[0], before[1] + 1]


def test_a_parameter_that_cannot_lie_in_memory_is_updated_in_each_launch(
    program: Program, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = PTX.replace("%envreg3;", "%envreg3;\n\tmov.b64 %rd1, scale_param_2;")
    monkeypatch.setattr(cuda_functions, "query_ptx", lambda program: text)
    y, by = program.buffer(1), fairlead.Parameter(np.int32(3), name="by")
    with capture(program.queue) as graph:
        for _ in range(4):
            program.scale(y, by, by)
    loop = graph.finalize()
    before = program.fake.calls("cuGraphExecKernelNodeSetParams_v2")
    for value in (1, 2):
        loop.replay(program.queue, by=value, wait=True)
    assert program.values(y) == [((((5 * 2 + 2) * 2) + 2) * 2 + 2) * 2 + 2]
    assert program.fake.calls("cuGraphExecKernelNodeSetParams_v2") - before == 4


def test_launches_differ_in_which_arguments_are_parameters(program: Program) -> None:
    y, by = program.buffer(1), fairlead.Parameter(np.int32(3), name="by")
    with capture(program.queue) as graph:
        program.scale(y, 2, 1)
        program.scale(y, by, 1)
        program.scale(y, 1, by)
        program.scale(y, by, by)
    loop = graph.finalize()
    assert "a CUDA Graph of 4 nodes" in loop.explain(program.queue)
    loop.replay(program.queue, by=10, wait=True)
    assert program.values(y) == [(((1 * 2 + 1) * 10 + 1) + 10) * 10 + 10]


def test_an_update_does_not_reach_what_is_enqueued(program: Program) -> None:
    y, by, gate = (
        program.buffer(0),
        fairlead.Parameter(np.int32(1), name="by"),
        cl.UserEvent(program.context),
    )
    with capture(program.queue) as graph:
        program.scale(y, 10, by)
    loop = graph.finalize()
    loop.replay(program.queue, wait_for=[gate])
    built = program.fake.calls("cuGraphInstantiateWithFlags")
    loop.set(by=2)
    loop.replay(program.queue)
    gate.set_status(cl.command_execution_status.COMPLETE)
    assert program.values(y) == [12]
    assert program.fake.calls("cuGraphInstantiateWithFlags") == built


def test_buffers_of_a_replay_that_waits_are_kept(program: Program) -> None:
    a, b, gate = program.buffer(1), program.buffer(2), cl.UserEvent(program.context)
    with capture(program.queue, swap=[(a, b)]) as graph:
        program.total(a, b)
    loop = graph.finalize()
    before = a.reference_count, b.reference_count
    end = loop.replay(program.queue, wait_for=[gate])
    assert (a.reference_count, b.reference_count) == (before[0] + 1, before[1] + 1)
    gate.set_status(cl.command_execution_status.COMPLETE)
    end.wait()
    while (a.reference_count, b.reference_count) != before:
        os.sched_yield()
    loop.replay(program.queue, wait=True)
    assert (program.values(a), program.values(b)) == ([5], [11])


def test_buffers_that_alternate(program: Program) -> None:
    a, b = program.buffer(1), program.buffer(2)
    with capture(program.queue, swap=[(a, b)]) as graph:
        program.total(a, b)
    loop = graph.finalize()
    loop.replay(program.queue, wait=True)
    assert (program.values(a), program.values(b)) == ([5], [2])
    loop.replay(program.queue, wait=True)
    assert (program.values(a), program.values(b)) == ([5], [11])


# --- loops ---


@pytest.fixture
def long_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    """A loop's second part has several turns, however slow the first turn was."""
    monkeypatch.setattr(interrupts, "_SLICE", 1e9)


def _countdown(program: Program, **how: Any) -> tuple[Any, cl.Buffer]:
    """A graph that adds a Parameter, -1, to the numbers of a buffer, which are 6."""
    y, by = program.buffer(7), fairlead.Parameter(np.int32(-1), name="by")
    with capture(program.queue, **how) as graph:
        program.scale(y, 1, by)
    loop = graph.finalize()
    loop.replay(program.queue, wait=True)
    return loop, y


@pytest.mark.usefixtures("long_parts")
def test_a_loop_until_a_flag_ends_at_the_turn_that_sets_it(program: Program) -> None:
    y, a, b, c, flag = (program.buffer(value) for value in (0, 1, 0, 0, 0))
    with capture(program.queue) as graph:
        program.scale(y, 1, 1)
        for source, to in ((c, flag), (b, c), (a, b)):  # the flag is set in the third turn
            cl.enqueue_copy(program.queue, to, source, byte_count=to.size)
    loop = graph.finalize()
    before = program.fake.calls("cuGraphConditionalHandleCreate")
    end = loop.replay(program.queue, times=100, until=flag)
    assert (end.replays, end.has_stopped, program.values(y)) == (3, True, [3])
    assert program.fake.calls("cuGraphConditionalHandleCreate") - before == 1
    assert "a CUDA Graph of 4 nodes" in loop.explain(program.queue)


@pytest.mark.usefixtures("long_parts")
def test_a_while_loop_and_a_choice_run_in_cuda(program: Program) -> None:
    loop, y = _countdown(program)
    assert program.values(y) == [6]
    context = context_of(program.context)
    graph = CommandGraph(context, context.devices[0])
    repeated = graph.while_loop(loop, y)
    chosen = graph.if_else(y, None, loop, depends_on=repeated)
    graph.if_else(y, loop, None, depends_on=chosen)
    before = program.fake.calls("cuGraphConditionalHandleCreate")
    Queue(context, context.devices[0]).graph(graph.finalize()).wait()
    assert program.values(y) == [-2]  # 0 after the loop, then one turn of each choice
    assert program.fake.calls("cuGraphConditionalHandleCreate") - before == 1


@pytest.mark.parametrize("value", [0, 5])
@pytest.mark.parametrize("when", ["then", "otherwise"])
def test_cuda_runs_a_choice_in_the_callers_thread(program: Program, when: str, value: int) -> None:
    loop, y = _countdown(program)
    context, flag = context_of(program.context), program.buffer(value)
    graph = CommandGraph(context, context.devices[0])
    graph.if_else(flag, *((loop, None) if when == "then" else (None, loop)))
    made, queue = graph.finalize(), Queue(context, context.devices[0])
    reads = program.fake.calls("cuMemcpyAsync")
    runs = bool(value) == (when == "then")
    for turn in range(1, 4):
        assert _ran(program, lambda: queue.graph(made).wait()) == runs
        assert program.values(y) == [6 - turn * runs]
    assert program.fake.calls("cuMemcpyAsync") - reads == 3 * (1 + runs)  # each looks at the word


def test_a_choice_of_two_graphs_runs_one_of_them(program: Program) -> None:
    (loop, y), (other, z) = _countdown(program), _countdown(program)
    context = context_of(program.context)
    graph = CommandGraph(context, context.devices[0])
    graph.if_else(y, loop, other)
    made, queue = graph.finalize(), Queue(context, context.devices[0])
    for _ in range(8):
        queue.graph(made).wait()
    assert (program.values(y), program.values(z)) == ([0], [4])


def test_a_loop_takes_new_values_and_updates(program: Program) -> None:
    loop, y = _countdown(program)  # 6
    flag = program.buffer(0)
    for by, turns in ((-1, 3), (2, 4)):
        end = loop.replay(program.queue, times=turns, until=flag, by=by)
        assert (end.replays, end.has_stopped) == (turns, False)
    assert program.values(y) == [6 - 3 + 8]


@pytest.mark.parametrize(
    "function", ["cuGraphConditionalHandleCreate", "cuGraphAddNode_v2", "cuModuleLoadDataEx"]
)
def test_without_loops_of_the_driver_the_host_looks(program: Program, function: str) -> None:
    loop, y = _countdown(program)
    flag = program.buffer(0)
    program.fake.fail(function, 801)
    end = loop.replay(program.queue, times=5, until=flag, every=2)
    assert (end.replays, end.has_stopped, program.values(y)) == (5, False, [6 - 5])
    context = context_of(program.context)
    graph = CommandGraph(context, context.devices[0])
    graph.if_else(y, loop, None, depends_on=graph.if_else(flag, loop, None))
    Queue(context, context.devices[0]).graph(graph.finalize()).wait()
    assert program.values(y) == [0]  # the first choice ran nothing


def test_the_turn_of_a_loop_is_valid_ptx(tmp_path: Path) -> None:
    ptxas = os.environ.get("PTXAS") or shutil.which("ptxas")
    if not ptxas:
        pytest.skip("needs ptxas: pip install nvidia-cuda-nvcc, or PTXAS=PATH")
    source = tmp_path / "turn.ptx"
    source.write_bytes(ffi.string(lib.fl_turn_text()))
    command = [ptxas, "-arch=sm_90", "-c", str(source), "-o", str(tmp_path / "turn.cubin")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


# --- kernels that start early ---


@pytest.fixture
def early(cuda_on_pocl: FakeCuda, monkeypatch: pytest.MonkeyPatch) -> Program:
    """A program on a GPU where kernels start early."""
    program = Program(cuda_on_pocl)
    device = cuda_sharing.find_shared_device(program.context.devices[0].int_ptr)
    assert device is not None and device.why_not_early
    monkeypatch.setattr(device, "early_threads", 100_000)
    monkeypatch.setattr(device, "why_not_early", "")
    return program


def _early(program: Program, loop: Any, queue: Any = None) -> int:
    """How many nodes of a graph start early."""
    text = loop.explain(queue or program.queue)
    found = re.search(r"a CUDA Graph of \d+ nodes in [^,;]*(?:, (\d+) of which start early)?", text)
    assert found
    return int(found[1] or 0)


def test_kernels_of_a_chain_start_early(early: Program) -> None:
    y, x = early.buffer(1), early.buffer(10)
    with capture(early.queue) as graph:
        early.scale(y, 2, 3)
        early.scale(y, 2, 1)
        early.total(y, x)
        cl.enqueue_copy(early.queue, x, y, byte_count=y.size)  # no kernel
        early.total(y, x)
        early.scale(y, 2, 0)
    loop = graph.finalize()
    assert _early(early, loop) == 3
    loop.replay(early.queue, wait=True)
    assert early.values(y) == [2 * 4 * ((1 * 2 + 3) * 2 + 1) * 3 + 2 * 4 * 10]


def test_at_forks_and_joins_none_starts_early(early: Program) -> None:
    queue = cl.CommandQueue(
        early.context, properties=cl.command_queue_properties.OUT_OF_ORDER_EXEC_MODE_ENABLE
    )
    a, b = early.buffer(1), early.buffer(2)
    with capture(queue) as graph:
        root = early.scale(a, 2, 1, queue=queue)
        left = early.scale(a, 3, 1, queue=queue, wait_for=[root])
        right = early.scale(b, 3, 1, queue=queue, wait_for=[root])
        join = early.total(a, b, queue=queue, wait_for=[left, right])
        early.scale(a, 2, 1, queue=queue, wait_for=[join])
    loop = graph.finalize()
    assert _early(early, loop, queue) == 1  # the last one
    loop.replay(queue).wait()
    assert early.values(a) == [2 * (10 * 3 + 7) + 1]


def test_in_many_chains_none_starts_early(early: Program) -> None:
    queue = cl.CommandQueue(
        early.context, properties=cl.command_queue_properties.OUT_OF_ORDER_EXEC_MODE_ENABLE
    )
    buffers = [early.buffer(number) for number in range(5)]
    with capture(queue) as graph:
        for one in buffers:
            first = early.scale(one, 2, 1, queue=queue)
            early.scale(one, 2, 1, queue=queue, wait_for=[first])
    assert _early(early, graph.finalize(), queue) == 0


def test_where_the_driver_refuses_it_no_kernel_starts_early(early: Program) -> None:
    y = early.buffer(1)
    early.fake.fail("cuGraphAddDependencies_v2", 801)
    with capture(early.queue) as graph:
        early.scale(y, 2, 3)
        early.scale(y, 2, 1)
    loop = graph.finalize()
    assert _early(early, loop) == 0
    assert _ran(early, lambda: loop.replay(early.queue, wait=True)) == 1
    assert early.values(y) == [11]


def test_explain_says_why_no_kernel_starts_early(program: Program) -> None:
    y = program.buffer(1)
    with capture(program.queue) as graph:
        program.scale(y, 2, 3)
    why = "none of which starts early: the driver's profile does not allow it"
    assert why in graph.finalize().explain(program.queue)


# --- what it leaves to others ---


def _why_not(program: Program, body: Callable[[], object]) -> str:
    with capture(program.queue) as graph:
        body()
    loop = graph.finalize()
    loop.replay(program.queue, wait=True)
    (line,) = (one for one in loop.explain(program.queue).splitlines() if "  cuda" in one)
    return line.split("not chosen: ")[1]


def test_refusals_name_the_command(program: Program) -> None:
    y, host = program.buffer(1), np.zeros(_SIZE, np.int32)
    alone = cl.Buffer(program.context, _READ_WRITE | cl.mem_flags.USE_HOST_PTR, hostbuf=host)
    queue = program.queue
    assert _why_not(program, lambda: program.scale(alone, 1, 1)) == (
        "command 0 (kernel): a buffer of it is not shared with CUDA: it is of host memory, or was "
        "made before the sharing began. Create it after import fairlead.cuda_sharing, without "
        "USE_HOST_PTR and ALLOC_HOST_PTR"
    )
    prints = cl.Kernel(program.program, "prints")
    assert _why_not(program, lambda: prints(queue, (_SIZE,), None, y)) == (
        "command 0 (kernel): the kernel prints: it prints; it can run outside the block"
    )
    image = cl.create_image(program.context, _READ_WRITE, cl.ImageFormat(*_PIXEL), shape=(4, 4))
    black = np.zeros(4, np.uint32)
    fill = partial(cl.enqueue_fill_image, queue, image, black, (0, 0), (4, 4))
    assert _why_not(program, fill) == (
        "command 0 (fill_image): it uses images: use buffers, or run it outside the block"
    )


# --- the host's memory, and longer patterns ---


def test_the_graph_reads_and_writes_host_memory(program: Program) -> None:
    y, given, found = program.buffer(0), np.full(_SIZE, 3, np.int32), np.zeros(_SIZE, np.int32)
    array = cl_array.Array(program.queue, (_SIZE,), np.int32, data=y)
    with capture(program.queue) as graph:
        cl.enqueue_copy(program.queue, y, given, is_blocking=False)
        program.scale(y, 2, 1)
        array.get_async(program.queue, found)
        program.scale(y, 0, 0)
    loop = graph.finalize()
    assert "a CUDA Graph of 4 nodes in a chain" in loop.explain(program.queue)
    for value in (3, 5):
        given[:] = value
        assert _ran(program, lambda: loop.replay(program.queue, wait=True)) == 1
        assert (set(found), program.values(y)) == ({2 * value + 1}, [0])
    given[:] = 7
    loop.replay(program.queue, times=2).wait()
    assert set(found) == {15}


@pytest.mark.parametrize("seed", range(4))
def test_rectangles_of_host_memory_are_what_the_driver_copies(
    program: Program, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    random = np.random.default_rng(seed)
    region = [int(random.integers(1, 4)) for _ in range(3)]
    origins = [[int(random.integers(0, 3)) for _ in range(3)] for _ in range(2)]
    rows = [int(random.integers(6, 9)) for _ in range(2)]
    pitches = [(row, row * int(random.integers(6, 9))) for row in rows]
    results = []
    for engine in ("cuda", "replay"):
        monkeypatch.setenv("FAIRLEAD_COMMAND_BUFFER", engine)
        host = [np.arange(600, dtype=np.uint8), np.zeros(600, np.uint8)]
        y = cl.Buffer(program.context, _READ_WRITE | _COPIED, hostbuf=np.zeros(600, np.uint8))
        how = {
            "buffer_origin": origins[0],
            "host_origin": origins[1],
            "region": region,
            "buffer_pitches": pitches[0],
            "host_pitches": pitches[1],
            "is_blocking": False,
        }
        with capture(program.queue) as graph:
            cl.enqueue_copy(program.queue, y, host[0], **how)
            cl.enqueue_copy(program.queue, host[1], y, **how)
        loop = graph.finalize()
        assert ("a CUDA Graph of 2 nodes" in loop.explain(program.queue)) == (engine == "cuda")
        loop.replay(program.queue, wait=True)
        whole = np.empty(600, np.uint8)
        cl.enqueue_copy(program.queue, whole, y)
        results.append((host[1].tolist(), whole.tolist()))
    assert results[0] == results[1] and any(results[0][0])


@pytest.mark.parametrize("length", [8, 16, 128])
def test_a_fill_with_a_longer_pattern_is_a_graph_in_the_graph(
    program: Program, length: int
) -> None:
    y, pattern = program.buffer(0), np.arange(length // 4, dtype=np.int32)
    with capture(program.queue) as graph:
        cl.enqueue_fill_buffer(program.queue, y, pattern, length, y.size - length)
        program.scale(y, 3, 1)
    before = program.fake.calls("cuGraphAddMemsetNode")
    loop = graph.finalize()
    loop.replay(program.queue, wait=True)
    assert program.fake.calls("cuGraphAddMemsetNode") - before == length // 4
    assert "a CUDA Graph of 2 nodes in a chain" in loop.explain(program.queue)
    found = np.empty(_SIZE, np.int32)
    cl.enqueue_copy(program.queue, found, y)
    begin = length // 4
    assert set(found[:begin]) == {1}
    assert found[begin:].tolist() == np.tile(pattern * 3 + 1, _SIZE // begin - 1).tolist()


def test_a_pattern_that_repeats_is_one_set(program: Program) -> None:
    y = program.buffer(0)
    with capture(program.queue) as graph:
        cl.enqueue_fill_buffer(program.queue, y, np.full(4, 9, np.int32), 0, y.size)
    loop, before = graph.finalize(), program.fake.calls("cuGraphAddChildGraphNode")
    loop.replay(program.queue, wait=True)
    assert program.values(y) == [9]
    assert program.fake.calls("cuGraphAddChildGraphNode") == before


@pytest.mark.parametrize("function", ["", "cuGraphExecChildGraphNodeSetParams"])
def test_fills_and_reads_of_buffers_that_alternate(program: Program, function: str) -> None:
    a, b, found = program.buffer(1), program.buffer(2), np.zeros(_SIZE, np.int32)
    with capture(program.queue, swap=[(a, b)]) as graph:
        cl.enqueue_copy(program.queue, found, a, is_blocking=False)
        cl.enqueue_fill_buffer(program.queue, a, np.arange(2, dtype=np.int32), 0, a.size)
    loop = graph.finalize()
    loop.replay(program.queue, wait=True)
    assert (set(found), program.values(a), program.values(b)) == ({1}, [0, 1], [2])
    built = program.fake.calls("cuGraphInstantiateWithFlags")
    program.fake.fail(function or "cuGraphCreateUnused", 801)
    loop.replay(program.queue, wait=True)
    assert (set(found), program.values(b)) == ({2}, [0, 1])
    assert (program.fake.calls("cuGraphInstantiateWithFlags") > built) == bool(function)


def test_host_memory_of_a_graph_that_is_dropped_is_kept(program: Program) -> None:
    y, gate = program.buffer(5), cl.UserEvent(program.context)
    found = np.zeros(_SIZE, np.int32)
    with capture(program.queue) as graph:
        cl.enqueue_copy(program.queue, found, y, is_blocking=False)
    end = graph.finalize().replay(program.queue, wait_for=[gate])
    gone: list[int] = []
    weakref.finalize(found, gone.append, 1)
    look = found.ctypes.data
    del graph, found
    gc.collect()
    assert not gone
    gate.set_status(cl.command_execution_status.COMPLETE)
    end.wait()
    assert gone or set((ctypes.c_int32 * _SIZE).from_address(look)) == {5}


@pytest.mark.parametrize(("size", "stays"), [(64, False), (1 << 20, True)])
def test_auto_knows_how_long_host_memory_takes(
    program: Program, monkeypatch: pytest.MonkeyPatch, size: int, stays: bool
) -> None:
    y, found = cl.Buffer(program.context, _READ_WRITE, size), np.zeros(size, np.uint8)
    with capture(program.queue) as graph:
        cl.enqueue_copy(program.queue, found, y, is_blocking=False)
    loop = graph.finalize()
    loop.replay(program.queue, wait=True)
    built = next(one for one in gc.get_objects() if isinstance(one, cuda_engine.BuiltCuda))
    monkeypatch.setattr(built, "_launch_seconds", 5e-6)
    fake = SimpleNamespace(
        fl_cuda_taken=lambda graph: 200_000, fl_cuda_host_bytes=lib.fl_cuda_host_bytes
    )
    with monkeypatch.context() as patched:
        patched.setattr(cuda_engine, "lib", fake)
        assert (built.find_slower_commands() == {}) == stays


@pytest.mark.parametrize(
    "function",
    [
        "cuModuleLoadDataEx",
        "cuModuleGetFunction",
        "cuGraphAddKernelNode_v2",
        "cuGraphAddMemcpyNode",
        "cuGraphAddMemsetNode",
        "cuGraphAddChildGraphNode",
        "cuGraphInstantiateWithFlags",
    ],
)
def test_where_cuda_refuses_a_graph_another_engine_runs_it(program: Program, function: str) -> None:
    y, found = program.buffer(1), np.zeros(_SIZE, np.int32)
    program.fake.fail(function, 218)

    def body() -> None:
        program.scale(y, 2, 1)
        cl.enqueue_copy(program.queue, found, y, is_blocking=False)
        cl.enqueue_fill_buffer(program.queue, y, np.arange(2, dtype=np.int32), 0, y.size)

    assert "CUDA" in _why_not(program, body) or function
    assert (program.values(y), set(found)) == ([0, 1], {3})


@pytest.mark.parametrize("given", ["", "step"])
@pytest.mark.parametrize("waited", [True, False])
def test_a_kernel_that_fails_ends_the_engine_and_not_the_graph(
    program: Program,
    capfd: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    waited: bool,
    given: str,
) -> None:
    monkeypatch.setattr(command_buffer, "_said", set())
    y = program.buffer(1)
    line = sys._getframe().f_lineno + 1
    with capture(program.queue, name=given) as graph:
        program.scale(y, 2, 1)
    name = f'"{given}"' if given else f"captured at test_cuda.py:{line}"
    loop = graph.finalize()
    loop.replay(program.queue, wait=True)
    other, z = _countdown(program)
    other.replay(program.queue, wait=True)
    program.fake.fail("cuStreamSynchronize", 700)
    queue = cl.CommandQueue(program.context)
    with pytest.raises((cl.Error, fairlead.OpenCLError)) as failure:
        loop.replay(queue, wait=waited).wait()
    named = f"a kernel of the graph {name} has ended CUDA's context: CUDA_ERROR_ILLEGAL_ADDRESS"
    if waited:
        assert named in str(failure.value) and "compute-sanitizer" in str(failure.value)
    now = program.values(y)[0]
    capfd.readouterr()
    other.replay(program.queue, wait=True)  # one that needs Python no more
    assert program.values(z) == [4]
    for _ in range(2):
        loop.replay(program.queue, wait=True)
    assert program.values(y) == [2 * (2 * now + 1) + 1]
    assert capfd.readouterr().err.count(f"fairlead: warning: {named}") == 1
    assert named in loop.explain(program.queue)
    with capture(program.queue) as another:
        program.scale(y, 0, 5)
    after = another.finalize()
    after.replay(program.queue, wait=True)
    assert program.values(y) == [5] and named in after.explain(program.queue)


def test_a_loop_that_fails_names_its_graph(program: Program) -> None:
    loop, _ = _countdown(program, name="countdown")
    flag = program.buffer(0)
    program.fake.fail("cuStreamSynchronize", 719)
    with pytest.raises(fairlead.OpenCLError, match='the graph "countdown" has ended CUDA'):
        loop.replay(program.queue, times=100, until=flag)


# --- what sharing would gain ---


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
    image = cl.create_image(alone.context, _READ_WRITE, cl.ImageFormat(*_PIXEL), shape=(4, 4))
    queue = alone.queue
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        _launches(alone, 10).finalize()
        y = alone.buffer(1)
        with capture(queue) as graph:  # CUDA could not run it
            for _ in range(200):
                alone.scale(y, 1, 1)
            _enqueue_copy(queue, y, image, offset=0, origin=(0, 0), region=(4, 4))
        graph.finalize()
        monkeypatch.setenv("FAIRLEAD_CUDA", "0")  # the user knows
        _launches(alone, 200).finalize()


# --- the self-test of the compiler ---


@pytest.fixture
def compiled(
    program: Program, pocl_wheel: Candidate, monkeypatch: pytest.MonkeyPatch
) -> cuda_sharing.SharedDevice:
    """A device whose kernels PoCL compiles, also for CUDA."""
    monkeypatch.setenv("FAKE_CUDA_OPENCL", locate(pocl_wheel)[0])
    monkeypatch.setattr(cuda_functions, "query_ptx", lambda program: SELF_TEST_SOURCE.decode())
    monkeypatch.setattr(cuda_functions, "PtxProgram", TranslatedOpenCL)
    device = cuda_sharing.find_shared_device(program.context.devices[0].int_ptr)
    assert device is not None
    return device


def test_the_self_test_passes_where_cuda_does_what_opencl_does(
    compiled: cuda_sharing.SharedDevice, program: Program
) -> None:
    steps: list[str] = []
    before = program.fake.calls("cuGraphLaunch")
    assert not find_difference_on_cuda(compiled, ("",), steps.append)
    assert program.fake.calls("cuGraphLaunch") - before == 5 and steps[-1] == "ending"


@pytest.mark.parametrize(
    ("right", "wrong", "shape"),
    [
        ("fl_offset[", "fl_offset[4] = {0}, fl_unused[", "((5, 0, 0), (7, 1, 1), (1, 1, 1))"),
        ("{2, 3, 5, 7}", "{2, 3, 5, 8}", "((0, 0, 0), (24, 1, 1), (8, 1, 1))"),
        ("table[item", "table[1 + item", "((0, 0, 0), (24, 1, 1), (8, 1, 1))"),
    ],
    ids=["offset", "constant", "argument"],
)
def test_the_self_test_finds_what_is_translated_wrongly(
    compiled: cuda_sharing.SharedDevice,
    monkeypatch: pytest.MonkeyPatch,
    right: str,
    wrong: str,
    shape: str,
) -> None:
    translate = TranslatedOpenCL.translate

    def wrongly(self: TranslatedOpenCL, variant: Variant) -> str:
        text = translate(self, variant)
        assert right in text
        return text.replace(right, wrong, 1)

    monkeypatch.setattr(TranslatedOpenCL, "translate", wrongly)
    found = find_difference_on_cuda(compiled, ("",), lambda step: None)
    assert found == f"results differ for {shape}"


@pytest.fixture
def untested(program: Program, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """Nothing is known of any driver. The self-test is the module of this file."""
    monkeypatch.setattr(cuda_trust, "why_not_device", WHY_NOT_DEVICE)
    monkeypatch.setattr(cuda_trust, "_known", {})
    monkeypatch.setattr(cuda_trust, "SELF_TEST", "hostile_cuda_test")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.syspath_prepend(str(tmp_path))
    return tmp_path / "hostile_cuda_test.py"


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("def main(data, progress): return {'difference': 'results differ'}", "results differ"),
        ("import os\ndef main(data, progress): progress('sharing'); os.abort()", "SIGABRT"),
        ("def main(data, progress): progress('sharing'); raise ValueError('no PTX')", "no PTX"),
    ],
    ids=["differs", "crashes", "raises"],
)
def test_kernels_of_a_compiler_that_fails_the_self_test_do_not_run_in_cuda(
    program: Program, untested: Path, text: str, reason: str
) -> None:
    untested.write_text(text, encoding="utf-8")
    y = program.buffer(1)
    said = _why_not(program, lambda: program.scale(y, 2, 1))
    assert said.startswith("its self-test: ") and reason in said
    assert program.values(y) == [3]  # by another engine


def test_the_self_test_runs_once_and_is_remembered(
    program: Program, untested: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    passes = "def main(data, progress): return {'difference': ''}"
    untested.write_text(passes, encoding="utf-8")
    device = program.context.devices[0].int_ptr
    assert cuda_trust.why_not_device(device) is None
    untested.write_text("raise AssertionError('it runs again')", encoding="utf-8")
    assert cuda_trust.why_not_device(device) is None
    monkeypatch.setattr(cuda_trust, "_known", {})  # as in another process
    assert cuda_trust.why_not_device(device) is None
    identity = cuda_trust.identify_device(device)
    monkeypatch.setattr(cuda_trust, "_known", {})
    monkeypatch.setattr(
        cuda_trust, "identify_device", lambda device: (*identity[:3], "a newer driver")
    )
    assert "it runs again" in (cuda_trust.why_not_device(device) or "")


@pytest.mark.usefixtures("untested")
def test_without_a_self_test_nothing_runs_in_cuda(
    program: Program, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FAIRLEAD_PROBE", "0")
    y = program.buffer(1)
    said = _why_not(program, lambda: program.scale(y, 2, 1))
    assert said == "FAIRLEAD_PROBE=0 forbids its self-test"


# --- edges ---


def test_edges_have_the_given_order_and_no_more_than_they_need() -> None:
    edges = chain_commands(Order([[], [0], [1], []], [False] * 4))
    assert (edges.before, edges.chains) == ([[], [0], [1], []], 2)
    assert (edges.first, edges.flat) == ([0, 0, 1, 2, 2], [0, 1])
    join = chain_commands(
        Order([[], [], [], [0, 1, 2], [3], [3]], [False] * 3 + [True] + [False] * 2)
    )
    assert sorted(join.before[4]) == sorted(join.before[5]) == [0, 1, 2]
    assert OPENCL["CL_MEM_USE_HOST_PTR"] == 8  # what the fake driver gives PoCL
