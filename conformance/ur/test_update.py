"""What updates of command-buffers can change, and every capability bit.

A device that lacks a capability bit has to answer UNSUPPORTED_FEATURE. `test_update_events` tests
updates of events, and `test_update_rules` the other rules.
"""

from __future__ import annotations

import pytest

from fairlead.conformance.arrays import ints
from fairlead.conformance.checks import each, equal, expect, rule, unsupported
from fairlead.conformance.ur.calls import URCalls
from fairlead.conformance.ur.objects import COUNT, URObjects
from fairlead.conformance.ur.recording import (
    BIT,
    BITS,
    CAPABILITIES,
    UPDATE,
    Update,
    URRecording,
    need,
    record_store,
)
from fairlead.conformance.ur.values import BufferValue, LocalValue, PointerValue
from fairlead.loader.ur.abi import UR

# What can be updated


@rule(UPDATE, "argument_value: a number")
def test_argument_value(ur: URCalls, make: URObjects, queue: int, buffer: int) -> None:
    need(ur, "KERNEL_ARGUMENTS")
    recording, step = record_store(make, buffer)
    seen = []
    for value in (2, 3):
        recording.run(queue)
        seen.append(make.read(queue, buffer)[0])
        recording.update(Update(step.command, {1: ints([value])}))
    recording.run(queue)
    equal(
        [*seen, make.read(queue, buffer)[0]], [1, 2, 3], "what was stored before and after updates"
    )


@rule(UPDATE, "argument_buffer: a memory object")
def test_argument_buffer(ur: URCalls, make: URObjects, queue: int, buffer: int) -> None:
    need(ur, "KERNEL_ARGUMENTS")
    other = make.buffer()
    make.write(queue, buffer, [0] * COUNT)
    recording, step = record_store(make, buffer)
    recording.update(Update(step.command, {0: BufferValue(other)}))
    recording.run(queue)
    equal(
        (make.read(queue, other), make.read(queue, buffer)),
        ([1] * COUNT, [0] * COUNT),
        "the new buffer and the old one",
    )


@rule(UPDATE, "argument_pointer: a USM pointer")
def test_argument_pointer(ur: URCalls, make: URObjects, queue: int, memory: int) -> None:
    need(ur, "KERNEL_ARGUMENTS")
    other = make.usm()
    make.put(queue, memory, [0] * COUNT)
    recording = URRecording(make, isUpdatable=True)
    step = recording.launch(make.kernel(), PointerValue(memory), ints([1]), command=True)
    recording.finalize()
    recording.update(Update(step.command, {0: PointerValue(other)}))
    recording.run(queue)
    equal(
        (make.get(queue, other), make.get(queue, memory)),
        ([1] * COUNT, [0] * COUNT),
        "the new memory and the old one",
    )


@rule(UPDATE, "argument_local: the size of local memory, with the local size")
def test_argument_local(ur: URCalls, make: URObjects, queue: int, buffer: int) -> None:
    need(ur, "KERNEL_ARGUMENTS", "LOCAL_WORK_SIZE", "GLOBAL_WORK_SIZE")
    recording = URRecording(make, isUpdatable=True)
    step = recording.launch(
        make.kernel("local_sum"), BufferValue(buffer), LocalValue(16), local=(4,), command=True
    )
    recording.finalize()
    recording.update(Update(step.command, {1: LocalValue(64)}, size=(COUNT,), local=(16,)))
    recording.run(queue)
    equal(make.read(queue, buffer), [136] * COUNT, "the sums")


@rule(UPDATE, "several arguments at once")
def test_several_arguments(ur: URCalls, make: URObjects, queue: int, buffer: int) -> None:
    need(ur, "KERNEL_ARGUMENTS")
    other = make.buffer()
    recording, step = record_store(make, buffer)
    recording.update(Update(step.command, {0: BufferValue(other), 1: ints([9])}))
    recording.run(queue)
    equal(make.read(queue, other), [9] * COUNT, "the new buffer")


@rule(UPDATE, "global_size: smaller, then larger than it was")
def test_global_size(ur: URCalls, make: URObjects, queue: int, buffer: int) -> None:
    need(ur, "GLOBAL_WORK_SIZE", "LOCAL_WORK_SIZE")
    recording, step = record_store(make, buffer, size=(16,), local=(4,))
    for size in (8, 64):
        make.write(queue, buffer, [0] * COUNT)
        recording.update(Update(step.command, size=(size,), local=(4,)))
        recording.run(queue)
        equal(
            make.read(queue, buffer),
            [1] * size + [0] * (COUNT - size),
            f"the buffer with {size} work-items",
        )


@rule(UPDATE, "global_size without a local size: the implementation chooses one")
def test_global_size_alone(ur: URCalls, make: URObjects, queue: int, buffer: int) -> None:
    need(ur, "GLOBAL_WORK_SIZE", "LOCAL_WORK_SIZE")
    recording, step = record_store(make, buffer, size=(16,), local=(8,))
    make.write(queue, buffer, [0] * COUNT)
    recording.update(Update(step.command, size=(12,)))
    recording.run(queue)
    equal(make.read(queue, buffer), [1] * 12 + [0] * (COUNT - 12), "the buffer")


@rule(UPDATE, "global_offset")
def test_global_offset(ur: URCalls, make: URObjects, queue: int, buffer: int) -> None:
    need(ur, "GLOBAL_WORK_OFFSET")
    recording, step = record_store(make, buffer, size=(8,), local=(8,))
    make.write(queue, buffer, [0] * COUNT)
    recording.update(Update(step.command, offset=(5,)))
    recording.run(queue)
    equal(make.read(queue, buffer), [0] * 5 + [1] * 8 + [0] * (COUNT - 13), "the buffer")


@pytest.mark.parametrize(
    "shape",
    [
        pytest.param(
            s, marks=rule(UPDATE, f"shape: {len(s[0])} dimensions, {s[0]} in groups of {s[1]}")
        )
        for s in (((8,), (2,)), ((8, 4), (4, 2)), ((4, 4, 4), (2, 2, 1)))
    ],
)
def test_shape(
    ur: URCalls, make: URObjects, queue: int, shape: tuple[tuple[int, ...], tuple[int, ...]]
) -> None:
    need(ur, "GLOBAL_WORK_SIZE", "LOCAL_WORK_SIZE", "GLOBAL_WORK_OFFSET")
    size, local = shape
    start = tuple(range(1, len(size) + 1))
    buffer, recording = make.buffer(80), URRecording(make, isUpdatable=True)
    first = (2,) * len(size)
    step = recording.launch(
        make.kernel("shape"), BufferValue(buffer), size=first, local=(1,) * len(size), command=True
    )
    recording.finalize()
    recording.update(Update(step.command, size=size, local=local, offset=start))
    recording.run(queue)
    seen = make.read(queue, buffer, 20)[0::2]
    pad = 3 - len(size)
    equal(
        seen,
        [len(size), *size, *[1] * pad, *local, *[1] * pad, *start, *[0] * pad],
        "dimensions, sizes, local sizes, offsets",
    )


@pytest.mark.parametrize(
    "dimensions", each((1, 3), UPDATE, "new_dimensions: from 2 to {}, with a new offset and size")
)
def test_new_dimensions(ur: URCalls, make: URObjects, queue: int, dimensions: int) -> None:
    need(ur, "GLOBAL_WORK_SIZE", "LOCAL_WORK_SIZE", "GLOBAL_WORK_OFFSET")
    size, local, start = (4, 2, 2)[:dimensions], (2, 1, 1)[:dimensions], (1, 2, 3)[:dimensions]
    buffer, recording = make.buffer(80), URRecording(make, isUpdatable=True)
    step = recording.launch(
        make.kernel("shape"), BufferValue(buffer), size=(4, 4), local=(2, 2), command=True
    )
    recording.finalize()
    recording.update(
        Update(step.command, dimensions=dimensions, size=size, local=local, offset=start)
    )
    recording.run(queue)
    seen = make.read(queue, buffer, 20)[0::2]
    pad = 3 - dimensions
    equal(
        seen[:7],
        [dimensions, *size, *[1] * pad, *local, *[1] * pad],
        "dimensions, sizes, local sizes",
    )


@pytest.mark.parametrize(
    "given", each(("size", "offset"), UPDATE, "new_dimensions with {} alone: INVALID_VALUE")
)
def test_new_dimensions_incomplete(ur: URCalls, make: URObjects, buffer: int, given: str) -> None:
    need(ur, "GLOBAL_WORK_SIZE", "LOCAL_WORK_SIZE", "GLOBAL_WORK_OFFSET")
    recording, step = record_store(make, buffer)
    update = Update(
        step.command,
        dimensions=2,
        size=(1, 1) if given == "size" else None,
        offset=(1, 1) if given == "offset" else None,
    )
    expect(UR, recording.try_update(update), "UR_RESULT_ERROR_INVALID_VALUE")


@pytest.mark.parametrize("count", each((0, 4), UPDATE, "{} dimensions: INVALID_WORK_DIMENSION"))
def test_number_of_dimensions(ur: URCalls, make: URObjects, buffer: int, count: int) -> None:
    need(ur, "GLOBAL_WORK_SIZE", "LOCAL_WORK_SIZE", "GLOBAL_WORK_OFFSET")
    recording, step = record_store(make, buffer)
    update = Update(step.command, dimensions=count, size=(1,) * 4, offset=(0,) * 4)
    expect(UR, recording.try_update(update), "UR_RESULT_ERROR_INVALID_WORK_DIMENSION")


@pytest.mark.parametrize(
    "bit", each(BITS, UPDATE, "{} is refused where the device does not report it")
)
def test_missing_capability(ur: URCalls, make: URObjects, buffer: int, bit: str) -> None:
    ur.require(CAPABILITIES)
    if ur.device_says(CAPABILITIES) & UR[BIT.format(bit)]:
        unsupported("the device reports it")
    other = make.kernel()
    recording, step = record_store(
        make, buffer, alternatives=(other,) if bit == "KERNEL_HANDLE" else ()
    )
    updates = {
        "KERNEL_ARGUMENTS": Update(step.command, {1: ints([2])}),
        "LOCAL_WORK_SIZE": Update(step.command, local=(1,)),
        "GLOBAL_WORK_SIZE": Update(step.command, size=(8,), local=(1,)),
        "GLOBAL_WORK_OFFSET": Update(step.command, offset=(1,)),
        "KERNEL_HANDLE": Update(step.command, {0: BufferValue(buffer), 1: ints([2])}, kernel=other),
    }
    expect(UR, recording.try_update(updates[bit]), "UR_RESULT_ERROR_UNSUPPORTED_FEATURE")
