"""The commands of command-buffers: what each does, their order, what they have of their kernel."""

from __future__ import annotations

import ctypes
from collections.abc import Callable

import pytest

from fairlead.conformance.arrays import ints, sizes
from fairlead.conformance.checks import equal, rule
from fairlead.conformance.pi.objects import PIObjects, PIPointer
from fairlead.conformance.pi.recorder import (
    CHAINED,
    PREFIX,
    RECORDING,
    PIRecorder,
    chain,
    offset,
    region,
)
from fairlead.loader.pi.abi import PI

KERNEL, ENQUEUE = "piextCommandBufferNDRangeKernel", "piextEnqueueCommandBuffer"


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(n, id=n, marks=rule(n, "records a command and gives its sync-point"))
        for n in RECORDING
    ],
)
def test_record(recorder: PIRecorder, name: str) -> None:
    points = {recorder.record(name), recorder.record(name)}
    equal(len(points), 2, "different sync-points")


@pytest.mark.parametrize(
    "name", [pytest.param(n, id=n, marks=rule(n, "sync_point may be NULL")) for n in RECORDING]
)
def test_no_sync_point(recorder: PIRecorder, name: str) -> None:
    equal(PI.errors[recorder.answer(name)][0], "PI_SUCCESS", "the code")


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(n, id=n, marks=rule(n, "takes the sync-points of other commands"))
        for n in RECORDING
    ],
)
def test_sync_points(recorder: PIRecorder, name: str) -> None:
    points = [recorder.record(name), recorder.record(name)]
    recorder.record(name, after=points)


# Each command


@rule(KERNEL, "runs the kernel over its range; nothing runs before it is enqueued")
def test_kernel(recorder: PIRecorder, objects: PIObjects, queue: int) -> None:
    memory = objects.usm("shared", [0] * 8)
    recorder.record(
        "NDRangeKernel",
        kernel=objects.kernel("ids", PIPointer(memory)),
        global_work_offset=sizes(3),
    )
    recorder.finalize()
    before = objects.numbers(queue, memory, 8)
    recorder.enqueue(queue)
    equal(
        (before, objects.numbers(queue, memory, 8)),
        ([0] * 8, list(range(3, 11))),
        "the memory before and after",
    )


@rule(PREFIX + "MemcpyUSM", "copies the bytes")
def test_memcpy(recorder: PIRecorder, objects: PIObjects, queue: int) -> None:
    source, target = objects.usm("shared", range(8)), objects.usm("device", [0] * 8)
    recorder.copy(source + 8, target, 16)
    recorder.run(queue)
    equal(objects.numbers(queue, target, 8), [2, 3, 4, 5, 0, 0, 0, 0], "the memory")


@rule(PREFIX + "FillUSM", "fills with the pattern of the time of recording")
@pytest.mark.parametrize("size", [1, 2, 4, 8, 16, 64])
def test_fill_usm(recorder: PIRecorder, objects: PIObjects, queue: int, size: int) -> None:
    memory, pattern = objects.usm("shared", [0] * 32), (ctypes.c_ubyte * size)(*range(1, size + 1))
    recorder.record("FillUSM", ptr=memory, pattern=pattern, pattern_size=size, size=64)
    expected = bytes(pattern) * (64 // size) + bytes(64)
    ctypes.memset(pattern, 0xFF, size)
    recorder.run(queue)
    equal(bytes(ints(objects.numbers(queue, memory, 32))), expected, "the memory")


@rule(PREFIX + "MemBufferFill", "fills with the pattern of the time of recording")
def test_fill_buffer(recorder: PIRecorder, objects: PIObjects, queue: int) -> None:
    buffer, pattern = objects.buffer([0] * 8), ctypes.c_int32(6)
    recorder.record(
        "MemBufferFill", buffer=buffer, pattern=ctypes.byref(pattern), offset=4, size=16
    )
    pattern.value = 99
    recorder.run(queue)
    equal(objects.read(queue, buffer), [0, 6, 6, 6, 6, 0, 0, 0], "the buffer")


@rule(PREFIX + "MemBufferCopy", "copies the bytes")
def test_copy_buffer(recorder: PIRecorder, objects: PIObjects, queue: int) -> None:
    source, target = objects.buffer(range(8)), objects.buffer([0] * 8)
    recorder.record(
        "MemBufferCopy", src_buffer=source, dst_buffer=target, src_offset=4, dst_offset=8, size=12
    )
    recorder.run(queue)
    equal(objects.read(queue, target), [0, 0, 1, 2, 3, 0, 0, 0], "the buffer")


def _copy_box(
    source: list[int], read: tuple[int, int, int], write: tuple[int, int, int]
) -> list[int]:
    """Return 64 numbers, 4 × 4 × 4, with a box of 2 × 2 × 2 copied from one place to another.

    Places are counted in numbers, rows and slices.
    """
    target = [0] * 64
    for z, y, x in ((z, y, x) for z in range(2) for y in range(2) for x in range(2)):
        at = 16 * (write[2] + z) + 4 * (write[1] + y) + write[0] + x
        target[at] = source[16 * (read[2] + z) + 4 * (read[1] + y) + read[0] + x]
    return target


@rule(PREFIX + "MemBufferCopyRect", "copies a box")
def test_copy_rect(recorder: PIRecorder, objects: PIObjects, queue: int) -> None:
    source, target = objects.buffer(range(64)), objects.buffer([0] * 64)
    where = {
        "src_origin": offset(4, 1, 1),
        "dst_origin": offset(8, 2, 0),
        "region": region(8, 2, 2),
    }
    recorder.record("MemBufferCopyRect", src_buffer=source, dst_buffer=target, **where)
    recorder.run(queue)
    equal(
        objects.read(queue, target), _copy_box(list(range(64)), (1, 1, 1), (2, 2, 0)), "the buffer"
    )


@rule(PREFIX + "MemBufferWrite", "writes what the host's memory holds when it runs")
def test_write(recorder: PIRecorder, objects: PIObjects, queue: int) -> None:
    buffer, data = objects.buffer([0] * 8), ints(range(4))
    recorder.record("MemBufferWrite", buffer=buffer, offset=8, size=16, ptr=data)
    recorder.finalize()
    found = []
    for first in (10, 20):
        data[0] = first
        recorder.enqueue(queue)
        found.append(objects.read(queue, buffer)[1:4])
    equal(found, [[0, 10, 1], [0, 20, 1]], "the buffer after each submission")


@rule(PREFIX + "MemBufferRead", "reads into the host's memory when it runs")
def test_read(recorder: PIRecorder, objects: PIObjects, queue: int) -> None:
    buffer, data = objects.buffer(range(8)), ints([0] * 4)
    recorder.record("MemBufferRead", buffer=buffer, offset=8, size=16, dst=data)
    recorder.finalize()
    before = list(data)
    recorder.enqueue(queue)
    objects.finish(queue)
    equal((before, list(data)), ([0] * 4, [2, 3, 4, 5]), "the memory before and after")


@rule(PREFIX + "MemBufferWriteRect", "writes a box")
def test_write_rect(recorder: PIRecorder, objects: PIObjects, queue: int) -> None:
    buffer, data = objects.buffer([0] * 64), ints(range(64))
    where = {
        "buffer_offset": offset(4, 1, 1),
        "host_offset": offset(8, 2, 0),
        "region": region(8, 2, 2),
    }
    recorder.record("MemBufferWriteRect", buffer=buffer, ptr=data, **where)
    recorder.run(queue)
    equal(
        objects.read(queue, buffer), _copy_box(list(range(64)), (2, 2, 0), (1, 1, 1)), "the buffer"
    )


@rule(PREFIX + "MemBufferReadRect", "reads a box")
def test_read_rect(recorder: PIRecorder, objects: PIObjects, queue: int) -> None:
    buffer, data = objects.buffer(range(64)), ints([0] * 64)
    where = {
        "buffer_offset": offset(4, 1, 1),
        "host_offset": offset(8, 2, 0),
        "region": region(8, 2, 2),
    }
    recorder.record("MemBufferReadRect", buffer=buffer, ptr=data, **where)
    recorder.run(queue)
    equal(list(data), _copy_box(list(range(64)), (1, 1, 1), (2, 2, 0)), "the memory")


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(
            n,
            id=n,
            marks=rule(PREFIX + n, "is a hint: commands before and after it do what they do"),
        )
        for n in ("PrefetchUSM", "AdviseUSM")
    ],
)
def test_hint(recorder: PIRecorder, objects: PIObjects, queue: int, name: str) -> None:
    memory = objects.usm("shared", [0] * 8)
    kernel = objects.kernel("increment", PIPointer(memory))
    hint = recorder.record(name, [recorder.launch(kernel, 8)], ptr=memory)
    recorder.launch(kernel, 8, [hint])
    recorder.run(queue)
    equal(objects.numbers(queue, memory, 8), [2] * 8, "the memory")


# The order of commands


@rule(
    KERNEL,
    "commands run after those whose sync-points they wait for, on a queue in order or out of order",
)
@pytest.mark.parametrize("kind", ["queue", "out_of_order"])
def test_chain(
    recorder: PIRecorder, objects: PIObjects, kind: str, request: pytest.FixtureRequest
) -> None:
    queue, memory = request.getfixturevalue(kind), objects.usm("shared", [0] * 1024)
    chain(recorder, memory)
    recorder.run(queue)
    equal(objects.numbers(queue, memory, 1024), CHAINED, "the memory")


@rule(KERNEL, "a diamond of fills, copies and kernels")
def test_diamond(recorder: PIRecorder, objects: PIObjects, out_of_order: int) -> None:
    source, left, right = (objects.usm("shared", [0] * 256) for _ in range(3))
    filled = recorder.fill(source, 1, 1024)
    copied = [recorder.copy(source, memory, 1024, [filled]) for memory in (left, right)]
    plus = recorder.launch(
        objects.kernel("add", PIPointer(left), ctypes.c_int32(10)), 256, copied[:1]
    )
    times = recorder.launch(
        objects.kernel("twice_plus", PIPointer(right), ctypes.c_int32(0)), 256, copied[1:]
    )
    recorder.copy(right, source, 1024, [plus, times])
    recorder.run(out_of_order)
    found = [objects.numbers(out_of_order, memory, 256) for memory in (source, left, right)]
    equal(found, [[2] * 256, [11] * 256, [2] * 256], "the memory")


# What a command has of its kernel


@rule(KERNEL, "changes of a kernel after recording do not change the command")
@pytest.mark.parametrize("when", ["before-finalize", "after-finalize", "after-enqueue"])
def test_set_argument(recorder: PIRecorder, objects: PIObjects, queue: int, when: str) -> None:
    mine, other = objects.usm("shared", [0] * 8), objects.usm("shared", [0] * 8)
    kernel = objects.kernel("add", PIPointer(mine), ctypes.c_int32(5))
    recorder.launch(kernel, 8)
    moments: dict[str, Callable[[], None]] = {
        "before-finalize": recorder.finalize,
        "after-finalize": lambda: recorder.enqueue(queue),
        "after-enqueue": lambda: objects.finish(queue),
    }
    for moment, then in moments.items():
        if moment == when:
            objects.set_argument(kernel, 0, PIPointer(other))
            objects.set_argument(kernel, 1, ctypes.c_int32(1000))
        then()
    equal(
        [objects.numbers(queue, memory, 8) for memory in (mine, other)],
        [[5] * 8, [0] * 8],
        "the memory",
    )


@rule(KERNEL, "each command has the arguments of its own recording")
def test_arguments_of_each(recorder: PIRecorder, objects: PIObjects, queue: int) -> None:
    memory = objects.usm("shared", [0] * 8)
    kernel, after = objects.kernel("add", PIPointer(memory)), []
    for value in (1, 20, 300):
        objects.set_argument(kernel, 1, ctypes.c_int32(value))
        after = [recorder.launch(kernel, 8, after)]
    recorder.run(queue, times=2)
    equal(objects.numbers(queue, memory, 8), [642] * 8, "the memory")


@rule(KERNEL, "the kernel can be released after recording")
def test_released_kernel(recorder: PIRecorder, objects: PIObjects, queue: int) -> None:
    memory, inner = (
        objects.usm("shared", [0] * 8),
        objects.new_maker(),
    )
    recorder.launch(inner.kernel("increment", PIPointer(memory)), 8)
    inner.close()
    recorder.run(queue)
    equal(objects.numbers(queue, memory, 8), [1] * 8, "the memory")
