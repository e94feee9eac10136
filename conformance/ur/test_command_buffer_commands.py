"""The commands of command-buffers: each does what its enqueued form does, at every execution.

Patterns and kernel arguments are copied when a command is appended. Host memory is read and written
when the command-buffer is executed.
"""

from __future__ import annotations

import ctypes
from typing import Any

import pytest

from fairlead.conformance.arrays import ints, sizes
from fairlead.conformance.checks import each, equal, expect, rule
from fairlead.conformance.ur.calls import URCalls, address
from fairlead.conformance.ur.objects import COUNT, SIZE, URObjects
from fairlead.conformance.ur.recording import LAUNCH, URRecording
from fairlead.conformance.ur.values import (
    BufferValue,
    LocalValue,
    PointerValue,
    is_in_box,
    make_offset,
    make_region,
)
from fairlead.loader.ur.abi import UR

STEM = "urCommandBufferAppend"
ROW, SLICE = 16, 64
SHAPES: tuple[tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]], ...] = (
    ((8,), (2,), ()),
    ((8,), (2,), (3,)),
    ((8, 6), (4, 3), (1, 2)),
    ((4, 3, 2), (2, 1, 1), (7, 8, 9)),
    ((4, 3, 2), (), ()),
)


def record_and_run(make: URObjects, queue: int, routine: str, *arguments: Any) -> URRecording:
    """Return a command-buffer with one command, executed once."""
    recording = URRecording(make)
    recording.append(routine, *arguments)
    recording.finalize_and_run(queue)
    return recording


# Launches


@pytest.mark.parametrize(
    ("size", "local", "start"),
    [
        pytest.param(
            *shape, marks=rule(LAUNCH, "{} work-items in groups of {} from {}".format(*shape))
        )
        for shape in SHAPES
    ],
)
def test_shape(
    make: URObjects,
    queue: int,
    size: tuple[int, ...],
    local: tuple[int, ...],
    start: tuple[int, ...],
) -> None:
    buffer, recording = make.buffer(80), URRecording(make)
    recording.launch(
        make.kernel("shape"), BufferValue(buffer), size=size, local=local, offset=start
    )
    recording.finalize_and_run(queue)
    seen = make.read(queue, buffer, 20)[0::2]
    pad = [0] * (3 - len(size))
    equal(seen[:4], [len(size), *size, *(1 for _ in pad)], "dimensions and global size")
    if local:
        equal(seen[4:7], [*local, *(1 for _ in pad)], "the local size")
    equal(seen[7:10], [*(start or [0] * len(size)), *pad], "the offset")


@rule(
    LAUNCH, "the arguments are those of the append, whatever becomes of the memory they came from"
)
def test_arguments_are_taken(make: URObjects, queue: int, buffer: int) -> None:
    recording, value = URRecording(make), ints([1])
    recording.launch(make.kernel(), BufferValue(buffer), value)
    value[0] = 2
    recording.finalize()
    value[0] = 3
    recording.run(queue)
    equal(make.read(queue, buffer), [1] * COUNT, "the buffer")


@rule(LAUNCH, "one kernel appended twice with different arguments")
def test_kernel_twice(make: URObjects, queue: int, buffer: int) -> None:
    recording, kernel, other = URRecording(make), make.kernel(), make.buffer()
    recording.launch(kernel, BufferValue(buffer), ints([1]))
    recording.launch(kernel, BufferValue(other), ints([2]))
    recording.finalize_and_run(queue)
    equal(
        (make.read(queue, buffer), make.read(queue, other)),
        ([1] * COUNT, [2] * COUNT),
        "the buffers",
    )


@rule(LAUNCH, "a launch of the same kernel in a queue, between append and enqueue, changes nothing")
def test_launch_in_between(make: URObjects, queue: int, buffer: int) -> None:
    recording, kernel, other = URRecording(make), make.kernel(), make.buffer()
    recording.launch(kernel, BufferValue(buffer), ints([1]))
    recording.finalize()
    make.launch(queue, kernel, BufferValue(other), ints([2]))
    recording.run(queue)
    equal(
        (make.read(queue, buffer), make.read(queue, other)),
        ([1] * COUNT, [2] * COUNT),
        "the buffers",
    )


@rule(LAUNCH, "local memory of the size that was asked for")
def test_local_memory(make: URObjects, queue: int, buffer: int) -> None:
    recording = URRecording(make)
    recording.launch(make.kernel("local_sum"), BufferValue(buffer), LocalValue(4 * 8), local=(8,))
    recording.finalize_and_run(queue)
    equal(make.read(queue, buffer), [36] * COUNT, "the sums")


@rule(LAUNCH, "USM pointers as arguments")
def test_pointer_argument(make: URObjects, queue: int, memory: int) -> None:
    recording = URRecording(make)
    recording.launch(make.kernel(), PointerValue(memory), ints([5]))
    recording.finalize_and_run(queue)
    equal(make.get(queue, memory), [5] * COUNT, "the memory")


@rule(f"{STEM}KernelLaunchExp", "a kernel without arguments")
def test_launch_without_arguments(make: URObjects, queue: int) -> None:
    kernel = make.kernel("nothing")
    record_and_run(
        make, queue, f"{STEM}KernelLaunchExp", kernel, 1, sizes(0), sizes(COUNT), None, 0, None
    )


@pytest.mark.parametrize(
    "wrong",
    each(
        ("one argument of two", "an argument too many", "the last argument twice"),
        LAUNCH,
        "arguments_complete: INVALID_KERNEL_ARGUMENT_INDEX for {}",
    ),
)
def test_arguments_complete(make: URObjects, buffer: int, wrong: str) -> None:
    recording = URRecording(make)
    values: tuple[Any, ...] = {
        "one argument of two": (BufferValue(buffer),),
        "an argument too many": (BufferValue(buffer), ints([1]), ints([1])),
        "the last argument twice": (BufferValue(buffer), ints([1])),
    }[wrong]
    given = recording.launch_arguments(make.kernel(), values)
    if wrong == "the last argument twice":
        given[6][0].index = 1
    expect(
        UR, recording.try_append(LAUNCH, *given)[0], "UR_RESULT_ERROR_INVALID_KERNEL_ARGUMENT_INDEX"
    )


# Unified shared memory


@rule(f"{STEM}USMMemcpyExp", "between allocations, each time")
def test_usm_copy(make: URObjects, queue: int) -> None:
    source, target = make.usm(), make.usm()
    make.put(queue, source, range(COUNT))
    recording = record_and_run(make, queue, f"{STEM}USMMemcpyExp", target, source, SIZE)
    equal(make.get(queue, target), list(range(COUNT)), "the target")
    make.put(queue, source, [3] * COUNT)
    recording.run(queue)
    equal(make.get(queue, target), [3] * COUNT, "the target, executed again")


@rule(f"{STEM}USMMemcpyExp", "from and to host memory that is not USM")
def test_usm_copy_of_host_memory(make: URObjects, queue: int, memory: int) -> None:
    source, target = ints(range(COUNT)), ints([0] * COUNT)
    recording = URRecording(make, isInOrder=True)
    recording.append(f"{STEM}USMMemcpyExp", memory, source, SIZE)
    recording.append(f"{STEM}USMMemcpyExp", target, memory, SIZE)
    recording.finalize_and_run(queue)
    equal(list(target), list(range(COUNT)), "the host memory")


@pytest.mark.parametrize(
    "size",
    each(
        (1, 2, 4, 8, 16, 32, 64, 128),
        f"{STEM}USMFillExp",
        "a pattern of {} bytes, taken when it is appended",
    ),
)
def test_usm_fill(ur: URCalls, make: URObjects, queue: int, memory: int, size: int) -> None:
    pattern = ctypes.create_string_buffer(bytes(range(1, size + 1)), size)
    recording = URRecording(make)
    recording.append(f"{STEM}USMFillExp", memory, pattern, size, SIZE)
    ctypes.memset(pattern, 0, size)
    recording.finalize_and_run(queue)
    out = ctypes.create_string_buffer(SIZE)
    ur.ok("urEnqueueUSMMemcpy", queue, True, out, memory, SIZE)
    equal(out.raw, bytes(range(1, size + 1)) * (SIZE // size), "the bytes")


@rule(f"{STEM}USMPrefetchExp", "is a command with a sync-point that changes nothing")
def test_prefetch(make: URObjects, queue: int) -> None:
    memory, out = make.usm("Shared"), ints([0] * COUNT)
    make.put(queue, memory, range(COUNT))
    recording = URRecording(make)
    step = recording.append(f"{STEM}USMPrefetchExp", memory, SIZE, 1)
    recording.append(f"{STEM}USMMemcpyExp", out, memory, SIZE, after=(step.point,))
    recording.finalize_and_run(queue)
    equal(list(out), list(range(COUNT)), "what was copied after it")


@rule(f"{STEM}USMAdviseExp", "is a command with a sync-point that changes nothing")
def test_advise(make: URObjects, queue: int) -> None:
    memory, out = make.usm("Shared"), ints([0] * COUNT)
    make.put(queue, memory, range(COUNT))
    recording = URRecording(make)
    step = recording.append(f"{STEM}USMAdviseExp", memory, SIZE, UR["UR_USM_ADVICE_FLAG_DEFAULT"])
    recording.append(f"{STEM}USMMemcpyExp", out, memory, SIZE, after=(step.point,))
    recording.finalize_and_run(queue)
    equal(list(out), list(range(COUNT)), "what was copied after it")


# Buffers


@rule(f"{STEM}MemBufferCopyExp", "from an offset to an offset")
def test_copy(make: URObjects, queue: int, buffer: int) -> None:
    other = make.buffer()
    make.write(queue, buffer, range(COUNT))
    make.write(queue, other, [-1] * COUNT)
    record_and_run(make, queue, f"{STEM}MemBufferCopyExp", buffer, other, 16, 8, 40)
    equal(make.read(queue, other), [-1, -1, *range(4, 14), *[-1] * (COUNT - 12)], "the target")


@rule(f"{STEM}MemBufferWriteExp", "the host memory is read at each execution")
def test_write(make: URObjects, queue: int, buffer: int) -> None:
    data = ints([1] * COUNT)
    recording = URRecording(make)
    recording.append(f"{STEM}MemBufferWriteExp", buffer, 0, SIZE, data)
    recording.finalize()
    for value in (2, 3):
        data[:] = [value] * COUNT
        recording.run(queue)
        equal(make.read(queue, buffer), [value] * COUNT, "the buffer")


@rule(f"{STEM}MemBufferReadExp", "the host memory is written at each execution")
def test_read(make: URObjects, queue: int, buffer: int) -> None:
    data = ints([0] * COUNT)
    recording = URRecording(make)
    recording.append(f"{STEM}MemBufferReadExp", buffer, 0, SIZE, data)
    recording.finalize()
    for value in (2, 3):
        make.write(queue, buffer, [value] * COUNT)
        recording.run(queue)
        equal(list(data), [value] * COUNT, "the host memory")


@rule(f"{STEM}MemBufferWriteExp", "at an offset, and nothing else")
def test_write_at_offset(make: URObjects, queue: int, buffer: int) -> None:
    make.write(queue, buffer, [0] * COUNT)
    record_and_run(make, queue, f"{STEM}MemBufferWriteExp", buffer, 8, 12, ints([1, 2, 3]))
    equal(make.read(queue, buffer), [0, 0, 1, 2, 3, *[0] * (COUNT - 5)], "the buffer")


@rule(f"{STEM}MemBufferReadExp", "from an offset, and nothing else")
def test_read_at_offset(make: URObjects, queue: int, buffer: int) -> None:
    make.write(queue, buffer, range(COUNT))
    data = ints([-1] * 4)
    record_and_run(make, queue, f"{STEM}MemBufferReadExp", buffer, 20, 12, data)
    equal(list(data), [5, 6, 7, -1], "the host memory")


@pytest.mark.parametrize(
    "size",
    each(
        (1, 2, 4, 8, 16, 32, 64, 128),
        f"{STEM}MemBufferFillExp",
        "a pattern of {} bytes, taken when it is appended",
    ),
)
def test_fill(ur: URCalls, make: URObjects, queue: int, buffer: int, size: int) -> None:
    make.write(queue, buffer, [0] * COUNT)
    pattern = ctypes.create_string_buffer(bytes(range(1, size + 1)), size)
    recording = URRecording(make)
    recording.append(f"{STEM}MemBufferFillExp", buffer, pattern, size, size, SIZE - size)
    ctypes.memset(pattern, 0, size)
    recording.finalize_and_run(queue)
    out = ctypes.create_string_buffer(SIZE)
    ur.ok("urEnqueueMemBufferRead", queue, buffer, True, 0, SIZE, out)
    equal(out.raw, b"\0" * size + bytes(range(1, size + 1)) * (SIZE // size - 1), "the bytes")


@rule(f"{STEM}MemBufferCopyRectExp", "a box of one buffer to a box of another")
def test_copy_rect(make: URObjects, queue: int, buffer: int) -> None:
    other = make.buffer()
    make.write(queue, buffer, range(COUNT))
    make.write(queue, other, [-1] * COUNT)
    shape = make_offset(4, 1, 1), make_offset(8, 2, 2), make_region(8, 2, 2), ROW, SLICE, ROW, SLICE
    record_and_run(make, queue, f"{STEM}MemBufferCopyRectExp", buffer, other, *shape)
    expected = [i - 42 + 21 if is_in_box(i, (2, 2, 2), (2, 2, 2)) else -1 for i in range(COUNT)]
    equal(make.read(queue, other), expected, "the target")


@rule(f"{STEM}MemBufferWriteRectExp", "a box of host memory to a box of the buffer")
def test_write_rect(make: URObjects, queue: int, buffer: int) -> None:
    make.write(queue, buffer, [0] * COUNT)
    shape = make_offset(8, 0, 1), make_offset(4, 1, 0), make_region(8, 3, 2), ROW, SLICE, ROW, SLICE
    record_and_run(make, queue, f"{STEM}MemBufferWriteRectExp", buffer, *shape, ints(range(COUNT)))
    expected = [i - 18 + 21 - 16 if is_in_box(i, (2, 0, 1), (2, 3, 2)) else 0 for i in range(COUNT)]
    equal(make.read(queue, buffer), expected, "the buffer")


@rule(f"{STEM}MemBufferReadRectExp", "a box of the buffer to a box of host memory")
def test_read_rect(make: URObjects, queue: int, buffer: int) -> None:
    make.write(queue, buffer, range(COUNT))
    data = ints([-1] * COUNT)
    shape = make_offset(4, 1, 2), make_offset(0, 0, 0), make_region(8, 2, 2), ROW, SLICE, 8, 16
    record_and_run(make, queue, f"{STEM}MemBufferReadRectExp", buffer, *shape, data)
    equal(
        list(data),
        [*(i for i in range(COUNT) if is_in_box(i, (1, 1, 2), (2, 2, 2))), *[-1] * (COUNT - 8)],
        "the host memory",
    )


@rule(
    f"{STEM}MemBufferReadExp",
    "write, launch, read: a whole step in a command-buffer, by sync-points",
)
def test_whole_step(make: URObjects, queue: int, buffer: int) -> None:
    data, out = ints(range(COUNT)), ints([0] * COUNT)
    recording = URRecording(make)
    step = recording.append(f"{STEM}MemBufferWriteExp", buffer, 0, SIZE, data)
    step = recording.launch(make.kernel("twice"), BufferValue(buffer), after=(step.point,))
    recording.append(f"{STEM}MemBufferReadExp", buffer, 0, SIZE, out, after=(step.point,))
    recording.finalize()
    for _ in range(3):
        recording.run(queue)
        equal(list(out), [2 * value for value in data], "what was read")
        data[:] = list(out)


# Native commands


@rule(f"{STEM}NativeCommandExp", "calls the function, with the data")
def test_native_command(make: URObjects, queue: int) -> None:
    seen: list[object] = []
    function = make.keep(ctypes.CFUNCTYPE(None, ctypes.c_void_p)(lambda data: seen.append(data)))
    data, recording = ctypes.c_int(), URRecording(make)
    recording.append(f"{STEM}NativeCommandExp", address(function), ctypes.byref(data), None)
    recording.finalize_and_run(queue)
    equal(set(seen), {ctypes.addressof(data)}, "calls of the function, by data")


@rule(f"{STEM}NativeCommandExp", "stands between its dependencies and what depends on it")
def test_native_command_in_order(make: URObjects, queue: int, buffer: int) -> None:
    function = make.keep(ctypes.CFUNCTYPE(None, ctypes.c_void_p)(lambda data: None))
    recording = URRecording(make)
    step = recording.fill(buffer, 1)
    step = recording.append(
        f"{STEM}NativeCommandExp", address(function), None, None, after=(step.point,)
    )
    recording.launch(make.kernel("twice"), BufferValue(buffer), after=(step.point,))
    recording.finalize_and_run(queue)
    equal(make.read(queue, buffer), [2] * COUNT, "the buffer")
