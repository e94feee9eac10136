"""A program whose graph is updated in every way. It prints what the memory holds, bit for bit."""

from __future__ import annotations

from typing import Any

import numpy

from fairlead import adapters
from fairlead.graph import CommandGraph, DynamicCommandGroup, DynamicLocalMemory, DynamicParameter
from fairlead.runtime import USM, Device, NDRange, Program, Queue, devices, malloc_shared

SOURCE = """
kernel void advance(global float *x, float a, float b) {
    size_t i = get_global_id(0);
    x[i] = x[i] * a + b / (x[i] * x[i] + 0.75f) + (float)get_local_size(0);
}
kernel void roots(global float *x) { x[get_global_id(0)] = sqrt(fabs(x[get_global_id(0)])) - 0.3f; }
kernel void turn(global float *x, local float *part, int size) {
    size_t i = get_local_id(0), n = get_local_size(0);
    for (int k = (int)i; k < size; k += (int)n) part[k] = x[get_global_id(0)] * (float)(k + 1);
    barrier(CLK_LOCAL_MEM_FENCE);
    x[get_global_id(0)] = part[size - 1 - i];
}
"""
N = 64
f = numpy.float32


def main() -> None:
    """Run it on the first device of every platform."""
    for device in devices(adapters()):
        work(device)


def work(device: Device) -> None:
    """Run it on a device."""
    queue = Queue(device)
    program = Program(queue.context, SOURCE)
    x, y = (malloc_shared(N, "float32", queue) for _ in range(2))
    for memory, start in ((x, 0.1), (y, 5.7)):
        memory.array[:] = numpy.linspace(start, start + 3, N, dtype=numpy.float32)

    def run(name: str, executable: Any) -> None:
        queue.graph(executable).wait()
        print(name, x.array.tobytes().hex(), y.array.tobytes().hex())

    graph = CommandGraph(queue)
    memory, a = DynamicParameter(graph, x), DynamicParameter(graph, f(1.25))
    first = graph.add(lambda h: h.parallel_for(NDRange(N, 8), program.advance, memory, a, f(0.5)))
    second = graph.add(lambda h: h.parallel_for(N, program.roots, memory), depends_on=[first])
    executable = graph.finalize(updatable=True)
    run("as made", executable)
    a.update(f(-0.7))
    executable.update(first)
    run("an argument", executable)
    memory.update(y)
    executable.update([first, second])
    run("a pointer", executable)
    first.update_nd_range(NDRange(32, 16))
    executable.update(first)
    run("a range", executable)
    graph = CommandGraph(queue)
    either = DynamicCommandGroup(
        graph,
        [
            lambda h: h.parallel_for(NDRange(N, 4), program.advance, x, f(0.9), f(2.0)),
            lambda h: h.parallel_for(NDRange(N, 4), program.roots, y),
        ],
    )
    node = graph.add(either)
    executable = graph.finalize(updatable=True)
    run("a command group", executable)
    either.active_index = 1
    executable.update(node)
    run("the other", executable)

    def make(memory: USM, value: float, size: int) -> CommandGraph:
        graph = CommandGraph(queue)
        one = graph.add(
            lambda h: h.parallel_for(NDRange(size, 8), program.advance, memory, f(value), f(1.5))
        )
        graph.add(
            lambda h: h.parallel_for(NDRange(size, 8), program.roots, memory), depends_on=[one]
        )
        return graph

    executable = make(x, 1.1, N).finalize(updatable=True)
    run("a graph", executable)
    executable.update(make(y, 0.4, 32))
    run("another graph", executable)
    graph = CommandGraph(queue)
    part, size = DynamicLocalMemory(graph, 8, "float32"), DynamicParameter(graph, numpy.int32(8))
    node = graph.add(lambda h: h.parallel_for(NDRange(N, 8), program.turn, x, part, size))
    executable = graph.finalize(updatable=True)
    run("local memory", executable)
    part.update(512)
    size.update(numpy.int32(512))
    executable.update(node)
    run("more of it", executable)
