"""Images in command graphs: kernels with images and samplers, copies of images, updates."""

from __future__ import annotations

import itertools
from typing import Any

import numpy
import pytest
from helpers.sycl import Gate, raises

from fairlead.graph import CommandGraph, DynamicParameter
from fairlead.graph.partition import POLICIES
from fairlead.graph.segments import BufferSegment, HostSegment, QueueSegment
from fairlead.runtime import Accessor, Buffer, Context, Errc, Image, Program, Queue, Sampler

SOURCE = """
constant sampler_t plain = CLK_NORMALIZED_COORDS_FALSE | CLK_ADDRESS_CLAMP | CLK_FILTER_NEAREST;
kernel void bump(read_only image2d_t from, write_only image2d_t to, uint by) {
  int2 at = (int2)(get_global_id(0), get_global_id(1));
  write_imageui(to, at, read_imageui(from, plain, at) + by);
}
kernel void edge(read_only image2d_t from, sampler_t how, global uint *out) {
  out[get_global_id(0)] = read_imageui(from, how, (int2)(get_global_id(0) - 1, 0)).x;
}
"""
SHAPE = 5, 12


@pytest.fixture(scope="module")
def kernels(context: Context) -> Program:
    return Program(context, SOURCE)


def picture(seed: int = 1) -> numpy.ndarray[Any, Any]:
    return numpy.random.default_rng(seed).integers(0, 100, (*SHAPE, 4), numpy.uint8)


def image(seed: int = 0) -> Image:
    if seed:
        return Image(picture(seed), channels=4, write_back=False)
    return Image(numpy.zeros((*SHAPE, 4), numpy.uint8), channels=4, write_back=False)


def bump(graph: CommandGraph, kernels: Program, source: Any, target: Any, by: int = 1) -> Any:
    def launch(h: Any) -> None:
        first = h.access(source, "read") if isinstance(source, Image) else source
        arguments = first, h.access(target, "discard"), numpy.uint32(by)
        h.parallel_for(SHAPE[::-1], kernels.bump, *arguments)

    return graph.add(launch)


def kinds(executable: Any) -> list[type]:
    return [type(segment) for segment in executable.segments]


def test_kernels_with_images_are_one_command_buffer(
    queue: Queue, graph: CommandGraph, kernels: Program
) -> None:
    images = image(1), image(), image()
    for source, target in itertools.pairwise(images):
        bump(graph, kernels, source, target)
    executable = graph.finalize()
    assert kinds(executable) == [BufferSegment]
    for _ in range(2):
        queue.graph(executable)
    assert (images[2].numpy() == picture() + 2).all()


@pytest.mark.parametrize("policy", POLICIES)
def test_copies_of_images_are_between_command_buffers(
    queue: Queue, graph: CommandGraph, kernels: Program, policy: str
) -> None:
    images = [image(1), image(), image(), image()]
    bump(graph, kernels, images[0], images[1])
    graph.add(lambda h: h.copy(h.access(images[1], "read"), h.access(images[2], "discard")))
    bump(graph, kernels, images[2], images[3], 5)
    executable = graph.finalize(policy=policy)
    assert kinds(executable) == [BufferSegment, QueueSegment, BufferSegment]
    for seed in (1, 2):
        with images[0].host_access("discard") as array:
            array[:] = picture(seed)
        queue.graph(executable)
        assert (images[3].numpy() == picture(seed) + 6).all()


def test_a_graph_of_copies_alone_has_times(queue: Queue, graph: CommandGraph) -> None:
    images, out = [image(1), image(), image()], numpy.zeros((*SHAPE, 4), numpy.uint8)
    for source, target in itertools.pairwise(images):
        graph.add(lambda h, s=source, t=target: h.copy(h.access(s, "read"), h.access(t, "discard")))
    graph.add(lambda h: h.copy(h.access(images[2], "read"), out))
    executable = graph.finalize(enable_profiling=True)
    assert kinds(executable) == [QueueSegment]
    event = queue.graph(executable)
    event.wait()
    assert (out == picture()).all()
    assert event.profiling("start") <= event.profiling("end")


def test_host_tasks_see_pixels_in_a_graph(
    queue: Queue, graph: CommandGraph, kernels: Program, gate: Gate
) -> None:
    first, second, third = image(1), image(), image()
    bump(graph, kernels, first, second)

    def double(h: Any) -> None:
        accessor = h.access(second)

        def task() -> None:
            accessor.array[:] *= 2

        h.host_task(task)

    graph.add(double)
    graph.add(lambda h: h.copy(h.access(second, "read"), h.access(third, "discard")))
    executable = graph.finalize()
    assert kinds(executable) == [BufferSegment, HostSegment, QueueSegment]
    queue.submit(lambda h: (h.depends_on(gate.event), h.graph_execution(executable)))
    gate.open()
    assert (third.numpy() == 2 * (picture() + 1)).all()


def test_recorded_copies_and_sub_graphs(
    queue: Queue, kernels: Program, graph: CommandGraph
) -> None:
    first, second = image(1), image()
    inner = CommandGraph(queue, assume_buffer_outlives_graph=True)
    with inner.recording(queue):
        queue.submit(lambda h: h.copy(h.access(first, "read"), h.access(second, "discard")))
    sub_graph = inner.finalize()
    third = image()
    graph.add(lambda h: h.graph_execution(sub_graph))
    bump(graph, kernels, second, third, 7)
    queue.graph(graph.finalize())
    assert (third.numpy() == picture() + 7).all()


def test_an_update_gives_a_launch_another_image(
    queue: Queue, graph: CommandGraph, kernels: Program
) -> None:
    first, second, target = image(1), image(2), image()
    parameter = DynamicParameter(graph, Accessor(first, "read"))
    node = bump(graph, kernels, parameter, target)
    executable = graph.finalize(updatable=True)
    queue.graph(executable)
    assert (target.numpy() == picture(1) + 1).all()
    parameter.update(Accessor(second, "read"))
    executable.update(node)
    queue.graph(executable)
    assert (target.numpy() == picture(2) + 1).all()
    with raises(Errc.kernel_argument, "is declared image2d_t"):
        parameter.update(Accessor(Buffer(4, numpy.int32, write_back=False), "read"))


def test_a_launch_keeps_its_sampler(queue: Queue, graph: CommandGraph, kernels: Program) -> None:
    source, out = image(1), Buffer(14, numpy.uint32)

    def launch(sampler: Any) -> Any:
        return lambda h: h.parallel_for(
            14, kernels.edge, h.access(source, "read"), sampler, h.access(out, "discard")
        )

    red = picture()[0, :, 0].tolist()
    parameter = DynamicParameter(graph, Sampler("clamp"))
    node = graph.add(launch(parameter))
    executable = graph.finalize(updatable=True)
    queue.graph(executable)
    assert out.numpy().tolist() == [0, *red, 0]
    parameter.update(Sampler())
    with raises(Errc.feature_not_supported, "cannot exchange the sampler"):
        executable.update(node)
    queue.graph(executable)
    assert out.numpy().tolist() == [0, *red, 0]
    again = graph.finalize()
    queue.graph(again)
    assert out.numpy().tolist() == [red[0], *red, red[-1]]


def test_an_image_that_is_written_back_is_refused(queue: Queue, graph: CommandGraph) -> None:
    written = Image(picture(), channels=4)
    with raises(Errc.invalid, "write_back"):
        graph.add(lambda h: h.copy(picture(2), h.access(written, "discard")))
