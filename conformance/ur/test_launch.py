"""Launches: 1 to 3 dimensions, offsets, local sizes, arguments of every kind, wait lists,
errors."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import Any

import pytest

from fairlead.conformance.arrays import ints, sizes
from fairlead.conformance.checks import each, equal, failed, rule
from fairlead.conformance.ur.calls import URCalls
from fairlead.conformance.ur.objects import COUNT, URObjects
from fairlead.conformance.ur.values import BufferValue, LocalValue, PointerValue
from fairlead.loader.ur.abi import UR

LAUNCH = "urEnqueueKernelLaunchWithArgsExp"
SHAPES: tuple[tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]], ...] = (
    ((8,), (2,), ()),
    ((8,), (2,), (3,)),
    ((8,), (), (5,)),
    ((8, 6), (4, 3), ()),
    ((8, 6), (2, 1), (1, 2)),
    ((4, 3, 2), (2, 1, 1), ()),
    ((4, 3, 2), (4, 3, 2), (7, 8, 9)),
    ((1, 1, 1), (1, 1, 1), ()),
)


def pad(numbers: Sequence[int], fill: int) -> list[int]:
    return [*numbers, *[fill] * (3 - len(numbers))]


def read_shape(make: URObjects, queue: int, **how: Any) -> list[int]:
    """Launch `shape` and return what it saw: dimensions, global size, local size, offset."""
    buffer = make.buffer(80)
    make.launch(queue, make.kernel("shape"), BufferValue(buffer), **how)
    words = make.read(queue, buffer, 20)
    return words[0::2]


@pytest.mark.parametrize(
    ("size", "local", "offset"),
    [
        pytest.param(
            *shape, marks=rule(LAUNCH, "{} work-items in groups of {} from {}".format(*shape))
        )
        for shape in SHAPES
    ],
)
def test_shape(
    ur: URCalls,
    make: URObjects,
    queue: int,
    size: tuple[int, ...],
    local: tuple[int, ...],
    offset: tuple[int, ...],
) -> None:
    seen = read_shape(make, queue, size=size, local=local, offset=offset)
    backend = ur.info("urPlatformGetInfo", make.platform, "UR_PLATFORM_INFO_BACKEND")
    if backend != UR["UR_BACKEND_LEVEL_ZERO"]:  # its launches have three dimensions
        equal(seen[0], len(size), "the number of dimensions")
    equal(seen[1:4], pad(size, 1), "the global size")
    if local:
        equal(seen[4:7], pad(local, 1), "the local size")
    equal(seen[7:10], pad(offset, 0), "the offset")


@rule(LAUNCH, "no offset and no local size: NULL for both")
def test_null_shapes(ur: URCalls, make: URObjects, queue: int, buffer: int) -> None:
    given = make.arguments(BufferValue(buffer), ints([9]))
    make.enqueue(LAUNCH, queue, make.kernel(), 1, None, sizes(COUNT), None, *given)
    equal(make.read(queue, buffer), [9] * COUNT, "what the launch wrote")


@rule(LAUNCH, "the arguments may be changed as soon as it returns")
def test_arguments_are_copied(make: URObjects, queue: int, buffer: int) -> None:
    gate, value = make.user_event(), ints([1])
    event = make.launch(queue, make.kernel(), BufferValue(buffer), value, after=(gate.handle,))
    value[0] = 2
    gate.complete()
    make.wait(event)
    equal(make.read(queue, buffer), [1] * COUNT, "what the launch wrote")


@rule(LAUNCH, "every launch has the arguments of its own call")
def test_arguments_of_each_launch(make: URObjects, queue: int) -> None:
    buffers, kernel = [make.buffer() for _ in range(4)], make.kernel()
    for value, buffer in enumerate(buffers):
        make.launch(queue, kernel, BufferValue(buffer), ints([value]))
    for value, buffer in enumerate(buffers):
        equal(make.read(queue, buffer), [value] * COUNT, f"what launch {value} wrote")


@rule(LAUNCH, "a buffer, a USM pointer and a number in one launch")
def test_mixed_arguments(make: URObjects, queue: int, buffer: int, memory: int) -> None:
    make.write(queue, buffer, [1] * COUNT)
    make.put(queue, memory, range(COUNT))
    make.launch(queue, make.kernel("axpy"), BufferValue(buffer), PointerValue(memory), ints([3]))
    equal(
        make.read(queue, buffer), [1 + 3 * value for value in range(COUNT)], "what the launch wrote"
    )


@rule(LAUNCH, "local memory of the size that was asked for")
def test_local_memory(make: URObjects, queue: int, buffer: int) -> None:
    make.launch(queue, make.kernel("local_sum"), BufferValue(buffer), LocalValue(4 * 8), local=(8,))
    equal(make.read(queue, buffer), [36] * COUNT, "the sums")


@rule(LAUNCH, "a kernel without arguments")
def test_no_arguments(make: URObjects, queue: int) -> None:
    make.wait(make.launch(queue, make.kernel("nothing")))


@rule(LAUNCH, "waits for all events of its list")
def test_waits(make: URObjects, out_of_order: int, buffer: int) -> None:
    other, gate = make.buffer(), make.user_event()
    make.write(out_of_order, other, [0] * COUNT)
    first = make.launch(
        out_of_order, make.kernel(), BufferValue(other), ints([3]), after=(gate.handle,)
    )
    second = make.launch(
        out_of_order, make.kernel("copy"), BufferValue(buffer), BufferValue(other), after=(first,)
    )
    gate.complete()
    make.wait(second)
    equal(make.read(out_of_order, buffer), [3] * COUNT, "what the second launch copied")


@rule(LAUNCH, "a thousand launches without a wait")
def test_many(ur: URCalls, make: URObjects, queue: int, buffer: int) -> None:
    make.write(queue, buffer, [0] * COUNT)
    kernel, (count, array) = make.kernel("add_one"), make.arguments(BufferValue(buffer))
    for _ in range(1000):
        ur.ok(LAUNCH, queue, kernel, 1, None, sizes(COUNT), None, count, array)
    equal(make.read(queue, buffer), [1000] * COUNT, "what the launches wrote")


@rule(LAUNCH, "INVALID_WORK_GROUP_SIZE for a local size that is larger than the device's")
def test_too_large_a_group(
    ur: URCalls, make: URObjects, device: int, queue: int, buffer: int
) -> None:
    size = 2 * ur.info("urDeviceGetInfo", device, "UR_DEVICE_INFO_MAX_WORK_GROUP_SIZE")
    given = make.arguments(
        BufferValue(make.buffer(4 * size, context=query_context(ur, queue))), ints([1])
    )
    errors = "INVALID_WORK_GROUP_SIZE|INVALID_WORK_ITEM_SIZE|INVALID_GROUP_SIZE_DIMENSION"
    ur.fails(LAUNCH, errors, queue, make.kernel(), 1, None, sizes(size), sizes(size), *given)


def query_context(ur: URCalls, queue: int) -> int:
    """Return the context of a queue."""
    return ur.info("urQueueGetInfo", queue, "UR_QUEUE_INFO_CONTEXT")


@rule(LAUNCH, "INVALID_WORK_DIMENSION for 0 and for 4 dimensions")
def test_dimensions(ur: URCalls, make: URObjects, queue: int, buffer: int) -> None:
    kernel, given = make.kernel(), make.arguments(BufferValue(buffer), ints([1]))
    for count in (0, 4):
        ones = sizes(*[1] * 4)
        ur.fails(LAUNCH, "INVALID_WORK_DIMENSION", queue, kernel, count, None, ones, None, *given)


@rule(LAUNCH, "an argument is missing: INVALID_KERNEL_ARGS")
def test_missing_argument(ur: URCalls, make: URObjects, queue: int, buffer: int) -> None:
    kernel, given = make.kernel(), make.arguments(BufferValue(buffer))
    errors = "INVALID_KERNEL_ARGS|INVALID_KERNEL_ARGUMENT_INDEX"
    ur.fails(LAUNCH, errors, queue, kernel, 1, None, sizes(COUNT), None, *given)


@rule(LAUNCH, "an argument too many: INVALID_KERNEL_ARGUMENT_INDEX or INVALID_KERNEL_ARGS")
def test_one_argument_too_many(ur: URCalls, make: URObjects, queue: int, buffer: int) -> None:
    kernel, given = make.kernel(), make.arguments(BufferValue(buffer), ints([1]), ints([2]))
    errors = "INVALID_KERNEL_ARGUMENT_INDEX|INVALID_KERNEL_ARGS"
    ur.fails(LAUNCH, errors, queue, kernel, 1, None, sizes(COUNT), None, *given)


@rule(LAUNCH, "an argument of the wrong size: INVALID_KERNEL_ARGUMENT_SIZE or INVALID_KERNEL_ARGS")
def test_argument_of_wrong_size(ur: URCalls, make: URObjects, queue: int, buffer: int) -> None:
    kernel, given = make.kernel(), make.arguments(BufferValue(buffer), ctypes.c_int64(1))
    errors = "INVALID_KERNEL_ARGUMENT_SIZE|INVALID_KERNEL_ARGS"
    ur.fails(LAUNCH, errors, queue, kernel, 1, None, sizes(COUNT), None, *given)


@pytest.mark.parametrize(
    "size",
    each(
        ((64,), (64, 8), (16, 8, 4)), "urKernelGetSuggestedLocalWorkSize", "a size that divides {}"
    ),
)
def test_suggested_size(ur: URCalls, make: URObjects, queue: int, size: tuple[int, ...]) -> None:
    found = sizes(0, 0, 0)
    given = make.kernel("nothing"), queue, len(size), sizes(0, 0, 0), sizes(*size)
    ur.ok("urKernelGetSuggestedLocalWorkSize", *given, found)
    for whole, part in zip(size, found, strict=False):
        if part < 1 or whole % part:
            failed(f"sizes that divide {size}", tuple(found[: len(size)]))


@rule("urKernelGetSuggestedLocalWorkSizeWithArgs", "a size that divides the global size")
def test_suggested_size_with_arguments(
    ur: URCalls, make: URObjects, queue: int, buffer: int
) -> None:
    found = sizes(0, 0, 0)
    given = make.arguments(BufferValue(buffer), ints([1]))
    shape = make.kernel(), queue, 1, sizes(0), sizes(COUNT)
    ur.ok("urKernelGetSuggestedLocalWorkSizeWithArgs", *shape, *given, found)
    if not found[0] or COUNT % found[0]:
        failed(f"a size that divides {COUNT}", found[0])


@rule(
    "urEnqueueKernelLaunch", "the launch of earlier versions, with arguments that were set before"
)
def test_earlier_form(ur: URCalls, make: URObjects, queue: int, buffer: int) -> None:
    kernel, value = make.kernel(), ints([17])
    ur.ok("urKernelSetArgMemObj", kernel, 0, None, buffer)
    ur.ok("urKernelSetArgValue", kernel, 1, 4, None, value)
    make.enqueue("urEnqueueKernelLaunch", queue, kernel, 1, sizes(0), sizes(COUNT))
    equal(make.read(queue, buffer), [17] * COUNT, "what the launch wrote")


@rule("urEnqueueKernelLaunchWithArgsExp", "properties of flags 0 change nothing")
def test_properties(ur: URCalls, make: URObjects, queue: int, buffer: int) -> None:
    how = ur.struct("ur_kernel_launch_ext_properties_t", flags=0)
    given = make.arguments(BufferValue(buffer), ints([18]))
    ur.ok(LAUNCH, queue, make.kernel(), 1, None, sizes(COUNT), None, *given, how)
    equal(make.read(queue, buffer), [18] * COUNT, "what the launch wrote")


@rule("urEnqueueNativeCommandExp", "calls the function, in the order of the queue")
def test_native_command(ur: URCalls, make: URObjects, queue: int) -> None:
    ur.require("UR_DEVICE_INFO_ENQUEUE_NATIVE_COMMAND_SUPPORT_EXP")
    seen: list[object] = []
    function = make.keep(
        ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p)(lambda *given: seen.append(given))
    )
    data, place = ctypes.c_int(), ctypes.cast(function, ctypes.c_void_p)
    make.wait(make.enqueue("urEnqueueNativeCommandExp", queue, place, data))
    equal(seen, [(queue, ctypes.addressof(data))], "calls of the function, by queue and data")


@rule("urEnqueueHostTaskExp", "calls the function after the events of its list")
def test_host_task(ur: URCalls, make: URObjects, queue: int) -> None:
    ur.require("UR_DEVICE_INFO_ENQUEUE_HOST_TASK_SUPPORT_EXP")
    seen: list[object] = []
    function = make.keep(ctypes.CFUNCTYPE(None, ctypes.c_void_p)(lambda data: seen.append(data)))
    data, place = ctypes.c_int(), ctypes.cast(function, ctypes.c_void_p)
    make.wait(make.enqueue("urEnqueueHostTaskExp", queue, place, data))
    equal(seen, [ctypes.addressof(data)], "calls of the function, by data")
