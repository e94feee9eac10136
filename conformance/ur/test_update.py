"""Updates of command-buffers: the rules for `urCommandBufferUpdate…Exp`, and every capability bit.

A device that lacks a capability bit has to answer UNSUPPORTED_FEATURE. `test_update_events` tests
updates of events.
"""

from __future__ import annotations

import ctypes

import pytest

from fairlead.conformance.arrays import ints
from fairlead.conformance.checks import (
    beyond_specification,
    each,
    equal,
    expect,
    failed,
    rule,
    unsupported,
)
from fairlead.conformance.ur.calls import Calls
from fairlead.conformance.ur.objects import COUNT, SIZE, Objects
from fairlead.conformance.ur.recording import (
    BIT,
    CAPABILITIES,
    Recording,
    Step,
    Update,
    need,
    stored,
)
from fairlead.conformance.ur.values import Buffer, Local, Pointer
from fairlead.loader.ur.abi import UR, UR_RESULT_SUCCESS

UPDATE = "urCommandBufferUpdateKernelLaunchExp"
BITS = (
    "KERNEL_ARGUMENTS",
    "LOCAL_WORK_SIZE",
    "GLOBAL_WORK_SIZE",
    "GLOBAL_WORK_OFFSET",
    "KERNEL_HANDLE",
)


# What can be updated


@rule(UPDATE, "argument_value: a number")
def test_argument_value(
    ur: Calls, make: Objects, context: int, queue: int, program: int, buffer: int
) -> None:
    need(ur, "KERNEL_ARGUMENTS")
    recording, step = stored(make, context, program, buffer)
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
def test_argument_buffer(
    ur: Calls, make: Objects, context: int, queue: int, program: int, buffer: int
) -> None:
    need(ur, "KERNEL_ARGUMENTS")
    other = make.buffer(context)
    make.write(queue, buffer, [0] * COUNT)
    recording, step = stored(make, context, program, buffer)
    recording.update(Update(step.command, {0: Buffer(other)}))
    recording.run(queue)
    equal(
        (make.read(queue, other), make.read(queue, buffer)),
        ([1] * COUNT, [0] * COUNT),
        "the new buffer and the old one",
    )


@rule(UPDATE, "argument_pointer: a USM pointer")
def test_argument_pointer(
    ur: Calls, make: Objects, context: int, queue: int, program: int, memory: int
) -> None:
    need(ur, "KERNEL_ARGUMENTS")
    other = make.usm(context)
    make.put(queue, memory, [0] * COUNT)
    recording = Recording(make, context, isUpdatable=True)
    step = recording.launch(make.kernel(program), Pointer(memory), ints([1]), command=True)
    recording.finalize()
    recording.update(Update(step.command, {0: Pointer(other)}))
    recording.run(queue)
    equal(
        (make.get(queue, other), make.get(queue, memory)),
        ([1] * COUNT, [0] * COUNT),
        "the new memory and the old one",
    )


@rule(UPDATE, "argument_local: the size of local memory, with the local size")
def test_argument_local(
    ur: Calls, make: Objects, context: int, queue: int, program: int, buffer: int
) -> None:
    need(ur, "KERNEL_ARGUMENTS", "LOCAL_WORK_SIZE", "GLOBAL_WORK_SIZE")
    recording = Recording(make, context, isUpdatable=True)
    step = recording.launch(
        make.kernel(program, "local_sum"), Buffer(buffer), Local(16), local=(4,), command=True
    )
    recording.finalize()
    recording.update(Update(step.command, {1: Local(64)}, size=(COUNT,), local=(16,)))
    recording.run(queue)
    equal(make.read(queue, buffer), [136] * COUNT, "the sums")


@rule(UPDATE, "several arguments at once")
def test_several_arguments(
    ur: Calls, make: Objects, context: int, queue: int, program: int, buffer: int
) -> None:
    need(ur, "KERNEL_ARGUMENTS")
    other = make.buffer(context)
    recording, step = stored(make, context, program, buffer)
    recording.update(Update(step.command, {0: Buffer(other), 1: ints([9])}))
    recording.run(queue)
    equal(make.read(queue, other), [9] * COUNT, "the new buffer")


@rule(UPDATE, "global_size: smaller, then larger than it was")
def test_global_size(
    ur: Calls, make: Objects, context: int, queue: int, program: int, buffer: int
) -> None:
    need(ur, "GLOBAL_WORK_SIZE", "LOCAL_WORK_SIZE")
    recording, step = stored(make, context, program, buffer, size=(16,), local=(4,))
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
def test_global_size_alone(
    ur: Calls, make: Objects, context: int, queue: int, program: int, buffer: int
) -> None:
    need(ur, "GLOBAL_WORK_SIZE", "LOCAL_WORK_SIZE")
    recording, step = stored(make, context, program, buffer, size=(16,), local=(8,))
    make.write(queue, buffer, [0] * COUNT)
    recording.update(Update(step.command, size=(12,)))
    recording.run(queue)
    equal(make.read(queue, buffer), [1] * 12 + [0] * (COUNT - 12), "the buffer")


@rule(UPDATE, "global_offset")
def test_global_offset(
    ur: Calls, make: Objects, context: int, queue: int, program: int, buffer: int
) -> None:
    need(ur, "GLOBAL_WORK_OFFSET")
    recording, step = stored(make, context, program, buffer, size=(8,), local=(8,))
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
    ur: Calls,
    make: Objects,
    context: int,
    queue: int,
    program: int,
    shape: tuple[tuple[int, ...], tuple[int, ...]],
) -> None:
    need(ur, "GLOBAL_WORK_SIZE", "LOCAL_WORK_SIZE", "GLOBAL_WORK_OFFSET")
    size, local = shape
    start = tuple(range(1, len(size) + 1))
    buffer, recording = make.buffer(context, 80), Recording(make, context, isUpdatable=True)
    first = (2,) * len(size)
    step = recording.launch(
        make.kernel(program, "shape"),
        Buffer(buffer),
        size=first,
        local=(1,) * len(size),
        command=True,
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
def test_new_dimensions(
    ur: Calls, make: Objects, context: int, queue: int, program: int, dimensions: int
) -> None:
    need(ur, "GLOBAL_WORK_SIZE", "LOCAL_WORK_SIZE", "GLOBAL_WORK_OFFSET")
    size, local, start = (4, 2, 2)[:dimensions], (2, 1, 1)[:dimensions], (1, 2, 3)[:dimensions]
    buffer, recording = make.buffer(context, 80), Recording(make, context, isUpdatable=True)
    step = recording.launch(
        make.kernel(program, "shape"), Buffer(buffer), size=(4, 4), local=(2, 2), command=True
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
def test_new_dimensions_incomplete(
    ur: Calls, make: Objects, context: int, program: int, buffer: int, given: str
) -> None:
    need(ur, "GLOBAL_WORK_SIZE", "LOCAL_WORK_SIZE", "GLOBAL_WORK_OFFSET")
    recording, step = stored(make, context, program, buffer)
    update = Update(
        step.command,
        dimensions=2,
        size=(1, 1) if given == "size" else None,
        offset=(1, 1) if given == "offset" else None,
    )
    expect(UR, recording.try_update(update), "UR_RESULT_ERROR_INVALID_VALUE")


@pytest.mark.parametrize("count", each((0, 4), UPDATE, "{} dimensions: INVALID_WORK_DIMENSION"))
def test_number_of_dimensions(
    ur: Calls, make: Objects, context: int, program: int, buffer: int, count: int
) -> None:
    need(ur, "GLOBAL_WORK_SIZE", "LOCAL_WORK_SIZE", "GLOBAL_WORK_OFFSET")
    recording, step = stored(make, context, program, buffer)
    update = Update(step.command, dimensions=count, size=(1,) * 4, offset=(0,) * 4)
    expect(UR, recording.try_update(update), "UR_RESULT_ERROR_INVALID_WORK_DIMENSION")


@pytest.mark.parametrize(
    "bit", each(BITS, UPDATE, "{} is refused where the device does not report it")
)
def test_missing_capability(
    ur: Calls, make: Objects, context: int, program: int, buffer: int, bit: str
) -> None:
    ur.require(CAPABILITIES)
    if ur.device_says(CAPABILITIES) & UR[BIT.format(bit)]:
        unsupported("the device reports it")
    other = make.kernel(program)
    recording, step = stored(
        make, context, program, buffer, alternatives=(other,) if bit == "KERNEL_HANDLE" else ()
    )
    updates = {
        "KERNEL_ARGUMENTS": Update(step.command, {1: ints([2])}),
        "LOCAL_WORK_SIZE": Update(step.command, local=(1,)),
        "GLOBAL_WORK_SIZE": Update(step.command, size=(8,), local=(1,)),
        "GLOBAL_WORK_OFFSET": Update(step.command, offset=(1,)),
        "KERNEL_HANDLE": Update(step.command, {0: Buffer(buffer), 1: ints([2])}, kernel=other),
    }
    expect(UR, recording.try_update(updates[bit]), "UR_RESULT_ERROR_UNSUPPORTED_FEATURE")


# When


@rule(UPDATE, "before_finalize: INVALID_OPERATION")
def test_before_finalize(ur: Calls, make: Objects, context: int, program: int, buffer: int) -> None:
    need(ur, "KERNEL_ARGUMENTS")
    recording = Recording(make, context, isUpdatable=True)
    step = recording.launch(make.kernel(program), Buffer(buffer), ints([1]), command=True)
    expect(
        UR,
        recording.try_update(Update(step.command, {1: ints([2])})),
        "UR_RESULT_ERROR_INVALID_OPERATION",
    )


@rule(UPDATE, "of_fixed_buffer: INVALID_OPERATION for a command-buffer that is not updatable")
def test_fixed_buffer(ur: Calls, make: Objects, context: int, program: int, buffer: int) -> None:
    need(ur, "KERNEL_ARGUMENTS")
    _, step = stored(make, context, program, buffer)
    fixed = Recording(make, context)
    fixed.finalize()
    expect(
        UR,
        fixed.try_update(Update(step.command, {1: ints([2])})),
        "UR_RESULT_ERROR_INVALID_OPERATION",
    )


@rule(
    UPDATE,
    "while_executing: what was enqueued before keeps its values, what comes after has the new ones",
)
def test_while_executing(
    ur: Calls, make: Objects, context: int, queue: int, program: int, buffer: int
) -> None:
    need(ur, "KERNEL_ARGUMENTS")
    recording = Recording(make, context, isUpdatable=True, isInOrder=True)
    make.write(queue, buffer, [0] * COUNT)
    step = recording.launch(
        make.kernel(program, "axpy"),
        Buffer(buffer),
        Buffer(ones(make, context, queue)),
        ints([1]),
        command=True,
    )
    recording.finalize()
    for value in (10, 100, 1000):
        recording.enqueue(queue)
        recording.update(Update(step.command, {2: ints([value])}))
    recording.enqueue(queue)
    equal(make.read(queue, buffer), [1111] * COUNT, "the sum of what four executions added")


def ones(make: Objects, context: int, queue: int) -> int:
    buffer = make.buffer(context)
    make.write(queue, buffer, [1] * COUNT)
    return buffer


@rule(UPDATE, "the values may be changed as soon as it returns")
def test_values_are_copied(
    ur: Calls, make: Objects, context: int, queue: int, program: int, buffer: int
) -> None:
    need(ur, "KERNEL_ARGUMENTS")
    recording, step = stored(make, context, program, buffer)
    value = ints([2])
    recording.update(Update(step.command, {1: value}))
    value[0] = 3
    recording.run(queue)
    equal(make.read(queue, buffer), [2] * COUNT, "the buffer")


# What


@rule(UPDATE, "several_commands: each has its own new value")
def test_several_commands(ur: Calls, make: Objects, context: int, queue: int, program: int) -> None:
    need(ur, "KERNEL_ARGUMENTS")
    recording, buffers = (
        Recording(make, context, isUpdatable=True),
        [make.buffer(context) for _ in range(3)],
    )
    kernel = make.kernel(program)
    steps = [
        recording.launch(kernel, Buffer(buffer), ints([1]), command=True) for buffer in buffers
    ]
    recording.finalize()
    recording.update(
        *(Update(step.command, {1: ints([number])}) for number, step in enumerate(steps, 5))
    )
    recording.run(queue)
    equal([make.read(queue, buffer)[0] for buffer in buffers], [5, 6, 7], "what was stored")


@rule(UPDATE, "one of two commands: the other keeps its value")
def test_one_of_two(
    ur: Calls, make: Objects, context: int, queue: int, program: int, buffer: int
) -> None:
    need(ur, "KERNEL_ARGUMENTS")
    recording, kernel, other = (
        Recording(make, context, isUpdatable=True),
        make.kernel(program),
        make.buffer(context),
    )
    step = recording.launch(kernel, Buffer(buffer), ints([1]), command=True)
    recording.launch(kernel, Buffer(other), ints([2]))
    recording.finalize()
    recording.update(Update(step.command, {1: ints([3])}))
    recording.run(queue)
    equal((make.read(queue, buffer)[0], make.read(queue, other)[0]), (3, 2), "what was stored")


@rule(UPDATE, "the last of several updates counts")
def test_last_update_counts(
    ur: Calls, make: Objects, context: int, queue: int, program: int, buffer: int
) -> None:
    need(ur, "KERNEL_ARGUMENTS")
    recording, step = stored(make, context, program, buffer)
    for value in range(2, 20):
        recording.update(Update(step.command, {1: ints([value])}))
    recording.run(queue)
    equal(make.read(queue, buffer), [19] * COUNT, "the buffer")


@beyond_specification
@rule(UPDATE, "all_or_none: with one wrong element nothing is changed")
def test_all_or_none(ur: Calls, make: Objects, context: int, queue: int, program: int) -> None:
    need(ur, "KERNEL_ARGUMENTS")
    recording, buffers = (
        Recording(make, context, isUpdatable=True),
        [make.buffer(context) for _ in range(2)],
    )
    steps = [
        recording.launch(make.kernel(program), Buffer(buffer), ints([1]), command=True)
        for buffer in buffers
    ]
    recording.finalize()
    wrong = Update(steps[1].command, {7: ints([3])})
    code = recording.try_update(Update(steps[0].command, {1: ints([2])}), wrong)
    recording.run(queue)
    expect(UR, code, "UR_RESULT_ERROR_INVALID_KERNEL_ARGUMENT_INDEX")
    equal([make.read(queue, buffer)[0] for buffer in buffers], [1, 1], "what was stored")


@rule(UPDATE, "an argument that the kernel does not have: INVALID_KERNEL_ARGUMENT_INDEX")
def test_unknown_argument(
    ur: Calls, make: Objects, context: int, program: int, buffer: int
) -> None:
    need(ur, "KERNEL_ARGUMENTS")
    recording, step = stored(make, context, program, buffer)
    code = recording.try_update(Update(step.command, {2: ints([2])}))
    expect(UR, code, "UR_RESULT_ERROR_INVALID_KERNEL_ARGUMENT_INDEX")


@rule(UPDATE, "a number of the wrong size: INVALID_KERNEL_ARGUMENT_SIZE")
def test_argument_of_wrong_size(
    ur: Calls, make: Objects, context: int, program: int, buffer: int
) -> None:
    need(ur, "KERNEL_ARGUMENTS")
    recording, step = stored(make, context, program, buffer)
    code = recording.try_update(Update(step.command, {1: ctypes.c_int64(2)}))
    expect(UR, code, "UR_RESULT_ERROR_INVALID_KERNEL_ARGUMENT_SIZE")


@rule(UPDATE, "a command of another command-buffer: INVALID_COMMAND_BUFFER_COMMAND_HANDLE_EXP")
def test_foreign_command(ur: Calls, make: Objects, context: int, program: int, buffer: int) -> None:
    need(ur, "KERNEL_ARGUMENTS")
    recording, _ = stored(make, context, program, buffer)
    _, step = stored(make, context, program, buffer)
    code = recording.try_update(Update(step.command, {1: ints([2])}))
    expect(UR, code, "UR_RESULT_ERROR_INVALID_COMMAND_BUFFER_COMMAND_HANDLE_EXP")


@rule(UPDATE, "a command that is no launch: INVALID_COMMAND_BUFFER_COMMAND_HANDLE_EXP")
def test_no_launch(ur: Calls, make: Objects, context: int, buffer: int) -> None:
    need(ur, "KERNEL_ARGUMENTS")
    recording = Recording(make, context, isUpdatable=True)
    given = buffer, ints([1]), 4, 0, SIZE
    code, step = recording.try_append("urCommandBufferAppendMemBufferFillExp", *given, command=True)
    if code or not step.command:
        unsupported("the adapter gives no handle for a fill")
    recording.finalize()
    code = recording.try_update(Update(step.command, {1: ints([2])}))
    expect(UR, code, "UR_RESULT_ERROR_INVALID_COMMAND_BUFFER_COMMAND_HANDLE_EXP")


# Kernels


def alternatives(
    make: Objects, context: int, program: int, buffer: int
) -> tuple[Recording, Step, int, int]:
    """A command-buffer with a launch of `add_one` and the alternative `twice`.

    Also both kernels.
    """
    recording = Recording(make, context, isUpdatable=True)
    one, two = make.kernel(program, "add_one"), make.kernel(program, "twice")
    step = recording.launch(one, Buffer(buffer), alternatives=(two,), command=True)
    recording.finalize()
    return recording, step, one, two


@rule(UPDATE, "kernel: one that was registered, and back again")
def test_kernel(
    ur: Calls, make: Objects, context: int, queue: int, program: int, buffer: int
) -> None:
    need(ur, "KERNEL_HANDLE", "KERNEL_ARGUMENTS")
    recording, step, one, two = alternatives(make, context, program, buffer)
    make.write(queue, buffer, [5] * COUNT)
    seen = []
    for kernel in (0, two, two, one):
        if kernel:
            recording.update(Update(step.command, {0: Buffer(buffer)}, kernel=kernel))
        recording.run(queue)
        seen.append(make.read(queue, buffer)[0])
    equal(seen, [6, 12, 24, 25], "the buffer after each execution")


@rule(UPDATE, "kernel: one with other parameters")
def test_kernel_with_other_parameters(
    ur: Calls, make: Objects, context: int, queue: int, program: int, buffer: int
) -> None:
    need(ur, "KERNEL_HANDLE", "KERNEL_ARGUMENTS")
    recording, other = Recording(make, context, isUpdatable=True), make.kernel(program)
    step = recording.launch(
        make.kernel(program, "add_one"), Buffer(buffer), alternatives=(other,), command=True
    )
    recording.finalize()
    recording.update(Update(step.command, {0: Buffer(buffer), 1: ints([33])}, kernel=other))
    recording.run(queue)
    equal(make.read(queue, buffer), [33] * COUNT, "the buffer")


@rule(UPDATE, "kernel: one that was not registered: INVALID_VALUE")
def test_unregistered_kernel(
    ur: Calls, make: Objects, context: int, program: int, buffer: int
) -> None:
    need(ur, "KERNEL_HANDLE", "KERNEL_ARGUMENTS")
    recording, step, _, _ = alternatives(make, context, program, buffer)
    update = Update(step.command, {0: Buffer(buffer), 1: ints([1])}, kernel=make.kernel(program))
    expect(UR, recording.try_update(update), "UR_RESULT_ERROR_INVALID_VALUE")


@rule(UPDATE, "kernel: without its arguments an error")
def test_kernel_without_arguments(
    ur: Calls, make: Objects, context: int, program: int, buffer: int
) -> None:
    need(ur, "KERNEL_HANDLE", "KERNEL_ARGUMENTS")
    recording, step, _, two = alternatives(make, context, program, buffer)
    if recording.try_update(Update(step.command, kernel=two)) == UR_RESULT_SUCCESS:
        failed("an error", "UR_RESULT_SUCCESS")
