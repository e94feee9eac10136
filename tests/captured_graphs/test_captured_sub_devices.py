"""Captures on sub-devices of PyOpenCL: the runtime imports them, so that their graphs can be
changed."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pyopencl as cl
import pytest
from helpers.captures import Numbers, seen_between

from fairlead.captured_graphs.context import capture
from fairlead.graph import CommandGraph
from fairlead.runtime import Program, Queue, malloc_shared
from fairlead.runtime.interop import context_of, device_of, to_pyopencl


@pytest.fixture
def parts(device: cl.Device) -> list[cl.Device]:
    """Two parts of a device that can be divided: PoCL 7.1's cannot."""
    if device.partition_max_sub_devices < 2:
        pytest.skip("the device has no sub-devices")
    return parts_of(device, max(1, device.max_compute_units // 2))[:2]


def parts_of(device: cl.Device, units: int) -> list[cl.Device]:
    """Parts of so many compute units each."""
    properties: Any = [
        cl.device_partition_property.EQUALLY,
        units,
    ]  # PyOpenCL's stub knows no numbers
    return device.create_sub_devices(properties)


@pytest.fixture
def on_a_part(parts: list[cl.Device]) -> Iterator[Numbers]:
    """Numbers on a queue of the first one."""
    context = cl.Context(parts[:1])
    numbers = Numbers(cl.CommandQueue(context, parts[0]))
    yield numbers
    numbers.queue.finish()


def test_a_sub_device_is_the_same_device_each_time(
    device: cl.Device, parts: list[cl.Device]
) -> None:
    whole, first, second = device_of(device), device_of(parts[0]), device_of(parts[1])
    assert first is not second and first.parent is second.parent is whole and whole.parent is None
    assert device_of(parts[0]) is first and device_of(to_pyopencl(second)) is second
    assert (
        first.native() == parts[0].int_ptr
        and first.info("MAX_COMPUTE_UNITS") == parts[0].max_compute_units
    )
    (own,) = whole.partition(counts=[1])
    assert device_of(to_pyopencl(own)) is own and own.parent is whole


def test_a_part_of_a_part(parts: list[cl.Device], device: cl.Device) -> None:
    try:
        (smaller,) = parts_of(parts[0], 1)[:1]
    except cl.Error:  # a device of two units has parts of one, which drivers may not divide
        assert parts[0].max_compute_units == 1
        return
    found = device_of(smaller)
    assert found.parent is device_of(parts[0]) and device_of(parts[0]).parent is device_of(device)


def test_host_tasks_and_kernels_of_the_runtimes(on_a_part: Numbers, parts: list[cl.Device]) -> None:
    numbers = on_a_part
    context = context_of(numbers.queue.context)
    memory = malloc_shared(64, np.int32, Queue(context))
    memory.array[:] = 1
    twice = Program(context, "kernel void twice(global int *m) { m[get_global_id(0)] *= 2; }").twice
    graph, seen = seen_between(numbers)
    graph.add(lambda handler: handler.parallel_for(64, twice, memory), depends_on=graph[3])
    assert graph.devices == (device_of(parts[0]),) and graph.device in context
    graph.finalize().replay(numbers.queue, times=2).wait()
    assert (seen, numbers.value(), int(memory.array[0])) == ([1, 4], 12, 4)


def test_two_parts_in_one_graph(parts: list[cl.Device]) -> None:
    context = cl.Context(parts)
    queues = [cl.CommandQueue(context, part) for part in parts]
    numbers = Numbers(queues[0])
    with capture(*queues) as graph:
        first = numbers.add(1, queue=queues[0])
        numbers.mul(3, queue=queues[1], wait_for=[first])
    seen: list[int] = []
    graph.make_edge(
        graph.add(lambda handler: handler.host_task(lambda: seen.append(0)), depends_on=graph[0]),
        graph[1],
    )
    loop = graph.finalize()
    assert loop.devices == tuple(map(device_of, parts))
    loop.replay(queues[0]).wait()
    loop.replay(queues[1]).wait()
    assert (seen, numbers.value()) == ([0, 0], 12)


def test_as_a_sub_graph_of_the_runtimes(on_a_part: Numbers, parts: list[cl.Device]) -> None:
    numbers = on_a_part
    with capture(numbers.queue) as captured:
        numbers.add(5)
    loop = captured.finalize()
    queue = Queue(context_of(numbers.queue.context), device_of(parts[0]))
    graph = CommandGraph(queue)
    once = graph.add(lambda handler: handler.graph_execution(loop))
    graph.add(lambda handler: handler.graph_execution(loop), depends_on=once)
    queue.graph(graph.finalize()).wait()
    queue.graph(loop).wait()
    assert numbers.value() == 15
