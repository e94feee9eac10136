"""Captured launches are changed by argument index and by range, before they are finalized and in
executable graphs."""

from __future__ import annotations

import ctypes
import gc
import weakref
from typing import Any

import numpy as np
import pyopencl as cl
import pyopencl.array
import pytest
from helpers.captures import SOURCE, Numbers
from helpers.programs import build_once
from pyopencl import cltypes

import fairlead
from fairlead.captured_graphs import argument_objects
from fairlead.captured_graphs.context import capture
from fairlead.captured_graphs.segment import ReplayError
from fairlead.icd.abi import OPENCL
from fairlead.icd.calls import find_device_profile
from fairlead.runtime import Errc, LocalMemory, NDRange, RawArgument, SYCLError


def captured(numbers: Numbers) -> Any:
    """A graph that adds 1 and multiplies by 3."""
    with capture(numbers.queue) as graph:
        numbers.add(1)
        numbers.mul(3)
    return graph


def test_one_step_for_a_launch(numbers: Numbers) -> None:
    graph = captured(numbers)
    loop, other = graph.finalize(updatable=True), numbers.new(100)
    for number in (2, 3, 4):
        loop.set(graph[0], 1, np.int32(number))
        loop.replay(numbers.queue)
    assert numbers.value() == ((2 * 3 + 3) * 3 + 4) * 3
    loop.set(graph.find("add")[0], 0, other)
    loop.set(graph[0], 1, np.int32(7))
    graph[1].update_range(32)
    loop.update(graph[1])
    loop.replay(numbers.queue)
    assert numbers.value(other) == 107
    before = graph[1].args
    with pytest.raises(SYCLError, match="argument 1 has 4 bytes, not 8"):
        loop.set(graph[1], 1, RawArgument(bytes(8)))
    again = graph.finalize(updatable=True)  # numbers of the graph, too
    assert graph[1].args[1] == before[1]
    again.replay(numbers.queue)
    assert numbers.value(other) == 114


def test_nodes_tell_their_arguments(numbers: Numbers) -> None:
    program = cl.Program(numbers.queue.context, SOURCE).build(["-cl-kernel-arg-info"])
    by = fairlead.Parameter(np.int32(6))
    with capture(numbers.queue) as graph:
        program.add(numbers.queue, (64,), None, numbers.buffer, np.int32(5))
        tile: Any = cl.LocalMemory(16)
        program.shared_add(numbers.queue, (64,), (4,), numbers.buffer, by, tile)
        numbers.read()
    assert graph.find("add") == [graph[0]] and graph.find("none") == []
    arguments: Any = graph[0].args
    buffer, number = arguments
    assert buffer == numbers.buffer and number == 5 and type(number) is np.int32
    assert graph[1].args[1] is by and graph[1].args[2].size == 16 and graph[2].args == ()
    graph[0].set_arg(1, np.int32(8))
    assert graph[0].args[1] == 8


def test_a_new_buffer_lives_as_long_as_it_is_used(numbers: Numbers) -> None:
    graph, other = captured(numbers), numbers.new(20)
    loop = graph.finalize(updatable=True)
    graph[0].set_arg(0, other)
    graph[1].set_arg(0, other)
    loop.update(graph.nodes)
    host = np.zeros(64, np.int32)
    with capture(numbers.queue) as reading:
        cl.enqueue_copy(numbers.queue, host, other, is_blocking=False)
    del other
    gc.collect()
    rubbish = [numbers.new(-1) for _ in range(50)]
    loop.replay(numbers.queue)
    reading.finalize().replay(numbers.queue).wait()
    assert host[0] == 63 and len(rubbish) == 50


def test_arrays_and_svm(numbers: Numbers) -> None:
    graph, queue = captured(numbers), numbers.queue
    loop = graph.finalize(updatable=True)
    array = pyopencl.array.to_device(queue, np.full(64, 4, np.int32))
    memory = cl.SVMAllocation(queue.context, 256, 0, cl.svm_mem_flags.READ_WRITE)
    cl.enqueue_copy(queue, memory, np.full(64, 9, np.int32))
    graph[0].set_arg(0, array)
    graph[1].set_arg(0, memory)
    loop.update(graph.nodes)
    loop.replay(queue).wait()
    out = np.zeros(64, np.int32)
    cl.enqueue_copy(queue, out, memory)
    assert array.get()[0] == 5 and (out == 27).all() and numbers.value() == 0
    with pytest.raises(pyopencl.array.ArrayHasOffsetError):
        graph[0].set_arg(0, array[1:])
    loop.replay(queue).wait()
    graph[1].set_arg(0, numbers.buffer)  # and back to a buffer
    loop.update(graph[1])
    if find_device_profile(queue.device.int_ptr).svm_arguments_stick:
        with pytest.raises(ReplayError, match="CL_INVALID_KERNEL_ARGS"):
            loop.replay(queue)
        return
    loop.replay(queue).wait()


@pytest.mark.parametrize("updatable", [False, True])
def test_new_memory_lives_as_long_as_a_dropped_graph_runs(
    numbers: Numbers, updatable: bool
) -> None:
    class Memory(cl.SVMAllocation):  # of which there can be weak references
        pass

    queue, graph = numbers.queue, captured(numbers)
    memory: Any = Memory(queue.context, 256, 0, cl.svm_mem_flags.READ_WRITE)
    cl.enqueue_copy(queue, memory, np.full(64, 9, np.int32))
    loop = graph.finalize(updatable=True) if updatable else None
    graph[0].set_arg(0, memory)
    if loop is not None:
        loop.update(graph[0])
    loop, gate = loop or graph.finalize(), cl.UserEvent(queue.context)
    event, there = loop.replay(queue, wait_for=[gate]), weakref.ref(memory)
    del graph, loop, memory
    gc.collect()
    assert there() is not None
    gate.set_status(cl.command_execution_status.COMPLETE)
    event.wait()
    captured(numbers).finalize().replay(queue).wait()  # which looks for what has ended
    gc.collect()
    assert there() is None


@pytest.mark.parametrize("kind", [LocalMemory, cl.LocalMemory])
def test_local_memory(numbers: Numbers, kind: Any) -> None:
    with capture(numbers.queue) as graph:
        small: Any = cl.LocalMemory(16)
        numbers.shared_add(numbers.queue, (64,), (4,), numbers.buffer, np.int32(2), small)
    loop = graph.finalize(updatable=True)
    loop.replay(numbers.queue)
    graph[0].set_arg(2, kind(64))
    graph[0].update_nd_range(NDRange(64, 16))
    assert graph[0].details == {"kernel": "shared_add", "global_size": (64,), "local_size": (16,)}
    loop.update(graph[0])
    loop.replay(numbers.queue)
    assert numbers.value() == 4


def test_ranges(numbers: Numbers) -> None:
    graph = captured(numbers)
    loop = graph.finalize(updatable=True)
    graph[0].update_range(32)
    graph[1].update_range(32)
    loop.update(graph.nodes)
    loop.replay(numbers.queue).wait()
    values = np.empty(64, np.int32)
    cl.enqueue_copy(numbers.queue, values, numbers.buffer)
    assert values.tolist() == [3] * 32 + [0] * 32 and graph[0].label == "add(32)"
    with pytest.raises(SYCLError, match="1 dimensions, not 2"):
        graph[0].update_range((8, 8))
    with pytest.raises(SYCLError, match="it was created with a range"):
        graph[0].update_nd_range(NDRange(64, 16))


def test_what_an_argument_cannot_be(numbers: Numbers) -> None:
    graph = captured(numbers)
    with capture(numbers.queue) as other:
        tile: Any = cl.LocalMemory(16)
        numbers.shared_add(numbers.queue, (64,), (4,), numbers.buffer, np.int32(2), tile)
        numbers.read()
    wrong = [
        (graph[0], 2, np.int32(1), "the kernel add has 2 arguments, no argument 2"),
        (graph[0], -1, np.int32(1), "no argument -1"),
        (graph[0], 1, RawArgument(bytes(8)), "argument 1 has 4 bytes, not 8"),
        (graph[0], 1, 1, r"is a Python int.*\n.*numpy\.int32"),
        (graph[0], 1, numbers.buffer, "argument 1 takes a value of 4 bytes, and was given memory"),
        (graph[0], 0, np.int64(1), "argument 0 (takes memory|of add is declared a pointer)"),
        (graph[0], 0, cl.LocalMemory(4), "argument 0 takes memory, and was given local memory"),
        (other[0], 2, numbers.buffer, "argument 2 takes local memory"),
        (graph[0], 0, "text", "can be no kernel's argument"),
        (other[1], 0, np.int32(1), "node 1, read.256 bytes., is not a kernel"),
    ]
    for node, index, value, message in wrong:
        with pytest.raises(SYCLError, match=message):
            node.set_arg(index, value)
    assert graph.is_as_recorded
    with pytest.raises(SYCLError, match="not created with property::updatable"):
        graph.finalize().update(graph[0])
    with pytest.raises(SYCLError, match="not part of the graph"):
        graph.finalize(updatable=True).update(other[0])


def test_numbers_become_what_the_kernel_declares(numbers: Numbers) -> None:
    program = cl.Program(numbers.queue.context, SOURCE)
    add = program.build(["-cl-kernel-arg-info"]).add
    with capture(numbers.queue) as graph:
        add(numbers.queue, (64,), None, numbers.buffer, np.int32(1))
    graph[0].set_arg(1, np.float32(7))
    graph.finalize().replay(numbers.queue)
    assert numbers.value() == 7
    for wrong in (np.float32(7.5), np.int64(1 << 31)):
        with pytest.raises(SYCLError, match="argument 1 of add is declared int"):
            graph[0].set_arg(1, wrong)


def test_memory_that_is_gone_or_of_another_context_is_refused(numbers: Numbers) -> None:
    """A driver that is given it crashes."""
    graph, queue = captured(numbers), numbers.queue
    released = numbers.new()
    released.release()
    with pytest.raises(SYCLError, match="argument 0 is") as caught:
        graph[0].set_arg(0, released)
    assert caught.value.errc is Errc.kernel_argument
    other = cl.Buffer(cl.Context([queue.device]), cl.mem_flags.READ_WRITE, 256)
    with pytest.raises(SYCLError, match="argument 0 is memory of another context"):
        graph[0].set_arg(0, other)
    graph.finalize().replay(queue)
    assert numbers.value() == 3


def test_memory_without_a_reference_is_refused(
    numbers: Numbers, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was released, and what it was is still there."""
    graph, ask = captured(numbers), argument_objects.call

    def answer(handle: int, routine: str, query: int, size: int, value: int, needed: None) -> int:
        code = ask(handle, routine, query, size, value, needed)
        if query == OPENCL["CL_MEM_REFERENCE_COUNT"]:
            ctypes.c_uint32.from_address(value).value = 0
        return code

    monkeypatch.setattr(argument_objects, "call", answer)
    with pytest.raises(SYCLError, match="of another context, or was released"):
        graph[0].set_arg(0, numbers.new())


def test_null_and_back(numbers: Numbers) -> None:
    program = cl.Program(
        numbers.queue.context,
        "kernel void one(global int *a, global int *b) { if (b) a[0] += b[0]; else a[0] += 100; }",
    )
    kernel, other = program.build().one, numbers.new(5)
    with capture(numbers.queue) as graph:
        kernel(numbers.queue, (1,), None, numbers.buffer, other)
    loop = graph.finalize(updatable=True)
    expected = 0
    for argument, more in ((None, 100), (other, 5), (None, 100)):
        graph[0].set_arg(1, argument)
        loop.update(graph[0])
        loop.replay(numbers.queue)
        expected += more
    values = np.empty(64, np.int32)
    cl.enqueue_copy(numbers.queue, values, numbers.buffer)
    assert values[0] == expected


# --- the same code, captured again ---


def test_transfers_and_kernels_of_other_programs_are_taken_over_too(numbers: Numbers) -> None:
    def step(target: cl.Buffer, host: np.ndarray, kernel: cl.Kernel) -> None:
        cl.enqueue_fill_buffer(numbers.queue, target, np.array(host[0], np.int32), 0, 256)
        kernel(numbers.queue, (64,), None, target, np.int32(3))
        cl.enqueue_copy(numbers.queue, host, target, is_blocking=False)

    first, second = np.full(64, 1, np.int32), np.full(64, 2, np.int32)
    with capture(numbers.queue) as graph:
        step(numbers.buffer, first, numbers.program.add)
    loop = graph.finalize(updatable=True)
    loop.replay(numbers.queue).wait()
    doubled = build_once(numbers.queue.context, SOURCE.replace("+= n", "+= 2 * n"))
    other = numbers.new()
    with capture(numbers.queue) as again:
        step(other, second, doubled.add)
    loop.update(again)
    loop.replay(numbers.queue, times=2).wait()
    assert (first[0], second[0], numbers.value(), numbers.value(other)) == (4, 8, 4, 8)


def test_captures_of_another_shape_are_refused(numbers: Numbers) -> None:
    loop = captured(numbers).finalize(updatable=True)
    with capture(numbers.queue) as longer:
        numbers.add(1)
        numbers.mul(3)
        numbers.mul(3)
    with capture(numbers.queue) as other:
        numbers.mul(1)
        numbers.add(3)
    with pytest.raises(SYCLError, match="number of nodes: 2 and 3"):
        loop.update(longer)
    with pytest.raises(SYCLError, match="mismatched kernel types"):
        loop.update(other)
    loop.replay(numbers.queue)
    assert numbers.value() == 3


def test_arguments_become_arrays_without_dimensions(queue: cl.CommandQueue) -> None:
    """PyOpenCL's vectors are such arrays."""
    source = "kernel void sum(global float *o, float4 v, int n) { o[0] = v.x + v.w + n; }"
    kernel = cl.Program(queue.context, source).build().sum
    out: Any = pyopencl.array.zeros(queue, 1, np.float32)
    make: Any = vars(cltypes)["make_float4"]
    with capture(queue) as graph:
        kernel(queue, (1,), None, out.data, make(1, 0, 0, 2), np.array(3, np.int32))
    loop = graph.finalize(updatable=True)
    graph[0].set_arg(1, make(4, 0, 0, 5))
    loop.update(graph[0])
    loop.replay(queue).wait()
    assert out.get()[0] == 12
    loop.set(graph[0], 2, np.array(7, np.int32))
    loop.replay(queue).wait()
    assert out.get()[0] == 16
