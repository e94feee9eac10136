"""Commands on buffers: read, write, copy, fill, rectangles, map and unmap, waits and barriers."""

from __future__ import annotations

import ctypes

import pytest

from fairlead.conformance.arrays import ints
from fairlead.conformance.checks import each, equal, failed, rule
from fairlead.conformance.ur.calls import URCalls
from fairlead.conformance.ur.objects import COUNT, SIZE, URObjects
from fairlead.conformance.ur.values import is_in_box, make_offset, make_region
from fairlead.loader.ur.abi import UR

ROW, SLICE = 16, 64  # of the rectangles, in bytes: 4 by 4 by 4 numbers in a buffer of COUNT


@rule("urEnqueueMemBufferWrite", "blocking: its event is complete when it returns")
def test_blocking_write(ur: URCalls, make: URObjects, queue: int, buffer: int) -> None:
    data = ints(range(COUNT))
    event = make.enqueue("urEnqueueMemBufferWrite", queue, buffer, True, 0, SIZE, data)
    equal(ur.is_complete(event), True, "whether its event is complete")


@rule("urEnqueueMemBufferRead", "blocking: the data is there when it returns")
def test_blocking_read(make: URObjects, queue: int, buffer: int) -> None:
    make.write(queue, buffer, range(COUNT))
    equal(make.read(queue, buffer), list(range(COUNT)), "what was read")


@rule("urEnqueueMemBufferRead", "not blocking: the data is there when its event is complete")
def test_read_with_event(ur: URCalls, make: URObjects, queue: int, buffer: int) -> None:
    make.write(queue, buffer, range(COUNT))
    data = ints([0] * COUNT)
    make.wait(make.enqueue("urEnqueueMemBufferRead", queue, buffer, False, 0, SIZE, data))
    equal(list(data), list(range(COUNT)), "what was read")


@rule(
    "urEnqueueMemBufferWrite", "not blocking: the host memory is read when the command is executed"
)
def test_write_reads_late(ur: URCalls, make: URObjects, queue: int, buffer: int) -> None:
    gate, data = make.user_event(), ints([1] * COUNT)
    event = make.enqueue(
        "urEnqueueMemBufferWrite", queue, buffer, False, 0, SIZE, data, after=(gate.handle,)
    )
    gate.complete()
    make.wait(event)
    equal(make.read(queue, buffer), [1] * COUNT, "what was written")


@rule("urEnqueueMemBufferWrite", "writes at an offset, and nothing else")
def test_write_at_offset(ur: URCalls, make: URObjects, queue: int, buffer: int) -> None:
    make.write(queue, buffer, [0] * COUNT)
    ur.ok("urEnqueueMemBufferWrite", queue, buffer, True, 8, 12, ints([1, 2, 3]))
    equal(make.read(queue, buffer), [0, 0, 1, 2, 3, *[0] * (COUNT - 5)], "the buffer")


@rule("urEnqueueMemBufferRead", "reads from an offset")
def test_read_at_offset(ur: URCalls, make: URObjects, queue: int, buffer: int) -> None:
    make.write(queue, buffer, range(COUNT))
    data = ints([0] * 3)
    ur.ok("urEnqueueMemBufferRead", queue, buffer, True, 20, 12, data)
    equal(list(data), [5, 6, 7], "what was read")


@rule("urEnqueueMemBufferCopy", "from an offset to an offset")
def test_copy(ur: URCalls, make: URObjects, queue: int, buffer: int) -> None:
    other = make.buffer()
    make.write(queue, buffer, range(COUNT))
    make.write(queue, other, [-1] * COUNT)
    ur.ok("urEnqueueMemBufferCopy", queue, buffer, other, 16, 8, 40)
    equal(make.read(queue, other), [-1, -1, *range(4, 14), *[-1] * (COUNT - 12)], "the target")


@rule("urEnqueueMemBufferCopy", "within one buffer, regions apart")
def test_copy_within(ur: URCalls, make: URObjects, queue: int, buffer: int) -> None:
    make.write(queue, buffer, range(COUNT))
    ur.ok("urEnqueueMemBufferCopy", queue, buffer, buffer, 0, SIZE // 2, SIZE // 2)
    equal(make.read(queue, buffer), [*range(COUNT // 2), *range(COUNT // 2)], "the buffer")


@pytest.mark.parametrize(
    "size", each((1, 2, 4, 8, 16, 32, 64, 128), "urEnqueueMemBufferFill", "a pattern of {} bytes")
)
def test_fill(ur: URCalls, make: URObjects, queue: int, buffer: int, size: int) -> None:
    make.write(queue, buffer, [0] * COUNT)
    pattern = bytes(range(1, size + 1))
    ur.ok("urEnqueueMemBufferFill", queue, buffer, pattern, size, size, SIZE - size)
    out = ctypes.create_string_buffer(SIZE)
    ur.ok("urEnqueueMemBufferRead", queue, buffer, True, 0, SIZE, out)
    equal(out.raw, b"\0" * size + pattern * (SIZE // size - 1), "the bytes")


@rule("urEnqueueMemBufferFill", "the pattern may be changed as soon as it returns")
def test_fill_copies_its_pattern(ur: URCalls, make: URObjects, queue: int, buffer: int) -> None:
    gate, pattern = make.user_event(), ints([3])
    event = make.enqueue(
        "urEnqueueMemBufferFill", queue, buffer, pattern, 4, 0, SIZE, after=(gate.handle,)
    )
    pattern[0] = 4
    gate.complete()
    make.wait(event)
    equal(make.read(queue, buffer), [3] * COUNT, "the buffer")


@rule("urEnqueueMemBufferReadRect", "a box of the buffer to a box of host memory")
def test_read_rect(ur: URCalls, make: URObjects, queue: int, buffer: int) -> None:
    make.write(queue, buffer, range(COUNT))
    data = ints([-1] * COUNT)
    shape = make_offset(4, 1, 2), make_offset(0, 0, 0), make_region(8, 2, 2), ROW, SLICE, 8, 16
    ur.ok("urEnqueueMemBufferReadRect", queue, buffer, True, *shape, data)
    expected = [i for i in range(COUNT) if is_in_box(i, (1, 1, 2), (2, 2, 2))]
    equal(list(data)[:8], expected, "what was read")
    equal(list(data)[8:], [-1] * (COUNT - 8), "what lies behind it")


@rule("urEnqueueMemBufferWriteRect", "a box of host memory to a box of the buffer")
def test_write_rect(ur: URCalls, make: URObjects, queue: int, buffer: int) -> None:
    make.write(queue, buffer, [0] * COUNT)
    shape = make_offset(8, 0, 1), make_offset(4, 1, 0), make_region(8, 3, 2), ROW, SLICE, ROW, SLICE
    ur.ok("urEnqueueMemBufferWriteRect", queue, buffer, True, *shape, ints(range(COUNT)))
    expected = [i - 18 + 21 - 16 if is_in_box(i, (2, 0, 1), (2, 3, 2)) else 0 for i in range(COUNT)]
    equal(make.read(queue, buffer), expected, "the buffer")


@rule("urEnqueueMemBufferCopyRect", "a box of one buffer to a box of another")
def test_copy_rect(ur: URCalls, make: URObjects, queue: int, buffer: int) -> None:
    other = make.buffer()
    make.write(queue, buffer, range(COUNT))
    make.write(queue, other, [-1] * COUNT)
    shape = make_offset(4, 1, 1), make_offset(8, 2, 2), make_region(8, 2, 2), ROW, SLICE, ROW, SLICE
    ur.ok("urEnqueueMemBufferCopyRect", queue, buffer, other, *shape)
    expected = [i - 42 + 21 if is_in_box(i, (2, 2, 2), (2, 2, 2)) else -1 for i in range(COUNT)]
    equal(make.read(queue, other), expected, "the target")


@rule("urEnqueueMemBufferReadRect", "pitches of 0 mean that rows and slices lie close together")
def test_rect_without_pitches(ur: URCalls, make: URObjects, queue: int, buffer: int) -> None:
    make.write(queue, buffer, range(COUNT))
    data = ints([-1] * COUNT)
    ur.ok(
        "urEnqueueMemBufferReadRect",
        queue,
        buffer,
        True,
        make_offset(),
        make_offset(),
        make_region(ROW, 4, 4),
        0,
        0,
        0,
        0,
        data,
    )
    equal(list(data), list(range(COUNT)), "what was read")


def map_numbers(
    ur: URCalls, queue: int, buffer: int, flags: str, start: int = 0, size: int = SIZE
) -> int:
    """Map a part of a buffer and wait. Returns the address.

    `start` and `size` are in bytes.
    """
    place = ctypes.c_void_p()
    ur.ok(
        "urEnqueueMemBufferMap",
        queue,
        buffer,
        True,
        UR[f"UR_MAP_FLAG_{flags}"],
        start,
        size,
        0,
        None,
        None,
        place,
    )
    if not place.value:
        failed("an address", "NULL")
    return place.value or 0


@rule("urEnqueueMemBufferMap", "READ: what the buffer holds can be read")
def test_map_for_reading(ur: URCalls, make: URObjects, queue: int, buffer: int) -> None:
    make.write(queue, buffer, range(COUNT))
    place = map_numbers(ur, queue, buffer, "READ", 16, 40)
    found = list((ctypes.c_int32 * 10).from_address(place))
    ur.ok("urEnqueueMemUnmap", queue, buffer, place)
    ur.ok("urQueueFinish", queue)
    equal(found, list(range(4, 14)), "what was read")


@pytest.mark.parametrize(
    "flags",
    each(
        ("WRITE", "WRITE_INVALIDATE_REGION"),
        "urEnqueueMemUnmap",
        "{}: what was written is in the buffer",
    ),
)
def test_map_for_writing(ur: URCalls, make: URObjects, queue: int, buffer: int, flags: str) -> None:
    make.write(queue, buffer, [0] * COUNT)
    place = map_numbers(ur, queue, buffer, flags)
    (ctypes.c_int32 * COUNT).from_address(place)[:] = range(COUNT)
    make.wait(make.enqueue("urEnqueueMemUnmap", queue, buffer, place))
    equal(make.read(queue, buffer), list(range(COUNT)), "the buffer")


@rule("urEnqueueEventsWait", "without a list it waits for everything before it")
def test_wait_for_all(ur: URCalls, make: URObjects, out_of_order: int, buffer: int) -> None:
    gate = make.user_event()
    fill = "urEnqueueMemBufferFill", out_of_order, buffer, ints([5]), 4, 0, SIZE
    filled = make.enqueue(*fill, after=(gate.handle,))
    event = make.enqueue("urEnqueueEventsWait", out_of_order)
    gate.complete()
    make.wait(event)
    equal(ur.is_complete(filled), True, "whether the command before is complete")


@pytest.mark.parametrize(
    "routine",
    each(
        ("urEnqueueEventsWaitWithBarrier", "urEnqueueEventsWaitWithBarrierExt"),
        "{}",
        "what comes after it does not begin before it is complete",
    ),
)
def test_barrier(make: URObjects, out_of_order: int, buffer: int, routine: str) -> None:
    gate, other = make.user_event(), make.buffer()
    make.write(out_of_order, other, [0] * COUNT)
    fill = "urEnqueueMemBufferFill", out_of_order, buffer, ints([5]), 4, 0, SIZE
    make.enqueue(*fill, after=(gate.handle,))
    make.enqueue(routine, out_of_order)
    copied = make.enqueue("urEnqueueMemBufferCopy", out_of_order, buffer, other, 0, 0, SIZE)
    gate.complete()
    make.wait(copied)
    equal(make.read(out_of_order, other), [5] * COUNT, "what was copied after the barrier")


@rule("urEnqueueEventsWait", "with a list it waits for those events, of another queue, too")
def test_wait_for_other_queue(ur: URCalls, make: URObjects, queue: int) -> None:
    gate = make.user_event()
    first = make.barrier(make.queue(), gate.handle)
    event = make.enqueue("urEnqueueEventsWait", queue, after=(first,))
    gate.complete()
    make.wait(event)
    equal(ur.is_complete(first), True, "whether the event in the list is complete")


@rule("urDeviceWaitExp", "returns when everything on the device has been executed")
def test_device_wait(ur: URCalls, make: URObjects, device: int, queue: int) -> None:
    event = make.launch(queue, make.kernel("nothing"))
    ur.ok("urDeviceWaitExp", device)
    equal(ur.is_complete(event), True, "whether a launch before is complete")
