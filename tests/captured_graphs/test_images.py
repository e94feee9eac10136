"""Captured images and samplers: a replay does what the calls themselves do, bit for bit, and keeps what it uses alive."""

from __future__ import annotations

import gc
from typing import Any

import numpy as np
import pyopencl as cl
import pytest
from helpers import images
from helpers.images import COMMANDS, IMAGE2D, KINDS, Kind, Scene

from fairlead.captured_graphs.context import capture
from fairlead.captured_graphs.segment import ReplayError


@pytest.fixture(autouse=True)
def has_images(device: cl.Device) -> None:
    if not device.image_support:
        pytest.skip("the device has no images")


@pytest.fixture(params=KINDS, ids=lambda kind: kind.name)
def kind(request: pytest.FixtureRequest) -> Kind:
    return request.param


def _called(scene: Scene, command: str) -> Any:
    """What a command does when it is called: the state after it, or the driver's refusal."""
    try:
        COMMANDS[command](scene)
    except cl.Error as refused:
        return refused.code
    scene.queue.finish()
    return scene.state()


def _replayed(scene: Scene, command: str) -> Any:
    with capture(scene.queue) as graph:
        COMMANDS[command](scene)
    assert [node.op for node in graph] == [command]
    try:
        graph.finalize().replay(scene.queue).wait()
    except ReplayError as refused:
        return refused.value
    return scene.state()


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_does_what_its_call_does(
    queue: cl.CommandQueue, kind: Kind, command: str
) -> None:
    called, replayed = (way(Scene(queue, kind), command) for way in (_called, _replayed))
    if isinstance(called, int):  # PoCL 3.0 copies no images of buffers
        assert replayed == called
    else:
        assert len(called) == len(replayed)
        for one, other in zip(called, replayed, strict=True):
            np.testing.assert_array_equal(one, other)


def _tripled(queue: cl.CommandQueue, kind: Kind) -> tuple[Any, cl.Image]:
    """A graph of a launch from one image to another, of which the program keeps the second alone."""
    context = queue.context
    triple, near = images.kernel(context, kind), images.sampler(context)
    source, target = images.make(context, kind, images.numbers(kind, 7)), images.make(context, kind)
    with capture(queue) as graph:
        triple(queue, kind.region, None, source, target, near)
    return graph, target


def test_images_and_samplers_of_launches_live_as_long_as_the_graph(
    queue: cl.CommandQueue, kind: Kind
) -> None:
    graph, target = _tripled(queue, kind)
    loop = graph.finalize()
    gc.collect()
    rubbish = [images.make(queue.context, kind, images.numbers(kind, 10**6)) for _ in range(20)]
    rubbish += [images.sampler(queue.context) for _ in range(20)]
    loop.replay(queue, times=2).wait()
    np.testing.assert_array_equal(images.read(queue, target, kind), 3 * images.numbers(kind, 7))
    assert len(rubbish) == 40


def test_a_graph_gives_back_what_it_kept(queue: cl.CommandQueue) -> None:
    context, kind = queue.context, IMAGE2D
    triple, near = images.kernel(context, kind), images.sampler(context)
    one, two = (images.make(context, kind) for _ in range(2))
    uses = [thing.reference_count for thing in (one, two, near)]
    with capture(queue) as graph:
        triple(queue, kind.region[:2], None, one, two, near)
        cl.enqueue_copy(queue, one, two, src_origin=(0, 0), dest_origin=(0, 0), region=(4, 4))
    assert [thing.reference_count for thing in (one, two, near)] == [n + 1 for n in uses]
    graph.finalize().replay(queue).wait()
    del graph
    gc.collect()
    assert [thing.reference_count for thing in (one, two, near)] == uses
