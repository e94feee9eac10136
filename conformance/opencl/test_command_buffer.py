"""The commands of command-buffers: what each does, what it has of its kernel, their order."""

from __future__ import annotations

import ctypes
import itertools
from collections.abc import Callable
from typing import Any

import pytest

from fairlead.conformance.arrays import ints, sizes
from fairlead.conformance.checks import equal, rule, unsupported
from fairlead.conformance.opencl.commands import CHAINED, CLRecorder, CommandBuffers, chain
from fairlead.conformance.opencl.objects import CLObjects

BARRIER, COPY = "clCommandBarrierWithWaitListKHR", "clCommandCopyBufferKHR"
RECT, FILL = "clCommandCopyBufferRectKHR", "clCommandFillBufferKHR"
KERNEL = "clCommandNDRangeKernelKHR"


# Each command


@rule(KERNEL, "runs the kernel over its range")
def test_kernel(recorder: CLRecorder, objects: CLObjects) -> None:
    buffer = objects.buffer(range(8))
    recorder.launch(objects.kernel("increment", buffer), 8)
    recorder.run()
    equal(objects.read(recorder.queue, buffer), list(range(1, 9)), "the buffer")


@rule(KERNEL, "nothing runs before the command-buffer is enqueued")
def test_nothing_runs(recorder: CLRecorder, objects: CLObjects) -> None:
    buffer = objects.buffer([0] * 8)
    recorder.launch(objects.kernel("increment", buffer), 8)
    recorder.finalize()
    objects.finish(recorder.queue)
    equal(objects.read(recorder.queue, buffer), [0] * 8, "the buffer")


@rule(KERNEL, "uses global_work_offset, in one to three dimensions")
@pytest.mark.parametrize("dimensions", [1, 2, 3])
def test_offset(recorder: CLRecorder, objects: CLObjects, dimensions: int) -> None:
    size, offset = (4, 2, 3)[:dimensions], (5, 6, 7)[:dimensions]
    count = 4 * (2 if dimensions > 1 else 1) * (3 if dimensions > 2 else 1)
    buffer = objects.buffer([0] * count)
    arguments = {"global_work_offset": sizes(*offset), "global_work_size": sizes(*size)}
    recorder.record(KERNEL, kernel=objects.kernel("ids", buffer), work_dim=dimensions, **arguments)
    recorder.run()
    spans = [range(o, o + s) for o, s in zip(offset, size, strict=True)] + [range(1)] * (
        3 - dimensions
    )
    expected = [i + 100 * j + 10000 * k for k in spans[2] for j in spans[1] for i in spans[0]]
    equal(objects.read(recorder.queue, buffer), expected, "the ids")


@rule(KERNEL, "uses local_work_size, and the size that the kernel requires")
@pytest.mark.parametrize(
    ("kernel", "local"), [("local_sizes", 4), ("groups_of_four", 4), ("groups_of_four", 0)]
)
def test_local_size(recorder: CLRecorder, objects: CLObjects, kernel: str, local: int) -> None:
    buffer = objects.buffer([0] * 16)
    recorder.launch(
        objects.kernel(kernel, buffer), 16, local_work_size=sizes(local) if local else None
    )
    recorder.run()
    equal(objects.read(recorder.queue, buffer), [4] * 16, "the local sizes")


@rule(KERNEL, "takes local memory as an argument")
def test_local_memory(recorder: CLRecorder, objects: CLObjects) -> None:
    buffer = objects.buffer([0] * 4)
    kernel = objects.kernel("local_sum", buffer)
    objects.call("clSetKernelArg", kernel, 1, 64 * 4, None)
    objects.set_argument(kernel, 2, ctypes.c_int32(64))
    recorder.launch(kernel, 4, local_work_size=sizes(4))
    recorder.run()
    equal(objects.read(recorder.queue, buffer), [sum(range(64))] * 4, "the sums")


@rule(FILL, "fills with the pattern of the time of recording")
@pytest.mark.parametrize("size", [1, 2, 4, 8, 16, 32, 64, 128])
def test_fill(recorder: CLRecorder, objects: CLObjects, size: int) -> None:
    buffer = objects.buffer([0] * 128)
    pattern = (ctypes.c_ubyte * size)(*range(1, size + 1))
    recorder.record(FILL, buffer=buffer, pattern=pattern, pattern_size=size, offset=128, size=256)
    expected = bytes(128) + bytes(pattern) * (256 // size) + bytes(128)
    ctypes.memset(pattern, 0xFF, size)
    recorder.run()
    equal(bytes(ints(objects.read(recorder.queue, buffer))), expected, "the buffer")


@rule(COPY, "copies the bytes")
def test_copy(recorder: CLRecorder, objects: CLObjects) -> None:
    source, target = objects.buffer(range(16)), objects.buffer([0] * 16)
    recorder.record(
        COPY, src_buffer=source, dst_buffer=target, src_offset=8, dst_offset=16, size=32
    )
    recorder.run()
    equal(
        objects.read(recorder.queue, target), [0] * 4 + list(range(2, 10)) + [0] * 4, "the buffer"
    )


@rule(RECT, "copies a rectangle, and a box")
@pytest.mark.parametrize("depth", [1, 2])
def test_copy_rect(recorder: CLRecorder, objects: CLObjects, depth: int) -> None:
    source, target = objects.buffer(range(64)), objects.buffer([0] * 64)  # 4 × 4 × 4 integers
    pitches: dict[str, Any] = {
        "src_row_pitch": 16,
        "src_slice_pitch": 64,
        "dst_row_pitch": 16,
        "dst_slice_pitch": 64,
    }
    where = {
        "src_origin": sizes(4, 1, 1),
        "dst_origin": sizes(8, 2, 0),
        "region": sizes(8, 2, depth),
    }
    recorder.record(RECT, src_buffer=source, dst_buffer=target, **where, **pitches)
    recorder.run()
    expected = [0] * 64
    for z, y, x in ((z, y, x) for z in range(depth) for y in range(2) for x in range(2)):
        expected[16 * z + 4 * (y + 2) + x + 2] = 16 * (z + 1) + 4 * (y + 1) + x + 1
    equal(objects.read(recorder.queue, target), expected, "the buffer")


def _read_pixels(objects: CLObjects, queue: int, image: int) -> list[int]:
    """Return the first value of each pixel of an 8 × 8 image."""
    into = (ctypes.c_uint32 * 256)()
    objects.call(
        "clEnqueueReadImage", queue, image, True, sizes(0, 0, 0), sizes(8, 8, 1), 0, 0, into
    )
    return list(into[::4])


def _make_square(outside: int, inside: int) -> list[int]:
    """Return the pixels of an 8 × 8 image with a square of 2 × 2 at (3, 4)."""
    return [inside if x in (3, 4) and y in (4, 5) else outside for y in range(8) for x in range(8)]


SQUARE = {"region": sizes(2, 2, 1)}


@rule("clCommandFillImageKHR", "fills a region with the colour of the time of recording")
def test_fill_image(recorder: CLRecorder, objects: CLObjects) -> None:
    recorder.argument("image")
    image, colour = objects.image(8, 8, 1), (ctypes.c_uint32 * 4)(9, 9, 9, 9)
    recorder.record(
        "clCommandFillImageKHR", image=image, fill_color=colour, origin=sizes(3, 4, 0), **SQUARE
    )
    colour[0] = 0
    recorder.run()
    equal(_read_pixels(objects, recorder.queue, image), _make_square(1, 9), "the pixels")


@rule("clCommandCopyImageKHR", "copies a region")
def test_copy_image(recorder: CLRecorder, objects: CLObjects) -> None:
    recorder.argument("src_image")
    source, target = objects.image(8, 8, 5), objects.image(8, 8, 1)
    recorder.record(
        "clCommandCopyImageKHR",
        src_image=source,
        dst_image=target,
        dst_origin=sizes(3, 4, 0),
        **SQUARE,
    )
    recorder.run()
    equal(_read_pixels(objects, recorder.queue, target), _make_square(1, 5), "the pixels")


@rule("clCommandCopyBufferToImageKHR", "copies the pixels of a region")
def test_copy_to_image(recorder: CLRecorder, objects: CLObjects) -> None:
    recorder.argument("dst_image")
    source, target = objects.buffer([3] * 64), objects.image(8, 8, 1)
    recorder.record(
        "clCommandCopyBufferToImageKHR",
        src_buffer=source,
        dst_image=target,
        dst_origin=sizes(3, 4, 0),
        **SQUARE,
    )
    recorder.run()
    equal(_read_pixels(objects, recorder.queue, target), _make_square(1, 3), "the pixels")


@rule("clCommandCopyImageToBufferKHR", "copies the pixels of a region")
def test_copy_to_buffer(recorder: CLRecorder, objects: CLObjects) -> None:
    recorder.argument("src_image")
    source, target = objects.image(8, 8, 6), objects.buffer([0] * 20)
    recorder.record(
        "clCommandCopyImageToBufferKHR", src_image=source, dst_buffer=target, dst_offset=8, **SQUARE
    )
    recorder.run()
    equal(objects.read(recorder.queue, target), [0, 0, *[6] * 16, 0, 0], "the buffer")


@rule("clCommandSVMMemcpyKHR", "copies between SVM allocations; clCommandSVMMemFillKHR fills one")
def test_svm(recorder: CLRecorder, objects: CLObjects) -> None:
    if not recorder.commands.has("clCommandSVMMemcpyKHR"):
        unsupported("there are no SVM commands before 0.9.4")
    source, target = objects.svm(64), objects.svm(64)
    filled = recorder.record(
        "clCommandSVMMemFillKHR", svm_ptr=source, pattern=ctypes.byref(ctypes.c_int32(4)), size=64
    )
    recorder.record(
        "clCommandSVMMemcpyKHR", waits=[filled], dst_ptr=target, src_ptr=source, size=64
    )
    recorder.run()
    into = (ctypes.c_int32 * 16)()
    objects.call("clEnqueueSVMMemcpy", recorder.queue, True, into, target, 64)
    equal(list(into), [4] * 16, "the memory")


# What a command has of its kernel


@rule(KERNEL, "changes of a kernel after recording do not change the command")
@pytest.mark.parametrize("when", ["before-finalize", "after-finalize", "after-enqueue"])
def test_set_argument(recorder: CLRecorder, objects: CLObjects, when: str) -> None:
    mine, other = objects.buffer([0] * 8), objects.buffer([0] * 8)
    kernel = objects.kernel("add", mine, ctypes.c_int32(5))
    recorder.launch(kernel, 8)
    moments: dict[str, Callable[[], None]] = {
        "before-finalize": recorder.finalize,
        "after-finalize": recorder.enqueue,
        "after-enqueue": lambda: objects.finish(recorder.queue),
    }
    for moment, then in moments.items():
        if moment == when:
            objects.set_argument(kernel, 0, other)
            objects.set_argument(kernel, 1, ctypes.c_int32(1000))
        then()
    equal(
        (objects.read(recorder.queue, mine), objects.read(recorder.queue, other)),
        ([5] * 8, [0] * 8),
        "the buffers",
    )


@rule(KERNEL, "each command has the arguments of its own recording")
def test_arguments_of_each(recorder: CLRecorder, objects: CLObjects) -> None:
    buffer = objects.buffer([0] * 8)
    kernel = objects.kernel("add", buffer)
    for value in (1, 20, 300):
        objects.set_argument(kernel, 1, ctypes.c_int32(value))
        recorder.launch(kernel, 8)
    recorder.run(times=2)
    equal(objects.read(recorder.queue, buffer), [642] * 8, "the buffer")


@rule(KERNEL, "the kernel can be released after recording")
def test_released_kernel(recorder: CLRecorder, objects: CLObjects) -> None:
    buffer, inner = (objects.buffer([0] * 8), objects.new_maker())
    recorder.launch(inner.kernel("increment", buffer), 8)
    inner.close()
    recorder.run()
    equal(objects.read(recorder.queue, buffer), [1] * 8, "the buffer")


@rule(COPY, "the buffers of a copy can be released after recording")
def test_released_buffer(recorder: CLRecorder, objects: CLObjects) -> None:
    inner, target = objects.new_maker(), objects.buffer([0] * 8)
    recorder.copy(inner.buffer(range(8)), target, 32)
    inner.close()
    recorder.run()
    equal(objects.read(recorder.queue, target), list(range(8)), "the buffer")


# The order of commands


@rule(KERNEL, "commands on a queue in order run one after another")
def test_in_order(recorder: CLRecorder, objects: CLObjects) -> None:
    buffer = objects.buffer([0] * 1024)
    chain(recorder, buffer, ordered=True)
    recorder.run()
    equal(objects.read(recorder.queue, buffer), CHAINED, "the buffer")


@rule(KERNEL, "commands run after those whose sync-points they wait for")
def test_out_of_order(commands: CommandBuffers, objects: CLObjects, out_of_order: int) -> None:
    recorder = CLRecorder(commands, objects, out_of_order)
    buffer = objects.buffer([0] * 1024)
    chain(recorder, buffer, ordered=False)
    recorder.run()
    equal(objects.read(out_of_order, buffer), CHAINED, "the buffer")


@rule(BARRIER, "with sync-points it waits for them, and what is recorded later waits for it")
def test_barrier_with_sync_points(
    commands: CommandBuffers, objects: CLObjects, out_of_order: int
) -> None:
    recorder = CLRecorder(commands, objects, out_of_order)
    one, two, sum_ = (objects.buffer([0] * 256) for _ in range(3))
    points = [recorder.fill(one, 5, 1024), recorder.fill(two, 6, 1024)]
    recorder.record(BARRIER, waits=points)
    recorder.copy(one, sum_, 1024)
    recorder.record(BARRIER)
    recorder.launch(objects.kernel("increment", sum_), 256)
    recorder.run()
    equal(objects.read(out_of_order, sum_), [6] * 256, "the buffer")


@rule(BARRIER, "without sync-points it waits for all commands before it")
def test_barriers(commands: CommandBuffers, objects: CLObjects, out_of_order: int) -> None:
    recorder = CLRecorder(commands, objects, out_of_order)
    buffers = [objects.buffer([0] * 1024) for _ in range(4)]
    recorder.fill(buffers[0], 3, 4096)
    for source, target in itertools.pairwise(buffers):
        recorder.record(BARRIER)
        recorder.copy(source, target, 4096)
    recorder.run()
    equal(objects.read(out_of_order, buffers[-1]), [3] * 1024, "the last buffer")


@rule(KERNEL, "fills, copies and kernels in one command-buffer, with a diamond of sync-points")
def test_mixed(commands: CommandBuffers, objects: CLObjects, out_of_order: int) -> None:
    recorder = CLRecorder(commands, objects, out_of_order)
    source, left, right = (objects.buffer([0] * 256) for _ in range(3))
    filled = recorder.fill(source, 1, 1024)
    copied = [
        recorder.copy(source, left, 1024, [filled]),
        recorder.copy(source, right, 1024, [filled]),
    ]
    plus = recorder.launch(objects.kernel("add", left, ctypes.c_int32(10)), 256, copied[:1])
    times = recorder.launch(objects.kernel("twice_plus", right, ctypes.c_int32(0)), 256, copied[1:])
    recorder.copy(right, source, 1024, [plus, times])
    recorder.run()
    found = [objects.read(out_of_order, buffer) for buffer in (source, left, right)]
    equal(found, [[2] * 256, [11] * 256, [2] * 256], "the buffers")
