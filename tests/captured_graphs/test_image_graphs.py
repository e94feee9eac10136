"""Graphs of images: PyOpenCL programs as they are written, random ones, edits, pictures."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyopencl as cl
import pytest
from helpers import images
from helpers.images import IMAGE2D, Scene
from helpers.programs import build_once

from fairlead.captured_graphs.context import capture
from fairlead.captured_graphs.executable import SCHEDULES
from fairlead.graph import CommandGraph
from fairlead.runtime import Queue
from fairlead.runtime.interop import context_of, device_of

#: PyOpenCL's stubs do not know all that it takes.
enqueue_copy: Any = cl.enqueue_copy

#: A picture is smoothed to and fro between two images. The border repeats, as the sampler says.
SMOOTH = """
constant sampler_t edge =
    CLK_NORMALIZED_COORDS_FALSE | CLK_ADDRESS_CLAMP_TO_EDGE | CLK_FILTER_NEAREST;
kernel void smooth(read_only image2d_t from, write_only image2d_t to, sampler_t near) {
    int2 at = (int2)(get_global_id(0), get_global_id(1));
    float4 sum = 2 * read_imagef(from, near, at);
    sum += read_imagef(from, edge, at + (int2)(1, 0)) + read_imagef(from, edge, at - (int2)(1, 0));
    sum += read_imagef(from, edge, at + (int2)(0, 1)) + read_imagef(from, edge, at - (int2)(0, 1));
    write_imagef(to, at, sum / 6);
}
"""


@pytest.fixture(autouse=True)
def has_images(device: cl.Device) -> None:
    if not device.image_support:
        pytest.skip("the device has no images")


class Smoothing:
    """A program with PyOpenCL's own functions for images: `step` is what it does over and over."""

    def __init__(self, queue: cl.CommandQueue) -> None:
        context, self.queue = queue.context, queue
        random = np.random.default_rng(1)
        self.picture = random.random((6, 10, 4), np.float32)
        self.result = np.zeros_like(self.picture)
        self.kernel = build_once(context, SMOOTH).smooth
        self.first = cl.image_from_array(context, self.picture, 4, mode="w")
        pixel = cl.ImageFormat(cl.channel_order.RGBA, cl.channel_type.FLOAT)
        flags: Any = cl.mem_flags.READ_WRITE
        self.one, self.two = (
            cl.create_image(context, flags, pixel, shape=(10, 6)) for _ in range(2)
        )
        self.sampler = images.sampler(context)
        self.bytes = cl.Buffer(context, flags, self.picture.nbytes)

    def step(self) -> None:
        queue, picture, result, size = self.queue, self.picture, self.result, (10, 6)
        one, two, origin = self.one, self.two, (0, 0)
        enqueue_copy(queue, one, picture, origin=origin, region=size, is_blocking=False)
        black = np.zeros(4, np.float32)
        cl.enqueue_fill_image(queue, one, black, (0, 0), (2, 2))
        for _ in range(3):
            self.kernel(queue, size, None, one, two, self.sampler)
            self.kernel(queue, size, None, two, one, self.sampler)
        enqueue_copy(queue, self.bytes, one, offset=0, origin=origin, region=size)
        enqueue_copy(queue, two, self.bytes, offset=0, origin=origin, region=size)
        part = {"src_origin": (1, 1), "dest_origin": (4, 2), "region": (3, 3)}
        enqueue_copy(queue, two, one, **part)
        enqueue_copy(queue, result, two, origin=origin, region=size, is_blocking=False)


def test_a_program_with_images(queue: cl.CommandQueue) -> None:
    called, captured = Smoothing(queue), Smoothing(queue)
    with capture(queue) as graph:
        captured.step()
    assert not captured.result.any()
    loop = graph.finalize()
    for _ in range(3):
        called.step()
        queue.finish()
        loop.replay(queue).wait()
        np.testing.assert_array_equal(captured.result, called.result)
        for program in (called, captured):  # a replay reads what is there then
            program.picture[:] = program.result


def test_an_image_that_kernels_read_and_write(queue: cl.CommandQueue) -> None:
    source = """kernel void add(read_write image2d_t image, uint number) {
        int2 at = (int2)(get_global_id(0), get_global_id(1));
        write_imageui(image, at, read_imageui(image, at) + number);
    }"""
    context, kind = queue.context, IMAGE2D
    if not queue.device.max_read_write_image_args:
        pytest.skip("the device has no read_write images")
    add = cl.Program(context, source).build(["-cl-std=CL2.0"]).add
    image = images.make(context, kind, images.numbers(kind))
    with capture(queue) as graph:
        add(queue, kind.region[:2], None, image, np.uint32(5))
        add(queue, kind.region[:2], None, image, np.uint32(7))
    graph.finalize().replay(queue, times=3)
    np.testing.assert_array_equal(images.read(queue, image, kind), images.numbers(kind) + 36)


def _random_commands(scene: Scene, triple: cl.Kernel, near: cl.Sampler, seed: int) -> None:
    """Commands in a random row on an out-of-order queue.

    Each comes after the last one that had one of its things.
    A replay begins after the one before it, and what it begins with is what the scene began with.
    """
    random = np.random.default_rng(seed)
    queue, host = scene.queue, scene.host
    things = {"one": scene.one, "two": scene.two, "buffer": scene.buffer, "host": host}
    last: dict[str, list[Any]] = {name: [] for name in things}
    part = {"origin": scene.origin, "region": scene.region}

    def launch(**wait: Any) -> Any:
        return triple(queue, scene.kind.region, None, scene.one, scene.two, near, **wait)

    def fill(**wait: Any) -> Any:
        color = np.array([9, 8, 7, 6], np.uint32)
        return cl.enqueue_fill_image(queue, scene.one, color, **part, **wait)

    def read(**wait: Any) -> Any:
        return enqueue_copy(queue, host, scene.two, **part, is_blocking=False, **wait)

    def write(**wait: Any) -> Any:
        return enqueue_copy(queue, scene.one, host, **part, is_blocking=False, **wait)

    def copy(**wait: Any) -> Any:
        places = {"src_origin": (0, 0), "dest_origin": scene.origin, "region": scene.region}
        return enqueue_copy(queue, scene.one, scene.two, **places, **wait)

    def to_buffer(**wait: Any) -> Any:
        return enqueue_copy(queue, scene.buffer, scene.two, offset=16, **part, **wait)

    def from_buffer(**wait: Any) -> Any:
        return enqueue_copy(queue, scene.one, scene.buffer, offset=32, **part, **wait)

    commands = (
        (launch, ("one", "two")),
        (fill, ("one",)),
        (read, ("two", "host")),
        (write, ("one", "host")),
        (copy, ("one", "two")),
        (to_buffer, ("two", "buffer")),
        (from_buffer, ("one", "buffer")),
    )
    for number in random.integers(0, len(commands), 12):
        command, uses = commands[number]
        event = command(wait_for=[event for name in uses for event in last[name]] or None)
        for name in uses:
            last[name] = [event]


@pytest.mark.slow
@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize("seed", range(2))
def test_random_commands(
    out_of_order: cl.CommandQueue, queue: cl.CommandQueue, seed: int, schedule: str
) -> None:
    triple, near = images.kernel(queue.context, IMAGE2D), images.sampler(queue.context)
    called, captured = (Scene(out_of_order, IMAGE2D) for _ in range(2))
    with capture(out_of_order) as graph:
        _random_commands(captured, triple, near, seed)
    loop = graph.finalize(schedule=schedule)
    for one in (out_of_order, queue, out_of_order):
        _random_commands(called, triple, near, seed)
        out_of_order.finish()
        loop.replay(one).wait()
        for expected, found in zip(called.state(), captured.state(), strict=True):
            np.testing.assert_array_equal(found, expected)


def test_a_host_task_between_commands_of_images(queue: cl.CommandQueue) -> None:
    program = Smoothing(queue)
    with capture(queue) as graph:
        program.step()
    seen: list[float] = []
    task = graph.add(
        lambda handler: handler.host_task(lambda: seen.append(float(program.result.sum()))),
        depends_on=graph[-1],
    )
    again = graph.add(depends_on=task)
    assert again.predecessors == [task]
    graph.finalize().replay(queue, times=2).wait()
    assert len(seen) == 2 and seen[0] == float(program.result.sum()) > 0


def test_images_in_sub_graphs_and_on_runtime_queues(queue: cl.CommandQueue) -> None:
    called, captured = Smoothing(queue), Smoothing(queue)
    with capture(queue) as graph:
        captured.step()
    loop = graph.finalize()
    called.step()
    queue.finish()
    runtime_queue = Queue(context_of(queue.context), device_of(queue.device))
    runtime_queue.graph(loop).wait()
    np.testing.assert_array_equal(captured.result, called.result)
    captured.result[:] = 0
    outer = CommandGraph(runtime_queue)
    outer.add(lambda handler: handler.graph_execution(loop))
    runtime_queue.graph(outer.finalize()).wait()
    np.testing.assert_array_equal(captured.result, called.result)


def test_the_graph_shows_its_images(queue: cl.CommandQueue) -> None:
    program = Smoothing(queue)
    with capture(queue) as graph:
        program.step()
    assert [node.label for node in graph if node.op != "kernel"] == [
        "write_image(10×6×1)",
        "fill_image(2×2×1)",
        "copy_image_to_buffer(10×6×1)",
        "copy_buffer_to_image(10×6×1)",
        "copy_image(3×3×1)",
        "read_image(10×6×1)",
    ]
    write, fill = graph[0], graph[1]
    assert (write.type, fill.type) == ("memcpy", "memfill")
    assert write.details == {"region": (10, 6, 1)}
    assert fill.details == {"region": (2, 2, 1), "color": bytes(16)}
    text = graph.to_dot(verbose=True)
    for shown in (
        "copy_image(3×3×1)",
        f"target: {program.one.int_ptr:#x}",
        f"host: {program.result.ctypes.data:#x}",
    ):
        assert shown in text
